// Every algorithm's closed form against its step lists message by message, alone on a star of hosts
// with cores of their own, 2 to 64 ranks, powers of two and not.
#include <cmath>
#include <map>

#include <gtest/gtest.h>

#include "sim/collective/messages.h"
#include "sim/engine/execute.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

using collective::Communicator;
using collective::Price;

struct Both {
  double closed = 0;  // picoseconds
  double message = 0;
};

Both ask(Algorithm a, Operation o, const Cluster& cluster, std::vector<DeviceId> devices,
         const Profile& profile, std::int64_t bytes, Backend backend = Backend::Tcp) {
  topology::Fabric fabric(cluster);
  Communicator c = collective::make_communicator(fabric, std::move(devices), backend);
  const bool half = o == Operation::ReduceScatter || o == Operation::AllGather;
  const bool ring =
      a == Algorithm::Ring && (o == Operation::AllReduce || (half && backend == Backend::Tcp));
  Price price = ring ? collective::price(c, profile, Level::Mid, o, {bytes})
                     : schedule_price(c, c.add(make_pattern(c, a, o)),
                                      {.profile = profile, .operation = o, .size = {bytes}});
  engine::TaskGraph g;
  std::map<topology::LinkId, engine::ResourceId> resources;
  std::map<std::pair<int, int>, engine::FlowId> flows;
  collective::FlowOfHop flow{[&](int from, int to, int) {
    auto [it, fresh] = flows.try_emplace({from, to}, 0);
    if (!fresh) return it->second;
    topology::Route route;
    fabric.find_route(c.devices[static_cast<std::size_t>(from)],
                      c.devices[static_cast<std::size_t>(to)], route);
    std::vector<engine::Demand> d;
    for (auto l : route.links) {
      auto [r, made] = resources.try_emplace(l, 0);
      if (made) r->second = g.add_resource({link_rate(c, profile, Level::Mid, l), 0, 0});
      d.push_back({r->second, 1});
    }
    return it->second = g.add_flow(d);
  }};
  std::vector<engine::TaskId> arrive;
  for (int r = 0; r < c.ranks(); ++r) arrive.push_back(g.add_fixed({}));
  auto done = add_step_list(c, {.graph = g,
                                .profile = profile,
                                .price = price,
                                .operation = o,
                                .size = {bytes},
                                .flow = flow,
                                .arrive = arrive});
  engine::Timeline t = engine::execute(g);
  EXPECT_TRUE(t.complete()) << name_of(a) << " " << name_of(o) << " on " << c.ranks();
  Both out;
  out.closed = static_cast<double>(price.alone.ps);
  for (auto d : done) out.message = std::max(out.message, static_cast<double>(t.end[d].ps));
  return out;
}

const std::vector<int> kRanks{2, 3, 4, 5, 6, 7, 8, 11, 12, 16, 23, 32, 48, 64};

// 1 %; the double binary tree 2 %: its lanes hide some of one another's sums.
double tolerance(Algorithm a) {
  return a == Algorithm::DoubleBinaryTree ? 0.02 : 0.01;
}

