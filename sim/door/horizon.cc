#include "sim/door/horizon.h"

#include <algorithm>

#include <fmt/format.h>

#include "sim/door/given_program.h"
#include "sim/systems/base/settings.h"
#include "sim/units/convert.h"
#include "sim/units/number.h"

namespace ddpsim::door {
namespace {

// Seconds of all the steps that a prediction plays, each part at its slowest and nothing
// overlapped.
double longest_seconds(const Asked& l) {
  const Workload& w = l.workload->workload;
  const Profile& p = l.hardware->device->profile;
  const Plan& plan = l.scenario.plan;
  double micro_steps = plan.accumulation_steps;
  double bandwidth = p.memory.bandwidth_bytes_per_s * p.memory.efficiency.low;
  double compute = 0;
  auto add = [&](const LayerCost& c) {
    double peak = p.compute.peak_flops[w.precision] * p.compute.efficiency[0].low;
    for (const Range& r : p.compute.efficiency)
      peak = std::min(peak, p.compute.peak_flops[w.precision] * r.low);
    compute += (c.bytes_per_sample * w.batch + c.bytes_fixed) / bandwidth +
               static_cast<double>(c.kernels) * seconds(p.memory.kernel + p.host.launch);
    if (c.flops_per_sample > 0) compute += c.flops_per_sample * w.batch / peak;
  };
  for (const Layer& layer : w.layers) add(layer.forward), add(layer.backward);
  compute += seconds(w.times.forward + w.times.backward) * w.times.slow;
  if (w.times.host)
    compute += seconds(w.times.host->forward + w.times.host->backward) * w.times.slow;
  auto tensors = static_cast<double>(w.tensors.size());
  auto gradients = static_cast<double>(w.gradient_bytes().count);
  double buffers = 0;
  for (const Tensor& b : w.buffers) buffers += static_cast<double>(b.bytes().count);
  // Optimizer and copies: at most 100 passes over the gradients.
  double once = seconds(w.times.optimizer) * w.times.slow + 100 * gradients / bandwidth;
  double overhead =
      seconds(p.host.launch + p.host.hook + p.host.traverse + p.memory.kernel) * 10 * tensors;
  ProgramSize given;
  if (l.program) {
    given = size_of(l.program->program, p);
    compute = given.seconds;
    overhead = once = 0;
    gradients = given.bytes;
    micro_steps = 1;
  }
  if (l.scenario.input && l.scenario.input->samples_per_s > 0)
    compute += w.batch / l.scenario.input->samples_per_s;
  double slow = 1;
  for (const auto& [rank, factor] : l.scenario.slow_ranks) slow = std::max(slow, factor);
  if (l.scenario.jitter) slow *= 1 + 6 * l.scenario.jitter->cv;
  slow *= predict::straggling(p, l.scenario, Level::Low);
  if (p.sm_hold.low < 1) slow /= 1 - p.sm_hold.low;
  double network = 0;
  if (l.scenario.ranks > 1) {
    double slowest = 1e18;
    double latency = 0;
    for (const topology::Link& link : l.hardware->fabric->links()) {
      slowest = std::min(slowest, static_cast<double>(link.bandwidth.bits_per_s) / 8);
      latency = std::max(latency, seconds(link.latency) * 4);
    }
    double efficiency = 1;
    double start = 0;
    double correction = 1;
    double turns =
        0;  // core time of a message, where all ranks' messages take turns on a few cores
    for (const auto& [name, t] : p.transports) {
      efficiency = std::min(efficiency, t.efficiency.low);
      Duration slowest_step = t.occasions ? t.occasions->latency.high : t.latency;
      Duration slowest_core = t.occasions ? t.occasions->message_core.high : t.message_core;
      latency = std::max(latency, seconds(slowest_step));
      start = std::max(start, seconds(t.launch + p.host.collective_launch));
      if (int cores = l.hardware->cluster.emulated_on_cores; cores > 0)
        turns = std::max(turns, seconds(slowest_core) / cores);
      for (const Knot& k : t.knots) correction = std::max({correction, k.factor, 1 / k.factor});
    }
    if (p.reduction_bytes_per_s > 0) slowest = std::min(slowest, p.reduction_bytes_per_s);
    double bucket = parse_number(systems::setting_of(plan, "bucket_cap_mb")).value_or(25) * 1048576;
    double collectives = systems::record_of(plan.system).bucketed
                             ? std::min(tensors, gradients / bucket + 8) + 4 * micro_steps
                             : tensors;
    if (systems::record_of(plan.system).shards)
      collectives = 4 * tensors * micro_steps, gradients *= 2 * micro_steps;
    if (l.program) collectives = given.collectives;
    network = 2 * (gradients + buffers * micro_steps) / (slowest * efficiency) * correction +
              collectives * (start + 4 * l.scenario.ranks * (latency + l.scenario.ranks * turns));
  }
  double steps = std::max(12, l.scenario.jitter ? l.scenario.jitter->samples + 1 : 0);
  return steps * (((compute + overhead) * micro_steps + once) * slow + network);
}

}  // namespace

void check_horizon(const Asked& l, const std::string& file, double longer) {
  constexpr double kHorizonSeconds = 1e6;
  if (double seconds = longest_seconds(l) * longer; !(seconds <= kHorizonSeconds))
    throw InputError{file,
                     fmt::format("the simulated steps may last {:.2g} seconds; ddpsim counts up to "
                                 "{:.0g} (is a rate too small, a latency too long, "
                                 "or are there too many accumulation steps or jitter samples?)",
                                 seconds, kHorizonSeconds)};
}

}  // namespace ddpsim::door
