// Units by dynamic programme: equal to every partition tried, under the model and simulated.
#include "sim/tune/unit_partition.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "sim/systems/fsdp/plan.h"
#include "sim/systems/fsdp/wrapping.h"
#include "sim/tune/unit_problem.h"
#include "tests/support/support.h"
#include "tests/support/systems.h"

namespace ddpsim::test {
namespace {

using predict::UnitPartition;
using predict::UnitProblem;
using Blocks = std::vector<std::int64_t>;

// Every way of parting the blocks that the lists and the largest unit allow.
std::vector<Blocks> all_partitions(const std::vector<bool>& joins, std::size_t most) {
  std::vector<Blocks> out;
  const std::size_t n = joins.size();
  for (std::size_t mask = 0; mask < std::size_t{1} << (n - 1); ++mask) {
    Blocks blocks{1};
    bool possible = true;
    for (std::size_t b = 1; b < n; ++b) {
      if ((mask >> (b - 1) & 1) == 0) {
        blocks.push_back(1);
        continue;
      }
      ++blocks.back();
      possible = possible && joins[b - 1] && blocks.back() <= static_cast<std::int64_t>(most);
    }
    if (possible) out.push_back(std::move(blocks));
  }
  return out;
}

// The model as unit_partition.h writes it, unit by unit.
Duration model_of(const UnitProblem& q, const Blocks& blocks) {
  struct Unit {
    Duration f, b, g, again, s;
  };
  std::vector<Unit> units;
  std::size_t at = 0;
  for (std::int64_t n : blocks) {
    Unit u;
    std::int64_t gathered = 0, again = 0, scattered = 0;
    for (; n > 0; --n, ++at) {
      u.f += q.forward.blocks[at], u.b += q.backward.blocks[at];
      gathered += q.gathered[at], again += q.again[at], scattered += q.scattered[at];
    }
    if (gathered > 0) u.g = q.gather(gathered);
    if (again > 0) u.again = q.gather_again(again);
    if (scattered > 0) u.s = q.scatter(scattered);
    units.push_back(u);
  }
  const std::size_t k = units.size();
  std::vector<Duration> gathered(k), computes(k);
  for (std::size_t u = 0; u < k; ++u) {
    gathered[u] =
        (u > 0 ? std::max(gathered[u - 1], u > 1 ? computes[u - 2] : Duration{}) : Duration{}) +
        units[u].g;
    computes[u] =
        std::max(u > 0 ? computes[u - 1] + units[u - 1].f : q.forward.before, gathered[u]);
  }
  const Unit& last = units.back();
  Duration out = computes.back() +
                 std::max(last.f + q.forward.after + q.backward.after, last.again) +
                 std::max(q.backward.before, units.front().s);
  for (std::size_t u = 0; u < k; ++u) {
    const Duration reduced = u + 1 < k ? units[u + 1].s : Duration{};
    const Duration again = u > 0 ? units[u - 1].again : Duration{};
    out += std::max(units[u].b, reduced + again);
  }
  return out;
}

UnitProblem random_problem(Random& random, std::size_t n) {
  UnitProblem q;
  auto time = [&](std::int64_t most) {
    return Duration{static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(most)))};
  };
  for (UnitProblem::Pass* pass : {&q.forward, &q.backward}) {
    pass->before = time(2000);
    pass->after = time(2000);
    for (std::size_t b = 0; b < n; ++b) pass->blocks.push_back(time(3000));
  }
  const bool kept = random.below(3) == 0;
  for (std::size_t b = 0; b < n; ++b) {
    q.gathered.push_back(1 + static_cast<std::int64_t>(random.below(1000)));
    q.again.push_back(kept ? 0 : q.gathered.back());
    q.scattered.push_back(q.gathered.back());
    q.joins.push_back(b + 1 < n && random.below(5) > 0);
  }
  const auto start = static_cast<std::int64_t>(random.below(2000));
  const auto per_byte = static_cast<std::int64_t>(1 + random.below(4));
  q.gather = [=](std::int64_t bytes) { return Duration{start + per_byte * bytes}; };
  q.gather_again = [=](std::int64_t bytes) { return Duration{start / 2 + per_byte * bytes}; };
  q.scatter = [=](std::int64_t bytes) { return Duration{start + (per_byte + 1) * bytes}; };
  return q;
}

TEST(UnitPartition, IsTheBestOfAllUnderTheModel) {
  Random random(3);
  for (int k = 0; k < 300; ++k) {
    const UnitProblem q = random_problem(random, 1 + random.below(std::size_t{9}));
    for (std::size_t most : {1, 2, 3, 9}) {
      const UnitPartition found = predict::best_units(q, most);
      EXPECT_EQ(model_of(q, found.blocks), found.model) << k;
      Duration least{kForever};
      for (const Blocks& blocks : all_partitions(q.joins, most)) {
        const Duration d = model_of(q, blocks);
        least = std::min(least, d);
      }
      EXPECT_EQ(found.model, least) << k << ", at most " << most;
    }
  }
}

