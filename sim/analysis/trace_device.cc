// A kernel belongs to the phase in which the host enqueued it (its launch has its correlation), and
// a phase ends with its last kernel:
//   F = last end of forward's, B = of backward's, O = of the update's, P = O of the iteration
//   before forward = F - P - idle time behind broadcasts    backward = B - F - hooks optimizer = O
//   - max(B, end of the last collective before the update) - copies of buckets
// Backward and the update are without idle time behind collectives that reduce nothing.
// Of hooks: their kernels, and time in which the device is idle while the host runs them.
#include "sim/analysis/trace_device.h"

#include <algorithm>
#include <map>

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

// Reductions of gradients do not hold up backward: what it waits for is another collective.
bool holds_up(const Trace& trace, const TraceEvent& e) {
  return e.what == Traced::DeviceCollective &&
         trace.messages[e.detail].operation != Operation::AllReduce &&
         trace.messages[e.detail].operation != Operation::ReduceScatter;
}

// What the host enqueued in [from, to): of one kind, in order of launch. `others`: of collectives
// those that hold up backward alone.
std::vector<Work> enqueued(const Trace& trace, const std::vector<Launched>& launched, Traced what,
                           TimePoint from, TimePoint to, bool others = false) {
  std::vector<Work> out;
  for (const TraceEvent& e : trace.events) {
    if (e.what != what || (others && !holds_up(trace, e))) continue;
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

// When the device was idle between `from` and `to` with a collective in flight; in order, apart.
std::vector<Work> blocked_behind(const std::vector<Work>& work,
                                 const std::vector<Work>& collectives, TimePoint from,
                                 TimePoint to) {
  std::vector<Work> out;
  for (auto [begin, end] : gaps(work, from, to)) {
    TimePoint counted = begin;
    for (const Work& c : collectives) {
      TimePoint last = std::min(c.end, end);
      TimePoint first = std::max(c.begin, counted);
      if (last <= first) continue;
      out.push_back({first, first, last});
      counted = last;
    }
  }
  return out;
}
Duration idle_behind(const std::vector<Work>& work, const std::vector<Work>& collectives,
                     TimePoint from, TimePoint to) {
  Duration sum;
  for (const Work& w : blocked_behind(work, collectives, from, to)) sum += w.end - w.begin;
  return sum;
}

// What of [from, to) the host spent in hooks, of which the k-th ran from at[k] to done[k].
void add_parts(std::vector<Work>& out, const std::vector<TimePoint>& at,
               const std::vector<TimePoint>& done, TimePoint from, TimePoint to) {
  auto first = std::lower_bound(done.begin(), done.end(), from) - done.begin();
  for (std::size_t k = first; k < at.size() && at[k] < to; ++k) {
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

bool by_end(const Work& x, const Work& y) {
  return x.end < y.end;
}

// When the device began with the iteration: behind its last kernel of the one before.
TimePoint device_begin(const Trace& trace, const std::vector<Launched>& launched, TimePoint begin,
                       std::optional<Iteration> before) {
  if (!before) return begin;
  std::vector<Work> earlier = enqueued(trace, launched, Traced::Device, before->begin, before->end);
  TimePoint from = last_end(earlier, before->begin, before->end, TimePoint{INT64_MIN});
  return from.ps == INT64_MIN ? begin : from;
}

class OneStep {
 public:
  OneStep(const Trace& trace, const Iteration& iteration, std::optional<Iteration> before,
          const TracedStep& host, const std::vector<TimePoint>& at,
          const std::vector<TimePoint>& done)
      : trace_(trace),
        host_(host),
        at_(at),
        done_(done),
        begin_(iteration.begin),
        end_(iteration.end),
        b0_(host.backward_begin),
        b1_(host.backward_end),
        launched_(launches(trace, before ? before->begin : begin_, end_)),
        work_(enqueued(trace, launched_, Traced::Device, begin_, end_)),
        collectives_(enqueued(trace, launched_, Traced::DeviceCollective, begin_, end_)) {
    out_.forward_begin = device_begin(trace, launched_, begin_, before);
  }

  DeviceStep take() {
    out_.forward_end = last_end(work_, begin_, b0_, out_.forward_begin);
    end_backward();
    begin_update();
    std::vector<Work> paused = pauses();
    add_arrivals(paused);
    add_waits();
    return std::move(out_);
  }

 private:
  bool of_hook(const Work& w) const {
    if (!host_.wrapped) return false;
    auto i = std::upper_bound(at_.begin(), at_.end(), w.launched) - at_.begin();
    return i > 0 && w.launched < done_[static_cast<std::size_t>(i) - 1];
  }

  // Sorts the kernels of backward into the hooks' and its own.
  void end_backward() {
    out_.gradients_end = out_.forward_end;
    for (const Work& w : work_) {
      if (w.launched < b0_ || w.launched >= b1_) continue;
      if (of_hook(w)) {
        hooks_.push_back(w);
      } else {
        backward_.push_back(w);
        out_.gradients_end = std::max(out_.gradients_end, w.end);
      }
    }
  }

  void begin_update() {
    TimePoint b = out_.gradients_end;
    TimePoint o = last_end(work_, b1_, end_, b);
    TimePoint update = o;
    for (const Work& w : work_)
      if (w.launched >= b1_ && w.launched >= host_.update_begin) update = std::min(update, w.begin);
    TimePoint reduced = b;
    for (const Work& c : collectives_)
      if (c.launched < host_.update_begin && c.launched >= b0_) reduced = std::max(reduced, c.end);
    // The update's kernels come after the collective that they wait for, and after the copies.
    TimePoint update_from = std::max(b, std::min(reduced, update));
    for (const Work& w : work_)
      if (w.launched >= b1_ && w.launched < host_.update_begin)
        update_from = std::max(update_from, std::min(w.end, update));
    out_.reduced = update_from;
    out_.update_end = o;
  }

  // The times of the phases; returns when backward is paused, sorted by end.
  std::vector<Work> pauses() {
    TimePoint f = out_.forward_end;
    TimePoint b = out_.gradients_end;
    std::vector<Work> paused = hooks_;
    if (host_.wrapped)
      for (auto [idle, until] : gaps(work_, f, b)) add_parts(paused, at_, done_, idle, until);
    std::sort(paused.begin(), paused.end(), by_end);
    for (const Work& w : paused)
      if (w.begin < b) out_.hooks += std::min(w.end, b) - std::max(w.begin, f);
    const std::vector<Work> others =
        enqueued(trace_, launched_, Traced::DeviceCollective, begin_, end_, true);
    const std::vector<Work> blocked = blocked_behind(work_, others, f, b);
    Duration held_up;
    for (const Work& w : blocked) held_up += w.end - w.begin;
    paused.insert(paused.end(), blocked.begin(), blocked.end());
    std::sort(paused.begin(), paused.end(), by_end);
    TimePoint from = out_.forward_begin;
    out_.times.forward = f - from - idle_behind(work_, collectives_, from, f);
    out_.times.backward = std::max(b - f - out_.hooks - held_up, Duration{});
    out_.times.optimizer = std::max(
        out_.update_end - out_.reduced - idle_behind(work_, others, out_.reduced, out_.update_end),
        Duration{});
    return paused;
  }

  void add_arrivals(const std::vector<Work>& paused) {
    TimePoint f = out_.forward_end;
    Duration hooked;
    std::size_t h = 0;
    std::size_t next = 0;
    TimePoint done_so_far = f;
    for (TimePoint arrived : at_) {
      for (; next < backward_.size() && backward_[next].launched <= arrived; ++next)
        done_so_far = std::max(done_so_far, backward_[next].end);
      for (; h < paused.size() && paused[h].end <= done_so_far; ++h)
        hooked += paused[h].end - std::max(paused[h].begin, f);
      out_.arrived.push_back(done_so_far);
      Duration ready = std::max(done_so_far - f - hooked, Duration{});
      if (!out_.times.ready.empty()) ready = std::max(ready, out_.times.ready.back());
      out_.times.ready.push_back(std::min(ready, out_.times.backward));
    }
  }

  void add_waits() {
    for (const TraceEvent& e : trace_.events) {
      if (e.what != Traced::Sync || e.begin < begin_ || e.begin >= end_) continue;
      std::size_t phase = e.begin < b0_ ? 0 : e.begin < b1_ ? 1 : 2;
      // What DDP waits for after backward is none of the update's.
      if (phase == 2 && e.begin < host_.update_begin) continue;
      out_.waits[phase] += std::min(e.end, end_) - e.begin;
    }
  }

  const Trace& trace_;
  const TracedStep& host_;
  const std::vector<TimePoint>& at_;  // as device_step() has them
  const std::vector<TimePoint>& done_;
  TimePoint begin_, end_;
  TimePoint b0_, b1_;  // backward, on the host
  std::vector<Launched> launched_;
  std::vector<Work> work_, collectives_;
  std::vector<Work> hooks_, backward_;  // of `work_`
  DeviceStep out_;
};

}  // namespace

bool on_a_device(const Trace& trace, const Iteration& iteration) {
  return std::any_of(trace.events.begin(), trace.events.end(), [&](const TraceEvent& e) {
    return e.what == Traced::Device && e.begin >= iteration.begin && e.begin < iteration.end;
  });
}

DeviceStep device_step(const Trace& trace, const Iteration& iteration,
                       std::optional<Iteration> before, const TracedStep& host,
                       const std::vector<TimePoint>& at, const std::vector<TimePoint>& done) {
  return OneStep(trace, iteration, before, host, at, done).take();
}

const char* phase_without_work(const Trace& trace, const TracedStep& step) {
  if (!step.times.host) return nullptr;
  const auto [begin, end, thread] = step.iteration;
  const std::vector<Launched> launched = launches(trace, begin, end);
  const std::vector<Work> work = enqueued(trace, launched, Traced::Device, begin, end);
  struct Phase {
    const char* name;
    TimePoint from, to;
  };
  for (const Phase& p : {Phase{"forward", begin, step.backward_begin},
                         Phase{"backward", step.backward_begin, step.backward_end},
                         Phase{"the update", step.update_begin, end}}) {
    auto within = [&](TimePoint t) { return t >= p.from && t < p.to; };
    const bool calls =
        launched.empty() || std::any_of(launched.begin(), launched.end(),
                                        [&](const Launched& l) { return within(l.at); });
    if (calls &&
        std::none_of(work.begin(), work.end(), [&](const Work& w) { return within(w.launched); }))
      return p.name;
  }
  return nullptr;
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

std::vector<std::pair<TimePoint, TimePoint>> late_host(const Trace& trace, TimePoint from,
                                                       TimePoint to) {
  std::map<std::int64_t, TimePoint> enqueued_at;
  std::vector<std::pair<TimePoint, TimePoint>> waits;  // of the host, for the device
  for (const TraceEvent& e : trace.events) {
    if (e.what == Traced::Launch && e.correlation >= 0)
      enqueued_at.try_emplace(e.correlation, e.end);
    if (e.what == Traced::Sync && e.begin < to && e.end > from) waits.emplace_back(e.begin, e.end);
  }
  std::vector<std::pair<TimePoint, TimePoint>> out;
  TimePoint idle = from;  // since then, and until the next kernel begins
  for (const TraceEvent& e : trace.events) {
    if (e.what != Traced::Device || e.end <= from) continue;
    if (auto at = enqueued_at.find(e.correlation); at != enqueued_at.end()) {
      const TimePoint until = std::min({at->second, e.begin, to});
      for (auto [begin, end] : waits) {
        if (end <= idle || begin >= until) continue;
        if (begin > idle) out.emplace_back(idle, begin);
        idle = std::max(idle, end);
      }
      if (until > idle) out.emplace_back(idle, until);
    }
    idle = std::max(idle, e.end);
    if (e.begin >= to) break;  // the first one after it says until when the host was late
  }
  return out;
}

}  // namespace ddpsim::analysis
