// Megatron-LM. Its schedule is held against tests/oracle/megatron.py; here are closed forms.
#include "sim/systems/megatron/megatron.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/cost/roofline.h"
#include "sim/predict/predict.h"
#include "sim/systems/averaging/plan.h"
#include "sim/systems/base/lower.h"
#include "sim/systems/megatron/plan.h"
#include "tests/support/support.h"
#include "tests/support/systems.h"

namespace ddpsim::systems {
namespace {

Plan megatron(bool sharded, bool overlaps = false) {
  Plan p;
  p.system = systems::kMegatronSystem;
  megatron_of(p).use_distributed_optimizer = sharded;
  megatron_of(p).overlap_grad_reduce = overlaps;
  megatron_of(p).overlap_param_gather = sharded && overlaps;
  return p;
}
Workload halves(const std::string& name) {
  Workload w = test::workload(name);
  w.precision = Precision::Bf16;
  w.casting = Casting::MasterWeights;
  for (Tensor& t : w.tensors) t.dtype = DType::BFloat16;
  return w;
}

struct ListedShards {
  Workload w;
  StepTimes times;
  Program program;
  ListedShards(Workload workload, const Plan& plan, int ranks)
      : w(std::move(workload)),
        times(predict::step_times(w, test::profile("h100-sxm.datasheet"), Level::Mid)),
        program(lower({w, times, DeviceKind::Gpu, ranks}, plan)) {}
  std::int64_t bytes(Operation o) const {
    std::int64_t sum = 0;
    for (const Op& op : program.steady.ops)
      if (carries_tensors(op.kind) && op.kind.operation == o) sum += op.bytes;
    return sum;
  }
  std::int64_t resident() const {
    std::int64_t sum = 0;
    for (std::int64_t bytes : program.resident) sum += bytes;
    return sum;
  }
};

// Padding: 64 elements a tensor, and a multiple of ranks and 128 a bucket.
std::int64_t padding(const Workload& w, std::int64_t ranks, std::int64_t buckets) {
  return static_cast<std::int64_t>(w.tensors.size()) * 64 + buckets * 128 * ranks;
}

// bf16, gradients in fp32: of M elements each of n ranks sends (n - 1)/n x (4 M + 2 M); without the
// distributed optimizer 2 (n - 1)/n x 4 M. Micro-steps add nothing.
TEST(Megatron, AStepMovesGradientsOfFourBytesAndWeightsOfTwo) {
  for (int ranks : {2, 3, 8, 64})
    for (int micro_steps : {1, 3})
      for (bool overlaps : {false, true}) {
        Plan plan = megatron(true, overlaps);
        plan.accumulation_steps = micro_steps;
        ListedShards l(halves("gpt2-small"), plan, ranks);
        const std::int64_t m = l.w.elements();
        const auto buckets = static_cast<std::int64_t>(l.program.steady.buckets.size());
        const std::int64_t beside = padding(l.w, ranks, buckets);
        EXPECT_GE(l.bytes(Operation::ReduceScatter), 4 * m);
        EXPECT_LE(l.bytes(Operation::ReduceScatter), 4 * (m + beside));
        EXPECT_EQ(2 * l.bytes(Operation::AllGather), l.bytes(Operation::ReduceScatter));
        EXPECT_EQ(l.bytes(Operation::AllReduce), 0);
        plan = megatron(false, overlaps);
        plan.accumulation_steps = micro_steps;
        ListedShards whole(halves("gpt2-small"), plan, ranks);
        EXPECT_EQ(whole.bytes(Operation::AllReduce), 4 * m) << "no padding";
        EXPECT_EQ(whole.bytes(Operation::AllGather), 0);
      }
}

// Between steps, bytes a parameter of n ranks: weights 2, gradients 4, and of the rank's part a
// copy of four and Adam's two states; docs/user-guide/features/dist_optimizer.md: 6 + 12/n, else
// 18; of fp32 8 + 8/n, else 16.
TEST(Megatron, WhatARankHolds) {
  const std::int64_t m = test::workload("gpt2-small").elements();
  EXPECT_EQ(ListedShards(halves("gpt2-small"), megatron(false), 8).resident(), 18 * m);
  EXPECT_EQ(ListedShards(test::workload("gpt2-small"), megatron(false), 8).resident(), 16 * m);
  for (int ranks : {1, 2, 8, 64}) {
    ListedShards half(halves("gpt2-small"), megatron(true), ranks);
    const std::int64_t beside = 18 * padding(half.w, ranks, 1);
    EXPECT_GE(half.resident(), 6 * m + 12 * m / ranks);
    EXPECT_LE(half.resident(), 6 * m + 12 * m / ranks + beside);
    ListedShards single(test::workload("gpt2-small"), megatron(true), ranks);
    EXPECT_GE(single.resident(), 8 * m + 8 * m / ranks);
    EXPECT_LE(single.resident(), 8 * m + 8 * m / ranks + beside);
  }
}

// One rank, fp32, nothing to add to: gradients are all that is copied, and DDP's bytes are reduced.
TEST(Megatron, WithEverythingOffItReducesWhatPlainAveragingReduces) {
  Plan flat;
  flat.system = systems::kAveragingSystem;
  averaging_of(flat).granularity = Granularity::Flat;
  const Workload w = test::workload("resnet50");
  ListedShards averaging(w, flat, 8);
  ListedShards l(w, megatron(false), 8);
  ASSERT_EQ(l.program.steady.buckets.size(), 1u);
  EXPECT_EQ(l.program.steady.buckets.front().wire_bytes.count,
            averaging.program.steady.buckets.front().bytes.count);
  EXPECT_EQ(l.bytes(Operation::AllReduce), averaging.bytes(Operation::AllReduce));
}

// A bucket that holds everything is reduced when the last gradient is there: nothing overlaps.
TEST(Megatron, ABucketOfEverythingIsReducedLikeOneAfterBackward) {
  Plan one = megatron(true, true);
  megatron_of(one).bucket_size = std::int64_t{1} << 40;
  megatron_of(one).overlap_param_gather = false;
  const Workload w = halves("gpt2-small");
  ListedShards hooked(w, one, 8);
  ListedShards after(w, megatron(true), 8);
  auto listed = [](const ListedShards& l) {
    std::vector<std::string> out;
    for (std::uint32_t i = 0; i < l.program.steady.ops.size(); ++i)
      if (!is_launch(l.program.steady.ops[i].kind))
        out.push_back(name_of(l.program, l.program.steady, i));
    return out;
  };
  std::vector<std::string> a = listed(hooked), b = listed(after);
  std::sort(a.begin(), a.end()), std::sort(b.begin(), b.end());
  EXPECT_EQ(a, b);
}

TEST(Megatron, BucketsCloseAtTheirSizeAndEndWhereRanksDivideThem) {
  const Workload w = test::workload("bert-base");
  MegatronPlan plan;
  plan.use_distributed_optimizer = plan.overlap_grad_reduce = true;
  EXPECT_EQ(MegatronBuffer(w, plan, 8).buckets().size(), 3u) << "40e6 of 110e6";
  EXPECT_EQ(MegatronBuffer(w, plan, 64).buckets().size(), 2u) << "64e6";
  plan.bucket_size = 1'000'000;
  for (std::int64_t ranks : {1, 3, 8, 100}) {
    const MegatronBuffer buffer(w, plan, ranks);
    std::int64_t at = 0;
    std::size_t tensors = 0;
    for (const MegatronBuffer::Bucket& b : buffer.buckets()) {
      EXPECT_EQ(b.begin, at);
      EXPECT_EQ(b.padded() % ranks, 0);
      EXPECT_EQ(b.padded() % 128, 0);
      EXPECT_GE(b.padded(), b.elements);
      const std::int64_t last = w.tensors[b.tensors.back()].elements();
      EXPECT_LT(b.padded() - last, 1'000'000 + 128 * ranks + 64 * std::ssize(b.tensors));
      tensors += b.tensors.size();
      at = b.end;
    }
    EXPECT_EQ(tensors, w.tensors.size());
    EXPECT_EQ(buffer.elements(), at);
    EXPECT_GE(buffer.owned().elements * ranks, w.elements());
    EXPECT_LE(buffer.owned().elements, at / ranks);
  }
  plan.pad_buckets_for_high_nccl_busbw = true;
  const MegatronBuffer padded(w, plan, 3);
  for (const MegatronBuffer::Bucket& b : padded.buckets()) EXPECT_EQ(b.padded() % (1 << 16), 0);
  plan.bucket_size = 0;
  plan.num_buckets = 7;
  EXPECT_LE(MegatronBuffer(w, plan, 8).buckets().size(), 7u);
  plan.overlap_grad_reduce = false;
  EXPECT_EQ(MegatronBuffer(w, plan, 8).buckets().size(), 1u);
}

TEST(MegatronStep, BothFidelitiesAgree) {
  for (const char* cluster : {"gpu-ethernet-100g", "hgx-h100"})
    for (const Plan& plan : {megatron(false), megatron(true), megatron(true, true)}) {
      Workload w = test::workload("resnet50");
      topology::Fabric fabric(test::cluster(cluster));
      Profile p = test::profile(fabric.cluster().profile);
      Scenario s;
      s.plan = plan;
      s.ranks = 4;
      predict::Question q{w, fabric, p, s};
      predict::Options by_message;
      by_message.fidelity = predict::Fidelity::Message;
      auto step = [&](const predict::Options& o) {
        return static_cast<double>(predict::predict(q, o).summary.step.ps);
      };
      EXPECT_NEAR(step({}) / step(by_message), 1, 0.01) << cluster;
    }
}

}  // namespace
}  // namespace ddpsim::systems
