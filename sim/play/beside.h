// A job among others on the same links. Its steps need not be alike, so the answer is their mean
// over a window in which every job is past its first steps.
#pragma once

#include <vector>

#include "sim/play/simulate.h"

namespace ddpsim::predict {

// What a step beside other jobs is.
struct Beside {
  int jobs = 0;   // others
  int steps = 0;  // counted
  Duration mean;
  Duration shortest;
  Duration longest;
  Duration last;  // whose spans the simulation has
  double periods =
      0;  // steps that the other job with the longest ones makes meanwhile; 0 = not complete
  bool complete = false;  // every other job runs all the time, and makes at least two steps; false:
                          // too many tasks to simulate
};

struct PlayedBeside {
  Simulation simulation;
  std::size_t from = 0;  // the steps after this one are counted
  Beside told;
};

// `steady_steps` of the jobs is found here; all play their first steps, whatever the options say.
// REQUIRES: as simulate(); others not empty.
PlayedBeside play_beside(const NeighbourJob& own, const Profile& profile,
                         const SimulationOptions& options, std::vector<NeighbourJob> others);

}  // namespace ddpsim::predict
