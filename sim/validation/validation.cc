// Aggregates are kept apart by evidence and by sample; the named values that a budget limits are of
// clean, held-out pairs unless their name says otherwise.
#include "sim/validation/validation.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include <fmt/format.h>

namespace ddpsim::validation {
namespace {

constexpr const char* kEvidence[] = {"system",
                                     "system_zero_redundancy",
                                     "system_ddp_options",
                                     "system_local_sgd",
                                     "system_other",
                                     "replay",
                                     "replay_sharded",
                                     "replay_real",
                                     "system_gpu",
                                     "replay_gpu",
                                     "system_one_gpu",
                                     "replay_one_gpu"};
constexpr const char* kSamples[] = {"held_out", "in_sample"};
constexpr const char* kHeadline =
    "replay";  // coverage and discrimination are of held-out Runs of this class
constexpr std::size_t kLeastCaps = 3;
constexpr const char* kTags[] = {"slow_rank",    "slow_host", "racks",          "crossing",
                                 "two_jobs",     "in_flight", "no_overlap",     "accumulation",
                                 "compression",  "unused",    "small_messages", "large_buckets",
                                 "first_bucket", "host_lane"};

double magnitude(const Pair& p) {
  return std::abs(p.comparison.error);
}

Aggregate aggregate(const std::vector<const Pair*>& pairs) {
  std::vector<double> step, bucket, naive, queue, first, rebuild, captured;
  double inside = 0;
  for (const Pair* p : pairs) {
    step.push_back(magnitude(*p));
    naive.push_back(std::abs(p->naive_error));
    queue.push_back(std::abs(p->queue_error));
    for (const auto& b : p->comparison.buckets) bucket.push_back(std::abs(b.error));
    inside += in_interval(*p) ? 1 : 0;
    if (p->comparison.first_error) first.push_back(std::abs(*p->comparison.first_error));
    if (p->comparison.rebuild_error) rebuild.push_back(std::abs(*p->comparison.rebuild_error));
    if (p->capture_error) captured.push_back(std::abs(*p->capture_error));
  }
  Aggregate a;
  a.n = pairs.size();
  if (a.n == 0) return a;
  a.median = analysis::median(step);
  a.p95 = analysis::percentile(step, 95);
  a.max = analysis::percentile(step, 100);
  a.buckets = bucket.size();
  if (!bucket.empty())
    a.bucket_median = analysis::median(bucket), a.bucket_p95 = analysis::percentile(bucket, 95);
  a.coverage = inside / static_cast<double>(a.n);
  a.firsts = first.size();
  a.rebuilds = rebuild.size();
  a.captures = captured.size();
  if (!first.empty()) a.first_max = analysis::percentile(first, 100);
  if (!rebuild.empty()) a.rebuild_max = analysis::percentile(rebuild, 100);
  if (!captured.empty()) a.capture_median = analysis::median(captured);
  a.naive_median = analysis::median(naive);
  a.naive_p95 = analysis::percentile(naive, 95);
  a.queue_median = analysis::median(queue);
  a.queue_p95 = analysis::percentile(queue, 95);
  return a;
}

Aggregates aggregates(const std::vector<Pair>& pairs,
                      const std::function<bool(const Pair&)>& wanted) {
  std::map<std::string, std::map<std::string, std::vector<const Pair*>>> classes;
  for (const Pair& p : pairs)
    if (wanted(p)) classes[p.evidence][p.sample].push_back(&p);
  Aggregates out;
  for (const auto& [evidence, samples] : classes)
    for (const auto& [sample, members] : samples) out[evidence][sample] = aggregate(members);
  return out;
}

CapSweep make_cap_sweep(const std::vector<const Pair*>& pairs) {
  CapSweep s;
  s.key = pairs.front()->key;
  s.evidence = pairs.front()->evidence;
  s.sample = pairs.front()->sample;
  std::map<std::optional<double>, std::vector<double>> measured;
  std::map<std::optional<double>, double> predicted;
  for (const Pair* p : pairs) {
    if (p->sample != s.sample) s.sample = "mixed";
    measured[p->cap].push_back(static_cast<double>(p->comparison.measured.ps));
    predicted[p->cap] = static_cast<double>(p->comparison.predicted.ps);
  }
  for (const auto& [cap, steps] : measured)
    s.points.push_back({cap, predicted[cap], analysis::median(steps), steps.size()});
  auto least = [&](double CapSweep::Point::*field) {
    auto it = std::min_element(s.points.begin(), s.points.end(),
                               [&](const auto& a, const auto& b) { return a.*field < b.*field; });
    return it - s.points.begin();
  };
  s.best = least(&CapSweep::Point::measured_ps);
  s.picked = least(&CapSweep::Point::predicted_ps);
  s.regret = s.points[s.picked].measured_ps / s.points[s.best].measured_ps - 1;
  return s;
}

std::vector<CapSweep> sweeps(const std::vector<Pair>& pairs) {
  std::map<std::string, std::vector<const Pair*>> groups;
  for (const Pair& p : pairs)
    if (is_clean(p) && !p.sweep.empty())
      groups[p.evidence + "\n" + p.profile + "\n" + p.sweep].push_back(&p);
  std::vector<CapSweep> out;
  for (const auto& [name, members] : groups) {
    CapSweep s = make_cap_sweep(members);
    if (s.points.size() >= kLeastCaps) out.push_back(std::move(s));
  }
  return out;
}

Floor repeatability(const std::vector<Pair>& pairs) {
  struct Range {
    std::size_t runs = 0;
    double low = 0, high = 0;
    void add(double x) {
      low = runs == 0 ? x : std::min(low, x);
      high = runs == 0 ? x : std::max(high, x);
      ++runs;
    }
  };
  struct Repeated {
    Range step;  // ps
    // Of a bucket's end, in steps: all Runs of a scenario have one prediction, so what their errors
    // differ by is what was measured.
    std::map<std::string, Range> ends;
  };
  std::map<std::string, Repeated> scenarios;
  for (const Pair& p : pairs) {
    if (!is_clean(p)) continue;
    Repeated& r = scenarios[p.evidence + "\n" + p.scenario];
    r.step.add(static_cast<double>(p.comparison.measured.ps));
    for (const auto& b : p.comparison.buckets) r.ends[b.name].add(b.error);
  }
  std::vector<double> steps, ends;
  for (const auto& [name, r] : scenarios) {
    if (r.step.runs < 2) continue;
    steps.push_back(r.step.high / r.step.low - 1);
    for (const auto& [bucket, e] : r.ends)
      if (e.runs == r.step.runs) ends.push_back(e.high - e.low);
  }
  Floor f;
  f.scenarios = steps.size();
  f.buckets = ends.size();
  if (!steps.empty()) f.median = analysis::median(steps), f.max = analysis::percentile(steps, 100);
  if (!ends.empty())
    f.bucket_median = analysis::median(ends), f.bucket_p95 = analysis::percentile(ends, 95);
  return f;
}

struct Statistic {
  const char* name;
  double (*of)(const Aggregate&);
  std::size_t Aggregate::*samples;  // what it is of; none = no value
};
constexpr Statistic kStatistics[] = {
    {"n", [](const Aggregate& a) { return static_cast<double>(a.n); }, &Aggregate::n},
    {"step.median_abs_error", [](const Aggregate& a) { return a.median; }, &Aggregate::n},
    {"step.p95_abs_error", [](const Aggregate& a) { return a.p95; }, &Aggregate::n},
    {"step.max_abs_error", [](const Aggregate& a) { return a.max; }, &Aggregate::n},
    {"bucket.median_abs_error", [](const Aggregate& a) { return a.bucket_median; },
     &Aggregate::buckets},
    {"bucket.p95_abs_error", [](const Aggregate& a) { return a.bucket_p95; }, &Aggregate::buckets},
    {"first.max_abs_error", [](const Aggregate& a) { return a.first_max; }, &Aggregate::firsts},
    {"rebuild.max_abs_error", [](const Aggregate& a) { return a.rebuild_max; },
     &Aggregate::rebuilds},
    {"capture.median_abs_error", [](const Aggregate& a) { return a.capture_median; },
     &Aggregate::captures},
    {"coverage", [](const Aggregate& a) { return a.coverage; }, &Aggregate::n}};
constexpr const char* kOthers[] = {"coverage",
                                   "regret.max",
                                   "regret.n",
                                   "floor.median",
                                   "floor.max",
                                   "floor.bucket.p95",
                                   "naive.over_5_percent",
                                   "queue.over_3_percent",
                                   "queue.over_3_percent.ratio"};

std::string number(double x) {
  return x == std::floor(x) && std::abs(x) < 1e9 ? fmt::format("{:.0f}", x)
                                                 : fmt::format("{:.4g}", x);
}

}  // namespace

std::vector<std::string> tag_names() {
  return {std::begin(kTags), std::end(kTags)};
}
bool in_interval(const Pair& p) {
  return p.low <= p.comparison.measured && p.comparison.measured <= p.high;
}
bool is_clean(const Pair& p) {
  return !p.noisy && !p.loopback && p.comparison.mismatch.empty();
}
bool Validation::failed() const {
  return !errors.empty() ||
         std::any_of(limits.begin(), limits.end(), [](const LimitResult& r) { return r.broken; });
}

void summarize(Validation& v) {
  std::stable_sort(v.pairs.begin(), v.pairs.end(), [](const Pair& a, const Pair& b) {
    if (a.evidence != b.evidence) return a.evidence < b.evidence;
    if (a.sample != b.sample) return a.sample < b.sample;
    return magnitude(a) > magnitude(b);
  });
  v.aggregates = aggregates(v.pairs, is_clean);
  // Loopback says more than noise: its network is another one.
  v.set_aside["noisy"] = aggregates(v.pairs, [](const Pair& p) {
    return p.noisy && !p.loopback && p.comparison.mismatch.empty();
  });
  v.set_aside["loopback"] = aggregates(
      v.pairs, [](const Pair& p) { return p.loopback && p.comparison.mismatch.empty(); });
  v.sweeps = sweeps(v.pairs);
  v.floor = repeatability(v.pairs);
}

std::vector<std::string> value_names() {
  std::vector<std::string> out(std::begin(kOthers), std::end(kOthers));
  for (const char* evidence : kEvidence)
    for (const char* sample : kSamples)
      for (const Statistic& s : kStatistics)
        out.push_back(fmt::format("{}.{}.{}", evidence, sample, s.name));
  for (const char* tag : kTags)
    for (const char* sample : kSamples)
      for (const char* what : {"n", "median_abs_error", "max_abs_error", "bucket_p95_abs_error"})
        out.push_back(fmt::format("{}.{}.{}", tag, sample, what));
  return out;
}

std::map<std::string, double> values(const Validation& v) {
  std::map<std::string, double> out;
  for (const char* evidence : kEvidence)
    for (const char* sample : kSamples) {
      std::string stem = fmt::format("{}.{}.", evidence, sample);
      out[stem + "n"] = 0;
      auto e = v.aggregates.find(evidence);
      if (e == v.aggregates.end() || !e->second.count(sample)) continue;
      const Aggregate& a = e->second.at(sample);
      for (const Statistic& s : kStatistics)
        if (a.*s.samples > 0) out[stem + s.name] = s.of(a);
    }
  if (auto it = out.find(std::string(kHeadline) + ".held_out.coverage"); it != out.end())
    out["coverage"] = it->second;
  // By tag: clean Runs of the headline class.
  for (const char* tag : kTags)
    for (const char* sample : kSamples) {
      std::vector<double> errors;
      std::vector<double> buckets;
      for (const Pair& p : v.pairs) {
        if (!is_clean(p) || p.evidence != kHeadline || p.sample != sample ||
            std::find(p.tags.begin(), p.tags.end(), tag) == p.tags.end())
          continue;
        errors.push_back(magnitude(p));
        for (const auto& b : p.comparison.buckets) buckets.push_back(std::abs(b.error));
      }
      std::string stem = fmt::format("{}.{}.", tag, sample);
      out[stem + "n"] = static_cast<double>(errors.size());
      if (errors.empty()) continue;
      out[stem + "median_abs_error"] = analysis::median(errors);
      out[stem + "max_abs_error"] = analysis::percentile(errors, 100);
      if (!buckets.empty()) out[stem + "bucket_p95_abs_error"] = analysis::percentile(buckets, 95);
    }
  out["regret.n"] = static_cast<double>(v.sweeps.size());
  for (const CapSweep& s : v.sweeps) out["regret.max"] = std::max(out["regret.max"], s.regret);
  if (v.floor.scenarios > 0) out["floor.median"] = v.floor.median, out["floor.max"] = v.floor.max;
  if (v.floor.buckets > 0) out["floor.bucket.p95"] = v.floor.bucket_p95;
  double naive = 0;
  std::vector<double> queue, ours;
  for (const Pair& p : v.pairs) {
    if (!is_clean(p) || p.sample != "held_out" || p.evidence != kHeadline) continue;
    naive += std::abs(p.naive_error) > 0.05 ? 1 : 0;
    if (std::abs(p.queue_error) <= 0.03) continue;
    queue.push_back(std::abs(p.queue_error));
    ours.push_back(magnitude(p));
  }
  out["naive.over_5_percent"] = naive;
  out["queue.over_3_percent"] = static_cast<double>(queue.size());
  if (!queue.empty())
    out["queue.over_3_percent.ratio"] = analysis::median(ours) / analysis::median(queue);
  return out;
}

void apply_budget(Validation& v, const std::vector<Limit>& limits) {
  for (LimitResult& r : apply_limits(values(v), limits)) v.limits.push_back(std::move(r));
}

std::vector<LimitResult> apply_limits(const std::map<std::string, double>& values,
                                      const std::vector<Limit>& limits) {
  std::vector<LimitResult> out;
  for (const Limit& l : limits) {
    LimitResult r{l, {}, true, {}};
    if (auto it = values.find(l.what); it != values.end()) r.value = it->second;
    // Written so that a value that is not a number breaks its limit.
    bool low = r.value && l.min && !(*r.value >= *l.min);
    bool high = r.value && l.max && !(*r.value <= *l.max);
    r.broken = !r.value || low || high;
    if (!r.value)
      r.sentence = l.what + " has no value: no clean run tells it";
    else if (low)
      r.sentence = fmt::format("{} is {}, at least {} is required", l.what, number(*r.value),
                               number(*l.min));
    else if (high)
      r.sentence =
          fmt::format("{} is {}, at most {} is allowed", l.what, number(*r.value), number(*l.max));
    out.push_back(std::move(r));
  }
  return out;
}

std::vector<LimitResult> broken_for_good(Validation v, const std::vector<Limit>& limits) {
  std::vector<Limit> largest;
  for (const Limit& l : limits)
    if (l.max && l.what.ends_with(".max_abs_error")) largest.push_back({l.what, {}, l.max});
  v.limits.clear();
  summarize(v);
  apply_budget(v, largest);
  std::erase_if(v.limits, [](const LimitResult& r) { return !r.value || !r.broken; });
  return std::move(v.limits);
}

bool fails_already(Validation& v, const std::vector<Limit>& limits) {
  constexpr std::size_t kEvery = 8;  // pairs
  if (!v.errors.empty()) return true;
  if (v.pairs.size() % kEvery != 0) return false;
  v.limits = broken_for_good(v, limits);
  return !v.limits.empty();
}

}  // namespace ddpsim::validation
