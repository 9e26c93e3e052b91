// A machine of which a part is slower is not faster: steps of random questions.
#include <gtest/gtest.h>

#include "sim/predict/predict.h"
#include "sim/systems/base/settings.h"
#include "tests/support/support.h"
#include "tests/support/systems.h"

namespace ddpsim::test {
namespace {

double step(const Workload& w, const Cluster& c, const Profile& p, const Scenario& s) {
  const topology::Fabric fabric(c);
  predict::Options options;
  options.interval = options.names = options.warmup = false;
  return static_cast<double>(predict::predict({w, fabric, p, s}, options).summary.step.ps);
}

// NCCL's own choice is held: it may change to what is faster, and the answer says so. Horovod's
// thread takes together what is ready when it looks, so that on a slower machine it may send other
// groups of tensors, in some steps of the mean or in all: then a step may be shorter, by little.
TEST(Slower, IsNeverFaster) {
  Random rng(71);
  const std::vector<System> systems{systems::kDdpSystem,       systems::kFsdpSystem,
                                    systems::kFsdp2System,     systems::kZeroSystem,
                                    systems::kApexSystem,      systems::kMegatronSystem,
                                    systems::kAveragingSystem, systems::kHorovodSystem};
  for (int i = 0; i < 60; ++i) {
    const Workload w = test::workload(rng.pick(std::vector<std::string>{"resnet18", "gpt2-small"}));
    Cluster c = test::cluster(rng.pick(std::vector<std::string>{
        "gpu-ethernet-10g", "gpu-ethernet-100g", "azure-nc-a100-v4", "dgx-a100", "aws-p3dn"}));
    c.hosts = 2 + rng.below(2);
    Profile p = test::profile(c.profile);
    Scenario s;
    s.ranks = c.devices();
    s.plan.system = i % 3 == 0 ? systems::kHorovodSystem : rng.pick(systems);
    s.plan.environment = {{"NCCL_ALGO", "ring"}, {"NCCL_PROTO", "simple"}};
    const std::string what =
        w.name + " on " + c.name + " x" + std::to_string(c.hosts) + ", " + name_of(s.plan.system);
    const double before = step(w, c, p, s);
    for (const char* slower : {"latency", "host", "device"}) {
      Cluster slow_cluster = c;
      Profile slow = p;
      if (*slower == 'l')
        slow_cluster.link.latency = c.link.latency * 3;
      else if (*slower == 'h')
        for (Duration* d : {&slow.host.launch, &slow.host.hook, &slow.host.collective_launch})
          *d = scale(*d, 1.5);
      else
        slow.memory.bandwidth_bytes_per_s *= 0.8;
      const double least = s.plan.system == systems::kHorovodSystem ? 0.97 : 1 - 1e-9;
      EXPECT_GE(step(w, slow_cluster, slow, s), least * before) << what << ", slower " << slower;
    }
  }
}

}  // namespace
}  // namespace ddpsim::test
