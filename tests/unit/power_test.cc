// A board's power limit: what it leaves of the clock, and what that does to a step.
#include "sim/predict/power.h"

#include <fstream>
#include <regex>
#include <sstream>

#include <gtest/gtest.h>

#include "sim/io/codecs.h"
#include "sim/io/reference_gpu.h"
#include "sim/predict/mechanisms.h"
#include "sim/predict/roofline.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

using predict::clock_share;
using predict::StepDraw;

// Products alone draw 310 W at the clock of the peaks, 10 W of them idle.
PowerSection board(double limit) {
  PowerSection p;
  p.limit_w = limit;
  p.draw.idle = 10;
  p.draw.memory = 50;
  p.like = SameChip{};
  return p;
}
constexpr double kPs = 1e9;

TEST(Power, ProductsAloneFallWithTheCubeRootOfTheLimit) {
  const StepDraw products{kPs, 300 * kPs, 0};
  EXPECT_EQ(clock_share(board(310), products), 1);
  for (double f : {0.9, 0.7, 0.5})
    EXPECT_NEAR(clock_share(board(10 + 300 * f * f * f), products), f, 1e-8);
}

TEST(Power, WhatMemoryDecidesLeavesRoomForTheClock) {
  const StepDraw products{kPs, 300 * kPs, 0};
  const StepDraw half{kPs / 2, 150 * kPs, kPs / 2};
  EXPECT_LT(clock_share(board(150), products), clock_share(board(150), half));
  EXPECT_EQ(clock_share(board(185), half), 1) << "10 + (300 + 50) / 2";
  EXPECT_LT(clock_share(board(184), half), 1);
  EXPECT_EQ(clock_share(board(184), {0, 0, kPs}), 1) << "memory's share does not follow the clock";
}

TEST(Power, IsNotTakenTwiceFromAGpuThatWasMeasuredUnderIt) {
  PowerSection p = board(100);
  p.like.reset();
  EXPECT_EQ(clock_share(p, {kPs, 300 * kPs, 0}), 1);
}

// A card like the one that it is compared with draws that one's limit for products alone.
TEST(Power, TheSameCardHoldsItsClock) {
  const Profile a40 = profile("a40.datasheet");
  const PowerSection& measured = *io::reference_gpu().power;
  const SameChip same{"A40", 300, a40.compute.clock_hz, a40.memory.bandwidth_bytes_per_s,
                      a40.compute.peak_flops};
  const Draw d = predict::drawn_like(measured, same, a40.compute, a40.memory, 300);
  EXPECT_NEAR(d.idle + d.products[static_cast<std::size_t>(Precision::Fp16)], 300, 1e-9);
  EXPECT_NEAR(d.memory / d.attention, measured.draw.memory / measured.draw.attention, 1e-9);
}

TEST(Power, AnA10SlowsDownAndABoardWithoutALimitDoesNot) {
  const Workload w = [] {
    Workload bert = workload("bert-base-squad");
    bert.batch = 80;
    bert.precision = Precision::Fp16;
    return bert;
  }();
  for (auto [name, least, most] : {std::tuple{"a10.datasheet", 0.7, 0.995},
                                   {"t4.datasheet", 0.6, 0.9},
                                   {"rtx-3090.datasheet", 1.0, 1.0},
                                   {"a40.datasheet", 1.0, 1.0},
                                   {"h100-sxm.datasheet", 1.0, 1.0}}) {
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
    EXPECT_EQ(again.power->draw.products, p.power->draw.products);
    EXPECT_EQ(again.power->like.has_value(), p.power->like.has_value());
    EXPECT_EQ(io::write_profile(again, {}).dump(), text);
  }
}

TEST(Power, RefusesWhatIsNoLimit) {
  PowerSection p = board(150);
  p.like = SameChip{"A40", 300, 1.7e9, 6e11, {3e13, 6e13, 1.2e14, 1.2e14}};
  EXPECT_FALSE(validate(p));
  auto path = [&](auto change) {
    PowerSection other = p;
    change(other);
    return validate(other).path;
  };
  EXPECT_EQ(path([](PowerSection& x) { x.limit_w = 0; }), "/power/limit_w");
  EXPECT_EQ(path([](PowerSection& x) { x.draw.idle = 150; }), "/power/idle_w");
  EXPECT_EQ(path([](PowerSection& x) { x.draw.memory = -1; }), "/power");
  EXPECT_EQ(path([](PowerSection& x) { x.like->limit_w = -1; }), "/power/like/limit_w");
  EXPECT_EQ(path([](PowerSection& x) { x.like->clock_hz = 0; }), "/power/like/clock_hz");
  EXPECT_EQ(path([](PowerSection& x) { x.like->peak_flops = {}; }), "/power/like/peak_flops");
  EXPECT_EQ(path([](PowerSection& x) { x.like->bandwidth_bytes_per_s = 0; }),
            "/power/like/bandwidth_bytes_per_s");
}

// The numbers of the profile are those that the report fits to recorded steps.
TEST(Power, OfTheMeasuredGpuIsTheReports) {
  std::ifstream in(std::string(DDPSIM_SOURCE_DIR) + "/reports/gpu.md");
  std::stringstream text;
  text << in.rdbuf();
  std::smatch m;
  const std::string report = text.str();
  ASSERT_TRUE(std::regex_search(
      report, m,
      std::regex(R"(\| all \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| \d+ \|)")));
  const Draw& d = io::reference_gpu().power->draw;
  EXPECT_EQ(d.idle, std::stod(m[1]));
  EXPECT_EQ(d.products[static_cast<std::size_t>(Precision::Fp32)], std::stod(m[2]));
  EXPECT_EQ(d.products[static_cast<std::size_t>(Precision::Tf32)], std::stod(m[3]));
  EXPECT_EQ(d.products[static_cast<std::size_t>(Precision::Fp16)], std::stod(m[4]));
  EXPECT_EQ(d.products[static_cast<std::size_t>(Precision::Bf16)], std::stod(m[4]));
  EXPECT_EQ(d.attention, std::stod(m[5]));
  EXPECT_EQ(d.memory, std::stod(m[6]));
}

}  // namespace
}  // namespace ddpsim::test
