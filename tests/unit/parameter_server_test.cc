// Parameter servers: where variables are, what is sent, closed forms on one link, memory. The
// schedule and the pace of workers are held against tests/oracle/parameter_server_lowered.py.
#include "sim/systems/parameter_server/parameter_server.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/cost/roofline.h"
#include "sim/predict/memory.h"
#include "sim/predict/predict.h"
#include "sim/predict/server_places.h"
#include "sim/systems/base/lower.h"
#include "sim/systems/base/model_memory.h"
#include "sim/systems/parameter_server/plan.h"
#include "tests/support/support.h"
#include "tests/support/systems.h"

namespace ddpsim::systems {
namespace {

Plan with_servers(std::int64_t servers, bool synchronous = true) {
  Plan p;
  p.system = systems::kParameterServerSystem;
  parameter_server_of(p).servers = servers;
  parameter_server_of(p).synchronous = synchronous;
  return p;
}

TEST(ParameterServer, EveryElementIsOnOneServerWhateverThePartitioner) {
  for (const char* name : {"resnet50", "gpt2-small"})
    for (VariablePartitioner how : {VariablePartitioner::None, VariablePartitioner::FixedShards,
                                    VariablePartitioner::MinSize, VariablePartitioner::MaxSize})
      for (ServerPlacement placement : {ServerPlacement::RoundRobin, ServerPlacement::BySize}) {
        const Workload w = test::workload(name);
        Plan plan = with_servers(5);
        parameter_server_of(plan).variable_partitioner = how;
        parameter_server_of(plan).placement = placement;
        std::vector<std::int64_t> elements(w.tensors.size(), 0);
        std::int64_t bytes = 0;
        for (const ServerShard& s : server_shards(w, plan)) {
          EXPECT_EQ(s.from, elements[s.tensor]) << "one after another";
          elements[s.tensor] = s.to;
          bytes += s.bytes;
          EXPECT_GE(s.server, 0);
          EXPECT_LT(s.server, 5);
        }
        for (std::size_t t = 0; t < elements.size(); ++t)
          EXPECT_EQ(elements[t], w.tensors[t].elements());
        EXPECT_EQ(bytes, w.gradient_bytes().count);
      }
}

// TensorFlow's examples: ten rows in four shards are 3, 3, 2, 2; [6, 1] of floats at least 4 bytes
// a shard are 2 of at most 2, and 6 of at most 10.
TEST(ParameterServer, ShardsAreThoseOfTensorFlowsExamples) {
  Workload w = test::layered(1, 4, kMillisecond, kMillisecond);
  Plan plan = with_servers(4);
  ParameterServerPlan& p = parameter_server_of(plan);
  p.variable_partitioner = VariablePartitioner::FixedShards;
  w.tensors[0].shape = {10};
  std::vector<std::int64_t> rows;
  for (const ServerShard& s : server_shards(w, plan)) rows.push_back(s.to - s.from);
  EXPECT_EQ(rows, (std::vector<std::int64_t>{3, 3, 2, 2}));
  w.tensors[0].shape = {6, 1};
  p.variable_partitioner = VariablePartitioner::MinSize;
  p.shard_bytes = 4;
  p.max_shards = 2;
  EXPECT_EQ(server_shards(w, plan).size(), 2u);
  p.max_shards = 10;
  EXPECT_EQ(server_shards(w, plan).size(), 6u);
  w.tensors[0].shape = {10, 3};
  p.variable_partitioner = VariablePartitioner::FixedShards;
  p.max_shards = 2;
  EXPECT_EQ(server_shards(w, plan).size(), 2u);
}

TEST(ParameterServer, BySizeServersHaveAlmostTheSame) {
  const Workload w = test::workload("vgg16");  // one variable is three quarters of it
  const auto largest = [&](const Plan& plan) {
    std::vector<std::int64_t> held(4, 0);
    for (const ServerShard& s : server_shards(w, plan))
      held[static_cast<std::size_t>(s.server)] += s.bytes;
    return static_cast<double>(*std::max_element(held.begin(), held.end())) /
           static_cast<double>(w.gradient_bytes().count);
  };
  Plan plan = with_servers(4);
  EXPECT_GT(largest(plan), 0.74) << "whole variables cannot be evened out";
  parameter_server_of(plan).variable_partitioner = VariablePartitioner::FixedShards;
  EXPECT_LT(largest(plan), 0.27);
  parameter_server_of(plan).placement = ServerPlacement::BySize;
  EXPECT_LT(largest(plan), 0.26);
}

struct OnAStar {
  Workload w;
  topology::Fabric fabric;
  Profile profile;
  Scenario scenario;
  // Servers are on hosts of their own, behind one link each.
  OnAStar(const Workload& workload, int workers, const Plan& plan, Bandwidth link)
      : w(workload),
        fabric(test::star(workers + static_cast<int>(parameter_server_of(plan).servers), link)),
        profile(test::ideal_profile({})) {
    profile.memory.bandwidth_bytes_per_s = 0;
    scenario.plan = plan;
    parameter_server_of(scenario.plan).own_hosts = true;
    scenario.ranks = workers;
  }
  predict::Prediction answer(predict::Fidelity f = predict::Fidelity::Collective) const {
    const predict::Question q{w, fabric, profile, scenario};
    EXPECT_EQ(predict::check(q).message, "");
    predict::Options options;
    options.fidelity = f;
    return predict::predict(q, options);
  }
};

// One server, N workers, M bytes: N M / B for all to pull; forward; the first gradient; and N M / B
// for what follows, as the network is behind.
TEST(ParameterServer, SynchronousStepOnOneLinkIsItsClosedForm) {
  constexpr int kLayers = 4;
  constexpr std::int64_t kBytes = 12'500'000;
  const Bandwidth link{10'000'000'000};  // 10 ms a message of one layer
  const Workload w = test::layered(kLayers, kBytes, kMillisecond * 3, kMillisecond);
  for (int workers : {1, 2, 5}) {
    const OnAStar job(w, workers, with_servers(1), link);
    const Duration message = kMillisecond * 10;
    const Duration all = message * kLayers * workers;
    const Duration expected = all + kMillisecond * 3 * kLayers + kMillisecond + all;
    for (auto f : {predict::Fidelity::Collective, predict::Fidelity::Message})
      EXPECT_NEAR(static_cast<double>(job.answer(f).summary.step.ps),
                  static_cast<double>(expected.ps), 1e-6 * static_cast<double>(expected.ps))
          << workers;
  }
}

// Behind its push, a pull uses the other direction while the next push comes: M N / B, and the last
// layer's pull.
TEST(ParameterServer, PullsBehindPushesUseTheOtherDirection) {
  constexpr int kLayers = 4;
  const Workload w = test::layered(kLayers, 12'500'000, kMillisecond * 3, kMillisecond);
  Plan plan = with_servers(1);
  parameter_server_of(plan).pull_after_push = true;
  const OnAStar job(w, 3, plan, {10'000'000'000});
  const Duration message = kMillisecond * 30;
  const Duration expected = kMillisecond * 3 * kLayers + kMillisecond + message * kLayers + message;
  EXPECT_NEAR(static_cast<double>(job.answer().summary.step.ps), static_cast<double>(expected.ps),
              1e-6 * static_cast<double>(expected.ps));
}

// Two servers with half each behind links of their own: what is sent takes half.
TEST(ParameterServer, ServersShareWhatIsSent) {
  const Workload w = test::layered(4, 12'500'000, kMillisecond, kMillisecond);
  const auto step = [&](std::int64_t servers) {
    return static_cast<double>(
        OnAStar(w, 4, with_servers(servers), {10'000'000'000}).answer().summary.step.ps);
  };
  const double computes = 4e9 + 1e9;
  EXPECT_NEAR((step(1) - computes) / (step(2) - computes), 2, 0.05);
}

// A server's own work: N sums and an update are there, and only where its memory is known.
TEST(ParameterServer, ServersSumAndUpdate) {
  const std::int64_t gradient = 1000;
  Optimizer sgd;
  sgd.kind = Optimizer::Kind::Sgd;
  EXPECT_EQ(summed_bytes(gradient), 3000);
  EXPECT_EQ(updated_bytes(sgd, gradient), 3000 + 2000 * optimizer_copies(sgd));
  const Workload w = test::layered(1, 4000, kMillisecond, kMillisecond);
  for (bool synchronous : {true, false}) {
    const Plan plan = with_servers(1, synchronous);
    TimedWorkload timed{w, w.times, DeviceKind::Gpu, 6};
    HostMemory memory;
    memory.touched = 0.001;  // bytes a picosecond
    timed.host_memory = memory;
    for (const Op& op : lower(timed, plan).steady.ops) {
      if (!is_server_work(op.kind)) continue;
      const std::int64_t bytes =
          updated_bytes(w.optimizer, 4000) + (synchronous ? 6 * summed_bytes(4000) : 0);
      EXPECT_EQ(op.duration.ps, bytes * 1000);
    }
  }
}

TEST(ParameterServer, StatesAreTheServersAndWorkersHoldNone) {
  const Workload w = test::workload("bert-large");
  const Plan plan = with_servers(2);
  const StepTimes times = predict::step_times(w, test::profile("h100-sxm.datasheet"), Level::Mid);
  const Program p = lower({w, times, DeviceKind::Gpu, 8}, plan);
  EXPECT_EQ(p.resident[Holds::OptimizerState], 0);
  EXPECT_EQ(p.resident[Holds::Parameters], w.gradient_bytes().count);
  std::int64_t left = 0;
  for (const MemoryChange& c : p.steady.memory) left += c.bytes;
  EXPECT_EQ(left, 0) << "a step leaves what it found";
}

// Servers of one host share its memory; the host that has most of them is the slowest.
TEST(ParameterServer, ServersOfAHostShareItsMemory) {
  Cluster c = test::cluster("hgx-h100");
  c.hosts = 2;
  c.host_memory = Bandwidth{2'400'000'000'000};
  const topology::Fabric fabric(c);
  const Profile p = test::profile("h100-sxm.datasheet");
  const Workload w = test::workload("resnet50");
  auto touched = [&](std::int64_t servers) {
    Scenario s;
    s.ranks = 16;
    s.plan = with_servers(servers);
    return predict::server_memory({w, fabric, p, s}, *servers_of(s.plan), Level::Mid)->touched;
  };
  EXPECT_DOUBLE_EQ(touched(1), c.host_memory.bytes_per_ps());
  EXPECT_DOUBLE_EQ(touched(2), touched(1)) << "one on each host";
  EXPECT_DOUBLE_EQ(touched(3), touched(1) / 2) << "two on the first";
  EXPECT_DOUBLE_EQ(touched(5), touched(1) / 3);
}

TEST(ParameterServer, ServersAreInTurnOnTheWorkersHostsOrAloneOnOthers) {
  Cluster c = test::cluster("hgx-h100");
  c.hosts = 4;
  const topology::Fabric fabric(c);
  const std::vector<DeviceId> workers = first_devices(16);
  EXPECT_EQ(predict::server_devices(fabric, workers, {3, true, -1, false}),
            (std::vector<DeviceId>{0, 8, 1}));
  EXPECT_EQ(predict::server_devices(fabric, workers, {2, true, -1, true}),
            (std::vector<DeviceId>{16, 24}));
}

}  // namespace
}  // namespace ddpsim::systems
