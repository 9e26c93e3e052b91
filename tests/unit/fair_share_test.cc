// Max-min fair sharing: cases solved by hand, and random ones held to an independent solver and to
// the definition.
#include "sim/engine/fair_share.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace ddpsim::engine {
namespace {

struct Flow {
  std::vector<ShareDemand> demands;
  double weight = 1;
  double max_rate = 0;
  double count = 1;
};

std::vector<double> solve(const std::vector<Flow>& flows, const std::vector<double>& capacity) {
  std::vector<ShareFlow> f;
  std::vector<ShareDemand> d;
  for (const Flow& flow : flows) {
    auto begin = static_cast<std::uint32_t>(d.size());
    d.insert(d.end(), flow.demands.begin(), flow.demands.end());
    f.push_back(
        {begin, static_cast<std::uint32_t>(d.size()), flow.weight, flow.max_rate, flow.count});
  }
  std::vector<double> rate(flows.size(), -1);
  ShareScratch scratch;
  fair_share(f, d, capacity, rate, scratch);
  return rate;
}

Flow on(std::vector<ShareDemand> demands, double weight = 1, double max_rate = 0,
        double count = 1) {
  return {std::move(demands), weight, max_rate, count};
}

void expect_rates(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], want[i], 1e-12 * (1 + want[i])) << "flow " << i;
}

TEST(FairShare, SplitsOneLinkEqually) {
  expect_rates(solve({on({{0, 1}})}, {12}), {12});
  expect_rates(solve({on({{0, 1}}), on({{0, 1}}), on({{0, 1}})}, {12}), {4, 4, 4});
}

TEST(FairShare, SplitsByWeight) {
  expect_rates(solve({on({{0, 1}}, 1), on({{0, 1}}, 3)}, {12}), {3, 9});
}

TEST(FairShare, GivesWhatALimitedFlowLeavesToTheOthers) {
  expect_rates(solve({on({{0, 1}}, 1, 2), on({{0, 1}}), on({{0, 1}})}, {12}), {2, 5, 5});
  expect_rates(solve({on({{0, 1}}, 1, 2), on({{0, 1}}, 1, 3)}, {12}), {2, 3});
  expect_rates(solve({on({{0, 1}}, 1, 100), on({{0, 1}})}, {12}), {6, 6});
}

TEST(FairShare, LimitsAFlowWithoutResourcesByItselfOnly) {
  expect_rates(solve({on({}, 1, 7), on({{0, 1}})}, {3}), {7, 3});
}

TEST(FairShare, SolvesTheParkingLot) {
  // One flow crosses three links, three more cross one each.
  auto rates =
      solve({on({{0, 1}, {1, 1}, {2, 1}}), on({{0, 1}}), on({{1, 1}}), on({{2, 1}})}, {10, 6, 12});
  expect_rates(rates, {3, 7, 3, 9});
}

TEST(FairShare, LeavesToOthersWhatAFlowLimitedElsewhereCannotUse) {
  // Link 0 (10): A and B; link 1 (2): A alone.
  expect_rates(solve({on({{0, 1}, {1, 1}}), on({{0, 1}})}, {10, 2}), {2, 8});
}

TEST(FairShare, CountsAFlowThatCrossesALinkFourTimesAsFourConnections) {
  // 5 connections share 10: each gets 2, the crossing flow moves 2 units and uses 8.
  expect_rates(solve({on({{0, 4}}), on({{0, 1}})}, {10}), {2, 2});
}

TEST(FairShare, CountsIdenticalFlows) {
  expect_rates(solve({on({{0, 1}}, 1, 0, 3), on({{0, 1}})}, {12}), {3, 3});
  expect_rates(solve({on({{0, 1}}, 2, 0, 2), on({{0, 1}}, 1, 0, 4)}, {16}), {4, 2});
}

TEST(FairShare, GivesNothingOnALinkWithoutCapacity) {
  expect_rates(solve({on({{0, 1}, {1, 1}}), on({{1, 1}})}, {0, 8}), {0, 8});
}

TEST(FairShare, AcceptsNoFlowsAtAll) {
  expect_rates(solve({}, {1, 2}), {});
}

// ---- random instances

struct Generator {
  std::uint64_t state;
  std::uint32_t below(std::uint32_t n) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<std::uint32_t>(state >> 33) % n;
  }
};

struct Instance {
  std::vector<Flow> flows;
  std::vector<double> capacity;
};

