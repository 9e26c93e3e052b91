// All-reduces that NCCL does not have, made of its calls on sub-communicators.
//
//   two_level  reduce-scatter in each group, all-reduce across groups of those at the same place,
//              all-gather in each group. Horovod's hierarchical all-reduce and HSDP; a 2D torus
//              whose rows are the groups makes the same three calls.
//   direct     all-to-all of slices by send/recv, each rank sums its slice, all-to-all back
//
// Sub-communicators that run at once share links: the bytes of all of them are on a link
// (docs/model.md 7.5).
#pragma once

#include <string>
#include <vector>

#include "sim/nccl/fabric/p2p_price.h"

namespace ddpsim::nccl {

struct ComposedStage {
  std::string what;  // "reduce_scatter ring/simple", "send/recv", "sum"
  int groups = 1;    // sub-communicators at once
  int ranks = 1;     // of each
  Bytes bytes;       // of each, as nccl-tests states it
  Duration time;
  Duration transfer;       // of `time`: bytes over what limits them
  std::string limited_by;  // as OperationTime's; "memory" of a sum
};
struct Composed {
  std::string name;     // "two_level", "two_level by NVLink domain", "direct"
  std::string why_not;  // not possible here, or under these settings; then no stages
  bool sub_communicators =
      false;  // whose channels ddpsim's own search finds, also where the whole group's are given
  std::vector<ComposedStage> stages;
  Duration total;
  double bus_bytes_per_s = 0;
  std::string limited_by;  // of the stage that takes longest
};

// Those of an all-reduce on several hosts with several ranks each; empty elsewhere. Each call at
// NCCL's choice under the group's settings, channels by ddpsim's own search. `slice_sum`: time in
// which a GPU sums `ranks` slices of size / ranks. REQUIRES: as price_of.
std::vector<Composed> composed_all_reduces(const Group& g, const Profile& p, Level level,
                                           Bytes size, Duration slice_sum);

}  // namespace ddpsim::nccl
