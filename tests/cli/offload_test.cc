// Plans that offload to the hosts, in commands, and what they refuse.
#include <gtest/gtest.h>

#include "tests/support/files.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

std::vector<std::string> asked(std::vector<std::string> command, const char* plan,
                               std::initializer_list<const char*> settings,
                               const char* cluster = "dgx-h100") {
  for (const char* s : {"--workload", "gpt2-small", "--ranks", "8", "--cluster", cluster})
    command.push_back(s);
  command.insert(command.end(), {"--plan", plan});
  for (const char* s : settings) command.insert(command.end(), {"--set", s});
  return command;
}
constexpr const char* kMemory = "cluster.host_memory=300GB/s";
constexpr const char* kZero = "offload_optimizer=cpu";

TEST(OffloadCommand, Answers) {
  expect_answer(asked({"predict"}, "zero2", {kZero, kMemory}),
                {"offload_optimizer=cpu", "all_gather/weights"});
  expect_answer(asked({"predict"}, "fsdp2", {"cpu_offload=true", kMemory}), {"cpu_offload=true"});
  expect_answer(asked({"predict"}, "zero1", {kZero, kMemory}, "gh200x4-slingshot"), {"step "});
  expect_answer(asked({"explain"}, "zero2", {kZero, kMemory}), {"to_device/weights"});
  expect_answer(asked({"show", "program"}, "zero2", {kZero, kMemory}),
                {"to_host/bucket.0", "host_optimizer", "to_device/weights", "wait/check_slices.0"});
  expect_answer(asked({"show", "program"}, "fsdp2", {"cpu_offload=true", kMemory}),
                {"to_device/bwd.", "to_host/", "wait/to_host/root", "host_optimizer"});
  expect_answer(asked({"predict"}, "fsdp", {"cpu_offload=true", kMemory}), {"cpu_offload=true"});
  expect_answer(asked({"show", "program"}, "fsdp", {"cpu_offload=true", kMemory}),
                {"to_device/bwd.root", "to_host/root", "wait/to_host", "host_optimizer"});
  expect_answer({"show", "plan", "fsdp"}, {"cpu_offload"});
  expect_answer(asked({"predict"}, "zero3", {kZero, "offload_param=cpu", kMemory}),
                {"offload_optimizer=cpu", "offload_param=cpu", "step "});
  expect_answer(asked({"show", "program"}, "zero3", {kZero, "offload_param=cpu", kMemory}),
                {"fetch_shards/bucket.0", "wait/fetch_shards.0", "to_optimizer/bucket.",
                 "host_optimizer/group.0", "fetch_shards/persistent"});
  expect_answer({"show", "plan", "zero"},
                {"offload_optimizer", "offload_param", "offload_pin_memory"});
  expect_answer({"show", "plan", "fsdp2"}, {"cpu_offload"});
}

class OffloadFiles : public InFolder {};

TEST_F(OffloadFiles, AProgramThatMovesIsReadBack) {
  for (const char* plan : {"zero2", "zero3", "fsdp", "fsdp2"}) {
    const char* knob = std::string(plan).starts_with("zero") ? kZero : "cpu_offload=true";
    const std::string file = at("p.json");
    put(file, ddpsim(asked({"show", "program", "--format", "json"}, plan, {knob, kMemory})).out);
    auto step = [](const std::vector<std::string>& argv) {
      Outcome o = ddpsim(argv);
      EXPECT_EQ(o.code, 0) << o.err;
      return io::parse_json(o.out, "stdout")["summary"]["step_ps"];
    };
    EXPECT_EQ(step(asked({"predict", "--format", "json"}, plan, {knob, kMemory})),
              step({"predict", "--format", "json", "--program", file, "--cluster", "dgx-h100"}));
  }
}

// PyTorch 1.13 casts the shard of a unit that was gathered ahead once more.
TEST_F(OffloadFiles, WhatIsCastTwiceIsReadBack) {
  const std::string program =
      ddpsim(asked({"show", "program", "--format", "json"}, "fsdp",
                   {"cpu_offload=true", kMemory, "pytorch=1.13", "param_dtype=bfloat16",
                    "backward_prefetch=backward_pre"}))
          .out;
  EXPECT_NE(program.find("\"to_device/bwd.again."), std::string::npos);
  put(at("p.json"), program);
  expect_answer({"predict", "--program", at("p.json"), "--cluster", "dgx-h100"}, {"step "});
}

