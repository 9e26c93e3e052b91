// Collectives are matched by their number in a process group, where all traces say it (PyTorch
// 2.12), else by their order within a step and a process group. Clocks: a collective
// ends together on all ranks, so that a rank's clock is off by the median of how much later its
// collectives end than the first rank's.
#include "sim/analysis/traced_ranks.h"

#include <algorithm>
#include <map>
#include <utility>

#include "sim/analysis/trace_device.h"
#include "sim/model/error.h"
#include "sim/units/text.h"

namespace ddpsim::analysis {
namespace {

// A collective as one rank saw it.
struct Seen {
  TimePoint issued;
  TimePoint begin;
  TimePoint end;
  TracedMessage message;
  std::string key;  // of those that are matched by number
};

// What a kernel does not say, the host's annotation around its launch does.
void complete(TracedMessage& m, const TracedMessage& host) {
  if (!m.operation) m.operation = host.operation;
  if (m.elements < 0) m.elements = host.elements;
  if (!m.dtype) m.dtype = host.dtype;
  if (m.group.empty()) m.group = host.group;
  if (m.group_ranks.empty()) m.group_ranks = host.group_ranks;
  if (m.group_size == 0) m.group_size = host.group_size;
  if (m.sequence < 0) m.sequence = host.sequence;
}

std::vector<Seen> seen_in(const Trace& trace, const TracedStep& step) {
  std::vector<Seen> out;
  auto [begin, end, thread] = step.iteration;
  std::map<std::int64_t, TimePoint> launched;
  std::vector<const TraceEvent*> host;
  bool device = false;
  for (const TraceEvent& e : trace.events) {
    if (e.begin >= end) break;
    if (e.begin < begin) continue;
    if (e.what == Traced::Launch) launched.try_emplace(e.correlation, e.begin);
    if (e.what == Traced::Collective) host.push_back(&e);
  }
  for (const TraceEvent& e : trace.events) {
    if (e.what != Traced::DeviceCollective) continue;
    device = true;
    auto at = launched.find(e.correlation);
    if (at == launched.end()) continue;
    Seen s{at->second, e.begin, e.end, trace.messages[e.detail], {}};
    for (const TraceEvent* h : host)
      if (h->begin <= s.issued && s.issued <= h->end)
        complete(s.message, trace.messages[h->detail]);
    out.push_back(std::move(s));
  }
  if (!device)
    for (const TraceEvent* h : host)
      out.push_back({h->begin, h->begin, h->end, trace.messages[h->detail], {}});
  std::stable_sort(out.begin(), out.end(),
                   [](const Seen& a, const Seen& b) { return a.issued < b.issued; });
  for (Seen& s : out)
    s.key = s.message.group_ranks.empty() ? s.message.group : s.message.group_ranks;
  return out;
}

void number_ranks(std::vector<Trace>& traces, TracedRanks& job) {
  bool told = std::all_of(traces.begin(), traces.end(), [](const Trace& t) { return t.rank >= 0; });
  if (!told && traces.size() > 1)
    job.notes.push_back(
        "the traces do not say of which rank they are: the first file is rank 0, and so on");
  for (std::size_t k = 0; k < traces.size(); ++k) {
    RankTrace r;
    r.rank = told ? traces[k].rank : static_cast<int>(k);
    r.trace = std::move(traces[k]);
    r.steps = traced_steps(r.trace);
    if (r.steps.empty())
      throw InputError{r.trace.file,
                       "no iteration in it holds a backward: autograd::engine::evaluate_function "
                       "is nowhere; record training with activities=[ProfilerActivity.CPU, ...]"};
    for (const TracedStep& step : r.steps)
      if (const char* phase = phase_without_work(r.trace, step))
        throw InputError{r.trace.file,
                         std::string("of what the host enqueues in ") + phase +
                             " of an iteration nothing is in it: kernels are missing, or their "
                             "correlation with calls of the runtime; record CPU, CUDA's calls and "
                             "its kernels for whole iterations"};
    job.ranks.push_back(std::move(r));
  }
  std::stable_sort(job.ranks.begin(), job.ranks.end(),
                   [](const RankTrace& a, const RankTrace& b) { return a.rank < b.rank; });
  for (std::size_t k = 1; k < job.ranks.size(); ++k)
    if (job.ranks[k].rank == job.ranks[k - 1].rank)
      throw InputError{job.ranks[k].trace.file, "is of rank " + std::to_string(job.ranks[k].rank) +
                                                    ", as " + job.ranks[k - 1].trace.file +
                                                    " is; give one trace of each rank"};
}

void match_steps(TracedRanks& job) {
  std::size_t least = job.ranks.front().steps.size();
  std::size_t most = least;
  for (const RankTrace& r : job.ranks) {
    least = std::min(least, r.steps.size());
    most = std::max(most, r.steps.size());
  }
  if (least < most)
    job.notes.push_back("the ranks recorded " + std::to_string(least) + " to " +
                        std::to_string(most) + " steps: the last " + std::to_string(least) +
                        " of each are taken for the same");
  for (RankTrace& r : job.ranks) r.steps.erase(r.steps.begin(), r.steps.end() - least);
}

std::string place_of(const Seen& s, const TracedStep& step) {
  // A backend's threads may take up the last bucket when backward is over.
  TimePoint end = step.wrapped ? std::max(step.backward_end, step.update_begin) : step.backward_end;
  return s.issued < step.backward_begin ? "forward" : s.issued < end ? "backward" : "update";
}

void name_them(std::vector<TracedCollective>& all, bool wrapped) {
  std::map<std::pair<int, std::string>, int> next;
  for (TracedCollective& c : all) {
    std::string operation = c.message.operation ? name_of(*c.message.operation) : "collective";
    std::string stem = operation + "/traced.";
    if (wrapped && c.place == "backward" && c.message.operation == Operation::AllReduce)
      stem = "allreduce/bucket.";
    if (wrapped && c.place == "forward" && c.message.operation == Operation::Broadcast)
      stem = "broadcast/buffers.";
    c.number = next[{c.step, stem}]++;
    c.name = stem + std::to_string(c.number);
  }
}

bool ends_together(const TracedCollective& c) {
  return c.message.operation == Operation::AllReduce ||
         c.message.operation == Operation::AllGather ||
         c.message.operation == Operation::ReduceScatter ||
         c.message.operation == Operation::AllToAll;
}

Duration ranked(const std::vector<Duration>& sorted, double share) {
  return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1))];
}

