// A moment is exposed if a collective is in flight on a rank and the rank is in no phase of
// computation; it is counted once, for the collective that came first. Before the last arrival it
// is the late rank's, after it the network's. Where the device waits for its host instead, it is
// the host's.
#include "sim/analysis/explain_traces.h"

#include <algorithm>
#include <map>

#include "sim/analysis/trace_device.h"

namespace ddpsim::analysis {
namespace {

using Stretch = std::pair<TimePoint, TimePoint>;

Duration mean(Duration sum, std::int64_t n) {
  return Duration{n > 0 ? sum.ps / n : 0};
}

// When a rank computes in a step, on the first rank's clock; sorted, apart.
std::vector<Stretch> computing_of(const RankTrace& r, std::size_t step) {
  const TracedStep& t = r.steps[step];
  std::vector<Stretch> out;
  if (t.times.host) {
    out = computing(r.trace, t.forward_begin, t.update_end);
  } else {
    // Broadcasts within forward are waited for.
    TimePoint at = t.forward_begin;
    for (const TraceEvent& e : r.trace.events) {
      if (e.what != Traced::Collective || e.begin < at || e.begin >= t.forward_end) continue;
      out.emplace_back(at, e.begin);
      at = std::max(at, std::min(e.end, t.forward_end));
    }
    out.emplace_back(at, t.gradients_end);
    out.emplace_back(t.reduced, t.update_end);
  }
  for (Stretch& i : out) i = {i.first + r.offset, i.second + r.offset};
  return out;
}

// When a rank's device waits for its host in a step, on the first rank's clock.
std::vector<Stretch> late_host_of(const RankTrace& r, std::size_t step) {
  const TracedStep& t = r.steps[step];
  if (!t.times.host) return {};
  std::vector<Stretch> out = late_host(r.trace, t.iteration.begin, t.iteration.end);
  for (Stretch& i : out) i = {i.first + r.offset, i.second + r.offset};
  return out;
}

Duration total(const std::vector<Stretch>& of, TimePoint from, TimePoint to) {
  Duration sum;
  for (auto [begin, end] : of)
    sum += std::max(std::min(end, to) - std::max(begin, from), Duration{});
  return sum;
}

// What of [from, to) is in none of them; `taken`: what others have counted, to which it is added.
std::vector<Stretch> outside(const std::vector<Stretch>& sorted, TimePoint from, TimePoint to) {
  std::vector<Stretch> out;
  TimePoint at = from;
  for (auto [begin, end] : sorted) {
    if (end <= at) continue;
    if (begin >= to) break;
    if (begin > at) out.emplace_back(at, begin);
    at = std::max(at, end);
  }
  if (at < to) out.emplace_back(at, to);
  return out;
}

void add(std::vector<Stretch>& sorted, Stretch i) {
  sorted.insert(std::upper_bound(sorted.begin(), sorted.end(), i), i);
}

struct Exposed {
  Duration late;
  Duration network;
};

// Of one rank's part in a collective. `busy`: computing, and what earlier collectives counted.
Exposed exposed_of(std::vector<Stretch>& busy, TimePoint at, TimePoint last, TimePoint end) {
  Exposed out;
  for (Stretch i : outside(busy, at, end)) {
    out.late += std::max(std::min(i.second, last) - i.first, Duration{});
    out.network += std::max(i.second - std::max(i.first, last), Duration{});
    add(busy, i);
  }
  return out;
}

std::vector<Duration> sorted_of(std::vector<Duration> v) {
  std::sort(v.begin(), v.end());
  return v;
}

// How much the last one came behind the median of the others.
Duration behind(const TracedCollective& c) {
  std::vector<Duration> others;
  std::size_t latest = c.latest();
  for (std::size_t k = 0; k < c.arrivals.size(); ++k)
    if (k != latest) others.push_back(Duration{c.arrivals[k].at.ps});
  if (others.empty()) return {};
  others = sorted_of(std::move(others));
  return Duration{c.arrivals[latest].at.ps - others[(others.size() - 1) / 2].ps};
}

struct Story {
  CollectiveStory told;
  Duration waited, transfer, late, network;
  std::int64_t parts = 0;
  std::map<int, std::pair<int, Duration>> last;  // by rank: how often, and by how much in all
};

Duration median_of(std::vector<Duration> v) {
  v = sorted_of(std::move(v));
  return v[(v.size() - 1) / 2];
}

// The replay of one step. Times count from the begin of the step on the rank that began it last.
class Replay {
 public:
  Replay(const TracedRanks& job, std::size_t step) {
    TimePoint zero = job.begin(step);
    for (const RankTrace& r : job.ranks) {
      const TracedStep& t = r.steps[step];
      gradients_.push_back(t.gradients_end + r.offset - zero);
      rest_.push_back(t.iteration.end - t.reduced);
      late_.push_back(late_host_of(r, step));
      gradients_late_.push_back(total(late_.back(), zero, t.gradients_end + r.offset));
      rest_late_.push_back(total(late_.back(), t.reduced + r.offset, t.iteration.end + r.offset));
      any_late_ = any_late_ || !late_.back().empty();
    }
    TimePoint before{INT64_MIN};
    for (const TracedCollective& c : job.collectives) {
      if (static_cast<std::size_t>(c.step) != step || c.place != "backward" ||
          c.message.operation != Operation::AllReduce)
        continue;
      Reduce x;
      for (const auto& a : c.arrivals)
        x.arrivals.push_back({a.at - zero, total(late_[a.of], zero, a.at)});
      x.transfer = std::max(c.end() - std::max(c.last(), before), Duration{});
      before = std::max(before, c.end());
      reduces_.push_back(std::move(x));
    }
    // The copies back after the last collective are part of what follows.
    for (std::size_t k = 0; k < gradients_.size(); ++k) {
      const TracedStep& t = job.ranks[k].steps[step];
      TimePoint done = t.gradients_end + job.ranks[k].offset;
      for (const TracedCollective& c : job.collectives)
        if (static_cast<std::size_t>(c.step) == step && c.place == "backward")
          for (const auto& a : c.arrivals)
            if (a.of == k) done = std::max(done, a.end);
      copies_.push_back(std::max(t.reduced + job.ranks[k].offset - done, Duration{}));
    }
  }
  bool any() const { return !reduces_.empty() || any_late_; }
  Duration step(bool alike, bool free, bool in_time = false) const {
    std::vector<Duration> ready = gradients_;
    std::vector<Duration> rest = rest_;
    for (std::size_t k = 0; in_time && k < ready.size(); ++k) {
      ready[k] = ready[k] - gradients_late_[k];
      rest[k] = rest[k] - rest_late_[k];
    }
    if (alike) {
      ready.assign(ready.size(), median_of(gradients_));
      rest.assign(rest.size(), median_of(rest_));
    }
    Duration end;
    for (const Reduce& x : reduces_) {
      std::vector<Duration> arrivals;
      for (const auto& [at, late] : x.arrivals) arrivals.push_back(in_time ? at - late : at);
      Duration last =
          alike ? median_of(arrivals) : *std::max_element(arrivals.begin(), arrivals.end());
      end = std::max(end, last);
      if (!free) end += x.transfer;
    }
    Duration step;
    for (std::size_t k = 0; k < ready.size(); ++k)
      step = std::max(step, std::max(ready[k], end) + copies_[k] + rest[k]);
    return step;
  }

