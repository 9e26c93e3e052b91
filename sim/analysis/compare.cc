// step error = predicted / measured - 1;  bucket error = (predicted end - measured end) / measured
// step
#include "sim/analysis/compare.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace ddpsim::analysis {
namespace {

Duration middle(std::vector<Duration> v) {
  std::sort(v.begin(), v.end());
  std::size_t half = v.size() / 2;
  return v.size() % 2 == 1 ? v[half] : Duration{v[half - 1].ps + (v[half].ps - v[half - 1].ps) / 2};
}

// One operation over all actors and recorded steps.
struct Joined {
  const Span* first = nullptr;
  struct Times {
    Duration begin{INT64_MIN};
    Duration end{INT64_MIN};
  };
  std::map<int, Times> steps;  // latest actor of each step
  std::string conflict;        // actors or steps that disagree on what it moves
};

struct Table {
  std::vector<Joined> rows;  // in order of first appearance
  std::map<std::string, std::size_t> index;
  std::size_t steps = 0;  // recorded ones
  const Joined* find(const std::string& op) const {
    auto it = index.find(op);
    return it == index.end() ? nullptr : &rows[it->second];
  }
};

bool same_load(const Span& a, const Span& b) {
  if (a.bytes != b.bytes || a.tensors.size() != b.tensors.size()) return false;
  auto x = a.tensors;
  auto y = b.tensors;
  std::sort(x.begin(), x.end());
  std::sort(y.begin(), y.end());
  return x == y;
}

Table join(const Run& run) {
  Table t;
  std::map<int, bool> recorded;
  for (const Span& s : run.spans) {
    std::size_t step = s.step;
    if (step < run.steps.size() && run.steps[step].kind != StepKind::Steady) continue;
    recorded[s.step] = true;
    auto [it, fresh] = t.index.emplace(s.op, t.rows.size());
    if (fresh) t.rows.push_back({&s, {}, {}});
    Joined& j = t.rows[it->second];
    if (is_collective(s.kind) && j.conflict.empty() && !same_load(*j.first, s))
      j.conflict = s.op + " moved other tensors or bytes on rank " + std::to_string(s.actor) +
                   " in step " + std::to_string(s.step) + " than on rank " +
                   std::to_string(j.first->actor) + " in step " + std::to_string(j.first->step);
    Joined::Times& times = j.steps[s.step];
    times.begin = std::max(times.begin, s.begin - run.spans_from);
    times.end = std::max(times.end, s.end - run.spans_from);
  }
  t.steps = recorded.size();
  return t;
}

Duration median_begin(const Joined& j) {
  std::vector<Duration> v;
  for (const auto& [step, times] : j.steps) v.push_back(times.begin);
  return middle(std::move(v));
}
Duration median_end(const Joined& j) {
  std::vector<Duration> v;
  for (const auto& [step, times] : j.steps) v.push_back(times.end);
  return middle(std::move(v));
}

// By name where both Runs name their tensors, else by index.
std::vector<std::string> tensor_set(const Run& run, const Span& s, bool by_name) {
  std::vector<std::string> out;
  for (TensorIndex t : s.tensors)
    out.push_back(by_name && t < run.tensor_names.size() ? run.tensor_names[t]
                                                         : "#" + std::to_string(t));
  std::sort(out.begin(), out.end());
  return out;
}

std::string load_text(const Span& s) {
  return std::to_string(s.tensors.size()) + " tensors and " + std::to_string(s.bytes) + " bytes";
}

// Operations that the measured Run could not see, by the beginning of their names.
bool unseen(const Run& measured, const std::string& op) {
  return std::any_of(measured.skipped.begin(), measured.skipped.end(),
                     [&](const Skipped& s) { return op.starts_with(s.what); });
}

std::string bytes_text(const std::vector<std::int64_t>& v) {
  std::string out;
  for (std::int64_t b : v) out += (out.empty() ? "" : ", ") + std::to_string(b);
  return out;
}

// A collective that every step has: no schedule says what is decided while a step runs.
bool is_scheduled(const Joined& j) {
  return is_collective(j.first->kind) && !is_decided(j.first->kind);
}

// The first way in which the schedules differ, "" = they agree on every collective.
std::string schedule_mismatch(const Run& predicted, const Table& p, const Run& measured,
                              const Table& m) {
  // What the framework itself says of its buckets. A comm hook's wire bytes are its own matter.
  std::vector<std::int64_t> sizes;
  for (const auto& row : p.rows)
    if (carries_bucket(row.first->kind) && !is_broadcast(row.first->kind)) {
      std::int64_t bytes = 0;
      for (TensorIndex t : row.first->tensors)
        bytes += t < predicted.tensor_bytes.size() ? predicted.tensor_bytes[t] : 0;
      sizes.push_back(bytes);
    }
  if (!measured.steady_buckets.empty() && !predicted.tensor_bytes.empty() &&
      sizes != measured.steady_buckets)
    return "the framework reports buckets of " + bytes_text(measured.steady_buckets) +
           " bytes, predicted are " + bytes_text(sizes);
  bool by_name = !predicted.tensor_names.empty() && !measured.tensor_names.empty();
  for (const Joined& a : p.rows) {
    if (!is_scheduled(a)) continue;
    const std::string& op = a.first->op;
    if (unseen(measured, op)) continue;
    const Joined* b = m.find(op);
    if (!b) return op + " is in the prediction, and was not measured";
    if (!b->conflict.empty()) return b->conflict;
    if (b->steps.size() != m.steps)
      return op + " was measured in " + std::to_string(b->steps.size()) + " of " +
             std::to_string(m.steps) + " recorded steps";
    // A profiler's trace names no tensors, and not always bytes.
    bool traced = measured.origin.backend == "kineto" || measured.origin.backend == "nsys";
    bool silent = traced && b->first->bytes == 0;
    if ((!silent && a.first->bytes != b->first->bytes) ||
        (!traced && a.first->tensors.size() != b->first->tensors.size()))
      return op + " moves " + load_text(*a.first) + " in the prediction, " + load_text(*b->first) +
             " in the measured run";
    if (traced) continue;
    auto x = tensor_set(predicted, *a.first, by_name);
    auto y = tensor_set(measured, *b->first, by_name);
    auto differ = std::mismatch(x.begin(), x.end(), y.begin());
    if (differ.first != x.end())
      return op + " moves other tensors in the measured run: " + *differ.second + " in place of " +
             *differ.first;
  }
  for (const Joined& b : m.rows)
    if (is_scheduled(b) && !p.find(b.first->op))
      return b.first->op + " was measured, and is not in the prediction";
  return {};
}

bool has_scheduled(const Table& t) {
  return std::any_of(t.rows.begin(), t.rows.end(), is_scheduled);
}

std::string per_cent(double x) {
  constexpr double kMost = 1e6;  // times as much; no step is worth more digits, and integers end
  if (!(std::abs(x) < kMost)) return "more than 100000000 %";
  auto thousandths = static_cast<long long>(std::llround(std::abs(x) * 1e5));
  std::string decimals = std::to_string(thousandths % 1000);
  return std::to_string(thousandths / 1000) + "." + std::string(3 - decimals.size(), '0') +
         decimals + " %";
}

std::optional<double> warmup_error(const Run& predicted, const Run& measured, StepKind kind) {
  auto find = [kind](const Run& run) {
    return std::find_if(run.steps.begin(), run.steps.end(),
                        [kind](const StepRecord& s) { return s.kind == kind; });
  };
  auto p = find(predicted);
  auto m = find(measured);
  if (p == predicted.steps.end() || m == measured.steps.end()) return std::nullopt;
  return p->duration / m->duration - 1;
}

void judge(const Run& measured, const CompareOptions& o, Comparison& c) {
  double uncertainty =
      measured.quality.spread / std::sqrt(static_cast<double>(settled_steps(measured).size()));
  if (!c.mismatch.empty()) {
    c.verdict = Agreement::Outside;
    c.reason = "schedule mismatch: " + c.mismatch;
  } else if (measured.quality.verdict == Verdict::Noisy) {
    c.verdict = Agreement::Ambiguous;
    c.reason = "the measured run is noisy" +
               (measured.quality.reasons.empty() ? "" : ": " + measured.quality.reasons.front());
  } else if (measured.origin.hosts == "loopback") {
    c.verdict = Agreement::Ambiguous;
    c.reason = "the measured run used loopback: its network was not the cluster's";
  } else if (uncertainty > o.tolerance) {
    c.verdict = Agreement::Ambiguous;
    c.reason = "the measured steps spread by " + per_cent(measured.quality.spread) +
               ", too much for their number to support " + per_cent(o.tolerance);
  } else if (std::abs(c.error) <= o.tolerance) {
    c.verdict = Agreement::Within;
  } else {
    c.verdict = Agreement::Outside;
    c.reason = "the step is predicted " + per_cent(c.error) +
               (c.error > 0 ? " too long" : " too short") + ", tolerance " + per_cent(o.tolerance);
  }
  double most = std::max(o.ambiguous, o.tolerance);
  bool too_far = c.verdict == Agreement::Ambiguous && !(std::abs(c.error) <= most);
  c.failed = c.verdict == Agreement::Outside || too_far;
  if (too_far)
    c.reason += "; all the same it fails: the step is predicted " + per_cent(c.error) +
                (c.error > 0 ? " too long" : " too short") + ", more than " + per_cent(most);
}

}  // namespace

