// `--plan horovod` in every command that makes sense, and what it refuses.
#include <gtest/gtest.h>

#include "sim/io/files.h"
#include "tests/support/files.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

std::vector<std::string> ask(const std::string& command, std::initializer_list<const char*> more) {
  return about_plan("horovod", command, more, "resnet50");
}

TEST(HorovodCommand, AnswersInItsOwnWords) {
  expect_answer(ask("predict", {}), {"Horovod over nccl", "one rank without Horovod", "memory ",
                                     "fused.0", "over NCCL never"});
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

// The same on hosts of eight GPUs each, whose wiring is known.
std::vector<std::string> horovod_on_hosts(std::vector<std::string> command,
                                          const std::string& hosts,
                                          const std::vector<std::string>& settings) {
  for (const char* word : {"--workload", "resnet50", "--cluster", "dgx-h100", "--plan", "horovod"})
    command.push_back(word);
  command.insert(command.end(), {"--set", "cluster.hosts=" + hosts});
  for (const std::string& s : settings) command.insert(command.end(), {"--set", s});
  return command;
}

TEST(HorovodCommand, ReducesInParts) {
  const std::string memory = "cluster.host_memory=300GB/s";
  const std::string hierarchical = "HOROVOD_HIERARCHICAL_ALLREDUCE=true";
  const std::string torus = "HOROVOD_TORUS_ALLREDUCE=true";
  expect_answer(horovod_on_hosts({"predict"}, "2", {memory, hierarchical}), {hierarchical.c_str()});
  expect_answer(horovod_on_hosts({"predict"}, "2", {memory, "op=adasum"}), {"op=adasum"});
  expect_answer(horovod_on_hosts({"show", "program"}, "2", {torus}),
                {"reduce_scatter/fused.0", "allreduce_across/fused.0", "allgather/fused.0"});
  expect_refusal(horovod_on_hosts({"predict"}, "2", {hierarchical}),
                 "--set cluster.host_memory=300GB/s");
  expect_refusal(horovod_on_hosts({"predict"}, "3", {memory, "op=adasum"}), "3 is no power of two");
  expect_refusal(horovod_on_hosts({"predict", "--ranks", "12"}, "2", {torus}), "a multiple of 8");
  expect_refusal(horovod_on_hosts({"predict"}, "2", {hierarchical, torus}), "set one of the two");
  expect_refusal(ask("predict", {"--set", "HOROVOD_NUM_NCCL_STREAMS=9"}), "1 to 6 streams");
  expect_refusal(ask("predict", {"--set", "op=adasum", "--set", "groups=4"}), "takes no groups");
  expect_refusal(ask("predict", {"--set", "op=sum"}), "average");
  for (const char* setting : {"HOROVOD_TORUS_ALLREDUCE=true", "op=adasum"})
    expect_refusal({"predict", "--workload", "resnet18-cpu", "--cluster", "testbed-torch", "--plan",
                    "horovod", "--set", setting},
                   "on GPUs");
}

TEST(HorovodCommand, ItsOwnTunerIsFollowed) {
  expect_answer(ask("tune", {"--autotune", "--set", "HOROVOD_CYCLE_TIME=1", "--set",
                             "HOROVOD_CACHE_CAPACITY=512"}),
                {"168 settings of 50 steps after 150 that warm up", "it settles on",
                 "best of its pass", "--seed 1"});
  expect_refusal({"tune", "--workload", "resnet50", "--cluster", "hgx-h100", "--autotune"},
                 "is Horovod's own tuner (--plan horovod)");
  for (const auto& [flag, value] : {std::pair{"--knob", "fusion_threshold"},
                                    {"--values", "1,5"},
                                    {"--memory-limit", "60GiB"},
                                    {"--epoch-samples", "1000"}})
    expect_refusal(ask("tune", {"--autotune", flag, value}), "is no matter of HOROVOD_AUTOTUNE");
}

TEST_F(HorovodFiles, ATimelineIsARun) {
  const std::string timeline = source_path("tests/data/horovod_timeline/resnet18.json");
  const std::string run = at("run.json");
  expect_answer({"import", "horovod-timeline", timeline, "--run", run},
                {"4 steps, 62 tensors, 2 ranks", "reductions of a step", "MPI_ALLREDUCE of a step",
                 "from cycle to cycle, ms"});
  expect_answer({"show", "run", run}, {"measured (system)", "first", "steady"});
  const io::Json steps = io::parse_json(raw(run), run)["steps"];
  ASSERT_EQ(steps.size(), 4U);
  for (std::size_t k = 0; k < 4; ++k) EXPECT_EQ(steps[k]["kind"], k == 0 ? "first" : "steady");
  expect_refusal({"import", "horovod-timeline", run}, "HOROVOD_TIMELINE writes a list");
  io::write_file(at("cut.json"), raw(timeline).substr(0, raw(timeline).size() / 2));
  expect_refusal({"import", "horovod-timeline", at("cut.json")}, "cut.json");
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
