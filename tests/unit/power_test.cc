// A board's power limit: what it leaves of the clock, and what that does to a step.
#include "sim/cost/power.h"

#include <fstream>
#include <regex>
#include <sstream>

#include <gtest/gtest.h>

#include "sim/cost/roofline.h"
#include "sim/io/codecs.h"
#include "sim/io/reference_gpu.h"
#include "sim/predict/mechanisms.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

using predict::clock_share;
using predict::StepDraw;

// 10 W idle, 100 W more while anything runs.
PowerSection board(double limit) {
  PowerSection p;
  p.limit_w = limit;
  p.draw.idle_w = 10;
  p.draw.busy_w = 100;
  return p;
}
constexpr double kPs = 1e9;
// Products for a millisecond, 200 W of operations more: 310 W.
const StepDraw kProducts{kPs, 0, 200e-3};

TEST(Power, ProductsAloneFallWithTheCubeRootOfTheLimit) {
  EXPECT_EQ(clock_share(board(310), kProducts), 1);
  for (double f : {0.9, 0.7, 0.5})
    EXPECT_NEAR(clock_share(board(10 + 300 * f * f * f), kProducts), f, 1e-8);
  EXPECT_NEAR(clock_share(board(11), kProducts), 0.4, 1e-8) << "no card is sold so";
}

TEST(Power, WhatMemoryDecidesLeavesRoomForTheClock) {
  const StepDraw half{kPs / 2, kPs / 2, 100e-3};
  EXPECT_LT(clock_share(board(150), kProducts), clock_share(board(150), half));
  EXPECT_EQ(clock_share(board(210), half), 1) << "10 + 100 + 200 / 2";
  EXPECT_LT(clock_share(board(209), half), 1);
  EXPECT_EQ(clock_share(board(109), {0, kPs, 0}), 1) << "memory's share does not follow the clock";
}

// A card that is compared with itself draws, at a share of its peaks, the share of its limit that
// the measured GPU draws at that share of its own.
TEST(Power, TheSameShareOfThePeaksIsTheSameShareOfTheLimit) {
  const Profile& measured = io::reference_gpu();
  const Draw& m = measured.power->draw;
  const Profile a40 = profile("a40.datasheet");
  const Precision half = Precision::Fp16;
  const Draw& d = a40.power->draw;
  EXPECT_NEAR(d.idle_w / 300, m.idle_w / 700, 1e-9);
  EXPECT_NEAR(d.busy_w / 300, m.busy_w / 700, 1e-9);
  EXPECT_NEAR(d.joules_per_flop[half] * a40.compute.peak_flops[half] / 300,
              m.joules_per_flop[half] * measured.compute.peak_flops[half] / 700, 1e-9);
  // The A10 has 6 of 7 of its SMs at 0.97 of its clock.
  const Draw a10 = profile("a10.datasheet").power->draw;
  EXPECT_NEAR(a10.joules_per_flop[half] / d.joules_per_flop[half], 0.974 * 0.974, 1e-3);
  EXPECT_NEAR(a10.busy_w / d.busy_w, 31.2 / 37.4 * 0.974 * 0.974, 1e-3);
  EXPECT_NEAR(a10.idle_w / d.idle_w, 0.5, 1e-9) << "by the limits";
}

