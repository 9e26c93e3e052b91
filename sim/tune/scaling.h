// Time and cost of an epoch by number of ranks, each rank with the batch that it has now.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/model/sampler.h"
#include "sim/predict/predict.h"

namespace ddpsim::predict {

struct RankCount {
  int ranks = 1;
  Duration step;
  double samples_per_s = 0;
  double efficiency = 1;  // samples/s of a rank, over what the fewest ranks of the list give
  Epoch epoch;
  double epoch_s = 0;
  double epoch_cost = 0;
};
struct Scaling {
  double price_per_hour = 0;  // of one device
  std::int64_t epoch_samples = 0;
  double deadline_s = 0;  // 0 = none
  std::vector<RankCount> counts;
  std::optional<std::size_t> cheapest;  // of those that keep the deadline; of equal cost the
                                        // fastest; without a price the fewest
};

// 1, 2, 4, ... ranks and all of them: the first ones of the question's order. `plan` in place of
// the question's.
Scaling scaling(const Question& q, const Plan& plan, double price_per_hour,
                std::int64_t epoch_samples, double deadline_s, const Options& options = {});

}  // namespace ddpsim::predict
