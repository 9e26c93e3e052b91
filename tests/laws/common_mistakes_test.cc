// What people usually get wrong about data parallelism, an entry a test: the numbers are those of
// section E of the facts that ddpsim is written from.
#include <algorithm>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "sim/cost/roofline.h"
#include "sim/model/sampler.h"
#include "sim/predict/predict.h"
#include "sim/systems/apex/plan.h"
#include "sim/systems/base/lower.h"
#include "sim/systems/ddp/bucketing.h"
#include "sim/systems/ddp/plan.h"
#include "sim/systems/horovod/fusion.h"
#include "sim/systems/mirrored/plan.h"
#include "sim/systems/zero/plan.h"
#include "sim/topology/fabric.h"
#include "tests/support/support.h"
#include "tests/support/systems.h"

namespace ddpsim::test {
namespace {

// A lowered step with names.
struct Listing {
  Workload w;
  StepTimes times;
  Program program;
  const StepProgram* step = nullptr;
  Listing(Workload workload_, const Plan& plan, int ranks = 4)
      : w(std::move(workload_)),
        times(w.basis == Basis::Captured
                  ? w.times
                  : predict::step_times(w, profile("h100-sxm.datasheet"), Level::Mid)),
        program(systems::lower({w, times, w.device, ranks}, plan)),
        step(&program.steady) {}
  Listing(const char* name, const Plan& plan, int ranks = 4)
      : Listing(workload(name), plan, ranks) {}
  std::string name(std::size_t i) const {
    return name_of(program, *step, static_cast<std::uint32_t>(i));
  }
  std::vector<std::size_t> all(const std::string& start) const {
    std::vector<std::size_t> out;
    for (std::size_t i = 0; i < step->ops.size(); ++i)
      if (name(i).starts_with(start)) out.push_back(i);
    return out;
  }
  std::vector<std::size_t> collectives(std::optional<Operation> o = {}) const {
    std::vector<std::size_t> out;
    for (std::size_t i = 0; i < step->ops.size(); ++i)
      if (is_collective(step->ops[i].kind) && (!o || step->ops[i].kind.operation == *o))
        out.push_back(i);
    return out;
  }
  std::int64_t bytes(Operation o) const {
    std::int64_t sum = 0;
    for (std::size_t i : collectives(o)) sum += step->ops[i].bytes;
    return sum;
  }
  std::int64_t bytes(const std::string& start) const {
    std::int64_t sum = 0;
    for (std::size_t i : all(start)) sum += step->ops[i].traffic;
    return sum;
  }
};

Plan of(System s) {
  Plan p;
  p.system = s;
  return p;
}
Workload gpu_layers(int layers, std::int64_t bytes) {
  return layered(layers, bytes, kMillisecond, kMillisecond, DeviceKind::Gpu);
}

TEST(CommonMistakes, E1TheFirstIterationIsNotBucketedAndTheSecondPaysTheRebuild) {
  Listing l("resnet50", Plan{});
  l.step = &l.program.warmup.at(0);
  const auto sums = [&] {
    std::vector<std::int64_t> out;
    for (std::size_t i : l.collectives(Operation::AllReduce)) out.push_back(l.step->ops[i].bytes);
    return out;
  };
  EXPECT_EQ(sums(), std::vector{l.w.gradient_bytes().count});
  const std::size_t launched = l.collectives(Operation::AllReduce).front();
  for (std::size_t i = launched; i < l.step->ops.size(); ++i)
    EXPECT_FALSE(is_backward(l.step->ops[i].kind)) << "it is after all of backward: " << l.name(i);
  l.step = &l.program.warmup.at(1);
  EXPECT_EQ(l.all("broadcast/rebuild").size(), 2u);
  EXPECT_EQ(l.all("wait/broadcast/rebuild").size(), 2u);
  l.step = &l.program.steady;
  EXPECT_TRUE(l.all("broadcast/rebuild").empty());
  EXPECT_GT(sums().size(), 1u);
}

// Tensors of 0.5 MiB, a limit of 1 MiB: full with two in DDP (>=), with two in Horovod (<=), with
// two in ZeRO (before the one that would not fit). Of 0.75 MiB: two, one, one.
TEST(CommonMistakes, E2BucketRulesDifferAtAndBeyondTheLimit) {
  const auto sizes = [](std::int64_t bytes) {
    std::map<std::string, std::int64_t> first;
    const std::vector<Bytes> caps{{kMiB}};
    Workload w = gpu_layers(8, bytes);
    Plan ddp;
    ddp_of(ddp).bucket_cap_mb = 1;
    first["ddp"] = Listing(w, ddp).program.steady.buckets.front().bytes.count;
    Coordination c;
    for (int i = 0; i < 8; ++i) c.tensors.push_back({bytes, DType::Float32, kNoSubject});
    c.cycle = {1000};
    c.threshold = kMiB;
    c.cache = 1024;
    systems::Fusion f(c, 1, 1);
    std::vector<TensorIndex> every{0, 1, 2, 3, 4, 5, 6, 7};
    f.remember(every);
    for (TensorIndex t : every) f.request(0, t);
    f.begin_cycle(0);
    first["horovod"] = static_cast<std::int64_t>(f.agree().fused.front().size()) * bytes;
    Plan zero = of(systems::kZeroSystem);
    zero_of(zero).stage = 1;
    zero_of(zero).reduce_bucket_size = kMiB / 4;  // elements
    first["zero"] = Listing(w, zero).program.steady.buckets.front().bytes.count;
    Plan apex = of(systems::kApexSystem);
    apex_of(apex).message_size = kMiB / 4;  // elements
    first["apex"] = Listing(w, apex).program.steady.buckets.front().bytes.count;
    Plan tensorflow = of(systems::kMirroredSystem);
    mirrored_of(tensorflow).bytes_per_pack = kMiB;
    first["tensorflow"] = Listing(w, tensorflow).program.steady.buckets.front().bytes.count;
    return first;
  };
  for (const auto& [system, bytes] : sizes(kMiB / 2))
    EXPECT_EQ(bytes, system == "tensorflow" ? 3 * kMiB / 2 : kMiB)
        << system << " (TensorFlow: the last pack is larger than it, strictly)";
  auto over = sizes(3 * kMiB / 4);
  EXPECT_EQ(over["ddp"], 3 * kMiB / 2) << "the tensor that reaches the limit is in it";
  EXPECT_EQ(over["horovod"], 3 * kMiB / 4) << "never above";
  EXPECT_EQ(over["zero"], 3 * kMiB / 4) << "reduced before the one that would not fit";
  EXPECT_EQ(over["apex"], 3 * kMiB / 2) << "as DDP, in elements";
  EXPECT_EQ(over["tensorflow"], 3 * kMiB / 2) << "already larger: the next one begins a pack";
}

TEST(CommonMistakes, E3TheSmallFirstBucketIsTheFirstLaunchedAndOnlyByDefault) {
  const Workload w = gpu_layers(40, kMiB);
  const auto buckets = Listing(w, Plan{}).program.steady.buckets;
  EXPECT_EQ(buckets.front().bytes.count, kMiB);
  EXPECT_EQ(buckets.front().tensors, std::vector<TensorIndex>{39}) << "the last layer's";
  EXPECT_EQ(buckets[1].bytes.count, 25 * kMiB);
  Plan given;
  ddp_of(given).bucket_cap_mb = 25;
  EXPECT_EQ(Listing(w, given).program.steady.buckets.front().bytes.count, 25 * kMiB);
}

TEST(CommonMistakes, E4BucketViewsRemoveCopyOutAndNotCopyIn) {
  Plan p;
  p.set_to_none = true;
  const Listing plain("resnet50", p);
  ddp_of(p).gradient_as_bucket_view = true;
  const Listing view("resnet50", p);
  EXPECT_EQ(view.bytes("copy_in/"), plain.bytes("copy_in/"));
  EXPECT_GT(plain.bytes("copy_in/"), 0);
  EXPECT_GT(plain.bytes("copy_out/"), 0);
  EXPECT_EQ(view.bytes("copy_out/"), 0);
}

TEST(CommonMistakes, E5CopyOutsAreExposedOnTheComputeStreamOnePerParameter) {
  const Listing l("resnet50", Plan{});
  const auto copies = l.all("copy_out/");
  EXPECT_EQ(copies.size(), l.w.tensors.size());
  std::size_t last = 0;
  for (std::size_t i = 0; i < l.step->ops.size(); ++i)
    if (is_backward(l.step->ops[i].kind)) last = i;
  for (std::size_t i : copies) {
    EXPECT_EQ(l.step->ops[i].lane, Lane::Compute);
    EXPECT_GT(i, last) << "after backward";
  }
  EXPECT_EQ(l.all("launch/copy_out/").size(), copies.size());
  EXPECT_EQ(l.bytes("copy_out/"), 2 * l.w.gradient_bytes().count);
}

TEST(CommonMistakes, E6WhoDividesAndWhen) {
  const auto divisions = [](const Listing& l) {
    std::set<std::string> out;
    for (std::size_t i = 0; i < l.step->ops.size(); ++i)
      if (l.step->ops[i].kind.divides && l.step->ops[i].kind.does == Does::Copy)
        out.insert(name_of(l.step->ops[i].kind.phase));
    return out;
  };
  EXPECT_EQ(divisions(Listing("resnet50", Plan{})), std::set<std::string>{"backward"})
      << "DDP: with the copy in, before the sum";
  EXPECT_TRUE(divisions(Listing("resnet50", of(systems::kHorovodSystem))).empty())
      << "Horovod: NCCL averages";
  Plan fsdp = of(systems::kFsdpSystem);
  EXPECT_FALSE(Listing("gpt2-small", fsdp, 8).all("predivide").empty());
  EXPECT_FALSE(Listing("gpt2-small", fsdp, 8).all("postdivide").empty());
  Plan fsdp2 = of(systems::kFsdp2System);
  EXPECT_TRUE(Listing("gpt2-small", fsdp2, 8).all("predivide").empty());
  EXPECT_TRUE(Listing("gpt2-small", fsdp2, 8).all("postdivide").empty());
  EXPECT_TRUE(divisions(Listing("resnet50", of(systems::kMirroredSystem))).empty()) << "Keras sums";
  Plan mean = of(systems::kMirroredSystem);
  mirrored_of(mean).mean = true;
  EXPECT_EQ(divisions(Listing("resnet50", mean)), std::set<std::string>{"reduced"})
      << "TensorFlow: after the sum";
}

TEST(CommonMistakes, E7BatchNormPaysTwoSmallBroadcastsBeforeEachForward) {
  const Listing l("resnet50", Plan{});
  const auto broadcasts = l.collectives(Operation::Broadcast);
  ASSERT_EQ(broadcasts.size(), 2u) << "running statistics, and the counts";
  const std::size_t forward = l.all("fwd").front();
  for (std::size_t i : broadcasts) {
    EXPECT_LT(i, forward);
    EXPECT_LT(l.step->ops[i].bytes, kMiB);
  }
  EXPECT_TRUE(Listing("gpt2-small", Plan{}).collectives(Operation::Broadcast).empty());
}

// Its host is slower: the device's work is as it was, and Horovod sees gradients in other cycles.
TEST(CommonMistakes, E8HooksFireWhenTheHostGetsThere) {
  Workload w = gpu_layers(24, 4 * kMiB);
  const Cluster c = cluster("hgx-h100");
  const topology::Fabric fabric(c);
  const auto reductions = [&](Duration host) {
    for (std::size_t i = 0; i < w.times.host->ready.size(); ++i)
      w.times.host->ready[i] = host * static_cast<std::int64_t>(i + 1);
    w.times.host->backward = host * 24;
    Scenario s;
    s.ranks = 8;
    s.plan = of(systems::kHorovodSystem);
    const Profile p = profile("h100-sxm.datasheet");
    const predict::Prediction out = predict::predict({w, fabric, p, s});
    return out.summary.buckets.size();
  };
  EXPECT_LT(reductions({}), reductions(kMillisecond * 3))
      << "a host that is far ahead has enqueued everything in the first cycle";
}

TEST(CommonMistakes, E9HorovodsDefaultsAreOneMillisecondAnd128MiB) {
  const Listing l("resnet50", of(systems::kHorovodSystem));
  ASSERT_TRUE(l.program.coordination);
  EXPECT_EQ(l.program.coordination->cycle, kMillisecond);
  EXPECT_EQ(l.program.coordination->threshold, 128 * kMiB);
  EXPECT_GE(l.program.coordination->cache, 1024) << "a bit a tensor in steady state";
}

// All parameters come out of one autograd node, which runs when every replica has every gradient:
// nothing is reduced while backward runs, however long the reduction takes.
TEST(CommonMistakes, E10NnDataParallelsReductionCannotOverlapWithBackward) {
  const Listing l("resnet50", of(systems::kDataParallelSystem));
  const auto sums = l.collectives(Operation::Reduce);
  ASSERT_FALSE(sums.empty());
  std::size_t first = l.step->ops.size();
  for (std::size_t i : sums)
    if (carries_tensors(l.step->ops[i].kind)) first = std::min(first, i);
  for (std::size_t i = 0; i < l.step->ops.size(); ++i)
    if (is_backward(l.step->ops[i].kind)) {
      EXPECT_LT(i, first) << l.name(i);
    }
  // And on the clock: of DDP's step the reductions are hidden for the most part, of this one none.
  const Workload w = workload("resnet50");
  const Cluster c = cluster("hgx-h100");
  const topology::Fabric fabric(c);
  const Profile p = profile("h100-sxm.datasheet");
  const auto overlap = [&](System system) {
    Scenario s;
    s.ranks = 8;
    s.plan = of(system);
    return predict::predict({w, fabric, p, s}).summary.overlap;
  };
  EXPECT_LT(overlap(systems::kDataParallelSystem), 0.01);
  EXPECT_GT(overlap(systems::kDdpSystem), 0.5);
}

TEST(CommonMistakes, E11Zero1And2AllReduceByDefault) {
  for (int stage : {1, 2}) {
    Plan p = of(systems::kZeroSystem);
    zero_of(p).stage = stage;
    const Listing l("gpt2-small", p, 8);
    const double m = static_cast<double>(l.w.gradient_bytes().count);
    const double sent =
        static_cast<double>(2 * l.bytes(Operation::AllReduce) + l.bytes(Operation::AllGather) +
                            l.bytes(Operation::ReduceScatter));
    EXPECT_NEAR(sent / (2 * m), 1.5, 0.001) << "half as much again as DDP";
    EXPECT_EQ(l.bytes(Operation::ReduceScatter), 0);
  }
}

TEST(CommonMistakes, E12FsdpsGatherAndScatterDoNotOverlap) {
  const Workload w = workload("gpt2-small");
  const topology::Fabric fabric(cluster("hgx-h100"));
  const Profile p = profile("h100-sxm.datasheet");
  for (System system : {systems::kFsdpSystem, systems::kFsdp2System}) {
    Scenario s;
    s.ranks = 8;
    s.plan = of(system);
    const predict::Prediction out = predict::predict({w, fabric, p, s});
    std::vector<std::pair<std::int64_t, std::int64_t>> times;
    const int last = out.run.spans.back().step;
    bool both[2] = {false, false};
    for (const Span& span : out.run.spans) {
      if (!is_collective(span.kind) || span.step != last || span.actor != 0) continue;
      if (span.kind.operation == Operation::AllGather) both[0] = true;
      if (span.kind.operation == Operation::ReduceScatter) both[1] = true;
      times.emplace_back(span.begin.ps, span.end.ps);
    }
    EXPECT_TRUE(both[0] && both[1]);
    std::sort(times.begin(), times.end());
    for (std::size_t i = 1; i < times.size(); ++i)
      EXPECT_GE(times[i].first, times[i - 1].second) << name_of(system);
  }
}

TEST(CommonMistakes, E13GlooKeepsItsRingWhateverTheSizeAndRunsTwoAtOnce) {
  const topology::Fabric fabric(cluster("ethernet-10g"));
  const Profile p = profile("cpu-generic.datasheet");
  for (std::int64_t bytes : {std::int64_t{256}, kMiB, 64 * kMiB}) {
    Workload w = layered(6, bytes, kMillisecond, kMicrosecond, DeviceKind::Cpu);
    Scenario s;
    s.ranks = 4;
    ddp_of(s.plan).bucket_cap_mb = 0.0001;
    const predict::Prediction out = predict::predict({w, fabric, p, s});
    std::vector<std::pair<std::int64_t, int>> changes;
    const int last = out.run.spans.back().step;
    for (const Span& span : out.run.spans) {
      if (!is_collective(span.kind) || span.step != last || span.actor != 0) continue;
      EXPECT_EQ(span.algorithm, "ring") << bytes;
      changes.emplace_back(span.begin.ps, 1);
      changes.emplace_back(span.end.ps, -1);
    }
    ASSERT_EQ(changes.size(), 12u);
    std::sort(changes.begin(), changes.end());
    int at_once = 0;
    int most = 0;
    for (const auto& [at, change] : changes) most = std::max(most, at_once += change);
    EXPECT_EQ(most, 2) << bytes;
  }
}

TEST(CommonMistakes, E14OpenMpiTakesRabenseifnerAndTenKilobytesAreOf40) {
  const topology::Fabric fabric(cluster("ethernet-10g"));
  const Profile p = profile("cpu-generic.datasheet");
  const auto algorithm = [&](const char* version, std::int64_t bytes) {
    Scenario s;
    s.ranks = 8;
    s.plan.backend = Backend::Mpi;
    s.plan.open_mpi = version;
    ddp_of(s.plan).bucket_cap_mb = 0.0001;
    Workload w = layered(1, bytes, kMillisecond, kMicrosecond, DeviceKind::Cpu);
    return predict::predict({w, fabric, p, s}).summary.buckets.front().algorithm;
  };
  for (const char* version : {"4.1", "5.0"}) {
    EXPECT_EQ(algorithm(version, 8188), "recursive_doubling");
    for (std::int64_t bytes : {std::int64_t{8192}, kMiB, 64 * kMiB})
      EXPECT_EQ(algorithm(version, bytes), "rabenseifner") << version << ", " << bytes;
  }
  EXPECT_EQ(algorithm("4.0", 9996), "recursive_doubling");
  EXPECT_EQ(algorithm("4.0", 10'000), "ring");
  EXPECT_EQ(algorithm("4.0", 8 * kMiB), "ring");
  EXPECT_EQ(algorithm("4.0", 8 * kMiB + 4), "segmented_ring") << "more than 1 MiB a rank";
  // 5.0 and several ranks a host: coll/han, which is refused instead of taken for coll/tuned.
  const topology::Fabric lab(cluster("lab-2numa"));
  Scenario s;
  s.ranks = 8;
  s.plan.backend = Backend::Mpi;
  s.plan.open_mpi = "5.0";
  const Workload w = layered(1, kMiB, kMillisecond, kMicrosecond, DeviceKind::Cpu);
  const Problem han = predict::check({w, lab, p, s});
  EXPECT_NE(han.message.find("coll/han"), std::string::npos) << han.message;
  s.plan.open_mpi = "4.1";
  EXPECT_EQ(predict::check({w, lab, p, s}).message, "");
}

TEST(CommonMistakes, E15TheSamplerStridesAndRepeatsTheFirstOfTheShuffledOrder) {
  const std::vector<std::int64_t> order = permutation(10, 3);
  for (int rank = 0; rank < 3; ++rank) {
    const auto mine = samples_of({10, 3, 4}, rank, std::uint64_t{3});
    for (std::size_t i = 0; i < mine.size(); ++i)
      EXPECT_EQ(mine[i], order[(static_cast<std::size_t>(rank) + 3 * i) % 10]);
  }
}

// torchvision says 4.09 "GFLOPS" of ResNet-50: multiply-adds, 8.18 GFLOP.
TEST(CommonMistakes, E16TorchvisionsGflopsAreMultiplyAdds) {
  double flops = 0;
  for (const Layer& layer : workload("resnet50").layers) flops += layer.forward.flops_per_sample;
  EXPECT_NEAR(flops / 1e9, 2 * 4.09, 0.1);
}

}  // namespace
}  // namespace ddpsim::test
