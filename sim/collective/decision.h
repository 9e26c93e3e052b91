// Which algorithm other libraries choose for an all-reduce, by version, ranks and bytes. Pure
// tables.
#pragma once

#include <cstdint>

#include "sim/collective/algorithm.h"

namespace ddpsim::collective {

// V4_0: 4.0.x and older; V4_1: 4.1.x and 5.0.x; Main: the development branch (6.1a1).
enum class OpenMpi : std::uint8_t { V4_0, V4_1, Main };

// coll/tuned's algorithms of MPI_Allreduce, with its own numbers.
enum class OpenMpiAllReduce : std::uint8_t {
  BasicLinear = 1,
  NonOverlapping = 2,
  RecursiveDoubling = 3,
  Ring = 4,
  SegmentedRing = 5,
  Rabenseifner = 6,
  AllGatherReduce = 7
};

// What coll/tuned takes by its fixed rules for a commutative operation (float sums).
// `one_rank_per_node`: Main has a table of its own for that. Source:
// ompi/mca/coll/tuned/coll_tuned_decision_fixed.c, ompi_coll_tuned_allreduce_intra_dec_fixed:
// v4.0.5, v5.0.9 (4.1 has the same table), main. Not here: coll/han, which has the higher priority
// from 5.0 on where a communicator spans nodes with several ranks. REQUIRES: ranks >= 2, bytes >=
// 0; `elements`: of which v4.0 wants more than ranks for a ring.
OpenMpiAllReduce open_mpi_all_reduce(OpenMpi version, int ranks, std::int64_t bytes,
                                     std::int64_t elements, bool one_rank_per_node = false);

// The step lists that it plays. Segmented rings are plain ones in 4.1 and later (they are given no
// segment size); non-overlapping is a reduce and a broadcast, basic linear and all-gather-reduce
// send everything to everybody: Direct's all-gather, as near as there is.
Algorithm algorithm_of(OpenMpiAllReduce a);

// gloo/allreduce.cc: UNSPECIFIED is the ring, at every size; bcube only if asked for.
inline Algorithm gloo_all_reduce(bool asked_for_bcube) {
  return asked_for_bcube ? Algorithm::Bcube : Algorithm::Ring;
}

}  // namespace ddpsim::collective