TEST(OffloadCommand, RefusesInASentence) {
  expect_refusal(asked({"predict"}, "zero2", {kZero}), "what their memory's bandwidth is");
  expect_refusal(asked({"predict"}, "fsdp2", {"cpu_offload=true"}), "cluster.host_memory=300GB/s");
  expect_refusal(asked({"predict"}, "zero2", {kZero, kMemory}, "hgx-h100"),
                 "draws no PCIe (or C2C) link");
  expect_refusal(asked({"predict"}, "zero2", {kZero, "cluster.host_memory=300"}), "host_memory");
  expect_refusal(asked({"predict"}, "zero2", {"offload_optimizer=nvme", kMemory}),
                 "offload_optimizer");
  expect_refusal(asked({"predict"}, "zero2", {"offload_pin_memory=true"}), "nothing to pin");
  expect_refusal(asked({"predict"}, "zero2", {"offload_pin_memory=2", kZero}),
                 "offload_pin_memory");
  expect_refusal(asked({"predict"}, "zero2", {kZero, kMemory, "contiguous_gradients=false"}),
                 "always true with offload_optimizer");
  expect_refusal(asked({"predict"}, "zero2",
                       {kZero, kMemory, "workload.optimizer={\"name\":\"sgd\",\"momentum\":true}"}),
                 "DeepSpeedCPUAdam");
  expect_refusal(asked({"predict"}, "zero3", {"offload_param=cpu", kMemory}),
                 "together with the optimizer's");
  expect_refusal(asked({"predict"}, "zero2", {kZero, "offload_param=cpu", kMemory}),
                 "valid only with stage 3");
  expect_refusal(asked({"predict"}, "zero3", {kZero, "offload_param=nvme", kMemory}),
                 "offload_param");
  expect_refusal(asked({"predict"}, "zero3", {kZero, "offload_param=cpu"}), "bandwidth is");
  expect_refusal(asked({"predict"}, "zero3", {kZero, "offload_param=cpu", kMemory}, "hgx-h100"),
                 "draws no PCIe (or C2C) link");
  expect_refusal(asked({"predict"}, "zero3", {kZero, "offload_param=cpu", kMemory, "ranks=1"}),
                 "one rank");
  expect_refusal(asked({"predict"}, "zero3",
                       {kZero, "offload_param=cpu", kMemory, "zero_hpz_partition_size=4"}),
                 "second copy");
  expect_refusal(asked({"predict"}, "fsdp2", {"offload_param=cpu", kMemory}), "is a knob of zero");
  expect_refusal(asked({"predict"}, "ddp", {"cpu_offload=true"}), "is a knob of fsdp");
  for (const char* plan : {"fsdp", "fsdp2"}) {
    expect_refusal(asked({"predict"}, plan, {"cpu_offload=true", kMemory}, "hgx-h100"),
                   "draws no PCIe (or C2C) link");
    expect_refusal(asked({"predict"}, plan, {"cpu_offload=true"}), "bandwidth is");
    expect_refusal(asked({"predict"}, plan, {"cpu_offload=true", kMemory, "ranks=1"}), "one rank");
    expect_refusal(asked({"predict"}, plan, {"cpu_offload=maybe", kMemory}), "cpu_offload");
  }
  expect_refusal(
      asked({"predict"}, "fsdp", {"cpu_offload=true", kMemory, "sharding_strategy=no_shard"}),
      "of no_shard is not modelled");
  expect_refusal(asked({"predict"}, "fsdp", {"cpu_offload=true", kMemory, "accumulation_steps=2"}),
                 "outside no_sync()");
  expect_refusal(asked({"predict"}, "fsdp2", {"cpu_offload=true", kMemory, "set_to_none=false"}),
                 "set_to_none");
}

