// calibrate: what a Cluster's links and collectives cost on hosts of this machine -> a Run of
// samples (evidence: collective).
#pragma once

#include <functional>
#include <vector>

#include "sim/model/run.h"
#include "sim/topology/fabric.h"

namespace ddpsim::calib {

struct CalibrateOptions {
  std::vector<int> rank_counts;                // empty: 2, 4, 8, ... up to the hosts
  std::vector<std::int64_t> collective_bytes;  // empty: 1 KiB to 16 MiB, by factors of 4
  int repetitions = 7;
  bool loopback = false;
  double timeout_s = 600;
  // Between two points, in the process of rank 0: how many have been measured, of how many.
  std::function<void(std::size_t, std::size_t)> progress;
};

// Samples, durations raw:
//   ping       {from, to}                      half a round trip of one byte
//   stream     {from, to, bytes}               one message after 50 ms of silence, until its
//              receiver has it
//   reduce     {bytes, together, element_bytes}  one process sums `bytes` of float32 (float16 for 2
//              bytes) while `together` processes do; the slowest
//   all_reduce {ranks, bytes}                  ring of backend tcp, back to back: end of one minus
//     end of the one before, on the last rank
//   broadcast  {ranks, bytes}                  binomial tree, likewise
//   all_reduce_cpu {ranks, bytes}              core time of the whole machine for one all-reduce,
//     mean
// Throws std::runtime_error as execute() does. Interrupted (calib/interrupt.h): the points that
// were complete, or NothingMeasured.
Run calibrate(const topology::Fabric& fabric, const CalibrateOptions& options);

}  // namespace ddpsim::calib
