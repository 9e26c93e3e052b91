// DDP's step as a list of operations: what is launched when, and what waits for what.
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/systems/base/builder.h"
#include "sim/systems/base/lower.h"
#include "sim/systems/ddp/plan.h"
#include "tests/support/support.h"

namespace ddpsim::systems {
namespace {

using Names = std::vector<std::string>;

// Three tensors of 1 MiB, arriving 2, 1, 0; with the default caps [1 MiB, 25 MiB] bucket 0 = {2},
// bucket 1 = {1, 0}.
Workload three(DeviceKind kind) {
  return test::layered(3, kMiB, kMillisecond, kMillisecond, kind);
}

struct Listing {
  Program program;
  const StepProgram* step;
  explicit Listing(const Workload& w, const Plan& plan = {})
      : program(lower(w, plan)), step(&program.steady) {}
  Listing& warmup(std::size_t i) {
    step = &program.warmup.at(i);
    return *this;
  }
  std::string name(std::uint32_t i) const { return name_of(program, *step, i); }
  // Without the host's launches.
  Names names() const {
    Names out;
    for (std::uint32_t i = 0; i < step->ops.size(); ++i)
      if (!is_launch(step->ops[i].kind)) out.push_back(name(i));
    return out;
  }
  std::uint32_t find(const std::string& op) const {
    for (std::uint32_t i = 0; i < step->ops.size(); ++i)
      if (name(i) == op) return i;
    ADD_FAILURE() << "no operation " << op;
    return 0;
  }
  const Op& op(const std::string& n) const { return step->ops[find(n)]; }
  bool has(const std::string& prefix) const {
    Names all = names();
    return std::any_of(all.begin(), all.end(),
                       [&](const auto& n) { return n.find(prefix) != std::string::npos; });
  }
  Names waits(const std::string& n) const {
    Names out;
    for (std::uint32_t d : deps_of(*step, find(n))) out.push_back(name(d));
    std::sort(out.begin(), out.end());
    return out;
  }
};

TEST(DdpOnACpu, ListsASteadyStep) {
  Listing l(three(DeviceKind::Cpu));
  EXPECT_EQ(l.names(), (Names{"fwd", "bwd/layer2.weight", "copy_in/layer2.weight",
                              "allreduce/bucket.0", "bwd/layer1.weight", "copy_in/layer1.weight",
                              "bwd/layer0.weight", "copy_in/layer0.weight", "allreduce/bucket.1",
                              "wait/bucket.0", "copy_out/layer2.weight", "wait/bucket.1",
                              "copy_out/layer1.weight", "copy_out/layer0.weight", "optimizer"}));
}

TEST(DdpOnACpu, QueuesAnAllReduceWhenTheHostReachesItAndWaitsOnTheHost) {
  Listing l(three(DeviceKind::Cpu));
  EXPECT_EQ(l.op("allreduce/bucket.0").lane, Lane::Worker);
  EXPECT_EQ(l.op("copy_in/layer2.weight").lane, Lane::Host);
  EXPECT_EQ(l.waits("allreduce/bucket.0"), Names{"copy_in/layer2.weight"});
  EXPECT_EQ(l.waits("wait/bucket.0"), Names{"allreduce/bucket.0"});
  EXPECT_EQ(l.op("wait/bucket.0").lane, Lane::Host);
}

TEST(DdpOnAGpu, LaunchesFromTheHostAndWaitsOnTheStream) {
  Listing l(three(DeviceKind::Gpu));
  EXPECT_EQ(l.op("fwd").lane, Lane::Compute);
  EXPECT_EQ(l.op("allreduce/bucket.0").lane, Lane::Comm);
  EXPECT_EQ(l.waits("allreduce/bucket.0"),
            (Names{"copy_in/layer2.weight", "launch/allreduce/bucket.0"}));
  EXPECT_EQ(l.waits("copy_out/layer2.weight"),
            (Names{"allreduce/bucket.0", "launch/copy_out/layer2.weight"}));
  EXPECT_EQ(l.waits("copy_out/layer0.weight"),
            Names{"launch/copy_out/layer0.weight"});  // not the first of its bucket
  EXPECT_FALSE(l.has("wait/"));
}

TEST(DdpOnAGpu, PutsEveryLaunchDirectlyBeforeWhatItLaunches) {
  Listing l(three(DeviceKind::Gpu));
  for (std::uint32_t i = 0; i < l.step->ops.size(); ++i) {
    const Op& op = l.step->ops[i];
    if (op.lane == Lane::Host) continue;
    ASSERT_GT(i, 0u);
    EXPECT_TRUE(is_launch(l.step->ops[i - 1].kind)) << l.name(i);
    EXPECT_EQ(l.step->ops[i - 1].subject, i);
  }
}

// A stretch's end, and the host's: as if each layer waited for its own launch.
TEST(DdpOnAGpu, AStretchEndsWhenItsLayersWould) {
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    Stretch s;
    Duration host, device{std::uniform_int_distribution<int>(0, 30)(random)};
    const Duration busy = device;
    for (int l = 0; l < 1 + round % 9; ++l) {
      Duration on_device{std::uniform_int_distribution<int>(0, 20)(random)};
      Duration on_host{std::uniform_int_distribution<int>(0, 20)(random)};
      s.add(on_device, on_host);
      host += on_host;
      device = std::max(device, host) + on_device;
    }
    EXPECT_EQ(std::max(busy, s.head) + s.device, device);
    EXPECT_EQ(s.host, host);
    EXPECT_GE(s.head, Duration{});
    EXPECT_LE(s.head, s.host);
  }
}

TEST(DdpOnAGpu, ForwardBeginsWhenTheHostIsFarEnoughAhead) {
  Workload w = three(DeviceKind::Gpu);
  auto launches = [&] {
    Listing l(w);
    return std::vector{l.op("launch/fwd").duration.ps,
                       l.op("launch/bwd/layer2.weight").duration.ps};
  };
  const std::int64_t us = 1'000'000;
  const std::int64_t before = launches()[1];
  w.times.forward = {9 * us};
  w.times.host->forward = {12 * us};
  EXPECT_EQ(launches(), (std::vector{3 * us, before + 9 * us}));  // alike: 3 us behind at the end
  w.times.layers.assign(3, {});
  for (std::size_t l : {0, 1, 2}) {
    w.times.layers[l].forward = {(l == 1 ? 1 : 4) * us};
    w.times.layers[l].host_forward = {(l == 1 ? 7 : l == 0 ? 2 : 3) * us};
  }
  EXPECT_EQ(launches(), (std::vector{7 * us, before + 5 * us}));  // 2 + 7 + 3 - (4 + 1)
}

TEST(Ddp, LaunchesABucketAtTheHookThatCompletesIt) {
  Workload w = test::layered(6, kMiB, kMillisecond, kMillisecond, DeviceKind::Cpu);
  Plan p;
  ddp_of(p).bucket_cap_mb = 2;
  Listing l(w, p);
  ASSERT_EQ(l.step->buckets.size(), 3u);
  for (std::string k : {"0", "1", "2"}) {
    const auto& tensors = l.step->buckets[static_cast<std::size_t>(k[0] - '0')].tensors;
    EXPECT_EQ(l.find("allreduce/bucket." + k),
              l.find("copy_in/" + w.tensors[tensors.back()].name) + 1);
  }
}

TEST(Ddp, LaunchesBucketsInOrderEvenIfALaterOneIsFullFirst) {
  // find_unused_parameters: buckets follow reversed registration, gradients arrive in registration
  // order: the last bucket is full first.
  Workload w = three(DeviceKind::Cpu);
  w.arrival = {0, 1, 2};
  Plan p;
  ddp_of(p).find_unused_parameters = true;
  ddp_of(p).bucket_cap_mb = 1;
  Listing l(w, p);
  ASSERT_EQ(l.step->buckets.size(), 3u);
  EXPECT_EQ(l.step->buckets[0].tensors, std::vector<TensorIndex>{2});
  std::uint32_t last_hook = l.find("copy_in/layer2.weight");
  EXPECT_EQ(l.find("allreduce/bucket.0"), last_hook + 1);
  EXPECT_EQ(l.find("allreduce/bucket.1"), last_hook + 2);
  EXPECT_EQ(l.find("allreduce/bucket.2"), last_hook + 3);
}

TEST(Ddp, ReducesEverythingAtOnceInTheFirstIterationAndRebuildsInTheSecond) {
  Listing l(three(DeviceKind::Cpu));
  ASSERT_EQ(l.program.warmup.size(), 2u);
  l.warmup(0);
  EXPECT_EQ(l.step->kind, StepKind::First);
  EXPECT_EQ(l.step->buckets.size(), 1u);
  EXPECT_FALSE(l.has("rebuild"));
  l.warmup(1);
  EXPECT_EQ(l.step->kind, StepKind::Rebuild);
  EXPECT_EQ(l.step->buckets.size(), 2u);
  Names n = l.names();
  EXPECT_EQ(Names(n.begin(), n.begin() + 5),
            (Names{"broadcast/rebuild.0", "wait/broadcast/rebuild.0", "broadcast/rebuild.1",
                   "wait/broadcast/rebuild.1", "fwd"}));
  EXPECT_EQ(l.op("broadcast/rebuild.0").bytes, 4 * (3 + 1));
  EXPECT_EQ(l.op("broadcast/rebuild.1").bytes, 4 * 2);
}

TEST(Ddp, CopiesEveryGradientOnceInAndOnceOut) {
  Listing l(three(DeviceKind::Gpu));
  EXPECT_EQ(l.op("copy_in/layer1.weight").traffic, 2 * kMiB);
  EXPECT_EQ(l.op("copy_out/layer1.weight").traffic, 2 * kMiB);
  EXPECT_EQ(l.op("copy_in/layer1.weight").bytes, kMiB);
  EXPECT_EQ(l.op("allreduce/bucket.1").bytes, 2 * kMiB);
}

TEST(Ddp, KeepsTheTimesOfTheWorkload) {
  Workload w = three(DeviceKind::Cpu);
  w.times.ready = {kMillisecond, kMillisecond, kMillisecond * 2};  // layer1 arrives with layer2
  w.times.optimizer = kMicrosecond;
  Listing l(w);
  EXPECT_FALSE(l.has("bwd/layer1.weight"));
  EXPECT_EQ(l.op("fwd").duration, kMillisecond * 3);
  EXPECT_EQ(l.op("bwd/layer2.weight").duration, kMillisecond);
  EXPECT_EQ(l.op("bwd/tail").duration, kMillisecond);
  EXPECT_EQ(l.op("optimizer").duration, kMicrosecond);
}

TEST(Accumulation, NeitherCopiesNorReducesBeforeTheLastMicroStep) {
  Plan p;
  p.accumulation_steps = 3;
  Listing l(three(DeviceKind::Cpu), p);
  EXPECT_TRUE(l.has("micro0/fwd"));
  EXPECT_FALSE(l.has("micro0/copy_in"));
  EXPECT_FALSE(l.has("micro1/copy_in"));
  EXPECT_TRUE(l.has("micro2/copy_in/layer0.weight"));
  EXPECT_GT(l.find("allreduce/bucket.0"), l.find("micro2/fwd"));
  EXPECT_FALSE(l.has("micro2/allreduce"));
  EXPECT_EQ(l.names().back(), "optimizer");
}

TEST(Accumulation, AddsIntoGradientsThatExist) {
  Plan p;
  p.accumulation_steps = 2;
  Listing l(three(DeviceKind::Cpu), p);
  EXPECT_FALSE(l.has("micro0/accumulate"));
  EXPECT_EQ(l.op("micro1/accumulate/layer0.weight").traffic, 3 * kMiB);
  EXPECT_EQ(l.find("micro1/copy_in/layer0.weight"), l.find("micro1/accumulate/layer0.weight") + 1);
}

TEST(Accumulation, BroadcastsBuffersOnlyInTheFirstMicroStep) {
  Workload w = three(DeviceKind::Cpu);
  w.buffers = {{"running_mean", {16}, DType::Float32}, {"batches", {}, DType::Int64}};
  Plan p;
  p.accumulation_steps = 2;
  Names n = Listing(w, p).names();
  EXPECT_EQ(std::count(n.begin(), n.end(), "broadcast/buffers.0"), 1);
  EXPECT_EQ(std::count(n.begin(), n.end(), "broadcast/buffers.1"), 1);
  EXPECT_LT(std::find(n.begin(), n.end(), "broadcast/buffers.1"),
            std::find(n.begin(), n.end(), "micro0/fwd"));
}

TEST(Accumulation, WithoutNoSyncReducesInEachMicroStep) {
  Workload w = three(DeviceKind::Cpu);
  w.buffers = {{"running_mean", {16}, DType::Float32}};
  Plan p;
  p.accumulation_steps = 2;
  p.no_sync = false;
  Listing l(w, p);
  EXPECT_EQ(l.names(), (Names{"micro0/flatten/buffers.0",
                              "micro0/broadcast/buffers.0",
                              "micro0/wait/broadcast/buffers.0",
                              "micro0/unflatten/buffers.0",
                              "micro0/fwd",
                              "micro0/bwd/layer2.weight",
                              "micro0/copy_in/layer2.weight",
                              "micro0/allreduce/bucket.0",
                              "micro0/bwd/layer1.weight",
                              "micro0/copy_in/layer1.weight",
                              "micro0/bwd/layer0.weight",
                              "micro0/copy_in/layer0.weight",
                              "micro0/allreduce/bucket.1",
                              "micro0/wait/bucket.0",
                              "micro0/copy_out/layer2.weight",
                              "micro0/wait/bucket.1",
                              "micro0/copy_out/layer1.weight",
                              "micro0/copy_out/layer0.weight",
                              "micro1/flatten/buffers.0",
                              "micro1/broadcast/buffers.0",
                              "micro1/wait/broadcast/buffers.0",
                              "micro1/unflatten/buffers.0",
                              "micro1/fwd",
                              "micro1/bwd/layer2.weight",
                              "micro1/accumulate/layer2.weight",
                              "micro1/copy_in/layer2.weight",
                              "micro1/allreduce/bucket.0",
                              "micro1/bwd/layer1.weight",
                              "micro1/accumulate/layer1.weight",
                              "micro1/copy_in/layer1.weight",
                              "micro1/bwd/layer0.weight",
                              "micro1/accumulate/layer0.weight",
                              "micro1/copy_in/layer0.weight",
                              "micro1/allreduce/bucket.1",
                              "micro1/wait/bucket.0",
                              "micro1/copy_out/layer2.weight",
                              "micro1/wait/bucket.1",
                              "micro1/copy_out/layer1.weight",
                              "micro1/copy_out/layer0.weight",
                              "optimizer"}));
  // DDP counts passes: the second one of the first step forms the buckets anew.
  EXPECT_EQ(l.program.warmup.size(), 1u);
  EXPECT_TRUE(l.warmup(0).has("micro1/broadcast/rebuild.0"));
  EXPECT_EQ(l.step->buckets.size(), 3u);
  EXPECT_EQ(l.waits("micro1/wait/bucket.1"), Names{"micro1/allreduce/bucket.1"});
  ddp_of(p).static_graph = true;
  Listing counted(w, p);
  EXPECT_EQ(counted.program.warmup.size(), 2u);
  EXPECT_TRUE(counted.warmup(0).has("micro0/allreduce/unused"));
  EXPECT_TRUE(counted.warmup(1).has("micro0/broadcast/rebuild.0"));
}

TEST(Accumulation, OfOneMicroStepIsTheSameWithAndWithoutNoSync) {
  Plan p;
  const Names with = Listing(three(DeviceKind::Gpu), p).names();
  p.no_sync = false;
  EXPECT_EQ(Listing(three(DeviceKind::Gpu), p).names(), with);
}

TEST(ZeroGrad, ExistsOnlyIfGradientsAreKept) {
  Plan p;
  EXPECT_FALSE(Listing(three(DeviceKind::Cpu), p).has("zero_grad"));
  p.pytorch = PytorchVersion{1, 13};
  Listing old(three(DeviceKind::Cpu), p);
  EXPECT_EQ(old.names().front(), "zero_grad");
  EXPECT_TRUE(old.has("accumulate/"));
  EXPECT_FALSE(old.warmup(0).has("zero_grad"));
  EXPECT_FALSE(old.has("accumulate/"));
  p.set_to_none = true;
  EXPECT_FALSE(Listing(three(DeviceKind::Cpu), p).has("zero_grad"));
}

TEST(Buffers, AreFlattenedBroadcastAndUnflattenedBeforeForward) {
  Workload w = three(DeviceKind::Cpu);
  w.buffers = {{"running_mean", {16}, DType::Float32}};
  Names n = Listing(w).names();
  EXPECT_EQ(Names(n.begin(), n.begin() + 5),
            (Names{"flatten/buffers.0", "broadcast/buffers.0", "wait/broadcast/buffers.0",
                   "unflatten/buffers.0", "fwd"}));
  Plan p;
  ddp_of(p).broadcast_buffers = false;
  EXPECT_EQ(Listing(w, p).names().front(), "fwd");
}

TEST(Buffers, HaveAtMostTwoBroadcastsInFlight) {
  Workload w = three(DeviceKind::Cpu);
  w.buffers = {{"a", {16}, DType::Float32}, {"b", {1}, DType::Int64}, {"c", {1}, DType::Bool}};
  Listing l(w);
  EXPECT_LT(l.find("broadcast/buffers.1"), l.find("wait/broadcast/buffers.0"));
  EXPECT_LT(l.find("wait/broadcast/buffers.0"), l.find("broadcast/buffers.2"));
}

TEST(BucketView, RemovesCopyOutAndKeepsCopyIn) {
  Plan p;
  ddp_of(p).gradient_as_bucket_view = true;
  Listing cpu(three(DeviceKind::Cpu), p);
  EXPECT_TRUE(cpu.has("copy_in/"));
  EXPECT_FALSE(cpu.has("copy_out/"));
  Listing gpu(three(DeviceKind::Gpu), p);
  EXPECT_EQ(gpu.waits("optimizer"),
            (Names{"allreduce/bucket.0", "allreduce/bucket.1", "launch/optimizer"}));
}

TEST(CommHooks, HalveTheBytesOnTheWire) {
  Plan p;
  ddp_of(p).comm_hook = CommHook::Bf16Compress;
  Listing l(three(DeviceKind::Gpu), p);
  EXPECT_EQ(l.op("allreduce/bucket.1").bytes, kMiB);
  EXPECT_EQ(l.op("compress/bucket.1").bytes, 2 * kMiB);
  EXPECT_EQ(l.op("compress/bucket.1").traffic,
            2 * kMiB + kMiB + 2 * kMiB);  // cast: read S, write S/2; divide: read and write S/2
  EXPECT_EQ(l.op("decompress/bucket.1").traffic, kMiB + 2 * kMiB);
  EXPECT_EQ(l.op("decompress/bucket.1").lane, Lane::Callback);
  EXPECT_EQ(l.waits("decompress/bucket.1"), Names{"allreduce/bucket.1"});
  EXPECT_EQ(l.waits("copy_out/layer1.weight"),
            (Names{"decompress/bucket.1", "launch/copy_out/layer1.weight"}));
  EXPECT_EQ(l.find("compress/bucket.0") + 2, l.find("allreduce/bucket.0"));
}

TEST(CommHooks, CannotCompressWhatIsHalfAlready) {
  Workload w = three(DeviceKind::Gpu);
  for (Tensor& t : w.tensors) t.dtype = DType::Float16;
  Plan p;
  ddp_of(p).comm_hook = CommHook::Fp16Compress;
  Listing l(w, p);
  EXPECT_EQ(l.op("allreduce/bucket.0").bytes, l.step->buckets[0].bytes.count);
}

TEST(CommHooks, AllReduceDividesInAPassOfItsOwn) {
  Plan p;
  ddp_of(p).comm_hook = CommHook::AllReduce;
  Listing l(three(DeviceKind::Cpu), p);
  EXPECT_EQ(l.op("divide/bucket.1").traffic, 4 * kMiB);
  EXPECT_EQ(l.op("allreduce/bucket.1").bytes, 2 * kMiB);
  EXPECT_FALSE(l.has("decompress"));
}

Workload with_unused() {
  Workload w = three(DeviceKind::Cpu);
  w.arrival = {2, 0};
  w.times.ready = {kMillisecond, kMillisecond * 2};
  return w;
}

TEST(UnusedParameters, AreFilledWithZerosAtTheFirstHook) {
  Plan p;
  ddp_of(p).find_unused_parameters = true;
  Listing l(with_unused(), p);
  EXPECT_TRUE(l.has("find_unused"));
  EXPECT_EQ(l.find("copy_in/layer1.weight") + 1, l.find("copy_in/layer2.weight"));
  EXPECT_EQ(l.op("copy_in/layer1.weight").traffic, kMiB);  // written only
  EXPECT_FALSE(l.has("bwd/layer1.weight"));
  EXPECT_FALSE(l.has("copy_out/layer1.weight"));
  EXPECT_EQ(l.op("allreduce/unused").bytes, 4 * 3);
  EXPECT_EQ(l.waits("wait/unused"), Names{"allreduce/unused"});
}

TEST(UnusedParameters, CostABitmapButNoWaitWhenAllAreUsed) {
  Plan p;
  ddp_of(p).find_unused_parameters = true;
  Listing l(three(DeviceKind::Cpu), p);
  EXPECT_TRUE(l.has("allreduce/unused"));
  EXPECT_FALSE(l.has("wait/unused"));
  EXPECT_EQ(l.program.warmup.size(), 1u);  // never rebuilt
}

TEST(UnusedParameters, NamedInThePlanMergeTheirTimeIntoTheNextGradient) {
  Plan p;
  ddp_of(p).find_unused_parameters = true;
  p.unused_parameters = {"layer1.weight"};
  Listing l(three(DeviceKind::Cpu), p);
  EXPECT_EQ(l.op("bwd/layer0.weight").duration, kMillisecond * 2);
}

TEST(StaticGraph, DelaysTheFirstReductionAndRebuildsInTheThirdStep) {
  Plan p;
  ddp_of(p).static_graph = true;
  Listing l(with_unused(), p);
  ASSERT_EQ(l.program.warmup.size(), 3u);
  l.warmup(0);
  EXPECT_EQ(l.names(),
            (Names{"fwd", "bwd/layer2.weight", "bwd/layer0.weight", "bwd/tail", "allreduce/unused",
                   "copy_in/layer0.weight", "copy_in/layer1.weight", "copy_in/layer2.weight",
                   "allreduce/bucket.0", "wait/unused", "wait/bucket.0", "copy_out/layer0.weight",
                   "copy_out/layer2.weight", "optimizer"}));
  l.warmup(1);
  EXPECT_EQ(l.step->buckets.size(), 1u);
  EXPECT_FALSE(l.has("rebuild"));
  EXPECT_FALSE(l.has("allreduce/unused"));
  EXPECT_GT(l.find("allreduce/bucket.0"), l.find("copy_in/layer0.weight"));
  l.warmup(2);
  EXPECT_TRUE(l.has("broadcast/rebuild.1"));
  // Unused ones were ready first.
  EXPECT_EQ(l.step->buckets[0].tensors, std::vector<TensorIndex>{1});
  EXPECT_EQ(l.step->buckets[1].tensors, (std::vector<TensorIndex>{2, 0}));
  EXPECT_FALSE(l.has("find_unused"));
}

}  // namespace
}  // namespace ddpsim::systems
