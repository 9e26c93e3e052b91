// The judge of predictions: which Runs count, errors by class, coverage, sweeps of a knob, limits.
#include <cmath>

#include <gtest/gtest.h>

#include "sim/io/files.h"
#include "sim/predict/mechanisms.h"
#include "sim/validation/executed.h"
#include "sim/validation/pairing.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

using validation::Case;
using validation::ExecutedRow;
using validation::Limit;
using validation::Pair;
using validation::Validation;

// Measured 1,000,000 ps, and an interval from 5 % below the prediction to 5 % above it.
Pair judged_pair(double error, const std::string& evidence = "replay") {
  Pair p;
  p.key = p.file = std::to_string(error);
  p.evidence = evidence;
  p.sample = "held_out";
  p.comparison.measured = {1'000'000};
  p.comparison.predicted = {static_cast<std::int64_t>(std::lround(1e6 * (1 + error)))};
  p.comparison.error = error;
  p.low = {static_cast<std::int64_t>(std::lround(0.95e6 * (1 + error)))};
  p.high = {static_cast<std::int64_t>(std::lround(1.05e6 * (1 + error)))};
  return p;
}

Validation summarized(std::vector<Pair> pairs) {
  Validation v;
  v.pairs = std::move(pairs);
  summarize(v);
  return v;
}

