// Random small data-parallel jobs for laws that hold of every job.
#pragma once

#include <vector>

#include "sim/systems/ddp/plan.h"
#include "tests/support/support.h"

namespace ddpsim::test {

struct RandomJob {
  Workload workload;
  Cluster cluster;
  Profile profile;
  Scenario scenario;
};

struct RandomJobOptions {
  bool slow_ranks = true;
  bool two_dtypes = true;
};

// Some layers of odd sizes on a GPU or a CPU a host. Of every kind that changes what a bucket
// costs: bandwidth or latency decides, or the device, or its host; a star or racks, bursts, slow
// ranks, two dtypes, all knobs.
inline RandomJob random_job(std::uint64_t seed, RandomJobOptions options = {}) {
  Random rng(seed);
  RandomJob r;
  DeviceKind kind = rng.below(3) ? DeviceKind::Gpu : DeviceKind::Cpu;
  int layers = 2 + rng.below(12);
  r.workload = layered(layers, 4, kMillisecond, kMillisecond, kind);
  Duration at;
  double slowness = rng.below(2) ? 1 : 0.05;
  for (int i = 0; i < layers; ++i) {
    auto k = static_cast<std::size_t>(i);
    r.workload.tensors[k].shape = {1 + rng.below(2'000'000)};
    if (rng.below(8) == 0 && options.two_dtypes) r.workload.tensors[k].dtype = DType::Float16;
    at +=
        Duration{rng.below(3) ? 1 + static_cast<std::int64_t>(rng.uniform() * 5e9 * slowness) : 0};
    r.workload.times.ready[k] = at;
  }
  r.workload.times.backward = at + Duration{1 + static_cast<std::int64_t>(rng.uniform() * 1e9)};
  r.workload.times.optimizer = {static_cast<std::int64_t>(rng.uniform() * 1e9)};
  if (rng.below(2))
    r.workload.buffers = {{"mean", {1 + rng.below(10'000)}, DType::Float32},
                          {"count", {7}, DType::Int64}};
  int hosts = 2 + rng.below(7);
  r.cluster = star(hosts, Bandwidth{static_cast<std::int64_t>(1e9 * (1 + rng.below(80)))});
  r.cluster.device = kind;
  if (rng.below(3) == 0) {
    r.cluster.pattern = Pattern::Racks;
    r.cluster.racks = 2;
    r.cluster.uplink = r.cluster.link;
  }
  if (rng.below(3) == 0)
    r.cluster.link.burst = {64 * 1024},
    r.cluster.link.peak = {r.cluster.link.bandwidth.bits_per_s * 3};
  r.profile = ideal_profile(kMicrosecond * (1 + rng.below(300)), kind);
  r.profile.memory.bandwidth_bytes_per_s = 1e11;
  r.profile.reduction_bytes_per_s = kind == DeviceKind::Cpu && rng.below(2) ? 4e9 : 0;
  if (kind == DeviceKind::Gpu) r.profile.host.launch = kMicrosecond * (rng.below(4) ? 3 : 300);
  if (kind == DeviceKind::Gpu && rng.below(2)) r.profile.sm_hold = {0.2, 0.1, 0.05};
  r.scenario.ranks = hosts;
  Plan& p = r.scenario.plan;
  ddp_of(p).bucket_cap_mb = 0.25 * (1 << rng.below(6));
  if (rng.below(4) == 0) p.backend = Backend::Tcp, p.tcp_streams = 1 + rng.below(3);
  ddp_of(p).gradient_as_bucket_view = rng.below(2) == 0;
  ddp_of(p).comm_hook = static_cast<CommHook>(rng.below(4));
  ddp_of(p).static_graph = rng.below(4) == 0;
  ddp_of(p).find_unused_parameters = rng.below(4) == 0;
  p.accumulation_steps = 1 + rng.below(3);
  if (rng.below(2) && options.slow_ranks) r.scenario.slow_ranks[rng.below(hosts)] = 1.25;
  return r;
}

}  // namespace ddpsim::test
