// `--plan mirrored` and `--plan multi_worker_mirrored` in every command that makes sense, and what
// they refuse.
#include <gtest/gtest.h>

#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

TEST(MirroredCommand, AnswersInItsOwnWords) {
  const auto asked = [](const char* plan, const char* command) {
    return about_plan(plan, command, {}, "resnet50");
  };
  expect_answer(asked("mirrored", "predict"),
                {"TensorFlow MirroredStrategy over nccl, 1 packs", "from source reading",
                 "takes in PyTorch", "memory "});
  expect_answer(asked("multi_worker_mirrored", "predict"),
                {"MultiWorkerMirroredStrategy over tcp"});
  expect_answer(asked("mirrored", "explain"), {"what the step waits for"});
  expect_answer(
      about_plan("mirrored", "show program", {"--set", "bytes_per_pack=26214400"}, "resnet50"),
      {"concat/pack.0", "allreduce/pack.2", "wait/pack.0", "split/pack.0"});
  expect_answer({"show", "plan", "mirrored"},
                {"cross_device_ops", "num_packs", "bytes_per_pack", "implementation", "reduce_op"});
  expect_answer({"list", "plans"},
                {"mirrored", "tf.distribute.MirroredStrategy", "multi_worker_mirrored"});
  expect_answer(asked("MirroredStrategy", "predict"), {"MirroredStrategy"});
  expect_answer(asked("MultiWorkerMirroredStrategy", "predict"), {"MultiWorkerMirroredStrategy"});
  expect_answer(about_plan("mirrored", "tune", {}, "resnet50"), {"bytes_per_pack"});
}

TEST(MirroredCommand, RefusesInASentence) {
  const auto refused = [](const char* plan, std::initializer_list<const char*> settings,
                          const char* words) {
    std::vector<std::string> asked = about_plan(plan, "predict", {}, "resnet50");
    for (const char* s : settings) asked.insert(asked.end(), {"--set", s});
    expect_refusal(asked, words);
  };
  const char* one = "mirrored";
  const char* two = "multi_worker_mirrored";
  refused(one, {"bytes_per_pack=-1"}, "0 (one pack) to 2^40 bytes");
  refused(one, {"num_packs=2"}, "packs by bytes_per_pack");
  refused(one, {"cross_device_ops=nccl_all_reduce", "bytes_per_pack=5"}, "pack by num_packs");
  refused(one, {"cross_device_ops=nccl_all_reduce", "num_packs=-1"}, "0 (each gradient by itself)");
  refused(one, {"cross_device_ops=nccl_all_reduce", "implementation=RING"},
          "is of cross_device_ops collective_all_reduce");
  refused(one, {"cross_device_ops=nccl_all_reduce", "eager=true"}, "is modelled of");
  refused(one, {"cross_device_ops=ring"}, "is none of \"collective_all_reduce\"");
  refused(one, {"backend=tcp"}, "follows from implementation");
  refused(two, {"backend=nccl"}, "implementation");
  refused(two, {"num_packs=2"}, "is a knob of mirrored");
  refused(two, {"implementation=GLOO"}, "is none of \"AUTO\", \"RING\", \"NCCL\"");
  refused(two, {"workload.compile=regional"}, "torch.compile is PyTorch's");
  expect_refusal({"predict", "--workload", "resnet50", "--cluster", "hgx-h100", "--set",
                  "cluster.hosts=2", "--plan", one},
                 "multi_worker_mirrored trains on several hosts");
  expect_refusal({"predict", "--workload", "resnet50", "--cluster", "hgx-h100", "--ranks", "7",
                  "--plan", one, "--set", "cross_device_ops=hierarchical_copy_all_reduce"},
                 "an even number of ranks");
  expect_refusal({"predict", "--workload", "resnet18-cpu", "--cluster", "ethernet-10g", "--plan",
                  two, "--set", "implementation=NCCL"},
                 "on CPUs: RING");
  expect_answer(
      {"predict", "--workload", "resnet18-cpu", "--cluster", "ethernet-10g", "--plan", two},
      {"MultiWorkerMirroredStrategy over tcp"});
}

// Names that are no plan, and settings that are no knob, lead to the nearest thing that works; and
// that works.
TEST(OtherNames, LeadToWhatWorks) {
  const auto plan = [](const char* name, const char* words) {
    expect_refusal(about_plan(name, "predict", {}, "resnet50"), words);
  };
  plan("tensorflow", "--plan multi_worker_mirrored");
  plan("keras", "--plan mirrored");
  plan("deepspeed", "--plan zero --set stage=2");
  plan("accelerate", "--plan pytorch_ddp");
  plan("lightning", "\"deepspeed_stage_2\" is --plan zero --set stage=2");
  const auto set = [](const char* setting, const char* words) {
    expect_refusal(about_plan("pytorch_ddp", "predict", {"--set", setting}, "resnet50"), words);
  };
  set("amp=true", "write workload.precision=bf16 (or fp16), with workload.casting=autocast");
  set("torch_compile=true", "write workload.compile=regional");
  set("workload.compile=true", "write workload.compile=regional");
  set("workload.torch_compile=true", "write workload.compile=regional");
  set("activation_checkpointing=true", "write workload.checkpointing=full");
  set("workload.checkpointing=True", "write workload.checkpointing=full");
  set("compile=false", "write workload.compile=none");
  set("precision=bf16", "write workload.precision=bf16");
  for (const char* works :
       {"workload.compile=regional", "workload.compile=buckets", "workload.compile=whole",
        "workload.checkpointing=full", "workload.precision=bf16"})
    expect_answer(about_plan("pytorch_ddp", "predict",
                             {"--set", works, "--set", "workload.casting=autocast"}, "gpt2-small"),
                  {"step"});
}

}  // namespace
}  // namespace ddpsim::test
