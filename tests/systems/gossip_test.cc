// A system whose partner changes by step and rank: its Program says it by groups of two.
#include <set>

#include <gtest/gtest.h>

#include "sim/systems/base/lower.h"
#include "sim/systems/base/record.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

Args about(const std::string& command, const std::string& ranks, const Args& more = {}) {
  Args all{command,
           "--workload",
           "cnn-cpu",
           "--cluster",
           "testbed-star",
           "--plan",
           "gossip",
           "--set",
           "accumulation_steps=3",
           "--set",
           "cluster.hosts=" + ranks,
           "--ranks",
           ranks};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST(GossipSystem, HasAnotherPartnerInEachStepOfARound) {
  const Workload w = workload("cnn-cpu");
  Plan plan;
  plan.system = System("gossip");
  plan.accumulation_steps = 3;
  const Program p = systems::lower({w, w.times, DeviceKind::Cpu, 8}, plan);
  std::set<int> partners;  // of rank 5
  for (const Op& op : p.steady.ops) {
    if (!is_collective(op.kind)) continue;
    for (const std::vector<int>& pair : members(p.groups[op.group - 1u], 8))
      if (pair[0] == 5 || pair[1] == 5) partners.insert(pair[0] == 5 ? pair[1] : pair[0]);
  }
  EXPECT_EQ(partners, (std::set<int>{4, 7, 1}));
}

TEST(GossipSystem, IsPredictedInBothFidelitiesAndRefusesThreeRanks) {
  for (const char* fidelity : {"collective", "message"}) {
    const Outcome o = ddpsim(about("predict", "4", {"--fidelity", fidelity}));
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_NE(o.out.find("a step of this answer is a round of 3"), std::string::npos) << o.out;
  }
  const Outcome odd = ddpsim(about("predict", "3"));
  EXPECT_NE(odd.err.find("at powers of two: 3 is none"), std::string::npos) << odd.err;
}

}  // namespace
}  // namespace ddpsim::test