// Puts the clocks together. `all`: with times of each rank's own clock, after its file's base.
void align(TracedRanks& job, std::vector<TracedCollective>& all) {
  for (std::size_t k = 1; k < job.ranks.size(); ++k) {
    std::vector<Duration> late;
    for (const TracedCollective& c : all) {
      if (!ends_together(c) || c.arrivals.front().of != 0) continue;
      for (const auto& a : c.arrivals)
        if (a.of == k) late.push_back(a.end - c.arrivals.front().end);
    }
    if (late.empty()) continue;
    std::sort(late.begin(), late.end());
    Duration spread{(ranked(late, 0.9) - ranked(late, 0.1)).ps / 2};
    Duration median = ranked(late, 0.5);
    job.offset_bound = std::max(job.offset_bound, spread);
    if (std::max(median, Duration{-median.ps}) > spread) job.ranks[k].offset = Duration{-median.ps};
  }
  for (TracedCollective& c : all)
    for (auto& a : c.arrivals) {
      a.at = a.at + job.ranks[a.of].offset;
      a.end = a.end + job.ranks[a.of].offset;
    }
}

// Of one step: who was in which.
void match_collectives(TracedRanks& job, std::size_t step, std::vector<TracedCollective>& all,
                       bool& odd) {
  std::vector<std::map<std::string, std::vector<Seen>>> by_key(job.ranks.size());
  std::vector<Seen> order;
  std::map<std::string, int> number;
  std::vector<std::pair<Seen, int>> wanted;
  std::vector<std::vector<Seen>> seen;
  bool numbered = true;
  for (const RankTrace& r : job.ranks) {
    seen.push_back(seen_in(r.trace, r.steps[step]));
    for (const Seen& s : seen.back()) numbered = numbered && s.message.sequence >= 0;
  }
  for (std::size_t k = 0; k < job.ranks.size(); ++k)
    for (Seen& s : seen[k]) {
      if (numbered) s.key += "/" + std::to_string(s.message.sequence);
      std::size_t at = by_key[k][s.key].size();
      bool first = true;
      for (std::size_t j = 0; j < k; ++j) {
        auto other = by_key[j].find(s.key);
        first = first && (other == by_key[j].end() || other->second.size() <= at);
      }
      if (first) wanted.emplace_back(s, static_cast<int>(at));
      by_key[k][s.key].push_back(std::move(s));
    }
  for (auto& [s, at] : wanted) {
    TracedCollective c;
    c.step = static_cast<int>(step);
    for (std::size_t k = 0; k < job.ranks.size(); ++k) {
      auto mine = by_key[k].find(s.key);
      if (mine == by_key[k].end()) continue;
      if (static_cast<std::size_t>(at) >= mine->second.size()) {
        odd = true;
        continue;
      }
      const Seen& m = mine->second[at];
      if (c.arrivals.empty()) {
        c.message = m.message;
        c.place = place_of(m, job.ranks[k].steps[step]);
      } else {
        odd = odd || m.message.operation != c.message.operation;
      }
      c.arrivals.push_back({k, m.begin, m.end});
    }
    all.push_back(std::move(c));
  }
}

