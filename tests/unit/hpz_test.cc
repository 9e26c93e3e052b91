// ZeRO++'s hpZ. Order and bytes are held against tests/oracle/hpz_lowered.py; here are volumes, and
// what a rank holds.
#include <string>

#include <gtest/gtest.h>

#include "sim/collective/backend/nccl.h"
#include "sim/cost/roofline.h"
#include "sim/predict/predict.h"
#include "sim/systems/base/lower.h"
#include "sim/systems/zero/plan.h"
#include "sim/systems/zero/zero.h"
#include "tests/support/support.h"
#include "tests/support/systems.h"

namespace ddpsim::systems {
namespace {

Plan hpz(std::int64_t group) {
  Plan p;
  p.system = systems::kZeroSystem;
  zero_of(p).stage = 3;
  zero_of(p).stage3_prefetch_bucket_size = 0;
  zero_of(p).stage3_max_reuse_distance = 0;
  zero_of(p).stage3_param_persistence_threshold = 0;
  zero_of(p).zero_hpz_partition_size = group;
  return p;
}
Program lowered(const Plan& plan, int ranks) {
  const Workload w = test::workload("gpt2-small");
  const StepTimes times = predict::step_times(w, test::profile("h100-sxm.datasheet"), Level::Mid);
  return lower({w, times, DeviceKind::Gpu, ranks, 8}, plan);
}
std::int64_t gathered(const Program& p, std::uint8_t group) {
  std::int64_t sum = 0;
  for (const Op& op : p.steady.ops)
    if (is_collective(op.kind) && op.kind.operation == Operation::AllGather && op.group == group)
      sum += op.bytes;
  return sum;
}

// Of M bytes forward gathers all among n ranks, backward in groups of h: (n - 1)/n M, (h - 1)/h M.
TEST(Hpz, BackwardGathersInsideTheGroup) {
  const std::int64_t m = test::workload("gpt2-small").gradient_bytes().count;
  for (int ranks : {8, 16}) {
    const Program plain = lowered(hpz(1), ranks);
    const Program grouped = lowered(hpz(8), ranks);
    ASSERT_EQ(grouped.groups.size(), 1u);
    EXPECT_EQ(grouped.groups[0], (RankGroups{"secondary", 8, 1}));
    EXPECT_EQ(gathered(grouped, 0) + gathered(grouped, kSecondaryGroup), gathered(plain, 0));
    EXPECT_GE(gathered(grouped, 0), m);
    EXPECT_LT(gathered(grouped, 0), m + m / 100) << "padding of each parameter";
  }
}

// ---- qwZ

Workload halves() {
  Workload w = test::workload("gpt2-small");
  w.precision = Precision::Fp16;
  w.casting = Casting::MasterWeights;
  for (Tensor& t : w.tensors) t.dtype = DType::Float16;
  return w;
}
Program quantised(bool quantises, int ranks, std::int64_t hpz_group = 1) {
  const Workload w = halves();
  const StepTimes times = predict::step_times(w, test::profile("h100-sxm.datasheet"), Level::Mid);
  Plan plan = hpz(hpz_group);
  zero_of(plan).zero_quantized_weights = quantises;
  return lower({w, times, DeviceKind::Gpu, ranks, 8}, plan);
}

// The fewest groups that part n / 8, each of at most 8,000.
TEST(Qwz, GroupsAreTheFewestThatPart) {
  for (const auto& [elements, groups] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{8, 1},
                                                          {8000, 1},
                                                          {8008, 7},
                                                          {16000, 2},
                                                          {16008, 3},
                                                          {8 * 7919, 7919},
                                                          {24'000'000, 3000}}) {
    EXPECT_EQ(quantisation_groups(elements), groups) << elements;
    EXPECT_EQ(elements % (8 * quantisation_groups(elements)), 0);
  }
}

// A byte an element, and four a group: half of what float16 takes, and a little.
TEST(Qwz, GathersBytesAndScales) {
  for (std::int64_t group : {1, 8}) {
    const Program plain = quantised(false, 16, group);
    const Program bytes = quantised(true, 16, group);
    std::int64_t weights = 0, scales = 0, expected = 0;
    for (const Op& op : bytes.steady.ops) {
      if (!is_collective(op.kind) || op.kind.operation != Operation::AllGather) continue;
      (op.dtype == DType::UInt8 ? weights : scales) += op.bytes;
      if (op.dtype != DType::UInt8) continue;
      const std::int64_t ranks = op.group == kSecondaryGroup ? group : 16;
      expected += 4 * ranks * quantisation_groups(op.bytes / ranks);
    }
    EXPECT_EQ(2 * weights, gathered(plain, 0) + gathered(plain, kSecondaryGroup));
    EXPECT_EQ(scales, expected);
    EXPECT_LT(scales, weights / 100);
  }
}

TEST(Qwz, WhatIsBesideIsFreedAgain) {
  for (const Program& p : {quantised(true, 8), quantised(true, 16, 8)}) {
    std::int64_t sum = 0, made = 0;
    for (const MemoryChange& c : p.steady.memory)
      if (c.holds == Holds::Temporaries) sum += c.bytes, made += c.bytes > 0;
    EXPECT_EQ(sum, 0);
    EXPECT_GT(made, 100);
  }
}

// ---- qgZ

// Two hosts of eight. Four bits an element and a scale a row inside a host, an eighth of that
// between hosts; what has one dimension is scattered as it was.
TEST(Qgz, MovesHalfAByteInTheHostAndAnEighthOfThatBetween) {
  Workload w = halves();
  w.tensors.front().shape = {50'272, 768};  // padded, as 16 ranks need
  const StepTimes times = predict::step_times(w, test::profile("h100-sxm.datasheet"), Level::Mid);
  Plan plan = hpz(1);
  zero_of(plan).zero_quantized_gradients = true;
  const Program p = lower({w, times, DeviceKind::Gpu, 16, 8}, plan);
  ASSERT_EQ(p.groups.size(), 2u);
  EXPECT_EQ(p.groups[0], (RankGroups{"local", 8, 1}));
  EXPECT_EQ(p.groups[1], (RankGroups{"across", 2, 8}));
  std::int64_t quantised_elements = 0, scales = 0, flat = 0;
  for (const Tensor& t : w.tensors) {
    const std::int64_t groups = gradient_groups(t, 16);
    EXPECT_EQ(groups > 0, t.shape.size() == 2) << t.name;
    (groups > 0 ? quantised_elements : flat) += t.elements();
    scales += groups;
  }
  std::int64_t local = 0, across = 0, scattered = 0;
  for (const Op& op : p.steady.ops) {
    if (!is_collective(op.kind)) continue;
    if (op.kind.operation == Operation::ReduceScatter) scattered += op.bytes;
    if (op.kind.operation != Operation::AllToAll) continue;
    (op.group == local_group(zero_of(plan), 16) ? local : across) += op.bytes;
  }
  EXPECT_EQ(local, quantised_elements / 2 + 4 * scales);
  EXPECT_EQ(8 * across, local);
  EXPECT_EQ(scattered, 2 * flat);
  std::int64_t beside = 0;
  for (const MemoryChange& c : p.steady.memory)
    if (c.holds == Holds::Temporaries) beside += c.bytes;
  EXPECT_EQ(beside, 0) << "what is beside is freed again";
  // One host: as without it.
  EXPECT_TRUE(lower({w, times, DeviceKind::Gpu, 8, 8}, plan).groups.empty());
}

TEST(Qgz, GradientsThatNoExchangePartsAreScattered) {
  EXPECT_EQ(gradient_groups({"a", {64, 96}, DType::Float16}, 16), 96);
  EXPECT_EQ(gradient_groups({"a", {4, 8, 3, 3}, DType::Float16}, 16), 16);
  EXPECT_EQ(gradient_groups({"a", {5, 7}, DType::Float16}, 4), 0);
  EXPECT_EQ(gradient_groups({"a", {6144}, DType::Float16}, 16), 0);
}

// An all-to-all of a communicator takes what its messages take.
TEST(Qgz, AnAllToAllIsPricedAsItsMessages) {
  Cluster c = test::cluster("dgx-h100");
  c.hosts = 2;
  const topology::Fabric fabric(c);
  const Profile profile = test::profile(c.profile);
  for (const std::vector<DeviceId>& devices : {first_devices(8), std::vector<DeviceId>{3, 11}}) {
    collective::Communicator comm =
        collective::make_nccl_communicator(fabric, devices, {}, profile.compute.capability);
    EXPECT_FALSE(collective::performs(comm, Operation::AllToAll));
    collective::add_all_to_all(comm);
    const collective::Communicator copy = comm;
    EXPECT_TRUE(collective::performs(copy, Operation::AllToAll));
    for (std::int64_t bytes : {std::int64_t{64}, std::int64_t{1} << 16, std::int64_t{1} << 26}) {
      const collective::Price price =
          collective::price(copy, profile, Level::Mid, Operation::AllToAll, {bytes});
      const nccl::OperationTime found =
          nccl::p2p_time(nccl::make_p2p(*nccl_group(comm), Operation::AllToAll), profile,
                         Level::Mid, {bytes})
              .price;
      EXPECT_EQ(price.alone, found.total) << bytes;
      ASSERT_EQ(price.phases.size(), 1u);
      const collective::Phase& phase = price.phases.front();
      EXPECT_NEAR(static_cast<double>(phase.latency.ps) + phase.work / phase.max_rate,
                  static_cast<double>(found.total.ps), 2.0)
          << bytes;
      // No link is slower than that.
      for (const auto& l : copy.pattern(price.pattern).load)
        EXPECT_LE(phase.max_rate * l.per_byte,
                  collective::link_rate(copy, profile, Level::Mid, l.link) * (1 + 1e-9));
    }
  }
}

TEST(Hpz, OfOneRankItIsPlainZero) {
  auto listed = [](const Plan& plan) {
    const Program p = lowered(plan, 8);
    std::vector<std::string> out;
    for (std::uint32_t i = 0; i < p.steady.ops.size(); ++i)
      out.push_back(name_of(p, p.steady, i) + " " + std::to_string(p.steady.ops[i].bytes) + " " +
                    std::to_string(p.steady.ops[i].traffic));
    return out;
  };
  Plan plain = hpz(1);
  zero_of(plain).zero_hpz_partition_size = ZeroPlan{}.zero_hpz_partition_size;
  EXPECT_EQ(listed(hpz(0)), listed(plain));
  EXPECT_EQ(listed(hpz(1)), listed(plain));
}

// A second copy of the weights, in shards of the group, from their release to the step's end.
TEST(Hpz, ARankHoldsItsPartOfTheSecondCopy) {
  const std::int64_t m = test::workload("gpt2-small").gradient_bytes().count;
  for (std::int64_t group : {2, 8}) {
    const Program p = lowered(hpz(group), 8);
    std::int64_t now = 0, most = 0;
    for (const MemoryChange& c : p.steady.memory)
      if (c.holds == Holds::Parameters) most = std::max(most, now += c.bytes);
    EXPECT_EQ(now, 0);
    EXPECT_GE(most, m / group);
    EXPECT_LT(most, m / group + m / 100);
  }
}

// What is never released before the step needs no second copy until then.
TEST(Hpz, ModelsBelowTheReuseDistanceGatherNothingAgain) {
  Plan plan = hpz(8);
  zero_of(plan).stage3_max_reuse_distance = 1'000'000'000;
  EXPECT_EQ(gathered(lowered(plan, 16), kSecondaryGroup), 0);
}

TEST(HpzStep, BothFidelitiesAgreeAndGroupsInsideHostsGatherFaster) {
  Workload w = test::workload("resnet50");
  Cluster cluster = test::cluster("hgx-h100");
  cluster.hosts = 2;
  const topology::Fabric fabric(cluster);
  const Profile p = test::profile(cluster.profile);
  auto step = [&](const Plan& plan, predict::Fidelity fidelity) {
    Scenario s;
    s.plan = plan;
    s.ranks = 16;
    predict::Options o;
    o.fidelity = fidelity;
    return predict::predict({w, fabric, p, s}, o).summary;
  };
  const auto grouped = step(hpz(8), predict::Fidelity::Collective);
  EXPECT_NEAR(static_cast<double>(step(hpz(8), predict::Fidelity::Message).step.ps) /
                  static_cast<double>(grouped.step.ps),
              1, 0.01);
  EXPECT_LT(grouped.communication, step(hpz(1), predict::Fidelity::Collective).communication);
}

}  // namespace
}  // namespace ddpsim::systems
