// ddpsim rank-plans.
#include <cmath>

#include <gtest/gtest.h>

#include "sim/systems/base/settings.h"
#include "tests/support/files.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

io::Json ranked(Args args) {
  args.insert(args.begin(), "rank-plans");
  args.insert(args.end(), {"--format", "json"});
  Outcome o = ddpsim(args);
  EXPECT_EQ(o.code, 0) << o.err;
  return io::parse_json(o.out, "stdout")["plans"];
}
bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(RankPlans, HasEverySystemOnceByDefaultAndThoseThatFitFirst) {
  const io::Json plans = ranked({"--workload", "gpt2-small", "--cluster", "hgx-h100", "--set",
                                 "workload.batch=32", "--set", "cluster.hosts=2"});
  for (const systems::SystemRecord& s : systems::all_systems()) {
    int plain = 0;
    for (const io::Json& p : plans) plain += p["system"] == s.name() && p["settings"] == "";
    EXPECT_EQ(plain, 1) << s.name();
  }
  int asked = 0;
  bool fitted = true;
  std::int64_t step = 0;
  for (const io::Json& p : plans) {
    asked += p["asked"].get<bool>();
    if (p.contains("refused")) continue;
    const bool fits = p["fits"].get<bool>();
    EXPECT_TRUE(fitted || !fits) << "what does not fit comes last";
    if (fits) {
      EXPECT_GE(p["step_ps"].get<std::int64_t>(), step);
      step = p["step_ps"].get<std::int64_t>();
    }
    fitted = fits;
  }
  EXPECT_EQ(asked, 1);
}

TEST(RankPlans, SaysTheSameAsPredict) {
  Args question{"--workload", "bert-base", "--cluster", "dgx-a100"};
  for (const io::Json& p : ranked(question)) {
    if (p["settings"] != "" || p.contains("refused")) continue;
    Args args = question;
    args.insert(args.begin(), "predict");
    args.insert(args.end(), {"--plan", p["system"], "--format", "json"});
    Outcome o = ddpsim(args);
    ASSERT_EQ(o.code, 0) << o.err;
    const io::Json said = io::parse_json(o.out, "stdout");
    const io::Json& summary = said.contains("summary") ? said["summary"] : said;
    // Sums in another order, to a few picoseconds.
    EXPECT_NEAR(summary["step_ps"].get<double>() / p["step_ps"].get<double>(), 1, 1e-9)
        << p["system"];
    EXPECT_EQ(summary["peak_memory_bytes"], p["memory_bytes"]) << p["system"];
  }
}

TEST(RankPlans, RefusesByPlanWithItsReason) {
  Outcome o = ddpsim({"rank-plans", "--workload", "resnet50-cpu", "--cluster", "ethernet-10g"});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(holds(o.out, "not on this cluster:")) << o.out;
  EXPECT_TRUE(holds(o.out, "fsdp: fsdp is modelled on GPUs, over NCCL")) << o.out;
  EXPECT_TRUE(holds(o.out, "* pytorch_ddp")) << o.out;
}

TEST(RankPlans, SaysWhatWouldFitWhereNothingDoes) {
  Outcome o = ddpsim({"rank-plans", "--workload", "llama-3.1-8b", "--cluster", "dgx-a100"});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(holds(o.out, "none fits; ")) << o.out;
  EXPECT_TRUE(holds(o.out, "fused attention (--set workload.attention=fused)")) << o.out;
}

TEST(RankPlans, HasTheCostOfAnEpoch) {
  Args args{
      "--workload",           "resnet50", "--cluster", "hgx-h100", "--epoch-samples", "1281167",
      "--price-per-gpu-hour", "2.5"};
  for (const io::Json& p : ranked(args)) {
    if (p.contains("refused")) continue;
    EXPECT_NEAR(p["epoch_cost"].get<double>(), p["epoch_s"].get<double>() / 3600 * 8 * 2.5, 0.01);
    // Whole steps: the last one of an epoch is not full.
    const double steps = std::ceil(1281167.0 / (8 * 32));
    EXPECT_NEAR(p["epoch_s"].get<double>(), steps * 8 * 32 / p["samples_per_s"].get<double>(),
                0.01);
  }
  Outcome o = ddpsim({"rank-plans", "--workload", "resnet50", "--cluster", "hgx-h100",
                      "--price-per-gpu-hour", "2.5"});
  EXPECT_EQ(o.code, 2);
  EXPECT_TRUE(holds(o.err, "--epoch-samples")) << o.err;
}

}  // namespace
}  // namespace ddpsim::test
