// `--plan fsdp` in every command that makes sense, and what it refuses.
#include <algorithm>

#include <gtest/gtest.h>

#include "sim/model/plan.h"
#include "tests/support/files.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

std::vector<std::string> ask(const std::string& command, std::initializer_list<const char*> more) {
  return about_plan("fsdp", command, more);
}

TEST(FsdpCommand, AnswersInItsOwnWords) {
  expect_answer(ask("predict", {}),
                {"PyTorch 2.7 FSDP over nccl, 13 units of weights", "one rank without FSDP",
                 "memory 25", "collectives (38", "all_gather/bwd.h.1", "never executed"});
  expect_answer(ask("predict", {"--set", "sharding_strategy=shard_grad_op"}),
                {"sharding_strategy=shard_grad_op", "collectives (26"});
  expect_answer(ask("explain", {}), {"all_gather/root", "38 collectives"});
  expect_answer(ask("tune", {}), {"backward_prefetch", "units"});
  expect_answer(ask("sweep", {"--axis", "sharding_strategy=full_shard,shard_grad_op,no_shard",
                              "--format", "csv"}),
                {"no_shard"});
  expect_answer(ask("show program", {"--set", "param_dtype=bfloat16"}),
                {"reduce_scatter/h.0", "post_backward", "pre_unshard", "limit/"});
}

TEST(PytorchReleases, AreAnsweredOrRefusedInASentence) {
  for (const pytorch::Known& k : pytorch::kReleases) {
    const std::string release = std::string("pytorch=") + k.name;
    const PytorchVersion version = *pytorch::parse_version(k.name);
    const std::pair<const char*, std::optional<pytorch::Change>> plans[] = {
        {"pytorch_ddp", {}},
        {"fsdp", pytorch::Change::Fsdp},
        {"fsdp2", pytorch::Change::FullyShard}};
    for (const auto& [plan, needs] : plans) {
      const auto asked = about_plan(plan, "predict", {"--set", release.c_str()});
      if (!needs || version.has(*needs))
        expect_answer(asked, {(std::string("PyTorch ") + k.name + " ").c_str()});
      else
        expect_refusal(asked,
                       (std::string("is modelled as of PyTorch ") + first_with(*needs)).c_str());
    }
  }
}

// At the release where each of them begins, and at the one before.
TEST(PytorchReleases, HaveWhatTheirRowsSay) {
  struct Case {
    const char* plan;
    const char* setting;
    const char* refused;
    const char* answered;
    const char* says;
  };
  for (const Case& c : {
           Case{"fsdp", "sharding_strategy=hybrid_shard", "2.0", "2.1", "hybrid strategies"},
           Case{"fsdp", "use_orig_params=true", "2.0", "2.1", "as of PyTorch 2.1"},
           Case{"fsdp2", "shard_degree=4", "2.5", "2.6", "HSDP"},
           Case{"pytorch_ddp", "optimizer_in_backward=true", "1.13", "2.0", "as of PyTorch 2.0"},
           Case{"pytorch_ddp", "batched_grad_copy=true", "2.11", "2.12", "2.12 is the first"},
       }) {
    const std::string before = std::string("pytorch=") + c.refused;
    const std::string from = std::string("pytorch=") + c.answered;
    expect_refusal(about_plan(c.plan, "predict", {"--set", c.setting, "--set", before.c_str()}),
                   c.says);
    expect_answer(about_plan(c.plan, "predict", {"--set", c.setting, "--set", from.c_str()}),
                  {c.answered});
  }
  const std::vector<std::string> gloo{
      "predict", "--workload", "mlp784-50-10-cpu",        "--cluster", "ethernet-10g", "--ranks",
      "4",       "--set",      "comm_hook=bf16_compress", "--set"};
  auto of = [&](const char* release) {
    std::vector<std::string> asked = gloo;
    asked.push_back(release);
    return asked;
  };
  expect_refusal(of("pytorch=2.2"), "Gloo of PyTorch 2.2 does not reduce bfloat16");
  expect_answer(of("pytorch=2.3"), {"PyTorch 2.3"});
}

