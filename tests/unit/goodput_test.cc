// Courses that are counted by hand, and the numbers that they are drawn with.
#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "sim/goodput/draws.h"
#include "sim/goodput/play.h"

namespace ddpsim::test {
namespace {

using namespace goodput;

TEST(Draws, AreAFunctionOfSeedStreamAndCount) {
  Draws a(1, 2);
  Draws b(1, 2);
  std::set<double> seen;
  for (int i = 0; i < 1000; ++i) {
    const double x = a.uniform();
    EXPECT_EQ(x, b.uniform());
    EXPECT_GE(x, 0);
    EXPECT_LT(x, 1);
    seen.insert(x);
  }
  for (std::uint64_t stream = 0; stream < 100; ++stream) seen.insert(Draws(2, stream).uniform());
  EXPECT_EQ(seen.size(), 1100u);
}

TEST(Draws, ExponentialHasMeanAndVarianceOne) {
  Draws d(3, 0);
  double sum = 0;
  double squares = 0;
  constexpr int kCount = 200'000;
  for (int i = 0; i < kCount; ++i) {
    const double x = d.exponential();
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / kCount, 1, 0.01);
  EXPECT_NEAR(squares / kCount, 2, 0.05);
}

Duration s(double seconds) {
  return {static_cast<std::int64_t>(seconds * 1e12)};
}

// 10 s a step, a checkpoint of 4 s after 10; nothing is drawn.
Job by_hand(Recovery recovery) {
  Job j;
  j.recovery = recovery;
  j.step = s(10);
  j.horizon = s(1000);
  j.hosts = 4;
  j.least_hosts = recovery == Recovery::Torchrun ? 4 : 1;
  j.checkpoints = {10, s(4), {}};
  for (Duration& d : j.times.of) d = {};
  j.times[Part::Teardown] = s(1);
  j.times[Part::Rendezvous] = s(2);
  j.times[Part::LastCall] = s(30);
  j.times[Part::ProcessStart] = s(3);
  j.times[Part::ImportTorch] = s(5);
  j.times[Part::ProcessGroup] = s(7);
  j.times[Part::Construct] = s(11);
  j.times[Part::Restore] = s(13);
  j.times[Part::Sync] = s(17);
  j.times[Part::FirstStep] = s(19);
  return j;
}
double spent(const Course& c, Spent what) {
  return static_cast<double>(c.ledger[what].ps) * 1e-12;
}

// Of gcc 12 and clang 14, at -O0 and -O3.
TEST(GoodputCourse, IsTheSameOnEveryMachineToThePicosecond) {
  Draws d(1, 2);
  EXPECT_EQ(d.uniform(), 0x1.9611317588f6cp-2);
  EXPECT_EQ(d.exponential(), 0x1.8275724f5cdfbp-2);
  Job j;
  j.step = s(10);
  j.horizon = s(30 * 86'400);
  j.hosts = 12'500;
  j.least_hosts = 12'000;
  j.failure = Failure::Host;
  j.spares = 3;
  j.back = s(86'400);
  j.host_mtbf_s = 50'000.0 * 3600 / 8;
  j.checkpoints = {15, s(7), s(20)};
  for (Duration& t : j.times.of) t = s(1);
  const Course c = play(j, 1, 0);
  EXPECT_EQ(c.ledger[Spent::Useful].ps, 2'181'035'277'115'623'369);
  EXPECT_EQ(c.ledger[Spent::LostWork].ps, 266'915'632'078'255'094);
  EXPECT_EQ(c.failures, 1'440);
}

TEST(GoodputCourse, TorchrunStartsAllAgainFromTheLastCheckpoint) {
  Job j = by_hand(Recovery::Torchrun);
  j.lost = {{s(250), 1}};
  j.spares = 1;
  const Course c = play(j, 1, 0);
  // Two cycles of 104 s, then 42 s of steps that are lost; all four agents stop and start.
  EXPECT_EQ(spent(c, Spent::LostWork), 42);
  EXPECT_EQ(spent(c, Spent::Teardown), 1 + 1);
  EXPECT_EQ(spent(c, Spent::Rendezvous), 2);
  EXPECT_EQ(spent(c, Spent::ProcessStart), 3);
  EXPECT_EQ(spent(c, Spent::ImportTorch), 5);
  EXPECT_EQ(spent(c, Spent::ProcessGroup), 7);
  EXPECT_EQ(spent(c, Spent::Construct), 11);
  EXPECT_EQ(spent(c, Spent::Restore), 13);
  EXPECT_EQ(spent(c, Spent::FirstStep), 19);
  // 688 s are left: 6 cycles, and 64 s more.
  EXPECT_EQ(spent(c, Spent::Useful), 200 + 600 + 64);
  EXPECT_EQ(spent(c, Spent::Checkpoint), 8 + 24);
  EXPECT_EQ(c.failures, 1);
}

TEST(GoodputCourse, AFailureDuringACheckpointLosesItToo) {
  Job j = by_hand(Recovery::Torchrun);
  j.spares = 1;
  j.lost = {{s(103), 1}};
  EXPECT_EQ(spent(play(j, 1, 0), Spent::LostWork), 103);
  j.lost = {{s(104), 1}};
  EXPECT_EQ(spent(play(j, 1, 0), Spent::LostWork), 0);
}

TEST(GoodputCourse, WhatIsBeingWrittenInTheBackgroundIsNotSavedYet) {
  Job j = by_hand(Recovery::Torchrun);
  j.spares = 1;
  j.checkpoints.writes = s(50);
  j.lost = {{s(104 + 49), 1}};
  EXPECT_EQ(spent(play(j, 1, 0), Spent::LostWork), 100 + 49);
  j.lost = {{s(104 + 51), 1}};
  EXPECT_EQ(spent(play(j, 1, 0), Spent::LostWork), 51);
}

TEST(GoodputCourse, AFailureDuringARecoveryBeginsItAgain) {
  Job j = by_hand(Recovery::Torchrun);
  j.spares = 2;
  j.lost = {{s(250), 1}, {s(260), 1}};
  const Course c = play(j, 1, 0);
  EXPECT_EQ(spent(c, Spent::Teardown), 2 + 2);
  EXPECT_EQ(spent(c, Spent::ImportTorch), 3 + 5);  // 250 + 2 + 2 + 3 = 257
  EXPECT_EQ(spent(c, Spent::LostWork), 42);
}

TEST(GoodputCourse, AShrunkenWorldMakesLessAndWaitsForALastCall) {
  Job j = by_hand(Recovery::Torchrun);
  j.least_hosts = 3;
  j.lost = {{s(250), 1}};
  const Course c = play(j, 1, 0);
  EXPECT_EQ(spent(c, Spent::Rendezvous), 2 + 30);
  EXPECT_EQ(spent(c, Spent::Missing) * 3, spent(c, Spent::Useful) - 200);
  j.least_hosts = 4;
  j.added = {{s(400), 1}};
  const Course waited = play(j, 1, 0);
  EXPECT_EQ(spent(waited, Spent::Waiting), 150);
  EXPECT_EQ(spent(waited, Spent::Missing), 0);
}

TEST(GoodputCourse, TorchrunStartsAllAgainForAHostThatComes) {
  Job j = by_hand(Recovery::Torchrun);
  j.least_hosts = 3;
  j.lost = {{s(250), 1}};
  j.added = {{s(500), 1}};
  const Course c = play(j, 1, 0);
  EXPECT_EQ(c.joins, 1);
  // 250 + 92 of the recovery; 158 s later: one cycle, and 54 s that are lost.
  EXPECT_EQ(spent(c, Spent::LostWork), 42 + 54);
  EXPECT_EQ(spent(c, Spent::ImportTorch), 10);
}

TEST(GoodputCourse, HorovodsSurvivorsStay) {
  Job j = by_hand(Recovery::HorovodElastic);
  j.lost = {{s(250), 1}};
  const Course shrunken = play(j, 1, 0);
  EXPECT_EQ(spent(shrunken, Spent::LostWork), 42);
  EXPECT_EQ(spent(shrunken, Spent::ImportTorch), 0);
  EXPECT_EQ(spent(shrunken, Spent::Restore), 17);
  EXPECT_GT(spent(shrunken, Spent::Missing), 0);
  j.spares = 1;
  const Course replaced = play(j, 1, 0);
  EXPECT_EQ(spent(replaced, Spent::ImportTorch), 5);
  EXPECT_EQ(spent(replaced, Spent::Missing), 0);
}

TEST(GoodputCourse, AHorovodJobLosesNothingToAHostThatComes) {
  Job j = by_hand(Recovery::HorovodElastic);
  j.lost = {{s(250), 1}};
  j.added = {{s(500), 1}};
  const Course c = play(j, 1, 0);
  EXPECT_EQ(c.joins, 1);
  EXPECT_EQ(spent(c, Spent::LostWork), 42);
  EXPECT_EQ(spent(c, Spent::ImportTorch), 5);
}

TEST(GoodputCourse, TorchftLosesTheStep) {
  Job j = by_hand(Recovery::Torchft);
  j.times[Part::HeartbeatTimeout] = s(23);
  j.lost = {{s(255), 1}};
  j.spares = 1;
  const Course c = play(j, 1, 0);
  EXPECT_EQ(spent(c, Spent::LostWork), 7);  // 208 + 47
  EXPECT_EQ(spent(c, Spent::Rendezvous), 23);
  EXPECT_EQ(spent(c, Spent::ProcessGroup), 7 + 7);  // without the group, and with it again
  EXPECT_EQ(c.joins, 1);
  // The spare starts (1 + 2 + 3 + 5 + 7 + 17) while three of four go on; 30 s of it nobody does.
  EXPECT_EQ(spent(c, Spent::Missing), (35 - 30) / 4.0);
}

TEST(GoodputCourse, AProcessOfTorchftStartsAgainOnItsHost) {
  Job j = by_hand(Recovery::Torchft);
  j.host_mtbf_s = 4 * 5000;
  j.horizon = s(86'400 * 20);
  const Course c = play(j, 1, 0);
  EXPECT_GT(c.failures, 200);
  EXPECT_GE(c.joins, c.failures * 95 / 100);
  EXPECT_EQ(spent(c, Spent::Waiting), 0);
  const double missing = spent(c, Spent::Missing);
  EXPECT_NEAR(missing / static_cast<double>(c.failures), (35 - 7) / 4.0, 1.5);
}

}  // namespace
}  // namespace ddpsim::test
