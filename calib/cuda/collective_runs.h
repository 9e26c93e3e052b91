// Readings of NCCL's collectives -> Runs: which operation, size and way each reading is of, and the
// samples, setting and key that a Run has of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "calib/cuda/cuda.h"
#include "calib/cuda/ranks.h"
#include "calib/gpu/nccl_log.h"
#include "sim/model/algorithm.h"

namespace ddpsim::calib::cuda {

struct Named {
  Operation op;
  const char* sample;  // of the Run
  const char* nccl;    // in its log; "" = it does not choose
};
// One in the whole binary: a Point holds the address of its own.
inline constexpr Named kOps[] = {{Operation::AllReduce, "all_reduce", "AllReduce"},
                                 {Operation::ReduceScatter, "reduce_scatter", "ReduceScatter"},
                                 {Operation::AllGather, "all_gather", "AllGather"},
                                 {Operation::Broadcast, "broadcast", "Broadcast"},
                                 {Operation::Reduce, "reduce", "Reduce"},
                                 {Operation::AllToAll, "all_to_all", ""},
                                 {Operation::SendRecv, "send_receive", ""}};

// A way to run: NCCL's own choice, or one that is forced.
struct Way {
  const char* algorithm = nullptr;
  const char* protocol = nullptr;
  int channels = 0;  // forced; 0 = NCCL's
};

// Whether a rank has its share of `bytes` of each.
inline bool in_parts(Operation op) {
  return op == Operation::ReduceScatter || op == Operation::AllGather || op == Operation::AllToAll;
}

// Where ranks are: a GPU each, or all on the first one.
enum class Place : std::uint8_t { OwnGpu, OwnHosts, OneHost };  // numbers: parameter one_gpu

inline constexpr int kReadings = 20;
inline constexpr int kMostPoints = 256;
inline constexpr std::int64_t kNotFull = -1;  // of a collective that may have waited for its launch

// Memory that the ranks share.
struct Table {
  RanksShared ranks;
  std::int64_t ns[kMostPoints][kReadings][64];  // by point, reading and rank; 0 = not measured
};

struct Point {
  const Named* op;
  std::int64_t bytes;
  bool in_place;
};

// A Run for each operation of which there is a reading.
std::vector<Run> runs_of(const Run& head, const std::vector<Point>& points, const Table& table,
                         int ranks, const Way& way, Place place, const gpu::NcclLog& log,
                         const CalibrateOptions& options);

}  // namespace ddpsim::calib::cuda
