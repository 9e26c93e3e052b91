// What the slowest of several ranks costs.
#include <algorithm>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "sim/predict/predict.h"
#include "sim/predict/step_error.h"
#include "tests/support/support.h"

namespace ddpsim::predict {
namespace {

TEST(Stragglers, TheLargestOfSomeIsWhatDrawingSays) {
  std::mt19937 random(11);
  std::normal_distribution<double> normal;
  for (int n : {1, 2, 3, 5, 8, 11, 40, 100}) {
    constexpr int kDraws = 40'000;
    double sum = 0;
    for (int k = 0; k < kDraws; ++k) {
      double largest = normal(random);
      for (int i = 1; i < n; ++i) largest = std::max(largest, normal(random));
      sum += largest;
    }
    EXPECT_NEAR(expected_largest(n), sum / kDraws, 0.02) << n;
  }
  for (int n = 1; n < 3000; ++n) EXPECT_GT(expected_largest(n + 1), expected_largest(n)) << n;
  EXPECT_NEAR(expected_largest(1 << 20), 4.87, 0.01);
}

class StragglersOfAJob : public ::testing::Test {
 protected:
  StragglersOfAJob() { s_.ranks = 8; }
  Prediction answer(const Scenario& s) const { return predict({w_, fabric_, p_, s}); }
  Scenario with(int ranks, bool stragglers) const {
    Scenario s = s_;
    s.ranks = ranks;
    s.stragglers = stragglers;
    return s;
  }
  Workload w_ = test::workload("resnet50");
  Profile p_ = test::profile("h100-sxm.datasheet");
  topology::Fabric fabric_{test::cluster("hgx-h100")};
  Scenario s_;
};

TEST_F(StragglersOfAJob, LengthenComputationByWhatTheSlowestTakes) {
  const double cv = p_.rank_cv.value().mid;
  ASSERT_GT(cv, 0);
  for (int ranks : {2, 4, 8}) {
    Prediction alike = answer(with(ranks, false));
    Prediction varied = answer(with(ranks, true));
    double factor = 1 + cv * expected_largest(ranks);
    EXPECT_NEAR(static_cast<double>(varied.summary.forward.ps),
                factor * static_cast<double>(alike.summary.forward.ps), 1e-6 * 1e12)
        << ranks;
    ASSERT_TRUE(varied.stragglers);
    EXPECT_EQ(varied.stragglers->ranks, ranks);
    EXPECT_FALSE(alike.stragglers);
    // What is hidden stays hidden: the step is longer by what the slowest computes, and copies.
    double more = static_cast<double>((varied.summary.step - alike.summary.step).ps);
    EXPECT_GT(more, static_cast<double>(varied.stragglers->time.ps));
    EXPECT_LT(more, (factor - 1) * 1.001 * static_cast<double>(alike.summary.step.ps));
    EXPECT_NEAR(static_cast<double>(varied.slowed.ps), static_cast<double>(alike.slowed.ps),
                0.02 * static_cast<double>(alike.slowed.ps) + 1e6);
    EXPECT_EQ(varied.single_rank_step, alike.single_rank_step);
  }
  EXPECT_FALSE(answer(with(1, true)).stragglers);
}

// A rank as fast as the others says nothing new, and a slower one never shortens a step.
TEST_F(StragglersOfAJob, HideBehindARankThatIsSlowerByItself) {
  auto with_third = [&](double factor) {
    Scenario s = with(8, true);
    s.slow_ranks = {{3, factor}};
    return answer(s).summary.step;
  };
  EXPECT_EQ(with_third(1), answer(with(8, true)).summary.step);
  Duration last;
  for (double factor : {0.5, 0.98, 0.999, 1.0, 1.001, 1.005, 1.01, 1.02, 1.05, 1.2, 2.0}) {
    const Duration now = with_third(factor);
    EXPECT_GE(now, last) << factor;
    last = now;
  }
  Scenario alone = with(8, false);
  alone.slow_ranks = {{3, 2.0}};
  const auto by_itself = static_cast<double>(answer(alone).summary.step.ps);
  EXPECT_NEAR(static_cast<double>(last.ps), by_itself, 1e-6 * by_itself);
}

TEST(Stragglers, OfUnlikeRanksAreWhatDrawingSays) {
  std::mt19937 random(12);
  std::normal_distribution<double> normal;
  Profile p;
  p.rank_cv = Range{0.03, 0.03, 0.03};
  for (double factor : {0.9, 0.99, 1.02, 1.05, 1.5}) {
    Scenario s;
    s.ranks = 8;
    s.slow_ranks = {{1, factor}, {5, factor}};
    constexpr int kDraws = 40'000;
    double sum = 0;
    for (int k = 0; k < kDraws; ++k) {
      double largest = 0;
      for (int r = 0; r < s.ranks; ++r)
        largest = std::max(largest,
                           (s.slow_ranks.contains(r) ? factor : 1) * (1 + 0.03 * normal(random)));
      sum += largest;
    }
    EXPECT_NEAR(straggling(p, s, Level::Mid) * std::max(1.0, factor), sum / kDraws, 0.001)
        << factor;
  }
}

TEST_F(StragglersOfAJob, AreNoneWhereTheScenarioSaysHowRanksVary) {
  Scenario jitter = with(8, true);
  jitter.jitter = Jitter{0.02, 1, 2};
  EXPECT_FALSE(answer(jitter).stragglers);
  p_.rank_cv.reset();
  EXPECT_FALSE(answer(with(8, true)).stragglers);
}

// Drawn steps, rank by rank, have the mean that the factor says.
TEST_F(StragglersOfAJob, AreTheMeanOfJitter) {
  Scenario drawn = with(8, true);
  drawn.jitter = Jitter{p_.rank_cv->mid, 5, 400};
  Prediction p = answer(drawn);
  double sum = 0;
  for (Duration d : p.jitter_steps) sum += static_cast<double>(d.ps);
  double mean = sum / static_cast<double>(p.jitter_steps.size());
  EXPECT_NEAR(static_cast<double>(answer(with(8, true)).summary.step.ps) / mean, 1, 0.002);
}

TEST_F(StragglersOfAJob, WidenAnIntervalLessThanComputationDoes) {
  auto width = [](const Prediction& p) {
    return static_cast<double>((p.step_high - p.step_low).ps);
  };
  double alike = width(answer(with(8, false)));
  double varied = width(answer(with(8, true)));
  double step = static_cast<double>(answer(with(8, true)).summary.step.ps);
  double by_itself = (p_.rank_cv->low - p_.rank_cv->high) * expected_largest(8) * step;
  EXPECT_GT(varied, alike);
  EXPECT_LT(varied, alike + 0.6 * by_itself);
  // Of the efficiency what published steps of one host say of another source varies more.
  Prediction p = answer(with(8, true));
  const StepError* added = nullptr;
  for (const StepError& e : step_errors())
    if (std::string(e.of) == "one host, computation as measured") added = &e;
  ASSERT_TRUE(added);
  EXPECT_LT(1 / added->low, 1 + 6 * p_.rank_cv->mid * expected_largest(8));
  EXPECT_DOUBLE_EQ(p.efficiency_high, std::min(1.0, p.scaling_efficiency / added->low));
  EXPECT_LT(p.efficiency_low / p.scaling_efficiency, 0.93);
}

}  // namespace
}  // namespace ddpsim::predict
