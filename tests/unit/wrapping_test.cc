// Which blocks are wrapped together, what is apart at the ends, and the lines that say so.
#include "sim/systems/fsdp/wrapping.h"

#include <algorithm>
#include <tuple>

#include <gtest/gtest.h>

#include "sim/systems/base/decisions.h"
#include "sim/systems/base/settings.h"
#include "sim/systems/fsdp/fsdp.h"
#include "sim/systems/fsdp/fsdp_settings.h"
#include "sim/systems/fsdp/plan.h"
#include "sim/systems/script.h"
#include "sim/systems/zero/plan.h"
#include "tests/support/support.h"
#include "tests/support/systems.h"

namespace ddpsim::test {
namespace {

Plan fsdp2(std::vector<std::int64_t> blocks = {}, bool ends = false) {
  Plan p;
  p.system = systems::kFsdp2System;
  fsdp_of(p).blocks_per_unit = std::move(blocks);
  fsdp_of(p).ends_apart = ends;
  return p;
}
std::vector<std::string> names(const Workload& w, const Plan& plan) {
  std::vector<std::string> out;
  for (const systems::Unit& u : systems::fsdp_units(w, plan)) out.push_back(u.name);
  return out;
}
using Names = std::vector<std::string>;

TEST(Wrapping, CountsAreOfEachUnitAndTheLastRepeats) {
  const Workload w = workload("gpt2-small");  // 12 blocks
  EXPECT_EQ(names(w, fsdp2({4})), (Names{"root", "h.0-3", "h.4-7", "h.8-11"}));
  EXPECT_EQ(names(w, fsdp2({1, 3, 5})), (Names{"root", "h.0", "h.1-3", "h.4-8", "h.9-11"}));
  EXPECT_EQ(names(w, fsdp2({100})), (Names{"root", "h.0-11"}));
  EXPECT_EQ(names(w, fsdp2({1})), names(w, fsdp2()));
}

TEST(Wrapping, AUnitEndsWhereItsListEnds) {
  // 3, 4, 6 and 3 blocks.
  EXPECT_EQ(names(workload("resnet50"), fsdp2({4})),
            (Names{"root", "layer1.0-2", "layer2.0-3", "layer3.0-3", "layer3.4-5", "layer4.0-2"}));
  EXPECT_EQ(names(workload("t5-base"), fsdp2({8})),
            (Names{"root", "encoder.block.0-7", "encoder.block.8-11", "decoder.block.0-7",
                   "decoder.block.8-11"}));
}

TEST(Wrapping, WhatHasNoParametersGoesWithTheBlockBeforeIt) {
  const Workload w = workload("vgg16");  // pairs of a convolution and what has no weights
  for (const systems::Unit& u : systems::fsdp_units(w, fsdp2({2})))
    EXPECT_GT(u.elements + (u.name == "root"), 0) << u.name;
}

TEST(Wrapping, EveryParameterIsInOneUnitHoweverItIsWrapped) {
  for (const char* name : {"gpt2-small", "resnet50", "t5-base", "vgg16", "llama-3.1-8b"})
    for (const Plan& plan : {fsdp2({2}), fsdp2({1, 5, 2}), fsdp2({3}, true), fsdp2({}, true)}) {
      const Workload w = workload(name);
      if (check_wrapping(fsdp_of(plan), w)) continue;
      std::vector<int> times(w.tensors.size());
      for (const systems::Unit& u : systems::fsdp_units(w, plan))
        for (TensorIndex t : u.tensors) ++times[t];
      EXPECT_EQ(times, std::vector<int>(w.tensors.size(), 1)) << name;
    }
}

TEST(Wrapping, EndsAreApartUnlessTheirWeightsAreTied) {
  const Workload apart = workload("llama-3.1-8b");
  EXPECT_FALSE(check_wrapping(fsdp_of(fsdp2({16}, true)), apart));
  const std::vector<systems::Unit> units = systems::fsdp_units(apart, fsdp2({16}, true));
  ASSERT_EQ(units.size(), 5u);
  EXPECT_EQ(units[0].elements, 0);
  EXPECT_EQ(units[1].elements, 128256 * 4096);         // the embedding
  EXPECT_EQ(units[4].elements, 128256 * 4096 + 4096);  // norm and head
  for (const char* tied : {"llama-3.2-1b", "gpt2-small", "t5-base", "bert-base"}) {
    Problem p = check_wrapping(fsdp_of(fsdp2({}, true)), workload(tied));
    EXPECT_NE(p.message.find("tied"), std::string::npos) << tied << ": " << p.message;
  }
}

TEST(Wrapping, RefusesWhatIsNoUnit) {
  const Workload w = workload("gpt2-small");
  EXPECT_EQ(check_wrapping(fsdp_of(fsdp2({2, 0})), w).path, "/plan/blocks_per_unit/1");
  Plan whole = fsdp2({2});
  fsdp_of(whole).auto_wrap_policy = "none";
  EXPECT_EQ(check_wrapping(fsdp_of(whole), w).path, "/plan/blocks_per_unit");
  whole = fsdp2({}, true);
  fsdp_of(whole).auto_wrap_policy = "none";
  EXPECT_EQ(check_wrapping(fsdp_of(whole), w).path, "/plan/ends_apart");
}

Plan by_size(std::int64_t least, std::vector<std::string> lists = {}) {
  Plan p;
  p.system = systems::kFsdpSystem;
  fsdp_of(p).auto_wrap_policy = "size_based";
  fsdp_of(p).min_num_params = least;
  fsdp_of(p).module_lists = std::move(lists);
  return p;
}

// What PyTorch's function makes of these: tests/oracle/size_based.py.
TEST(SizeBased, AModuleTakesWhatNoModuleInsideItTook) {
  const Workload w = workload("resnet50");
  const std::vector<systems::Unit> units = systems::fsdp_units(w, by_size(2'000'000, {"none"}));
  EXPECT_EQ(names(w, by_size(2'000'000, {"none"})),
            (Names{"root", "layer3", "layer4.0.conv2", "layer4.0.downsample.0", "layer4.1",
                   "layer4.1.conv2", "layer4.2", "layer4.2.conv2", "fc"}));
  EXPECT_EQ(units[5].elements, 512 * 512 * 9);
  EXPECT_EQ(units[5].inside, 4u);  // layer4.1
  EXPECT_EQ(units[1].inside, 0u);
  std::int64_t sum = 0;
  for (const systems::Unit& u : units) sum += u.elements;
  EXPECT_EQ(sum, w.elements());
  EXPECT_EQ(names(w, by_size(25'557'032)), Names{"root"});  // all of it: the root's
}

TEST(SizeBased, AListIsNoUnitAndAttentionIsNotLookedInto) {
  // A block's attention is left to the whole decoder, which a list cannot take.
  const Workload llama = workload("llama-3.1-8b");
  const Names units = names(llama, by_size(100'000'000, {"all"}));
  ASSERT_EQ(units.size(), 36u);
  EXPECT_EQ(units[1], "model");
  EXPECT_EQ(units[3], "model.layers.0.mlp");
  EXPECT_EQ(systems::fsdp_units(llama, by_size(100'000'000, {"all"}))[0].elements, 0);
  const Names all = names(llama, by_size(100'000'000, {"none"}));
  EXPECT_NE(std::find(all.begin(), all.end(), "model.layers"), all.end());
  // 2.36 million parameters of a MultiheadAttention are its block's.
  for (const std::string& u : names(workload("vit-b-16"), by_size(1'000'000, {"none"})))
    EXPECT_EQ(u.find("self_attention"), std::string::npos) << u;
}

TEST(SizeBased, WhatComputesBeforeAModuleIsNotOfIt) {
  // mlp.fork copies what the block's norm, which is not of the MLP, is about to read.
  const Workload w = workload("llama-3.1-8b");
  const std::vector<std::string> of = wrapped_units(w, fsdp_of(by_size(100'000'000, {"all"})));
  for (std::size_t l = 0; l < w.layers.size(); ++l) {
    if (w.layers[l].name == "model.layers.3.mlp.fork") {
      EXPECT_EQ(of[l], "model");
    }
    if (w.layers[l].name == "model.layers.3.mlp.act_fn") {
      EXPECT_EQ(of[l], "model.layers.3.mlp");
    }
  }
}

TEST(SizeBased, RefusesWhatNamesDoNotTell) {
  auto said = [](const char* name, const Plan& plan) {
    const Problem p = check_wrapping(fsdp_of(plan), workload(name));
    return p.path + ": " + p.message;
  };
  auto has = [&](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(said("resnet50", by_size(2'000'000)), "/plan/module_lists: size_based would make \"layer3\"");
  has(said("resnet50", by_size(2'000'000, {"layer3", "layer9"})),
      "module_lists/1: the model has no");
  has(said("resnet50", by_size(0, {"none"})), "/plan/min_num_params: at least 1");
  has(said("gpt2-small", by_size(100'000'000, {"all"})), "PyTorch unties them");
  has(said("t5-base", by_size(100'000'000, {"all"})), "takes another one's weight");
  Plan mixed = by_size(2'000'000, {"none"});
  fsdp_of(mixed).param_dtype = DType::BFloat16;
  has(said("resnet50", mixed), "BatchNorm");
  EXPECT_FALSE(check_wrapping(fsdp_of(by_size(2'000'000, {"none"})), workload("resnet50")));
  Plan blocks = by_size(2'000'000, {"none"});
  fsdp_of(blocks).blocks_per_unit = {2};
  has(said("resnet50", blocks), "/plan/blocks_per_unit: is of auto_wrap_policy=block");
  for (Plan other : {by_size(7), by_size(100'000'000, {"all"})}) {
    fsdp_of(other).auto_wrap_policy = "block";
    has(said("resnet50", other), "is of auto_wrap_policy=size_based");
  }
}

TEST(SizeBased, LayersOfCoarserNamesAreRefused) {
  Workload w = workload("resnet50");
  for (Layer& l : w.layers)
    if (l.name == "layer4.1.conv2") l.name = "layer4.1";
  const Problem p = check_wrapping(fsdp_of(by_size(2'000'000, {"none"})), w);
  EXPECT_NE(p.message.find("known as a whole only"), std::string::npos) << p.message;
}

TEST(Decisions, EverySettingIsSaidAsItIsTaken) {
  for (const char* name : {"llama-3.1-8b", "gpt2-small", "resnet50"})
    for (Plan plan : {fsdp2(), Plan{}, Plan{}, Plan{}}) {
      static int k = 0;
      if (plan.system != systems::kFsdp2System)
        plan.system = k % 3 == 0 ? systems::kFsdpSystem : systems::kZeroSystem;
      if (plan.system == systems::kZeroSystem) zero_of(plan).stage = 1 + k % 3;
      ++k;
      const Workload w = workload(name);
      const systems::DecidedFor of{w, 16, 8};
      for (const systems::Decision& d : systems::decisions(plan, of))
        for (const systems::Setting& s : d.settings) {
          Plan made = plan;
          s.make(made);
          EXPECT_EQ(systems::setting_text(made, d), s.text) << d.name;
          auto read = systems::parse_setting(d, s.text, of);
          ASSERT_TRUE(read) << d.name << "=" << s.text;
          Plan again = plan;
          read->make(again);
          EXPECT_EQ(systems::settings_text(again), systems::settings_text(made));
        }
    }
}

TEST(Decisions, UnitsAreWrittenBriefly) {
  EXPECT_EQ(systems::units_setting({1, 2, 2, 2, 1}, true).text, "1/2x3/1+ends");
  EXPECT_EQ(systems::units_setting({3, 3, 3}, false).text, "3");
  EXPECT_EQ(systems::units_setting({4, 8, 8}, false).text, "4/8");
  const Workload w = workload("gpt2-small");
  for (const systems::Decision& d : systems::decisions(fsdp2(), {w, 8, 8})) {
    if (d.name != "units") continue;
    Plan plan = fsdp2();
    auto read = systems::parse_setting(d, "1/2x3/1", {w, 8, 8});
    ASSERT_TRUE(read);
    read->make(plan);
    EXPECT_EQ(fsdp_of(plan).blocks_per_unit, (std::vector<std::int64_t>{1, 2, 2, 2, 1}));
    for (const char* bad : {"", "0", "2x", "x2", "2x0", "1//2", "2+end", "a"})
      EXPECT_FALSE(systems::parse_setting(d, bad, {w, 8, 8})) << bad;
  }
}

TEST(Decisions, ShapesPartTheRanks) {
  const Workload w = workload("gpt2-small");
  for (const systems::Decision& d : systems::decisions(fsdp2(), {w, 48, 8})) {
    if (d.name != "shard_degree") continue;
    std::vector<std::string> shapes;
    for (const systems::Setting& s : d.settings) shapes.push_back(s.text);
    EXPECT_EQ(shapes, (std::vector<std::string>{"0", "2", "4", "8", "16", "24"}));
  }
}

TEST(ScriptLines, SayWhichBlocksEachUnitHas) {
  auto lines = [](const Plan& plan, const char* model, int ranks) {
    std::string out;
    for (const std::string& l :
         systems::script_lines(plan, workload(model), DeviceKind::Gpu, ranks, 8))
      out += l + "\n";
    return out;
  };
  Plan plan = fsdp2({4, 12, 16}, true);
  fsdp_of(plan).shard_degree = 8;
  fsdp_of(plan).reshard_after_forward.ranks = 0;
  fsdp_of(plan).forward_prefetch_units = 2;
  EXPECT_EQ(lines(plan, "llama-3.1-8b", 32),
            "from torch.distributed.device_mesh import init_device_mesh\n"
            "from torch.distributed.fsdp import fully_shard\n"
            "options = dict(mesh=init_device_mesh(\"cuda\", (4, 8), mesh_dim_names=(\"replicate\", "
            "\"shard\")), reshard_after_forward=False)\n"
            "units = []\n"
            "units.append([model.model.embed_tokens])\n"
            "edges = [0, 4, 16, 32]\n"
            "units += [list(model.model.layers[a:b]) for a, b in zip(edges, edges[1:])]\n"
            "units.append([model.model.norm, model.lm_head])\n"
            "for unit in units:\n"
            "    fully_shard(unit, **options)\n"
            "fully_shard(model, **options)\n"
            "for i in range(len(units) - 2):\n"
            "    units[i][0].set_modules_to_forward_prefetch([u[0] for u in units[i + 1 : i + 1 + "
            "2]])\n");
  // One unit: no list of units that would be empty.
  Plan root = fsdp2({1}, false);
  fsdp_of(root).auto_wrap_policy = "none";
  EXPECT_EQ(lines(root, "llama-3.1-8b", 8),
            "from torch.distributed.fsdp import fully_shard\nfully_shard(model)\n");
  Plan older = root;
  older.pytorch = PytorchVersion{2, 5};
  EXPECT_EQ(lines(older, "llama-3.1-8b", 8),
            "from torch.distributed._composable.fsdp import fully_shard\nfully_shard(model)\n");
  fsdp_of(root).reshard_after_forward.ranks = 0;
  EXPECT_EQ(lines(root, "llama-3.1-8b", 8),
            "from torch.distributed.fsdp import fully_shard\n"
            "fully_shard(model, reshard_after_forward=False)\n");
  Plan one;
  one.system = systems::kFsdpSystem;
  fsdp_of(one).sharding_strategy = Sharding::HybridShard;
  fsdp_of(one).shard_degree = 8;
  const std::string text = lines(one, "gpt2-small", 16);
  for (const char* part :
       {"ShardingStrategy.HYBRID_SHARD", "init_device_mesh(\"cuda\", (2, 8)",
        "for i, block in enumerate(model.transformer.h):", "model = FSDP(model, **options)"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  const std::string sized = lines(by_size(2'000'000, {"none"}), "resnet50", 16);
  EXPECT_NE(sized.find("policy = functools.partial(size_based_auto_wrap_policy, "
                       "min_num_params=2000000)\nmodel = FSDP(model, auto_wrap_policy=policy, "),
            std::string::npos)
      << sized;
  Plan zero;
  zero.system = systems::kZeroSystem;
  zero_of(zero).stage = 3;
  zero_of(zero).reduce_bucket_size = 50'000'000;
  zero_of(zero).overlap_comm = false;
  const io::Json j = io::parse_json(lines(zero, "gpt2-small", 16), "lines");
  EXPECT_EQ(j["zero_optimization"],
            (io::Json{{"stage", 3}, {"overlap_comm", false}, {"reduce_bucket_size", 50'000'000}}));
}

// As the libraries spell it: DeepSpeed's are objects.
TEST(ScriptLines, SayWhatIsOffloaded) {
  auto lines = [](const Plan& plan) {
    std::string out;
    for (const std::string& l :
         systems::script_lines(plan, workload("gpt2-small"), DeviceKind::Gpu, 8, 8))
      out += l + "\n";
    return out;
  };
  Plan zero;
  zero.system = systems::kZeroSystem;
  zero_of(zero).stage = 3;
  zero_of(zero).offload_optimizer = true;
  zero_of(zero).offload_pin_memory = true;
  zero_of(zero).offload_param = true;
  EXPECT_EQ(io::parse_json(lines(zero), "lines")["zero_optimization"],
            (io::Json{{"stage", 3},
                      {"offload_optimizer", {{"device", "cpu"}, {"pin_memory", true}}},
                      {"offload_param", {{"device", "cpu"}}}}));
  zero_of(zero) = {};
  zero_of(zero).offload_optimizer = true;
  EXPECT_EQ(io::parse_json(lines(zero), "lines")["zero_optimization"],
            (io::Json{{"stage", 2}, {"offload_optimizer", {{"device", "cpu"}}}}));
  for (const auto& [system, imported, option] :
       {std::tuple{systems::kFsdpSystem, "CPUOffload,",
                   "cpu_offload=CPUOffload(offload_params=True)"},
        std::tuple{systems::kFsdp2System, "CPUOffloadPolicy,",
                   "offload_policy=CPUOffloadPolicy()"}})
    for (bool offloads : {true, false}) {
      Plan plan;
      plan.system = system;
      fsdp_of(plan).cpu_offload = offloads;
      const std::string text = lines(plan);
      for (const char* part : {imported, option})
        EXPECT_EQ(text.find(part) != std::string::npos, offloads) << part << "\n" << text;
    }
}

}  // namespace
}  // namespace ddpsim::test
