// One collective alone, on hosts of this machine: what an algorithm costs, without computation or
// another collective beside it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "calib/stage.h"
#include "sim/collective/algorithm.h"
#include "sim/model/run.h"
#include "sim/topology/fabric.h"

namespace ddpsim::calib {

struct CollectiveOptions {
  std::vector<std::int64_t> bytes;  // sizes, each at least 4; elements are float32
  int warmups = 2;
  int repetitions = 7;
  bool loopback = false;
  double timeout_s = 600;
};

// All-reduces of `algorithm` on the ranks that `devices` names, as backend tcp plays them. Samples,
// durations raw:
//   all_reduce {ranks, bytes}  end on the last rank minus begin on the last rank; before each a
//                              barrier and a common start
// Throws std::runtime_error as execute() does, and if a sum is wrong. Interrupted
// (calib/interrupt.h): the sizes that were complete, or NothingMeasured.
// REQUIRES: performs(algorithm, AllReduce), at least two devices.
Run measure_all_reduce(const topology::Fabric& fabric, const std::vector<DeviceId>& devices,
                       Algorithm algorithm, const CollectiveOptions& options);

// The same for whoever plays: one rank's part, made in its process when all ranks live. play(k,
// data): the all-reduce of options.bytes[k] on data.
struct RankPlayer {
  std::function<void(std::size_t k, float* data)> play;
  std::function<std::int64_t()> retransmits;  // so far, TCP segments of this rank
};
struct RankPlace {
  int rank = 0;
  int ranks = 0;
  std::string address;  // IPv4, of this rank's host
  Rendezvous* rendezvous = nullptr;
  std::function<void()> meet;   // all ranks
  std::byte* shared = nullptr;  // of all ranks, zero at first
};
using MakePlayer = std::function<RankPlayer(const RankPlace& place)>;
Run measure_all_reduce(const topology::Fabric& fabric, const std::vector<DeviceId>& devices,
                       const CollectiveOptions& options, std::size_t shared_bytes,
                       const MakePlayer& make);

}  // namespace ddpsim::calib
