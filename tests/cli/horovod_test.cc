// `--plan horovod` in every command that makes sense, and what it refuses.
#include <gtest/gtest.h>

#include "tests/support/files.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

Outcome horovod(std::vector<std::string> command, std::initializer_list<const char*> more) {
  for (const char* word : {"--workload", "resnet50", "--cluster", "hgx-h100", "--plan", "horovod"})
    command.push_back(word);
  command.insert(command.end(), more.begin(), more.end());
  return ddpsim(command);
}
void expect_words(const Outcome& o, std::initializer_list<const char*> words) {
  EXPECT_EQ(o.code, 0) << o.err;
  for (const char* word : words)
    EXPECT_NE(o.out.find(word), std::string::npos) << word << "\n" << o.out;
}
void expect_refused(const Outcome& o, const char* words) {
  EXPECT_EQ(o.code, 2) << o.out;
  EXPECT_NE(o.err.find(words), std::string::npos) << o.err;
}

TEST(HorovodCommand, AnswersInItsOwnWords) {
  expect_words(horovod({"predict"}, {}), {"Horovod over nccl", "one rank without Horovod",
                                          "memory ", "fused.0", "never executed"});
  expect_words(
      horovod({"predict"}, {"--set", "HOROVOD_CYCLE_TIME=25", "--set", "compression=fp16"}),
      {"HOROVOD_CYCLE_TIME=25, compression=fp16", "step 25 ms"});
  expect_words(horovod({"explain"}, {}), {"all-reduce of bucket", "launches optimizer"});
  expect_words(horovod({"tune"}, {}), {"9 settings of HOROVOD_CYCLE_TIME", "fused all-reduces",
                                       "HOROVOD_FUSION_THRESHOLD"});
  expect_words(horovod({"sweep"}, {"--axis", "HOROVOD_FUSION_THRESHOLD=0,8388608,134217728",
                                   "--format", "csv"}),
               {"8388608", "nvls"});
  expect_words(horovod({"show", "program"}, {}), {"request/fc.weight", "synchronize"});
  expect_words(ddpsim({"show", "plan", "horovod"}), {"HOROVOD_CYCLE_TIME", "ms", "tensors"});
  expect_words(ddpsim({"list", "plans"}), {"fsdp", "horovod", "averaging"});
}

class HorovodFiles : public InFolder {};

TEST_F(HorovodFiles, ATraceHasItsThread) {
  const std::string file = at("t.json");
  Outcome o = horovod({"trace"}, {"--out", file.c_str()});
  ASSERT_EQ(o.code, 0) << o.err;
  const std::string trace = raw(file);
  for (const char* word : {"coordinate/cycle.0", "copy_in/fused.0", "request/fc.bias", "fusion"})
    EXPECT_NE(trace.find(word), std::string::npos) << word;
}

TEST(HorovodCommand, RefusesInASentence) {
  expect_refused(horovod({"predict"}, {"--set", "HOROVOD_CYCLE_TIME=-1"}), "0 to 10,000 ms");
  expect_refused(horovod({"predict"}, {"--set", "HOROVOD_CYCLE_TIME=1e400"}), "CYCLE_TIME");
  expect_refused(horovod({"predict"}, {"--set", "HOROVOD_CYCLE_TIME=5ms"}),
                 "is a bare number of ms, as in Horovod (for example 1)");
  expect_refused(horovod({"predict"}, {"--set", "HOROVOD_FUSION_THRESHOLD=-5"}), "0 to 1 TiB");
  expect_refused(horovod({"predict"}, {"--set", "HOROVOD_CACHE_CAPACITY=1e9"}), "CACHE_CAPACITY");
  expect_refused(horovod({"predict"}, {"--set", "groups=1000"}), "number of gradients, 161");
  expect_refused(horovod({"predict"}, {"--set", "HOROVOD_DISABLE_GROUP_FUSION=true"}),
                 "there are no groups");
  expect_refused(horovod({"predict"}, {"--set", "bucket_cap_mb=25"}), "is a knob of pytorch_ddp");
  expect_refused(horovod({"predict"}, {"--set", "HOROVOD_CYCLE=1"}), "HOROVOD_CYCLE");
  expect_refused(horovod({"predict"}, {"--set", "compression=bf16"}), "compression");
  expect_refused(ddpsim({"run", "--workload", "resnet18-cpu", "--cluster", "testbed-star", "--plan",
                         "horovod"}),
                 "is decided while it runs");
}

}  // namespace
}  // namespace ddpsim::test