 private:
  struct Reduce {
    std::vector<std::pair<Duration, Duration>> arrivals;  // when; how long the host was late before
    Duration transfer;
  };
  std::vector<Duration> gradients_;
  std::vector<Duration> rest_;    // from the update on
  std::vector<Duration> copies_;  // after the last collective, before the update
  std::vector<Reduce> reduces_;
  std::vector<std::vector<Stretch>> late_;  // of the host, by rank
  std::vector<Duration> gradients_late_, rest_late_;
  bool any_late_ = false;
};

void what_if(const TracedRanks& job, TraceExplanation& out) {
  WhatIf sum;
  std::int64_t n = 0;
  for (std::size_t s = 0; s < job.steps(); ++s) {
    Replay replay(job, s);
    if (!replay.any()) continue;
    ++n;
    sum.replayed += replay.step(false, false);
    sum.without_straggler += replay.step(true, false);
    sum.without_network += replay.step(false, true);
    sum.without_both += replay.step(true, true);
    sum.without_host += replay.step(false, false, true);
  }
  if (n == 0) return;
  out.what_if =
      WhatIf{mean(sum.replayed, n), mean(sum.without_straggler, n), mean(sum.without_network, n),
             mean(sum.without_both, n), mean(sum.without_host, n)};
}

// The sums over steps, and in the end the means.
class Sums {
 public:
  explicit Sums(const TracedRanks& job) : job_(job) {
    out_.steps = static_cast<int>(job.steps());
    out_.notes = job.notes;
    out_.step_least = Duration{INT64_MAX};
    for (const RankTrace& r : job.ranks) out_.ranks.emplace_back().rank = r.rank;
  }

  void add_step(std::size_t s) {
    Duration length = job_.end(s) - job_.begin(s);
    out_.step += length;
    out_.step_least = std::min(out_.step_least, length);
    out_.step_most = std::max(out_.step_most, length);
    std::vector<std::vector<Stretch>> busy;
    std::vector<Duration> computed;
    for (std::size_t k = 0; k < job_.ranks.size(); ++k) {
      busy.push_back(computing_of(job_.ranks[k], s));
      // While the host is late, no collective is what the device waits for.
      for (Stretch i : late_host_of(job_.ranks[k], s)) {
        add(busy.back(), i);
        out_.late_host += i.second - i.first;
      }
      computed.push_back(add_computation(k, job_.ranks[k].steps[s]));
    }
    add_slowest(computed);
    for (const TracedCollective& c : job_.collectives)
      if (static_cast<std::size_t>(c.step) == s) add_collective(c, busy);
  }