TEST(Power, AnA10SlowsDownAndABoardWithoutALimitDoesNot) {
  const Workload w = [] {
    Workload bert = workload("bert-base-squad");
    bert.batch = 80;
    bert.precision = Precision::Fp16;
    return bert;
  }();
  for (auto [name, least, most] : {std::tuple{"a10.datasheet", 0.7, 0.95},
                                   {"t4.datasheet", 0.6, 0.9},
                                   {"rtx-3090.datasheet", 1.0, 1.0},
                                   {"v100-sxm2.datasheet", 1.0, 1.0},
                                   {"gh200-96gb.datasheet", 1.0, 1.0}}) {
    Profile p = profile(name);
    const StepTimes limited = predict::step_times(w, p, Level::Mid);
    EXPECT_GE(limited.clock, least) << name;
    EXPECT_LE(limited.clock, most) << name;
    Workload free_w = w;
    Cluster c;
    Scenario s;
    predict::remove(predict::Mechanism::Power, free_w, c, p, s);
    const StepTimes free = predict::step_times(w, p, Level::Mid);
    EXPECT_EQ(free.clock, 1);
    EXPECT_EQ(limited.backward > free.backward, limited.clock < 1) << name;
    EXPECT_LT(static_cast<double>(limited.backward.ps),
              static_cast<double>(free.backward.ps) / limited.clock + 1e6)
        << name << ": what memory decides is no slower";
  }
}

TEST(Power, IsWrittenAndReadAgain) {
  for (const char* name : {"a10.datasheet", "h100-sxm.datasheet"}) {
    const Profile p = profile(name);
    const std::string text = io::write_profile(p, {}).dump();
    const Profile again = io::read_profile(io::parse_json(text, "p"), "p");
    ASSERT_TRUE(again.power);
    EXPECT_EQ(again.power->draw.joules_per_flop, p.power->draw.joules_per_flop);
    EXPECT_EQ(again.power->like.has_value(), p.power->like.has_value());
    EXPECT_EQ(io::write_profile(again, {}).dump(), text);
  }
}

TEST(Power, RefusesWhatIsNoLimit) {
  PowerSection p = board(150);
  p.like = SameChip{"A40", 300, 1.7e9, {3e13, 6e13, 1.2e14, 1.2e14}};
  EXPECT_FALSE(validate(p));
  auto path = [&](auto change) {
    PowerSection other = p;
    change(other);
    return validate(other).path;
  };
  EXPECT_EQ(path([](PowerSection& x) { x.limit_w = 0; }), "/power/limit_w");
  EXPECT_EQ(path([](PowerSection& x) { x.draw.idle_w = 150; }), "/power/idle_w");
  EXPECT_EQ(path([](PowerSection& x) { x.draw.busy_w = -1; }), "/power/busy_w");
  EXPECT_EQ(path([](PowerSection& x) { x.draw.joules_per_flop[Precision::Tf32] = 1; }),
            "/power/joules_per_flop");
  EXPECT_EQ(path([](PowerSection& x) { x.like->limit_w = -1; }), "/power/like/limit_w");
  EXPECT_EQ(path([](PowerSection& x) { x.like->clock_hz = 0; }), "/power/like/clock_hz");
  EXPECT_EQ(path([](PowerSection& x) { x.like->peak_flops = {}; }), "/power/like/peak_flops");
}

// The numbers of the profile are those that the report fits to recorded steps.
TEST(Power, OfTheMeasuredGpuIsTheReports) {
  std::ifstream in(std::string(DDPSIM_SOURCE_DIR) + "/reports/gpu.md");
  std::stringstream text;
  text << in.rdbuf();
  std::smatch m;
  const std::string report = text.str();
  ASSERT_TRUE(std::regex_search(
      report, m, std::regex(R"(\| all \| (\d+) \| (\d+) \| (0\.\d+) \| ([\d.]+) \| ([\d.]+) \|)")));
  const Draw& d = io::reference_gpu().power->draw;
  EXPECT_EQ(d.idle_w, std::stod(m[1]));
  EXPECT_EQ(d.busy_w, std::stod(m[2]));
  for (auto [p, column] : {std::pair{Precision::Fp16, 3},
                           {Precision::Bf16, 3},
                           {Precision::Tf32, 4},
                           {Precision::Fp32, 5}})
    EXPECT_NEAR(d.joules_per_flop[p] * 1e12, std::stod(m[static_cast<std::size_t>(column)]), 1e-9);
}

}  // namespace
}  // namespace ddpsim::test