class FsdpFiles : public InFolder {};

TEST_F(FsdpFiles, ATraceHasItsStreams) {
  const std::string file = at("t.json");
  Outcome o = ddpsim(ask("trace", {"--out", file.c_str()}));
  ASSERT_EQ(o.code, 0) << o.err;
  const std::string trace = raw(file);
  for (const char* word : {"unshard", "post_backward", "reduce_scatter/root", "bwd/h.11"})
    EXPECT_NE(trace.find(word), std::string::npos) << word;
}

TEST(FsdpCommand, RefusesInASentence) {
  expect_refusal(ask("predict", {"--set", "bucket_cap_mb=25"}),
                 "is a knob of pytorch_ddp, and the plan's system is fsdp");
  expect_refusal({"predict", "--workload", "gpt2-small", "--cluster", "hgx-h100", "--set",
                  "limit_all_gathers=true"},
                 "is a knob of fsdp, and the plan's system is pytorch_ddp");
  expect_refusal(ask("predict", {"--set", "sharding_strategy=hybrid"}), "is none of");
  expect_refusal(
      ask("predict", {"--set", "sharding_strategy=hybrid_shard", "--set", "shard_degree=3"}),
      "groups of 3 ranks that shard together do not part 8 ranks");
  expect_refusal(ask("predict", {"--set", "shard_degree=4"}), "hybrid_shard");
  expect_refusal(
      ask("predict", {"--set", "sharding_strategy=hybrid_shard", "--set", "pytorch=1.13"}),
      "PyTorch 1.13 is not modelled with hybrid strategies");
  expect_refusal(ask("predict", {"--set", "backward_prefetch=pre"}), "is none of");
  expect_refusal(ask("predict", {"--set", "param_dtype=int8"}), "is none of");
  expect_refusal(ask("predict", {"--set", "forward_prefetch=maybe"}), "forward_prefetch");
  expect_refusal(ask("predict", {"--set", "no_sync=3"}), "no_sync");
  expect_refusal(ask("predict", {"--set", "auto_wrap_policy=size"}), "is none of");
  expect_refusal(ask("predict", {"--set", "reduce_dtype=x"}), "is none of");
  expect_refusal(ask("predict", {"--set", "backend=gloo"}), "nccl");
  expect_refusal(
      {"predict", "--workload", "resnet18-cpu", "--cluster", "ethernet-10g", "--plan", "fsdp"},
      "on GPUs, over NCCL");
  expect_refusal({"show", "plan", "fsdq"}, "did you mean \"fsdp\"");
}

