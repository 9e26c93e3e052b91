// A kernel belongs to the phase in which the host enqueued it (its launch has its correlation), and
// a phase ends with its last kernel:
//   F = last end of forward's, B = of backward's, O = of the update's, P = O of the iteration
//   before forward = F - P - idle time behind broadcasts    backward = B - F - hooks optimizer = O
//   - max(B, end of the last collective before the update) - copies of buckets
// Of hooks: their kernels, and time in which the device is idle while the host runs them.
#include "sim/analysis/trace_device.h"

#include <algorithm>

namespace ddpsim::analysis {
namespace {

struct Launched {
  std::int64_t correlation = -1;
  TimePoint at;
};

// When the host enqueued what, in [from, to); by correlation.
std::vector<Launched> launches(const Trace& trace, TimePoint from, TimePoint to) {
  std::vector<Launched> out;
  auto at = std::lower_bound(trace.events.begin(), trace.events.end(), from,
                             [](const TraceEvent& e, TimePoint t) { return e.begin < t; });
  for (; at != trace.events.end() && at->begin < to; ++at)
    if (at->what == Traced::Launch && at->correlation >= 0)
      out.push_back({at->correlation, at->begin});
  std::sort(out.begin(), out.end(), [](const Launched& a, const Launched& b) {
    return a.correlation != b.correlation ? a.correlation < b.correlation : a.at < b.at;
  });
  return out;
}

const Launched* find(const std::vector<Launched>& all, std::int64_t correlation) {
  auto at = std::lower_bound(all.begin(), all.end(), correlation,
                             [](const Launched& l, std::int64_t c) { return l.correlation < c; });
  return at == all.end() || at->correlation != correlation ? nullptr : &*at;
}

struct Work {
  TimePoint launched;
  TimePoint begin;
  TimePoint end;
};

// What the host enqueued in [from, to): of one kind, in order of launch.
std::vector<Work> enqueued(const Trace& trace, const std::vector<Launched>& launched, Traced what,
                           TimePoint from, TimePoint to) {
  std::vector<Work> out;
  for (const TraceEvent& e : trace.events) {
    if (e.what != what) continue;
    const Launched* l = find(launched, e.correlation);
    if (l && l->at >= from && l->at < to) out.push_back({l->at, e.begin, e.end});
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Work& a, const Work& b) { return a.launched < b.launched; });
  return out;
}

// When none of `work` runs between `from` and `to`.
std::vector<std::pair<TimePoint, TimePoint>> gaps(const std::vector<Work>& work, TimePoint from,
                                                  TimePoint to) {
  std::vector<Work> by_begin = work;
  std::sort(by_begin.begin(), by_begin.end(),
            [](const Work& a, const Work& b) { return a.begin < b.begin; });
  std::vector<std::pair<TimePoint, TimePoint>> out;
  TimePoint at = from;
  for (const Work& w : by_begin) {
    if (w.begin >= to) break;
    if (w.begin > at) out.emplace_back(at, w.begin);
    at = std::max(at, w.end);
  }
  if (at < to) out.emplace_back(at, to);
  return out;
}

// Idle time of the device between `from` and `to` in which a collective was in flight.
Duration idle_behind(const std::vector<Work>& work, const std::vector<Work>& collectives,
                     TimePoint from, TimePoint to) {
  Duration sum;
  for (auto [begin, end] : gaps(work, from, to)) {
    TimePoint counted = begin;
    for (const Work& c : collectives) {
      TimePoint last = std::min(c.end, end);
      TimePoint first = std::max(c.begin, counted);
      if (last <= first) continue;
      sum += last - first;
      counted = last;
    }
  }
  return sum;
}

// What of [from, to) the host spent in hooks, of which the k-th ran from at[k] to done[k].
void add_parts(std::vector<Work>& out, const std::vector<TimePoint>& at,
               const std::vector<TimePoint>& done, TimePoint from, TimePoint to) {
  auto first = std::lower_bound(done.begin(), done.end(), from) - done.begin();
  for (auto k = static_cast<std::size_t>(first); k < at.size() && at[k] < to; ++k) {
    TimePoint begin = std::max(at[k], from);
    TimePoint end = std::min(done[k], to);
    if (end > begin) out.push_back({begin, begin, end});
  }
}

TimePoint last_end(const std::vector<Work>& work, TimePoint from, TimePoint to, TimePoint least) {
  for (const Work& w : work)
    if (w.launched >= from && w.launched < to) least = std::max(least, w.end);
  return least;
}

}  // namespace

bool on_a_device(const Trace& trace, const Iteration& iteration) {
  return std::any_of(trace.events.begin(), trace.events.end(), [&](const TraceEvent& e) {
    return e.what == Traced::Device && e.begin >= iteration.begin && e.begin < iteration.end;
  });
}