const char* name_of(Agreement a) {
  return a == Agreement::Within ? "within" : a == Agreement::Outside ? "outside" : "ambiguous";
}

std::vector<Duration> settled_steps(const Run& run) {
  std::vector<Duration> out;
  for (const StepRecord& s : run.steps)
    if (s.kind == StepKind::Steady && !s.instrumented) out.push_back(s.duration);
  if (out.size() > 1) out.erase(out.begin());
  return out;
}

Duration typical_step(const Run& run, bool mean) {
  std::vector<Duration> steps = settled_steps(run);
  if (!mean && run.kind == RunKind::Measured) return middle(std::move(steps));
  __int128 sum = 0;  // the steps of a file may be days, and many
  for (Duration d : steps) sum += d.ps;
  return {static_cast<std::int64_t>(sum / std::ssize(steps))};
}

std::vector<BucketEnd> bucket_ends(const Run& run) {
  std::vector<BucketEnd> out;
  for (const Joined& j : join(run).rows)
    if (carries_tensors(j.first->kind))
      out.push_back({j.first->op, j.first->tensors, j.first->bytes, median_end(j)});
  return out;
}

Comparison compare(const Run& predicted, const Run& measured, const CompareOptions& options) {
  Comparison c;
  c.predicted = typical_step(predicted, options.mean);
  c.measured = typical_step(measured, options.mean);
  auto step = static_cast<double>(c.measured.ps);
  c.error = static_cast<double>(c.predicted.ps) / step - 1;
  c.first_error = warmup_error(predicted, measured, StepKind::First);
  c.rebuild_error = warmup_error(predicted, measured, StepKind::Rebuild);
  Table p = join(predicted);
  Table m = join(measured);
  // A Run of one rank has no collective; then neither has the other.
  c.schedule_checked = has_scheduled(p) && has_scheduled(m);
  if (!predicted.spans.empty() && !measured.spans.empty())
    c.mismatch = schedule_mismatch(predicted, p, measured, m);
  for (const Joined& a : p.rows) {
    const Joined* b = m.find(a.first->op);
    // What was decided while it ran is another operation in each step.
    if (!b || is_decided(a.first->kind)) continue;
    SpanRow row{a.first->op,
                name_of(a.first->lane, predicted.streams),
                median_begin(a),
                median_end(a),
                median_begin(*b),
                median_end(*b),
                {}};
    row.difference = row.predicted_end - row.measured_end;
    EndError e{row.op, a.first->bytes, row.predicted_end, row.measured_end,
               static_cast<double>(row.difference.ps) / step};
    if (carries_tensors(a.first->kind))
      c.buckets.push_back(std::move(e));
    else if (is_forward(a.first->kind) || is_update(a.first->kind))
      c.phases.push_back(std::move(e));
    c.spans.push_back(std::move(row));
  }
  judge(measured, options, c);
  return c;
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  std::size_t half = v.size() / 2;
  return v.size() % 2 == 1 ? v[half] : (v[half - 1] + v[half]) / 2;
}

double percentile(std::vector<double> v, double percent) {
  std::sort(v.begin(), v.end());
  auto n = static_cast<double>(v.size());
  auto rank = static_cast<std::size_t>(std::ceil(percent * n / 100));
  return v[std::clamp<std::size_t>(rank, 1, v.size()) - 1];
}

std::vector<double> absolute(std::vector<double> v) {
  for (double& x : v) x = std::abs(x);
  return v;
}

}  // namespace ddpsim::analysis
