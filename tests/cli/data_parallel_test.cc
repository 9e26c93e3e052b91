// `--plan data_parallel` in every command that makes sense, and what it refuses; DDP's knobs
// besides its buckets likewise.
#include <gtest/gtest.h>

#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

TEST(DataParallelCommand, AnswersInItsOwnWords) {
  const auto asked = [](const char* command) {
    return about_plan("data_parallel", command, {}, "resnet50");
  };
  expect_answer(asked("predict"),
                {"PyTorch 2.7 nn.DataParallel over nccl, 9 sums of gradients", "reduce/gradients.",
                 "broadcast/weights.0", "from source reading", "memory ",
                 "DistributedDataParallel instead of nn.DataParallel"});
  expect_answer(asked("explain"), {"what the step waits for"});
  expect_answer(asked("show program"),
                {"flatten/weights.0", "scatter/inputs", "gather/outputs", "loss_backward",
                 "scatter/output_gradient", "flatten/gradients."});
  expect_answer({"show", "plan", "data_parallel"}, {"data_parallel"});
  expect_answer({"list", "plans"}, {"data_parallel", "torch.nn.DataParallel: one process"});
  expect_answer({"rank-plans", "--workload", "resnet50", "--cluster", "dgx1-v100"},
                {"data_parallel"});
  expect_answer(about_plan("dp", "predict", {}, "resnet50"), {"nn.DataParallel"});
  expect_answer(about_plan("DataParallel", "predict", {}, "resnet50"), {"nn.DataParallel"});
}

TEST(DataParallelCommand, RefusesInASentence) {
  const std::vector<std::string> two_hosts{"predict",         "--workload", "resnet50",
                                           "--cluster",       "hgx-h100",   "--set",
                                           "cluster.hosts=2", "--plan",     "data_parallel"};
  expect_refusal(two_hosts, "is one process, which has the GPUs of one host: at most 8 ranks");
  std::vector<std::string> one = two_hosts;
  one.insert(one.end(), {"--ranks", "8"});
  expect_answer(one, {"nn.DataParallel"});
  expect_refusal(about_plan("data_parallel", "predict", {"--set", "backend=tcp"}, "resnet50"),
                 "one process, over NCCL");
  expect_refusal({"predict", "--workload", "resnet18-cpu", "--cluster", "ethernet-10g", "--plan",
                  "data_parallel"},
                 "on CPUs, and over other backends: pytorch_ddp");
  expect_refusal(about_plan("data_parallel", "predict", {"--set", "bucket_cap_mb=5"}, "resnet50"),
                 "is a knob of pytorch_ddp");
  expect_refusal(about_plan("data_parallel", "tune", {}, "resnet50"), "no knob");
}

std::vector<std::string> ddp(const char* command, std::initializer_list<const char*> settings) {
  std::vector<std::string> out = about_plan("pytorch_ddp", command, {}, "resnet50");
  for (const char* s : settings) out.insert(out.end(), {"--set", s});
  return out;
}

TEST(DdpOptions, AnswerInTheirOwnWords) {
  expect_answer(ddp("predict", {"comm_hook=powerSGD"}), {"powerSGD", "device waits for its host"});
  expect_answer(ddp("explain", {"comm_hook=powerSGD"}), {"what the step waits for"});
  expect_answer(ddp("show program", {"comm_hook=powerSGD", "matrix_approximation_rank=4"}),
                {"allreduce/powersgd_whole.0", "make_q/bucket.0", "wait/powersgd.0"});
  expect_answer(ddp("show program", {"join=true"}),
                {"allreduce/join.notify", "wait/join.source", "allreduce/join.sync"});
  expect_answer(ddp("show program", {"pytorch=2.12", "batched_grad_copy=true"}),
                {"batched_copy_in/bucket.0", "batched_divide/bucket.0"});
  expect_answer(ddp("predict", {"optimizer_in_backward=true", "join=true"}),
                {", optimizer_in_backward, join"});
  expect_answer(ddp("show program", {"optimizer_in_backward=true"}),
                {"divide_reduced/bucket.0", "optimizer/bucket.0", "updates_there"});
  expect_answer({"predict", "--workload", "cnn-cpu", "--cluster", "testbed-torch", "--set",
                 "pytorch=1.13", "--set", "join=true"},
                {"were never measured"});
  expect_answer({"predict", "--workload", "resnet18-cpu", "--cluster", "ethernet-10g", "--set",
                 "optimizer_in_backward=true"},
                {", optimizer_in_backward"});
  expect_answer(ddp("predict", {"join=true", "joined_ranks=2"}), {", 2 ranks without inputs"});
  expect_answer(ddp("predict", {"process_group_size=2", "process_group_stride=4"}),
                {", models of 2 ranks, 4 apart"});
  expect_answer(ddp("predict", {"pytorch=2.11", "find_unused_parameters=true",
                                "skip_all_reduce_unused_params=true"}),
                {", skip_all_reduce_unused_params"});
  expect_answer(ddp("predict", {"sync_batch_norm=true"}), {", sync_batch_norm"});
  expect_answer(ddp("show program", {"sync_batch_norm=true"}),
                {"all_gather/sync_bn.52", "wait/sync_bn.0", "allreduce/sync_bn.0"});
  expect_answer({"show", "plan", "pytorch_ddp"},
                {"matrix_approximation_rank", "start_powerSGD_iter", "min_compression_rate",
                 "batched_grad_copy", "optimizer_in_backward", "join", "sync_batch_norm"});
}

