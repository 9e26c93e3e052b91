// A steady step lies between bounds that know nothing of the simulation and of its summary: what
// the devices compute, what a host's cable carries, the chain that nothing can shorten; and all of
// it one after another. A simulator that lies falls outside them.
#include <algorithm>
#include <map>
#include <string>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "sim/collective/price.h"
#include "sim/cost/roofline.h"
#include "sim/systems/base/lower.h"
#include "sim/systems/ddp/plan.h"
#include "tests/laws/random_job.h"

namespace ddpsim::test {
namespace {

struct StepBounds {
  Duration device;  // forward, backward and optimizer of the slowest rank
  Duration cable;   // each gradient has to leave its host once
  Duration chain;   // to a gradient, all that is left to another host, the optimizer
  Duration serial;  // every operation and every collective, one after another
};

double slowest(const Scenario& s) {
  double factor = static_cast<int>(s.slow_ranks.size()) == s.ranks ? 0 : 1;
  for (const auto& [rank, f] : s.slow_ranks) factor = std::max(factor, f);
  return factor;
}

// Bytes of a gradient on the wire. REQUIRES: the hook is one that random_job() picks.
std::int64_t wire_bytes(const Tensor& t, CommHook hook) {
  const bool halves = hook == CommHook::Fp16Compress || hook == CommHook::Bf16Compress;
  return t.elements() * (halves ? 2 : element_size(t.dtype));
}

Duration over(std::int64_t bytes, Bandwidth b) {
  return {static_cast<std::int64_t>(static_cast<double>(bytes) / b.bytes_per_ps())};
}

StepBounds bounds_of(const RandomJob& r, const topology::Fabric& fabric) {
  const Workload& w = r.workload;
  const Plan& plan = r.scenario.plan;
  const StepTimes& t = w.times;
  const double factor = slowest(r.scenario);
  const auto at_pace = [&](Duration d) {
    return Duration{static_cast<std::int64_t>(static_cast<double>(d.ps) * factor)};
  };
  const Duration passes = t.forward + t.backward;

  StepBounds b;
  b.device = at_pace(passes * plan.accumulation_steps + t.optimizer);

  std::int64_t gradients = 0;
  for (const Tensor& g : w.tensors) gradients += wire_bytes(g, ddp_of(plan).comm_hook);
  b.cable = over(gradients - r.cluster.link.burst.count, r.cluster.link.bandwidth);

  // Nothing is sent before the first gradient is there; the last one cannot go before it is.
  const Bandwidth peak = std::max(r.cluster.link.bandwidth, r.cluster.link.peak);
  const std::int64_t last = wire_bytes(w.tensors[w.arrival.back()], ddp_of(plan).comm_hook);
  const Duration before = passes * (plan.accumulation_steps - 1) + t.forward;
  b.chain = std::max(at_pace(before + t.ready.front()) + b.cable,
                     at_pace(before + t.ready.back()) + over(last, peak)) +
            at_pace(t.optimizer);

  const Program program =
      systems::lower({w, t, r.profile.kind, r.scenario.ranks}, plan, systems::Steps::SteadyOnly);
  predict::Communicators known;
  const collective::Communicator& comm =
      known.get({w, fabric, r.profile, r.scenario}, program.backend);
  Duration work;
  Duration collectives;
  for (const Op& op : program.steady.ops)
    if (is_collective(op.kind))
      collectives += collective::price(comm, r.profile, Level::Mid, op.kind.operation,
                                       Bytes{op.bytes}, op.dtype)
                         .alone +
                     collective::queued_launch(comm, r.profile);
    else if (op.kind.does != Does::Wait)
      work += predict::price(op, program.steady, program, r.profile, Level::Mid);
  // A kernel beside a collective has what the collective leaves of the device.
  b.serial = {static_cast<std::int64_t>(static_cast<double>(work.ps) * factor /
                                        (1 - r.profile.sm_hold.mid))};
  b.serial += collectives;
  return b;
}

// Which bound a step breaks; "" = none.
std::string broken(const StepBounds& b, Duration step) {
  if (step < b.device) return "device";
  if (step < b.cable) return "cable";
  if (step < b.chain) return "chain";
  if (step > b.serial) return "serial";
  return "";
}

Duration step_of(const RandomJob& r, const topology::Fabric& fabric) {
  return predict::steady_period({r.workload, fabric, r.profile, r.scenario});
}

RC_GTEST_PROP(StepBounds, HoldOfEveryStep, ()) {
  const auto seed = *rc::gen::arbitrary<std::uint32_t>();
  const RandomJob r = random_job(seed);
  const topology::Fabric fabric(r.cluster);
  const StepBounds b = bounds_of(r, fabric);
  const Duration step = step_of(r, fabric);
  RC_LOG() << to_string(step) << ": device " << to_string(b.device) << ", cable "
           << to_string(b.cable) << ", chain " << to_string(b.chain) << ", serial "
           << to_string(b.serial) << "\n";
  RC_ASSERT(broken(b, step) == "");
}

// Simulators that lie, each in one way. Every bound is the one that notices some lie.
TEST(StepBounds, NoticeASimulatorThatLies) {
  std::map<std::string, int> noticed;
  int jobs = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed, ++jobs) {
    const RandomJob r = random_job(seed);
    const topology::Fabric fabric(r.cluster);
    const StepBounds b = bounds_of(r, fabric);
    ASSERT_EQ(broken(b, step_of(r, fabric)), "") << "seed " << seed;

    RandomJob lie = r;  // computes nothing in backward, sends as before
    lie.workload.times.backward = {};
    for (Duration& d : lie.workload.times.ready) d = {};
    if (!broken(b, step_of(lie, fabric)).empty()) ++noticed["no backward"];

    lie = r;  // the network is free
    lie.cluster.link.bandwidth.bits_per_s *= 10'000;
    lie.cluster.link.burst = {};
    lie.cluster.link.peak = {};
    lie.cluster.uplink = lie.cluster.link;
    const topology::Fabric free(lie.cluster);
    if (!broken(b, step_of(lie, free)).empty()) ++noticed["free network"];

    lie = r;  // all of it takes four times as long
    for (Duration* d :
         {&lie.workload.times.forward, &lie.workload.times.backward, &lie.workload.times.optimizer})
      *d = *d * 4;
    for (Duration& d : lie.workload.times.ready) d = d * 4;
    lie.cluster.link.bandwidth.bits_per_s /= 4;
    lie.cluster.link.burst = {};
    lie.cluster.uplink = lie.cluster.link;
    const topology::Fabric slow(lie.cluster);
    if (broken(b, step_of(lie, slow)) == "serial") ++noticed["slow"];
  }
  EXPECT_GT(noticed["no backward"], jobs / 3);
  EXPECT_GT(noticed["free network"], jobs / 6);
  EXPECT_GT(noticed["slow"], jobs / 2);
}

}  // namespace
}  // namespace ddpsim::test