  TraceExplanation take() {
    take_means();
    for (const std::string& name : order_) out_.collectives.push_back(told(stories_[name]));
    return std::move(out_);
  }

 private:
  // How long rank k computed in the step.
  Duration add_computation(std::size_t k, const TracedStep& t) {
    RankStory& r = out_.ranks[k];
    r.forward += t.times.forward;
    r.backward += t.times.backward + t.hooks;
    r.optimizer += t.times.optimizer;
    Duration computed = t.computed() + t.hooks;
    r.computing += computed;
    r.waiting += std::max(t.length() - computed, Duration{});
    out_.exposed_other += std::max(t.length() - computed, Duration{});
    return computed;
  }

  void add_slowest(const std::vector<Duration>& computed) {
    std::size_t most = std::max_element(computed.begin(), computed.end()) - computed.begin();
    Duration all;
    for (Duration d : computed) all += d;
    out_.skew += computed[most] - mean(all, computed.size());
    ++slowest_[job_.ranks[most].rank];
  }

  Story& story_of(const TracedCollective& c) {
    auto [at, added] = stories_.try_emplace(c.name);
    Story& x = at->second;
    if (added) {
      order_.push_back(c.name);
      x.told.name = c.name;
      x.told.place = c.place;
      x.told.bytes = c.message.bytes();
      x.told.ranks = static_cast<int>(c.arrivals.size());
    }
    return x;
  }

  // `busy`: of each rank, as exposed_of() has it.
  void add_collective(const TracedCollective& c, std::vector<std::vector<Stretch>>& busy) {
    Story& x = story_of(c);
    ++x.told.steps;
    x.waited += c.last() - c.first();
    x.transfer += std::max(c.end() - c.last(), Duration{});
    int late = job_.ranks[c.arrivals[c.latest()].of].rank;
    if (c.arrivals.size() > 1) {
      auto& [times, by] = x.last[late];
      ++times;
      by += behind(c);
      ++out_.ranks[c.arrivals[c.latest()].of].last;
    }
    for (const auto& a : c.arrivals) {
      Exposed e = exposed_of(busy[a.of], a.at, c.last(), a.end);
      x.late += e.late;
      x.network += e.network;
      ++x.parts;
      out_.exposed_late += e.late;
      out_.exposed_network += e.network;
    }
  }

  void take_means() {
    std::int64_t n = out_.steps;
    std::int64_t ranks = job_.ranks.size();
    out_.step = mean(out_.step, n);
    out_.skew = mean(out_.skew, n);
    for (auto [rank, times] : slowest_)
      if (times > out_.slowest_steps) out_.slowest = rank, out_.slowest_steps = times;
    for (RankStory& r : out_.ranks) {
      for (Duration* d : {&r.forward, &r.backward, &r.optimizer, &r.computing, &r.waiting})
        *d = mean(*d, n);
    }
    out_.exposed_late = mean(out_.exposed_late, n * ranks);
    out_.exposed_network = mean(out_.exposed_network, n * ranks);
    out_.late_host = mean(out_.late_host, n * ranks);
    out_.exposed_other = std::max(
        mean(out_.exposed_other, n * ranks) - out_.exposed_late - out_.exposed_network, Duration{});
  }

  static CollectiveStory told(Story& x) {
    CollectiveStory& c = x.told;
    c.waited = mean(x.waited, c.steps);
    c.transfer = mean(x.transfer, c.steps);
    c.exposed_late = mean(x.late, x.parts);
    c.exposed_network = mean(x.network, x.parts);
    for (const auto& [rank, seen] : x.last)
      if (seen.first > c.late_steps) {
        c.late_rank = rank;
        c.late_steps = seen.first;
        c.late_by = mean(seen.second, seen.first);
      }
    return std::move(c);
  }

  const TracedRanks& job_;
  TraceExplanation out_;
  std::map<std::string, Story> stories_;
  std::vector<std::string> order_;
  std::map<int, int> slowest_;  // by rank: in how many steps it computed longest
};

}  // namespace

TraceExplanation explain_traces(const TracedRanks& job) {
  Sums sums(job);
  for (std::size_t s = 0; s < job.steps(); ++s) sums.add_step(s);
  TraceExplanation out = sums.take();
  what_if(job, out);
  return out;
}

TraceDecision decision_of(const TraceExplanation& e) {
  constexpr std::int64_t kLeast = 20;  // a twentieth
  std::pair<Duration, TraceDecision> most{Duration{e.step.ps / kLeast}, TraceDecision::Computation};
  for (auto candidate : {std::pair{e.late_host, TraceDecision::Host},
                         std::pair{e.exposed_late, TraceDecision::LateRanks},
                         std::pair{e.exposed_network, TraceDecision::Network}})
    if (candidate.first > most.first) most = candidate;
  return most.second;
}

}  // namespace ddpsim::analysis
