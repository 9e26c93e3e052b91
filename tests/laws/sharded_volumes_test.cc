// What GPUs send in a step, as the priced collectives load their links, against the closed form of
// each way to shard. Of M bytes of weights, as many of gradients, on n GPUs that send (n - 1)/n of
// what they gather or scatter and twice that of what they all-reduce:
//
//   DDP                              2 (n - 1)/n M
//   ZeRO-1, ZeRO-2 by default        3 (n - 1)/n M     gradients all-reduced, weights gathered
//   ZeRO-3, each weight gathered     3 (n - 1)/n M     for forward, and again for backward
//   ZeRO-3 of a small model          2 (n - 1)/n M     below stage3_max_reuse_distance
//   FSDP, FSDP2 with reshard         3 (n - 1)/n M     less the root's second gathering
//   FSDP, FSDP2 without              2 (n - 1)/n M
//   HYBRID_SHARD in groups of g      3 (g - 1)/g M     in the group, less as much; and among r =
//   n/g
//                                    2 (r - 1)/r M/g   replicas
//
// Rajbhandari et al. 2020, section 7; Zhao et al. 2023, section 3.2.
#include <gtest/gtest.h>

#include "sim/collective/price.h"
#include "sim/cost/roofline.h"
#include "sim/play/prices.h"
#include "sim/predict/link_use.h"
#include "sim/predict/lowered.h"
#include "sim/systems/fsdp/fsdp.h"
#include "sim/systems/fsdp/plan.h"
#include "sim/systems/zero/plan.h"
#include "tests/support/support.h"
#include "tests/support/systems.h"

namespace ddpsim::test {
namespace {

struct Asked {
  Workload w;
  Cluster c = cluster("dgx-a100");
  Profile p = profile(c.profile);
  Scenario s;
  Asked(System system, int gpus, int hosts = 1, const char* model = "gpt2-small")
      : w(workload(model)) {
    c.hosts = hosts;
    s.ranks = gpus;
    s.plan.system = system;
    s.plan.environment = {{"NCCL_ALGO", "Ring"}, {"NCCL_PROTO", "Simple"}};
  }
  double m() const { return static_cast<double>(w.gradient_bytes().count); }
  double root() const {
    return 4 * static_cast<double>(systems::fsdp_units(w, s.plan).front().elements);
  }
  // Bytes that the collectives of a step put on all links whose name has both parts.
  double sent(const std::string& begin, const std::string& part) const {
    const topology::Fabric fabric(c);
    const predict::Question q{w, fabric, p, s};
    const Problem problem = predict::check(q);
    EXPECT_FALSE(problem) << problem.message;
    const Program program =
        predict::lowered(q, predict::step_times(w, p, Level::Mid, predict::gathered_in(s.plan)),
                         systems::Steps::SteadyOnly);
    predict::Communicators known;
    const collective::Communicator& comm = known.get(q, program);
    predict::Prices prices(comm, p, Level::Mid);
    double out = 0;
    for (const predict::LinkBusy& l : predict::link_use(program, comm, p, kSecond, prices)) {
      const std::string name = fabric.link_name(l.link);
      if (name.starts_with(begin) && name.find(part) != std::string::npos)
        out += l.busy * collective::link_rate(comm, p, Level::Mid, l.link) *
               static_cast<double>(kSecond.ps);
    }
    return out;
  }
  // By a GPU, over its link to the switch of its host.
  double of_gpu() const { return sent("host0.dev0 ", " up"); }
  double shares(double whole) const { return (s.ranks - 1.0) / s.ranks * whole; }
};

// Parts of a tensor, a unit or a bucket are padded to a multiple of the ranks; norms, flags and
// traces of a few bytes are sent besides.
constexpr double kSlack = 2e-3;
void expect_sent(const Asked& a, double expected) {
  EXPECT_GE(a.of_gpu(), expected * (1 - 1e-9)) << name_of(a.s.plan.system) << " " << a.s.ranks;
  EXPECT_LE(a.of_gpu(), expected * (1 + kSlack)) << name_of(a.s.plan.system) << " " << a.s.ranks;
}

TEST(ShardedVolumes, OfDdpAreTwiceTheGradients) {
  for (int n : {2, 4, 8}) {
    Asked a(systems::kDdpSystem, n);
    expect_sent(a, a.shares(2 * a.m()));
  }
}

TEST(ShardedVolumes, OfZero1And2AreHalfAsMuchAgain) {
  for (int n : {2, 4, 8})
    for (int stage : {1, 2}) {
      Asked a(systems::kZeroSystem, n);
      zero_of(a.s.plan).stage = stage;
      expect_sent(a, a.shares(3 * a.m()));
    }
}

// Of a weight that two modules share each gathers it: GPT-2's embedding four times.
TEST(ShardedVolumes, OfZero3AreThatWhereWeightsAreGatheredTwice) {
  for (const auto& [model, n] : {std::pair{"vgg16", 2}, std::pair{"vgg16", 8},
                                 std::pair{"resnet50", 4}, std::pair{"gpt2-small", 8}}) {
    Asked once(systems::kZeroSystem, n, 1, model);
    zero_of(once.s.plan).stage = 3;
    zero_of(once.s.plan).stage3_param_persistence_threshold = 0;
    expect_sent(once, once.shares(2 * once.m()));
    Asked twice = once;
    zero_of(twice.s.plan).stage3_prefetch_bucket_size = 0;
    zero_of(twice.s.plan).stage3_max_reuse_distance = 0;
    const bool shared = model == std::string("gpt2-small");
    const double more = shared ? 2.0 * 4 * 50257 * 768 : 0;
    expect_sent(twice, twice.shares(3 * twice.m() + more));
  }
}

TEST(ShardedVolumes, OfFsdpAreThatButForTheRoot) {
  for (int n : {2, 4, 8}) {
    for (System system : {systems::kFsdpSystem, systems::kFsdp2System}) {
      Asked a(system, n);
      expect_sent(a, a.shares(3 * a.m() - a.root()));
    }
    Asked kept(systems::kFsdpSystem, n);
    fsdp_of(kept.s.plan).sharding_strategy = Sharding::ShardGradOp;
    expect_sent(kept, kept.shares(2 * kept.m()));
    Asked kept2(systems::kFsdp2System, n);
    fsdp_of(kept2.s.plan).reshard_after_forward = {0};
    expect_sent(kept2, kept2.shares(2 * kept2.m()));
  }
}

// Groups of a host: weights stay in it, and its GPUs' shards of the gradients leave by its NICs.
TEST(ShardedVolumes, OfHybridShardsAreTheGroupsAndTheReplicas) {
  for (int hosts : {2, 4}) {
    Asked a(systems::kFsdpSystem, 8 * hosts, hosts);
    fsdp_of(a.s.plan).sharding_strategy = Sharding::HybridShard;
    const double r = hosts;
    expect_sent(a, 7.0 / 8 * (3 * a.m() - a.root()));
    EXPECT_NEAR(a.sent("host0.nic", " up") / (2 * (r - 1) / r * a.m()), 1, kSlack) << hosts;
  }
}

}  // namespace
}  // namespace ddpsim::test