// A measured Run of one bucket, and the case that predicts it `error` too long.
ddpsim::Run executed_run() {
  ddpsim::Run r;
  r.kind = RunKind::Measured;
  r.key = "k";
  r.scenario = "5ce0a110";
  r.workload = "3e7";
  r.origin.compute = "timed";
  r.origin.hosts = "namespaces";
  r.steps = {{StepKind::Steady, {1'000'000}}, {StepKind::Steady, {1'000'000}}};
  return r;
}
Case case_of(double error) {
  Case c;
  c.scenario_hash = "5ce0a110";
  c.workload_hash = "3e7";
  auto step = static_cast<std::int64_t>(std::lround(1e6 * (1 + error)));
  c.prediction.run.steps = {{StepKind::Steady, {step}}};
  c.prediction.step_low = c.prediction.step_high = {step};
  c.naive = {1'500'000};
  c.queue = {900'000};
  return c;
}

TEST(Validation, CountsCoverageAndErrorsOfCleanRunsByClass) {
  Pair noisy = judged_pair(0.5);
  noisy.noisy = true;
  Pair loopback = judged_pair(0.5);
  loopback.noisy = loopback.loopback = true;
  Validation v = summarized({judged_pair(0.01), judged_pair(-0.04), judged_pair(0.2),
                             judged_pair(-0.3), noisy, loopback, judged_pair(0.3, "system")});
  const validation::Aggregate& a = v.aggregates.at("replay").at("held_out");
  EXPECT_EQ(a.n, 4u);
  EXPECT_DOUBLE_EQ(a.coverage, 0.5);  // one is too long, one too short
  EXPECT_DOUBLE_EQ(a.median, 0.12);
  EXPECT_DOUBLE_EQ(a.max, 0.3);
  EXPECT_EQ(v.aggregates.at("system").at("held_out").n, 1u);
  EXPECT_EQ(v.set_aside.at("noisy").at("replay").at("held_out").n, 1u);
  EXPECT_EQ(v.set_aside.at("loopback").at("replay").at("held_out").n, 1u);
  EXPECT_DOUBLE_EQ(values(v).at("coverage"), 0.5);
  EXPECT_DOUBLE_EQ(v.pairs.front().comparison.error, 0.5);  // the largest first
}

TEST(Validation, P95IsTheNinetyFifthOfAHundred) {
  std::vector<Pair> pairs;
  for (int k = 100; k >= 1; --k) pairs.push_back(judged_pair(0.001 * k));
  const validation::Aggregate a =
      summarized(std::move(pairs)).aggregates.at("replay").at("held_out");
  EXPECT_DOUBLE_EQ(a.p95, 0.095);
  EXPECT_DOUBLE_EQ(a.median, 0.0505);
}

TEST(Validation, ABudgetIsBrokenByWhatIsBeyondItAndByWhatHasNoValue) {
  Validation v = summarized({judged_pair(0.01), judged_pair(-0.04)});
  auto broken = [&](Limit l) {
    Validation each = v;
    apply_budget(each, {std::move(l)});
    EXPECT_EQ(each.failed(), each.limits.at(0).broken);
    return each.limits.at(0).broken ? each.limits.at(0).sentence : "";
  };
  EXPECT_EQ(broken({"replay.held_out.step.max_abs_error", {}, 0.04}), "");
  EXPECT_EQ(broken({"replay.held_out.step.max_abs_error", {}, 0.03}),
            "replay.held_out.step.max_abs_error is 0.04, at most 0.03 is allowed");
  EXPECT_EQ(broken({"replay.held_out.n", 3, {}}), "replay.held_out.n is 2, at least 3 is required");
  EXPECT_EQ(broken({"system.held_out.coverage", 0.5, {}}),
            "system.held_out.coverage has no value: no clean run tells it");
  EXPECT_NE(broken({"coverage", std::nan(""), {}}), "");
}

TEST(Validation, FailsEarlyOnlyForWhatMoreRunsCannotMend) {
  std::vector<Limit> limits{{"replay.held_out.step.max_abs_error", {}, 0.1},
                            {"replay.held_out.step.median_abs_error", {}, 0.1},
                            {"replay.held_out.n", 100, {}}};
  Validation v;
  for (int i = 0; i < 8; ++i) v.pairs.push_back(judged_pair(0.05));
  EXPECT_FALSE(fails_already(v, limits));
  for (int i = 0; i < 7; ++i) v.pairs.push_back(judged_pair(0.2));
  EXPECT_FALSE(fails_already(v, limits));  // asked at every eighth pair
  v.pairs.push_back(judged_pair(0.2));
  ASSERT_TRUE(fails_already(v, limits));
  ASSERT_EQ(v.limits.size(), 1u);
  EXPECT_EQ(v.limits[0].limit.what, "replay.held_out.step.max_abs_error");
}

TEST(Validation, TheRegretOfASweepIsWhatThePickedCapCostsMore) {
  std::vector<Pair> pairs;
  for (auto [cap, predicted, measured] :
       {std::tuple{1.0, 90, 110}, std::tuple{5.0, 100, 100}, std::tuple{25.0, 120, 130}}) {
    Pair p = judged_pair(0);
    p.sweep = "s";
    p.cap = cap;
    p.comparison.predicted = {predicted};
    p.comparison.measured = {measured};
    pairs.push_back(p);
  }
  Validation v = summarized(pairs);
  ASSERT_EQ(v.sweeps.size(), 1u);
  EXPECT_EQ(v.sweeps[0].best, 1u);
  EXPECT_EQ(v.sweeps[0].picked, 0u);
  EXPECT_NEAR(v.sweeps[0].regret, 0.1, 1e-12);
  pairs.pop_back();
  EXPECT_TRUE(summarized(pairs).sweeps.empty());
}

// Words in backticks of CONTRIBUTING's row on --without, and of the list of faults.py.
TEST(Mechanisms, AreListedWhereTheyAreTakenOut) {
  std::vector<std::string> names;
  for (int m = 0; m < predict::kMechanisms; ++m)
    names.emplace_back(predict::name_of(static_cast<predict::Mechanism>(m)));
  auto listed = [](const std::string& file, const std::string& from, const std::string& to,
                   char quote) {
    std::string text = io::read_file(source_path(file));
    text = text.substr(text.find(from) + from.size());
    text = text.substr(0, text.find(to));
    std::vector<std::string> out;
    for (std::size_t a = 0; (a = text.find(quote, a)) != std::string::npos;) {
      std::size_t b = text.find(quote, a + 1);
      out.push_back(text.substr(a + 1, b - a - 1));
      a = b + 1;
    }
    return out;
  };
  EXPECT_EQ(listed("tests/validation/faults.py", "MECHANISMS = [", "]", '"'), names);
}

TEST(Pairing, SaysFromWhatClassAndSampleARunIs) {
  Validation v;
  ddpsim::Run run = executed_run();
  Case c = case_of(0.02);
  const Pair& p = add_pair(v, "f", run, c, 0.05);
  EXPECT_EQ(p.evidence, "replay");
  EXPECT_EQ(p.sample, "held_out");
  EXPECT_NEAR(p.comparison.error, 0.02, 1e-12);
  EXPECT_NEAR(p.naive_error, 0.5, 1e-12);
  EXPECT_NEAR(p.queue_error, -0.1, 1e-12);
  c.profile.fitted_from = {run.scenario};
  EXPECT_EQ(add_pair(v, "f", run, c, 0.05).sample, "in_sample");
  run.origin.compute = "real";
  EXPECT_EQ(add_pair(v, "f", run, c, 0.05).evidence, "replay_real");
  run.evidence = EvidenceClass::System;
  EXPECT_EQ(add_pair(v, "f", run, c, 0.05).evidence, "system_other");
  c.system_class = "system";
  EXPECT_EQ(add_pair(v, "f", run, c, 0.05).evidence, "system");
  run.origin.gpu = "H100";
  EXPECT_EQ(add_pair(v, "f", run, c, 0.05).evidence, "system_gpu");
  EXPECT_TRUE(v.errors.empty());
}

// Where steps of PyTorch over Gloo repeat: four ranks of a star, or fewer over a slow link.
TEST(Pairing, AClassIsOfCellsThatRepeat) {
  auto of = [](int ranks, std::int64_t bits_per_s, Pattern pattern = Pattern::Star) {
    Cluster c;
    c.pattern = pattern;
    c.link.bandwidth = {bits_per_s};
    Scenario s;
    s.ranks = ranks;
    return validation::system_class(c, s);
  };
  EXPECT_EQ(of(4, 1'000'000'000), "system");
  EXPECT_EQ(of(5, 1'000'000'000), "system_other");
  EXPECT_EQ(of(5, 200'000'000), "system_other");
  EXPECT_EQ(of(3, 200'000'000), "system");
  EXPECT_EQ(of(3, 200'000'001), "system_other");
  EXPECT_EQ(of(4, 1'000'000'000, Pattern::Racks), "system_other");
}

TEST(Pairing, ARunOfAnotherScenarioIsStale) {
  ddpsim::Run run = executed_run();
  Case c = case_of(0);
  EXPECT_EQ(staleness(run, c), "");
  c.workload_hash = "4e7";
  EXPECT_NE(staleness(run, c).find("the workload was changed"), std::string::npos);
  c.scenario_hash = "5ce0a111";
  EXPECT_NE(staleness(run, c).find("the file of its scenario was changed"), std::string::npos);
  c.problem = "no such file";
  EXPECT_EQ(staleness(run, c), "no such file");
}

TEST(Pairing, ARunWithoutStepsIsCountedAndNotCompared) {
  Validation v;
  ddpsim::Run run = executed_run();
  EXPECT_TRUE(is_comparable(v, "f", run));
  run.scenario.clear();
  EXPECT_FALSE(is_comparable(v, "f", run));
  ASSERT_EQ(v.errors.size(), 1u);
  EXPECT_EQ(v.errors[0].what, "stale");
  run.evidence = EvidenceClass::Collective;
  EXPECT_FALSE(is_comparable(v, "f", run));
  EXPECT_EQ(v.without_steps, 1u);
  EXPECT_EQ(v.errors.size(), 1u);
}

TEST(Executed, JudgesWhatIsLongEnoughAndALibrarysOnlyWhereItRepeats) {
  using validation::PlayedBy;
  auto row = [](const char* a, std::int64_t bytes, double ms, double predicted_ms,
                PlayedBy by = PlayedBy::Executor) {
    ExecutedRow r;
    r.where = "here";
    r.algorithm = a;
    r.bytes = bytes;
    r.played_by = by;
    r.predicted = {static_cast<std::int64_t>(predicted_ms * 1e9)};
    set_measured(r, {ms * 1e9, ms * 1e9, 3 * ms * 1e9});
    return r;
  };
  ExecutedRow wild = row("ring", 1 << 20, 10, 20, PlayedBy::Gloo);
  set_measured(wild, {8e9, 10e9, 12e9});
  EXPECT_DOUBLE_EQ(wild.deviation, 0.2);
  ExecutedRow fitted = row("rabenseifner", 1 << 20, 10, 10, PlayedBy::OpenMpi);
  fitted.in_sample = true;
  validation::ExecutedReport r = validation::judge(
      {row("ring", 1 << 20, 10, 10.1), row("ring", 1024, 1, 2), row("direct", 1 << 20, 20, 19),
       wild, row("bcube", 1 << 20, 10, 9, PlayedBy::Gloo), fitted,
       row("rabenseifner", 4 << 20, 10, 10.4, PlayedBy::OpenMpi)});
  EXPECT_EQ(r.judged, 2u);
  EXPECT_NEAR(r.median, 0.03, 1e-12);
  EXPECT_EQ(r.ranked, 1u);
  EXPECT_EQ(r.ranked_right, 1u);
  EXPECT_EQ(r.gloo.rows, 2u);
  EXPECT_EQ(r.gloo.judged, 1u);
  EXPECT_NEAR(r.gloo.largest, 0.1, 1e-12);
  EXPECT_EQ(r.open_mpi.rows, 1u);
  EXPECT_EQ(r.open_mpi.judged, 1u);
  EXPECT_NEAR(r.open_mpi.median, 0.04, 1e-12);
}

}  // namespace
}  // namespace ddpsim::test
