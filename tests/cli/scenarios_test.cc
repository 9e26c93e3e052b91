// Scenarios that are shipped.
#include <gtest/gtest.h>

#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

io::Json shipped() {
  Outcome o = ddpsim({"list", "scenarios", "--format", "json"});
  EXPECT_EQ(o.code, 0) << o.err;
  return io::parse_json(o.out, "stdout");
}
const Args kTen{"predict", "--program", "ten-all-reduces", "--cluster", "lab-2numa"};

TEST(Scenarios, EachAnswersByItsName) {
  int scenarios = 0;
  int programs = 0;
  for (const io::Json& s : shipped()) {
    const std::string name = s["name"];
    const bool program = s["kind"] == "program";
    (program ? programs : scenarios) += 1;
    Outcome o = program ? ddpsim({"predict", "--program", name, "--cluster", "lab-2numa"})
                        : ddpsim({"predict", name});
    EXPECT_EQ(o.code, 0) << name << ": " << o.err;
    EXPECT_FALSE(s["what"].get<std::string>().empty()) << name;
  }
  EXPECT_GE(scenarios, 2);
  EXPECT_GE(programs, 1);
}

TEST(Scenarios, TheLabsProcessesAreTwoAHost) {
  Outcome o = ddpsim({"predict", "lab-mnist-mlp", "--format", "json"});
  ASSERT_EQ(o.code, 0) << o.err;
  expect_answer({"predict", "lab-mnist-mlp"}, {"8 ranks", "mlp784-50-10-cpu"});
  // Another command, and a flag that overrides.
  expect_answer({"explain", "lab-mnist-mlp"}, {"lab-2numa"});
  expect_answer({"predict", "lab-mnist-mlp", "--ranks", "4"}, {"4 ranks"});
}

// 2 (n - 1) / n of 10 MiB leave each host over its one link of 10 Gb/s.
TEST(Scenarios, TenAllReducesAreBoundByTheLink) {
  Args args = kTen;
  args.insert(args.end(), {"--format", "json"});
  Outcome o = ddpsim(args);
  ASSERT_EQ(o.code, 0) << o.err;
  const io::Json j = io::parse_json(o.out, "stdout");
  const double least = 2.0 * 7 / 8 * 10 * 1048576 * 8 / 10e9 * 1e12;
  const double step = j["summary"]["step_ps"].get<double>();
  EXPECT_GT(step, least);
  EXPECT_LT(step, 1.25 * least);
}

TEST(Scenarios, WhatComputesNothingHasNoScalingEfficiency) {
  for (const char* format : {"table", "md", "json", "csv"}) {
    Args args = kTen;
    args.insert(args.end(), {"--format", format});
    Outcome o = ddpsim(args);
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(o.out.find("scaling efficiency 0"), std::string::npos) << o.out;
    if (std::string(format) == "json") {
      EXPECT_TRUE(io::parse_json(o.out, "stdout")["summary"]["scaling_efficiency"].is_null());
    } else if (std::string(format) != "csv") {
      EXPECT_NE(o.out.find("scaling efficiency none"), std::string::npos) << o.out;
    }
  }
}

TEST(Scenarios, AnUnknownNameSaysWhereTheyAreListed) {
  expect_refusal({"predict", "lab-mnist"}, "ddpsim list scenarios");
}

}  // namespace
}  // namespace ddpsim::test
