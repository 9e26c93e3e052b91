// E(j) = min over i < j of max(ready(j), E(i)) + price(bytes(i..j)): E(j) grows with E(i), so that
// the least E of each prefix is all one needs to know. The last bucket adds what is done with its
// gradients, which depends on where it begins; it is the last choice, so that the minimum stays
// exact.
#include "sim/tune/partition.h"

#include <algorithm>
#include <unordered_map>

namespace ddpsim::predict {
namespace {

struct Best {
  Duration end;
  std::size_t buckets = 0;
  std::size_t from = 0;
};
bool better(Duration end, std::size_t buckets, const Best& than) {
  return end < than.end || (end == than.end && buckets < than.buckets);
}

}  // namespace

BucketPrices::BucketPrices(const std::vector<std::int64_t>& bytes, const BucketPrice& price) {
  of_.reserve(bytes.size() * (bytes.size() + 1) / 2);
  std::unordered_map<std::int64_t, Duration> known;  // looked up, never walked
  std::vector<std::int64_t> from;                    // bytes from each gradient on
  for (std::int64_t own : bytes) {
    from.push_back(0);
    for (std::int64_t& sum : from) {
      sum += own;
      auto [it, fresh] = known.try_emplace(sum);
      if (fresh) it->second = price(sum);
      of_.push_back(it->second);
    }
  }
}

Partition best_partition(const PartitionProblem& q, const BucketPrices& prices) {
  std::size_t n = q.bytes.size();
  std::vector<Best> best(n + 1, Best{{kForever}, 0, 0});
  best[0] = {};
  std::vector<Duration> after(n + 1);  // of gradients i..n
  for (std::size_t i = n; i-- > 0;) after[i] = after[i + 1] + q.after[i];
  for (std::size_t j = 1; j <= n; ++j)
    for (std::size_t i = 0; i < j; ++i) {
      Duration end =
          std::max(q.ready[j - 1], best[i].end) + prices(i, j) + (j == n ? after[i] : Duration{});
      if (better(end, best[i].buckets + 1, best[j])) best[j] = {end, best[i].buckets + 1, i};
    }
  std::vector<std::size_t> ends;
  for (std::size_t j = n; j > 0; j = best[j].from) ends.push_back(j);
  std::reverse(ends.begin(), ends.end());
  return play_partition(q, prices, std::move(ends));
}

std::vector<Partition> best_partitions(const PartitionProblem& q, const BucketPrices& prices,
                                       std::size_t most) {
  std::size_t n = q.bytes.size();
  most = std::min(most, n);
  std::vector<Duration> after(n + 1);
  for (std::size_t i = n; i-- > 0;) after[i] = after[i + 1] + q.after[i];
  std::vector<Partition> out;
  std::vector<std::vector<std::size_t>> from(most + 1, std::vector<std::size_t>(n + 1));
  std::vector<Duration> before(n + 1, Duration{-1});  // with one bucket less; -1: cannot be
  before[0] = {};
  for (std::size_t k = 1; k <= most; ++k) {
    std::vector<Duration> now(n + 1, Duration{-1});
    for (std::size_t j = k; j <= n; ++j)
      for (std::size_t i = k - 1; i < j; ++i) {
        if (before[i].ps < 0) continue;
        Duration end =
            std::max(q.ready[j - 1], before[i]) + prices(i, j) + (j == n ? after[i] : Duration{});
        if (now[j].ps < 0 || end < now[j]) now[j] = end, from[k][j] = i;
      }
    std::vector<std::size_t> ends;
    for (std::size_t b = k, j = n; b > 0; j = from[b][j], --b) ends.push_back(j);
    std::reverse(ends.begin(), ends.end());
    out.push_back(play_partition(q, prices, std::move(ends)));
    before = std::move(now);
  }
  return out;
}

Partition play_partition(const PartitionProblem& q, const BucketPrices& prices,
                         std::vector<std::size_t> ends) {
  Partition out;
  std::size_t from = 0;
  for (std::size_t end : ends) {
    out.reduced = std::max(q.ready[end - 1], out.reduced) + prices(from, end);
    out.end = out.reduced;
    for (std::size_t i = from; i < end; ++i) out.end += q.after[i];
    from = end;
  }
  out.ends = std::move(ends);
  return out;
}

Duration least_total(const std::vector<std::int64_t>& bytes, const BucketPrice& price) {
  if (bytes.size() > kMostGradients) return {};
  PartitionProblem q;
  q.bytes = bytes;
  q.ready.assign(bytes.size(), {});
  q.after.assign(bytes.size(), {});
  return bytes.empty() ? Duration{} : best_partition(q, {bytes, price}).reduced;
}

}  // namespace ddpsim::predict