// Of all gradients of a step; -1: the trace does not say all shapes.
std::int64_t gradient_elements(const RankTrace& r, const TracedStep& step) {
  std::int64_t sum = 0;
  for (std::uint32_t g : step.gradients) {
    if (g == kNothing || !r.trace.gradients[g].dtype) return -1;
    std::int64_t elements = 1;
    for (std::int64_t n : r.trace.gradients[g].shape) elements = saturating_multiply(elements, n);
    sum = saturating_add(sum, elements);
  }
  return sum;
}

bool adds_floats(const TracedMessage& m) {
  return m.operation == Operation::AllReduce &&
         (!m.dtype || *m.dtype == DType::Float32 || *m.dtype == DType::Float16 ||
          *m.dtype == DType::BFloat16 || *m.dtype == DType::Float64);
}

}  // namespace

TimePoint TracedCollective::first() const {
  return std::min_element(arrivals.begin(), arrivals.end(),
                          [](const Arrival& a, const Arrival& b) { return a.at < b.at; })
      ->at;
}
std::size_t TracedCollective::latest() const {
  return std::max_element(arrivals.begin(), arrivals.end(),
                          [](const Arrival& a, const Arrival& b) { return a.at < b.at; }) -
         arrivals.begin();
}
TimePoint TracedCollective::last() const {
  return arrivals[latest()].at;
}
TimePoint TracedCollective::end() const {
  return std::max_element(arrivals.begin(), arrivals.end(),
                          [](const Arrival& a, const Arrival& b) { return a.end < b.end; })
      ->end;
}

TimePoint TracedRanks::begin(std::size_t step) const {
  TimePoint t{INT64_MIN};
  for (const RankTrace& r : ranks) t = std::max(t, r.steps[step].iteration.begin + r.offset);
  return t;
}
TimePoint TracedRanks::end(std::size_t step) const {
  TimePoint t{INT64_MIN};
  for (const RankTrace& r : ranks) t = std::max(t, r.steps[step].iteration.end + r.offset);
  return t;
}

TracedRanks beside_one_another(std::vector<Trace> traces) {
  TracedRanks job;
  number_ranks(traces, job);
  match_steps(job);
  // The files' clocks may be one: then only their bases differ.
  constexpr std::int64_t kOneClock = 3'600'000'000;  // microseconds
  const Trace& first = job.ranks.front().trace;
  for (RankTrace& r : job.ranks) {
    std::int64_t apart = r.trace.base_us - first.base_us;
    bool one = first.kineto && r.trace.kineto && apart < kOneClock && apart > -kOneClock;
    if (one) r.offset = kMicrosecond * apart;
  }
  bool odd = false;
  for (std::size_t step = 0; step < job.steps(); ++step)
    match_collectives(job, step, job.collectives, odd);
  if (odd)
    job.notes.push_back(
        "the ranks' collectives differ in number or kind, and are matched by their order: what is "
        "said of who was late may mix them up");
  for (TracedCollective& c : job.collectives)
    for (auto& a : c.arrivals) {
      a.at = a.at + job.ranks[a.of].offset;
      a.end = a.end + job.ranks[a.of].offset;
    }
  std::vector<Duration> based;
  for (RankTrace& r : job.ranks) based.push_back(std::exchange(r.offset, Duration{}));
  align(job, job.collectives);
  for (std::size_t k = 0; k < based.size(); ++k) job.ranks[k].offset += based[k];
  name_them(job.collectives, job.ranks.front().steps.front().wrapped);
  return job;
}

