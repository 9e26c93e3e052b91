// Simulations that use one graph's memory, one after another: each answers as if it were alone.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/engine/task_graph.h"
#include "sim/io/codecs.h"
#include "sim/predict/predict.h"
#include "tests/support/support.h"
#include "tests/support/systems.h"

namespace ddpsim::predict {
namespace {

std::string answer(System system, const std::string& cluster, const std::string& workload,
                   engine::TaskGraph* memory) {
  const Cluster c = test::cluster(cluster);
  const topology::Fabric fabric(c);
  const Workload w = test::workload(workload);
  const Profile p = test::profile(c.profile);
  Scenario s;
  s.ranks = 4;
  s.plan.system = system;
  Options options;
  options.graph = memory;
  const Prediction out = predict({w, fabric, p, s}, options);
  return io::write_run(out.run).dump() + std::to_string(out.step_low.ps) + " " +
         std::to_string(out.step_high.ps);
}

TEST(GraphMemory, OfTheSimulationBeforeChangesNoAnswer) {
  struct Asked {
    System system;
    const char* cluster;
    const char* workload;
  };
  // Horovod's graph grows while it is played.
  const std::vector<Asked> asked{{systems::kFsdpSystem, "hgx-h100", "gpt2-small"},
                                 {systems::kDdpSystem, "ethernet-10g", "resnet50-cpu"},
                                 {systems::kHorovodSystem, "gpu-ethernet-25g", "resnet50"},
                                 {systems::kDdpSystem, "hgx-h100", "resnet50"}};
  std::vector<std::string> alone;
  for (const Asked& a : asked) alone.push_back(answer(a.system, a.cluster, a.workload, nullptr));
  engine::TaskGraph memory;
  for (int pass = 0; pass < 2; ++pass)
    for (std::size_t i = 0; i < asked.size(); ++i)
      EXPECT_EQ(answer(asked[i].system, asked[i].cluster, asked[i].workload, &memory), alone[i])
          << i;
}

TEST(GraphMemory, AClearedGraphHoldsNothing) {
  engine::TaskGraph g;
  const engine::ResourceId r = g.add_resource({.rate = 1});
  const std::vector<engine::Demand> demands{{r, 1}};
  const engine::FlowId flow = g.add_flow(demands);
  const engine::TaskId a = g.add_task({}, 5, flow);
  const engine::TaskId b = g.add_fixed(Duration{3});
  g.add_part(a, 7, flow);
  g.add_edge(a, b);
  g.add_hold(a, b, {r, 0.5});
  g.clear();
  EXPECT_EQ(g.size() + g.edge_count() + g.parts().size() + g.holds().size(), 0u);
  EXPECT_EQ(g.resources().size() + g.flows().size() + g.demands().size(), 0u);
}

}  // namespace
}  // namespace ddpsim::predict