TEST(AlgorithmPrices, AreWhatTheirMessagesTakeAlone) {
  Profile p = ideal_profile(kMicrosecond * 50, DeviceKind::Cpu);
  for (int a = 0; a < kAlgorithms; ++a)
    for (int o = 0; o < kOperations; ++o)
      for (int n : kRanks) {
        auto algorithm = static_cast<Algorithm>(a);
        auto operation = static_cast<Operation>(o);
        if (!collective::performs(algorithm, operation, n)) continue;
        for (double reduction : {0.0, 4e9})
          for (std::int64_t bytes : {std::int64_t{40'320}, std::int64_t{40'320'000}}) {
            p.reduction_bytes_per_s = reduction;
            Both b = ask(algorithm, operation, star(n, Bandwidth{1'000'000'000}), first_devices(n),
                         p, bytes);
            EXPECT_NEAR(b.closed / b.message, 1, tolerance(algorithm))
                << name_of(algorithm) << " " << name_of(operation) << " on " << n << " ranks, "
                << bytes << " bytes, sums at " << reduction;
          }
      }
}

// Between one piece and many, later pieces on their way up meet the first on its way down, which no
// term has.
TEST(AlgorithmPrices, OfTreesOfFewPiecesAreRough) {
  Profile p = ideal_profile(kMicrosecond * 50, DeviceKind::Cpu);
  for (auto o : {Operation::AllReduce, Operation::Broadcast, Operation::Reduce})
    for (int n : kRanks)
      for (std::int64_t bytes : {300'000, 700'000, 2'000'000, 8'000'000}) {
        Both b = ask(Algorithm::DoubleBinaryTree, o, star(n, Bandwidth{1'000'000'000}),
                     first_devices(n), p, bytes);
        EXPECT_GT(b.closed / b.message, bytes < 1'000'000 ? 0.80 : 0.91)
            << name_of(o) << " on " << n << " ranks, " << bytes << " bytes";
        EXPECT_LT(b.closed / b.message, 1.11)
            << name_of(o) << " on " << n << " ranks, " << bytes << " bytes";
      }
}

// Racks of four with an uplink as wide as four links: nothing contends. Even groups, uneven ones
// (11 hosts in three racks of four), a rank alone in its rack.
TEST(AlgorithmPrices, OfTwoLevelsInRacks) {
  Profile p = ideal_profile(kMicrosecond * 50, DeviceKind::Cpu);
  p.reduction_bytes_per_s = 4e9;
  for (int n : {4, 5, 8, 9, 11, 12, 16}) {
    Cluster c = star(n, Bandwidth{1'000'000'000});
    c.pattern = Pattern::Racks;
    c.racks = (n + 3) / 4;
    c.uplink = c.link;
    c.uplink.bandwidth = {4'000'000'000};
    for (std::int64_t bytes : {std::int64_t{40'320}, std::int64_t{40'320'000}}) {
      Both b = ask(Algorithm::Hierarchical, Operation::AllReduce, c, first_devices(n), p, bytes);
      EXPECT_NEAR(b.closed / b.message, 1, 0.01) << n << " hosts, " << bytes << " bytes";
    }
  }
}

// Bcube as Gloo plays it: a go-ahead before every payload.
TEST(AlgorithmPrices, OfGloosBcube) {
  Profile p = ideal_profile(kMicrosecond * 50, DeviceKind::Cpu);
  p.reduction_bytes_per_s = 4e9;
  for (int n : kRanks)
    for (std::int64_t bytes : {std::int64_t{40'320}, std::int64_t{40'320'000}}) {
      Both b = ask(Algorithm::Bcube, Operation::AllReduce, star(n, Bandwidth{1'000'000'000}),
                   first_devices(n), p, bytes, Backend::Gloo);
      EXPECT_NEAR(b.closed / b.message, 1, 0.01) << n << " ranks, " << bytes << " bytes";
    }
}

// What a receiver is not ready for waits with its sender, if it does not fit in the connection's
// buffer.
TEST(AlgorithmPrices, AFoldIsNotSharedWithTheRoundAfterIt) {
  Profile p = ideal_profile(kMicrosecond * 50, DeviceKind::Cpu);
  Both b = ask(Algorithm::RecursiveDoubling, Operation::AllReduce,
               star(3, Bandwidth{1'000'000'000}), first_devices(3), p, 12'500'000);
  EXPECT_NEAR(b.message, 3 * (50e6 + 100e9), 1e6);
  // In its buffer the message of rank 2 goes at once, beside the fold's, which it slows down.
  p.transports.at("wire").send_buffer = {12'500'000};
  b = ask(Algorithm::RecursiveDoubling, Operation::AllReduce, star(3, Bandwidth{1'000'000'000}),
          first_devices(3), p, 12'500'000);
  EXPECT_NEAR(b.message, 2 * 50e6 + 50e6 + 4 * 100e9, 1e9);
}

}  // namespace
}  // namespace ddpsim::test
