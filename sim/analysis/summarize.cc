// Interval arithmetic on one step: exposed = |communication \\ compute|, both clipped to the step.
#include "sim/analysis/summarize.h"

#include <algorithm>
#include <numeric>

#include "sim/analysis/exposure.h"
#include "sim/analysis/intervals.h"

namespace ddpsim::analysis {
namespace {

int last_actor(std::span<const Span> spans) {
  TimePoint end{-1};
  int actor = 0;
  for (const Span& s : spans)
    if (is_update(s.kind) && s.end > end) end = s.end, actor = s.actor;
  if (end.ps >= 0) return actor;
  for (const Span& s : spans)  // others update: servers
    if (s.end > end) end = s.end, actor = s.actor;
  return actor;
}

// What a device computes, by what it is; each moment once, forward before backward before the
// optimizer before what averaging adds.
struct Computed {
  std::vector<Interval> forward, backward, optimizer, averaging;

  void add(OpKind kind, Interval i) {
    (is_forward(kind)    ? forward
     : is_backward(kind) ? backward
     : is_update(kind)   ? optimizer
                         : averaging)
        .push_back(i);
  }
  // Returns the union.
  std::vector<Interval> split(Summary& out) const {
    std::vector<Interval> all;
    all.reserve(forward.size() + backward.size() + optimizer.size() + averaging.size());
    std::int64_t sum = 0;
    for (const auto* list : {&forward, &backward, &optimizer, &averaging})
      for (const Interval& i : *list) {
        if (i.end <= i.begin) continue;
        all.push_back(i);
        sum += i.end - i.begin;
      }
    std::vector<Interval> compute = unite(std::move(all));
    out.compute = {length(compute)};
    // Beside nothing else, each has its own length.
    const bool apart = sum == out.compute.ps;
    std::vector<Interval> counted;
    std::int64_t before = 0;
    auto next = [&](const std::vector<Interval>& list) {
      std::int64_t of_it = 0;
      if (apart) {
        for (const Interval& i : list) of_it += std::max<std::int64_t>(0, i.end - i.begin);
        return Duration{of_it};
      }
      counted.insert(counted.end(), list.begin(), list.end());
      counted = unite(std::move(counted));
      of_it = length(counted) - before;
      before += of_it;
      return Duration{of_it};
    };
    out.forward = next(forward);
    out.backward = next(backward);
    out.optimizer = next(optimizer);
    out.ddp = out.compute - out.forward - out.backward - out.optimizer;
    return compute;
  }
};

// Parts of `whole` in these proportions that sum to it: the largest remainders are rounded up.
std::vector<Duration> parted(Duration whole, const std::vector<double>& parts) {
  std::vector<Duration> out(parts.size());
  double sum = 0;
  for (double p : parts) sum += p;
  if (parts.empty() || sum <= 0) return out;
  std::vector<double> rest(parts.size());
  std::int64_t left = whole.ps;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const double exact = static_cast<double>(whole.ps) * (parts[i] / sum);
    out[i] = {std::min(static_cast<std::int64_t>(exact), left)};
    rest[i] = exact - static_cast<double>(out[i].ps);
    left -= out[i].ps;
  }
  std::vector<std::size_t> order(parts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return rest[a] > rest[b]; });
  for (std::size_t i : order) {
    if (left <= 0) break;
    if (parts[i] <= 0) continue;
    ++out[i].ps, --left;
  }
  return out;
}

// Of a mean's exposed communication, what each of its buckets and others has: by place in launch
// order. `out`: a copy of the last step, with the mean's exposed communication.
void share_out(std::span<const Summary> steps, std::span<const double> weights, Summary& out) {
  std::size_t buckets = 0;  // the most that a step has
  std::size_t others = 0;
  for (const Summary& s : steps) {
    buckets = std::max(buckets, s.buckets.size());
    others = std::max(others, s.others.size());
  }
  std::vector<double> exposed(buckets + others);
  for (std::size_t k = 0; k < steps.size(); ++k) {
    const Summary& s = steps[k];
    const double weight = weights.empty() ? 1 : weights[k];
    for (std::size_t i = 0; i < s.buckets.size(); ++i)
      exposed[i] += weight * static_cast<double>(s.buckets[i].exposed.ps);
    for (std::size_t i = 0; i < s.others.size(); ++i)
      exposed[buckets + i] += weight * static_cast<double>(s.others[i].exposed.ps);
  }
  const std::vector<Duration> parts = parted(out.exposed_communication, exposed);
  for (std::size_t i = 0; i < out.buckets.size(); ++i) out.buckets[i].exposed = parts[i];
  // The name of the first that has so many.
  auto name = [&](auto list, std::size_t i) {
    return ((*std::find_if(steps.begin(), steps.end(),
                           [&](const Summary& s) { return (s.*list).size() > i; })).*
            list)[i]
        .name;
  };
  for (std::size_t i = 0; i < others; ++i) {
    if (i == out.others.size()) out.others.push_back({name(&Summary::others, i), {}});
    out.others[i].exposed = parts[buckets + i];
  }
  for (std::size_t i = out.buckets.size(); i < buckets; ++i)
    out.others.push_back({name(&Summary::buckets, i), parts[i]});
}

}  // namespace

Summary summarize(const Run& run) {
  return summarize(run.spans, run.spans_from, run.steps.back().duration);
}

