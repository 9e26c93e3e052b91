// Every algorithm and operation as step lists, 2 to 64 ranks, powers of two and not: what arrives
// is what the operation says, whatever the order in which messages move; what each rank sends and
// receives is what theory says, to the element; nobody waits for ever.
#include "tests/laws/schedules.h"

#include <algorithm>
#include <numeric>

#include "sim/collective/blocks.h"
#include "sim/nccl/double_tree.h"

namespace ddpsim::test {
namespace {

using collective::chunk_begin;
using collective::Layout;
using collective::make_schedule;
using collective::performs;

template <class F>
void each_case(F f) {
  for (int a = 0; a < kAlgorithms; ++a)
    for (int o = 0; o < kOperations; ++o)
      for (int n = 2; n <= 64; ++n)
        if (performs(static_cast<Algorithm>(a), static_cast<Operation>(o), n))
          f(static_cast<Algorithm>(a), static_cast<Operation>(o), n);
}

std::string text(Algorithm a, Operation o, int n, std::int64_t elements) {
  return std::string(name_of(a)) + " " + name_of(o) + " on " + std::to_string(n) + " ranks, " +
         std::to_string(elements) + " elements";
}

// Groups of a third of the ranks, uneven for most; an order that is not the ranks'.
Layout layout_of(int n, int groups) {
  Layout l;
  l.ranks = n;
  for (int p = 0; p < n; ++p) {
    l.order.push_back((p * 5 + 1) % n);
    l.group.push_back(p * groups / n);
  }
  if (n % 5 == 0) l.order.clear();
  return l;
}

int rank_at(const Layout& l, int p) {
  return l.order.empty() ? p : l.order[static_cast<std::size_t>(p)];
}

std::int64_t value(int rank, std::int64_t i) {
  return (rank + 1) * 100'003 + i * 7;
}

void expect_result(Operation o, const Layout& l, std::int64_t elements, const Buffers& before,
                   const Buffers& after, const std::string& what) {
  int n = l.ranks;
  auto at = [](const Buffers& b, int rank, std::int64_t i) {
    return b[static_cast<std::size_t>(rank)][static_cast<std::size_t>(i)];
  };
  auto sum = [&](std::int64_t i) {
    std::int64_t out = 0;
    for (int r = 0; r < n; ++r) out += at(before, r, i);
    return out;
  };
  for (int p = 0; p < n; ++p) {
    int r = rank_at(l, p);
    std::int64_t from = o == Operation::ReduceScatter ? chunk_begin(elements, n, p) : 0;
    std::int64_t to = o == Operation::ReduceScatter ? chunk_begin(elements, n, p + 1) : elements;
    if (o == Operation::Reduce && p > 0) continue;
    for (std::int64_t i = from; i < to; ++i) {
      std::int64_t expected = 0;
      std::int64_t found = at(after, r, i);
      std::int64_t block = 0;
      while (chunk_begin(elements, n, block + 1) <= i) ++block;
      if (o == Operation::AllGather)
        expected = at(before, rank_at(l, static_cast<int>(block)), i);
      else if (o == Operation::Broadcast)
        expected = at(before, rank_at(l, 0), i);
      else if (o == Operation::SendRecv)
        expected = at(before, rank_at(l, (p + n - 1) % n), i), found = at(after, r, elements + i);
      else if (o == Operation::AllToAll) {
        if (block == p) continue;
        expected = at(before, rank_at(l, static_cast<int>(block)),
                      chunk_begin(elements, n, p) + i - chunk_begin(elements, n, block));
        found = at(after, r, elements + i);
      } else {
        expected = sum(i);
      }
      ASSERT_EQ(found, expected) << what << ", rank " << r << ", element " << i;
    }
  }
}

TEST(Schedules, DoWhatTheOperationSays) {
  each_case([](Algorithm a, Operation o, int n) {
    for (std::int64_t elements : {1, 5, 64, 389}) {
      if (o == Operation::AllToAll) elements = (elements + n - 1) / n * n;  // equal blocks
      if (n > 17 && n != 32 && n != 63 && elements != 389) continue;
      for (int groups : {1, 2, 3}) {
        if (groups > 1 && a != Algorithm::Hierarchical) continue;
        for (std::int64_t chunk : {0, 1, 40}) {
          if (chunk > 0 && a != Algorithm::DoubleBinaryTree && a != Algorithm::Ring) continue;
          if (chunk == 1 && elements > 64) continue;
          Layout l = layout_of(n, std::min(groups, n));
          auto s = make_schedule(a, o, l, elements, {chunk});
          Buffers data(static_cast<std::size_t>(n));
          for (int r = 0; r < n; ++r)
            for (std::int64_t i = 0; i < collective::buffer_elements(o, elements); ++i)
              data[static_cast<std::size_t>(r)].push_back(value(r, i));
          SchedulePlayer player(
              s, data, static_cast<std::uint64_t>(n) * 31 + static_cast<std::uint64_t>(elements));
          Buffers after = player.play();
          ASSERT_EQ(player.problem, "") << text(a, o, n, elements);
          expect_result(o, l, elements, data, after, text(a, o, n, elements));
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  });
}

// What theory says a position sends and receives, of elements that every division below divides.
struct Traffic {
  std::int64_t sent = 0;
  std::int64_t received = 0;
};
Traffic theory(Algorithm a, Operation o, int n, int p, std::int64_t e,
               const std::vector<int>& group) {
  std::int64_t part = e / n * (n - 1);
  int k = collective::power_below(n);
  int rem = n - k;
  bool gives = p < 2 * rem && p % 2 == 0;  // of a fold
  bool takes = p < 2 * rem && p % 2 == 1;
  auto tree = [&](auto parents) {
    std::int64_t up = 0, children = 0;
    for (int t = 0; t < 2; ++t) {
      std::vector<int> list = parents(t);
      up += list[static_cast<std::size_t>(p)] >= 0;
      children += std::count(list.begin(), list.end(), p);
    }
    return Traffic{up * e / 2, children * e / 2};
  };
  switch (o) {
    case Operation::ReduceScatter:
    case Operation::AllGather:
      return {part, part};
    case Operation::AllToAll:
      return {part, part};
    case Operation::SendRecv:
      return {e, e};
    case Operation::Broadcast:
    case Operation::Reduce: {
      Traffic up;  // of a reduce
      if (a == Algorithm::Ring) up = {p > 0 ? e : 0, p + 1 < n ? e : 0};
      if (a == Algorithm::BasicLinear) up = {p > 0 ? e : 0, p > 0 ? 0 : (n - 1) * e};
      if (a == Algorithm::Chain) up = {p > 0 ? e : 0, p + 1 < n ? e : 0};
      if (a == Algorithm::BinaryTree) {  // level by level: 1, 2, 4, ... ranks, the last as far
        int children = 0;
        for (int level = 1; level - 1 < n; level *= 2)
          if (p >= level - 1 && p < 2 * level - 1)
            children = (p + level < n ? 1 : 0) + (p + 2 * level < n ? 1 : 0);
        up = {p > 0 ? e : 0, children * e};
      }
      if (a == Algorithm::Knomial) {  // in base 4: a digit more than p's lowest ones, all zero
        int children = 0;
        for (int digit = 1; digit < n && p % (4 * digit) == 0; digit *= 4)
          for (int i = 1; i < 4; ++i) children += p + i * digit < n;
        up = {p > 0 ? e : 0, children * e};
      }
      if (a == Algorithm::ScatterAllGather) {
        // Down: what its subtree needs comes, half of what it has goes, again and again. Then
        // everything but its own block, in doubling pieces, both ways.
        const std::int64_t block = e / n;
        const int subtree = p == 0 ? n : p & -p;
        return {(subtree - 1) * block + part, (p == 0 ? 0 : subtree * block) + part};
      }
      if (a == Algorithm::BinomialTree) {
        int children = 0;
        for (int d = 1; d < n; d *= 2) children += p < d && p + d < n;
        up = {p > 0 ? e : 0, children * e};
      }
      if (a == Algorithm::DoubleBinaryTree)
        up = tree([&](int t) {
          std::vector<int> parents{-1};
          for (int x : nccl::double_tree_parents(n - 1, t)) parents.push_back(x + 1);
          return parents;
        });
      return o == Operation::Reduce ? up : Traffic{up.received, up.sent};
    }
    default:
      break;
  }
  if (a == Algorithm::DoubleBinaryTree) {
    Traffic up = tree([&](int t) { return nccl::double_tree_parents(n, t); });
    return {up.sent + up.received, up.sent + up.received};
  }
  if (a == Algorithm::BasicLinear) {
    const std::int64_t moved = p > 0 ? e : (n - 1) * e;
    return {moved, moved};
  }
  if (a == Algorithm::NonOverlapping) {
    std::int64_t children = 0;
    for (int d = 1; d < n; d *= 2) children += p < d && p + d < n;
    const std::int64_t moved = (p > 0 ? e : 0) + children * e;
    return {moved, moved};
  }
  if (a == Algorithm::Rabenseifner) {
    if (takes) return {e, e / 2 + e};  // halves away, half in; everything in at the end
    const std::int64_t core = 2 * (e / k * (k - 1));
    return gives ? Traffic{e / 2 + core + e, e + core} : Traffic{core, core};
  }
  if (a == Algorithm::RecursiveDoubling || a == Algorithm::HalvingDoubling) {
    if (gives) return {e, e};
    int rounds = 0;
    while ((1 << rounds) < k) ++rounds;
    std::int64_t core = a == Algorithm::RecursiveDoubling ? rounds * e : 2 * (e / k * (k - 1));
    return {core + (takes ? e : 0), core + (takes ? e : 0)};
  }
  if (a == Algorithm::Hierarchical) {
    std::map<int, std::vector<int>> groups;
    for (int q = 0; q < n; ++q) groups[group[static_cast<std::size_t>(q)]].push_back(q);
    bool even = std::all_of(groups.begin(), groups.end(), [&](const auto& g) {
      return g.second.size() == groups.begin()->second.size();
    });
    if (!even) {
      const auto& mine = groups[group[static_cast<std::size_t>(p)]];
      auto i = static_cast<int>(std::find(mine.begin(), mine.end(), p) - mine.begin());
      auto g = static_cast<int>(mine.size());
      auto count = static_cast<std::int64_t>(groups.size());
      std::int64_t moved = i == 0 ? 2 * (e / count * (count - 1)) : 2 * e / 2;
      std::int64_t children = 0;
      for (int d = 1; d < g; d *= 2) children += i < d && i + d < g;
      return {moved + children * e, moved + children * e};
    }
  }
  return {2 * part, 2 * part};  // ring, bcube, direct, torus, even groups: bandwidth-optimal
}

TEST(Schedules, MoveExactlyTheBytesOfTheory) {
  each_case([](Algorithm a, Operation o, int n) {
    std::int64_t elements = static_cast<std::int64_t>(n) * 64 * 6;
    for (int groups : {1, 2, 3}) {
      if (groups > 1 && a != Algorithm::Hierarchical) continue;
      Layout l = layout_of(n, std::min(groups, n));
      auto s = make_schedule(a, o, l, elements, {100});
      for (int p = 0; p < n; ++p) {
        Traffic found;
        for (const auto& lane : s.ranks[static_cast<std::size_t>(rank_at(l, p))].lanes)
          for (const auto& step : lane) {
            for (const auto& m : step.sends) found.sent += m.count;
            for (const auto& m : step.receives) found.received += m.count;
          }
        Traffic t = theory(a, o, n, p, elements, l.group);
        ASSERT_EQ(found.sent, t.sent)
            << text(a, o, n, elements) << ", position " << p << ", groups " << groups;
        ASSERT_EQ(found.received, t.received)
            << text(a, o, n, elements) << ", position " << p << ", groups " << groups;
      }
    }
  });
}

// The closed form's rounds move what the steps move (of a pipeline: one piece in all lanes
// together).
TEST(Schedules, RoundsMoveWhatTheStepsMove) {
  each_case([](Algorithm a, Operation o, int n) {
    std::int64_t elements = static_cast<std::int64_t>(n) * 64 * 6;
    Layout l = layout_of(n, std::min(2, n));
    l.order.clear();
    std::vector<double> by_steps(static_cast<std::size_t>(n)), by_rounds = by_steps;
    auto s = make_schedule(a, o, l, elements);
    for (std::size_t r = 0; r < s.ranks.size(); ++r)
      for (const auto& lane : s.ranks[r].lanes)
        for (const auto& step : lane)
          for (const auto& m : step.sends) by_steps[r] += static_cast<double>(m.count);
    collective::Rounds rounds = collective::make_rounds(a, o, l);
    auto add = [&](const std::vector<collective::Transfer>& transfers, double times) {
      for (const auto& t : transfers)
        by_rounds[static_cast<std::size_t>(t.from)] +=
            t.share * times * static_cast<double>(elements) / rounds.lanes;
    };
    if (rounds.pipelined)
      add(rounds.streamed, 1);
    else
      for (const auto& round : rounds.rounds) add(round.transfers, round.times);
    for (std::size_t r = 0; r < by_steps.size(); ++r)
      ASSERT_NEAR(by_steps[r], by_rounds[r], 1e-6 * static_cast<double>(elements))
          << text(a, o, n, elements) << ", rank " << r;
  });
}

TEST(Schedules, OfOneRankOrNothingAreEmpty) {
  Layout one;
  one.ranks = 1;
  EXPECT_EQ(make_schedule(Algorithm::Ring, Operation::AllReduce, one, 100).lanes(), 0);
  Layout two;
  two.ranks = 2;
  EXPECT_EQ(make_schedule(Algorithm::Ring, Operation::AllReduce, two, 0).lanes(), 0);
}

TEST(DoubleTree, IsNcclsAndEveryRankIsInsideOnlyOnce) {
  // ncclGetBtree for 14 ranks, from the comment in src/graph/trees.cc: 0 - 8; 8 - 4, 12; 4 - 2, 6;
  // 12 - 10, 13; ...
  std::vector<int> up = nccl::double_tree_parents(14, 0);
  EXPECT_EQ(up, (std::vector<int>{-1, 2, 4, 2, 8, 6, 4, 6, 0, 10, 12, 10, 8, 12}));
  for (int n = 2; n <= 64; ++n) {
    std::vector<int> inside(static_cast<std::size_t>(n));
    for (int tree = 0; tree < 2; ++tree) {
      std::vector<int> parents = nccl::double_tree_parents(n, tree);
      EXPECT_EQ(std::count(parents.begin(), parents.end(), -1), 1);
      for (int p = 0; p < n; ++p) {
        auto children = std::count(parents.begin(), parents.end(), p);
        EXPECT_LE(children, 2);
        inside[static_cast<std::size_t>(p)] += children > 0;
        int depth = 0;
        for (int q = p; q >= 0 && depth <= n; q = parents[static_cast<std::size_t>(q)]) ++depth;
        EXPECT_LE(depth, 8) << n;
      }
    }
    EXPECT_LE(*std::max_element(inside.begin(), inside.end()), n == 2 ? 1 : 2) << n;
    EXPECT_LE(std::count(inside.begin(), inside.end(), 2), n % 2)
        << n << ": the shift of an odd tree leaves at most one rank inside of both";
  }
}

TEST(Bcube, CutsOutTheFactorsOfTwo) {
  EXPECT_EQ(collective::bcube_groups(6), (std::vector<int>{2, 3}));
  EXPECT_EQ(collective::bcube_groups(12), (std::vector<int>{2, 2, 3}));
  EXPECT_EQ(collective::bcube_groups(7), (std::vector<int>{7}));
  EXPECT_EQ(collective::bcube_groups(8), (std::vector<int>{2, 2, 2}));
}

TEST(Torus, IsAsSquareAsItsRanksAllow) {
  EXPECT_EQ(collective::torus_rows(12), 3);
  EXPECT_EQ(collective::torus_rows(16), 4);
  EXPECT_EQ(collective::torus_rows(13), 1);
}

TEST(Names, ParseBack) {
  for (int a = 0; a < kAlgorithms; ++a)
    EXPECT_EQ(parse_algorithm(name_of(static_cast<Algorithm>(a))), static_cast<Algorithm>(a));
  for (int o = 0; o < kOperations; ++o)
    EXPECT_EQ(parse_operation(name_of(static_cast<Operation>(o))), static_cast<Operation>(o));
  EXPECT_FALSE(parse_algorithm("rings"));
}

}  // namespace
}  // namespace ddpsim::test