Instance random_instance(std::uint64_t seed) {
  Generator g{seed * 7919 + 1};
  Instance out;
  std::uint32_t resources = 1 + g.below(6);
  for (std::uint32_t r = 0; r < resources; ++r)
    out.capacity.push_back(g.below(12) == 0 ? 0 : 0.5 * (1 + g.below(40)));
  std::uint32_t flows = 1 + g.below(8);
  for (std::uint32_t i = 0; i < flows; ++i) {
    Flow f;
    for (std::uint32_t r = 0; r < resources; ++r)
      if (g.below(2) == 0) f.demands.push_back({r, 0.25 * (1 + g.below(8))});
    f.weight = 1 + g.below(4);
    f.count = 1 + g.below(3);
    if (g.below(3) == 0 || f.demands.empty()) f.max_rate = 0.5 * (1 + g.below(10));
    out.flows.push_back(f);
  }
  return out;
}

// Independent: finds by bisection the largest common level that is feasible with the flows fixed so
// far, then fixes those that cannot rise.
std::vector<double> naive(const Instance& in) {
  std::size_t n = in.flows.size();
  std::vector<double> rate(n, 0);
  std::vector<bool> fixed(n, false);
  auto usage = [&](const std::vector<double>& x, std::size_t r) {
    double total = 0;
    for (std::size_t i = 0; i < n; ++i)
      for (const ShareDemand& d : in.flows[i].demands)
        if (d.resource == r) total += in.flows[i].count * d.per_unit * x[i];
    return total;
  };
  auto at_level = [&](double level) {
    std::vector<double> x = rate;
    for (std::size_t i = 0; i < n; ++i) {
      if (fixed[i]) continue;
      x[i] = in.flows[i].weight * level;
      if (in.flows[i].max_rate > 0) x[i] = std::min(x[i], in.flows[i].max_rate);
    }
    return x;
  };
  for (std::size_t round = 0; round < n + in.capacity.size(); ++round) {
    double low = 0;
    double high = 1e4;
    for (int k = 0; k < 200; ++k) {
      double mid = (low + high) / 2;
      auto x = at_level(mid);
      bool fits = true;
      for (std::size_t r = 0; r < in.capacity.size(); ++r)
        fits = fits && usage(x, r) <= in.capacity[r] + 1e-12;
      (fits ? low : high) = mid;
    }
    auto x = at_level(low);
    for (std::size_t i = 0; i < n; ++i) {
      if (fixed[i]) continue;
      bool stuck = in.flows[i].max_rate > 0 && x[i] >= in.flows[i].max_rate;
      for (const ShareDemand& d : in.flows[i].demands)
        stuck = stuck || usage(x, d.resource) >= in.capacity[d.resource] - 1e-9;
      if (stuck) fixed[i] = true, rate[i] = x[i];
    }
  }
  return rate;
}

TEST(FairShare, AgreesWithAnIndependentSolverOnRandomInstances) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Instance in = random_instance(seed);
    auto got = solve(in.flows, in.capacity);
    auto want = naive(in);
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], want[i], 1e-6) << "seed " << seed << ", flow " << i;
  }
}

TEST(FairShare, HoldsTheMaxMinCertificateOnRandomInstances) {
  for (std::uint64_t seed = 1000; seed < 3000; ++seed) {
    Instance in = random_instance(seed);
    auto x = solve(in.flows, in.capacity);
    std::vector<double> used(in.capacity.size(), 0);
    std::vector<double> fastest(in.capacity.size(), 0);  // per unit of weight
    for (std::size_t i = 0; i < x.size(); ++i) {
      for (const ShareDemand& d : in.flows[i].demands) {
        used[d.resource] += in.flows[i].count * d.per_unit * x[i];
        fastest[d.resource] = std::max(fastest[d.resource], x[i] / in.flows[i].weight);
      }
    }
    for (std::size_t r = 0; r < used.size(); ++r)
      ASSERT_LE(used[r], in.capacity[r] * (1 + 1e-12) + 1e-12) << "seed " << seed;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const Flow& f = in.flows[i];
      bool justified = f.max_rate > 0 && x[i] >= f.max_rate * (1 - 1e-12);
      for (const ShareDemand& d : f.demands) {
        bool full = used[d.resource] >= in.capacity[d.resource] * (1 - 1e-9) - 1e-12;
        justified =
            justified || (full && x[i] / f.weight >= fastest[d.resource] * (1 - 1e-9) - 1e-12);
      }
      ASSERT_TRUE(justified) << "seed " << seed << ", flow " << i << " at " << x[i];
      if (f.max_rate > 0) {
        ASSERT_LE(x[i], f.max_rate * (1 + 1e-12));
      }
    }
  }
}

}  // namespace
}  // namespace ddpsim::engine
