// What a message of a collective costs beside its bytes, on one occasion and over several.
#pragma once

#include <string>
#include <vector>

#include "sim/model/profile.h"
#include "sim/predict/predict.h"

namespace ddpsim::calib {

// One all-reduce of a sweep.
struct Point {
  const topology::Fabric* fabric = nullptr;
  Backend backend = Backend::Tcp;
  int ranks = 0;
  std::int64_t bytes = 0;
  double ps = 0;  // median
};

// latency and message_core from the smallest all-reduce of each fabric and rank count. One that no
// point tells stays as it is. REQUIRES: points are of one occasion, 2 or more ranks each.
void fit_message_cost(const std::vector<Point>& points, TransportSection& t);

struct OtherOccasion {
  std::string name;
  std::vector<Point> points;
};
// t.occasions: around the cost that `t` has by now, from the least to the greatest that any single
// all-reduce of any occasion told. To be compared, an occasion must have been measured with the
// sizes and rank counts that `own` was fitted from; otherwise it is left out. With none there is no
// range. Returns what was found, in sentences for people. REQUIRES: fit_message_cost(own, t).
std::vector<std::string> fit_occasions(const std::vector<Point>& own, const std::string& own_name,
                                       const std::vector<OtherOccasion>& others,
                                       TransportSection& t);

}  // namespace ddpsim::calib
