// Releases of Horovod, and months of Apex: each row of their tables changes a plan.
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "sim/predict/predict.h"
#include "sim/systems/apex/plan.h"
#include "sim/systems/horovod/horovod.h"
#include "sim/systems/horovod/plan.h"
#include "tests/support/released.h"
#include "tests/support/systems.h"

namespace ddpsim::systems {
namespace {

using test::LoweredStep;
using test::plan_with;
using test::release_before;

// ---- Horovod

Coordination coordination_at(const std::string& release,
                             const std::map<std::string, std::string>& settings = {}) {
  Plan p = with_setting(plan_with(kHorovodSystem, settings), "horovod", release);
  return *LoweredStep(p, test::workload("resnet50")).program.coordination;
}
TEST(HorovodVersions, DefaultsAndCopiesAreOfTheRelease) {
  const Coordination then = coordination_at("0.20.3");
  const Coordination now = coordination_at("0.21.0");
  EXPECT_EQ(then.cycle, scale(kMillisecond, 5));
  EXPECT_EQ(now.cycle, kMillisecond);
  EXPECT_EQ(then.threshold, 64 << 20);
  EXPECT_EQ(now.threshold, 128 << 20);
  EXPECT_EQ(then.batch, 1);
  EXPECT_EQ(now.batch, 160);
  EXPECT_EQ(coordination_at("0.20.3", {{"HOROVOD_CYCLE_TIME", "2"}}).cycle, scale(kMillisecond, 2));
  EXPECT_EQ(coordination_at("0.20.3", {{"HOROVOD_FUSION_THRESHOLD", "1048576"}}).threshold,
            1 << 20);
}

// A step of a release, whose tensors are fused up to a threshold.
predict::SteadyStep played_at(const std::string& release, std::int64_t threshold) {
  const Workload w = test::workload("resnet50");
  const topology::Fabric fabric(test::cluster("dgx-h100"));
  const Profile profile = test::profile("h100-sxm.datasheet");
  Scenario s;
  s.ranks = 8;
  s.plan = with_setting(plan_with(kHorovodSystem, {}), "horovod", release);
  horovod_of(s.plan).fusion_threshold = threshold;
  horovod_of(s.plan).cycle_time = 1000;
  return predict::steady_step({w, fabric, profile, s});
}
TEST(HorovodVersions, WhoWaitsAndWhoDivides) {
  struct Row {
    const char* release;
    bool waits;         // the thread
    bool scales_fused;  // a kernel
    bool scales_single;
  };
  for (const Row& row : {Row{"0.22.1", true, true, true}, Row{"0.23.0", false, false, true},
                         Row{"0.25.0", false, false, true}, Row{"0.26.0", false, false, false},
                         Row{"0.28.1", false, false, false}})
    for (bool fused : {true, false}) {
      const predict::SteadyStep s = played_at(row.release, fused ? 1 << 30 : 0);
      std::map<std::string, int> seen;
      for (std::uint32_t i = 0; i < s.program.steady.ops.size(); ++i) {
        const std::string name = name_of(s.program, s.program.steady, i);
        ++seen[name.substr(0, name.find('.'))];
      }
      const int reductions = seen["allreduce/fused"];
      EXPECT_EQ(reductions, fused ? 1 : 161) << row.release;
      EXPECT_EQ(seen["wait/gradients"], row.waits ? reductions : 0) << row.release;
      EXPECT_EQ(seen["scale/fused"],
                (fused ? row.scales_fused : row.scales_single) ? reductions : 0)
          << row.release;
    }
}

TEST(HorovodVersions, EachRowIsMet) {
  using horovod::Change;
  const Workload w = test::workload("resnet50");
  const std::map<Change, std::map<std::string, std::string>> later{
      {Change::Groups, {{"groups", "2"}}},
      {Change::AsyncCompletion, {{"HOROVOD_ENABLE_ASYNC_COMPLETION", "true"}}},
      {Change::TorusAllreduce, {{"HOROVOD_TORUS_ALLREDUCE", "true"}}}};
  for (const auto& row : horovod::Table::kRows) {
    auto of = [&](const std::string& release, const std::map<std::string, std::string>& settings) {
      return with_setting(plan_with(kHorovodSystem, settings), "horovod", release);
    };
    const std::string earlier = release_before<horovod::Table>(row);
    const std::string now = horovod::Version::first_with(row.change);
    if (const auto at = later.find(row.change); at != later.end()) {
      EXPECT_NE(validate(of(earlier, at->second), w, DeviceKind::Gpu).message.find(now),
                std::string::npos)
          << row.before_and_now;
      EXPECT_FALSE(validate(of(now, at->second), w, DeviceKind::Gpu)) << row.before_and_now;
      continue;
    }
    const Coordination a = coordination_at(earlier);
    const Coordination b = coordination_at(now);
    EXPECT_TRUE(a.cycle != b.cycle || a.batch != b.batch || a.divides != b.divides ||
                a.waits_for_gradients != b.waits_for_gradients)
        << row.before_and_now;
  }
}

// ---- Apex

TEST(ApexVersions, EachRowChangesAStepOrIsTold) {
  auto of = [](const std::string& release, const std::map<std::string, std::string>& settings) {
    Plan p = plan_with(kApexSystem, settings);
    p.accumulation_steps = settings.count("disable_allreduce") ? 2 : 1;
    return with_setting(p, "apex", release);
  };
  using apex::Change;
  const Workload w = test::workload("resnet50");
  for (const auto& row : apex::Table::kRows) {
    const std::string earlier = release_before<apex::Table>(row);
    const std::string now = apex::Version::first_with(row.change);
    const std::map<std::string, std::string> settings =
        row.change == Change::DisableAllreduce
            ? std::map<std::string, std::string>{{"disable_allreduce", "true"}}
        : row.change == Change::SeveralStreams
            ? std::map<std::string, std::string>{{"num_allreduce_streams", "2"}}
        : row.change == Change::RetainedBuffersAreGradients
            ? std::map<std::string, std::string>{{"retain_allreduce_buffers", "true"}}
            : std::map<std::string, std::string>{};
    if (row.change == Change::DisableAllreduce || row.change == Change::SeveralStreams) {
      EXPECT_NE(validate(of(earlier, settings), w, DeviceKind::Gpu).message.find(now),
                std::string::npos);
      EXPECT_FALSE(validate(of(now, settings), w, DeviceKind::Gpu));
    } else if (row.change == Change::RetainedBuffersAreGradients) {
      auto* const warnings = record_of(kApexSystem).warnings;
      EXPECT_EQ(warnings(of(earlier, settings)).size(), 1u);
      EXPECT_TRUE(warnings(of(now, settings)).empty());
      EXPECT_TRUE(warnings(of(earlier, {})).empty());
    } else {
      EXPECT_TRUE(LoweredStep(of(earlier, settings), w).text() !=
                  LoweredStep(of(now, settings), w).text())
          << row.before_and_now;
    }
  }
  const LoweredStep then(of("19.02", {}), w);
  const LoweredStep now(of("25.05", {}), w);
  for (const Op* op : then.of("flatten/")) EXPECT_NE(op->lane, Lane::Compute);
  for (const Op* op : now.of("flatten/")) EXPECT_EQ(op->lane, Lane::Compute);
  std::int64_t copies = 0;
  for (const Op* op : then.of("unflatten/")) copies += op->kernels;
  EXPECT_EQ(copies, 161) << "a gradient, a kernel";
}

}  // namespace
}  // namespace ddpsim::systems
