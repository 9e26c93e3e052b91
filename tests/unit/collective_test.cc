// Rings and trees, what they put on every link, and what they cost.
#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/collective/messages.h"
#include "sim/collective/price.h"
#include "sim/engine/execute.h"
#include "sim/play/turns.h"
#include "tests/support/support.h"

namespace ddpsim::collective {
namespace {

using topology::Fabric;

constexpr Bandwidth kBytePerPs{8'000'000'000'000};

Cluster gpu_hosts(int hosts, int devices, int nics) {
  Cluster c = test::star(hosts, kBytePerPs);
  c.devices_per_host = devices;
  c.nics_per_host = nics;
  c.intra = LinkSpec{{80'000'000'000'000}, {}, {}, {}, "nvlink"};
  return c;
}
Profile two_transports(Duration nvlink, Duration wire) {
  Profile p = test::ideal_profile(wire);
  p.transports["nvlink"].latency = nvlink;
  return p;
}
Price on_star(int n, std::int64_t bytes, const Profile& p, Backend b = Backend::Nccl) {
  Fabric f(test::star(n, kBytePerPs));
  return all_reduce(make_communicator(f, first_devices(n), b), p, Level::Mid, {bytes});
}

// ---- rings

struct NicUse {
  std::map<std::pair<HostId, int>, int> sends, receives;  // (host, NIC)
};
NicUse nic_use(const Fabric& f, const Communicator& c) {
  NicUse use;
  for (const Ring& ring : c.rings) {
    const std::vector<int>& order = ring.order;
    for (std::size_t i = 0; i < order.size(); ++i) {
      const DeviceId from = c.devices[static_cast<std::size_t>(order[i])];
      const DeviceId to = c.devices[static_cast<std::size_t>(order[(i + 1) % order.size()])];
      if (f.host_of(from) == f.host_of(to)) continue;
      ++use.sends[{f.host_of(from), f.nic_of(from)}];
      ++use.receives[{f.host_of(to), f.nic_of(to)}];
    }
  }
  return use;
}

TEST(NcclRings, UseEveryNicOnceInEachDirection) {
  for (int nics : {1, 2, 4, 8}) {
    Fabric f(gpu_hosts(2, 8, nics));
    Communicator c = make_communicator(f, first_devices(16), Backend::Nccl);
    ASSERT_EQ(c.rings.size(), static_cast<std::size_t>(nics));
    NicUse use = nic_use(f, c);
    ASSERT_EQ(use.sends.size(), static_cast<std::size_t>(2 * nics));
    ASSERT_EQ(use.receives.size(), static_cast<std::size_t>(2 * nics));
    for (const auto& [nic, n] : use.sends)
      EXPECT_EQ(n, 1) << "host " << nic.first.number << " NIC " << nic.second;
    for (const auto& [nic, n] : use.receives)
      EXPECT_EQ(n, 1) << "host " << nic.first.number << " NIC " << nic.second;
  }
}

TEST(NcclRings, VisitEveryRankOnceAndEachHostInOneRun) {
  Fabric f(gpu_hosts(3, 4, 2));
  const Communicator c = make_communicator(f, first_devices(12), Backend::Nccl);
  auto host = [&](int rank) { return f.host_of(c.devices[static_cast<std::size_t>(rank)]); };
  for (const Ring& of : c.rings) {
    const std::vector<int>& ring = of.order;
    EXPECT_EQ(std::set<int>(ring.begin(), ring.end()).size(), 12u);
    EXPECT_EQ(ring.size(), 12u);
    int changes = 0;
    for (std::size_t i = 0; i < ring.size(); ++i)
      changes += host(ring[i]) != host(ring[(i + 1) % ring.size()]) ? 1 : 0;
    EXPECT_EQ(changes, 3);
  }
}

TEST(NcclRings, KeepTheRanksOfAHostTogetherWhateverTheRankOrder) {
  Fabric f(gpu_hosts(2, 2, 1));
  Communicator c = make_communicator(f, {0, 2, 1, 3}, Backend::Nccl);  // ranks 0, 2 on host 0
  ASSERT_EQ(c.rings.size(), 1u);
  EXPECT_EQ(c.rings[0].order, (std::vector<int>{0, 2, 1, 3}));
}

TEST(NcclRings, AreNoMoreThanTheRanksOfAHost) {
  Fabric f(gpu_hosts(2, 8, 8));
  EXPECT_EQ(make_communicator(f, {0, 1, 8, 9}, Backend::Nccl).rings.size(), 2u);
  EXPECT_EQ(make_communicator(f, first_devices(8), Backend::Nccl).rings.size(), 1u);
}

TEST(GlooRing, SendsToTheRankBelow) {
  Fabric f(test::star(4, kBytePerPs));
  Communicator c = make_communicator(f, first_devices(4), Backend::Gloo);
  ASSERT_EQ(c.rings.size(), 1u);
  EXPECT_EQ(c.rings[0].order, (std::vector<int>{0, 3, 2, 1}));
  for (const Hop& h : c.ring_hops) EXPECT_EQ(h.to, (h.from + 3) % 4);
}

TEST(RingLoad, IsOnceAroundOnEveryLinkOfAStar) {
  Fabric f(test::star(5, kBytePerPs));
  Communicator c = make_communicator(f, first_devices(5), Backend::Nccl);
  ASSERT_EQ(c.pattern(Operation::AllReduce).load.size(), 10u);
  for (const LinkLoad& l : c.pattern(Operation::AllReduce).load) EXPECT_EQ(l.per_byte, 1);
  // 2(n-1)/n S over every edge.
  Price p = all_reduce(c, test::ideal_profile({}), Level::Mid, {1'000'000});
  EXPECT_DOUBLE_EQ(p.phases[0].work, 1'600'000);
}

TEST(RingLoad, IsSplitOverTheNicsOfAHost) {
  Fabric f(gpu_hosts(2, 8, 8));
  Communicator c = make_communicator(f, first_devices(16), Backend::Nccl);
  for (const LinkLoad& l : c.pattern(Operation::AllReduce).load) {
    bool nic = f.link_name(l.link).find("nic") != std::string::npos;
    EXPECT_DOUBLE_EQ(l.per_byte, nic ? 1.0 / 8 : 7.0 / 8) << f.link_name(l.link);
  }
  EXPECT_EQ(c.pattern(Operation::AllReduce).load.size(), 2u * (16 + 16));
}

TEST(RingLoad, IsCountedOncePerCrossingOfAnUplink) {
  Cluster cluster = test::star(4, kBytePerPs);
  cluster.pattern = ddpsim::Pattern::Racks;
  cluster.racks = 2;
  cluster.uplink = cluster.link;
  Fabric f(cluster);
  auto uplink = [&](std::vector<DeviceId> order) {
    Communicator c = make_communicator(f, std::move(order), Backend::Nccl);
    for (const LinkLoad& l : c.pattern(Operation::AllReduce).load)
      if (f.link_name(l.link) == "rack0 uplink up") return l.per_byte;
    return 0.0;
  };
  EXPECT_EQ(uplink({0, 1, 2, 3}), 1);
  EXPECT_EQ(uplink({0, 2, 1, 3}), 2);
}

// ---- trees

TEST(Tree, ReachesEveryRankOnceFromRanksThatHaveTheData) {
  for (int n = 1; n <= 33; ++n) {
    std::set<int> have{0};
    int round = 0;
    for (; static_cast<int>(have.size()) < n; ++round) {
      ASSERT_LT(round, 10);
      std::set<int> before = have;
      for (auto [from, to] : tree_round(n, round)) {
        EXPECT_TRUE(before.count(from));
        EXPECT_TRUE(have.insert(to).second) << "rank " << to << " of " << n << " twice";
      }
    }
    EXPECT_TRUE(tree_round(n, round).empty());
    EXPECT_EQ(*have.rbegin(), n - 1);
  }
}

TEST(Tree, HasAsManyRoundsAsItsRanksHaveBits) {
  Fabric f(test::star(9, kBytePerPs));
  for (auto [n, rounds] : {std::pair{1, 0}, {2, 1}, {3, 2}, {4, 2}, {5, 3}, {8, 3}, {9, 4}})
    EXPECT_EQ(make_communicator(f, first_devices(n), Backend::Gloo)
                  .pattern(Operation::Broadcast)
                  .rounds.size(),
              static_cast<std::size_t>(rounds))
        << n;
}

// ---- Gloo's segments

TEST(GlooSegmentsOf, FourMiBOnFourRanks) {
  GlooSegments g = gloo_segments(4 * kMiB, 4);
  EXPECT_EQ(g.segments, 8);
  EXPECT_EQ(g.per_rank, 2);
  EXPECT_EQ(g.segment_bytes, 512 * kKiB);
}
TEST(GlooSegmentsOf, AHundredMegabytesOnFourRanks) {
  GlooSegments g = gloo_segments(100'000'000, 4);
  EXPECT_EQ(g.segments, 96);
  EXPECT_EQ(g.per_rank, 24);
  EXPECT_EQ(g.segment_bytes, 1'041'668);
}
TEST(GlooSegmentsOf, ATinyTensorAreAtLeastTwoPerRankAndWholeElements) {
  GlooSegments g = gloo_segments(100, 3);
  EXPECT_EQ(g.segments, 6);
  EXPECT_EQ(g.segment_bytes, 20);  // ceil(100 / 6) = 17
  EXPECT_EQ(gloo_segments(100, 3, 8).segment_bytes, 24);
  EXPECT_EQ(gloo_segments(10 * kMiB, 3).segments, 12);  // 10 rounded up to a multiple of 3
}

// ---- prices

TEST(NcclPrice, OfNothingToSendIsTheLaunchAndOfOneRankNotEvenThat) {
  Profile p = test::ideal_profile(kMicrosecond);
  p.transports["wire"].launch = kMicrosecond * 7;
  EXPECT_EQ(on_star(4, 0, p).alone, kMicrosecond * 7);
  EXPECT_EQ(on_star(1, 1'000'000, p).alone, Duration{});
}

TEST(NcclPrice, IsTheClosedForm) {
  Profile p = test::ideal_profile(kMicrosecond * 3);
  EXPECT_EQ(on_star(2, 1'000'000, p).alone.ps, 2 * 3'000'000 + 1'000'000);
  EXPECT_EQ(on_star(8, 1'000'000, p).alone.ps, 14 * 3'000'000 + 1'750'000);
  EXPECT_EQ(on_star(8, 1'000'000, p).algorithm, "ring/Simple");
}

TEST(NcclPrice, AddsLaunchAndWireLatencyAndDividesByEfficiency) {
  Cluster c = test::star(2, kBytePerPs);
  c.link.latency = kMicrosecond;  // twice a hop
  Fabric f(c);
  Profile p = test::ideal_profile(kMicrosecond * 3);
  p.transports["wire"].launch = kMicrosecond * 5;
  p.transports["wire"].efficiency = {0.25, 0.5, 1};
  Communicator comm = make_communicator(f, {0, 1}, Backend::Nccl);
  EXPECT_EQ(all_reduce(comm, p, Level::Mid, {1'000'000}).alone.ps,
            5'000'000 + 2 * 5'000'000 + 2'000'000);
  EXPECT_EQ(all_reduce(comm, p, Level::Low, {1'000'000}).alone.ps,
            5'000'000 + 2 * 5'000'000 + 4'000'000);
}

TEST(NcclPrice, TakesTheSlowestConsecutiveHops) {
  // n = 4, hops 1, 10, 1, 10 us: six consecutive ones are 33.
  Fabric f(gpu_hosts(2, 2, 1));
  Price p = all_reduce(make_communicator(f, first_devices(4), Backend::Nccl),
                       two_transports(kMicrosecond, kMicrosecond * 10), Level::Mid, {4});
  EXPECT_NEAR(static_cast<double>(p.alone.ps), 33e6 + 6, 1);
}

TEST(NcclPrice, SpendsAtThePeakWhatATokenBucketSavedInTheGaps) {
  Cluster cluster = test::star(2, kBytePerPs);
  cluster.link.burst = {100 * kMiB};
  cluster.link.peak = {4 * kBytePerPs.bits_per_s};
  Fabric f(cluster);
  Communicator c = make_communicator(f, {0, 1}, Backend::Nccl);
  Profile p = test::ideal_profile(kMicrosecond);  // saves 1 MB before each of two steps
  auto price = [&](std::int64_t bytes) {
    return static_cast<double>(all_reduce(c, p, Level::Mid, {bytes}).alone.ps);
  };
  EXPECT_NEAR(price(2'000'000), 2 * (1e6 + 0.25e6), 2);
  EXPECT_NEAR(price(6'000'000), 2 * (1e6 + 2e6), 2);
}

TEST(GlooPrice, IsBoundByTheWireWhenSegmentsAreLong) {
  // 4 MiB, 4 ranks: per phase 6 segments of 512 KiB = 3 MiB and two latencies.
  EXPECT_EQ(on_star(4, 4 * kMiB, test::ideal_profile({100}), Backend::Gloo).alone.ps,
            2 * (3 * kMiB + 200));
}

TEST(GlooPrice, IsBoundByTwoSegmentsInFlightWhenLatencyIsLong) {
  // Per phase: three pairs of segments, two gaps of t + 2a - t between them, and 2a, with t =
  // 524,288 ps, a = 1 us.
  EXPECT_NEAR(static_cast<double>(
                  on_star(4, 4 * kMiB, test::ideal_profile(kMicrosecond), Backend::Gloo).alone.ps),
              2 * (2 * (524'288 + 2'000'000) + 2 * 524'288 + 2'000'000), 2);
}

TEST(GlooPrice, SumsInTheFirstPhaseOnly) {
  Profile p = test::ideal_profile({100});
  p.reduction_bytes_per_s = 4e12;  // 131,072 ps a segment, hidden behind the wire but for the last
  Price price = on_star(4, 4 * kMiB, p, Backend::Gloo);
  EXPECT_EQ(price.reduce.ps, 131'072);
  EXPECT_EQ(price.alone.ps, 2 * (3 * kMiB + 200) + 131'072);
}

TEST(GlooPrice, OneWorkerSumsOneSegmentAfterAnother) {
  Profile p = test::ideal_profile({100});
  p.reduction_bytes_per_s = 0.25e12;  // 2,097,152 ps a segment, four times the wire's
  Price price = on_star(4, 4 * kMiB, p, Backend::Gloo);
  // First phase: six sums, a go-ahead, an arrival and the last sum; second phase: the wire.
  EXPECT_NEAR(static_cast<double>(price.alone.ps),
              6 * 2'097'152.0 + 2'097'152 + 200 + 3 * kMiB + 200, 1000);
  p.half_reduction_bytes_per_s = 0.125e12;
  Fabric f(test::star(4, kBytePerPs));
  Communicator c = make_communicator(f, {0, 1, 2, 3}, Backend::Gloo);
  EXPECT_EQ(all_reduce(c, p, Level::Mid, {4 * kMiB}, DType::Float16).reduce.ps,
            2 * price.reduce.ps);
}

TEST(GlooPrice, LongSegmentsTakeMoreOfASharedConnection) {
  Profile p = test::ideal_profile({100});
  double large = on_star(4, 32 * kMiB, p, Backend::Gloo).phases[0].weight;
  double small = on_star(4, 4 * kMiB, p, Backend::Gloo).phases[0].weight;
  EXPECT_DOUBLE_EQ(large, 1);  // segments of 1 MiB and of 512 KiB
  EXPECT_DOUBLE_EQ(small, 0.5);
}

TEST(GlooPrice, OfOneRankIsNothing) {
  EXPECT_EQ(on_star(1, kMiB, test::ideal_profile(kMicrosecond), Backend::Gloo).alone.ps, 0);
}

TEST(Correction, IsLinearBetweenKnotsAndConstantOutside) {
  std::vector<Knot> knots{{1024, 2}, {4096, 1}, {8192, 1.5}};
  EXPECT_EQ(correction({}, 5), 1);
  EXPECT_EQ(correction(knots, 10), 2);
  EXPECT_EQ(correction(knots, 1024), 2);
  EXPECT_DOUBLE_EQ(correction(knots, 2560), 1.5);
  EXPECT_EQ(correction(knots, 4096), 1);
  EXPECT_DOUBLE_EQ(correction(knots, 6144), 1.25);
  EXPECT_EQ(correction(knots, 1e12), 1.5);
}

TEST(Correction, ScalesTheTransferByTheChunk) {
  Profile p = test::ideal_profile({});
  p.transports["wire"].knots = {{125'000, 3}, {250'000, 1}};
  EXPECT_EQ(on_star(8, 1'000'000, p).alone.ps, 3 * 1'750'000);
  EXPECT_EQ(on_star(8, 2'000'000, p).alone.ps, 3'500'000);
  EXPECT_EQ(on_star(4, 1'000'000, p).alone.ps, 1'500'000);  // the same chunk as 2 MB on 8
}

TEST(Broadcast, OfNcclFillsTheChainAndStreams) {
  Fabric f(test::star(8, kBytePerPs));
  Profile p = test::ideal_profile(kMicrosecond);
  auto price = [&](int n, std::int64_t s) {
    return broadcast(make_communicator(f, first_devices(n), Backend::Nccl), p, Level::Mid, {s})
        .alone.ps;
  };
  EXPECT_EQ(price(1, kMiB), 0);
  EXPECT_EQ(price(2, kMiB), 1'000'000 + kMiB);
  EXPECT_EQ(price(8, kMiB), 7 * 1'000'000 + 4 * kMiB);  // two pieces: (2 + 6) / 2
  EXPECT_EQ(price(8, 512 * kKiB), 7 * 1'000'000 + 7 * 512 * kKiB);
}

TEST(Broadcast, OfGlooGoesDownTheTree) {
  Fabric f(test::star(8, kBytePerPs));
  Profile p = test::ideal_profile(kMicrosecond);
  const Communicator c = make_communicator(f, first_devices(8), Backend::Gloo);
  Price price = broadcast(c, p, Level::Mid, {1'000'000});
  EXPECT_EQ(price.algorithm, "tree");
  EXPECT_EQ(price.pattern, c.id(Operation::Broadcast));
  // The root sends three at once, its first child two, that one's first child one; the go-ahead and
  // three arrivals.
  EXPECT_NEAR(static_cast<double>(price.alone.ps), 4 * 1'000'000 + 6 * 1'000'000, 1);
}

TEST(MissingTransport, IsNamed) {
  Fabric f(gpu_hosts(2, 2, 1));
  EXPECT_EQ(missing_transport(f, test::ideal_profile({})), "nvlink");
  EXPECT_EQ(missing_transport(f, two_transports({}, {})), "");
}

// ---- message by message

std::int64_t played(int n, std::int64_t bytes, Backend backend, const Profile& p,
                    bool down_the_tree, const Fabric& f, int root = 0) {
  Communicator c = make_communicator(f, first_devices(n), backend);
  Price price =
      down_the_tree ? broadcast(c, p, Level::Mid, {bytes}) : all_reduce(c, p, Level::Mid, {bytes});
  engine::TaskGraph g;
  std::map<topology::LinkId, engine::ResourceId> resource;
  FlowOfHop flow{[&](int from, int to, int) {
    topology::Route r;
    f.find_route(c.devices[static_cast<std::size_t>(from)], c.devices[static_cast<std::size_t>(to)],
                 r);
    std::vector<engine::Demand> d;
    for (topology::LinkId l : r.links) {
      if (!resource.count(l)) resource[l] = g.add_resource({link_rate(c, p, Level::Mid, l), 0, 0});
      d.push_back({resource[l], 1});
    }
    return g.add_flow(d);
  }};
  std::vector<engine::TaskId> arrive;
  for (int r = 0; r < n; ++r) arrive.push_back(g.add_fixed({}));
  predict::Turns connections;  // Gloo: one a hop
  TakeTurn turn = [&](int from, int to, double work) {
    engine::TaskId due = g.add_fixed({});
    return connections.add(g, connections.place_of_hop(from, to), due,
                           g.add_task({}, work, flow(from, to)));
  };
  if (backend != Backend::Gloo) turn = {};
  auto done =
      add_messages(c, {.graph = g,
                       .profile = p,
                       .price = price,
                       .operation = down_the_tree ? Operation::Broadcast : Operation::AllReduce,
                       .size = {bytes},
                       .root = root,
                       .flow = flow,
                       .arrive = arrive,
                       .turn = turn});
  auto decide = [](void* state, engine::TaskId task, TimePoint,
                   std::vector<engine::TaskId>& release) {
    static_cast<predict::Turns*>(state)->decide(task, release);
  };
  engine::Timeline t = engine::execute(g, {&connections, decide});
  EXPECT_TRUE(t.complete());
  EXPECT_EQ(done.size(), static_cast<std::size_t>(n));
  std::int64_t end = 0;
  for (auto d : done) end = std::max(end, t.end[d].ps);
  return end;
}

TEST(Messages, OfANcclRingTakeTheClosedForm) {
  Profile p = test::ideal_profile(kMicrosecond * 3);
  Fabric f(test::star(8, kBytePerPs));
  for (int n : {1, 2, 3, 8}) {
    std::int64_t bytes = 1'000'000 * n;
    EXPECT_EQ(played(n, bytes, Backend::Nccl, p, false, f), on_star(n, bytes, p).alone.ps) << n;
  }
}

TEST(Messages, OfAGlooRingComeWithinAPercentOfTheClosedForm) {
  Fabric f(test::star(8, kBytePerPs));
  for (int n : {2, 4, 8}) {
    for (std::int64_t a : {100, 1'000'000, 10'000'000}) {
      for (std::int64_t bytes : {4 * kMiB, 64 * kMiB}) {
        Profile p = test::ideal_profile({a});
        auto closed = static_cast<double>(on_star(n, bytes, p, Backend::Gloo).alone.ps);
        EXPECT_NEAR(static_cast<double>(played(n, bytes, Backend::Gloo, p, false, f)), closed,
                    0.01 * closed)
            << n << " ranks, latency " << a << ", " << bytes << " bytes";
      }
    }
  }
}

TEST(Messages, OfBroadcastsTakeTheClosedForm) {
  Profile p = test::ideal_profile(kMicrosecond);
  Fabric f(test::star(8, kBytePerPs));
  for (Backend b : {Backend::Nccl, Backend::Gloo}) {
    auto closed = static_cast<double>(
        broadcast(make_communicator(f, first_devices(8), b), p, Level::Mid, {kMiB}).alone.ps);
    EXPECT_NEAR(static_cast<double>(played(8, kMiB, b, p, true, f)), closed, 0.01 * closed)
        << name_of(b);
  }
}

// On a star every root is like the first one; behind a slow link it is not.
TEST(Broadcast, OfGlooMayComeFromAnyRank) {
  Profile p = test::ideal_profile(kMicrosecond);
  Fabric f(test::star(8, kBytePerPs));
  for (int n : {2, 3, 5, 8})
    for (int root = 1; root < n; ++root)
      EXPECT_EQ(played(n, kMiB, Backend::Gloo, p, true, f, root),
                played(n, kMiB, Backend::Gloo, p, true, f))
          << n << " ranks from " << root;
  Cluster slow = test::star(4, kBytePerPs);
  slow.slow_links.push_back({3, Bandwidth{kBytePerPs.bits_per_s / 10}});
  Fabric g(slow);
  // Of four, rank 3 is a leaf of rank 0's tree; from itself it sends both first messages.
  EXPECT_GT(played(4, kMiB, Backend::Gloo, p, true, g, 3),
            1.5 * static_cast<double>(played(4, kMiB, Backend::Gloo, p, true, g)));
}

// Rounds follow one another: the last one, whose bottleneck is the uplink, counts by itself.
TEST(Messages, OfATreeAcrossRacksTakeTheClosedForm) {
  Cluster cluster = test::star(8, kBytePerPs);
  cluster.pattern = ddpsim::Pattern::Racks;
  cluster.racks = 2;
  cluster.uplink = cluster.link;
  Fabric f(cluster);
  Profile p = test::ideal_profile({});
  auto closed = static_cast<double>(
      broadcast(make_communicator(f, first_devices(8), Backend::Gloo), p, Level::Mid, {kMiB})
          .alone.ps);
  EXPECT_NEAR(static_cast<double>(played(8, kMiB, Backend::Gloo, p, true, f)), closed,
              0.01 * closed);
}

// The transport's own latency, not only the wire's, decides which hop is slowest.
TEST(Tree, TakesTheSlowestHopWithItsSoftwareLatency) {
  Cluster cluster = gpu_hosts(2, 2, 1);
  cluster.intra->latency = kNanosecond;
  Fabric f(cluster);
  Profile p = two_transports(kMicrosecond, kMicrosecond * 10);
  EXPECT_GE(
      broadcast(make_communicator(f, first_devices(4), Backend::Gloo), p, Level::Mid, {4}).alone,
      kMicrosecond * 10);
}

TEST(NcclPrice, LaunchesOnlyWhatItsHopsUse) {
  Fabric f(gpu_hosts(2, 2, 1));
  Profile p = two_transports({}, {});
  p.transports["wire"].launch = kMicrosecond * 10;
  EXPECT_LT(all_reduce(make_communicator(f, {0, 1}, Backend::Nccl), p, Level::Mid, {8}).alone,
            kMicrosecond * 10);
}

// A connection buffers two chunks: rank 0 has three to send before it needs rank 1's data, and may
// send two while rank 1 is late.
TEST(Messages, ALateReceiverHoldsItsSenderAfterTwoChunks) {
  Fabric f(test::star(4, kBytePerPs));
  Profile p = test::ideal_profile({});
  Communicator c = make_communicator(f, first_devices(4), Backend::Nccl);
  engine::TaskGraph g;
  engine::ResourceId wire = g.add_resource({1, 0, 0});
  engine::Demand d{wire, 1};
  engine::FlowId watched = g.add_flow(std::span(&d, 1));
  engine::FlowId other = g.add_flow({}, 1, 1);
  std::vector<engine::TaskId> arrive;
  for (int r = 0; r < 4; ++r) arrive.push_back(g.add_fixed(r == 1 ? kSecond : Duration{}));
  Bytes size{4'000};
  const FlowOfHop flow{[&](int from, int, int) { return from == 0 ? watched : other; }};
  add_messages(c, {.graph = g,
                   .profile = p,
                   .price = all_reduce(c, p, Level::Mid, size),
                   .size = size,
                   .flow = flow,
                   .arrive = arrive});
  auto t = engine::execute(g);
  ASSERT_TRUE(t.complete());
  int early = 0;
  for (engine::TaskId i = 0; i < g.size(); ++i)
    early += g.tasks()[i].flow == watched && t.end[i].ps < kSecond.ps;
  EXPECT_EQ(early, 2);
}

}  // namespace
}  // namespace ddpsim::collective
