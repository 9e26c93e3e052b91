// FullyShardedDataParallel. Schedules are held against an oracle by tests/oracle/fsdp_lowered.py;
// here are its closed forms.
#include "sim/systems/fsdp/fsdp.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/cost/roofline.h"
#include "sim/predict/memory.h"
#include "sim/predict/predict.h"
#include "sim/systems/base/settings.h"
#include "sim/systems/fsdp/plan.h"
#include "tests/support/support.h"
#include "tests/support/systems.h"

namespace ddpsim::systems {
namespace {

Plan fsdp(Sharding s = Sharding::FullShard) {
  Plan p;
  p.system = systems::kFsdpSystem;
  fsdp_of(p).sharding_strategy = s;
  return p;
}

struct Listing {
  Workload w;
  StepTimes times;
  Program program;
  Listing(const std::string& name, const Plan& plan, int ranks)
      : w(test::workload(name)),
        times(predict::step_times(w, test::profile("h100-sxm.datasheet"), Level::Mid)),
        program(lower({w, times, DeviceKind::Gpu, ranks}, plan)) {}
  std::vector<Op> all(Operation o) const {
    std::vector<Op> out;
    for (const Op& op : program.steady.ops)
      if (is_collective(op.kind) && op.kind.operation == o) out.push_back(op);
    return out;
  }
  std::int64_t bytes(Operation o) const {
    std::int64_t sum = 0;
    for (const Op& op : all(o)) sum += op.bytes;
    return sum;
  }
};

TEST(Fsdp, EveryParameterIsInOneUnit) {
  for (const char* name : {"gpt2-small", "bert-base", "resnet50", "vgg16"})
    for (const char* policy : {"block", "none"}) {
      Workload w = test::workload(name);
      Plan plan = fsdp();
      fsdp_of(plan).auto_wrap_policy = policy;
      std::vector<int> times(w.tensors.size());
      std::int64_t elements = 0;
      for (const Unit& u : fsdp_units(w, plan)) {
        for (TensorIndex t : u.tensors) ++times[t];
        elements += u.elements;
      }
      EXPECT_EQ(times, std::vector<int>(w.tensors.size(), 1)) << name;
      EXPECT_EQ(4 * elements, w.gradient_bytes().count) << name;
    }
}

// Of n ranks each sends (n - 1) / n of the bytes; those are the weights, twice but for the root's,
// and the gradients once, each unit padded by less than n elements.
TEST(Fsdp, VolumesAreTheWeightsTwiceAndTheGradientsOnce) {
  for (int ranks : {2, 3, 8, 64}) {
    Listing l("gpt2-small", fsdp(), ranks);
    std::vector<Unit> units = fsdp_units(l.w, fsdp());
    const std::int64_t weights = l.w.gradient_bytes().count;
    const std::int64_t root = 4 * units.front().elements;
    const auto padding = static_cast<std::int64_t>(units.size()) * 4 * ranks;
    EXPECT_GE(l.bytes(Operation::AllGather), 2 * weights - root);
    EXPECT_LE(l.bytes(Operation::AllGather), 2 * weights - root + 2 * padding);
    EXPECT_GE(l.bytes(Operation::ReduceScatter), weights);
    EXPECT_LE(l.bytes(Operation::ReduceScatter), weights + padding);
    EXPECT_TRUE(l.all(Operation::AllReduce).empty());
    EXPECT_LE(Listing("gpt2-small", fsdp(Sharding::ShardGradOp), ranks).bytes(Operation::AllGather),
              weights + padding);
    Listing none("gpt2-small", fsdp(Sharding::NoShard), ranks);
    EXPECT_EQ(none.bytes(Operation::AllReduce), weights);
    EXPECT_TRUE(none.all(Operation::AllGather).empty());
  }
}

TEST(Fsdp, OneRankHasNothingToShard) {
  Listing l("gpt2-small", fsdp(), 1);
  EXPECT_TRUE(l.all(Operation::AllGather).empty());
  EXPECT_EQ(l.all(Operation::AllReduce).size(), fsdp_units(l.w, fsdp()).size());
}

TEST(Fsdp, HalfPrecisionIsHalfTheBytes) {
  Plan half = fsdp();
  fsdp_of(half).param_dtype = DType::BFloat16;
  Listing whole("bert-base", fsdp(), 4);
  Listing l("bert-base", half, 4);
  EXPECT_EQ(2 * l.bytes(Operation::AllGather), whole.bytes(Operation::AllGather));
  EXPECT_EQ(2 * l.bytes(Operation::ReduceScatter), whole.bytes(Operation::ReduceScatter));
  for (const Op& op : l.all(Operation::AllGather)) EXPECT_EQ(op.dtype, DType::BFloat16);
  fsdp_of(half).reduce_dtype = DType::Float32;
  EXPECT_EQ(Listing("bert-base", half, 4).bytes(Operation::ReduceScatter),
            whole.bytes(Operation::ReduceScatter));
}

TEST(Fsdp, TheRateLimiterKeepsTwoUnitsInFlight) {
  Listing l("gpt2-small", fsdp(), 8);
  int waits = 0;
  for (std::uint32_t i = 0; i < l.program.steady.ops.size(); ++i)
    waits += name_of(l.program, l.program.steady, i).rfind("limit/", 0) == 0;
  EXPECT_EQ(waits, static_cast<int>(l.all(Operation::AllGather).size()));
  Plan plan = fsdp();
  fsdp_of(plan).limit_all_gathers = false;
  Listing without("gpt2-small", plan, 8);
  for (std::uint32_t i = 0; i < without.program.steady.ops.size(); ++i)
    EXPECT_NE(name_of(without.program, without.program.steady, i).rfind("limit/", 0), 0u);
}

// ---- the whole way

predict::Prediction ask(const Plan& plan, int ranks, const char* workload = "gpt2-small",
                        const char* cluster = "hgx-h100") {
  Workload w = test::workload(workload);
  topology::Fabric fabric(test::cluster(cluster));
  Profile p = test::profile("h100-sxm.datasheet");
  Scenario s;
  s.plan = plan;
  s.ranks = ranks;
  predict::Question q{w, fabric, p, s};
  EXPECT_FALSE(predict::check(q)) << predict::check(q).message;
  return predict::predict(q);
}

TEST(FsdpStep, IsNoShorterThanItsComputationAndHidesMostOfItsCommunication) {
  predict::Prediction p = ask(fsdp(), 8);
  EXPECT_GE(p.summary.step, p.summary.forward + p.summary.backward + p.summary.optimizer);
  EXPECT_GT(p.summary.overlap, 0.9);
  // The first all-gather and the last reduce-scatter have nothing to hide behind.
  EXPECT_GT(p.summary.exposed_communication.ps, 0);
}

TEST(FsdpStep, GatheringOnceIsNoSlowerThanTwice) {
  EXPECT_LE(ask(fsdp(Sharding::ShardGradOp), 8).summary.step, ask(fsdp(), 8).summary.step);
}

TEST(FsdpStep, WithoutPrefetchEveryGatherOfBackwardIsWaitedFor) {
  Plan none = fsdp();
  fsdp_of(none).backward_prefetch = BackwardPrefetch::None;
  EXPECT_GT(ask(none, 8).summary.exposed_communication,
            ask(fsdp(), 8).summary.exposed_communication);
}

TEST(FsdpStep, ShardsMakeItsMemoryFallWithTheRanks) {
  auto allocated = [](const Plan& plan, int ranks) { return ask(plan, ranks).memory->allocated; };
  EXPECT_LT(allocated(fsdp(), 8), allocated(fsdp(), 2));
  EXPECT_LT(allocated(fsdp(), 8), allocated(fsdp(Sharding::ShardGradOp), 8));
  EXPECT_LT(allocated(fsdp(Sharding::ShardGradOp), 8), allocated(fsdp(Sharding::NoShard), 8));
}

TEST(FsdpPlans, AreRefusedWhereNothingIsKnown) {
  Workload captured = test::workload("resnet18-cpu");
  EXPECT_EQ(validate(fsdp(), captured, DeviceKind::Cpu).path, "/plan/system");
  captured.device = DeviceKind::Gpu;
  EXPECT_EQ(validate(fsdp(), captured, DeviceKind::Gpu).path, "/plan/system");
  Plan gloo = fsdp();
  gloo.backend = Backend::Gloo;
  EXPECT_TRUE(validate(gloo, test::workload("gpt2-small"), DeviceKind::Gpu));
}

// Gathers and scatters by price and message by message, by rings and by NVLS.
TEST(Fsdp, BothFidelitiesAgree) {
  struct Case {
    const char* cluster;
    const char* algorithm;  // of NCCL; "" = its choice
  };
  for (const Case& c : std::vector<Case>{{"hgx-h100", ""},
                                         {"hgx-h100", "allgather:ring;reducescatter:ring"},
                                         {"dgx-a100", ""},
                                         {"gpu-ethernet-100g", ""}}) {
    Workload w = test::workload("gpt2-small");
    topology::Fabric fabric(test::cluster(c.cluster));
    Profile p = test::profile(fabric.cluster().profile);
    Scenario s;
    s.ranks = 4;
    s.plan = fsdp();
    if (*c.algorithm) s.plan.environment["NCCL_ALGO"] = c.algorithm;
    predict::Options by_message;
    by_message.fidelity = predict::Fidelity::Message;
    // What collectives take in all: none runs beside another.
    auto in_flight = [&](const predict::Options& o) {
      predict::SteadyStep step = predict::steady_step({w, fabric, p, s}, Level::Mid, o);
      Duration sum;
      for (const Span& span : step.simulation.spans)
        if (span.actor == 0 && is_collective(span.kind)) sum += span.end - span.begin;
      return static_cast<double>(sum.ps);
    };
    EXPECT_NEAR(in_flight({}) / in_flight(by_message), 1, 0.01) << c.cluster << " " << c.algorithm;
  }
}

// ---- records of systems

TEST(Systems, HaveARecordEachAndKnobsOfTheirOwn) {
  std::map<std::string, const void*> kept;  // by knob: where a plan keeps it
  Plan plan;
  for (const SystemRecord& s : all_systems()) {
    EXPECT_EQ(&record_of(s.system), &s);
    EXPECT_FALSE(s.words.empty());
    // Systems share a name only where they share the knob.
    for (const KnobRecord& knob : s.knobs) {
      Field field = knob.field(plan);
      const void* where = std::visit(
          [](auto f) -> const void* {
            if constexpr (std::is_pointer_v<decltype(f)>)
              return f;
            else
              return reinterpret_cast<const void*>(f.set);
          },
          field);
      auto [at, fresh] = kept.emplace(knob.name, where);
      EXPECT_EQ(at->second, where) << knob.name;
    }
  }
  EXPECT_EQ(owner_of("sharding_strategy")->system, systems::kFsdpSystem);
  EXPECT_EQ(owner_of("zero_stage"), nullptr);
}

// A Run's file holds names: each shipped word must be read as what it is.
TEST(Systems, EveryWordReadsAsItself) {
  for (const SystemRecord& s : all_systems())
    for (const OpWord& word : s.words) {
      std::string name = word.name;
      bool number = word.kind.of == Of::Number || word.kind.of == Of::Bucket;
      if (word.kind.of != Of::Nothing) name += number ? "3" : "fc.weight";
      std::optional<OpKind> read = kind_of("micro1/" + name);
      ASSERT_TRUE(read) << name;
      EXPECT_EQ(read->does, word.kind.does) << name;
      EXPECT_EQ(read->phase, word.kind.phase) << name;
      EXPECT_EQ(read->operation, word.kind.operation) << name;
      EXPECT_EQ(carries_tensors(*read), carries_tensors(word.kind)) << name;
    }
}

}  // namespace
}  // namespace ddpsim::systems
