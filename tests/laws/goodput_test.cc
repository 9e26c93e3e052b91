// Days under failures: conserved, equal to the closed form, as good as Daly's interval.
#include <cmath>

#include <gtest/gtest.h>

#include "sim/goodput/interval.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

using namespace goodput;
using Days = goodput::Job;

Duration seconds(double s) {
  return {static_cast<std::int64_t>(s * 1e12)};
}

// Every failure rolls back, and finds the world whole again.
Days whole_job(Random& r) {
  Days j;
  j.hosts = j.least_hosts = 1 + r.below(4000);
  j.step = seconds(0.2 + 3 * r.uniform());
  j.horizon = kLongest;
  const double mtbf = 1800 * (1 + 20 * r.uniform());
  j.host_mtbf_s = mtbf * j.hosts;
  j.checkpoints.stalls = seconds(1 + 30 * r.uniform());
  j.checkpoints.steps = 1 + static_cast<std::int64_t>(
                                young(static_cast<double>(j.checkpoints.stalls.ps) * 1e-12, mtbf) *
                                (0.3 + 2 * r.uniform()) * 1e12 / static_cast<double>(j.step.ps));
  j.times[Part::ImportTorch] = seconds(40 * r.uniform());
  j.times[Part::Restore] = seconds(200 * r.uniform());
  j.times[Part::MonitorInterval] = seconds(10 * r.uniform());
  if (r.below(3) == 0) j.failure = Failure::Hang;
  return j;
}

