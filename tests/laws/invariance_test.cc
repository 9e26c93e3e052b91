// Laws of arithmetic on random scenarios (rapidcheck; RC_PARAMS chooses seeds).
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "sim/cost/roofline.h"
#include "sim/systems/base/lower.h"
#include "sim/systems/ddp/plan.h"
#include "tests/laws/random_job.h"

namespace ddpsim::test {
namespace {

Duration step(const RandomJob& r, const predict::Options& options = {}) {
  topology::Fabric fabric(r.cluster);
  predict::Question q{r.workload, fabric, r.profile, r.scenario};
  if (auto p = predict::check(q)) throw std::runtime_error(p.message);
  return predict::steady_period(q, Level::Mid, options);
}

std::string steps_of(const RandomJob& r, bool fold) {
  topology::Fabric fabric(r.cluster);
  predict::Question q{r.workload, fabric, r.profile, r.scenario};
  predict::Prediction p = predict::predict(q, {predict::Fidelity::Collective, fold});
  std::string out;
  for (const auto& s : p.run.steps) out += std::to_string(s.duration.ps) + " ";
  return out;
}

RC_GTEST_PROP(Laws, FoldingIsExactToThePicosecond, ()) {
  auto seed = *rc::gen::arbitrary<std::uint32_t>();
  RandomJob r = random_job(seed);
  RC_ASSERT(steps_of(r, true) == steps_of(r, false));
}

RC_GTEST_PROP(Laws, OneBucketMeansThatOnlyTheTailOfBackwardHidesIt, ()) {
  auto seed = *rc::gen::arbitrary<std::uint32_t>();
  RandomJob r = random_job(seed, {false, false});
  Plan plan;
  ddp_of(plan).bucket_cap_mb = 1e6;
  ddp_of(plan).broadcast_buffers = false;
  r.scenario.plan = plan;
  Duration tail = r.workload.times.backward - r.workload.times.ready.back();
  topology::Fabric fabric(r.cluster);
  predict::Question q{r.workload, fabric, r.profile, r.scenario};
  predict::Prediction p = predict::predict(q);
  RC_ASSERT(p.summary.buckets.size() == 1u);
  Duration hidden = p.summary.communication - p.summary.exposed_communication;
  RC_ASSERT(hidden <= tail + p.slowed);  // which takes longer beside a collective that holds SMs
}

RC_GTEST_PROP(Laws, RenamingHostsAndRanksTogetherChangesNothing, ()) {
  auto seed = *rc::gen::arbitrary<std::uint32_t>();
  RandomJob r = random_job(seed);
  r.cluster.pattern = Pattern::Star;
  if (r.cluster.hosts > 2)
    r.cluster.slow_links = {{0, Bandwidth{r.cluster.link.bandwidth.bits_per_s / 2}}};
  Duration before = step(r);
  // Host h becomes host h + 1 (cyclic): slow link and rank order move with it.
  RandomJob renamed = r;
  int hosts = r.cluster.hosts;
  for (auto& s : renamed.cluster.slow_links) s.host = HostId::at((s.host.number + 1) % hosts);
  renamed.scenario.rank_order.clear();
  for (int rank = 0; rank < hosts; ++rank)
    renamed.scenario.rank_order.push_back(DeviceId::at((rank + 1) % hosts));
  RC_ASSERT(step(renamed) == before);
}

RC_GTEST_PROP(Laws, HalvingRatesAndDoublingTimesDoublesTheStep, ()) {
  auto seed = *rc::gen::arbitrary<std::uint32_t>();
  RandomJob r = random_job(seed);
  RandomJob slow = r;
  auto twice = [](Duration& d) { d = d * 2; };
  StepTimes& t = slow.workload.times;
  for (Duration* d : {&t.forward, &t.backward, &t.optimizer}) twice(*d);
  for (Duration& d : t.ready) twice(d);
  auto halve = [](Bandwidth& b) { b.bits_per_s /= 2; };
  halve(slow.cluster.link.bandwidth);
  if (slow.cluster.link.peak.bits_per_s > 0) halve(slow.cluster.link.peak);
  if (slow.cluster.pattern == Pattern::Racks) halve(slow.cluster.uplink.bandwidth);
  for (auto& [name, transport] : slow.profile.transports)
    twice(transport.latency), twice(transport.launch);
  slow.profile.memory.bandwidth_bytes_per_s /= 2;
  slow.profile.reduction_bytes_per_s /= 2;
  twice(slow.profile.host.launch);
  double ratio = static_cast<double>(step(slow).ps) / static_cast<double>(step(r).ps);
  RC_ASSERT(ratio > 2 - 1e-6);
  RC_ASSERT(ratio < 2 + 1e-6);
}

RC_GTEST_PROP(Laws, EveryProgramRunsToItsEndAtBothFidelities, ()) {
  auto seed = *rc::gen::arbitrary<std::uint32_t>();
  RandomJob r = random_job(seed);
  double collective = static_cast<double>(step(r).ps);
  double message = static_cast<double>(step(r, {predict::Fidelity::Message, false}).ps);
  RC_ASSERT(message > 0);
  RC_ASSERT(collective > 0.7 * message);
  RC_ASSERT(collective < 1.4 * message);
}

// A slow rank is waited for: the step grows by its extra compute, no more.
TEST(Laws, SlowRankCostsAtMostItsOwnExtraTime) {
  Workload w = layered(10, 4'000'000, kMillisecond, kMillisecond * 2);
  Profile p = ideal_profile(kMicrosecond);
  Cluster c = star(4, Bandwidth{10'000'000'000});
  topology::Fabric fabric(c);
  Scenario s;
  s.ranks = 4;
  Duration even = predict::steady_period({w, fabric, p, s});
  s.slow_ranks[2] = 1.5;
  Duration slow = predict::steady_period({w, fabric, p, s});
  EXPECT_GT(slow, even);
  EXPECT_LE(slow - even, (w.times.forward + w.times.backward + w.times.optimizer) * 1);
}

// 65,536 GPUs are an ordinary what-if: cost grows with classes, buckets and links, not with ranks
// squared.
TEST(Laws, ManyRanksStayCheap) {
  Workload w = workload("resnet50");
  Cluster c = cluster("fat-tree-h100");
  c.hosts = 8192;
  Profile p = profile(c.profile);
  topology::Fabric fabric(c);
  Scenario s;
  s.ranks = 65'536;
  predict::Question q{w, fabric, p, s};
  ASSERT_FALSE(predict::check(q)) << predict::check(q).message;
  EXPECT_GT(predict::steady_period(q).ps, 0);
}

}  // namespace
}  // namespace ddpsim::test
