// What a rank's device holds: closed forms of each system, and that it comes and goes.
#include "sim/predict/memory.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "sim/cost/roofline.h"
#include "sim/predict/lowered.h"
#include "sim/systems/base/model_memory.h"
#include "sim/systems/ddp/plan.h"
#include "sim/systems/fsdp/fsdp.h"
#include "sim/systems/fsdp/plan.h"
#include "tests/support/support.h"
#include "tests/support/systems.h"

namespace ddpsim {
namespace {

std::int64_t at(const predict::Memory& m, Holds h) {
  return m.peak[h];
}

struct Job {
  Workload w;
  topology::Fabric fabric{test::cluster("hgx-h100")};
  Profile profile = test::profile("h100-sxm.datasheet");
  Scenario s;
  explicit Job(const char* workload, System system = systems::kDdpSystem, int ranks = 8)
      : w(test::workload(workload)) {
    s.plan.system = system;
    s.ranks = ranks;
  }
  predict::Question question() const { return {w, fabric, profile, s}; }
  predict::Memory memory() const { return *predict::predict(question()).memory; }
  Program program() const {
    return predict::lowered(question(), predict::step_times(w, profile, Level::Mid));
  }
};

// Everything that a step allocates is free again where the next one begins, at no time is less than
// nothing held, by every kind.
TEST(Memory, ComesAndGoes) {
  for (System system : {systems::kDdpSystem, systems::kAveragingSystem, systems::kFsdpSystem,
                        systems::kFsdp2System, systems::kHorovodSystem})
    for (const char* model : {"gpt2-small", "resnet50"})
      for (int micro_steps : {1, 3})
        for (bool no_sync : {false, true}) {
          Job job(model, system);
          job.s.plan.accumulation_steps = micro_steps;
          job.s.plan.no_sync = no_sync;
          Program p = job.program();
          EXPECT_TRUE(p.activations_known);
          Held held = p.resident;
          for (const MemoryChange& c : p.steady.memory) {
            ASSERT_LT(c.op, p.steady.ops.size());
            held[c.holds] += c.bytes;
            EXPECT_GE(held[c.holds], 0) << name_of(system) << " " << name_of(c.holds) << " at "
                                        << name_of(p, p.steady, c.op);
          }
          for (Holds k : Held::names())
            EXPECT_EQ(held[k], p.resident[k])
                << name_of(system) << " " << model << " " << name_of(k);
        }
}

TEST(Memory, OfDdpIsParametersStatesBucketsAndActivations) {
  Job job("gpt2-small");
  const std::int64_t weights = job.w.gradient_bytes().count;
  predict::Memory m = job.memory();
  EXPECT_EQ(at(m, Holds::Parameters), weights);
  EXPECT_EQ(at(m, Holds::OptimizerState), 2 * weights);
  EXPECT_EQ(at(m, Holds::Buckets), weights);
  // Eager attention keeps its scores: three quarters of it.
  EXPECT_GT(at(m, Holds::Activations), 10 * weights);
  EXPECT_EQ(m.phase, "backward");
  job.w.fused_attention = true;
  EXPECT_LT(at(job.memory(), Holds::Activations), at(m, Holds::Activations) * 6 / 10);
}

// Scale and mask lie between a fused attention's products: nothing of queries by keys is ever
// there.
TEST(Memory, OfFusedAttentionNeverHasItsScores) {
  Workload w = test::workload("gpt2-small");
  const std::int64_t scores = w.batch * 12 * std::int64_t{1024} * 1024 * 4;
  const std::int64_t queries_keys_values = w.batch * 3 * std::int64_t{1024} * 768 * 4;
  for (bool fused : {false, true}) {
    w.fused_attention = fused;
    const systems::ModelMemory m(w);
    std::int64_t most = 0;
    for (std::size_t l = 0; l < w.layers.size(); ++l)
      if (w.layers[l].op.attention) {
        most = std::max(
            most, m.forward(l, l + 1).most - std::max<std::int64_t>(0, m.forward(l, l + 1).change));
        most = std::max(most, m.backward(l, l + 1).most);
      }
    if (fused)
      EXPECT_LE(most, 2 * queries_keys_values);
    else
      EXPECT_GE(most, scores);
  }
}

// Of fp32 without TF32 the gradient of a 3x3 convolution's filters lays out tiles of 6x6 for each
// 4x4 of the result: of what it read, of its result's gradient, and of the filters.
TEST(Memory, OfConvolutionsInFp32HasWinogradsTiles) {
  auto of_layer = [](const Workload& w, std::size_t l, bool winograd) {
    return systems::ModelMemory(w, false, winograd).backward(l, l + 1).most;
  };
  int with = 0;
  int without = 0;
  for (const char* model : {"vgg16", "resnet50", "deeplabv3-resnet101"}) {
    const Workload w = test::workload(model);
    for (std::size_t l = 0; l < w.layers.size(); ++l) {
      const LayerOp& op = w.layers[l].op;
      const bool does =
          op.kind == "conv" && op.kernel == 3 && op.size == op.out && op.dilation == 1;
      const std::int64_t side = (op.out + 3) / 4;
      const std::int64_t tiles = w.batch * side * side * (op.channels + op.filters);
      const std::int64_t expected = does ? 4 * 36 * (tiles + op.channels * op.filters) : 0;
      EXPECT_EQ(of_layer(w, l, true) - of_layer(w, l, false), expected) << w.layers[l].name;
      (does ? with : without) += op.kind == "conv" && op.kernel == 3;
    }
  }
  EXPECT_GT(with, 20);
  EXPECT_GT(without, 20) << "strided, or dilated";
  // A V100 has no TF32, an A100 has.
  auto peak = [](const char* cluster) {
    Workload w = test::workload("vgg16");
    const topology::Fabric fabric(test::cluster(cluster));
    const Profile p = test::profile(fabric.cluster().profile);
    Scenario s;
    s.ranks = 4;
    return predict::memory_of({w, fabric, p, s}).allocated;
  };
  EXPECT_GT(peak("dgx1-v100"), peak("dgx-a100"));
}

// What an addition's other reader needs is there until the branch has run: while the layers of a
// branch go back, the gradient that goes around it waits.
TEST(Memory, OfABranchHasTheGradientThatGoesAroundIt) {
  Workload w;
  for (int k = 0; k < 3; ++k) {
    Layer l;
    l.name = "l" + std::to_string(k);
    l.memory.emplace();
    for (double& makes : l.memory->makes) makes = 1000;
    w.layers.push_back(l);
  }
  w.batch = 2;
  const std::int64_t chain = systems::ModelMemory(w).backward(0, 3).most;
  EXPECT_EQ(chain, 2 * 2000);  // the gradient of what a layer made, and of what it read
  w.layers[2].op.kind = "add";
  EXPECT_EQ(systems::ModelMemory(w).backward(0, 3).most, chain + 2 * 1000);
  // An addition before the branch keeps nobody waiting.
  w.layers[2].op.kind.clear();
  w.layers[0].op.kind = "add";
  EXPECT_EQ(systems::ModelMemory(w).backward(1, 3).most, chain);
}

TEST(Memory, OfSmallBatchesPeaksInTheOptimizer) {
  Job job("gpt2-small");
  job.w.batch = 1;
  job.w.sequence = 1024;
  for (Layer& l : job.w.layers)
    if (l.memory) l.memory = LayerMemory{};
  predict::Memory m = job.memory();
  EXPECT_EQ(m.phase, "the optimizer's step");
  const std::int64_t weights = job.w.gradient_bytes().count;
  EXPECT_EQ(at(m, Holds::Gradients), weights);
  EXPECT_GE(at(m, Holds::Temporaries), weights) << "foreach's list";
}

TEST(Memory, GrowsWithTheBatchByWhatLayersSave) {
  Job one("resnet50");
  one.w.batch = 1;
  Job many("resnet50");
  many.w.batch = 65;
  double saves = 0;
  for (const Layer& l : one.w.layers) saves += l.memory->saves[0];
  const auto grown = static_cast<double>(many.memory().allocated - one.memory().allocated);
  EXPECT_NEAR(grown / (64 * saves), 1, 0.1);
}

TEST(Memory, OfHalvesIsSmaller) {
  Job job("bert-base");
  const std::int64_t fp32 = at(job.memory(), Holds::Activations);
  job.w.precision = Precision::Bf16;
  const std::int64_t autocast = at(job.memory(), Holds::Activations);
  job.w.casting = Casting::Pure;
  const std::int64_t pure = at(job.memory(), Holds::Activations);
  EXPECT_LT(autocast, fp32);
  EXPECT_LT(pure, autocast);
  EXPECT_NEAR(static_cast<double>(pure) / static_cast<double>(fp32), 0.5, 0.03);
}

TEST(Memory, OfViewsIsABucketLess) {
  Job job("gpt2-small");
  const std::int64_t weights = job.w.gradient_bytes().count;
  job.w.batch = 1;
  const std::int64_t beside = job.memory().allocated;
  ddp_of(job.s.plan).gradient_as_bucket_view = true;
  EXPECT_LE(job.memory().allocated, beside);
  Program p = job.program();
  std::int64_t made = 0;
  for (const MemoryChange& c : p.steady.memory)
    if (c.holds == Holds::Gradients && c.bytes > 0) made += c.bytes;
  EXPECT_EQ(made, 0);
  EXPECT_EQ(p.resident[Holds::Buckets], weights);
}

// ZeRO's arithmetic: what is sharded falls with the ranks.
TEST(Memory, OfShardsFallsWithTheRanks) {
  for (System system : {systems::kFsdpSystem, systems::kFsdp2System}) {
    Job two("gpt2-small", system, 2);
    Job eight("gpt2-small", system, 8);
    auto states = [](const Job& j) { return at(j.memory(), Holds::OptimizerState); };
    EXPECT_NEAR(static_cast<double>(states(two)) / static_cast<double>(states(eight)), 4, 0.02);
    EXPECT_LT(eight.memory().allocated, two.memory().allocated);
  }
}

// In forward, with R bytes of the root and U of each block: the buffer of a block stays until the
// next one was copied out of its own, so that three are there beside the root; or, where the root
// is large, its own buffer beside the first block's. As the oracle says (tests/oracle/fsdp2.py,
// closed_forms).
TEST(Memory, OfFsdp2sForwardIsTheRootAndThreeUnitsOrTwiceTheRootAndAUnit) {
  for (bool small_root : {false, true}) {
    Job job("gpt2-small", systems::kFsdp2System);
    for (Tensor& t : job.w.tensors)
      if (small_root && (t.name == "transformer.wte.weight" || t.name == "transformer.wpe.weight"))
        t.shape.front() = 100;
    std::vector<std::int64_t> bytes;  // of the root, of the first block
    for (const systems::Unit& u : systems::fsdp_units(job.w, job.s.plan)) {
      std::int64_t& sum = bytes.emplace_back();
      for (TensorIndex t : u.tensors) {
        const std::int64_t rows = job.w.tensors[t].shape.front();
        sum += (rows + 7) / 8 * 8 * (job.w.tensors[t].elements() / rows) * 4;
      }
    }
    const std::int64_t root = bytes[0];
    const std::int64_t unit = bytes[1];
    EXPECT_EQ(small_root, root < unit);
    Program p = job.program();
    std::int64_t now = 0;
    std::int64_t most = 0;
    for (const MemoryChange& c : p.steady.memory) {
      if (is_backward(p.steady.ops[c.op].kind)) break;
      if (c.holds == Holds::Gathered || c.holds == Holds::Buckets)
        most = std::max(most, now += c.bytes);
    }
    EXPECT_EQ(most, std::max(root + 3 * unit, 2 * root + 2 * unit));
  }
}

// As of DDP: micro-steps add to gradients that are there.
TEST(Memory, OfFsdpWithoutShardsIsNotMoreGradientsForMoreMicroSteps) {
  for (int micro_steps : {1, 3}) {
    Job job("gpt2-small", systems::kFsdpSystem);
    fsdp_of(job.s.plan).sharding_strategy = Sharding::NoShard;
    job.s.plan.accumulation_steps = micro_steps;
    Program p = job.program();
    std::int64_t now = 0;
    for (const MemoryChange& c : p.steady.memory) {
      if (is_update(p.steady.ops[c.op].kind)) break;
      if (c.holds == Holds::Gradients) now += c.bytes;
    }
    EXPECT_EQ(now, job.w.gradient_bytes().count) << micro_steps;
  }
}

TEST(Memory, OfWeightsThatAreKeptIsLarger) {
  Job frees("gpt2-small", systems::kFsdp2System);
  Job keeps = frees;
  fsdp_of(keeps.s.plan).reshard_after_forward = {0};
  auto gathered = [](const Job& j) {
    Program p = j.program();
    std::int64_t now = 0;
    std::int64_t most = 0;
    for (const MemoryChange& c : p.steady.memory)
      if (c.holds == Holds::Gathered) most = std::max(most, now += c.bytes);
    return most;
  };
  EXPECT_GT(gathered(keeps), 2 * gathered(frees));
}

TEST(Memory, SaysWhatDoesNotFitAndWhatWould) {
  Job job("bert-large");
  job.w.batch = 1024;
  predict::Memory m = job.memory();
  EXPECT_FALSE(m.fits());
  EXPECT_GT(m.device_low, m.capacity);
  EXPECT_LT(m.device_low, m.device);
  EXPECT_LT(m.device, m.device_high);
  std::vector<predict::Fit> fits = predict::what_fits(job.question());
  ASSERT_FALSE(fits.empty());
  for (const predict::Fit& f : fits) EXPECT_LE(f.device, m.capacity) << f.change;
  EXPECT_EQ(fits.back().change.rfind("batch ", 0), 0u);
  // One more does not.
  Job more("bert-large");
  more.w.batch = std::stoi(fits.back().change.substr(6)) + 1;
  EXPECT_FALSE(more.memory().fits());
}

// Where no one change is enough, several.
TEST(Memory, FitsWithSeveralChangesWhereNoOneIsEnough) {
  Job job("llama-3.1-8b");
  job.w.batch = 4;
  ASSERT_FALSE(job.memory().fits());
  bool several = false;
  for (const predict::Fit& f : predict::what_fits(job.question())) {
    several = several || f.change.find(" and ") != std::string::npos;
    EXPECT_LE(f.device, job.memory().capacity) << f.change;
  }
  EXPECT_TRUE(several);
}

TEST(Memory, OfACaptureLacksItsActivations) {
  Workload w = test::workload("resnet18-cpu");
  topology::Fabric fabric(test::cluster("testbed-star"));
  Profile profile = test::profile(fabric.cluster().profile);
  Scenario s;
  s.ranks = 4;
  predict::Memory m = *predict::predict({w, fabric, profile, s}).memory;
  EXPECT_FALSE(m.activations);
  EXPECT_EQ(m.context, 0);
  EXPECT_EQ(at(m, Holds::Parameters), w.gradient_bytes().count);
}

TEST(Memory, IsTheSameWithoutATimelineWhereNoStreamHoldsItLonger) {
  for (System system : {systems::kDdpSystem, systems::kFsdp2System}) {
    Job job("gpt2-small", system);
    EXPECT_EQ(predict::memory_of(job.question()).allocated, job.memory().allocated);
  }
}

}  // namespace
}  // namespace ddpsim