Days any_job(Random& r) {
  Days j = whole_job(r);
  j.horizon = seconds(86'400 * (0.01 + 10 * r.uniform()));
  j.recovery = r.pick(std::vector{Recovery::Torchrun, Recovery::HorovodElastic, Recovery::Torchft});
  j.failure = r.pick(std::vector{Failure::Process, Failure::Host, Failure::Hang});
  j.least_hosts = 1 + r.below(j.hosts);
  j.spares = r.below(20);
  if (r.below(2) == 0) j.back = seconds(86'400 * r.uniform());
  if (r.below(2) == 0) j.checkpoints.writes = seconds(100 * r.uniform());
  for (int n = r.below(3); n > 0; --n)
    j.lost.push_back({seconds(3600.0 * static_cast<double>(j.lost.size() + 1)), 1 + r.below(3)});
  for (int n = r.below(3); n > 0; --n)
    j.added.push_back({seconds(5000.0 * static_cast<double>(j.added.size() + 1)), 1 + r.below(3)});
  if (r.below(5) == 0) j.host_mtbf_s = 0;
  return j;
}

TEST(Goodput, TimeIsConservedToThePicosecond) {
  Random r(7);
  for (int i = 0; i < 400; ++i) {
    const Days j = any_job(r);
    const Course c = play(j, 1, static_cast<std::uint64_t>(i));
    std::int64_t sum = 0;
    for (const Duration d : c.ledger) {
      sum += d.ps;
      EXPECT_GE(d.ps, 0) << i;
    }
    EXPECT_EQ(sum, j.horizon.ps) << i;
  }
}

// Of steps, phases and repairs as long as may be asked about, and hosts that come within a step.
TEST(Goodput, TimeIsConservedAtTheEndsOfWhatMayBeAsked) {
  Random r(17);
  const std::vector<Duration> times{
      {0}, {1}, kMillisecond, kSecond, kSecond * 3600, Duration{kLongest.ps / 2}, kLongest};
  for (int i = 0; i < 2000; ++i) {
    Days j = any_job(r);
    j.step = std::max(r.pick(times), Duration{1});
    j.horizon = std::max(r.pick(times), j.step);
    j.hosts = 1 + r.below(5);
    j.least_hosts = 1 + r.below(j.hosts);
    j.host_mtbf_s = std::max(100.0, static_cast<double>(j.horizon.ps) * 1e-12 / 50);
    j.checkpoints = {1 + r.below(std::int64_t{1'000'000'000}), r.pick(times), r.pick(times)};
    for (Duration& d : j.times.of)
      if (r.below(4) == 0) d = r.pick(times);
    if (j.back) j.back = r.pick(times);
    const Course c = play(j, 1, static_cast<std::uint64_t>(i));
    std::int64_t sum = 0;
    for (const Duration d : c.ledger) {
      sum += d.ps;
      EXPECT_GE(d.ps, 0) << i;
    }
    EXPECT_EQ(sum, j.horizon.ps) << i;
  }
}

TEST(Goodput, WithoutFailuresOnlyCheckpointsCost) {
  Random r(8);
  for (int i = 0; i < 50; ++i) {
    Days j = whole_job(r);
    j.host_mtbf_s = 0;
    const double tau = static_cast<double>(j.checkpoints.steps * j.step.ps);
    const double share = tau / (tau + static_cast<double>(j.checkpoints.stalls.ps));
    EXPECT_NEAR(play_many(j, 1, 1).goodput, share, 1e-3);
  }
}

TEST(Goodput, PlayedIsTheClosedFormWithinTheMonteCarloError) {
  Random r(9);
  double squares = 0;
  constexpr int kJobs = 60;
  for (int i = 0; i < kJobs; ++i) {
    Days j = whole_job(r);
    if (i % 2 == 1) j.checkpoints.writes = seconds(60 * r.uniform());
    const Courses c = play_many(j, static_cast<std::uint64_t>(i), 30);
    const double off = (c.goodput - *expected_goodput(j)) / c.error;
    EXPECT_LT(std::abs(off), 4.5) << i << ": " << c.goodput << " +- " << c.error << ", expected "
                                  << *expected_goodput(j);
    EXPECT_LT(c.error, 0.004);
    squares += off * off;
  }
  // Off by as much as chance says, not more: the mean square of a t of 29 degrees is 1.07.
  EXPECT_LT(squares / kJobs, 1.8);
}

// Equation 37 by hand: sqrt(2 18 100) = 60, and 18 / 200 = 0.3 squared.
TEST(Goodput, DalysIntervalIsHisHigherOrder) {
  EXPECT_DOUBLE_EQ(young(18, 100), 60);
  EXPECT_NEAR(daly(18, 100), 60 * (1 + 0.1 + 0.01) - 18, 1e-9);
  EXPECT_DOUBLE_EQ(daly(200, 100), 100) << "what takes longer than two failures are apart";
}

TEST(Goodput, TheBestPlayedIntervalCostsWhatDalysDoes) {
  Random r(10);
  for (int i = 0; i < 15; ++i) {
    Days j = whole_job(r);
    j.step = seconds(0.1);  // Daly divides work anywhere
    const Intervals best = best_intervals(j, 3, 10);
    Days at_best = j;
    at_best.checkpoints.steps = best.steps;
    Days at_daly = j;
    at_daly.checkpoints.steps = static_cast<std::int64_t>(best.daly_s / 0.1);
    Days at_young = j;
    at_young.checkpoints.steps = static_cast<std::int64_t>(best.young_s / 0.1);
    // Time for a given amount of work: 1 / goodput.
    const double cost = 1 / *expected_goodput(at_best);
    EXPECT_LT(cost, 1.01 / *expected_goodput(at_daly)) << i;
    EXPECT_GT(cost, 0.9999 / *expected_goodput(at_daly)) << i;
    EXPECT_LT(1 / *expected_goodput(at_young), 1.02 * cost) << i;
    EXPECT_NEAR(static_cast<double>(*best.closed_steps) * 0.1 / best.daly_s, 1, 0.01) << i;
    EXPECT_LE(best.flat_from, best.steps);
    EXPECT_GE(best.flat_to, best.steps);
  }
}

TEST(Goodput, AClockThatTicksTwiceAsSlowlyChangesNoShare) {
  Random r(11);
  for (int i = 0; i < 100; ++i) {
    Days j = any_job(r);
    j.horizon = seconds(86'400.0 * 3);
    Days twice = j;
    const auto slow = [](Duration& d) { d.ps *= 2; };
    for (Duration* d :
         {&twice.step, &twice.horizon, &twice.checkpoints.stalls, &twice.checkpoints.writes})
      slow(*d);
    for (Duration& d : twice.times.of) slow(d);
    for (HostsAt& h : twice.lost) slow(h.at);
    for (HostsAt& h : twice.added) slow(h.at);
    if (twice.back) slow(*twice.back);
    twice.host_mtbf_s *= 2;
    const Courses a = play_many(j, 5, 3);
    const Courses b = play_many(twice, 5, 3);
    for (Spent k : Ledger::names()) EXPECT_NEAR(a.share[k], b.share[k], 1e-6) << i;
    EXPECT_EQ(a.failures, b.failures);
  }
}

TEST(Goodput, WhoKeepsSurvivorsKeepsMore) {
  Random r(12);
  for (int i = 0; i < 40; ++i) {
    Days j = whole_job(r);
    j.failure = Failure::Process;
    j.horizon = seconds(86'400.0 * 20);
    j.hosts = j.least_hosts = 500 + r.below(3000);
    j.times[Part::Sync] = seconds(1);
    const double restarted = play_many(j, 1, 5).goodput;
    j.recovery = Recovery::Torchft;
    j.least_hosts = 1;
    EXPECT_GT(play_many(j, 1, 5).goodput, restarted) << i;
  }
}

TEST(Goodput, MoreReliableHostsAndMoreSparesDoNotLower) {
  Random r(13);
  for (int i = 0; i < 30; ++i) {
    Days j = whole_job(r);
    j.horizon = seconds(86'400.0 * 20);
    const double before = play_many(j, 1, 10).goodput;
    j.host_mtbf_s *= 3;
    EXPECT_GT(play_many(j, 1, 10).goodput, before) << i;
    j.failure = Failure::Host;
    j.host_mtbf_s = 2e5 * j.hosts;
    j.back = seconds(86'400.0 * 2);
    j.spares = 1;
    const double one = play_many(j, 1, 10).goodput;
    j.spares = 200;
    EXPECT_GE(play_many(j, 1, 10).goodput, one) << i;
  }
}

}  // namespace
}  // namespace ddpsim::test
