// The judge: typical steps, joins, errors and verdicts.
#include "sim/analysis/compare.h"

#include <gtest/gtest.h>

#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

using analysis::Agreement;
using analysis::compare;
using analysis::Comparison;

Span compute(int step, int actor, OpKind kind, const char* op, std::int64_t begin,
             std::int64_t end) {
  return {step, actor, 1, Lane::Compute, kind, op, {}, 0, {begin}, {begin}, {end}, ""};
}
Span bucket(int step, int actor, const char* op, std::vector<TensorIndex> tensors,
            std::int64_t bytes, std::int64_t begin, std::int64_t end) {
  return {step,
          actor,
          1,
          Lane::Comm,
          kind_of_op("allreduce/bucket.0"),
          op,
          std::move(tensors),
          bytes,
          {begin},
          {begin},
          {end},
          "ring"};
}

// Steps of 1000 ps; its clock stands at 5000 when the recorded one begins.
ddpsim::Run predicted() {
  ddpsim::Run r;
  r.steps = {{StepKind::First, {2000}}, {StepKind::Steady, {1500}}, {StepKind::Steady, {1000}}};
  r.spans_from = {5000};
  r.tensor_names = {"a", "b", "c"};
  r.spans = {compute(2, 0, kind_of_op("fwd"), "fwd", 5000, 5200),
             bucket(2, 0, "allreduce/bucket.0", {2, 1}, 800, 5300, 5700),
             bucket(2, 0, "allreduce/bucket.1", {0}, 400, 5700, 5900),
             compute(2, 0, kind_of_op("optimizer"), "optimizer", 5900, 6000)};
  return r;
}

// The same schedule, two ranks, three recorded steps; `late` ps later in the end, by rank and step.
ddpsim::Run measured(std::int64_t late = 10) {
  ddpsim::Run r;
  r.kind = RunKind::Measured;
  r.origin.hosts = "namespaces";
  r.tensor_names = {"a", "b", "c"};
  r.steps = {{StepKind::First, {9000}},
             {StepKind::Steady, {5000}},
             {StepKind::Steady, {1000 + late}},
             {StepKind::Steady, {1000}},
             {StepKind::Steady, {1000 + 2 * late}}};
  for (int step : {2, 3, 4})
    for (int rank : {0, 1}) {
      std::int64_t x =
          late * (step - 2) + rank;  // over ranks and steps: median of the later rank = late + 1
      r.spans.push_back(compute(step, rank, kind_of_op("fwd"), "fwd", 0, 200));
      r.spans.push_back(bucket(step, rank, "allreduce/bucket.0", {1, 2}, 800, 300 + x, 700 + x));
      r.spans.push_back(bucket(step, rank, "allreduce/bucket.1", {0}, 400, 700 + x, 900 + x));
      r.spans.push_back(
          compute(step, rank, kind_of_op("optimizer"), "optimizer", 900 + x, 1000 + x));
    }
  return r;
}

TEST(Compare, TheTypicalStepLeavesTheFirstSteadyOneOut) {
  EXPECT_EQ(analysis::typical_step(predicted(), false).ps, 1000);
  EXPECT_EQ(analysis::typical_step(predicted(), true).ps, 1000);
  EXPECT_EQ(analysis::typical_step(measured(10), false).ps, 1010);
  EXPECT_EQ(analysis::typical_step(measured(100), true).ps, 1100);
  ddpsim::Run r = measured();
  r.steps.resize(4);  // 1010 and 1000
  EXPECT_EQ(analysis::typical_step(r, false).ps, 1005);
  r.steps.resize(2);
  EXPECT_EQ(analysis::typical_step(r, false).ps, 5000) << "the only steady step";
  ddpsim::Run p = predicted();
  p.steps.push_back({StepKind::Steady, {3000}});
  EXPECT_EQ(analysis::typical_step(p, false).ps, 2000) << "those that count, but the first";
  EXPECT_EQ(analysis::typical_step(p, true).ps, 2000);
}

