// DeepSpeed ZeRO. Its collectives are held against recorded ones by tests/oracle/zero_lowered.py;
// here are closed forms, and what no recording has.
#include "sim/systems/zero/zero.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/cost/roofline.h"
#include "sim/predict/predict.h"
#include "sim/systems/base/settings.h"
#include "sim/systems/zero/plan.h"
#include "tests/support/support.h"
#include "tests/support/systems.h"

namespace ddpsim::systems {
namespace {

Plan zero(int stage) {
  Plan p;
  p.system = systems::kZeroSystem;
  zero_of(p).stage = stage;
  return p;
}
// Every weight is gathered for forward, and again for backward.
Plan gathering_twice() {
  Plan p = zero(3);
  zero_of(p).stage3_prefetch_bucket_size = 0;
  zero_of(p).stage3_max_reuse_distance = 0;
  zero_of(p).stage3_param_persistence_threshold = 0;
  return p;
}
Workload halves(const std::string& name, DType type = DType::BFloat16) {
  Workload w = test::workload(name);
  w.precision = type == DType::BFloat16 ? Precision::Bf16 : Precision::Fp16;
  w.casting = Casting::MasterWeights;
  for (Tensor& t : w.tensors) t.dtype = type;
  return w;
}

struct Listed {
  Workload w;
  StepTimes times;
  Program program;
  Listed(Workload workload, const Plan& plan, int ranks)
      : w(std::move(workload)),
        times(predict::step_times(w, test::profile("h100-sxm.datasheet"), Level::Mid)),
        program(lower({w, times, DeviceKind::Gpu, ranks}, plan)) {}
  Listed(const std::string& name, const Plan& plan, int ranks)
      : Listed(test::workload(name), plan, ranks) {}
  const StepProgram& steady() const { return program.steady; }
  std::string name(std::uint32_t i) const { return name_of(program, steady(), i); }
  std::vector<std::uint32_t> all(const std::string& start) const {
    std::vector<std::uint32_t> out;
    for (std::uint32_t i = 0; i < steady().ops.size(); ++i)
      if (name(i).starts_with(start)) out.push_back(i);
    return out;
  }
  std::int64_t bytes(Operation o) const {
    std::int64_t sum = 0;
    for (const Op& op : steady().ops)
      if (is_collective(op.kind) && op.kind.operation == o) sum += op.bytes;
    return sum;
  }
  std::int64_t traffic(const std::string& start) const {
    std::int64_t sum = 0;
    for (std::uint32_t i : all(start)) sum += steady().ops[i].traffic;
    return sum;
  }
  // What a rank sends, in units of (n - 1) / n bytes.
  std::int64_t sent() const {
    return 2 * bytes(Operation::AllReduce) + bytes(Operation::AllGather) +
           bytes(Operation::ReduceScatter);
  }
};

// Of n ranks each sends 2 (n - 1) / n of what is all-reduced, and (n - 1) / n of what is gathered
// or scattered: DDP 2 M, ZeRO-1 and 2 by default 3 M, ZeRO-3 with two gatherings 3 M.
TEST(Zero, AStepMovesHalfAsMuchAgainAsDdp) {
  for (int ranks : {2, 3, 8, 64}) {
    const std::int64_t m = test::workload("resnet50").gradient_bytes().count;
    const std::int64_t scalars = 2 * 8;
    Listed ddp("resnet50", Plan{}, ranks);
    EXPECT_EQ(2 * ddp.bytes(Operation::AllReduce), 2 * m);
    for (int stage : {1, 2}) {
      Listed l("resnet50", zero(stage), ranks);
      EXPECT_GE(l.sent(), 3 * m) << stage;
      EXPECT_LE(l.sent(), 3 * m + scalars + 4 * 2 * ranks) << stage << ": padding of a shard";
    }
    Listed l("resnet50", gathering_twice(), ranks);
    const auto tensors = static_cast<std::int64_t>(l.w.tensors.size());
    EXPECT_GE(l.bytes(Operation::AllGather), 2 * m);
    EXPECT_LE(l.bytes(Operation::AllGather), 2 * (m + tensors * 4 * ranks)) << "padding of each";
    EXPECT_GE(l.bytes(Operation::ReduceScatter), m);
    EXPECT_LE(l.bytes(Operation::ReduceScatter), m + tensors * 4 * ranks);
  }
}

// The next use of everything is nearer than 1e9 elements: one gathering serves both passes.
TEST(Zero, ModelsBelowTheReuseDistanceAreGatheredOnce) {
  Listed l("resnet50", zero(3), 8);
  const std::int64_t m = l.w.gradient_bytes().count;
  const auto tensors = static_cast<std::int64_t>(l.w.tensors.size());
  EXPECT_GE(l.bytes(Operation::AllGather), m);
  EXPECT_LE(l.bytes(Operation::AllGather), m + tensors * 4 * 8);
  EXPECT_TRUE(l.all("all_gather/bwd.").empty());
  Plan twice = gathering_twice();
  EXPECT_FALSE(Listed("resnet50", twice, 8).all("all_gather/bwd.").empty());
}

TEST(Zero, ShardsAreEqualAndCoverEverything) {
  Workload w = test::workload("bert-base");
  for (bool turns : {false, true})
    for (std::int64_t ranks : {1, 3, 8}) {
      ZeroPlan plan;
      plan.round_robin_gradients = turns;
      ZeroPartition p(w, plan, ranks);
      EXPECT_GE(p.shard() * ranks, w.elements());
      EXPECT_LT(p.shard() * ranks, w.elements() + 2 * ranks);
      std::map<std::int64_t, std::int64_t> owned;
      for (std::size_t t = 0; t < w.tensors.size(); ++t) {
        std::int64_t at = 0;
        for (const auto& s : p.slices(static_cast<TensorIndex>(t))) {
          EXPECT_EQ(s.from, at);
          at += s.elements;
          owned[s.rank] += s.elements;
        }
        EXPECT_EQ(at, w.tensors[t].elements());
      }
      for (const auto& [rank, elements] : owned) EXPECT_LE(elements, p.shard()) << rank;
    }
}

// A parameter above reduce_bucket_size is not copied, and is cut where a shard ends.
TEST(Zero, AParameterAboveTheBucketIsCutWhereShardsEnd) {
  Plan p = zero(2);
  zero_of(p).reduce_bucket_size = 100'000;
  Listed l("vgg16", p, 8);
  const ZeroPartition shards(l.w, zero_of(p), 8);
  std::size_t parts = 0;
  for (std::size_t t = 0; t < l.w.tensors.size(); ++t)
    if (l.w.tensors[t].name == "classifier.0.weight")
      for (const auto& s : shards.slices(static_cast<TensorIndex>(t))) {
        ++parts;
        auto cut = std::find_if(
            l.steady().buckets.begin(), l.steady().buckets.end(), [&](const Bucket& b) {
              return b.tensors == std::vector<TensorIndex>{static_cast<TensorIndex>(t)} &&
                     b.slices.size() == 1 && b.slices.front().from == s.from;
            });
        ASSERT_NE(cut, l.steady().buckets.end());
        EXPECT_EQ(cut->bytes.count, 4 * s.elements);
      }
  EXPECT_GT(parts, 1u);
  EXPECT_TRUE(l.all("to_bucket/classifier.0.weight").empty());
  EXPECT_EQ(l.bytes(Operation::AllReduce), l.w.gradient_bytes().count + 4);
}

TEST(Zero, OnlyStageOneWaitsForTheLastMicroStep) {
  for (int stage : {1, 2, 3}) {
    Plan p = zero(stage);
    p.accumulation_steps = 3;
    Listed l("resnet50", p, 8);
    const std::int64_t times = stage == 1 ? 1 : 3;
    const std::int64_t reduced =
        stage == 3 ? l.bytes(Operation::ReduceScatter) : l.bytes(Operation::AllReduce);
    const std::int64_t m = l.w.gradient_bytes().count;
    EXPECT_GE(reduced, times * m) << stage;
    EXPECT_LT(reduced, times * m + m / 100) << stage;
    EXPECT_EQ(l.all("micro2/accumulate/").size(), stage == 1 ? l.w.arrival.size() : 0u);
    EXPECT_EQ(l.all("micro2/accumulate_shard").size(), stage == 2 ? 1u : 0u);
    EXPECT_EQ(l.all("micro1/wait/timer").size(), 1u) << "DeepSpeed's timer, in each";
  }
}

TEST(Zero, OverlapPutsReductionsOnAStreamThatComputationWaitsForOneBucketLater) {
  Plan p = zero(2);
  zero_of(p).overlap_comm = true;
  zero_of(p).reduce_bucket_size = 3'000'000;
  Listed l("resnet50", p, 8);
  EXPECT_EQ(l.program.streams, std::vector<std::string>{"reduce"});
  std::vector<std::uint32_t> reductions = l.all("keep_shard/bucket.");
  ASSERT_GT(reductions.size(), 3u);
  // Once bucket k is handed over, computation waits for bucket k - 1, and for none later.
  std::uint32_t latest = kNoOp;
  for (std::uint32_t i = 0; i < l.steady().ops.size(); ++i) {
    const Op& op = l.steady().ops[i];
    if (op.lane != Lane::Compute || is_update(op.kind)) continue;
    for (std::uint32_t d : deps_of(l.steady(), i))
      for (std::size_t k = 0; k < reductions.size(); ++k)
        if (d == reductions[k] && k + 1 < reductions.size()) {
          EXPECT_GT(i, reductions[k + 1]);
          latest = i;
        }
  }
  EXPECT_NE(latest, kNoOp);
  EXPECT_EQ(l.all("wait/reductions").size(), 1u);
  for (std::uint32_t i : l.all("keep_shard/")) EXPECT_EQ(l.steady().ops[i].lane, stream(0));
}

TEST(Zero, HalvesAreHalfTheBytesAndKeepACopyOfFour) {
  for (int stage : {1, 2, 3}) {
    Listed whole("gpt2-small", zero(stage), 8);
    Listed half(halves("gpt2-small"), zero(stage), 8);
    const double n = static_cast<double>(whole.bytes(Operation::AllGather));
    EXPECT_NEAR(static_cast<double>(half.bytes(Operation::AllGather)) / n, 0.5, 1e-6);
    EXPECT_EQ(half.traffic("optimizer/"), whole.traffic("optimizer/")) << "over four bytes";
    EXPECT_TRUE(half.all("allreduce/overflow").empty());
    EXPECT_EQ(half.all("allreduce/grad_norm").size(), 1u);
    Listed scaled(halves("gpt2-small", DType::Float16), zero(stage), 8);
    EXPECT_EQ(scaled.all("allreduce/overflow").size(), 1u);
    EXPECT_EQ(scaled.all("wait/overflow").size(), 1u);
  }
}

TEST(Zero, TheOptimizerUpdatesAShard) {
  Listed alone("gpt2-small", zero(2), 1);
  Listed eight("gpt2-small", zero(2), 8);
  EXPECT_NEAR(static_cast<double>(alone.traffic("optimizer/")) /
                  static_cast<double>(eight.traffic("optimizer/")),
              8, 1e-4);
  Plan p = zero(3);
  zero_of(p).sub_group_size = 1'000'000;
  Listed grouped("gpt2-small", p, 8);
  EXPECT_GT(grouped.all("optimizer/").size(), 5u);
  EXPECT_EQ(grouped.all("optimizer/").size(), grouped.all("allreduce/grad_norm.").size());
  EXPECT_NEAR(static_cast<double>(grouped.traffic("optimizer/")),
              static_cast<double>(eight.traffic("optimizer/")), 1e6);
}

TEST(Zero, SmallParametersStayWholeBetweenSteps) {
  Listed l("gpt2-small", zero(3), 8);
  std::size_t small = 0;
  for (const Tensor& t : l.w.tensors) small += t.elements() <= 100'000;
  EXPECT_EQ(l.all("all_gather/persistent.").size(), small);
  Plan none = zero(3);
  zero_of(none).stage3_param_persistence_threshold = 0;
  EXPECT_TRUE(Listed("gpt2-small", none, 8).all("all_gather/persistent.").empty());
}

TEST(Zero, ModulesAreThoseThatPytorchCalls) {
  auto names = [](const char* workload) {
    std::vector<std::string> out;
    for (const ZeroModule& m : zero_trace(test::workload(workload)).modules) out.push_back(m.name);
    return out;
  };
  auto has = [](const std::vector<std::string>& all, const char* name) {
    return std::find(all.begin(), all.end(), name) != all.end();
  };
  std::vector<std::string> gpt = names("gpt2-small");
  EXPECT_EQ(gpt.front(), "");
  EXPECT_TRUE(has(gpt, "transformer") && has(gpt, "transformer.h.3") &&
              has(gpt, "transformer.h.3.attn") && has(gpt, "transformer.drop"));
  EXPECT_FALSE(has(gpt, "transformer.h")) << "a ModuleList";
  EXPECT_FALSE(has(gpt, "transformer.h.3.attn.scores")) << "a product";
  std::vector<std::string> resnet = names("resnet50");
  EXPECT_TRUE(has(resnet, "layer1") && has(resnet, "layer1.0.downsample")) << "Sequentials";
  ZeroTrace vit = zero_trace(test::workload("vit-b-16"));
  for (const ZeroModule& m : vit.modules) {
    EXPECT_NE(m.name, "class_token");
    EXPECT_NE(m.name, "encoder.pos_embedding") << "a parameter of the encoder itself";
    if (m.name.empty() || m.name == "encoder") {
      EXPECT_EQ(m.tensors.size(), 1u);
    }
  }
  std::size_t owned = 0;
  for (const ZeroModule& m : vit.modules) owned += m.tensors.size();
  EXPECT_EQ(owned, test::workload("vit-b-16").tensors.size());
  // The head shares the embedding's weights; an embedding's input is not differentiated.
  ZeroTrace t = zero_trace(test::workload("gpt2-small"));
  for (const ZeroModule& m : t.modules) {
    if (m.name == "lm_head") {
      EXPECT_EQ(m.tensors, std::vector<TensorIndex>{0});
    }
    if (m.name == "transformer.wte" || m.name == "transformer.wpe") {
      EXPECT_FALSE(m.differentiable);
    }
  }
}

// A lane is in order, so its last operation stands for those before: without that, edges grow with
// the square of the layers.
TEST(Zero, ADeviceWaitsForOneOperationOfALane) {
  Plan plan = gathering_twice();
  zero_of(plan).overlap_comm = true;
  for (const Plan& p : {plan, zero(2)}) {
    Listed l("bert-large", p, 8);
    for (std::uint32_t i = 0; i < l.steady().ops.size(); ++i) {
      std::map<Lane, int> waits;
      for (std::uint32_t dep : deps_of(l.steady(), i)) ++waits[l.steady().ops[dep].lane];
      for (const auto& [lane, count] : waits)
        EXPECT_LE(count, lane == Lane::Host ? 2 : 1) << l.name(i);
    }
  }
}

TEST(Zero, OneRankGathersNothing) {
  Listed l("gpt2-small", zero(3), 1);
  EXPECT_EQ(l.bytes(Operation::AllGather), 0);
}

// ---- the whole way

Scenario scenario(const Plan& plan, int ranks) {
  Scenario s;
  s.plan = plan;
  s.ranks = ranks;
  return s;
}
predict::Prediction ask(const Plan& plan, int ranks, const char* cluster = "gpu-ethernet-100g") {
  Workload w = test::workload("gpt2-small");
  topology::Fabric fabric(test::cluster(cluster));
  Profile p = test::profile(fabric.cluster().profile);
  Scenario s = scenario(plan, ranks);
  predict::Question q{w, fabric, p, s};
  EXPECT_FALSE(predict::check(q)) << predict::check(q).message;
  return predict::predict(q);
}

TEST(ZeroStep, HidesWhatItReducesMeanwhileOnlyIfItOverlaps) {
  Plan p = zero(2);
  zero_of(p).reduce_bucket_size = 10'000'000;
  predict::Prediction blocking = ask(p, 8);
  zero_of(p).overlap_comm = true;
  predict::Prediction overlapping = ask(p, 8);
  EXPECT_LT(overlapping.summary.step, blocking.summary.step);
  EXPECT_LT(blocking.summary.overlap, 0.01);
  EXPECT_GT(overlapping.summary.overlap, 0.2);
}

// The host issues the next module's all-gather while this one computes, prefetching or not; what is
// gathered with others is there later.
TEST(ZeroStep, ReducingOnTheComputeStreamExposesIt) {
  Plan p = zero(3);
  zero_of(p).reduce_bucket_size = 10'000'000;
  Plan one = p;
  zero_of(one).overlap_comm = false;
  EXPECT_GT(ask(one, 8).summary.exposed_communication, ask(p, 8).summary.exposed_communication);
  zero_of(p).stage3_prefetch_bucket_size = 0;
  EXPECT_GT(ask(p, 8).summary.overlap, 0.3);
}

TEST(ZeroStep, EachStageHoldsLessThanTheOneBefore) {
  // At its peak in a step.
  auto most = [](const Plan& plan, int ranks, Holds holds) {
    const Program p = Listed("gpt2-small", plan, ranks).program;
    std::int64_t now = p.resident[holds];
    std::int64_t out = now;
    for (const MemoryChange& c : p.steady.memory)
      if (c.holds == holds) {
        out = std::max(out, now += c.bytes);
        EXPECT_GE(now, 0) << name_of(holds) << " at " << name_of(p, p.steady, c.op);
      }
    EXPECT_EQ(now, p.resident[holds]) << name_of(holds);
    return out;
  };
  Plan one = zero(1);
  zero_of(one).overlap_comm = false;
  EXPECT_GT(most(one, 8, Holds::Gradients), most(zero(2), 8, Holds::Gradients));
  EXPECT_GT(most(zero(2), 2, Holds::OptimizerState), most(zero(2), 8, Holds::OptimizerState));
  EXPECT_GT(most(zero(2), 8, Holds::Parameters), most(zero(3), 8, Holds::Parameters));
  for (int stage : {1, 2, 3})
    for (Holds h : {Holds::Activations, Holds::Buckets, Holds::Gathered, Holds::Temporaries})
      most(zero(stage), 8, h);
  Plan few = zero(3);
  zero_of(few).stage3_max_live_parameters = 1'000'000;
  zero_of(few).stage3_max_reuse_distance = 0;
  EXPECT_GT(most(zero(3), 8, Holds::Gathered), most(few, 8, Holds::Gathered));
}

TEST(ZeroStep, BothFidelitiesAgree) {
  Plan to_owners = zero(2);
  zero_of(to_owners).use_multi_rank_bucket_allreduce = false;
  for (const char* cluster : {"gpu-ethernet-100g", "hgx-h100"})
    for (const Plan& plan : {zero(2), zero(3), to_owners}) {
      Workload w = test::workload("resnet50");
      topology::Fabric fabric(test::cluster(cluster));
      Profile p = test::profile(fabric.cluster().profile);
      Scenario s = scenario(plan, 4);
      predict::Question q{w, fabric, p, s};
      predict::Options by_message;
      by_message.fidelity = predict::Fidelity::Message;
      auto step = [&](const predict::Options& o) {
        return static_cast<double>(predict::predict(q, o).summary.step.ps);
      };
      EXPECT_NEAR(step({}) / step(by_message), 1, 0.01) << cluster << " " << zero_of(plan).stage;
    }
}

// dist.reduce() of what each rank owns: half an all-reduce.
TEST(Zero, WhatARankOwnsIsReducedToItWhereBucketsAreNotAllReduced) {
  Plan p = zero(2);
  zero_of(p).use_multi_rank_bucket_allreduce = false;
  Listed l("resnet50", p, 8);
  EXPECT_EQ(l.bytes(Operation::Reduce), l.w.gradient_bytes().count);
  EXPECT_EQ(l.bytes(Operation::AllReduce), 4) << "the norm";
  EXPECT_EQ(l.all("reduce/bucket.").size(), 8u);
}

// stage_1_and_2.py reduces first what a gradient would carry beyond the limit: a bucket may be
// full.
TEST(Zero, ABucketThatIsExactlyFullIsReducedOnce) {
  const Workload w = test::layered(4, 4000, kMillisecond, kMillisecond);  // 1,000 elements each
  for (int stage : {1, 2}) {
    Plan p = zero(stage);
    zero_of(p).reduce_bucket_size = 2000;
    EXPECT_EQ(Listed(w, p, 2).all("allreduce/bucket.").size(), 2u) << stage;
    zero_of(p).reduce_bucket_size = 1999;
    EXPECT_EQ(Listed(w, p, 2).all("allreduce/bucket.").size(), 4u) << stage;
  }
}

// 1,000 elements of three ranks: a rank keeps 334 of them.
TEST(Zero, AShardOfABucketIsRoundedUp) {
  const Listed l(test::layered(1, 4000, kMillisecond, kMillisecond), zero(2), 3);
  std::int64_t made = 0;
  for (const MemoryChange& c : l.steady().memory)
    if (c.holds == Holds::Gradients && c.bytes > 0) made += c.bytes;
  EXPECT_EQ(made, 4000 + 4 * 334);
}

// g.data.double().norm(2): gradients are read, doubles of eight bytes written and read.
TEST(Zero, TheNormIsOfDoubles) {
  const Workload singles = test::layered(2, 4000, kMillisecond, kMillisecond);
  for (int ranks : {1, 2})
    EXPECT_EQ(Listed(singles, zero(2), ranks).traffic("grad_norm/"), (4 + 16) * 2000 / ranks);
  const Listed l(halves("resnet18"), zero(2), 1);
  EXPECT_EQ(l.traffic("grad_norm/"), (2 + 16) * l.w.elements());
}

// partitioned_param_coordinator.py looks ahead while it has fewer elements than the limit.
TEST(Zero, APrefetchThatIsExactlyFullTakesNoMore) {
  Plan p = gathering_twice();
  const auto second = [&](std::int64_t limit) {  // tensors of the second gathering
    zero_of(p).stage3_prefetch_bucket_size = limit;
    Listed l("resnet50", p, 8);
    const Op& op = l.steady().ops[l.all("all_gather/bucket.").at(1)];
    return l.steady().buckets[op.subject].tensors.size();
  };
  EXPECT_EQ(second(64), 1u) << "bn1.weight";
  EXPECT_EQ(second(65), 2u) << "and bn1.bias";
}

TEST(ZeroPlans, AreRefusedWhereNothingIsKnown) {
  Workload w = test::workload("gpt2-small");
  auto refused = [&](auto change) {
    Plan p = zero(2);
    change(p);
    return validate(p, w, DeviceKind::Gpu).path;
  };
  EXPECT_EQ(refused([](Plan&) {}), "");
  EXPECT_EQ(refused([](Plan& p) { zero_of(p).allgather_bucket_size = 3; }),
            "/plan/allgather_bucket_size");
  EXPECT_EQ(refused([](Plan& p) { zero_of(p).reduce_bucket_size = -1; }),
            "/plan/reduce_bucket_size");
  EXPECT_EQ(refused([](Plan& p) { p.unused_parameters = {"lm_head.weight"}; }),
            "/plan/unused_parameters");
  EXPECT_EQ(validate(zero(2), w, DeviceKind::Cpu).path, "/plan/system");
  w.layers.clear();
  EXPECT_EQ(validate(zero(3), w, DeviceKind::Gpu).path, "/plan/stage");
  EXPECT_EQ(validate(zero(1), w, DeviceKind::Gpu).path, "");
  Workload pure = halves("gpt2-small");
  pure.casting = Casting::Pure;
  EXPECT_EQ(validate(zero(2), pure, DeviceKind::Gpu).path, "/workload/casting");
  Workload scaled = halves("gpt2-small", DType::Float16);
  EXPECT_EQ(validate(zero(2), scaled, DeviceKind::Gpu).path, "");
  scaled.loop.grad_scaler = true;
  EXPECT_EQ(validate(zero(2), scaled, DeviceKind::Gpu).path, "/workload/loop/grad_scaler");
}

}  // namespace
}  // namespace ddpsim::systems
