// The two simpler models, on examples solved by hand.
#include "sim/predict/baselines.h"

#include <gtest/gtest.h>

#include "sim/systems/ddp/plan.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

constexpr std::int64_t kLayerBytes = 4'000'000;
constexpr Bandwidth kLink{8'000'000'000};  // 1 byte a nanosecond
constexpr double kTolerance = 1e-3;        // ms: bookkeeping operations of the ideal device

// Three layers: forward 3 ms, gradients ready 1, 2 and 3 ms later, optimizer 1 ms.
struct Example {
  Workload w = layered(3, kLayerBytes, kMillisecond, kMillisecond);
  Cluster c;
  Profile p = ideal_profile(kMillisecond * 7);  // a latency that neither model may see
  Scenario s;
  Example(int ranks, double cap) : c(star(ranks, kLink)) {
    w.times.optimizer = kMillisecond;
    s.ranks = ranks;
    ddp_of(s.plan).bucket_cap_mb = cap;
    ddp_of(s.plan).gradient_as_bucket_view = true;
  }
  double naive() const {
    return ms([](const predict::Question& q) { return predict::naive_step(q); });
  }
  double queue() const {
    return ms([](const predict::Question& q) { return predict::queue_step(q); });
  }
  template <class Model>
  double ms(Model model) const {
    topology::Fabric fabric(c);
    return static_cast<double>(model(predict::Question{w, fabric, p, s}).ps) / 1e9;
  }
};

TEST(Baselines, BucketsFollowOneAnother) {
  // n = 2: 2(n-1)/n S = 4 MB, 4 ms a bucket. Ready at 4, 5, 6 ms: 4-8, 8-12, 12-16, then the
  // optimizer.
  Example e(2, 1);
  EXPECT_NEAR(e.naive(), 17, kTolerance);
  EXPECT_NEAR(e.queue(), 17, kTolerance);
}

TEST(Baselines, OneBucketWaitsForAllOfBackward) {
  // Ready at 6 ms, 12 MB in 12 ms.
  Example e(2, 100);
  EXPECT_NEAR(e.naive(), 19, kTolerance);
  EXPECT_NEAR(e.queue(), 19, kTolerance);
}

TEST(Baselines, OnlyTheQueueSeesAStraggler) {
  // Rank 1 takes twice as long: ready at 8, 10, 12 ms: 8-12, 12-16, 16-20, optimizer 2 ms.
  Example e(2, 1);
  e.s.slow_ranks[1] = 2;
  EXPECT_NEAR(e.naive(), 17, kTolerance);
  EXPECT_NEAR(e.queue(), 22, kTolerance);
  // Rank 0 is the one that the spreadsheet was filled in for.
  e.s.slow_ranks = {{0, 2.0}};
  EXPECT_NEAR(e.naive(), 22, kTolerance);
}

TEST(Baselines, OnlyTheQueueSeesASharedUplink) {
  // Two racks of two, ranks alternate between them: two of the ring's edges leave each rack. n = 4:
  // 1.5 x 12 MB = 18 ms alone, 36 ms over the uplink.
  Example e(4, 100);
  e.c.pattern = Pattern::Racks;
  e.c.racks = 2;
  e.c.uplink = e.c.link;
  e.s.rank_order = {0, 2, 1, 3};
  e.s.plan.backend = Backend::Gloo;
  e.w.device = e.c.device = e.p.kind = DeviceKind::Cpu;
  EXPECT_NEAR(e.naive(), 6 + 18 + 1, kTolerance);
  EXPECT_NEAR(e.queue(), 6 + 36 + 1, kTolerance);
}

TEST(Baselines, OnlyTheQueueSeesTheEfficiency) {
  Example e(2, 100);
  e.p.transports["wire"].efficiency = {0.4, 0.5, 0.6};
  EXPECT_NEAR(e.naive(), 19, kTolerance);
  EXPECT_NEAR(e.queue(), 6 + 24 + 1, kTolerance);
}

TEST(Baselines, BothSeeASlowHostLink) {
  Example e(2, 100);
  e.c.slow_links = {{1, Bandwidth{4'000'000'000}}};
  EXPECT_NEAR(e.naive(), 6 + 24 + 1, kTolerance);
  EXPECT_NEAR(e.queue(), 6 + 24 + 1, kTolerance);
}

TEST(Baselines, OnlyTheQueueSeesBroadcasts) {
  // 4 MB of buffers are broadcast before forward, which waits: 4 ms over the ring of two.
  Example e(2, 100);
  e.w.buffers.push_back({"running_mean", {1'000'000}, DType::Float32});
  EXPECT_NEAR(e.naive(), 19, kTolerance);
  EXPECT_NEAR(e.queue(), 23, kTolerance);
}

TEST(Baselines, OneRankOnlyComputes) {
  Example e(1, 1);
  EXPECT_NEAR(e.naive(), 7, kTolerance);
  EXPECT_NEAR(e.queue(), 7, kTolerance);
}

}  // namespace
}  // namespace ddpsim::test