DeviceStep device_step(const Trace& trace, const Iteration& iteration,
                       std::optional<Iteration> before, const TracedStep& host,
                       const std::vector<TimePoint>& at, const std::vector<TimePoint>& done) {
  DeviceStep out;
  auto [begin, end, thread] = iteration;
  TimePoint b0 = host.backward_begin;
  TimePoint b1 = host.backward_end;
  std::vector<Launched> launched = launches(trace, before ? before->begin : begin, end);
  std::vector<Work> work = enqueued(trace, launched, Traced::Device, begin, end);
  std::vector<Work> collectives = enqueued(trace, launched, Traced::DeviceCollective, begin, end);
  TimePoint from = begin;
  if (before) {
    std::vector<Work> earlier =
        enqueued(trace, launched, Traced::Device, before->begin, before->end);
    from = last_end(earlier, before->begin, before->end, TimePoint{INT64_MIN});
    if (from.ps == INT64_MIN) from = begin;
  }
  auto of_hook = [&](const Work& w) {
    if (!host.wrapped) return false;
    auto i = std::upper_bound(at.begin(), at.end(), w.launched) - at.begin();
    return i > 0 && w.launched < done[static_cast<std::size_t>(i) - 1];
  };
  TimePoint f = last_end(work, begin, b0, from);
  TimePoint b = f;
  std::vector<Work> hooks;
  for (const Work& w : work) {
    if (w.launched < b0 || w.launched >= b1) continue;
    if (of_hook(w))
      hooks.push_back(w);
    else
      b = std::max(b, w.end);
  }
  TimePoint o = last_end(work, b1, end, b);
  TimePoint update = o;
  Duration copies;
  for (const Work& w : work) {
    if (w.launched < b1) continue;
    if (w.launched < host.update_begin)
      copies += w.end - w.begin;
    else
      update = std::min(update, w.begin);
  }
  TimePoint reduced = b;
  for (const Work& c : collectives)
    if (c.launched < host.update_begin && c.launched >= b0) reduced = std::max(reduced, c.end);
  // The update's kernels come after the collective that they wait for, and after the copies.
  TimePoint update_from = std::max(b, std::min(reduced, update));
  for (const Work& w : work)
    if (w.launched >= b1 && w.launched < host.update_begin)
      update_from = std::max(update_from, std::min(w.end, update));

  out.forward_begin = from;
  out.forward_end = f;
  out.gradients_end = b;
  out.reduced = update_from;
  out.update_end = o;
  std::vector<Work> backward;
  for (const Work& w : work)
    if (w.launched >= b0 && w.launched < b1 && !of_hook(w)) backward.push_back(w);
  std::vector<Work> paused = hooks;
  if (host.wrapped)
    for (auto [idle, until] : gaps(work, f, b)) add_parts(paused, at, done, idle, until);
  std::sort(paused.begin(), paused.end(),
            [](const Work& x, const Work& y) { return x.end < y.end; });
  for (const Work& w : paused)
    if (w.begin < b) out.hooks += std::min(w.end, b) - std::max(w.begin, f);
  out.times.forward = f - from - idle_behind(work, collectives, from, f);
  out.times.backward = std::max(b - f - out.hooks, Duration{});
  out.times.optimizer = std::max(o - update_from, Duration{});
  Duration hooked;
  std::size_t h = 0;
  std::size_t next = 0;
  TimePoint done_so_far = f;
  for (TimePoint arrived : at) {
    for (; next < backward.size() && backward[next].launched <= arrived; ++next)
      done_so_far = std::max(done_so_far, backward[next].end);
    for (; h < paused.size() && paused[h].end <= done_so_far; ++h)
      hooked += paused[h].end - std::max(paused[h].begin, f);
    out.arrived.push_back(done_so_far);
    Duration ready = std::max(done_so_far - f - hooked, Duration{});
    if (!out.times.ready.empty()) ready = std::max(ready, out.times.ready.back());
    out.times.ready.push_back(std::min(ready, out.times.backward));
  }
  for (const TraceEvent& e : trace.events) {
    if (e.what != Traced::Sync || e.begin < begin || e.begin >= end) continue;
    std::size_t phase = e.begin < b0 ? 0 : e.begin < b1 ? 1 : 2;
    // What DDP waits for after backward is none of the update's.
    if (phase == 2 && e.begin < host.update_begin) continue;
    out.waits[phase] += std::min(e.end, end) - e.begin;
  }
  return out;
}

std::vector<std::pair<TimePoint, TimePoint>> computing(const Trace& trace, TimePoint from,
                                                       TimePoint to) {
  std::vector<std::pair<TimePoint, TimePoint>> out;
  for (const TraceEvent& e : trace.events) {
    if (e.what != Traced::Device || e.begin < from || e.begin >= to) continue;
    if (!out.empty() && e.begin <= out.back().second)
      out.back().second = std::max(out.back().second, e.end);
    else
      out.emplace_back(e.begin, e.end);
  }
  return out;
}

}  // namespace ddpsim::analysis
