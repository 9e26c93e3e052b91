// Releases of DeepSpeed: each row of their table changes a plan's step, or is told; and a step
// differs in the thing that the row says.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/predict/predict.h"
#include "sim/systems/zero/plan.h"
#include "sim/systems/zero/zero.h"
#include "tests/support/released.h"
#include "tests/support/systems.h"

namespace ddpsim::systems {
namespace {

using test::LoweredStep;
using test::Met;
using test::of_halves;
using test::plan_with;
using test::release_before;

LoweredStep zero_at(const std::string& release, const Met& met) {
  return test::lowered_at(kZeroSystem, "deepspeed", release, met);
}
Workload clipped_resnet() {
  Workload w = test::workload("resnet50");
  w.loop.clip_grad_norm = true;
  return w;
}
Met met_by_zero(ZeroChange c) {
  const Workload gpt2 = test::workload("gpt2-small");
  const Workload fp16 = of_halves(test::workload("resnet50"), DType::Float16);
  const Workload bf16 = of_halves(gpt2, DType::BFloat16);
  const Met overlapped{{{"overlap_comm", "true"}, {"reduce_bucket_size", "5000000"}}};
  const Met offloaded{{{"offload_optimizer", "cpu"}},
                      of_halves(test::workload("resnet50"), DType::BFloat16)};
  const Met offloaded_3{{{"stage", "3"}, {"offload_optimizer", "cpu"}}, bf16};
  switch (c) {
    case ZeroChange::ChecksFp16Alone:
      return {{}, of_halves(test::workload("resnet50"), DType::BFloat16)};
    case ZeroChange::SharedAllReduce:
    case ZeroChange::GathersAtOnce:
    case ZeroChange::NormStaysOnTheDevice:
    case ZeroChange::AveragesWhatIsFilled:
      return {};
    case ZeroChange::ReducesToOwners:
      return {{{"use_multi_rank_bucket_allreduce", "false"}}};
    case ZeroChange::NormOfAllIsRead:
      return {{{"stage", "3"}, {"sub_group_size", "2000000"}}, gpt2};
    case ZeroChange::NormOfStage3StaysOnTheDevice:
      return {{{"stage", "3"}}, gpt2};
    case ZeroChange::SecondCopyByPresence:
    case ZeroChange::HostWaitsForSecondCopy:
      return {{{"stage", "3"}, {"zero_hpz_partition_size", "4"}}, gpt2};
    case ZeroChange::OverflowStaysOnTheDevice:
      return {{}, fp16};
    case ZeroChange::ClipsOnTheDevice:
      return {{}, clipped_resnet()};
    case ZeroChange::ComputationWaits:
    case ZeroChange::WaitsForItself:
    case ZeroChange::OverlapsAgain:
      return overlapped;
    case ZeroChange::CopiesSinglesBack:
    case ZeroChange::CopiesHalvesBack:
      return offloaded;
    case ZeroChange::HostKeepsTheFirst:
    case ZeroChange::HostKeepsEach:
      return {offloaded.settings, offloaded.workload, 3};
    case ZeroChange::CastsForTheHost:
    case ZeroChange::NoBufferBetween:
    case ZeroChange::PinsMemory:
      return offloaded_3;
    case ZeroChange::CountsWhatStays:
    case ZeroChange::CountsAnew:
      return {{{"stage", "3"},
               {"stage3_max_reuse_distance", "30000000"},
               {"stage3_max_live_parameters", "40000000"}},
              gpt2,
              3};
    case ZeroChange::HooksCount:
    case ZeroChange::HooksCountOnce:
      return {};
  }
  return {};
}
bool is_only_told(ZeroChange c) {
  return c == ZeroChange::SecondCopyByPresence || c == ZeroChange::HooksCount ||
         c == ZeroChange::HooksCountOnce;
}

TEST(ZeroVersions, EachRowChangesAStepOrIsTold) {
  for (const auto& row : deepspeed::Table::kRows) {
    const Met met = met_by_zero(row.change);
    const std::string earlier = release_before<deepspeed::Table>(row);
    const std::string now = deepspeed::Version::first_with(row.change);
    if (!is_only_told(row.change)) {
      EXPECT_TRUE(zero_at(earlier, met).text() != zero_at(now, met).text()) << row.before_and_now;
      continue;
    }
    const Plan p = plan_with(kZeroSystem, met.settings);
    EXPECT_NE(zero_warnings(with_setting(p, "deepspeed", earlier)),
              zero_warnings(with_setting(p, "deepspeed", now)))
        << row.before_and_now;
  }
}

// Rows of stages 1 and 2 leave stage 3 alone, those of offloading what does not offload, and so on.
TEST(ZeroVersions, ARowLeavesOtherPlansAlone) {
  const Met plain;
  const Met third{{{"stage", "3"}}, test::workload("gpt2-small")};
  auto same = [&](const Met& met, const char* a, const char* b) {
    EXPECT_TRUE(zero_at(a, met).text() == zero_at(b, met).text()) << a << " " << b;
  };
  same(plain, "0.14.5", "0.19.5");  // without overlap_comm
  same(plain, "0.14.1", "0.14.5");
  same(third, "0.14.5", "0.19.5");
  same(third, "0.13.0", "0.14.4");
  const Met overlapped = met_by_zero(ZeroChange::ComputationWaits);
  same(overlapped, "0.14.5", "0.17.4");
  same(overlapped, "0.14.5", "0.18.5");
  same(overlapped, "0.17.5", "0.18.4");
}

TEST(ZeroVersions, SlicesWereReducedToTheirOwnersOneByOne) {
  const LoweredStep now = zero_at("0.12.4", {});
  const LoweredStep then = zero_at("0.12.3", {});
  EXPECT_EQ(now.of("allreduce/bucket.").size(), 1u) << "500 million elements";
  EXPECT_TRUE(then.of("allreduce/bucket.").empty());
  EXPECT_EQ(then.of("reduce/bucket.").size(), 8u + 2 * 7)
      << "a shard, and twice between two: a tensor of both is cut, and gradients come backwards";
  EXPECT_EQ(then.bytes("reduce/bucket."), now.bytes("allreduce/bucket."));
  EXPECT_TRUE(then.of("join/").empty() && then.of("copy_back/").empty()) << "where they are";
  const Met owners{{{"use_multi_rank_bucket_allreduce", "false"}}};
  EXPECT_TRUE(zero_at("0.12.6", owners).of("reduce/").empty());
  EXPECT_EQ(zero_at("0.12.6", owners).of("allreduce/bucket.").size(), 8u);
  EXPECT_EQ(zero_at("0.13.0", owners).of("reduce/bucket.").size(), 8u);
}

TEST(ZeroVersions, WeightsWereGatheredInLists) {
  const Met met{{{"allgather_bucket_size", "10000000"}}};
  const LoweredStep now = zero_at("0.12.4", met);
  const LoweredStep then = zero_at("0.12.3", met);
  EXPECT_EQ(now.of("all_gather/").size(), 1u);
  EXPECT_EQ(then.of("all_gather/list.").size(), 2u) << "25.6 million elements by 10 million";
  EXPECT_EQ(then.bytes("all_gather/"), now.bytes("all_gather/"));
  EXPECT_EQ(then.traffic("copy_out/list."), 2 * then.bytes("all_gather/"));
}

TEST(ZeroVersions, TheWholeBufferWasAveraged) {
  const Met met{{{"reduce_scatter", "false"}, {"reduce_bucket_size", "30000000"}}};
  const std::int64_t gradients = test::workload("resnet50").gradient_bytes().count;
  EXPECT_EQ(zero_at("0.14.0", met).bytes("allreduce/bucket."), 4 * 30'000'000);
  EXPECT_EQ(zero_at("0.14.1", met).bytes("allreduce/bucket."), gradients);
  EXPECT_EQ(zero_at("0.14.0", {}).traffic("average/bucket."), 2 * 4 * std::int64_t{500'000'000});
  EXPECT_EQ(zero_at("0.14.1", {}).traffic("average/bucket."), 2 * gradients);
}

TEST(ZeroVersions, WhatTheHostReadsIsWaitedFor) {
  auto waits = [](const char* release, const Met& met) {
    std::size_t n = 0;
    for (const std::string& name : zero_at(release, met).names())
      n += name.starts_with("wait/grad_") || name.starts_with("wait/clip");
    return n;
  };
  EXPECT_EQ(waits("0.13.1", {}), 2u) << "each gradient's norm, and that of all";
  EXPECT_EQ(waits("0.13.2", {}), 0u);
  const Met clip{{}, clipped_resnet()};
  EXPECT_EQ(waits("0.13.1", clip), 2u) << "it is on the host";
  EXPECT_EQ(waits("0.14.2", clip), 1u);
  EXPECT_EQ(waits("0.14.3", clip), 0u);
  const Met third = met_by_zero(ZeroChange::NormOfAllIsRead);
  EXPECT_GT(waits("0.12.6", third), 2u) << "each group's";
  EXPECT_EQ(waits("0.14.4", third), 1u);
  EXPECT_EQ(waits("0.14.5", third), 0u);
}

// The compute stream waits for what was reduced before; once for what is being reduced; once for
// nothing.
TEST(ZeroVersions, ComputationWaitsForOneReductionOrAnotherOrNone) {
  const Met met = met_by_zero(ZeroChange::ComputationWaits);
  auto latest = [&](const char* release) {  // that the last pass of backward waits for
    const LoweredStep s = zero_at(release, met);
    std::uint32_t last_backward = 0;
    std::set<std::uint32_t> reductions;
    std::vector<std::uint32_t> in_order;
    for (std::uint32_t i = 0; i < s.program.steady.ops.size(); ++i) {
      const std::string name = name_of(s.program, s.program.steady, i);
      if (name.starts_with("keep_shard/")) in_order.push_back(i);
      if (name.starts_with("bwd/")) last_backward = i;
    }
    int waited = -1;  // of the reductions before it, in their order
    for (std::uint32_t i = 0; i <= last_backward; ++i) {
      if (s.program.steady.ops[i].lane != Lane::Compute) continue;
      for (std::uint32_t d : deps_of(s.program.steady, i))
        for (std::size_t k = 0; k < in_order.size(); ++k)
          if (in_order[k] == d) waited = std::max(waited, static_cast<int>(k));
    }
    int issued = -1;
    for (std::size_t k = 0; k < in_order.size(); ++k)
      if (in_order[k] < last_backward) issued = static_cast<int>(k);
    EXPECT_GT(issued, 1);
    return waited < 0 ? -1 : issued - waited;
  };
  EXPECT_EQ(latest("0.14.2"), -1) << "none";
  EXPECT_EQ(latest("0.14.5"), 1) << "the one before the last";
  EXPECT_EQ(latest("0.17.5"), 0) << "the last";
  EXPECT_EQ(latest("0.18.5"), 1);
}

TEST(ZeroVersions, OverlapIsWorthWhatItsReleaseLeavesOfIt) {
  auto period = [](const char* release) {
    const Workload w = test::workload("gpt2-small");
    Cluster c = test::cluster("dgx-h100");
    c.hosts = 2;
    const topology::Fabric fabric(c);
    const Profile profile = test::profile("h100-sxm.datasheet");
    Scenario s;
    s.ranks = 16;
    s.plan = with_setting(
        plan_with(kZeroSystem, {{"overlap_comm", "true"}, {"reduce_bucket_size", "10000000"}}),
        "deepspeed", release);
    return predict::steady_period({w, fabric, profile, s});
  };
  EXPECT_LT(period("0.17.4"), period("0.17.5"));
  EXPECT_EQ(period("0.17.4"), period("0.18.5"));
  EXPECT_LE(period("0.14.2"), period("0.14.3"));
}

TEST(ZeroVersions, WhatIsOffloadedIsCastAndPinnedByRelease) {
  Met met = met_by_zero(ZeroChange::CastsForTheHost);
  auto has = [&](const char* release, const char* name) {
    return !zero_at(release, met).of(name).empty();
  };
  EXPECT_TRUE(has("0.15.3", "host_to_float/") && !has("0.15.4", "host_to_float/"));
  EXPECT_TRUE(has("0.15.4", "out_of_pinned/") && !has("0.16.3", "out_of_pinned/"));
  EXPECT_TRUE(has("0.19.4", "wait/to_host.") && !has("0.19.5", "wait/to_host."));
  EXPECT_TRUE(has("0.19.4", "wait/to_optimizer.") && !has("0.19.5", "wait/to_optimizer."));
  EXPECT_EQ(zero_at("0.16.3", met).bytes("to_optimizer/"),
            2 * zero_at("0.14.5", met).bytes("to_optimizer/"))
      << "four bytes, not two";
  met.settings["offload_pin_memory"] = "false";
  EXPECT_TRUE(has("0.19.5", "wait/to_host.") && has("0.19.5", "wait/to_optimizer."));
  met = met_by_zero(ZeroChange::CopiesSinglesBack);
  EXPECT_TRUE(has("0.14.0", "host_cast_weights") && !has("0.14.0", "cast_weights"));
  EXPECT_TRUE(has("0.14.1", "cast_weights") && !has("0.14.1", "host_cast_weights"));
  EXPECT_TRUE(has("0.17.0", "host_cast_weights"));
  EXPECT_EQ(zero_at("0.14.5", met).bytes("to_device/weights"),
            2 * zero_at("0.17.0", met).bytes("to_device/weights"));
  met.accumulation_steps = 3;
  auto kept = [&](const char* release) {
    std::size_t whole = 0;  // copies of halves: of four bytes are the optimizer's
    for (const std::string& name : zero_at(release, met).names())
      whole += name.starts_with("micro") && name.find("/to_host/bucket.") != std::string::npos;
    return whole - 1;
  };
  EXPECT_EQ(kept("0.15.1"), 2u);
  EXPECT_EQ(kept("0.15.2"), 1u);
  EXPECT_EQ(kept("0.19.0"), 3u);
}

TEST(ZeroVersions, SettingsOfLaterReleasesAreRefused) {
  const Workload w = test::workload("resnet50");
  auto problem = [&](const char* release, const char* knob, const char* setting) {
    Plan p = with_setting(plan_with(kZeroSystem, {{knob, setting}}), "deepspeed", release);
    return validate(p, w, DeviceKind::Gpu).message;
  };
  EXPECT_NE(problem("0.12.3", "use_multi_rank_bucket_allreduce", "false").find("0.12.4"),
            std::string::npos);
  EXPECT_EQ(problem("0.12.4", "use_multi_rank_bucket_allreduce", "false"), "");
  EXPECT_NE(problem("0.12.3", "allgather_bucket_size", "2"), "");
  EXPECT_EQ(problem("0.12.4", "allgather_bucket_size", "2"), "");
}

}  // namespace
}  // namespace ddpsim::systems
