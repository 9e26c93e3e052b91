// How a Program is played: queue order, interference, chains, waits.
#include <gtest/gtest.h>

#include "sim/cost/roofline.h"
#include "sim/io/json_reader.h"
#include "sim/systems/averaging/plan.h"
#include "sim/systems/base/lower.h"
#include "sim/systems/ddp/plan.h"
#include "sim/systems/zero/plan.h"
#include "tests/support/support.h"
#include "tests/support/systems.h"

namespace ddpsim::test {
namespace {

struct Asked {
  Workload w;
  Cluster c;
  Profile p;
  topology::Fabric fabric;
  Scenario s;
  Asked(Workload workload, int ranks, Bandwidth link, DeviceKind kind)
      : w(std::move(workload)),
        c(star(ranks, link)),
        p(ideal_profile(kMicrosecond * 5, kind)),
        fabric(on(kind)) {
    s.ranks = ranks;
  }
  const Cluster& on(DeviceKind kind) {
    c.device = kind;
    return c;
  }
  predict::Prediction ask() const { return predict::predict({w, fabric, p, s}); }
};

const Span& span(const predict::Prediction& p, const std::string& op) {
  for (const Span& s : p.run.spans)
    if (s.op == op) return s;
  throw std::runtime_error("no span " + op);
}

TEST(GlooQueue, KeepsTheOrderInWhichOneHostOperationIssued) {
  Asked a(layered(6, 4'000'000, kMillisecond, kMillisecond, DeviceKind::Cpu), 4,
          Bandwidth{1'000'000'000}, DeviceKind::Cpu);
  a.s.plan.system = systems::kAveragingSystem;
  averaging_of(a.s.plan).async_op = true;
  predict::Prediction p = a.ask();
  for (int i = 0; i + 1 < 6; ++i)
    EXPECT_LE(span(p, "allreduce/layer" + std::to_string(i) + ".weight").end,
              span(p, "allreduce/layer" + std::to_string(i + 1) + ".weight").end)
        << i;
}

TEST(GlooQueue, RunsTwoCollectivesAtOnceAndNoMore) {
  Asked a(layered(6, 4'000'000, kMillisecond, kMillisecond, DeviceKind::Cpu), 4,
          Bandwidth{1'000'000'000}, DeviceKind::Cpu);
  a.s.plan.system = systems::kAveragingSystem;
  averaging_of(a.s.plan).async_op = true;
  for (int threads : {1, 2, 3}) {
    a.s.plan.gloo_threads = threads;
    predict::Prediction p = a.ask();
    int most = 0;
    for (const Span& x : p.run.spans) {
      if (!carries_tensors(x.kind)) continue;
      int at_once = 0;
      for (const Span& y : p.run.spans)
        at_once += carries_tensors(y.kind) && y.begin <= x.begin && x.begin < y.end;
      most = std::max(most, at_once);
    }
    EXPECT_EQ(most, threads);
  }
}

// PyTorch 1.13 on CPUs: the optimizer of a bucket runs where its all-reduce ended, on one of Gloo's
// workers, which does nothing else meanwhile.
TEST(GlooQueue, AWorkerIsBusyUntilItsCallbackHasEnded) {
  Asked a(layered(6, 4'000'000, kMillisecond, kMillisecond, DeviceKind::Cpu), 4,
          Bandwidth{1'000'000'000}, DeviceKind::Cpu);
  a.w.times.optimizer = kMillisecond * 1200;  // of each bucket longer than all its all-reduces
  ddp_of(a.s.plan).bucket_cap_mb = 1;
  a.s.plan.gloo_threads = 1;
  ddp_of(a.s.plan).optimizer_in_backward = true;
  const predict::Prediction p = a.ask();
  for (int k = 0; k + 1 < 6; ++k) {
    const Span update = span(p, "optimizer/bucket." + std::to_string(k));
    const Span next = span(p, "allreduce/bucket." + std::to_string(k + 1));
    EXPECT_GE(next.begin, update.end) << k;
    EXPECT_EQ((update.end - update.begin).ps, (kMillisecond * 200).ps) << k;
  }
}

TEST(Join, RanksWithoutInputsWaitForNobodyAndAreWaitedForByNobody) {
  Asked a(layered(6, 4'000'000, kMillisecond, kMillisecond, DeviceKind::Cpu), 4,
          Bandwidth{1'000'000'000}, DeviceKind::Cpu);
  ddp_of(a.s.plan).join = true;
  const predict::Prediction all = a.ask();
  ddp_of(a.s.plan).joined_ranks = 1;
  const predict::Prediction some = a.ask();
  EXPECT_EQ(some.summary.step, all.summary.step);
  EXPECT_DOUBLE_EQ(some.samples_per_s, 0.75 * all.samples_per_s);
  // They are there before the others: a slow rank among them slows nobody.
  a.s.slow_ranks = {{3, 4.0}};
  EXPECT_EQ(a.ask().summary.step, all.summary.step);
  a.s.slow_ranks = {{2, 4.0}};
  EXPECT_GT(a.ask().summary.step, all.summary.step);
}

// Two models on eight hosts, their ranks side by side: as one model on four, where no link is
// shared.
TEST(ProcessGroups, ThatShareNoLinkAreAsLongAsOneAlone) {
  Asked alone(layered(6, 4'000'000, kMillisecond, kMillisecond, DeviceKind::Gpu), 4,
              Bandwidth{1'000'000'000}, DeviceKind::Gpu);
  Asked both(layered(6, 4'000'000, kMillisecond, kMillisecond, DeviceKind::Gpu), 8,
             Bandwidth{1'000'000'000}, DeviceKind::Gpu);
  ddp_of(both.s.plan).process_group_size = 4;
  for (std::int64_t stride : {1, 2}) {
    ddp_of(both.s.plan).process_group_stride = stride;
    EXPECT_EQ(both.ask().summary.step, alone.ask().summary.step) << stride;
  }
}

TEST(Interference, CommunicationKernelsSlowComputeByTheShareTheyHold) {
  Asked a(layered(8, 40'000'000, kMillisecond, kMillisecond * 2, DeviceKind::Gpu), 4,
          Bandwidth{10'000'000'000}, DeviceKind::Gpu);
  Duration free = a.ask().summary.compute;
  a.p.sm_hold = {0.2, 0.2, 0.2};
  predict::Prediction held = a.ask();
  // Backward after the first bucket runs beside communication: 1 / (1 - 0.2) as long.
  EXPECT_GT(held.summary.compute, free);
  EXPECT_LE(static_cast<double>(held.summary.compute.ps), static_cast<double>(free.ps) / 0.8 + 1e3);
  EXPECT_GT(static_cast<double>(held.summary.backward.ps),
            static_cast<double>(a.w.times.backward.ps) * 1.1);
}

TEST(Interference, OfFewChannelsIsLess) {
  Profile p;
  p.compute.sms = 132;
  EXPECT_EQ(hold_factor(p, 2, false), 1);
  p.hold_at = {{2, 0.1, 0.02}, {20, 0.4, 0.2}, {30, 0.5, 0.3}};
  EXPECT_EQ(hold_factor(p, 0, false), 1);  // not known
  EXPECT_DOUBLE_EQ(hold_factor(p, 20, false), 1);
  EXPECT_DOUBLE_EQ(hold_factor(p, 2, false), 0.25);
  EXPECT_DOUBLE_EQ(hold_factor(p, 2, true), 0.1);
  EXPECT_DOUBLE_EQ(hold_factor(p, 11, false), 0.25 / 0.4);
  EXPECT_DOUBLE_EQ(hold_factor(p, 1, false), 0.125);
  EXPECT_DOUBLE_EQ(hold_factor(p, 64, false), 1.25);
  p.compute.sms = 66;  // twice as many for each SM
  EXPECT_DOUBLE_EQ(hold_factor(p, 10, false), 1);

  // Two channels slow a step less than what NCCL takes by itself does.
  auto slowed = [](const char* most) {
    Outcome r = test::ddpsim({"predict", "--workload", "bert-large", "--cluster", "hgx-h100",
                              "--ranks", "8", "--set", "stragglers=false", "--set",
                              std::string("NCCL_MAX_NCHANNELS=") + most, "--format", "json"});
    EXPECT_EQ(r.code, 0) << r.err;
    return io::parse_json(r.out, "answer")["summary"]["slowed_ps"].get<double>() /
           io::parse_json(r.out, "answer")["summary"]["communication_ps"].get<double>();
  };
  EXPECT_LT(slowed("2"), 0.6 * slowed("32"));
}

TEST(Interference, WhatMemoryDecidesHasAShareOfItsOwn) {
  Asked a(layered(8, 40'000'000, kMillisecond, kMillisecond * 2, DeviceKind::Gpu), 4,
          Bandwidth{10'000'000'000}, DeviceKind::Gpu);
  a.p.memory.bandwidth_bytes_per_s = 1e11;  // 0.8 ms to copy a gradient into its bucket
  a.p.memory.efficiency = {1, 1, 1};
  predict::Prediction free = a.ask();
  a.p.memory_hold = Range{0.5, 0.5, 0.5};
  predict::Prediction held = a.ask();
  EXPECT_EQ(held.summary.backward, free.summary.backward) << "products are not held";
  EXPECT_GT(static_cast<double>(held.summary.ddp.ps),
            1.1 * static_cast<double>(free.summary.ddp.ps));
}

// A kernel of 2 ms runs at any moment: of four ranks the last one's collective begins after 4/5 of
// it on average, where something computes; the last bucket finds nothing that does.
TEST(Interference, ACollectiveWaitsForTheKernelsThatRun) {
  Asked a(layered(8, 4'000'000, kMillisecond * 5, kMillisecond * 10, DeviceKind::Gpu), 4,
          Bandwidth{400'000'000'000}, DeviceKind::Gpu);
  ddp_of(a.s.plan).bucket_cap_mb = 1;
  const predict::Prediction at_once = a.ask();
  a.w.times.kernel = kMillisecond * 2;
  const predict::Prediction waits = a.ask();
  auto later = [&](int k) {
    const std::string op = "allreduce/bucket." + std::to_string(k);
    return static_cast<double>((span(waits, op).begin - span(at_once, op).begin).ps);
  };
  for (int k = 0; k < 7; ++k) EXPECT_NEAR(later(k) / 1e9, 2 * 4 / 5.0, 0.07) << k;
  EXPECT_NEAR(later(7) / 1e9, 0, 0.07);
}

// The mean rank's kernel begins after half of it, and holds its share until the last one has begun.
TEST(Interference, ACollectiveHoldsWhileOthersWaitForTheirKernels) {
  Asked a(layered(8, 4'000'000, kMillisecond * 5, kMillisecond * 10, DeviceKind::Gpu), 4,
          Bandwidth{400'000'000'000}, DeviceKind::Gpu);
  ddp_of(a.s.plan).bucket_cap_mb = 1;
  a.p.sm_hold = {0.2, 0.2, 0.2};
  const predict::Prediction at_once = a.ask();
  a.w.times.kernel = kMillisecond * 2;
  const double more =
      static_cast<double>((a.ask().summary.backward - at_once.summary.backward).ps) / 1e9;
  // Seven times (4/5 - 1/2) of 2 ms, 0.2 of it held; kernels, too, last 1/0.8 as long then.
  EXPECT_NEAR(more, 7 * 0.6 / 0.8 * 0.2, 0.03);
}

// Weights are gathered on one communicator and gradients scattered on another: what both hold
// together leaves computation its share, so that both find the end of the kernel they wait for.
TEST(Interference, CollectivesAtOnceLeaveComputationAShare) {
  const Workload w = test::workload("llama-3.2-1b");
  const topology::Fabric fabric(test::cluster("hgx-h100"));
  Profile p = test::profile("h100-sxm.datasheet");
  p.hold_at.clear();
  Scenario s;
  s.ranks = 8;
  s.plan.system = systems::kZeroSystem;
  zero_of(s.plan).stage = 3;
  zero_of(s.plan).stage3_prefetch_bucket_size = 0;
  auto step = [&](double held) {
    p.sm_hold = {held, held, held};
    p.memory_hold = p.sm_hold;
    return predict::steady_period({w, fabric, p, s});
  };
  const Duration most = step(0.6);  // that is held
  EXPECT_GT(most, step(0.5));
  EXPECT_EQ(step(0.95), most);
  EXPECT_LT(0.4 * static_cast<double>(most.ps), static_cast<double>(step(0).ps));
}

TEST(Interference, AKernelIsAsLongAsItsLayersSay) {
  const Workload w = test::workload("resnet50");
  const Profile p = test::profile("v100-sxm2.datasheet");
  const StepTimes t = predict::step_times(w, p, Level::Mid);
  double all = 0, longer = 0;
  for (std::size_t i = 0; i < w.layers.size(); ++i)
    for (auto [d, k] : {std::pair{t.layers[i].forward, w.layers[i].forward.kernels},
                        std::pair{t.layers[i].backward, w.layers[i].backward.kernels}}) {
      all += static_cast<double>(d.ps);
      if (d.ps / std::max(1, k) >= t.kernel.ps) longer += static_cast<double>(d.ps);
    }
  EXPECT_GE(longer, all / 2);
  EXPECT_LT(longer, 0.55 * all) << "half of the time is spent in kernels at least as long";
  EXPECT_EQ(predict::step_times(layered(2, 400, kMillisecond, kMillisecond, DeviceKind::Gpu),
                                ideal_profile(kMicrosecond, DeviceKind::Gpu), Level::Mid)
                .kernel.ps,
            0)
      << "a capture does not say";
}

TEST(Interference, OneRankHoldsNothing) {
  Asked a(layered(8, 40'000'000, kMillisecond, kMillisecond * 2, DeviceKind::Gpu), 1,
          Bandwidth{10'000'000'000}, DeviceKind::Gpu);
  a.p.sm_hold = {0.2, 0.2, 0.2};
  EXPECT_EQ(a.ask().summary.backward, a.w.times.backward);
}

TEST(Host, ASlowHostStarvesItsDevice) {
  Workload w = layered(50, 4'000, kMicrosecond, kMicrosecond, DeviceKind::Gpu);
  Asked a(w, 2, Bandwidth{100'000'000'000}, DeviceKind::Gpu);
  a.p.host.launch = kMicrosecond * 10;
  predict::Prediction p = a.ask();
  // 50 copies in and 50 out, each launched by 10 us of host time, against 100 us of device work.
  EXPECT_GE(p.summary.step, kMicrosecond * 1000);
  EXPECT_GT(p.summary.idle, p.summary.compute);
}

TEST(Steps, FirstIsUnbucketedAndRebuildPaysForTwoBroadcasts) {
  Asked a(layered(20, 4'000'000, kMillisecond, kMillisecond * 2, DeviceKind::Gpu), 4,
          Bandwidth{10'000'000'000}, DeviceKind::Gpu);
  predict::Prediction p = a.ask();
  ASSERT_GE(p.run.steps.size(), 4u);
  EXPECT_EQ(p.run.steps[0].kind, StepKind::First);
  EXPECT_EQ(p.run.steps[1].kind, StepKind::Rebuild);
  EXPECT_EQ(p.run.steps[2].kind, StepKind::Steady);
  EXPECT_GT(p.run.steps[0].duration, p.run.steps[2].duration);
  EXPECT_GT(p.run.steps[1].duration, p.run.steps.back().duration);
  EXPECT_EQ(p.run.steps.back().duration, p.run.steps[p.run.steps.size() - 2].duration);
}

TEST(Steps, ASteadyStepDoesNotLiveOnTokensFromBeforeTheJob) {
  Asked a(layered(8, 10'000'000, kMillisecond, kMillisecond * 2, DeviceKind::Cpu), 4,
          Bandwidth{100'000'000}, DeviceKind::Cpu);
  Cluster c = a.c;
  c.link.burst = {1'000'000'000};
  c.link.peak = {10'000'000'000};
  topology::Fabric fabric(c);
  predict::Prediction p = predict::predict({a.w, fabric, a.p, a.s});
  EXPECT_LE(p.busiest_link.busy, 1 + 1e-9);
  EXPECT_GT(p.busiest_link.busy, 0.95);
}

TEST(OneRank, NeedsNoTransportAndMovesNothing) {
  Asked a(layered(4, 4'000'000, kMillisecond, kMillisecond * 2, DeviceKind::Gpu), 1,
          Bandwidth{10'000'000'000}, DeviceKind::Gpu);
  a.p.transports.clear();
  predict::Prediction p = a.ask();
  EXPECT_LT(p.summary.step - (a.w.times.forward + a.w.times.backward + a.w.times.optimizer),
            kMicrosecond);
}

TEST(Jitter, IsReproducibleAndGrowsWithRanks) {
  Asked a(layered(10, 4'000, kMillisecond, kMillisecond * 2, DeviceKind::Gpu), 2,
          Bandwidth{100'000'000'000}, DeviceKind::Gpu);
  a.s.jitter = Jitter{0.05, 7, 50};
  auto steps = a.ask().jitter_steps;
  ASSERT_EQ(steps.size(), 50u);
  EXPECT_EQ(steps, a.ask().jitter_steps);
  auto mean = [](const std::vector<Duration>& v) {
    double sum = 0;
    for (Duration d : v) sum += static_cast<double>(d.ps);
    return sum / static_cast<double>(v.size());
  };
  Asked many(a.w, 64, Bandwidth{100'000'000'000}, DeviceKind::Gpu);
  many.s.jitter = a.s.jitter;
  EXPECT_GT(mean(many.ask().jitter_steps), mean(steps));
}

// Found by the fuzzer: 10,000 steps of ResNet-101 took 1.2 GB. Many are played in stretches, each
// as if it went on.
TEST(Jitter, ManyStepsAreAsManyAndNoOtherThanAFew) {
  Asked a(layered(200, 4'000, kMillisecond, kMillisecond * 2, DeviceKind::Gpu), 2,
          Bandwidth{100'000'000'000}, DeviceKind::Gpu);
  a.s.jitter = Jitter{0.05, 7, 200};
  auto few = a.ask().jitter_steps;
  a.s.jitter->samples = 10'000;
  auto many = a.ask().jitter_steps;
  ASSERT_EQ(many.size(), 10'000u);
  EXPECT_TRUE(std::equal(few.begin(), few.end(), many.begin()));
  auto [least, most] = std::minmax_element(many.begin(), many.end());
  EXPECT_GT(least->ps, a.w.times.forward.ps + a.w.times.backward.ps / 2);
  EXPECT_LT(most->ps, 2 * (a.w.times.forward + a.w.times.backward).ps);
}

TEST(Interval, LowIsFasterAndHighIsSlower) {
  Workload w = workload("resnet50");
  Cluster c = cluster("hgx-h100");
  Profile p = profile(c.profile);
  topology::Fabric fabric(c);
  Scenario s;
  s.ranks = 8;
  predict::Prediction r = predict::predict({w, fabric, p, s});
  EXPECT_LT(r.step_low, r.summary.step);
  EXPECT_GT(r.step_high, r.summary.step);
  EXPECT_FALSE(r.measured);
}

TEST(Precision, Fp32ConvolutionsRunInTf32AndMatrixProductsDoNot) {
  Profile p = profile("a100-sxm4-80gb.datasheet");
  auto forward = [&](const char* model, Precision precision) {
    Workload w = workload(model);
    w.precision = precision;
    return predict::step_times(w, p, Level::Mid).forward;
  };
  EXPECT_NEAR(static_cast<double>(forward("resnet50", Precision::Fp32).ps),
              static_cast<double>(forward("resnet50", Precision::Tf32).ps), 1e9);
  EXPECT_GT(forward("bert-base", Precision::Fp32), forward("bert-base", Precision::Tf32) * 2);
}

}  // namespace
}  // namespace ddpsim::test