// Three equal blocks, f = b = 4, a gather of s bytes takes 1 + s, a reduction as much; weights
// kept.
TEST(UnitPartition, ModelIsTheSumThatItSays) {
  UnitProblem q;
  q.forward = {{2}, {{4}, {4}, {4}}, {3}};
  q.backward = {{5}, {{4}, {4}, {4}}, {7}};
  q.gathered = q.scattered = {6, 6, 6};
  q.again = {0, 0, 0};
  q.joins = {true, true, false};
  q.gather = q.gather_again = q.scatter = [](std::int64_t s) { return Duration{1 + s}; };
  // Gathered at 7, 14, 21 (the second before computes from 0 on, and from 7); computes at 7,
  // 14, 21. backward: 7 + 4 + max(4, 7) twice + max(5, 7)
  EXPECT_EQ(model_of(q, {1, 1, 1}).ps, 21 + 4 + 3 + 7 + 4 + 7 + 7 + 7);
  // One unit: forward max(2, 19) + 12 + 3; backward 7 + 12 + max(5, 19).
  EXPECT_EQ(model_of(q, {3}).ps, 19 + 12 + 3 + 7 + 12 + 19);
  // Longer computation: computes at 7, 27, 47.
  q.forward.blocks = {{20}, {20}, {20}};
  EXPECT_EQ(model_of(q, {1, 1, 1}).ps, 47 + 20 + 3 + 7 + 4 + 7 + 7 + 7);
  q.forward.blocks = {{4}, {4}, {4}};
  q.again = {6, 6, 6};
  // backward: max(4, 7) + max(4, 14) + max(4, 7) + 7
  EXPECT_EQ(model_of(q, {1, 1, 1}).ps, 21 + 4 + 3 + 7 + 7 + 14 + 7 + 7);
  // Without a head the last unit waits for its weights: max(4, 7).
  q.forward.after = q.backward.after = {0};
  EXPECT_EQ(model_of(q, {1, 1, 1}).ps, 21 + 7 + 7 + 14 + 7 + 7);
}

// A shipped model with its first blocks only.
Workload of_blocks(const std::string& name, std::int64_t blocks) {
  Workload w = workload(name);
  const std::vector<WrappedBlock> all = wrapped_blocks(w);
  auto kept = [&](const std::string& layer) {
    for (const WrappedBlock& b : all)
      if (b.number >= blocks && layer.starts_with(b.name + ".")) return false;
    return true;
  };
  std::erase_if(w.layers, [&](const Layer& l) { return !kept(l.name); });
  std::vector<bool> used(w.tensors.size());
  for (const Layer& l : w.layers)
    for (TensorIndex t : l.tensors) used[t] = true;
  std::vector<TensorIndex> now(w.tensors.size());
  std::vector<Tensor> tensors;
  for (std::size_t t = 0; t < used.size(); ++t) {
    now[t] = static_cast<TensorIndex>(tensors.size());
    if (used[t]) tensors.push_back(w.tensors[t]);
  }
  std::erase_if(w.arrival, [&](TensorIndex t) { return !used[t]; });
  for (TensorIndex& t : w.arrival) t = now[t];
  for (Layer& l : w.layers)
    for (TensorIndex& t : l.tensors) t = now[t];
  w.tensors = std::move(tensors);
  return w;
}

// Simulated, all partitions: what is proposed is the best of them, or as far from it as said here.
TEST(UnitPartition, SimulatedNoPartitionIsMuchBetter) {
  struct Case {
    const char* cluster;
    int hosts;
    const char* profile;
    double gap;  // of the step
  };
  for (const Case& c : {Case{"hgx-h100", 2, "h100-sxm.datasheet", 0.0002},
                        Case{"gpu-ethernet-100g", 8, "a100-sxm4-80gb.datasheet", 0.0002},
                        Case{"gpu-ethernet-10g", 8, "a100-sxm4-80gb.datasheet", 0.0092},
                        Case{"aws-g5", 2, "a10g.datasheet", 0.0036}})
    for (int batch : {1, 8}) {
      Workload w = of_blocks("gpt2-small", 8);
      w.batch = batch;
      w.sequence = 256;
      ASSERT_EQ(wrapped_blocks(w).size(), 8u);
      Cluster made = cluster(c.cluster);
      made.hosts = c.hosts;
      const topology::Fabric fabric(made);
      const Profile p = profile(c.profile);
      Scenario s;
      s.ranks = fabric.devices();
      s.plan.system = systems::kFsdp2System;
      predict::Communicators known;
      predict::Options options;
      options.known = &known;
      auto step = [&](const Blocks& blocks) {
        Scenario with = s;
        fsdp_of(with.plan).blocks_per_unit = blocks;
        return predict::steady_period({w, fabric, p, with}, Level::Mid, options);
      };
      auto problem = predict::unit_problem({w, fabric, p, s}, options);
      ASSERT_TRUE(problem);
      Duration proposed{kForever};
      std::string proposals;
      for (const UnitPartition& one : predict::partitions_worth_trying(*problem)) {
        const Duration d = step(one.blocks);
        proposed = std::min(proposed, d);
        proposals += "\n  " + testing::PrintToString(one.blocks) + " " + to_string(d);
      }
      Duration least{kForever};
      Blocks best;
      for (const Blocks& blocks : all_partitions(problem->joins, 8))
        if (Duration d = step(blocks); d < least) least = d, best = blocks;
      const double gap = static_cast<double>((proposed - least).ps) / static_cast<double>(least.ps);
      EXPECT_LE(gap, c.gap) << c.cluster << ", batch " << batch << ": " << to_string(least)
                            << " of " << testing::PrintToString(best) << ", proposed" << proposals;
      RecordProperty(std::string(c.cluster) + "." + std::to_string(batch), std::to_string(gap));
    }
}

}  // namespace
}  // namespace ddpsim::test
