// Iterations of a trace, and where the time of one goes. On a CPU, with B0 and B1 the begin of the
// first and the end of the last autograd node:
//   forward = B0 - begin - zero_grad - broadcasts    backward = B1 - B0 - hooks
//   optimizer = end - update_begin + zero_grad       ready_i = end of AccumulateGrad i - B0 - hooks
// On a GPU the same boundaries are taken on the compute streams: a phase ends with the last kernel
// that the host enqueued in it (trace_device.cc).
#include "sim/analysis/trace.h"

#include <algorithm>
#include <map>

#include "sim/analysis/trace_device.h"

namespace ddpsim::analysis {
namespace {

bool within(const TraceEvent& e, TimePoint from, TimePoint to) {
  return e.begin >= from && e.begin < to;
}

// Events of one kind that lie in no other of that kind on their thread.
std::vector<TraceEvent> outermost(const Trace& trace, Traced what) {
  std::map<std::uint32_t, TimePoint> until;
  std::vector<TraceEvent> out;
  for (const TraceEvent& e : trace.events) {
    if (e.what != what) continue;
    auto [at, first] = until.try_emplace(e.thread, TimePoint{INT64_MIN});
    if (!first && e.begin < at->second) continue;
    at->second = e.end;
    out.push_back(e);
  }
  return out;
}

Duration total(const std::vector<TraceEvent>& events, TimePoint from, TimePoint to) {
  Duration sum;
  for (const TraceEvent& e : events)
    if (within(e, from, to)) sum += std::min(e.end, to) - e.begin;
  return sum;
}

// From the end of the optimizer that steps last to its next end.
std::vector<Iteration> by_optimizer(const std::vector<TraceEvent>& updates) {
  std::vector<Iteration> out;
  if (updates.empty()) return out;
  const TraceEvent* before = nullptr;
  for (const TraceEvent& e : updates) {
    if (e.detail != updates.back().detail) continue;
    if (before) out.push_back({before->end, e.end, e.thread});
    before = &e;
  }
  return out;
}

// Gradients and hooks of one backward, on the host.
struct Arrivals {
  std::vector<TimePoint> at;             // the gradient is there
  std::vector<TimePoint> done;           // its hooks have run
  std::vector<std::uint32_t> gradients;  // as TracedStep
  std::vector<std::int64_t> nodes;       // the same
  std::int64_t undefined = 0;
};

Arrivals arrivals_of(const Trace& trace, TimePoint from, TimePoint to) {
  Arrivals out;
  std::map<std::uint32_t, const TraceEvent*> open;  // by thread: Accumulate without its inside
  std::vector<std::pair<const TraceEvent*, const TraceEvent*>> pairs;
  std::map<std::uint32_t, std::int64_t> number;  // by thread: of the last node
  std::vector<std::int64_t> numbers;
  for (const TraceEvent& e : trace.events) {
    if (!within(e, from, to)) continue;
    if (e.what == Traced::Node) number[e.thread] = e.correlation;
    if (e.what == Traced::Accumulate) {
      pairs.emplace_back(&e, nullptr);
      numbers.push_back(number.try_emplace(e.thread, -1).first->second);
      open[e.thread] = &e;
    } else if (e.what == Traced::Accumulated) {
      auto o = open.find(e.thread);
      if (o == open.end() || !o->second || e.begin > o->second->end) continue;
      for (auto p = pairs.rbegin(); p != pairs.rend(); ++p)
        if (p->first == o->second) {
          p->second = &e;
          break;
        }
      o->second = nullptr;
    }
  }
  for (std::size_t k = 0; k < pairs.size(); ++k) {
    auto [outer, inner] = pairs[k];
    std::uint32_t gradient = inner ? inner->detail : kNothing;
    if (gradient != kNothing && trace.gradients[gradient].undefined) {
      ++out.undefined;
      continue;
    }
    out.at.push_back(inner ? std::min(inner->end, outer->end) : outer->end);
    out.done.push_back(outer->end);
    out.gradients.push_back(gradient);
    out.nodes.push_back(numbers[k]);
  }
  return out;
}

// Of sorted intervals, what they cover of [from, to].
Duration covered(const std::vector<std::pair<TimePoint, TimePoint>>& sorted, TimePoint from,
                 TimePoint to) {
  Duration sum;
  TimePoint at = from;
  for (auto [begin, end] : sorted) {
    begin = std::max(begin, at);
    end = std::min(end, to);
    if (end <= begin) continue;
    sum += end - begin;
    at = end;
  }
  return sum;
}

// An iteration on the host, besides what goes into the step.
struct HostEvents {
  bool found = false;  // anything of autograd
  std::vector<std::pair<TimePoint, TimePoint>> collectives;
  TimePoint copied;   // the last bucket, to gradients
  TimePoint reduced;  // the last collective has ended
};

HostEvents read_events(const Trace& trace, TracedStep& step) {
  auto [begin, end, thread] = step.iteration;
  HostEvents out;
  out.copied = out.reduced = begin;
  for (const TraceEvent& e : trace.events) {
    if (!within(e, begin, end)) continue;
    switch (e.what) {
      case Traced::Node:
      case Traced::Accumulate:
        if (!out.found) step.backward_begin = e.begin;
        step.backward_end = out.found ? std::max(step.backward_end, e.end) : e.end;
        out.found = true;
        break;
      case Traced::Wrapper:
        step.wrapped = true;
        break;
      case Traced::Sharded:
        step.sharded = true;
        break;
      case Traced::CopyToGrad:
        step.wrapped = true;
        out.copied = std::max(out.copied, e.end);
        break;
      case Traced::Collective:
        out.collectives.emplace_back(e.begin, e.end);
        out.reduced = std::max(out.reduced, e.end);
        break;
      case Traced::Optimizer:
        step.optimizer = trace.names[e.detail];
        break;
      case Traced::Input:
        step.input += std::min(e.end, end) - e.begin;
        break;
      default:
        break;
    }
  }
  return out;
}

// On the host, after what DDP does at the end of backward.
TimePoint update_begin(const Trace& trace, const TracedStep& step, const HostEvents& seen,
                       bool on_device) {
  TimePoint b1 = step.backward_end;
  TimePoint end = step.iteration.end;
  // What follows backward before the optimizer: DDP waits, and copies buckets back.
  TimePoint update = end;
  for (const TraceEvent& e : trace.events)
    if (e.what == Traced::Optimizer && within(e, b1, end)) update = std::min(update, e.begin);
  TimePoint out = b1;
  if (step.wrapped) out = std::max(b1, seen.copied);
  if (!on_device) out = std::max(out, seen.reduced);
  return std::min(out, update);
}

// The hooks' time in all; `ready`: of each gradient, without the hooks before it.
Duration without_hooks(const TracedStep& step, const Arrivals& arrivals,
                       std::vector<Duration>& ready) {
  ready.resize(arrivals.at.size());
  Duration hooked;
  for (std::size_t i = 0; i < ready.size(); ++i) {
    TimePoint at = step.wrapped ? arrivals.at[i] : arrivals.done[i];
    ready[i] = std::max(at - step.backward_begin - hooked, i ? ready[i - 1] : Duration{});
    if (step.wrapped) hooked += arrivals.done[i] - arrivals.at[i];
  }
  return hooked;
}

// The host decides how long the iteration takes ...
void take_host(TracedStep& step, const Arrivals& arrivals, StepTimes host) {
  step.times = std::move(host);
  step.forward_begin = step.iteration.begin;
  step.forward_end = step.backward_begin;
  step.gradients_end = step.backward_end;
  step.reduced = step.update_begin;
  step.update_end = step.iteration.end;
  step.arrived = step.wrapped ? arrivals.at : arrivals.done;
}

// ... or its device does.
void take_device(TracedStep& step, DeviceStep device, StepTimes host) {
  Duration waited = device.waits[0] + device.waits[1] + device.waits[2];
  host.forward = std::max(host.forward - device.waits[0], Duration{});
  host.backward = std::max(host.backward - device.waits[1], Duration{});
  host.optimizer = std::max(host.optimizer - device.waits[2], Duration{});
  for (Duration& d : host.ready) d = std::min(d, host.backward);
  step.times = device.times;
  step.times.host = HostTimes{host.forward, host.backward, host.optimizer, host.ready};
  step.waits = waited;
  step.hooks = device.hooks;
  step.forward_begin = device.forward_begin;
  step.forward_end = device.forward_end;
  step.gradients_end = device.gradients_end;
  step.reduced = device.reduced;
  step.update_end = device.update_end;
  step.arrived = std::move(device.arrived);
}

}  // namespace

std::vector<Iteration> iterations(const Trace& trace) {
  std::vector<TraceEvent> updates = outermost(trace, Traced::Optimizer);
  std::vector<Iteration> out;
  bool all = true;
  for (const TraceEvent& e : trace.events) {
    if (e.what != Traced::Step) continue;
    bool updated = std::any_of(updates.begin(), updates.end(),
                               [&](const TraceEvent& u) { return within(u, e.begin, e.end); });
    // The first and the last are cut off by the profiler's schedule; one in between without an
    // update is a part of a step.
    if (updated)
      out.push_back({e.begin, e.end, e.thread});
    else if (!out.empty() && e.begin < updates.back().begin)
      all = false;
  }
  return out.empty() || !all ? by_optimizer(updates) : out;
}

std::optional<TracedStep> traced_step(const Trace& trace, const Iteration& iteration,
                                      std::optional<Iteration> before) {
  TracedStep step;
  step.iteration = iteration;
  auto [begin, end, thread] = iteration;
  HostEvents seen = read_events(trace, step);
  if (!seen.found) return std::nullopt;
  std::vector<TraceEvent> zero;
  for (const TraceEvent& e : outermost(trace, Traced::ZeroGrad))
    if (within(e, begin, end)) zero.push_back(e);
  TimePoint b0 = step.backward_begin;
  TimePoint b1 = step.backward_end = std::min(step.backward_end, end);
  bool on_device = on_a_device(trace, iteration);
  step.update_begin = update_begin(trace, step, seen, on_device);

  Arrivals arrivals = arrivals_of(trace, begin, end);
  step.gradients = arrivals.gradients;
  step.nodes = arrivals.nodes;
  step.undefined = arrivals.undefined;
  StepTimes host;
  Duration hooked = without_hooks(step, arrivals, host.ready);
  Duration zeroed_before = total(zero, begin, b0);
  Duration broadcast = on_device ? Duration{} : covered(seen.collectives, begin, b0);
  host.forward = b0 - begin - zeroed_before - broadcast;
  host.backward = b1 - b0 - hooked;
  host.optimizer = end - step.update_begin + zeroed_before;
  for (Duration& d : host.ready) d = std::min(d, host.backward);
  step.hooks = hooked;
  if (on_device)
    take_device(step, device_step(trace, iteration, before, step, arrivals.at, arrivals.done),
                std::move(host));
  else
    take_host(step, arrivals, std::move(host));
  step.exposed = std::max(step.length() - step.computed() - step.hooks, Duration{});
  return step;
}

std::vector<TracedStep> traced_steps(const Trace& trace) {
  std::vector<TracedStep> out;
  std::optional<Iteration> before;
  for (const Iteration& i : iterations(trace)) {
    if (auto step = traced_step(trace, i, before)) out.push_back(std::move(*step));
    before = i;
  }
  // Where the device began with the first one, only the one before it could tell.
  if (out.size() > 1 && out.front().times.host) out.erase(out.begin());
  return out;
}

std::size_t median_step(const std::vector<TracedStep>& steps) {
  std::vector<std::size_t> order(steps.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return steps[a].length() < steps[b].length();
  });
  return order[(order.size() - 1) / 2];
}

}  // namespace ddpsim::analysis
