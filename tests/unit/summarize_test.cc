// Where the time of a step goes, on Runs made by hand; and the rules that the nouns obey.
#include "sim/analysis/summarize.h"

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/systems/ddp/plan.h"
#include "tests/support/support.h"
#include "tests/support/systems.h"

namespace ddpsim::analysis {
namespace {

// A steady step from 1000 to 1000 + duration.
Run run(std::int64_t duration) {
  Run r;
  r.steps = {{StepKind::First, {1000}}, {StepKind::Steady, {duration}}};
  r.spans_from = {1000};
  return r;
}
Span span(OpKind kind, std::int64_t begin, std::int64_t end, int actor = 0) {
  Span s;
  s.kind = kind;
  s.actor = actor;
  s.op = "op";
  s.begin = {1000 + begin};
  s.end = {1000 + end};
  s.ready = s.begin;
  return s;
}
Span reduce(std::int64_t ready, std::int64_t begin, std::int64_t end, int actor = 0) {
  Span s = span(test::kind_of_op("allreduce/bucket.0"), begin, end, actor);
  s.op = "allreduce/bucket.0";
  s.ready = {1000 + ready};
  s.bytes = 12;
  s.algorithm = "ring";
  return s;
}

TEST(Summarize, SplitsAStepIntoComputeExposedCommunicationAndIdle) {
  auto r = run(100);
  r.spans = {span(test::kind_of_op("fwd"), 0, 20), span(test::kind_of_op("bwd/w"), 20, 60),
             reduce(50, 50, 80), span(test::kind_of_op("optimizer"), 90, 100)};
  Summary s = summarize(r);
  EXPECT_EQ(s.step.ps, 100);
  EXPECT_EQ(s.forward.ps, 20);
  EXPECT_EQ(s.backward.ps, 40);
  EXPECT_EQ(s.optimizer.ps, 10);
  EXPECT_EQ(s.compute.ps, 70);
  EXPECT_EQ(s.communication.ps, 30);
  EXPECT_EQ(s.exposed_communication.ps, 20);  // 60 to 80
  EXPECT_EQ(s.idle.ps, 10);                   // 80 to 90
  EXPECT_DOUBLE_EQ(s.overlap, 1 - 20.0 / 30);
}

TEST(Summarize, CountsOverlappingCollectivesOnce) {
  auto r = run(100);
  r.spans = {reduce(10, 10, 50), reduce(30, 30, 70), reduce(70, 70, 80),
             span(test::kind_of_op("optimizer"), 95, 100)};
  Summary s = summarize(r);
  EXPECT_EQ(s.communication.ps, 70);
  EXPECT_EQ(s.exposed_communication.ps, 70);
  EXPECT_EQ(s.overlap, 0);
}

// What each collective has of the exposed time; the sum is all of it.
std::vector<std::int64_t> exposed(const Run& r) {
  const Summary s = summarize(r);
  std::vector<std::int64_t> out;
  std::int64_t sum = 0;
  for (const BucketTimes& b : s.buckets) {
    out.push_back(b.exposed.ps);
    std::int64_t at = 0;
    for (const Interval& i : b.exposed_at) at += i.end - i.begin;
    EXPECT_EQ(at, b.exposed.ps);
    sum += b.exposed.ps;
  }
  for (const OtherCommunication& o : s.others) sum += o.exposed.ps;
  EXPECT_EQ(sum, s.exposed_communication.ps);
  EXPECT_EQ(s.compute.ps + s.exposed_communication.ps + s.idle.ps, s.step.ps);
  return out;
}
using Parts = std::vector<std::int64_t>;

TEST(Summarize, GivesEachExposedMomentToOneCollective) {
  auto r = run(100);
  r.spans = {reduce(10, 10, 50), reduce(30, 30, 70), reduce(70, 70, 80),
             span(test::kind_of_op("optimizer"), 95, 100)};
  EXPECT_EQ(exposed(r), (Parts{20, 40, 10}));
  // Behind another it waits for its stream: that is the other's time.
  r.spans = {reduce(0, 0, 60), reduce(5, 60, 64), span(test::kind_of_op("bwd/w"), 0, 40),
             span(test::kind_of_op("optimizer"), 64, 100)};
  EXPECT_EQ(exposed(r), (Parts{20, 4}));
  // For late ranks it waits by itself.
  r.spans = {reduce(40, 70, 90), span(test::kind_of_op("bwd/w"), 0, 40),
             span(test::kind_of_op("optimizer"), 90, 100)};
  EXPECT_EQ(exposed(r), (Parts{50}));
}

TEST(Summarize, GivesExposedTimeToWhatTheDeviceWaitsFor) {
  auto r = run(100);
  // Computing goes on where the second ends; the first is in flight until later.
  r.spans = {reduce(0, 0, 95), reduce(0, 0, 60), span(test::kind_of_op("fwd"), 60, 100)};
  EXPECT_EQ(exposed(r), (Parts{0, 60}));
  // A short one that ends meanwhile is not what was waited for.
  r.spans = {reduce(0, 0, 60), reduce(20, 30, 40), span(test::kind_of_op("fwd"), 60, 100)};
  EXPECT_EQ(exposed(r), (Parts{60, 0}));
  // The host is late: nothing ended where computing goes on.
  r.spans = {reduce(0, 0, 95), reduce(0, 0, 20), span(test::kind_of_op("fwd"), 30, 100)};
  EXPECT_EQ(exposed(r), (Parts{10, 20}));
  // Nothing is in flight: the host waits.
  r.spans = {span(test::kind_of_op("wait/bucket.0"), 0, 50), reduce(0, 20, 40),
             span(test::kind_of_op("fwd"), 50, 100)};
  EXPECT_EQ(exposed(r), (Parts{40}));
}

TEST(Summarize, CountsComputationOnSeveralStreamsOnce) {
  auto r = run(100);
  r.spans = {span(test::kind_of_op("fwd"), 0, 30), span(test::kind_of_op("bwd/w"), 20, 60),
             span(test::kind_of_op("copy_out/w"), 50, 70),
             span(test::kind_of_op("optimizer"), 65, 100)};
  const Summary s = summarize(r);
  EXPECT_EQ(s.forward.ps, 30);
  EXPECT_EQ(s.backward.ps, 30);
  EXPECT_EQ(s.optimizer.ps, 35);
  EXPECT_EQ(s.ddp.ps, 5);
  EXPECT_EQ(s.compute.ps, 100);
}

TEST(Summarize, MeansHaveMeanParts) {
  auto a = run(101);
  a.spans = {span(test::kind_of_op("fwd"), 0, 40), reduce(40, 40, 71),
             span(test::kind_of_op("optimizer"), 80, 101)};
  auto b = run(110);
  b.spans = {span(test::kind_of_op("fwd"), 0, 41), reduce(41, 41, 71), reduce(71, 71, 80),
             span(test::kind_of_op("optimizer"), 82, 110)};
  for (bool last_has_fewer : {true, false}) {
    std::vector<Summary> steps{summarize(b), summarize(a)};
    if (!last_has_fewer) std::swap(steps[0], steps[1]);
    const Summary m = mean_of(steps, {105});
    EXPECT_EQ(m.step.ps, 105);
    EXPECT_EQ(m.compute.ps + m.exposed_communication.ps + m.idle.ps, 105);
    EXPECT_EQ(m.forward.ps + m.backward.ps + m.optimizer.ps + m.ddp.ps, m.compute.ps);
    std::int64_t sum = 0;
    for (const BucketTimes& x : m.buckets) sum += x.exposed.ps;
    for (const OtherCommunication& x : m.others) sum += x.exposed.ps;
    EXPECT_EQ(sum, m.exposed_communication.ps);
    EXPECT_EQ(m.buckets.size(), last_has_fewer ? 1u : 2u);
    EXPECT_EQ(m.others.size(), last_has_fewer ? 1u : 0u);
    EXPECT_NEAR(static_cast<double>(m.buckets[0].exposed.ps), 30.5, 1);
  }
  // One step three times as often as the other.
  auto all_compute = run(110);
  all_compute.spans = {span(test::kind_of_op("fwd"), 0, 90),
                       span(test::kind_of_op("optimizer"), 90, 110)};
  const std::vector<Summary> steps{summarize(all_compute), summarize(a)};
  const std::vector<double> weights{0.25, 0.75};  // 110 / 4 + 61 * 3 / 4 is 73
  EXPECT_NEAR(static_cast<double>(mean_of(steps, {103}, weights).compute.ps), 73, 1);
}

TEST(Summarize, SeesCommunicationAcrossSeveralGapsOfCompute) {
  auto r = run(100);
  r.spans = {span(test::kind_of_op("bwd/w"), 0, 20), span(test::kind_of_op("bwd/w"), 30, 40),
             span(test::kind_of_op("copy_out/w"), 45, 60), reduce(10, 10, 50),
             span(test::kind_of_op("optimizer"), 60, 100)};
  Summary s = summarize(r);
  EXPECT_EQ(s.exposed_communication.ps, 10 + 5);
  EXPECT_EQ(s.ddp.ps, 15);
  EXPECT_EQ(s.idle.ps, 0);
}

TEST(Summarize, HasNoOverlapWithoutCommunication) {
  auto r = run(10);
  r.spans = {span(test::kind_of_op("fwd"), 0, 5), span(test::kind_of_op("optimizer"), 5, 10)};
  Summary s = summarize(r);
  EXPECT_EQ(s.communication.ps, 0);
  EXPECT_EQ(s.overlap, 0);
  EXPECT_TRUE(s.buckets.empty());
}

TEST(Summarize, HidesCommunicationUnderComputeFully) {
  auto r = run(50);
  r.spans = {span(test::kind_of_op("bwd/w"), 0, 40), reduce(5, 10, 30),
             span(test::kind_of_op("optimizer"), 40, 50)};
  EXPECT_EQ(summarize(r).exposed_communication.ps, 0);
  EXPECT_EQ(summarize(r).overlap, 1);
}

TEST(Summarize, CountsWaitingForTheOthersAsCommunication) {
  auto r = run(100);
  r.spans = {span(test::kind_of_op("bwd/w"), 0, 40), reduce(40, 70, 90),
             span(test::kind_of_op("optimizer"), 90, 100)};
  Summary s = summarize(r);
  EXPECT_EQ(s.communication.ps, 50);
  EXPECT_EQ(s.exposed_communication.ps, 50);
  r.spans[1] = span(test::kind_of_op("wait/bucket.0"), 40, 90);  // a host that blocks
  EXPECT_EQ(summarize(r).exposed_communication.ps, 50);
}

TEST(Summarize, LooksAtTheActorThatEndsLast) {
  auto r = run(100);
  r.spans = {
      span(test::kind_of_op("fwd"), 0, 10, 0), span(test::kind_of_op("optimizer"), 80, 90, 0),
      span(test::kind_of_op("fwd"), 0, 30, 3), span(test::kind_of_op("optimizer"), 90, 100, 3)};
  Summary s = summarize(r);
  EXPECT_EQ(s.actor, 3);
  EXPECT_EQ(s.forward.ps, 30);
  EXPECT_EQ(s.compute.ps, 40);
}

TEST(Summarize, ClipsToTheStep) {
  auto r = run(50);
  r.spans = {reduce(-30, -20, 10), span(test::kind_of_op("bwd/w"), -10, 5),
             span(test::kind_of_op("optimizer"), 40, 50)};
  Summary s = summarize(r);
  EXPECT_EQ(s.communication.ps, 10);
  EXPECT_EQ(s.compute.ps, 15);
  EXPECT_EQ(s.exposed_communication.ps, 5);
  EXPECT_EQ(s.idle.ps, 30);
  EXPECT_EQ(s.buckets[0].ready.ps, -30);
}

TEST(Summarize, KeepsTheHostApart) {
  auto r = run(100);
  r.spans = {span(test::kind_of_op("launch/fwd"), 0, 30),
             span(test::kind_of_op("find_unused"), 20, 40), span(test::kind_of_op("fwd"), 30, 60),
             span(test::kind_of_op("optimizer"), 90, 100)};
  Summary s = summarize(r);
  EXPECT_EQ(s.host_busy.ps, 40);
  EXPECT_EQ(s.compute.ps, 40);
  EXPECT_EQ(s.idle.ps, 60);
}

TEST(Summarize, ListsTheBucketsInOrder) {
  auto r = run(100);
  r.spans = {reduce(10, 20, 30), reduce(35, 35, 60), span(test::kind_of_op("optimizer"), 90, 100)};
  r.spans[1].op = "allreduce/bucket.1";
  r.spans[1].tensors = {4, 2};
  Summary s = summarize(r);
  ASSERT_EQ(s.buckets.size(), 2u);
  EXPECT_EQ(s.buckets[0].name, "allreduce/bucket.0");
  EXPECT_EQ(s.buckets[0].ready.ps, 10);
  EXPECT_EQ(s.buckets[0].begin.ps, 20);
  EXPECT_EQ(s.buckets[0].end.ps, 30);
  EXPECT_EQ(s.buckets[1].tensors, (std::vector<TensorIndex>{4, 2}));
  EXPECT_EQ(s.buckets[1].bytes, 12);
  EXPECT_EQ(s.buckets[1].algorithm, "ring");
}

TEST(OpKinds, AreComputeCommunicationOrHost) {
  EXPECT_TRUE(is_communication(test::kind_of_op("wait/bucket.0")));
  EXPECT_TRUE(is_communication(test::kind_of_op("broadcast/buffers.0")));
  EXPECT_TRUE(is_compute(test::kind_of_op("copy_in/w")));
  EXPECT_FALSE(is_compute(test::kind_of_op("launch/fwd")));
  EXPECT_FALSE(is_compute(test::kind_of_op("allreduce/bucket.0")));
  EXPECT_FALSE(is_communication(test::kind_of_op("launch/fwd")));
}

// ---- rules of the model

template <class T>
std::string broken(T value, const std::function<void(T&)>& change) {
  EXPECT_FALSE(validate(value)) << validate(value).message;
  change(value);
  return validate(value).path;
}
std::string workload(const std::function<void(Workload&)>& change) {
  return broken(test::layered(3, 64, kMillisecond, kMillisecond), change);
}
std::string cluster(const std::function<void(Cluster&)>& change) {
  return broken(test::star(4, {1'000'000'000}), change);
}
std::string profile(const std::function<void(Profile&)>& change) {
  return broken(test::ideal_profile(kMicrosecond), change);
}
std::string scenario(const std::function<void(Scenario&)>& change) {
  Scenario s;
  s.ranks = 2;
  EXPECT_FALSE(validate(s, 4));
  change(s);
  return validate(s, 4).path;
}
Problem plan(const std::function<void(Plan&)>& change, DeviceKind kind = DeviceKind::Gpu) {
  Plan p;
  Workload w = test::layered(2, 64, kMillisecond, kMillisecond, kind);
  EXPECT_FALSE(validate(p, w, kind));
  change(p);
  return validate(p, w, kind);
}

TEST(ValidWorkload, HasTensorsWithNamesAndSizes) {
  EXPECT_EQ(workload([](Workload& w) { w.name.clear(); }), "/name");
  EXPECT_EQ(workload([](Workload& w) { w.batch = 0; }), "/batch");
  EXPECT_EQ(workload([](Workload& w) { w.tensors.clear(); }), "/tensors");
  EXPECT_EQ(workload([](Workload& w) { w.tensors[2].name = w.tensors[0].name; }),
            "/tensors/2/name");
  EXPECT_EQ(workload([](Workload& w) { w.tensors[1].shape = {4, 0}; }), "/tensors/1/shape");
  EXPECT_EQ(workload([](Workload& w) {
              w.tensors[1].shape = {1 << 30, 1 << 30};
            }),
            "/tensors/1/shape");
  EXPECT_EQ(workload([](Workload& w) { w.buffers = {{"b", {0}, DType::Float32}}; }), "");
}

TEST(ValidWorkload, HasEachGradientArriveOnceInTimeAndBeforeTheEnd) {
  EXPECT_EQ(workload([](Workload& w) { w.arrival[1] = 3; }), "/arrival/1");
  EXPECT_EQ(workload([](Workload& w) { w.arrival[1] = w.arrival[0]; }), "/arrival/1");
  EXPECT_EQ(workload([](Workload& w) { w.arrival.clear(); }), "/arrival");
  EXPECT_EQ(workload([](Workload& w) { w.times.ready.pop_back(); }), "/times/ready_ps");
  EXPECT_EQ(workload([](Workload& w) { w.times.ready[1] = Duration{1}; }), "/times/ready_ps/1");
  EXPECT_EQ(workload([](Workload& w) { w.times.ready[2] = w.times.backward + Duration{1}; }),
            "/times/ready_ps/2");
  EXPECT_EQ(workload([](Workload& w) { w.times.host.reset(); }), "/times");
  EXPECT_EQ(workload([](Workload& w) { w.times.host->ready[0] = Duration{-1}; }),
            "/times/host_ready_ps/0");
}

TEST(ValidWorkload, WhenDescribedHasLayersThatGiveTheArrival) {
  EXPECT_EQ(workload([](Workload& w) { w.basis = Basis::Described; }), "/layers");
  auto describe = [](Workload& w, std::vector<TensorIndex> last) {
    w.basis = Basis::Described;
    w.layers.resize(2);
    w.layers[0].tensors = {0};
    w.layers[1].tensors = std::move(last);
  };
  EXPECT_EQ(workload([&](Workload& w) { describe(w, {2, 1}); }), "");
  EXPECT_EQ(workload([&](Workload& w) { describe(w, {1, 2}); }), "/layers");
  EXPECT_EQ(workload([&](Workload& w) {
              describe(w, {2, 1}), w.layers[1].backward.flops_per_sample = -1;
            }),
            "/layers/1");
}

TEST(ValidCluster, HasPositiveLinksAndWholeBuckets) {
  EXPECT_EQ(cluster([](Cluster& c) { c.hosts = 0; }), "/hosts");
  EXPECT_EQ(cluster([](Cluster& c) { c.hosts = (1 << 20) + 1; }), "/hosts");
  EXPECT_EQ(cluster([](Cluster& c) { c.devices_per_host = 2; }), "/intra");
  EXPECT_EQ(cluster([](Cluster& c) { c.link.bandwidth = {0}; }), "/link/bandwidth");
  EXPECT_EQ(cluster([](Cluster& c) { c.link.latency = kSecond * 2; }), "/link/latency");
  EXPECT_EQ(cluster([](Cluster& c) { c.link.burst = {1}; }), "/link");
  EXPECT_EQ(cluster([](Cluster& c) { c.link.burst = {1}, c.link.peak = {1}; }), "/link/peak");
  EXPECT_EQ(cluster([](Cluster& c) { c.slow_links = {{4, {1}}}; }), "/slow_links/0/host");
  EXPECT_EQ(cluster([](Cluster& c) { c.pattern = Pattern::Racks, c.racks = 5; }), "/racks");
  EXPECT_EQ(cluster([](Cluster& c) { c.pattern = Pattern::FatTree, c.oversubscription = 0.5; }),
            "/oversubscription");
  EXPECT_EQ(cluster([](Cluster& c) { c.pattern = Pattern::Graph; }), "/nodes");
  EXPECT_EQ(cluster([](Cluster& c) {
              c.pattern = Pattern::Graph, c.nodes = {{"a", true}}, c.links = {{"a", "b", c.link}};
            }),
            "/links/0/to");
}

TEST(ValidProfile, HasOrderedRangesAndKnots) {
  EXPECT_EQ(profile([](Profile& p) { p.transports.clear(); }), "/transports");
  EXPECT_EQ(profile([](Profile& p) { p.memory.efficiency = {0.9, 0.5, 1}; }), "/memory/efficiency");
  EXPECT_EQ(profile([](Profile& p) { p.memory.bandwidth_bytes_per_s = 0; }),
            "/memory/bandwidth_bytes_per_s");
  EXPECT_EQ(profile([](Profile& p) { p.transports["wire"].efficiency.high = 1.5; }),
            "/transports/wire/efficiency");
  EXPECT_EQ(profile([](Profile& p) {
              p.transports["wire"].knots = {{8, 1}, {8, 2}};
            }),
            "/transports/wire/knots/1/chunk_bytes");
  EXPECT_EQ(profile([](Profile& p) { p.sm_hold = {0.1, 0.2, 0.3}; }), "/interference/sm_hold");
  EXPECT_EQ(profile([](Profile& p) { p.sm_hold = {0.3, 0.2, 0.1}; }), "");
}

TEST(ValidScenario, GivesEachRankADeviceOfItsOwn) {
  EXPECT_EQ(scenario([](Scenario& s) { s.ranks = 0; }), "/ranks");
  EXPECT_EQ(scenario([](Scenario& s) { s.ranks = 5; }), "/ranks");
  EXPECT_EQ(scenario([](Scenario& s) { s.rank_order = {0}; }), "/rank_order");
  EXPECT_EQ(scenario([](Scenario& s) { s.rank_order = {3, 4}; }), "/rank_order/1");
  EXPECT_EQ(scenario([](Scenario& s) { s.rank_order = {3, 3}; }), "/rank_order/1");
  EXPECT_EQ(scenario([](Scenario& s) { s.slow_ranks = {{2, 1.5}}; }), "/slow_ranks/2");
  EXPECT_EQ(scenario([](Scenario& s) { s.slow_ranks = {{1, 0}}; }), "/slow_ranks/1");
  EXPECT_EQ(scenario([](Scenario& s) { s.jitter = Jitter{2, 1, 20}; }), "/jitter/cv");
}

TEST(ValidPlan, AccumulatesNoMoreThanMemoryHolds) {
  Workload w = test::layered(1'000, 4, kMillisecond, kMillisecond);
  auto problem = [&](int micro_steps) {
    Plan p;
    p.accumulation_steps = micro_steps;
    return validate(p, w, DeviceKind::Gpu);
  };
  EXPECT_EQ(problem(200).message, "");
  EXPECT_EQ(problem(201).path, "/plan/accumulation_steps");
  EXPECT_NE(problem(201).message.find("at most 200 micro-steps"), std::string::npos)
      << problem(201).message;
}

TEST(ValidPlan, FitsItsWorkload) {
  EXPECT_EQ(plan([](Plan& p) { p.accumulation_steps = 0; }).path, "/plan/accumulation_steps");
  EXPECT_EQ(plan([](Plan& p) { ddp_of(p).bucket_cap_mb = 0; }).path, "/plan/bucket_cap_mb");
  EXPECT_FALSE(plan([](Plan& p) { p.backend = Backend::Gloo; }));
  EXPECT_EQ(plan([](Plan& p) {
              p.backend = Backend::Gloo;
              p.system = systems::kHorovodSystem;
            }).path,
            "/plan/backend");
  EXPECT_EQ(plan([](Plan& p) { p.backend = Backend::Nccl; }, DeviceKind::Cpu).path,
            "/plan/backend");
  EXPECT_EQ(plan([](Plan& p) { p.unused_parameters = {"nobody"}; }).path,
            "/plan/unused_parameters/0");
  EXPECT_EQ(plan([](Plan& p) { p.unused_parameters = {"layer0.weight"}; }).message,
            "parameter \"layer0.weight\" never gets a gradient: PyTorch DDP stops with an error "
            "unless find_unused_parameters or static_graph is true (--set "
            "find_unused_parameters=true)");
  EXPECT_FALSE(plan(
      [](Plan& p) { p.unused_parameters = {"layer0.weight"}, ddp_of(p).static_graph = true; }));
  EXPECT_EQ(
      plan([](Plan& p) {
        p.unused_parameters = {"layer0.weight", "layer1.weight"}, ddp_of(p).static_graph = true;
      }).path,
      "/plan/unused_parameters");
}

}  // namespace
}  // namespace ddpsim::analysis