TEST(Compare, ABucketEndsWithItsLastRankInTheMedianStep) {
  auto ends = analysis::bucket_ends(measured());
  ASSERT_EQ(ends.size(), 2u);
  EXPECT_EQ(ends[0].name, "allreduce/bucket.0");
  EXPECT_EQ(ends[0].end.ps, 711);
  EXPECT_EQ(ends[1].end.ps, 911);
  EXPECT_EQ(ends[1].bytes, 400);
  EXPECT_EQ(analysis::bucket_ends(predicted())[1].end.ps, 900)
      << "relative to the start of the step";
}

TEST(Compare, ErrorsAreSharesOfTheMeasuredStep) {
  Comparison c = compare(predicted(), measured());
  EXPECT_EQ(c.verdict, Agreement::Within) << c.reason;
  EXPECT_TRUE(c.schedule_checked);
  EXPECT_EQ(c.mismatch, "");
  EXPECT_DOUBLE_EQ(c.error, 1000.0 / 1010 - 1);
  ASSERT_EQ(c.buckets.size(), 2u);
  EXPECT_DOUBLE_EQ(c.buckets[0].error, -11.0 / 1010);
  ASSERT_EQ(c.phases.size(), 2u);
  EXPECT_EQ(c.phases[0].name, "fwd");
  EXPECT_EQ(c.phases[0].error, 0);
  EXPECT_EQ(c.phases[1].measured.ps, 1011);
  ASSERT_EQ(c.spans.size(), 4u);
  EXPECT_EQ(c.spans[1].measured_begin.ps, 311);
  EXPECT_EQ(c.spans[1].difference.ps, -11);
}

TEST(Compare, TheVerdictFollowsTheTolerance) {
  EXPECT_EQ(compare(predicted(), measured(10), {0.005, false}).verdict, Agreement::Outside);
  Comparison c = compare(predicted(), measured(100));
  EXPECT_EQ(c.verdict, Agreement::Outside);
  EXPECT_EQ(c.reason, "the step is predicted 9.091 % too short, tolerance 2.000 %");
  EXPECT_EQ(compare(predicted(), measured(-100)).reason,
            "the step is predicted 11.111 % too long, tolerance 2.000 %");
}

TEST(Compare, WhatCannotBeJudgedIsAmbiguous) {
  ddpsim::Run noisy = measured();
  noisy.quality = {Verdict::Noisy, 0.001, 0, 3, {"3 cores were busy with other work"}};
  Comparison c = compare(predicted(), noisy);
  EXPECT_EQ(c.verdict, Agreement::Ambiguous);
  EXPECT_NE(c.reason.find("3 cores were busy"), std::string::npos);
  ddpsim::Run loopback = measured(200);
  loopback.origin.hosts = "loopback";
  EXPECT_EQ(compare(predicted(), loopback).verdict, Agreement::Ambiguous);
  ddpsim::Run wide = measured(200);
  wide.quality.spread = 0.0345;  // three steps: 0.0199
  EXPECT_EQ(compare(predicted(), wide).verdict, Agreement::Outside);
  wide.quality.spread = 0.0348;
  EXPECT_EQ(compare(predicted(), wide).verdict, Agreement::Ambiguous);
}

// Ambiguous is no licence: a run that is a third off fails, however noisy it was.
TEST(Compare, WhatIsFarOffFailsHoweverAmbiguous) {
  auto noisy = [](std::int64_t late) {
    ddpsim::Run m = measured(late);
    m.quality = {Verdict::Noisy, 0.001, 0, 3, {"3 cores were busy with other work"}};
    return m;
  };
  Comparison near = compare(predicted(), noisy(80));  // -7.4 %
  EXPECT_EQ(near.verdict, Agreement::Ambiguous);
  EXPECT_FALSE(near.failed);
  for (std::int64_t late : {500, -250}) {
    Comparison far = compare(predicted(), noisy(late));
    EXPECT_EQ(far.verdict, Agreement::Ambiguous);
    EXPECT_TRUE(far.failed);
    EXPECT_NE(far.reason.find("more than 10.000 %"), std::string::npos) << far.reason;
    EXPECT_FALSE(compare(predicted(), noisy(late), {0.02, false, 0.5}).failed);
    EXPECT_FALSE(compare(predicted(), noisy(late), {0.5, false}).failed) << "inside the tolerance";
  }
  EXPECT_FALSE(compare(predicted(), measured(10)).failed);
  EXPECT_TRUE(compare(predicted(), measured(100)).failed);
}