std::vector<NotCounted> not_counted(const TracedRanks& job, std::size_t of) {
  struct OtherCollectives {
    Operation operation = Operation::AllReduce;
    int count = 0;
    std::int64_t bytes = 0;  // -1 = one of them does not say
    Duration took;           // in flight on that rank, one after another
  };
  const RankTrace& r = job.ranks[of];
  const std::size_t median = median_step(r.steps);
  const TracedStep& step = r.steps[median];
  std::vector<std::pair<const TracedCollective*, Duration>> mine;
  std::int64_t reduced = 0;
  for (const TracedCollective& c : job.collectives) {
    if (static_cast<std::size_t>(c.step) != median) continue;
    for (const auto& a : c.arrivals)
      if (a.of == of) mine.emplace_back(&c, a.end - a.at);
    if (c.place != "forward" && adds_floats(c.message))
      reduced =
          c.message.elements < 0 || reduced < 0 ? -1 : saturating_add(reduced, c.message.elements);
  }
  // Without DistributedDataParallel: all-reduces of as many elements as the gradients have.
  const bool by_hand = !step.wrapped && reduced > 0 && reduced == gradient_elements(r, step);
  std::vector<OtherCollectives> others;
  for (const auto& [collective, took] : mine) {
    const TracedCollective* const c = collective;
    const bool of_plan = c->name.starts_with("allreduce/bucket.") ||
                         c->name.starts_with("broadcast/buffers.") ||
                         (by_hand && c->place != "forward" && adds_floats(c->message));
    if (of_plan || !c->message.operation) continue;
    auto at = std::find_if(others.begin(), others.end(), [&](const OtherCollectives& o) {
      return o.operation == *c->message.operation;
    });
    if (at == others.end()) at = others.insert(others.end(), {*c->message.operation, 0, 0, {}});
    ++at->count;
    const std::int64_t bytes = c->message.bytes();
    at->bytes = bytes < 0 || at->bytes < 0 ? -1 : saturating_add(at->bytes, bytes);
    at->took += took;
  }
  std::vector<NotCounted> out;
  for (const OtherCollectives& o : others)
    out.push_back({std::to_string(o.count) + " " + name_of(o.operation) +
                       " a step that no data-parallel plan issues, about " + to_string(o.took) +
                       " in flight",
                   0, o.bytes < 0 ? 0 : static_cast<double>(o.bytes)});
  return out;
}

Run run_of(const TracedRanks& job, const std::vector<std::string>& names) {
  Run run;
  run.kind = RunKind::Measured;
  run.evidence = EvidenceClass::System;
  constexpr std::size_t kMostSteps = 5;
  std::vector<Duration> lengths;
  for (std::size_t s = 0; s < job.steps(); ++s) {
    run.steps.push_back({StepKind::Steady, job.end(s) - job.begin(s), false, 0});
    lengths.push_back(run.steps.back().duration);
  }
  std::sort(lengths.begin(), lengths.end());
  std::vector<Duration> off;
  Duration median = ranked(lengths, 0.5);
  for (Duration d : lengths) off.push_back(std::max(d - median, median - d));
  std::sort(off.begin(), off.end());
  run.quality.spread = static_cast<double>(ranked(off, 0.5).ps) /
                       static_cast<double>(std::max<std::int64_t>(median.ps, 1));
  constexpr double kNoisy = 0.01;
  if (run.quality.spread > kNoisy) {
    run.quality.verdict = Verdict::Noisy;
    run.quality.reasons.push_back("the steps of the trace spread by more than 1 %");
  }
  std::size_t from = job.steps() > kMostSteps ? job.steps() - kMostSteps : 0;
  for (std::size_t s = from; s < job.steps(); ++s) {
    TimePoint zero = job.begin(s);
    // Times on the first rank's clock.
    auto add = [&](const RankTrace& r, Lane lane, const std::string& op, TimePoint begin,
                   TimePoint end) -> Span& {
      Span x;
      x.step = static_cast<int>(s);
      x.actor = r.rank;
      x.lane = lane;
      x.op = op;
      x.begin = TimePoint{(begin - zero).ps};
      x.end = std::max(TimePoint{(end - zero).ps}, x.begin);
      x.ready = x.begin;
      return run.spans.emplace_back(std::move(x));
    };
    auto span = [&](const RankTrace& r, Lane lane, const std::string& op, TimePoint begin,
                    TimePoint end) { add(r, lane, op, begin + r.offset, end + r.offset); };
    for (const RankTrace& r : job.ranks) {
      const TracedStep& t = r.steps[s];
      span(r, Lane::Compute, "fwd", t.forward_begin, t.forward_end);
      TimePoint at = t.forward_end;
      for (std::size_t i = 0; i < t.arrived.size(); ++i) {
        std::string name = i < names.size() ? names[i] : "gradient." + std::to_string(i);
        span(r, Lane::Compute, "bwd/" + name, at, std::max(at, t.arrived[i]));
        at = std::max(at, t.arrived[i]);
      }
      span(r, Lane::Compute, "bwd/tail", at, std::max(at, t.gradients_end));
      span(r, Lane::Compute, "optimizer", t.reduced, t.update_end);
    }
    for (const TracedCollective& c : job.collectives) {
      if (static_cast<std::size_t>(c.step) != s) continue;
      for (const auto& a : c.arrivals) {
        Span& x = add(job.ranks[a.of], Lane::Comm, c.name, a.at, a.end);
        x.begin = std::min(std::max(x.ready, TimePoint{(c.last() - zero).ps}), x.end);
        x.bytes = std::max<std::int64_t>(c.message.bytes(), 0);
      }
    }
  }
  return run;
}

}  // namespace ddpsim::analysis
