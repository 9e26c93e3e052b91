// How often to save: in closed form, and by playing.
#pragma once

#include <optional>

#include "sim/goodput/play.h"

namespace ddpsim::goodput {

// Seconds of work between two checkpoints that each cost `stall` seconds, of a job that fails every
// `mtbf` seconds: sqrt(2 stall mtbf). J. W. Young, CACM 17(9), 1974.
double young(double stall, double mtbf);
// The same to a higher order: J. T. Daly, Future Generation Computer Systems 22(3), 2006, eq. 37.
double daly(double stall, double mtbf);

// Of the job as it begins: seconds between failures of any of its hosts; 0 = none is drawn.
double mtbf_of(const Job& job);
// Expected goodput where every failure is drawn, rolls all back, and finds the world whole again:
// exact for an endless job (docs/model.md 6.3). None: it is not such a job (torchft, given
// failures, none at all). Whether hosts run out only playing shows.
std::optional<double> expected_goodput(const Job& job);

struct Intervals {
  double mtbf_s = 0;
  double young_s = 0;
  double daly_s = 0;
  std::optional<std::int64_t> closed_steps;  // the best of expected_goodput()
  std::int64_t steps = 1;                    // the best of the played ones
  // Steps that cost at most 1 % of the goodput more than the best of the played ones.
  std::int64_t flat_from = 1;
  std::int64_t flat_to = 1;
};
// REQUIRES: as play_many(); failures are drawn. `courses`: that each interval is played. The same
// failures strike all; those at given times strike none, since who saves does not know of them.
Intervals best_intervals(const Job& job, std::uint64_t seed, int courses);

}  // namespace ddpsim::goodput
