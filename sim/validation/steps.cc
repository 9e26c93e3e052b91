#include "sim/validation/steps.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "sim/analysis/compare.h"
#include "sim/units/convert.h"
#include "sim/units/elementary.h"

namespace ddpsim::validation {
namespace {

std::string part_of(const StepResult& r, const std::string& by) {
  return by == "source"       ? r.row.source
         : by == "gpu"        ? r.row.gpu
         : by == "generation" ? r.generation
         : by == "precision"  ? r.row.precision
         : by == "family"     ? family_of(r.row.workload)
                              : "";
}

using Results = std::vector<const StepResult*>;

double median_error(const Results& rows) {
  std::vector<double> errors;
  for (const StepResult* r : rows) errors.push_back(std::abs(r->error));
  return analysis::median(errors);
}

// REQUIRES: not empty. What a constant is chosen by: it changes smoothly with the constant.
double mean_error(const Results& rows) {
  double sum = 0;
  for (const StepResult* r : rows) sum += std::abs(r->error);
  return sum / static_cast<double>(rows.size());
}

// REQUIRES: not empty.
StepGroup group_of(const Results& rows, StepQuestion question, const std::string& by,
                   const std::string& name) {
  StepGroup g;
  g.by = by;
  g.name = name;
  g.question = question;
  g.n = rows.size();
  std::vector<double> errors;
  std::set<std::string> sources;
  for (const StepResult* r : rows) {
    errors.push_back(r->error);
    sources.insert(r->row.source);
    g.within += in_interval(*r);
    g.set_aside += !r->row.set_aside.empty();
  }
  constexpr double kPercentile = 95;
  g.sources = sources.size();
  g.bias = analysis::median(errors);
  g.median = analysis::median(analysis::absolute(errors));
  g.p95 = analysis::percentile(analysis::absolute(errors), kPercentile);
  return g;
}

// The 90 % point of Student's t, by the expansion of Fisher and Cornish: within 0.1 % from three
// degrees of freedom on.
double student(double freedom) {
  constexpr double z = 1.2815515655446004;
  constexpr double z2 = z * z;
  const double first = z * (z2 + 1) / 4;
  const double second = z * ((5 * z2 + 16) * z2 + 3) / 96;
  const double third = z * (((3 * z2 + 19) * z2 + 17) * z2 - 15) / 384;
  return z + (first + (second + third / freedom) / freedom) / freedom;
}

using BySource = std::map<std::string, std::vector<double>>;

// As StepInterval says, without the rows of `but`; nullopt: of fewer than two sources.
std::optional<std::pair<double, double>> of_another_source(const BySource& logarithms,
                                                           const std::string& but) {
  std::vector<const std::vector<double>*> sources;
  for (const auto& [name, values] : logarithms)
    if (name != but) sources.push_back(&values);
  if (sources.size() < 2) return std::nullopt;
  const auto n = static_cast<double>(sources.size());
  double middle = 0;
  for (const auto* values : sources) {
    double sum = 0;
    for (double v : *values) sum += v;
    middle += sum / static_cast<double>(values->size()) / n;
  }
  double squares = 0;
  for (const auto* values : sources) {
    double sum = 0;
    for (double v : *values) sum += (v - middle) * (v - middle);
    squares += sum / static_cast<double>(values->size());
  }
  const double off = std::sqrt(squares / (n - 1) * (1 + 1 / n)) * student(n - 1);
  return std::pair{natural_exponential(middle - off), natural_exponential(middle + off)};
}

StepInterval interval_of(const Results& rows, StepQuestion question) {
  BySource logarithms;
  auto ratio = [](const StepResult& r) { return 1 / (1 + r.error); };
  for (const StepResult* r : rows)
    logarithms[r->row.source].push_back(natural_logarithm(ratio(*r)));
  StepInterval out;
  out.question = question;
  out.rows = rows.size();
  out.sources = logarithms.size();
  if (auto all = of_another_source(logarithms, "")) std::tie(out.low, out.high) = *all;
  for (const auto& [source, values] : logarithms) {
    const auto others = of_another_source(logarithms, source);
    if (!others) continue;
    StepInterval::LeftOut one{source, values.size(), 0};
    for (const StepResult* r : rows)
      one.within +=
          r->row.source == source && others->first <= ratio(*r) && ratio(*r) <= others->second;
    out.left_out.push_back(one);
  }
  return out;
}

}  // namespace

double StepInterval::coverage() const {
  std::size_t n = 0, within = 0;
  for (const LeftOut& l : left_out) n += l.n, within += l.within;
  return fraction(within, n);
}

Duration measured_step(const PublishedStep& row) {
  double seconds = row.unit == StepUnit::SPerIteration ? row.measured
                   : row.unit == StepUnit::MsForwardBackward
                       ? row.measured / kMsPerSecond
                       : row.batch * 1.0 * row.accumulation_steps * row.ranks / row.measured;
  return {static_cast<std::int64_t>(seconds * kPsPerSecond + 0.5)};
}

bool is_relative(StepQuestion q) {
  return q >= StepQuestion::OneHost;
}

bool is_first(StepQuestion q) {
  return q == StepQuestion::OneGpu || q == StepQuestion::SeveralGpus;
}

std::vector<StepResult> left_out(const std::vector<std::vector<StepResult>>& by_constant,
                                 const std::string& by) {
  auto counts = [](const StepResult& r) {
    bool judged = r.row.set_aside.empty() || is_relative(r.question);
    return r.why_not.empty() && r.row.fitted.empty() && judged;
  };
  auto question = [&](StepQuestion q) {
    return q == StepQuestion::OneHost        ? StepQuestion::OneHostSourceLeftOut
           : q == StepQuestion::SeveralHosts ? StepQuestion::SeveralHostsSourceLeftOut
           : by == "source"                  ? StepQuestion::SourceLeftOut
                                             : StepQuestion::GenerationLeftOut;
  };
  std::set<std::string> parts;
  for (const StepResult& r : by_constant.front())
    if (r.why_not.empty()) parts.insert(part_of(r, by));
  std::vector<StepResult> out;
  for (const std::string& part : parts) {
    const std::vector<StepResult>* best = nullptr;
    double least = 0;
    for (const std::vector<StepResult>& rows : by_constant) {
      Results others;
      for (const StepResult& r : rows)
        if (counts(r) && part_of(r, by) != part) others.push_back(&r);
      if (others.empty()) continue;
      double error = mean_error(others);
      if (!best || error < least) best = &rows, least = error;
    }
    if (!best) continue;
    for (const StepResult& r : *best)
      if (r.why_not.empty() && part_of(r, by) == part)
        out.push_back(r), out.back().question = question(r.question);
  }
  return out;
}

bool in_interval(const StepResult& r) {
  return r.low <= r.measured && r.measured <= r.high;
}

std::string family_of(const std::string& workload) {
  auto slash = workload.rfind('/');
  std::string name = slash == std::string::npos ? workload : workload.substr(slash + 1);
  auto end =
      std::find_if(name.begin(), name.end(), [](unsigned char c) { return std::isalpha(c) == 0; });
  return {name.begin(), end};
}

std::string generation_of(int capability) {
  return capability == 70                         ? "Volta"
         : capability == 75                       ? "Turing"
         : capability == 89                       ? "Ada"
         : capability >= 80 && capability < 89    ? "Ampere"
         : capability >= 90 && capability < 100   ? "Hopper"
         : capability >= 100 && capability <= 120 ? "Blackwell"
                                                  : "";
}

StepsReport judge_steps(std::vector<StepResult> results) {
  StepsReport out;
  out.results = std::move(results);
  std::set<std::string> rows, predicted;
  for (const StepResult& r : out.results) {
    rows.insert(r.row.id);
    if (r.why_not.empty()) predicted.insert(r.row.id);
  }
  out.rows = rows.size();
  out.predicted = predicted.size();
  for (std::size_t k = 0; k < kStepQuestions.size(); ++k) {
    auto question = static_cast<StepQuestion>(k);
    Results all, seen;
    for (const StepResult& r : out.results)
      if (r.question == question && r.why_not.empty())
        (r.row.fitted.empty() && (r.row.set_aside.empty() || is_relative(question)) ? all : seen)
            .push_back(&r);
    if (!seen.empty()) out.in_sample.push_back(group_of(seen, question, "all", ""));
    if (all.empty()) continue;
    if (is_first(question) || question == StepQuestion::OneHost ||
        question == StepQuestion::SeveralHosts)
      out.intervals.push_back(interval_of(all, question));
    out.groups.push_back(group_of(all, question, "all", ""));
    for (const char* by : {"source", "generation", "gpu", "precision", "family"}) {
      std::map<std::string, Results> parts;
      for (const StepResult* r : all) parts[part_of(*r, by)].push_back(r);
      for (const auto& [name, members] : parts) {
        StepGroup g = group_of(members, question, by, name);
        Results others;
        for (const StepResult* r : all)
          if (part_of(*r, by) != name) others.push_back(r);
        if (!others.empty()) g.left_out = median_error(others);
        out.groups.push_back(std::move(g));
      }
    }
    StepSources& s = out.sources[question];
    std::vector<double> medians;
    for (const StepGroup& g : out.groups) {
      if (g.question != question) continue;
      if (g.by == "source") {
        medians.push_back(g.median);
        if (s.worst.empty() || g.median > s.worst_median)
          s.worst = g.name, s.worst_median = g.median;
      }
      if (g.by == "generation" &&
          (s.worst_generation.empty() || g.median > s.worst_generation_median))
        s.worst_generation = g.name, s.worst_generation_median = g.median;
    }
    s.median = analysis::median(medians);
  }
  return out;
}

std::map<std::string, double> values(const StepsReport& r) {
  std::map<std::string, double> out;
  out["rows"] = static_cast<double>(r.rows);
  out["predicted"] = static_cast<double>(r.predicted);
  for (const StepGroup& g : r.groups) {
    std::string stem = kStepQuestions[g.question];
    if (g.by != "all") stem += "." + g.by + "." + g.name;
    auto n = static_cast<double>(g.n);
    out[stem + ".n"] = n;
    out[stem + ".bias"] = g.bias;
    out[stem + ".median"] = g.median;
    out[stem + ".p95"] = g.p95;
    out[stem + ".coverage"] = static_cast<double>(g.within) / n;
  }
  for (const StepInterval& i : r.intervals) {
    std::string stem = kStepQuestions[i.question];
    out[stem + ".interval.low"] = i.low;
    out[stem + ".interval.high"] = i.high;
    out[stem + ".interval.left_out"] = i.coverage();
  }
  for (const auto& [question, s] : r.sources) {
    std::string stem = kStepQuestions[question];
    out[stem + ".sources"] = s.median;
    out[stem + ".worst_source"] = s.worst_median;
    out[stem + ".worst_generation"] = s.worst_generation_median;
  }
  return out;
}

}  // namespace ddpsim::validation
