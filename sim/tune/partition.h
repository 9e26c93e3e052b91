// The best partition of the gradients into buckets that are contiguous in the order of launch:
// exact, under the price model.
#pragma once

#include <functional>
#include <vector>

#include "sim/units/units.h"

namespace ddpsim::predict {

struct PartitionProblem {
  std::vector<Duration> ready;  // of each gradient, in launch order, non-decreasing: its copy into
                                // the bucket has ended
  std::vector<std::int64_t> bytes;  // on the wire
  std::vector<Duration> after;      // what is done with it after its bucket's reduction (copy out)
};

// One collective after another: end(b) = max(ready of its last gradient, end(b - 1)) + price(bytes
// of b).
struct Partition {
  std::vector<std::size_t> ends;  // of each bucket, index of its last gradient + 1
  Duration reduced;               // end of the last bucket
  Duration end;                   // and of what is done with the last bucket's gradients
};

// Of how many gradients these are asked: their time grows with the square, and prices of as many
// sizes are made.
inline constexpr std::size_t kMostGradients = 1'000;

using BucketPrice = std::function<Duration(std::int64_t)>;

// The price of every bucket that neighbours of a list make, asked once for each size: 4 n^2 bytes
// of memory.
class BucketPrices {
 public:
  BucketPrices(const std::vector<std::int64_t>& bytes, const BucketPrice& price);
  // Of the gradients from `from` to before `to`. REQUIRES: from < to <= their number.
  Duration operator()(std::size_t from, std::size_t to) const {
    return of_[to * (to - 1) / 2 + from];
  }

 private:
  std::vector<Duration> of_;  // one bucket's end after another
};

// Of these, `prices` are of the problem's `bytes`.
// The least `end`; of equal ones the one with fewest buckets. O(n^2).
// REQUIRES: at least one gradient, lists of one length.
Partition best_partition(const PartitionProblem& problem, const BucketPrices& prices);

// The least `end` with 1, 2, ... `most` buckets each: what a bucket costs beside its price is not
// in the model, so that fewer may be better. O(most n^2).
std::vector<Partition> best_partitions(const PartitionProblem& problem, const BucketPrices& prices,
                                       std::size_t most);

// `end` of a given partition. REQUIRES: ends ascending, the last = number of gradients.
Partition play_partition(const PartitionProblem& problem, const BucketPrices& prices,
                         std::vector<std::size_t> ends);

// The least sum of prices of any partition, whatever is ready when: what the collectives take at
// least. Of more than kMostGradients nothing is known: 0.
Duration least_total(const std::vector<std::int64_t>& bytes, const BucketPrice& price);

}  // namespace ddpsim::predict
