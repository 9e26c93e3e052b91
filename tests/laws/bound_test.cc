// No bucketing's simulated step is shorter than the lower bound.
#include "sim/predict/bound.h"

#include <gtest/gtest.h>

#include "sim/predict/tune.h"
#include "tests/laws/contended.h"

namespace ddpsim::test {
namespace {

struct Job {
  Workload workload;
  Cluster cluster;
  Profile profile;
  Scenario scenario;
};

// Of every kind that changes what a bucket costs: bandwidth or latency decides, or the device, or its host; racks, bursts, slow ranks, two dtypes, all knobs.
Job random_job(std::uint64_t seed) {
  Rng rng{seed};
  Job r;
  DeviceKind kind = rng.below(3) ? DeviceKind::Gpu : DeviceKind::Cpu;
  int layers = 2 + rng.below(12);
  r.workload = layered(layers, 4, kMillisecond, kMillisecond, kind);
  Duration at;
  double slowness = rng.below(2) ? 1 : 0.05;
  for (int i = 0; i < layers; ++i) {
    auto k = static_cast<std::size_t>(i);
    r.workload.tensors[k].shape = {1 + rng.below(2'000'000)};
    if (rng.below(8) == 0) r.workload.tensors[k].dtype = DType::Float16;
    at += Duration{rng.below(3) ? 1 + static_cast<std::int64_t>(rng.uniform() * 5e9 * slowness) : 0};
    r.workload.times.ready[k] = at;
  }
  r.workload.times.backward = at + Duration{1 + static_cast<std::int64_t>(rng.uniform() * 1e9)};
  r.workload.times.optimizer = {static_cast<std::int64_t>(rng.uniform() * 1e9)};
  if (rng.below(2)) r.workload.buffers = {{"mean", {1 + rng.below(10'000)}, DType::Float32}, {"count", {7}, DType::Int64}};
  int hosts = 2 + rng.below(7);
  r.cluster = star(hosts, Bandwidth{static_cast<std::int64_t>(1e9 * (1 + rng.below(80)))});
  r.cluster.device = kind;
  if (rng.below(3) == 0) {
    r.cluster.pattern = Pattern::Racks;
    r.cluster.racks = 2;
    r.cluster.uplink = r.cluster.link;
  }
  if (rng.below(3) == 0) r.cluster.link.burst = {64 * 1024}, r.cluster.link.peak = {r.cluster.link.bandwidth.bits_per_s * 3};
  r.profile = ideal_profile(kMicrosecond * (1 + rng.below(300)), kind);
  r.profile.memory.bandwidth_bytes_per_s = 1e11;
  r.profile.reduction_bytes_per_s = kind == DeviceKind::Cpu && rng.below(2) ? 4e9 : 0;
  if (kind == DeviceKind::Gpu) r.profile.host.launch = kMicrosecond * (rng.below(4) ? 3 : 300);
  if (kind == DeviceKind::Gpu && rng.below(2)) r.profile.sm_hold = {0.2, 0.1, 0.05};
  r.scenario.ranks = hosts;
  Plan& p = r.scenario.plan;
  if (rng.below(4) == 0) p.backend = Backend::Tcp, p.tcp_streams = 1 + rng.below(3);
  p.gradient_as_bucket_view = rng.below(2) == 0;
  p.comm_hook = static_cast<CommHook>(rng.below(4));
  p.static_graph = rng.below(4) == 0;
  p.find_unused_parameters = rng.below(4) == 0;
  p.accumulation_steps = 1 + rng.below(3);
  if (rng.below(2)) r.scenario.slow_ranks[rng.below(hosts)] = 1.25;
  return r;
}

// The nearest that a simulated step comes to the bound, over it.
double nearest(std::uint64_t seed, predict::Fidelity fidelity) {
  Job j = random_job(seed);
  topology::Fabric fabric(j.cluster);
  predict::Options options;
  options.fidelity = fidelity;
  predict::Question q{j.workload, fabric, j.profile, j.scenario};
  if (auto p = predict::check(q)) throw std::runtime_error(p.message);
  Duration bound = predict::lower_bound(q, options)->step;
  Rng rng{seed ^ 0xb0};
  double least = 1e9;
  for (int k = 0; k < 6; ++k) {
    Scenario s = j.scenario;
    if (k < 3) {
      s.plan.bucket_cap_mb = 0.1 + 8 * rng.uniform() * rng.uniform();
    } else {
      for (int b = 1 + rng.below(6); b > 0; --b) s.plan.bucket_cap_mb_list.push_back(0.05 + 8 * rng.uniform());
    }
    Duration step = predict::steady_period({j.workload, fabric, j.profile, s}, Level::Mid, options);
    if (step < bound) throw std::runtime_error("seed " + std::to_string(seed) + ": step " + to_string(step) + " below the bound " + to_string(bound));
    least = std::min(least, static_cast<double>(step.ps) / static_cast<double>(bound.ps));
  }
  return least;
}

TEST(LowerBound, IsNeverAboveASimulatedStepAndOftenNear) {
  std::vector<double> ratio;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) ratio.push_back(nearest(seed, predict::Fidelity::Collective));
  std::sort(ratio.begin(), ratio.end());
  EXPECT_LT(ratio.front(), 1.001) << "a bound that is a little too high would not be noticed";
  EXPECT_LT(ratio[ratio.size() / 2], 1.1) << "a bound that is far from every step bounds nothing";
  RecordProperty("median", std::to_string(ratio[ratio.size() / 2]));
}

TEST(LowerBound, HoldsMessageByMessage) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) EXPECT_GE(nearest(seed, predict::Fidelity::Message), 1);
}

// NCCL's choices and prices, described models, hosts that launch.
TEST(LowerBound, HoldsOnShippedClusters) {
  for (const char* w : {"resnet50", "vgg16", "gpt2-small", "mlp784-50-10"})
    for (const char* c : {"hgx-h100", "gpu-ethernet-25g", "dgx1-v100", "gcp-a3mega"})
      for (int hosts : {1, 4}) {
        Cluster on = cluster(c);
        on.hosts = on.pattern == Pattern::Star ? hosts : on.hosts;
        topology::Fabric fabric(on);
        Workload job = workload(w);
        Profile p = profile(on.profile);
        Scenario s;
        s.ranks = on.devices();
        if (s.ranks < 2) continue;
        predict::Communicators known;
        predict::TuneOptions options;
        options.options.known = &known;
        options.knob = strategy::knobs(s.plan).front();
        options.simulations = 24;
        options.levers = false;
        predict::Question q{job, fabric, p, s};
        if (auto problem = predict::check(q)) throw std::runtime_error(std::string(w) + " on " + c + ": " + problem.message);
        predict::Tuning t = predict::tune(q, options);
        for (const predict::CurvePoint& point : t.curve) EXPECT_GE(point.step, t.bound->step) << w << " on " << c << " at " << point.value->text;
        EXPECT_GE(t.partition->step, t.bound->step) << w << " on " << c;
      }
}

}  // namespace
}  // namespace ddpsim::test