Summary summarize(std::span<const Span> spans, TimePoint begin, Duration step) {
  Summary out;
  out.step = step;
  out.actor = last_actor(spans);
  std::int64_t from = begin.ps;
  std::int64_t to = from + out.step.ps;
  Computed computed;
  std::vector<Flight> flights;
  std::vector<bool> of_bucket;     // of each flight: a bucket, else one of the others
  std::vector<std::size_t> place;  // and which
  std::vector<Interval> host;
  std::vector<Interval> input;
  std::vector<Interval> moves;
  for (const Span& s : spans) {
    if (s.actor != out.actor) continue;
    Interval clipped{std::max(s.begin.ps, from), std::min(s.end.ps, to)};
    if (is_communication(s.kind)) {
      if (is_move(s.kind)) moves.push_back(clipped);
      flights.push_back({std::max(std::min(s.ready.ps, s.begin.ps), from), clipped.begin,
                         clipped.end, is_wait(s.kind)});
      of_bucket.push_back(carries_tensors(s.kind));
      place.push_back(of_bucket.back() ? out.buckets.size() : out.others.size());
      if (of_bucket.back()) {
        out.buckets.push_back({s.op,
                               s.tensors,
                               s.bytes,
                               s.ready - begin,
                               s.begin - begin,
                               s.end - begin,
                               s.algorithm,
                               {},
                               {}});
      } else {
        out.others.push_back({s.op, {}});
      }
      continue;
    }
    if (is_input(s.kind)) {
      const bool waits = s.lane == Lane::Host || s.lane == Lane::Compute;
      if (waits && clipped.end > clipped.begin) input.push_back(clipped);
      out.input.emplace();
      continue;
    }
    if (is_host_work(s.kind))
      host.push_back(clipped);
    else
      computed.add(s.kind, clipped);
  }
  const std::vector<Interval> c = computed.split(out);
  std::vector<Interval> communication;
  communication.reserve(flights.size());
  for (const Flight& f : flights) communication.push_back({f.ready, f.end});
  const std::vector<Interval> m = unite(std::move(communication));
  const std::vector<Interval> exposed = less(m, c);
  for (const ExposedTime& e : exposed_of(flights, exposed)) {
    const Duration of_it{e.at.end - e.at.begin};
    if (of_bucket[e.flight]) {
      BucketTimes& b = out.buckets[place[e.flight]];
      b.exposed += of_it;
      b.exposed_at.push_back({e.at.begin - from, e.at.end - from});
    } else {
      out.others[place[e.flight]].exposed += of_it;
    }
  }
  out.communication = {length(m)};
  out.exposed_communication = {length(exposed)};
  const auto moved = unite(std::move(moves));
  out.copies = {length(moved)};
  out.exposed_copies = {length(moved) - overlap_length(moved, c)};
  out.idle = out.step - out.compute - out.exposed_communication;
  if (out.input) {
    std::vector<Interval> busy = c;
    busy.insert(busy.end(), m.begin(), m.end());
    const auto waits = unite(std::move(input));
    out.input = Duration{length(waits) - overlap_length(waits, unite(std::move(busy)))};
    out.idle -= *out.input;
  }
  out.host_busy = {length(unite(std::move(host)))};
  if (out.communication.ps > 0) out.overlap = 1 - out.exposed_communication / out.communication;
  return out;
}

Summary mean_of(std::span<const Summary> steps, Duration step, std::span<const double> weights) {
  Summary out = steps.back();
  if (steps.size() == 1 && out.step == step) return out;
  double count = 0;
  for (std::size_t k = 0; k < steps.size(); ++k) count += weights.empty() ? 1 : weights[k];
  auto total = [&](auto part) {
    double sum = 0;
    for (std::size_t k = 0; k < steps.size(); ++k)
      sum += (weights.empty() ? 1 : weights[k]) * static_cast<double>(part(steps[k]).ps);
    return sum;
  };
  auto of = [&](Duration Summary::*part) {
    return total([part](const Summary& s) { return s.*part; });
  };
  auto mean = [&](Duration Summary::*part) {
    return Duration{static_cast<std::int64_t>(of(part) / count)};
  };
  out.step = step;
  std::vector<Duration> parts =
      parted(step, {of(&Summary::compute), of(&Summary::exposed_communication), of(&Summary::idle),
                    total([](const Summary& s) { return s.input.value_or(Duration{}); })});
  out.compute = parts[0];
  out.exposed_communication = parts[1];
  out.idle = parts[2];
  if (out.input) out.input = parts[3];
  parts = parted(out.compute, {of(&Summary::forward), of(&Summary::backward),
                               of(&Summary::optimizer), of(&Summary::ddp)});
  out.forward = parts[0];
  out.backward = parts[1];
  out.optimizer = parts[2];
  out.ddp = parts[3];
  out.communication = std::max(mean(&Summary::communication), out.exposed_communication);
  out.copies = mean(&Summary::copies);
  out.exposed_copies = std::min(mean(&Summary::exposed_copies), out.exposed_communication);
  out.host_busy = mean(&Summary::host_busy);
  out.overlap = out.communication.ps > 0 ? 1 - out.exposed_communication / out.communication : 0;
  share_out(steps, weights, out);
  return out;
}

}  // namespace ddpsim::analysis
