// `--plan apex` in every command that makes sense, and what it refuses.
#include <gtest/gtest.h>

#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

std::vector<std::string> apex(const char* command, std::initializer_list<const char*> settings,
                              const char* workload = "resnet50") {
  return about_plan("apex", command, settings, workload);
}

TEST(ApexCommand, AnswersInItsOwnWords) {
  expect_answer(apex("predict", {}), {"NVIDIA Apex DDP over nccl, 3 buckets", "bucket.2",
                                      "recorded without a GPU", "memory "});
  expect_answer(apex("predict", {"--set", "message_size=2e6", "--set", "num_allreduce_streams=2"}),
                {"message_size=2000000", "num_allreduce_streams=2", "bucket.10"});
  expect_answer(apex("explain", {"--set", "message_size=1e6"}), {"what the step waits for"});
  expect_answer(apex("tune", {}), {"message_size"});
  expect_answer(apex("show program", {"--set", "gradient_predivide_factor=8"}),
                {"flatten/bucket.0", "predivide/bucket.0", "mean/bucket.0", "unflatten/bucket.0",
                 "broadcast/structure", "bucket_stream"});
  expect_answer(apex("show program", {"--set", "allreduce_trigger_params=[\"fc.weight\"]"}),
                {"allreduce/bucket.1"});
  expect_answer({"show", "plan", "apex"}, {"message_size", "delay_allreduce", "10000000"});
  expect_answer({"list", "plans"}, {"apex.parallel.DistributedDataParallel"});
  expect_answer({"rank-plans", "--workload", "resnet50", "--cluster", "dgx1-v100"},
                {"apex", "apex num_allreduce_streams=2"});
  expect_answer(about_plan("apex_ddp", "predict", {}, "resnet50"), {"NVIDIA Apex DDP"});
}

TEST(ApexCommand, RefusesInASentence) {
  const auto refused = [](const char* setting, const char* words) {
    expect_refusal(apex("predict", {"--set", setting}), words);
  };
  refused("message_size=0", "counts elements");
  refused("message_size=2.5", "message_size");
  refused("num_allreduce_streams=0", "1 to 6 streams");
  refused("num_allreduce_streams=7", "1 to 6 streams");
  refused("allreduce_trigger_params=[\"nothing\"]", "no parameter \"nothing\"");
  refused("gradient_predivide_factor=0", "a positive number");
  refused("gradient_predivide_factor=\"2\"", "a bare number, as in NVIDIA");
  refused("disable_allreduce=true", "accumulation_steps=4");
  refused("backend=gloo", "nccl");
  refused("bucket_cap_mb=5", "is a knob of pytorch_ddp");
  for (const char* knob : {"delay_allreduce", "retain_allreduce_buffers", "allreduce_always_fp32",
                           "gradient_average", "disable_allreduce"})
    refused((std::string(knob) + "=2").c_str(), knob);
  expect_refusal(
      apex("predict", {"--set", "delay_allreduce=true", "--set", "num_allreduce_streams=2"}),
      "only without delay_allreduce");
  expect_refusal(apex("predict", {"--set", "delay_allreduce=true", "--set",
                                  "allreduce_trigger_params=[\"fc.weight\"]"}),
                 "only valid if delay_allreduce=False");
  expect_refusal(apex("predict", {"--set", "message_size=5", "--set",
                                  "allreduce_trigger_params=[\"fc.weight\"]"}),
                 "is ignored by Apex");
  expect_refusal(apex("predict", {"--set", "workload.precision=bf16", "--set",
                                  "workload.casting=master_weights"}),
                 "stops at bfloat16");
  expect_refusal(apex("predict", {"--set", "workload.cuda_graphs=true"}), "Apex");
  expect_refusal(
      {"predict", "--workload", "resnet18-cpu", "--cluster", "ethernet-10g", "--plan", "apex"},
      "pytorch_ddp takes CPUs");
  expect_refusal(
      {"predict", "--workload", "resnet50", "--cluster", "hgx-h100", "--set", "message_size=5"},
      "is a knob of apex, and the plan's system is pytorch_ddp");
}

// What is no plan leads to what is nearest to it.
TEST(ApexCommand, WhatIsNoPlanLeadsToTheNearestThing) {
  const auto asked = [](const char* plan) { return about_plan(plan, "predict", {}, "resnet50"); };
  expect_refusal(asked("powersgd"), "comm_hook=powerSGD");
  expect_refusal(asked("amp"), "workload.precision=bf16");
  expect_refusal(asked("torch.compile"), "--measured-step");
  expect_answer(asked("DDP"), {"PyTorch 2.7 DDP over nccl"});
  expect_refusal(asked("activation_checkpointing"), "workload.checkpointing=full");
  expect_refusal(asked("SyncBatchNorm"), "sync_batch_norm=true");
  expect_refusal(asked("CollectiveAllReduceStrategy"), "--plan multi_worker_mirrored");
  expect_refusal(asked("ParameterServerStrategy"), "server_hosts=own");
  expect_refusal(asked("ps"), "--plan parameter_server");
  expect_refusal(asked("post_localSGD"), "--plan local_sgd");
  expect_refusal(asked("apxe"), "did you mean \"apex\"");
}

}  // namespace
}  // namespace ddpsim::test
