// The input pipeline: a lane that makes batches, and the host's wait for its own.
#include "sim/systems/base/input.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "sim/cost/roofline.h"
#include "sim/explain/explain.h"
#include "sim/predict/given_program.h"
#include "sim/systems/base/lower.h"
#include "sim/tune/bound.h"
#include "tests/support/support.h"
#include "tests/support/systems.h"

namespace ddpsim::predict {
namespace {

struct Job {
  Workload workload;
  Profile profile;
  topology::Fabric fabric;
  Scenario scenario;
  Question question() const { return {workload, fabric, profile, scenario}; }
  Prediction at(std::optional<double> samples_per_s, const Options& options = {}) {
    scenario.input.reset();
    if (samples_per_s) scenario.input = InputPipeline{*samples_per_s};
    return predict(question(), options);
  }
};
Job gpu(System system = systems::kDdpSystem, int micro_steps = 1) {
  Job j{test::workload("resnet50"),
        test::profile("h100-sxm.datasheet"),
        topology::Fabric(test::cluster("hgx-h100")),
        {}};
  j.scenario.ranks = 8;
  j.scenario.plan.system = system;
  j.scenario.plan.accumulation_steps = micro_steps;
  return j;
}
Job cpu() {
  Cluster c = test::cluster("ethernet-10g");
  Job j{test::workload("resnet50-cpu"), test::profile(c.profile), topology::Fabric(c), {}};
  j.scenario.ranks = 4;
  return j;
}
// At which the batches of a step take `factor` times the step.
double rate(const Job& j, Duration step, double factor) {
  return j.workload.batch * j.scenario.plan.accumulation_steps /
         (static_cast<double>(step.ps) / 1e12 * factor);
}

std::vector<Job> jobs() {
  std::vector<Job> out;
  for (System s : {systems::kDdpSystem, systems::kAveragingSystem, systems::kFsdpSystem})
    for (int micro_steps : {1, 3}) out.push_back(gpu(s, micro_steps));
  out.push_back(cpu());
  return out;
}

TEST(Input, MakesAStepTheSlowerOfTheTwo) {
  for (Job& j : jobs()) {
    const Duration step = j.at({}).summary.step;
    for (double factor : {0.01, 0.5, 0.999, 1.001, 1.01, 1.5, 30.0}) {
      Prediction p = j.at(rate(j, step, factor));
      auto expected = static_cast<double>(std::max(step, scale(step, factor)).ps);
      EXPECT_NEAR(static_cast<double>(p.summary.step.ps), expected, 1e-5 * expected)
          << name_of(j.scenario.plan.system) << " " << j.scenario.plan.accumulation_steps << " x"
          << factor;
      EXPECT_LE(p.scaling_efficiency, 1 + 1e-5);
      Options steady;
      steady.warmup = false;
      EXPECT_EQ(steady_period(j.question(), Level::Mid, steady), p.summary.step);
    }
  }
}

TEST(Input, ThatIsThereAtOnceMovesNothing) {
  for (Job& j : jobs()) {
    Prediction without = j.at({});
    Prediction with = j.at(1e12);
    EXPECT_FALSE(without.summary.input);
    EXPECT_EQ(with.summary.input, Duration{});
    EXPECT_EQ(with.summary.compute, without.summary.compute);
    EXPECT_NEAR(static_cast<double>(with.summary.step.ps),
                static_cast<double>(without.summary.step.ps), 1000);
  }
}

TEST(Input, IsAPartOfTheStepThatNothingElseIs) {
  for (Job& j : jobs()) {
    const Duration step = j.at({}).summary.step;
    analysis::Summary s = j.at(rate(j, step, 3)).summary;
    ASSERT_TRUE(s.input);
    EXPECT_GT(s.input->ps, step.ps);
    EXPECT_EQ(s.compute + s.exposed_communication + *s.input + s.idle, s.step);
  }
}

TEST(Input, OfAStepThatAllBeginTogetherIsMadeWhileTheLastOneLasts) {
  Job j = gpu();
  Options together;
  together.common_start = true;
  const Duration step = j.at({}, together).summary.step;
  EXPECT_NEAR(static_cast<double>(j.at(rate(j, step, 0.9), together).summary.step.ps),
              static_cast<double>(step.ps), 1e-6 * static_cast<double>(step.ps));
}

TEST(Input, OfASlowRankIsNoSlower) {
  Job j = cpu();
  j.scenario.slow_ranks[1] = 2;
  const Duration step = j.at({}).summary.step;
  EXPECT_EQ(j.at(rate(j, step, 0.9)).summary.step, step);
}

TEST(Input, IsTheReasonOfAStepThatWaitsForIt) {
  Job j = gpu();
  j.at(rate(j, j.at({}).summary.step, 2));
  Explanation e = explain(j.question());
  EXPECT_EQ(e.path.front().what, "input");
  EXPECT_EQ(e.deciles.front().decides, "input");
  EXPECT_EQ(e.diagnosis.sensitivity.front().resource, Resource::Input);
  auto bound = lower_bound(j.question());
  ASSERT_TRUE(bound);
  EXPECT_EQ(bound->step, bound->input);
  j.at({});
  for (const Sensitivity& s : explain(j.question()).diagnosis.sensitivity)
    EXPECT_NE(s.resource, Resource::Input);
}

TEST(Input, IsAwaitedFirstInEachMicroStepAndKeepsWhatWaitsForWhat) {
  Job j = gpu(systems::kDdpSystem, 3);
  StepTimes times = step_times(j.workload, j.profile, Level::Mid);
  const Program plain = systems::lower({j.workload, times, j.profile.kind, 8}, j.scenario.plan);
  Program fed = plain;
  systems::feed(fed, {kMillisecond, {}});
  const StepProgram& s = fed.steady;
  ASSERT_EQ(s.ops.size(), plain.steady.ops.size() + 6);
  std::vector<std::uint32_t> awaits;
  std::vector<std::uint32_t> others;
  for (std::uint32_t i = 0; i < s.ops.size(); ++i) {
    if (!is_input(s.ops[i].kind))
      others.push_back(i);
    else if (s.ops[i].lane == Lane::Host)
      awaits.push_back(i);
  }
  ASSERT_EQ(awaits.size(), 3u);
  EXPECT_EQ(awaits[0], 3u);
  for (std::uint32_t m = 0; m < 3; ++m) {
    EXPECT_EQ(name_of(fed, s, m), "micro" + std::to_string(m) + "/load_input");
    EXPECT_EQ(s.ops[m].duration, kMillisecond);
    EXPECT_EQ(deps_of(s, awaits[m]), std::vector<std::uint32_t>{m});
    if (m > 0) {
      EXPECT_NE(name_of(fed, s, awaits[m] + 1).find("micro" + std::to_string(m)),
                std::string::npos);
    }
  }
  for (std::uint32_t i = 0; i < others.size(); ++i) {
    EXPECT_EQ(name_of(fed, s, others[i]), name_of(plain, plain.steady, i));
    std::vector<std::uint32_t> before = deps_of(plain.steady, i);
    for (std::uint32_t& d : before) d = others[d];
    EXPECT_EQ(deps_of(s, others[i]), before);
  }
}

// 16 GPUs of two hosts with a PCIe drawing.
Prediction copied(const InputPipeline& input, int micro_steps = 1) {
  Cluster c = test::cluster("dgx-h100");
  Job j{test::workload("resnet50"), test::profile(c.profile), topology::Fabric(c), {}};
  j.scenario.ranks = 8;
  j.scenario.plan.accumulation_steps = micro_steps;
  if (input.samples_per_s > 0 || input.bytes_per_sample > 0) j.scenario.input = input;
  return predict(j.question());
}
constexpr std::int64_t kImage = 3 * 224 * 224 * 4;

TEST(Input, CopiedInTheLoopIsBeforeForward) {
  const int batch = test::workload("resnet50").batch;
  for (int micro_steps : {1, 3}) {
    const Prediction without = copied({}, micro_steps);
    const Prediction with = copied({0, kImage}, micro_steps);
    ASSERT_TRUE(with.summary.input);
    // PCIe 5.0 x16, 63 GB/s, of which something between a half and all is reached, by one GPU of
    // its switch or by two.
    const double bytes = static_cast<double>(kImage) * batch * micro_steps;
    const double took = static_cast<double>(with.summary.input->ps) / 1e12;
    EXPECT_GT(took, bytes / 63e9);
    EXPECT_LT(took, bytes / 15e9);
    EXPECT_NEAR(static_cast<double>((with.summary.step - without.summary.step).ps),
                static_cast<double>(with.summary.input->ps),
                0.02 * static_cast<double>(with.summary.input->ps));
    EXPECT_GT(with.single_rank_step, without.single_rank_step);
  }
}

TEST(Input, CopiedAheadIsAStageOfThePipeline) {
  const Prediction without = copied({});
  const Prediction with = copied({0, kImage, true});
  EXPECT_NEAR(static_cast<double>(with.summary.step.ps),
              static_cast<double>(without.summary.step.ps), 1e6);
  // So much that copies are what a step waits for.
  const Prediction much = copied({0, 400 * kImage, true});
  const Prediction more = copied({0, 800 * kImage, true});
  EXPECT_NEAR(static_cast<double>(more.summary.step.ps) / static_cast<double>(much.summary.step.ps),
              2, 0.01);
  // The slower of the two stages, not their sum.
  const double rate =
      test::workload("resnet50").batch / (static_cast<double>(more.summary.step.ps) / 1e12);
  EXPECT_EQ(copied({rate * 2, 800 * kImage, true}).summary.step, more.summary.step);
}

TEST(Input, CopiesAreRefusedWhereThereIsNoLinkForThem) {
  const std::vector<std::string> ask{"predict",   "--workload",   "resnet50-cpu",
                                     "--cluster", "ethernet-10g", "--ranks",
                                     "4",         "--set",        "input.bytes_per_sample=588KiB"};
  test::expect_refusal(ask, "a CPU has it in its memory");
  const std::vector<std::string> gpu{"predict",  "--workload", "resnet50", "--cluster",
                                     "dgx-h100", "--ranks",    "8",        "--set"};
  auto with = [&](const char* set) {
    std::vector<std::string> args = gpu;
    args.push_back(set);
    return args;
  };
  test::expect_refusal(with("input.copy=ahead"), "samples_per_s");
  test::expect_refusal(with("input.samples_per_s=0"), "above 0");
  test::expect_answer(with("input.bytes_per_sample=588KiB"),
                      {"copied to the device", "waiting for input"});
}

}  // namespace
}  // namespace ddpsim::predict
