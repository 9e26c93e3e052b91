// `--plan local_sgd` and `diloco` in every command that makes sense, and what they refuse.
#include <gtest/gtest.h>

#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

TEST(LocalSgdCommand, AnswersInItsOwnWords) {
  expect_answer(about_plan("local_sgd", "predict", {"--set", "accumulation_steps=8"}),
                {"local SGD over nccl", "a step of this answer is a round of 8", "parameters",
                 "PyTorch 1.13"});
  expect_answer(about_plan("diloco", "predict", {"--set", "accumulation_steps=8"}),
                {"outer_optimizer=nesterov", "wte.weight"});
  expect_answer(about_plan("DiLoCo", "show program", {}),
                {"pseudo_gradients", "wait/outer", "restore_parameters", "outer_optimizer",
                 "keep_parameters"});
  expect_answer(about_plan("local_sgd", "show program", {"--set", "accumulation_steps=2"}),
                {"micro0/inner_optimizer", "micro1/inner_optimizer", "wait/before_averaging"});
  expect_answer({"predict", "--workload", "cnn-cpu", "--cluster", "testbed-torch", "--plan",
                 "local_sgd", "--set", "accumulation_steps=2"},
                {"local SGD over gloo"});
  expect_answer(about_plan("local_sgd", "show program",
                           {"--set", "accumulation_steps=2", "--set", "subgroup_size=4"}),
                {"micro1/allreduce/bucket.0", "micro1/inner_optimizer", "allreduce/parameters"});
  expect_answer(about_plan("local_sgd", "predict",
                           {"--set", "accumulation_steps=4", "--set", "averaging_periods=[2,4]",
                            "--set", "averaging_group_sizes=[2,8]"}),
                {"averaging_periods=[2,4]"});
  expect_answer({"list", "plans"}, {"local_sgd"});
  expect_answer({"show", "plan", "local_sgd"}, {"outer_optimizer"});
  expect_answer({"rank-plans", "--workload", "resnet50", "--cluster", "hgx-h100"},
                {"local_sgd outer_optimizer=nesterov"});
}

TEST(LocalSgdCommand, RefusesInASentence) {
  const auto refused = [](const char* setting, const char* words) {
    expect_refusal(about_plan("local_sgd", "predict", {"--set", setting}), words);
  };
  refused("outer_optimizer=adam", "is none of");
  refused("workload.precision=fp16", "without a GradScaler");
  refused("workload.loop={\"clip_grad_norm\":true}", "without clipping");
  refused("accumulation_steps=100000", "micro-steps");
  refused("workload.cuda_graphs=true", "CUDA graph");
  refused("subgroup_size=3", "do not part 8 ranks");
  refused("subgroup_size=1", "2 and more");
  refused("bucket_cap_mb=5", "--set subgroup_size=RANKS");
  refused("start_localSGD_iter=10", "--set subgroup_size=RANKS");
  refused("averaging_periods=[1]", "one for each of averaging_periods");
  const auto levels = [](const char* periods, const char* sizes, const char* words) {
    expect_refusal(about_plan("local_sgd", "predict",
                              {"--set", "accumulation_steps=4", "--set", periods, "--set", sizes}),
                   words);
  };
  levels("averaging_periods=[3,4]", "averaging_group_sizes=[2,8]", "divides the last");
  levels("averaging_periods=[1,2]", "averaging_group_sizes=[2,8]", "accumulation_steps=4");
  levels("averaging_periods=[2,4]", "averaging_group_sizes=[2,4]", "the last is of all ranks, 8");
  levels("averaging_periods=[2,4]", "averaging_group_sizes=[8,2]", "grow from level to level");
  expect_refusal(about_plan("local_sgd", "predict",
                            {"--set", "subgroup_size=4", "--set", "start_localSGD_iter=1"}),
                 "2 to 1e9 steps");
  expect_refusal(about_plan("diloco", "predict", {"--set", "subgroup_size=4"}),
                 "takes the place of subgroups");
  expect_refusal(about_plan("diloco", "predict", {"--set", "outer_optimizer=none"}),
                 "without one it is local_sgd");
  expect_refusal(about_plan("local_sgd", "tune", {}), "no knob");
  expect_refusal(about_plan("pytorch_ddp", "predict", {"--set", "outer_optimizer=nesterov"}),
                 "is a knob of local_sgd");
}

}  // namespace
}  // namespace ddpsim::test
