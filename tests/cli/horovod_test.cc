// `--plan horovod` in every command that makes sense, and what it refuses.
#include <gtest/gtest.h>

#include "tests/support/files.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

std::vector<std::string> ask(const std::string& command, std::initializer_list<const char*> more) {
  return about_plan("horovod", command, more, "resnet50");
}

TEST(HorovodCommand, AnswersInItsOwnWords) {
  expect_answer(ask("predict", {}), {"Horovod over nccl", "one rank without Horovod", "memory ",
                                     "fused.0", "never executed"});
  expect_answer(ask("predict", {"--set", "HOROVOD_CYCLE_TIME=25", "--set", "compression=fp16"}),
                {"HOROVOD_CYCLE_TIME=25, compression=fp16", "step 25 ms"});
  expect_answer(ask("explain", {}), {"all-reduce of bucket", "launches optimizer"});
  expect_answer(ask("tune", {}), {"9 settings of HOROVOD_CYCLE_TIME", "fused all-reduces",
                                  "HOROVOD_FUSION_THRESHOLD"});
  expect_answer(
      ask("sweep", {"--axis", "HOROVOD_FUSION_THRESHOLD=0,8388608,134217728", "--format", "csv"}),
      {"8388608", "nvls"});
  expect_answer(ask("show program", {}), {"request/fc.weight", "synchronize"});
  expect_answer({"show", "plan", "horovod"}, {"HOROVOD_CYCLE_TIME", "ms", "tensors"});
  expect_answer({"list", "plans"}, {"fsdp", "horovod", "averaging"});
}

class HorovodFiles : public InFolder {};

TEST_F(HorovodFiles, ATraceHasItsThread) {
  const std::string file = at("t.json");
  Outcome o = ddpsim(ask("trace", {"--out", file.c_str()}));
  ASSERT_EQ(o.code, 0) << o.err;
  const std::string trace = raw(file);
  for (const char* word : {"coordinate/cycle.0", "copy_in/fused.0", "request/fc.bias", "fusion"})
    EXPECT_NE(trace.find(word), std::string::npos) << word;
}

TEST(HorovodCommand, RefusesInASentence) {
  expect_refusal(ask("predict", {"--set", "HOROVOD_CYCLE_TIME=-1"}), "0 to 10,000 ms");
  expect_refusal(ask("predict", {"--set", "HOROVOD_CYCLE_TIME=1e400"}), "CYCLE_TIME");
  expect_refusal(ask("predict", {"--set", "HOROVOD_CYCLE_TIME=5ms"}),
                 "is a bare number of ms, as in Horovod (for example 1)");
  expect_refusal(ask("predict", {"--set", "HOROVOD_FUSION_THRESHOLD=-5"}), "0 to 1 TiB");
  expect_refusal(ask("predict", {"--set", "HOROVOD_CACHE_CAPACITY=1e9"}), "CACHE_CAPACITY");
  expect_refusal(ask("predict", {"--set", "groups=1000"}), "number of gradients, 161");
  expect_refusal(ask("predict", {"--set", "HOROVOD_DISABLE_GROUP_FUSION=true"}),
                 "there are no groups");
  expect_refusal(ask("predict", {"--set", "bucket_cap_mb=25"}), "is a knob of pytorch_ddp");
  expect_refusal(ask("predict", {"--set", "HOROVOD_CYCLE=1"}), "HOROVOD_CYCLE");
  expect_refusal(ask("predict", {"--set", "compression=bf16"}), "compression");
  expect_refusal(
      {"run", "--workload", "resnet18-cpu", "--cluster", "testbed-star", "--plan", "horovod"},
      "is decided while it runs");
}

}  // namespace
}  // namespace ddpsim::test
