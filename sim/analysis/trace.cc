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
  bool found = false;
  std::vector<std::pair<TimePoint, TimePoint>> collectives;
  std::vector<TraceEvent> zero;
  TimePoint copied = begin;
  TimePoint reduced = begin;
  for (const TraceEvent& e : trace.events) {
    if (!within(e, begin, end)) continue;
    switch (e.what) {
      case Traced::Node:
      case Traced::Accumulate:
        if (!found) step.backward_begin = e.begin;
        step.backward_end = found ? std::max(step.backward_end, e.end) : e.end;
        found = true;
        break;
      case Traced::Wrapper:
        step.wrapped = true;
        break;
      case Traced::Sharded:
        step.sharded = true;
        break;
      case Traced::CopyToGrad:
        step.wrapped = true;
        copied = std::max(copied, e.end);
        break;
      case Traced::Collective:
        collectives.emplace_back(e.begin, e.end);
        reduced = std::max(reduced, e.end);
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
  if (!found) return std::nullopt;
  for (const TraceEvent& e : outermost(trace, Traced::ZeroGrad))
    if (within(e, begin, end)) zero.push_back(e);
  TimePoint b0 = step.backward_begin;
  TimePoint b1 = step.backward_end = std::min(step.backward_end, end);
  // What follows backward before the optimizer: DDP waits, and copies buckets back.
  TimePoint update = end;
  for (const TraceEvent& e : trace.events)
    if (e.what == Traced::Optimizer && within(e, b1, end)) update = std::min(update, e.begin);
  step.update_begin = b1;
  bool on_device = on_a_device(trace, iteration);
  if (step.wrapped) step.update_begin = std::max(b1, copied);
  if (!on_device) step.update_begin = std::max(step.update_begin, reduced);
  step.update_begin = std::min(step.update_begin, update);

  Arrivals arrivals = arrivals_of(trace, begin, end);
  step.gradients = arrivals.gradients;
  step.nodes = arrivals.nodes;
  step.undefined = arrivals.undefined;
  std::vector<Duration> hooks(arrivals.at.size());
  std::vector<Duration> ready(arrivals.at.size());
  Duration hooked;
  for (std::size_t i = 0; i < hooks.size(); ++i) {
    TimePoint at = step.wrapped ? arrivals.at[i] : arrivals.done[i];
    ready[i] = std::max(at - b0 - hooked, i ? ready[i - 1] : Duration{});
    if (step.wrapped) hooked += hooks[i] = arrivals.done[i] - arrivals.at[i];
  }
  Duration zeroed_before = total(zero, begin, b0);
  StepTimes host;
  Duration broadcast = on_device ? Duration{} : covered(collectives, begin, b0);
  host.forward = b0 - begin - zeroed_before - broadcast;
  host.backward = b1 - b0 - hooked;
  host.optimizer = end - step.update_begin + zeroed_before;
  host.ready = ready;
  for (Duration& d : host.ready) d = std::min(d, host.backward);
  step.hooks = hooked;
  if (!on_device) {
    step.times = host;
    step.forward_begin = begin;
    step.forward_end = b0;
    step.gradients_end = b1;
    step.reduced = step.update_begin;
    step.update_end = end;
    step.arrived = step.wrapped ? arrivals.at : arrivals.done;
  } else {
    DeviceStep device = device_step(trace, iteration, before, step, arrivals.at, arrivals.done);
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