TEST(Compare, AnotherScheduleIsAMismatchAndNoTimingError) {
  auto mismatch = [](auto change) {
    ddpsim::Run m = measured();
    m.quality.verdict = Verdict::Noisy;  // noise excuses no schedule
    change(m);
    Comparison c = compare(predicted(), m);
    EXPECT_EQ(c.verdict, c.mismatch.empty() ? Agreement::Ambiguous : Agreement::Outside);
    return c.mismatch;
  };
  auto each = [](ddpsim::Run& m, const char* op, auto change) {
    for (Span& s : m.spans)
      if (s.op == op) change(s);
  };
  EXPECT_EQ(mismatch([](ddpsim::Run&) {}), "");
  EXPECT_EQ(mismatch([&](ddpsim::Run& m) {
              each(m, "allreduce/bucket.0", [](Span& s) { s.bytes = 801; });
            }),
            "allreduce/bucket.0 moves 2 tensors and 800 bytes in the prediction, 2 tensors and 801 "
            "bytes in the measured run");
  EXPECT_EQ(mismatch([&](ddpsim::Run& m) {
              each(m, "allreduce/bucket.1", [](Span& s) { s.tensors = {1}; });
            }),
            "allreduce/bucket.1 moves other tensors in the measured run: b in place of a");
  EXPECT_EQ(mismatch([&](ddpsim::Run& m) {
              each(m, "allreduce/bucket.1", [](Span& s) { s.op = "allreduce/bucket.2"; });
            }),
            "allreduce/bucket.1 is in the prediction, and was not measured");
  EXPECT_EQ(mismatch([&](ddpsim::Run& m) {
              m.spans.push_back(bucket(2, 0, "allreduce/bucket.2", {1}, 4, 0, 1)),
                  m.spans.push_back(bucket(3, 0, "allreduce/bucket.2", {1}, 4, 0, 1));
            }),
            "allreduce/bucket.2 was measured, and is not in the prediction");
  EXPECT_EQ(mismatch([&](ddpsim::Run& m) { m.spans[5].bytes = 700; }),
            "allreduce/bucket.0 moved other tensors or bytes on rank 1 in step 2 than on rank 0 in "
            "step 2");
  EXPECT_EQ(mismatch([&](ddpsim::Run& m) {
              std::erase_if(m.spans, [](const Span& s) {
                return s.step == 3 && s.op == "allreduce/bucket.1";
              });
            }),
            "allreduce/bucket.1 was measured in 2 of 3 recorded steps");
  // Names decide, where there are some: another numbering of the same tensors is the same set.
  EXPECT_EQ(mismatch([&](ddpsim::Run& m) {
              m.tensor_names = {"c", "b", "a"};
              each(m, "allreduce/bucket.0", [](Span& s) { s.tensors = {0, 1}; });
              each(m, "allreduce/bucket.1", [](Span& s) { s.tensors = {2}; });
            }),
            "");
}

TEST(Compare, TheFrameworksOwnBucketsAreComparedFirst) {
  ddpsim::Run p = predicted();
  p.tensor_bytes = {400, 300, 500};
  ddpsim::Run m = measured();
  m.steady_buckets = {800, 400};
  EXPECT_EQ(compare(p, m).mismatch, "");
  m.steady_buckets = {1200};
  EXPECT_EQ(compare(p, m).mismatch,
            "the framework reports buckets of 1200 bytes, predicted are 800, 400");
  EXPECT_EQ(compare(p, m).verdict, Agreement::Outside);
}

TEST(Compare, WhatARunCouldNotSeeIsNotMissed) {
  ddpsim::Run p = predicted();
  Span broadcast = bucket(2, 0, "broadcast/buffers.0", {}, 64, 5000, 5010);
  broadcast.kind = kind_of_op("broadcast/buffers.0");
  p.spans.push_back(broadcast);
  ddpsim::Run m = measured();
  EXPECT_EQ(compare(p, m).mismatch,
            "broadcast/buffers.0 is in the prediction, and was not measured");
  m.skipped = {{"broadcast/buffers.", "hooks see buckets only"}};
  EXPECT_EQ(compare(p, m).mismatch, "");
}

