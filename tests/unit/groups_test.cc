// Collectives of groups of ranks: which ranks, what they put on links together, how long they take.
#include <algorithm>

#include <gtest/gtest.h>

#include "sim/cost/roofline.h"
#include "sim/predict/given_program.h"
#include "sim/predict/lowered.h"
#include "sim/predict/predict.h"
#include "sim/systems/fsdp/fsdp.h"
#include "sim/systems/fsdp/plan.h"
#include "tests/support/support.h"
#include "tests/support/systems.h"

namespace ddpsim {
namespace {

using Ranks = std::vector<std::vector<int>>;

TEST(RankGroups, PartTheRanks) {
  EXPECT_EQ(members({"shard", 2, 1}, 6), (Ranks{{0, 1}, {2, 3}, {4, 5}}));
  EXPECT_EQ(members({"replicas", 3, 2}, 6), (Ranks{{0, 2, 4}, {1, 3, 5}}));
  EXPECT_EQ(members({"post", 2, 2}, 8), (Ranks{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  for (int size : {1, 2, 4, 8})
    for (int stride : {1, 2, 4}) {
      if (16 % (size * stride) != 0) continue;
      std::vector<int> times(16);
      for (const auto& group : members({"g", size, stride}, 16)) {
        EXPECT_EQ(group.size(), static_cast<std::size_t>(size));
        for (int r : group) ++times[static_cast<std::size_t>(r)];
      }
      EXPECT_EQ(times, std::vector<int>(16, 1)) << size << " " << stride;
    }
}

// A question about a Program of one all-reduce of so many bytes in a group.
struct Job {
  Workload w = test::workload("gpt2-small");
  topology::Fabric fabric;
  Profile profile;
  Scenario s;
  Job(const Cluster& cluster, int ranks)
      : fabric(cluster), profile(test::profile(fabric.cluster().profile)) {
    s.ranks = ranks;
    s.stragglers = false;
  }
  predict::Question question() const { return {w, fabric, profile, s}; }
  static Program program(std::int64_t bytes, std::vector<RankGroups> groups) {
    Program p;
    p.groups = std::move(groups);
    p.words = {"allreduce/"};
    p.labels = {"all"};
    Op op;
    op.kind = {.does = Does::Communicate, .of = Of::Label, .operation = Operation::AllReduce};
    op.lane = Lane::Comm;
    op.subject = 0;
    op.bytes = bytes;
    op.group = p.groups.empty() ? 0 : 1;
    p.steady.ops = {op};
    return p;
  }
  Duration step(std::int64_t bytes, std::vector<RankGroups> groups,
                predict::Fidelity fidelity = predict::Fidelity::Collective) const {
    const Program p = program(bytes, std::move(groups));
    predict::Options o;
    o.program = &p;
    o.fidelity = fidelity;
    EXPECT_FALSE(predict::check_program(p, question(), nullptr));
    return predict::steady_period(question(), Level::Mid, o);
  }
};

Cluster hosts(const char* name, int n) {
  Cluster c = test::cluster(name);
  c.hosts = n;
  return c;
}

TEST(Groups, OfOneHostAreAsFastAsAJobOfThatHost) {
  const std::int64_t bytes = 64 << 20;
  Job four(hosts("hgx-h100", 4), 32);
  Job one(hosts("hgx-h100", 1), 8);
  EXPECT_EQ(four.step(bytes, {{"shard", 8, 1}}), one.step(bytes, {}));
}

// Eight GPUs have NVLS, and groups of two have none: no lever forces it on a given program.
TEST(Groups, HaveNoLeverThatLeavesThemNothing) {
  Job job(hosts("hgx-h100", 1), 8);
  const Program p = Job::program(4, {{"pairs", 2, 1}});
  predict::Options o;
  o.program = &p;
  constexpr double kAny = -1e9;  // whatever it gains
  std::string changes;
  for (const predict::Lever& l : predict::levers(job.question(), Duration{1'000'000}, o, kAny))
    changes += l.change + "\n";
  EXPECT_EQ(changes.find("nvls"), std::string::npos) << changes;
  EXPECT_NE(changes.find("NCCL_"), std::string::npos) << changes;
}

// Where the GPUs of a host have one NIC, groups that cross hosts take turns at it: eight groups
// with an eighth each are no faster than one ring with all.
TEST(Groups, ShareTheNicsThatTheyCross) {
  const std::int64_t bytes = 512 << 20;
  Job box(hosts("pcie-box-8", 2), 16);
  const Duration together = box.step(bytes / 8, {{"replicas", 2, 8}});
  Job apart(hosts("pcie-box-8", 2), 2);
  apart.s.rank_order = {0, 8};
  const Duration alone = apart.step(bytes / 8, {});
  EXPECT_NEAR(static_cast<double>(together.ps) / static_cast<double>(alone.ps), 8, 1.2);
}

// Where each GPU has its own, they do not meet.
TEST(Groups, OnNicsOfTheirOwnDoNotMeet) {
  Job box(hosts("hgx-h100", 2), 16);
  Job apart(hosts("hgx-h100", 2), 2);
  apart.s.rank_order = {0, 8};
  const std::int64_t bytes = 64 << 20;
  const Duration alone = apart.step(bytes, {});
  EXPECT_NEAR(
      static_cast<double>(box.step(bytes, {{"replicas", 2, 8}}).ps) / static_cast<double>(alone.ps),
      1, 0.02);
}

TEST(Groups, TheSlowestDecides) {
  Cluster slow = hosts("hgx-h100", 4);
  const std::int64_t bytes = 256 << 20;
  const std::vector<RankGroups> pairs{{"pairs", 16, 1}};
  const Duration even = Job(slow, 32).step(bytes, pairs);
  slow.slow_links.push_back({3, Bandwidth{40'000'000'000}});
  EXPECT_GT(Job(slow, 32).step(bytes, pairs), even);
}

TEST(Groups, BothFidelitiesAgree) {
  struct Case {
    const char* cluster;
    RankGroups groups;
    double most;
  };
  for (const Case& c : std::vector<Case>{{"hgx-h100", {"shard", 8, 1}, 0.02},
                                         {"hgx-h100", {"replicas", 4, 8}, 0.02},
                                         {"dgx-a100", {"replicas", 8, 4}, 0.1},
                                         {"gpu-ethernet-100g", {"pairs", 2, 1}, 0.02}}) {
    Job job(hosts(c.cluster, 4), 0);
    job.s.ranks = job.fabric.devices();
    if (job.s.ranks % (c.groups.size * c.groups.stride) != 0) {
      ADD_FAILURE() << c.cluster << " has " << job.s.ranks;
      continue;
    }
    const Duration price = job.step(128 << 20, {c.groups});
    const Duration played = job.step(128 << 20, {c.groups}, predict::Fidelity::Message);
    EXPECT_NEAR(static_cast<double>(price.ps) / static_cast<double>(played.ps), 1, c.most)
        << c.cluster << " " << c.groups.name;
  }
}

// ---- systems that have groups

struct Listing {
  Workload w = test::workload("gpt2-small");
  StepTimes times = predict::step_times(w, test::profile("h100-sxm.datasheet"), Level::Mid);
  Program program;
  Listing(const Plan& plan, int ranks, int per_host = 8)
      : program(systems::lower({w, times, DeviceKind::Gpu, ranks, per_host}, plan)) {}
  std::int64_t bytes(Operation o, const std::string& group = "") const {
    std::int64_t sum = 0;
    for (const Op& op : program.steady.ops) {
      if (!is_collective(op.kind) || op.kind.operation != o) continue;
      std::string name = op.group == 0 ? "" : program.groups[op.group - 1u].name;
      if (name == group) sum += op.bytes;
    }
    return sum;
  }
};

Plan fsdp2() {
  Plan p;
  p.system = systems::kFsdp2System;
  return p;
}
Plan hybrid() {
  Plan p;
  p.system = systems::kFsdpSystem;
  fsdp_of(p).sharding_strategy = Sharding::HybridShard;
  return p;
}

// The weights twice but for the root's and the gradients once, as without replicas, in the shard
// group; then each shard of the gradients among the replicas.
TEST(Hsdp, MovesItsWeightsInTheHostAndItsShardsBetweenHosts) {
  for (Plan plan : {hybrid(), fsdp2()}) {
    fsdp_of(plan).shard_degree = 8;
    Listing l(plan, 32);
    std::vector<systems::Unit> units = systems::fsdp_units(l.w, plan);
    const std::int64_t weights = l.w.gradient_bytes().count;
    const double slack = static_cast<double>(weights) / 100;
    EXPECT_NEAR(static_cast<double>(l.bytes(Operation::AllGather, "shard")),
                static_cast<double>(2 * weights - 4 * units.front().elements), slack);
    EXPECT_NEAR(static_cast<double>(l.bytes(Operation::ReduceScatter, "shard")),
                static_cast<double>(weights), slack);
    EXPECT_EQ(8 * l.bytes(Operation::AllReduce, "replicas"),
              l.bytes(Operation::ReduceScatter, "shard"));
    EXPECT_EQ(l.bytes(Operation::AllGather) + l.bytes(Operation::ReduceScatter) +
                  l.bytes(Operation::AllReduce),
              0)
        << "of all ranks";
  }
}

TEST(Hsdp, OfOneGroupIsFsdp) {
  Plan one = fsdp2();
  fsdp_of(one).shard_degree = 16;
  Listing with(one, 16);
  Listing without(fsdp2(), 16);
  ASSERT_EQ(with.program.steady.ops.size(), without.program.steady.ops.size());
  EXPECT_TRUE(with.program.groups.empty());
}

TEST(Fsdp2, ReshardingToASmallerGroupGathersThereInBackward) {
  Plan plan = fsdp2();
  fsdp_of(plan).reshard_after_forward = {8};
  Listing l(plan, 32);
  Listing whole(fsdp2(), 32);
  EXPECT_EQ(l.bytes(Operation::AllGather) + l.bytes(Operation::AllGather, "post_forward"),
            whole.bytes(Operation::AllGather));
  EXPECT_GT(l.bytes(Operation::AllGather, "post_forward"), 0);
  fsdp_of(plan).reshard_after_forward = {0};
  EXPECT_EQ(Listing(plan, 32).bytes(Operation::AllGather), l.bytes(Operation::AllGather));
}

// dim-0 shards: what the ranks do not divide is padded, each parameter by itself.
TEST(Fsdp2, PadsEachParameter) {
  Listing l(fsdp2(), 7);
  std::int64_t padded = 0;
  for (const Tensor& t : l.w.tensors) {
    std::int64_t rows = t.shape.front();
    padded += (rows + 6) / 7 * 7 * (t.elements() / rows) * 4;
  }
  EXPECT_EQ(l.bytes(Operation::ReduceScatter), padded);
}

TEST(Fsdp2, TheRootIsResharedOnlyWhereAskedForAndSinceAfter27) {
  Plan plan = fsdp2();
  const std::int64_t kept = Listing(plan, 8).bytes(Operation::AllGather);
  fsdp_of(plan).reshard_after_forward = {1};
  EXPECT_EQ(Listing(plan, 8).bytes(Operation::AllGather), kept);
  plan.pytorch = PytorchVersion{2, 11};
  EXPECT_GT(Listing(plan, 8).bytes(Operation::AllGather), kept);
}

TEST(Fsdp2, AMicroStepWithoutSynchronisationReducesNothing) {
  Plan plan = fsdp2();
  plan.accumulation_steps = 3;
  const std::int64_t each = Listing(plan, 8).bytes(Operation::ReduceScatter);
  plan.no_sync = true;
  EXPECT_EQ(3 * Listing(plan, 8).bytes(Operation::ReduceScatter), each);
}

TEST(ShardGroups, AreRefusedWhereTheyDoNotPartTheRanks) {
  auto refused = [](const Plan& plan, int ranks, int per_host) {
    return systems::check_fsdp(plan, ranks, per_host).path;
  };
  Plan plan = hybrid();
  EXPECT_EQ(refused(plan, 16, 8), "");
  EXPECT_EQ(refused(plan, 12, 8), "/plan/shard_degree");
  EXPECT_EQ(refused(plan, 4, 1), "/plan/shard_degree");
  plan.pytorch = PytorchVersion{1, 13};
  EXPECT_EQ(refused(plan, 16, 8), "/plan/sharding_strategy");
  Plan two = fsdp2();
  fsdp_of(two).reshard_after_forward = {3};
  EXPECT_EQ(refused(two, 16, 8), "/plan/reshard_after_forward");
  fsdp_of(two).reshard_after_forward = {16};
  EXPECT_EQ(refused(two, 16, 8), "/plan/reshard_after_forward");
  Plan full;
  full.system = systems::kFsdpSystem;
  fsdp_of(full).shard_degree = 4;
  EXPECT_EQ(refused(full, 16, 8), "/plan/shard_degree");
}

}  // namespace
}  // namespace ddpsim
