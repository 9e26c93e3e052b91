// `--plan megatron` in every command that makes sense, and what it refuses.
#include <gtest/gtest.h>

#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

std::vector<std::string> megatron(std::vector<std::string> command,
                                  std::initializer_list<const char*> settings) {
  for (const char* s : {"--workload", "gpt2-small", "--cluster", "hgx-h100", "--ranks", "8"})
    command.push_back(s);
  command.insert(command.end(), {"--plan", "megatron"});
  for (const char* s : settings) command.insert(command.end(), {"--set", s});
  return command;
}
constexpr auto kSharded = {"use_distributed_optimizer=true", "overlap_grad_reduce=true",
                           "overlap_param_gather=true", "bucket_size=2e7"};

TEST(MegatronCommand, AnswersInItsOwnWords) {
  expect_answer(megatron({"predict"}, {}),
                {"Megatron-LM over nccl", "gradient all-reduces (1", "source reading", "memory "});
  expect_answer(megatron({"predict"}, kSharded),
                {"reduce_scatter/bucket.0", "all_gather/fwd.bucket.0", "bucket_size=20000000"});
  expect_answer(megatron({"predict"}, {"use_distributed_optimizer=true"}),
                {"all_gather/updated.0", "exposed communication"});
  expect_answer(megatron({"explain"}, kSharded), {"bucket 4", "what the step waits for"});
  expect_answer(megatron({"tune"}, {"use_distributed_optimizer=true"}), {"overlap_grad_reduce"});
  expect_answer(megatron({"show", "program"}, kSharded),
                {"fwd/part.1", "wait/norm.0", "all_gather/fwd.bucket.0", "wait/updated"});
  expect_answer({"show", "plan", "megatron"},
                {"use_distributed_optimizer", "overlap_param_gather", "max(40e6, 1e6 x ranks)"});
  expect_answer({"list", "plans"}, {"megatron"});
  expect_answer({"rank-plans", "--workload", "gpt2-small", "--cluster", "hgx-h100"},
                {"megatron use_distributed_optimizer=true", "megatron overlap_grad_reduce=true"});
}

TEST(MegatronCommand, RefusesInASentence) {
  expect_refusal(megatron({"predict"}, {"overlap_param_gather=true"}),
                 "only with the distributed optimizer");
  expect_refusal(
      megatron({"predict"}, {"overlap_param_gather=true", "use_distributed_optimizer=true"}),
      "needs overlap_grad_reduce");
  expect_refusal(megatron({"predict"}, {"bucket_size=-1"}), "elements, at most 2^40");
  expect_refusal(megatron({"predict"}, {"num_buckets=-1"}), "num_buckets");
  expect_refusal(megatron({"predict"}, {"num_buckets=2", "bucket_size=5"}),
                 "takes the place of bucket_size");
  for (const char* knob :
       {"use_distributed_optimizer", "overlap_grad_reduce", "overlap_param_gather",
        "pad_buckets_for_high_nccl_busbw", "average_in_collective", "grad_reduce_in_fp32",
        "check_for_nan_in_grad", "gradient_accumulation_fusion"})
    expect_refusal(megatron({"predict"}, {(std::string(knob) + "=2").c_str()}), knob);
  expect_refusal(megatron({"predict"}, {"workload.precision=bf16"}),
                 "workload.casting=master_weights");
  expect_refusal(megatron({"predict"}, {"workload.loop={\"grad_scaler\":true}"}), "GradScaler");
  expect_refusal(megatron({"predict"}, {"unused_parameters=[\"transformer.ln_f.bias\"]"}),
                 "never gets a gradient");
  expect_refusal(megatron({"predict"}, {"workload.cuda_graphs=true"}), "Megatron-LM");
  expect_refusal(megatron({"predict"}, {"backend=gloo"}), "nccl");
  expect_refusal(megatron({"predict"}, {"reduce_bucket_size=5"}), "is a knob of zero");
  expect_refusal(
      {"predict", "--workload", "resnet18-cpu", "--cluster", "ethernet-10g", "--plan", "megatron"},
      "on GPUs, over NCCL");
  expect_refusal(
      {"predict", "--workload", "gpt2-small", "--cluster", "hgx-h100", "--plan", "megatron_fsdp"},
      "Megatron-FSDP is not modelled");
}

}  // namespace
}  // namespace ddpsim::test