TEST(DdpOptions, AreRefusedInASentence) {
  const auto refused = [](std::initializer_list<const char*> settings, const char* words) {
    expect_refusal(ddp("predict", settings), words);
  };
  refused({"matrix_approximation_rank=2"}, "comm_hook=powerSGD");
  refused({"start_powerSGD_iter=10"}, "comm_hook=powerSGD");
  refused({"min_compression_rate=3"}, "comm_hook=powerSGD");
  refused({"use_error_feedback=false"}, "comm_hook=powerSGD");
  refused({"warm_start=false"}, "comm_hook=powerSGD");
  refused({"comm_hook=powerSGD", "matrix_approximation_rank=0"}, "1 to 4,096");
  refused({"comm_hook=powerSGD", "start_powerSGD_iter=1"}, "at least 2");
  refused({"comm_hook=powerSGD", "start_powerSGD_iter=-1"}, "start_powerSGD_iter");
  refused({"comm_hook=powerSGD", "min_compression_rate=-1"}, "elements before over elements after");
  refused({"comm_hook=powerSGD", "backend=tcp"}, "use nccl or gloo");
  refused({"comm_hook=powersgd"}, "\"powerSGD\"");
  refused({"batched_grad_copy=true"}, "2.12 is the first");
  refused({"batched_grad_copy=2"}, "batched_grad_copy");
  refused({"optimizer_in_backward=true", "pytorch=1.13"}, "as of PyTorch 2.0");
  refused({"optimizer_in_backward=true", "comm_hook=fp16_compress"}, "takes the place of");
  refused({"optimizer_in_backward=true", "accumulation_steps=2"}, "no_sync");
  refused({"optimizer_in_backward=true", "workload.loop={\"clip_grad_norm\":true}"}, "clipping");
  refused({"join=true", "accumulation_steps=2"}, "accumulation_steps=1");
  refused({"joined_ranks=2"}, "--set join=true");
  refused({"join=true", "joined_ranks=8"}, "0 to 7 of 8 ranks");
  refused({"skip_all_reduce_unused_params=true", "find_unused_parameters=true"},
          "2.8 is the first");
  refused({"skip_all_reduce_unused_params=true", "pytorch=2.11"}, "find_unused_parameters=true");
  refused({"process_group_stride=2"}, "process_group_size=4");
  refused({"process_group_size=3"}, "do not part 8 ranks");
  refused({"process_group_size=4", "process_group_stride=4"}, "a multiple of 16 ranks");
  refused({"process_group_size=4", "join=true"}, "groups are modelled of plain DDP");
  refused({"divide_by_initial_world_size=false"}, "--set join=true");
  refused({"join=true", "sync_batch_norm=true"}, "DDP's own collectives");
  refused({"sync_batch_norm=1"}, "sync_batch_norm");
  expect_refusal(about_plan("pytorch_ddp", "predict", {"--set", "sync_batch_norm=true"}),
                 "has no batch norm");
  expect_refusal({"predict", "--workload", "resnet18-cpu", "--cluster", "ethernet-10g", "--set",
                  "sync_batch_norm=true"},
                 "on a GPU");
  expect_refusal({"predict", "--workload", "resnet18-cpu", "--cluster", "ethernet-10g", "--set",
                  "comm_hook=powerSGD"},
                 "over gloo ends with an error where there are several buckets");
  expect_refusal(
      about_plan("zero_redundancy", "predict", {"--set", "optimizer_in_backward=true"}, "resnet50"),
      "ZeroRedundancyOptimizer updates after backward");
  expect_answer({"predict", "--workload", "resnet18-cpu", "--cluster", "ethernet-10g", "--set",
                 "comm_hook=powerSGD", "--set", "bucket_cap_mb=100000", "--set",
                 "first_bucket_bytes=100000000000"},
                {"powerSGD"});
}

}  // namespace
}  // namespace ddpsim::test