TEST(HpzCommand, AnswersAndRefuses) {
  expect_answer(asked({"predict"}, "zero3",
                      {"zero_hpz_partition_size=4", "stage3_max_reuse_distance=0",
                       "stage3_prefetch_bucket_size=0"},
                      "hgx-h100"),
                {"zero_hpz_partition_size=4", "all_gather/bucket.0"});
  expect_refusal(asked({"predict"}, "zero3", {"zero_hpz_partition_size=3"}), "do not part 8 ranks");
  expect_refusal(asked({"predict"}, "zero3", {"zero_hpz_partition_size=-1"}), "0 or 1 (none)");
  expect_refusal(asked({"predict"}, "zero2", {"zero_hpz_partition_size=4"}), "is of stage 3");
  constexpr const char* kHalf = "workload.precision=fp16";
  constexpr const char* kMasters = "workload.casting=master_weights";
  expect_answer(asked({"predict"}, "zero3", {"zero_quantized_weights=true", kHalf, kMasters}),
                {"zero_quantized_weights=true", "step "});
  expect_answer(
      asked({"show", "program"}, "zero3", {"zero_quantized_weights=true", kHalf, kMasters}),
      {"quantize/bucket.0", "all_gather/scales.0", "dequantize/bucket.0"});
  expect_refusal(asked({"predict"}, "zero3", {"zero_quantized_weights=true"}), "float16 alone");
  expect_refusal(asked({"predict"}, "zero2", {"zero_quantized_weights=true", kHalf, kMasters}),
                 "is of stage 3");
  expect_refusal(
      asked({"predict"}, "zero3", {"zero_quantized_weights=true", kHalf, kMasters, "ranks=7"}),
      "no multiple of 8 elements");
  expect_refusal(asked({"predict"}, "zero3", {"zero_quantized_weights=2", kHalf, kMasters}),
                 "zero_quantized_weights");
}

TEST(QgzCommand, AnswersAndRefuses) {
  constexpr const char* kHalf = "workload.precision=fp16";
  constexpr const char* kMasters = "workload.casting=master_weights";
  constexpr const char* kOn = "zero_quantized_gradients=true";
  constexpr const char* kHosts = "cluster.hosts=2";
  auto about = [&](std::vector<std::string> command, std::initializer_list<const char*> sets,
                   const char* workload = "bert-large", const char* cluster = "dgx-h100") {
    for (const char* word : {"--workload", workload, "--cluster", cluster, "--plan", "zero3"})
      command.emplace_back(word);
    for (const char* set : sets) command.insert(command.end(), {"--set", set});
    return command;
  };
  // 30,522 words, of which 16 ranks are no divisor: nor of GPT-2's 50,257.
  const char* padded = "llama-3.2-1b";
  expect_answer(about({"predict"}, {kOn, kHalf, kMasters, kHosts}, padded),
                {"zero_quantized_gradients=true", "step "});
  expect_answer(about({"explain"}, {kOn, kHalf, kMasters, kHosts}, padded), {"step "});
  expect_answer(
      about({"predict", "--fidelity", "message"}, {kOn, kHalf, kMasters, kHosts}, "vgg16"),
      {"step "});
  expect_answer(about({"show", "program"}, {kOn, kHalf, kMasters, kHosts}, padded),
                {"quantize_gradient/bucket.", "all_to_all/bucket.", "all_to_all/scales.",
                 "sum_quantized/bucket.", "all_to_all/across.bucket.", "comm_across",
                 "dequantize_gradient/bucket.", "mean/bucket."});
  Outcome all =
      ddpsim(about({"predict", "--format", "json"}, {kOn, kHalf, kMasters, kHosts}, padded));
  for (const char* word : {"all_to_all/bucket.", "all_to_all/across.bucket.", "send/recv/Simple"})
    EXPECT_NE(all.out.find(word), std::string::npos) << word;
  // One host: as without it.
  Outcome one = ddpsim(about({"show", "program"}, {kOn, kHalf, kMasters}, padded));
  EXPECT_EQ(one.out.find("all_to_all"), std::string::npos);
  expect_refusal(about({"predict"}, {kOn, kHalf, kMasters, kHosts}),
                 "does not divide equally across group size");
  expect_refusal(about({"predict"}, {kOn, kHosts}, padded), "as float16 whatever they are");
  expect_refusal(asked({"predict"}, "zero2", {kOn, kHalf, kMasters}), "is of stage 3");
  expect_refusal(about({"predict"}, {kOn, kHalf, kMasters, kHosts, "reduce_scatter=false"}, padded),
                 "reduce_scatter should also be enabled");
  expect_refusal(about({"predict"}, {kOn, kHalf, kMasters, kHosts, "ranks=12"}, padded),
                 "groups of whole hosts");
  expect_refusal(about({"predict"}, {kOn, kHalf, kMasters}, padded, "gpu-ethernet-25g"),
                 "hosts of one GPU");
  expect_refusal(about({"predict"}, {"zero_quantized_gradients=maybe"}, padded),
                 "zero_quantized_gradients");
}

}  // namespace
}  // namespace ddpsim::test
