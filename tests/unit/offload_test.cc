// Offloading to the host. Order and bytes are held against tests/oracle/offload_lowered.py; here
// are closed forms, what is held, and what links are shared by.
#include <numeric>
#include <string>

#include <gtest/gtest.h>

#include "sim/cost/roofline.h"
#include "sim/predict/host_memory.h"
#include "sim/predict/predict.h"
#include "sim/systems/base/lower.h"
#include "sim/systems/fsdp/plan.h"
#include "sim/systems/zero/plan.h"
#include "tests/support/support.h"
#include "tests/support/systems.h"

namespace ddpsim::predict {
namespace {

Plan zero(int stage, bool offloads) {
  Plan p;
  p.system = systems::kZeroSystem;
  zero_of(p).stage = stage;
  zero_of(p).offload_optimizer = offloads;
  return p;
}
Plan zero3(bool weights) {
  Plan p = zero(3, true);
  zero_of(p).offload_param = weights;
  zero_of(p).reduce_bucket_size = 50'000'000;
  return p;
}
Plan fsdp(bool offloads) {
  Plan p;
  p.system = systems::kFsdpSystem;
  fsdp_of(p).cpu_offload = offloads;
  return p;
}
Plan fsdp2(bool offloads) {
  Plan p;
  p.system = systems::kFsdp2System;
  fsdp_of(p).cpu_offload = offloads;
  return p;
}

struct OffloadingJob {
  Workload w;
  Cluster cluster;
  Scenario scenario;
  OffloadingJob(const Plan& plan, int ranks, const std::string& cluster_name = "dgx-h100")
      : w(test::workload("gpt2-small")), cluster(test::cluster(cluster_name)) {
    cluster.host_memory = {8 * 300'000'000'000};
    scenario.plan = plan;
    scenario.ranks = ranks;
  }
  Program program() const {
    const topology::Fabric fabric(cluster);
    const Profile p = test::profile(cluster.profile);
    const StepTimes times = step_times(w, p, Level::Mid);
    systems::TimedWorkload timed{w, times, p.kind, scenario.ranks, cluster.devices_per_host};
    if (offloads(scenario.plan)) timed.host_memory = host({w, fabric, p, scenario});
    return systems::lower(timed, scenario.plan);
  }
  static systems::HostMemory host(const Question& q) { return host_memory(q, Level::Mid); }
  systems::HostMemory host() const {
    const topology::Fabric fabric(cluster);
    const Profile p = test::profile(cluster.profile);
    return host({w, fabric, p, scenario});
  }
};

std::int64_t moved(const Program& p, bool to_host) {
  std::int64_t sum = 0;
  for (std::uint32_t i = 0; i < p.steady.ops.size(); ++i) {
    const bool up = name_of(p, p.steady, i).find("to_host") != std::string::npos;
    if (is_move(p.steady.ops[i].kind) && up == to_host) sum += p.steady.ops[i].bytes;
  }
  return sum;
}
std::int64_t held(const Program& p) {
  return std::accumulate(p.resident.begin(), p.resident.end(), std::int64_t{0});
}

std::int64_t bytes_of(const Program& p, const std::string& word) {
  std::int64_t sum = 0;
  for (std::uint32_t i = 0; i < p.steady.ops.size(); ++i)
    if (name_of(p, p.steady, i).starts_with(word)) sum += p.steady.ops[i].bytes;
  return sum;
}

// The rank that owns the most of a bucket stands for all: of several buckets more than P/n.
TEST(Offload, ARankCopiesItsShareOfFourBytesEachWay) {
  for (int stage : {1, 2})
    for (int ranks : {2, 8}) {
      const OffloadingJob job(zero(stage, true), ranks);
      const Program p = job.program();
      const std::int64_t share = 4 * job.w.elements() / ranks;
      EXPECT_NEAR(static_cast<double>(moved(p, true)), static_cast<double>(share), 8);
      EXPECT_NEAR(static_cast<double>(moved(p, false)), static_cast<double>(share), 8);
    }
  const OffloadingJob job(fsdp2(true), 8);
  const Program p = job.program();
  const std::int64_t share = 4 * job.w.elements() / 8;
  EXPECT_GE(moved(p, true), share);
  EXPECT_LT(moved(p, true), share + share / 100) << "rows are padded";
  EXPECT_GT(moved(p, false), share) << "blocks twice, the root once";
  EXPECT_LT(moved(p, false), 2 * moved(p, true));
}

// FSDP1's flat parameters are the host's between forward and backward, also those that stay whole.
TEST(Offload, Fsdp1CopiesEachShardForForwardAndForBackward) {
  for (Sharding s : {Sharding::FullShard, Sharding::ShardGradOp})
    for (PytorchVersion v : {PytorchVersion{1, 13}, PytorchVersion{2, 7}}) {
      Plan plan = fsdp(true);
      fsdp_of(plan).sharding_strategy = s;
      plan.pytorch = v;
      const OffloadingJob job(plan, 8);
      const Program p = job.program();
      const std::int64_t share = 4 * job.w.elements() / 8;
      EXPECT_GE(moved(p, true), share);
      EXPECT_LE(moved(p, true), share + 4 * 13) << "an element of each unit is padded, at most";
      EXPECT_EQ(moved(p, false), 2 * moved(p, true));
    }
}

TEST(Offload, TheHostUpdatesTheShardAndZeroesItsGradientsWhereTheyStay) {
  for (bool to_none : {true, false}) {
    Plan plan = fsdp(true);
    plan.set_to_none = to_none;
    const OffloadingJob job(plan, 8);
    const Program p = job.program();
    std::int64_t zeroed = 0, updated = 0;
    for (std::uint32_t i = 0; i < p.steady.ops.size(); ++i) {
      const std::string name = name_of(p, p.steady, i);
      if (name == "host_zero_gradients") zeroed += p.steady.ops[i].bytes;
      if (name == "host_optimizer") updated += p.steady.ops[i].bytes;
    }
    EXPECT_EQ(zeroed, to_none ? 0 : moved(p, true));
    EXPECT_EQ(updated, static_cast<std::int64_t>(static_cast<double>(moved(p, true) / 4) *
                                                 optimizer_bytes_per_element(job.w)));
  }
}

// Gradients go to the host, come back for their norm, and go to the optimizer's; weights come.
TEST(Offload, Zero3MovesAShardFourTimes) {
  const std::int64_t ranks = 8;
  const OffloadingJob job(zero3(false), static_cast<int>(ranks));
  std::int64_t shards = 0;
  for (const Tensor& t : job.w.tensors) shards += (t.elements() + ranks - 1) / ranks;
  const Program p = job.program();
  for (const char* word :
       {"to_host/bucket.", "to_device/bucket.", "to_optimizer/bucket.", "to_device/group."})
    EXPECT_EQ(bytes_of(p, word), 4 * shards) << word;
  EXPECT_EQ(bytes_of(p, "host_optimizer/group."), 28 * shards);
  EXPECT_EQ(bytes_of(p, "host_cast"), 0) << "of one type";
  EXPECT_EQ(bytes_of(p, "fetch_shards"), 0);
}

// What is gathered is a rank's part times the ranks.
TEST(Offload, Zero3sWeightsComeForEachGathering) {
  Plan plan = zero3(true);
  zero_of(plan).stage3_max_reuse_distance = 0;
  zero_of(plan).stage3_prefetch_bucket_size = 0;
  const Program p = OffloadingJob(plan, 8).program();
  EXPECT_GT(bytes_of(p, "all_gather/bwd."), 0);
  EXPECT_EQ(8 * bytes_of(p, "fetch_shards"), bytes_of(p, "all_gather"));
  EXPECT_EQ(bytes_of(p, "to_device/group."), 0) << "the host updates what the host has";
  std::int64_t waits = 0, gathered = 0;
  for (std::uint32_t i = 0; i < p.steady.ops.size(); ++i) {
    waits += name_of(p, p.steady, i).starts_with("wait/fetch_shards.");
    gathered += name_of(p, p.steady, i).starts_with("fetch_shards/bucket.");
  }
  EXPECT_EQ(waits, gathered);
}

TEST(Offload, WhatLeavesTheDeviceOfZero3) {
  const std::int64_t buffer = 4 * 50'000'000;
  Plan kept = zero3(false);
  zero_of(kept).offload_optimizer = false;
  std::int64_t shards = 0, whole = 0;
  const Workload w = test::workload("gpt2-small");
  for (const Tensor& t : w.tensors) {
    shards += (t.elements() + 7) / 8;
    if (t.elements() <= zero_of(kept).stage3_param_persistence_threshold) whole += t.elements();
  }
  EXPECT_EQ(held(OffloadingJob(kept, 8).program()), buffer + 4 * whole + (4 + 4 + 4 + 8) * shards);
  EXPECT_EQ(held(OffloadingJob(zero3(false), 8).program()), buffer + 4 * (whole + shards));
  EXPECT_EQ(held(OffloadingJob(zero3(true), 8).program()), buffer + 4 * whole);
}

TEST(Offload, WhatLeavesTheDevice) {
  for (int stage : {1, 2}) {
    const Program kept = OffloadingJob(zero(stage, false), 8).program();
    const Program gone = OffloadingJob(zero(stage, true), 8).program();
    const Workload w = test::workload("gpt2-small");
    std::int64_t largest = 0;
    for (const Tensor& t : w.tensors) largest = std::max(largest, t.elements());
    const std::int64_t weights = 4 * w.elements();
    EXPECT_EQ(held(gone), weights + 4 * largest);
    EXPECT_NEAR(static_cast<double>(held(kept)), static_cast<double>(weights + 3 * weights / 8),
                100);
  }
  for (const Plan& plan : {fsdp(true), fsdp2(true)})
    EXPECT_EQ(held(OffloadingJob(plan, 8).program()), 0);
  EXPECT_GT(held(OffloadingJob(fsdp(false), 8).program()), 0);
}

// Turned off, nothing is moved, and all of the Program is as it was.
TEST(Offload, EveryOtherOperationStaysWhatItIs) {
  for (const Plan& plan : {zero(1, false), zero(2, false), fsdp(false), fsdp2(false)})
    for (const Op& op : OffloadingJob(plan, 8).program().steady.ops) EXPECT_FALSE(is_move(op.kind));
  auto collectives = [](const Program& p) {
    std::int64_t sum = 0;
    for (const Op& op : p.steady.ops)
      if (carries_tensors(op.kind)) sum += op.bytes;
    return sum;
  };
  EXPECT_EQ(collectives(OffloadingJob(zero(2, true), 8).program()),
            collectives(OffloadingJob(zero(2, false), 8).program()));
  Plan kept = zero3(false);
  zero_of(kept).offload_optimizer = false;
  for (bool weights : {false, true})
    EXPECT_EQ(collectives(OffloadingJob(zero3(weights), 8).program()),
              collectives(OffloadingJob(kept, 8).program()));
  EXPECT_EQ(collectives(OffloadingJob(fsdp(true), 8).program()),
            collectives(OffloadingJob(fsdp(false), 8).program()));
  EXPECT_EQ(collectives(OffloadingJob(fsdp2(true), 8).program()),
            collectives(OffloadingJob(fsdp2(false), 8).program()));
}

// A DGX H100 has two GPUs on each PCIe switch, whose way to the CPU they share.
TEST(Offload, RanksOfAHostShareLinksAndMemory) {
  const double alone = OffloadingJob(zero(2, true), 1).host().copied;
  EXPECT_DOUBLE_EQ(OffloadingJob(zero(2, true), 8).host().copied, alone / 2);
  EXPECT_DOUBLE_EQ(
      alone,
      0.063 * at(test::profile("h100-sxm.datasheet").transports.at("pcie").efficiency, Level::Mid));
  EXPECT_DOUBLE_EQ(OffloadingJob(zero(2, true), 1).host().touched, 0.3);
  EXPECT_DOUBLE_EQ(OffloadingJob(zero(2, true), 8).host().touched, 0.3 / 8);
  OffloadingJob spread(zero(2, true), 4);
  spread.scenario.rank_order = {0, 2, 4, 6};
  EXPECT_DOUBLE_EQ(spread.host().copied, alone) << "a switch each";
}

TEST(OffloadStep, BothFidelitiesAgreeAndItIsLonger) {
  for (const auto& [with, without] :
       {std::pair{zero(2, true), zero(2, false)}, std::pair{fsdp(true), fsdp(false)},
        std::pair{fsdp2(true), fsdp2(false)}, std::pair{zero3(false), zero(3, false)},
        std::pair{zero3(true), zero3(false)}}) {
    auto step = [](const Plan& plan, Fidelity fidelity) {
      OffloadingJob job(plan, 8);
      const topology::Fabric fabric(job.cluster);
      const Profile p = test::profile(job.cluster.profile);
      Options o;
      o.fidelity = fidelity;
      return static_cast<double>(predict({job.w, fabric, p, job.scenario}, o).summary.step.ps);
    };
    const double offloaded = step(with, Fidelity::Collective);
    EXPECT_NEAR(step(with, Fidelity::Message) / offloaded, 1, 0.01);
    EXPECT_GT(offloaded, step(without, Fidelity::Collective));
  }
}

}  // namespace
}  // namespace ddpsim::predict