TEST(FsdpCommand, WrapsBySize) {
  const auto by_size = [](std::initializer_list<const char*> more) {
    std::vector<std::string> out{"predict",
                                 "--workload",
                                 "resnet50",
                                 "--cluster",
                                 "hgx-h100",
                                 "--plan",
                                 "fsdp",
                                 "--set",
                                 "auto_wrap_policy=size_based",
                                 "--set",
                                 "min_num_params=2e6"};
    out.insert(out.end(), more.begin(), more.end());
    return out;
  };
  expect_answer(by_size({"--set", "module_lists=none"}), {"9 units of weights"});
  expect_answer(by_size({"--set", "module_lists=all"}), {"units of weights"});
  expect_refusal(by_size({}), "a unit if it is a Sequential, and not if it is a ModuleList");
  expect_refusal(by_size({"--set", "module_lists=layer9"}), "the model has no module \"layer9\"");
  expect_refusal(by_size({"--set", "min_num_params=0"}), "at least 1");
  expect_refusal(by_size({"--set", "blocks_per_unit=2"}), "sizes decide");
  expect_refusal(by_size({"--set", "module_lists=none", "--set", "param_dtype=bfloat16"}),
                 "each BatchNorm");
  expect_refusal({"predict", "--workload", "gpt2-small", "--cluster", "hgx-h100", "--plan", "fsdp",
                  "--set", "auto_wrap_policy=size_based", "--set", "min_num_params=5e6"},
                 "PyTorch unties them");
  expect_refusal(ask("predict", {"--set", "min_num_params=5"}),
                 "is of auto_wrap_policy=size_based");
  expect_refusal(by_size({"--set", "module_lists=layer1,,layer2"}), "no module \"\"");
  expect_refusal(by_size({"--set", "module_lists=[]"}), "a name, or a list");
  expect_refusal(by_size({"--set", "module_lists=3"}), "module_lists");
  std::vector<std::string> program = by_size({"--set", "module_lists=layer1,layer2,layer3,layer4"});
  program.front() = "program";
  program.insert(program.begin(), "show");
  expect_answer(program, {"all_gather/layer4.1.conv2", "reduce_scatter/layer4.1"});
  std::vector<std::string> fsdp2 = by_size({});
  *std::find(fsdp2.begin(), fsdp2.end(), "fsdp") = "fsdp2";
  expect_refusal(fsdp2, "is none of");
}

TEST(Fsdp2Command, AnswersInItsOwnWords) {
  auto fsdp2 = [](const std::string& command, std::initializer_list<const char*> more) {
    std::vector<std::string> out = ask(command, more);
    *std::find(out.begin(), out.end(), "fsdp") = "fsdp2";
    return out;
  };
  expect_answer(fsdp2("predict", {"--set", "reshard_after_forward=4"}),
                {"PyTorch 2.7 FSDP2 over nccl, 13 units of weights", "reshard_after_forward=4"});
  expect_answer(fsdp2("explain", {}), {"all_gather/root"});
  expect_answer(fsdp2("tune", {}), {"forward_prefetch_units"});
  expect_answer(fsdp2("show program", {"--set", "shard_degree=4"}),
                {"comm_replicas", "chunk_cat/"});
  expect_answer(fsdp2("sweep", {"--axis", "reshard_after_forward=true,false,2", "--format", "csv"}),
                {"false", "memory_bytes"});
  expect_refusal(fsdp2("predict", {"--set", "reshard_after_forward=8"}), "less than");
  expect_refusal(fsdp2("predict", {"--set", "reshard_after_forward=0"}),
                 "true, false, or a number");
  expect_refusal(fsdp2("predict", {"--set", "limit_all_gathers=true"}), "is a knob of fsdp,");
  expect_refusal(fsdp2("predict", {"--set", "pytorch=2.0"}), "FSDP1");
  expect_refusal(fsdp2("predict", {"--set", "separate_reduce_scatter_group=true"}), "2.13");
  expect_refusal(fsdp2("predict", {"--set", "backward_prefetch_units=0"}), "1 to 1,000");
  expect_refusal(fsdp2("predict", {"--set", "forward_prefetch_units=-1"}), "0 to 1,000");
  expect_refusal(
      fsdp2("predict", {"--set", "pytorch=2.13", "--set", "reduce_scatter_max_input_buffers=0"}),
      "1 to 1,000");
}

TEST(ShowPlan, ListsTheKnobsOfEachSystem) {
  expect_answer({"show", "plan"}, {"bucket_cap_mb", "granularity", "sharding_strategy"});
  Outcome one = ddpsim({"show", "plan", "averaging", "--format", "csv"});
  EXPECT_EQ(one.out.find("bucket_cap_mb"), std::string::npos);
  EXPECT_NE(one.out.find("averaging,async_op"), std::string::npos) << one.out;
  EXPECT_EQ(io::parse_json(ddpsim({"show", "plan", "--format", "json"}).out, "stdout").size(),
            159u);
}

}  // namespace
}  // namespace ddpsim::test
