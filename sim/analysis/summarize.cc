// Interval arithmetic on the last step: exposed = |communication \ compute|, both clipped to the
// step.
#include "sim/analysis/summarize.h"

#include <algorithm>

#include "sim/analysis/intervals.h"

namespace ddpsim::analysis {
namespace {

int last_actor(const Run& run) {
  TimePoint end{-1};
  int actor = 0;
  for (const Span& s : run.spans)
    if (is_update(s.kind) && s.end > end) end = s.end, actor = s.actor;
  if (end.ps >= 0) return actor;
  for (const Span& s : run.spans)  // others update: servers
    if (s.end > end) end = s.end, actor = s.actor;
  return actor;
}

}  // namespace

Summary summarize(const Run& run) {
  Summary out;
  out.step = run.steps.back().duration;
  out.actor = last_actor(run);
  std::int64_t from = run.spans_from.ps;
  std::int64_t to = from + out.step.ps;
  std::vector<Interval> compute;
  std::vector<Interval> communication;
  std::vector<Interval> host;
  std::vector<Interval> input;
  std::vector<Interval> moves;
  for (const Span& s : run.spans) {
    if (s.actor != out.actor) continue;
    Duration d = s.end - s.begin;
    Interval clipped{std::max(s.begin.ps, from), std::min(s.end.ps, to)};
    if (is_move(s.kind)) moves.push_back(clipped);
    if (is_communication(s.kind)) {
      communication.push_back({std::max(std::min(s.ready.ps, s.begin.ps), from), clipped.end});
      if (carries_tensors(s.kind))
        out.buckets.push_back({s.op,
                               s.tensors,
                               s.bytes,
                               s.ready - run.spans_from,
                               s.begin - run.spans_from,
                               s.end - run.spans_from,
                               s.algorithm,
                               {}});
      continue;
    }
    if (is_input(s.kind)) {
      const bool waits = s.lane == Lane::Host || s.lane == Lane::Compute;
      if (waits && clipped.end > clipped.begin) input.push_back(clipped);
      out.input.emplace();
      continue;
    }
    if (is_host_work(s.kind)) {
      host.push_back(clipped);
      continue;
    }
    compute.push_back(clipped);
    if (is_forward(s.kind))
      out.forward += d;
    else if (is_backward(s.kind))
      out.backward += d;
    else if (is_update(s.kind))
      out.optimizer += d;
  }
  auto c = unite(std::move(compute));
  for (BucketTimes& b : out.buckets) {
    Interval in_flight{std::max(std::min(b.ready.ps, b.begin.ps) + from, from),
                       std::min(b.end.ps + from, to)};
    if (in_flight.end > in_flight.begin)
      b.exposed = {in_flight.end - in_flight.begin - overlap_length({in_flight}, c)};
  }
  auto m = unite(std::move(communication));
  out.compute = {length(c)};
  // What is left: some of it (a hook's continuation) may run beside backward, and costs the step
  // nothing then.
  out.ddp = std::max(Duration{}, out.compute - out.forward - out.backward - out.optimizer);
  out.communication = {length(m)};
  out.exposed_communication = {length(m) - overlap_length(m, c)};
  auto moved = unite(std::move(moves));
  out.copies = {length(moved)};
  out.exposed_copies = {length(moved) - overlap_length(moved, c)};
  out.idle = out.step - out.compute - out.exposed_communication;
  if (out.input) {
    std::vector<Interval> busy = c;
    busy.insert(busy.end(), m.begin(), m.end());
    auto waits = unite(std::move(input));
    out.input = Duration{length(waits) - overlap_length(waits, unite(std::move(busy)))};
    out.idle -= *out.input;
  }
  if (out.idle.ps < 0) out.idle = {};
  out.host_busy = {length(unite(std::move(host)))};
  if (out.communication.ps > 0)
    out.overlap = 1 - static_cast<double>(out.exposed_communication.ps) /
                          static_cast<double>(out.communication.ps);
  return out;
}

}  // namespace ddpsim::analysis
