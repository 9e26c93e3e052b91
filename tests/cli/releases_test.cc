// Releases of DeepSpeed, Horovod and Apex in a plan: said by --set or in a file, and refused with
// the nearest.
#include <gtest/gtest.h>

#include "tests/support/files.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

TEST(ReleaseCommand, APlanSaysItsRelease) {
  expect_answer(about_plan("zero2", "predict", {"--set", "deepspeed=0.17.5"}),
                {"deepspeed=0.17.5", "what the plan's release does otherwise"});
  expect_answer(about_plan("zero2", "predict", {"--set", "deepspeed=0.12.3"}),
                {"deepspeed=0.12.3", "reduce/bucket.0"});
  expect_answer(about_plan("zero2", "predict", {"--set", "deepspeed=0.16"}), {"deepspeed=0.16"});
  expect_answer(about_plan("zero2", "predict", {"--set", "deepspeed=0.18.6"}),
                {"counts all parameters in each gradient's hook"});
  expect_answer(about_plan("horovod", "predict", {"--set", "horovod=0.20"}),
                {"horovod=0.20", "HOROVOD_FUSION_THRESHOLD=67108864"});
  expect_answer(
      about_plan("horovod", "predict",
                 {"--set", "horovod=0.20.3", "--set", "HOROVOD_FUSION_THRESHOLD=134217728"}),
      {"horovod=0.20.3"});
  expect_answer(about_plan("apex", "predict", {"--set", "apex=19.02"}), {"apex=19.02"});
  expect_answer({"show", "plan", "zero"}, {"deepspeed", "release; DeepSpeed's release, 0.10.3"});
}

TEST(ReleaseCommand, OthersAreRefusedWithTheNearest) {
  auto refused = [](const char* plan, const char* set, const char* words) {
    expect_refusal(about_plan(plan, "predict", {"--set", set}), words);
  };
  refused("zero2", "deepspeed=0.8.3", "the nearest is 0.10.3");
  refused("zero2", "deepspeed=0.20", "the nearest is 0.19.5");
  refused("zero2", "deepspeed=master", "no release of DeepSpeed that was read");
  refused("horovod", "horovod=0.19.5", "the nearest is 0.20.0");
  refused("horovod", "horovod=0.29", "the nearest is 0.28.1");
  refused("apex", "apex=25.07", "commit cb65b8ed removed it");
  refused("apex", "apex=0.1", "the nearest is 19.02");
  refused("zero2", "horovod=0.28.1", "is a knob of horovod");
  refused("pytorch_ddp", "deepspeed=0.14.5", "is a knob of zero");
}

class ReleaseFiles : public InFolder {};

TEST_F(ReleaseFiles, ANumberIsNoRelease) {
  const std::string file = made("s.json", R"({"schema": "ddpsim.scenario/1",
      "workload": "resnet50", "cluster": "hgx-h100", "ranks": 8,
      "plan": {"system": "zero", "deepspeed": 0.16}})");
  expect_refusal({"predict", file}, "a version is text in quotes, for example \"0.14.5\"");
}

}  // namespace
}  // namespace ddpsim::test