TEST(Compare, InstrumentedStepsAreNoStepTimes) {
  ddpsim::Run m = measured(10);
  Duration before = analysis::typical_step(m, false);
  m.steps.push_back({StepKind::Steady, {9000}, true});
  m.steps.push_back({StepKind::Steady, {9000}, true});
  EXPECT_EQ(analysis::typical_step(m, false), before);
}

TEST(Compare, FirstAndRebuildHaveErrorsOfTheirOwn) {
  ddpsim::Run p = predicted();
  ddpsim::Run m = measured();
  EXPECT_NEAR(compare(p, m).first_error.value(), 2000.0 / 9000 - 1, 1e-12);
  EXPECT_FALSE(compare(p, m).rebuild_error.has_value());
  p.steps.insert(p.steps.begin() + 1, {StepKind::Rebuild, {1100}});
  m.steps.insert(m.steps.begin() + 1, {StepKind::Rebuild, {1000}});
  for (Span& s : p.spans) ++s.step;
  for (Span& s : m.spans) ++s.step;
  EXPECT_NEAR(compare(p, m).rebuild_error.value(), 0.1, 1e-12);
}

TEST(Compare, WithoutSpansOnlyTheStepIsCompared) {
  ddpsim::Run m = measured();
  m.spans.clear();
  Comparison c = compare(predicted(), m);
  EXPECT_EQ(c.verdict, Agreement::Within);
  EXPECT_FALSE(c.schedule_checked);
  EXPECT_TRUE(c.buckets.empty());
}

// What Horovod fuses is another set in each step: no schedule is compared, and no end of it.
TEST(Compare, WhatIsDecidedWhileAStepRunsIsNotJoined) {
  ddpsim::Run p = predicted();
  ddpsim::Run m = measured();
  const auto decide = [](ddpsim::Run& run) {
    for (Span& s : run.spans)
      if (s.op.starts_with("allreduce/bucket."))
        s.op.replace(0, 17, "allreduce/fused."), s.kind = kind_of_op("allreduce/fused.0");
  };
  decide(p);
  decide(m);
  ASSERT_EQ(p.spans[1].op, "allreduce/fused.0");
  p.spans[1].tensors = {2, 1, 0};
  p.spans[1].bytes = 1200;
  Comparison c = compare(p, m);
  EXPECT_EQ(c.mismatch, "");
  EXPECT_FALSE(c.schedule_checked);
  EXPECT_TRUE(c.buckets.empty());
  EXPECT_EQ(c.phases.size(), 2u);
  EXPECT_EQ(c.verdict, Agreement::Within) << c.reason;
}

TEST(Compare, WarmupSpansAreNotJoined) {
  ddpsim::Run m = measured();
  m.spans.push_back(bucket(0, 0, "allreduce/bucket.0", {0, 1, 2}, 1200, 0, 100));
  EXPECT_EQ(compare(predicted(), m).mismatch, "");
  EXPECT_EQ(analysis::bucket_ends(m)[0].end.ps, 711);
}

TEST(Compare, AggregatesAreByNearestRank) {
  EXPECT_EQ(analysis::median({3, 1, 2}), 2);
  EXPECT_EQ(analysis::median({4, 1, 2, 3}), 2.5);
  EXPECT_EQ(analysis::percentile({5}, 95), 5);
  std::vector<double> twenty;
  for (int i = 20; i > 0; --i) twenty.push_back(i);
  EXPECT_EQ(analysis::percentile(twenty, 95), 19);
  EXPECT_EQ(analysis::percentile(twenty, 96), 20);
  EXPECT_EQ(analysis::percentile(twenty, 100), 20);
  EXPECT_EQ(analysis::absolute({-1, 2}), (std::vector<double>{1, 2}));
}

}  // namespace
}  // namespace ddpsim::test
