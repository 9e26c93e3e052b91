// The dynamic programme against all partitions of small instances.
#include "sim/tune/partition.h"

#include <bit>
#include <map>

#include <gtest/gtest.h>

#include "tests/laws/contended.h"

namespace ddpsim::test {
namespace {

struct Instance {
  predict::PartitionProblem problem;
  std::map<std::int64_t, Duration> prices;  // by bytes: an affine price, stepped, or any at all
};

Instance random_instance(std::uint64_t seed) {
  Random rng(seed);
  Instance out;
  int n = 1 + rng.below(11);
  Duration at;
  for (int i = 0; i < n; ++i) {
    at += Duration{rng.below(4) ? rng.below(1000) : 0};
    out.problem.ready.push_back(at);
    out.problem.bytes.push_back(1 + rng.below(rng.below(3) ? 100 : 3));
    out.problem.after.push_back(Duration{rng.below(50)});
  }
  int kind = rng.below(4);
  std::int64_t fixed = rng.below(500);
  std::int64_t rate = 1 + rng.below(20);
  for (std::size_t i = 0; i < out.problem.bytes.size(); ++i) {
    std::int64_t bytes = 0;
    for (std::size_t j = i; j < out.problem.bytes.size(); ++j) {
      bytes += out.problem.bytes[j];
      std::int64_t affine = fixed + bytes * rate;
      std::int64_t price = kind == 0   ? affine
                           : kind == 1 ? fixed + (bytes / 64) * 64 * rate
                           : kind == 2 ? affine - (bytes > 128 ? affine / 2 : 0)
                                       : rng.below(3000);
      out.prices.try_emplace(bytes, Duration{price});
    }
  }
  return out;
}

// In its own words: buckets one after another, then what is done with the last one's gradients.
Duration end_of(const Instance& in, std::uint32_t cuts) {
  const predict::PartitionProblem& q = in.problem;
  Duration lane;
  Duration after;
  std::int64_t open = 0;
  for (std::size_t i = 0; i < q.bytes.size(); ++i) {
    if (open == 0) after = {};
    open += q.bytes[i];
    after += q.after[i];
    bool cut = i + 1 == q.bytes.size() || (cuts >> i & 1);
    if (!cut) continue;
    lane = std::max(lane, q.ready[i]) + in.prices.at(open);
    open = 0;
  }
  return lane + after;
}

TEST(Partition, IsNeverWorseThanAnyOtherOn200RandomInstances) {
  int several = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Instance in = random_instance(seed);
    auto price = [&](std::int64_t bytes) { return in.prices.at(bytes); };
    predict::Partition found = predict::best_partition(in.problem, {in.problem.bytes, price});
    Duration least{kForever};
    std::size_t n = in.problem.bytes.size();
    std::vector<Duration> by_count(n, Duration{kForever});
    for (std::uint32_t cuts = 0; cuts < 1u << (n - 1); ++cuts) {
      Duration end = end_of(in, cuts);
      least = std::min(least, end);
      Duration& of_count = by_count[static_cast<std::size_t>(std::popcount(cuts))];
      of_count = std::min(of_count, end);
    }
    EXPECT_EQ(found.end.ps, least.ps) << "seed " << seed;
    std::vector<predict::Partition> each =
        predict::best_partitions(in.problem, {in.problem.bytes, price}, n);
    ASSERT_EQ(each.size(), n);
    for (std::size_t k = 0; k < n; ++k) {
      EXPECT_EQ(each[k].end.ps, by_count[k].ps) << "seed " << seed << ", " << k + 1 << " buckets";
      EXPECT_EQ(each[k].ends.size(), k + 1);
    }
    several += found.ends.size() > 1 && found.ends.size() < n;
  }
  EXPECT_GT(several, 50);  // instances whose answer is neither one bucket nor one for each gradient
}

}  // namespace
}  // namespace ddpsim::test
