// Interval arithmetic on the last step: exposed = |communication \ compute|, both clipped to the step.
#include "sim/analysis/summarize.h"

#include <algorithm>

namespace ddpsim::analysis {
namespace {

struct Interval {
  std::int64_t begin;
  std::int64_t end;
};

std::vector<Interval> unite(std::vector<Interval> v) {
  std::sort(v.begin(), v.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  std::vector<Interval> out;
  for (const Interval& i : v) {
    if (i.end <= i.begin) continue;
    if (!out.empty() && i.begin <= out.back().end) out.back().end = std::max(out.back().end, i.end);
    else out.push_back(i);
  }
  return out;
}

std::int64_t length(const std::vector<Interval>& v) {
  std::int64_t total = 0;
  for (const Interval& i : v) total += i.end - i.begin;
  return total;
}

std::int64_t overlap_length(const std::vector<Interval>& a, const std::vector<Interval>& b) {
  std::int64_t total = 0;
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < a.size() && j < b.size()) {
    std::int64_t lo = std::max(a[i].begin, b[j].begin);
    std::int64_t hi = std::min(a[i].end, b[j].end);
    if (hi > lo) total += hi - lo;
    if (a[i].end < b[j].end) ++i;
    else ++j;
  }
  return total;
}

int last_actor(const Run& run) {
  TimePoint end{-1};
  int actor = 0;
  for (const Span& s : run.spans)
    if (s.kind == OpKind::Optimizer && s.end > end) end = s.end, actor = s.actor;
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
  for (const Span& s : run.spans) {
    if (s.actor != out.actor) continue;
    Duration d = s.end - s.begin;
    Interval clipped{std::max(s.begin.ps, from), std::min(s.end.ps, to)};
    if (is_communication(s.kind)) {
      communication.push_back({std::max(std::min(s.ready.ps, s.begin.ps), from), clipped.end});
      if (s.kind == OpKind::AllReduce || s.kind == OpKind::GradAllReduce)
        out.buckets.push_back({s.op, s.tensors, s.bytes, s.ready - run.spans_from, s.begin - run.spans_from, s.end - run.spans_from, s.algorithm, {}});
      continue;
    }
    if (s.kind == OpKind::Launch || s.kind == OpKind::FindUnused) {
      host.push_back(clipped);
      continue;
    }
    compute.push_back(clipped);
    if (s.kind == OpKind::Forward) out.forward += d;
    else if (s.kind == OpKind::Backward || s.kind == OpKind::BackwardTail) out.backward += d;
    else if (s.kind == OpKind::Optimizer) out.optimizer += d;
  }
  auto c = unite(std::move(compute));
  for (BucketTimes& b : out.buckets) {
    Interval in_flight{std::max(std::min(b.ready.ps, b.begin.ps) + from, from), std::min(b.end.ps + from, to)};
    if (in_flight.end > in_flight.begin) b.exposed = {in_flight.end - in_flight.begin - overlap_length({in_flight}, c)};
  }
  auto m = unite(std::move(communication));
  out.compute = {length(c)};
  // What is left: some of it (a hook's continuation) may run beside backward, and costs the step nothing then.
  out.ddp = std::max(Duration{}, out.compute - out.forward - out.backward - out.optimizer);
  out.communication = {length(m)};
  out.exposed_communication = {length(m) - overlap_length(m, c)};
  out.idle = out.step - out.compute - out.exposed_communication;
  if (out.idle.ps < 0) out.idle = {};
  out.host_busy = {length(unite(std::move(host)))};
  if (out.communication.ps > 0)
    out.overlap = 1 - static_cast<double>(out.exposed_communication.ps) / static_cast<double>(out.communication.ps);
  return out;
}

}  // namespace ddpsim::analysis
