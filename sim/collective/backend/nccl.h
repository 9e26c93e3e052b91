// NCCL as a communicator: as its version, environment and GPUs make it choose (sim/nccl/fabric),
// or, where the GPUs are not known, its ring by the profile's own latencies.
#pragma once

#include <vector>

#include "sim/collective/pattern.h"
#include "sim/engine/task_graph.h"
#include "sim/model/plan.h"
#include "sim/nccl/fabric/nccl.h"
#include "sim/nccl/fabric/p2p_price.h"

namespace ddpsim::collective {

struct Asked;
struct Communicator;
struct MessagePlay;
struct Price;

// It runs as NCCL chooses, at nccl::time_of. It performs all operations but SendRecv; AllToAll
// after add_all_to_all().
struct Nccl {
  static constexpr Backend kBackend = Backend::Nccl;
  nccl::OwnedGroup group;
  PatternId ring;
  nccl::By<nccl::Pipeline, PatternId> pipelines;  // bytes on a link per byte of the operation
  PatternId all_to_all_simple;  // ncclSend and ncclRecv, by the protocol inside nodes
  PatternId all_to_all_ll;
  nccl::P2pOperation messages;  // of all_to_all, without its group: a copy has one of its own

  PatternId pattern(Operation o) const;
  Price price(const Communicator& c, const Asked& asked) const;
  std::vector<engine::TaskId> add_messages(const Communicator& c, const MessagePlay& play) const;
};

// 2(n-1) hops of S/n; a broadcast is a chain along the ring. docs/model.md 4.1. AllReduce and
// Broadcast alone.
struct NcclRing {
  static constexpr Backend kBackend = Backend::Nccl;
  PatternId ring;

  PatternId pattern(Operation o) const;
  Price price(const Communicator& c, const Asked& asked) const;
  std::vector<engine::TaskId> add_messages(const Communicator& c, const MessagePlay& play) const;
};

// REQUIRES: as nccl::build; the settings leave something to choose at every size. `known`: of
// nccl::search(). One device: as make_nccl_ring.
Communicator make_nccl_communicator(const topology::Fabric& fabric, std::vector<DeviceId> devices,
                                    const nccl::Settings& settings, int compute_capability,
                                    const nccl::Searches* known = nullptr);
// One ring per NIC of a host where it spans hosts, so that every NIC is used; ranks of a host are
// neighbours. REQUIRES: as make_communicator.
Communicator make_nccl_ring(const topology::Fabric& fabric, std::vector<DeviceId> devices);

// NCCL's group, where NCCL decides as it does on these GPUs; else nullptr.
const nccl::Group* nccl_group(const Communicator& c);
nccl::Group* nccl_group(Communicator& c);

// The communicator exchanges all to all, too: ncclSend and ncclRecv of every pair in a group (MODEL
// 7.5), as torch.distributed.all_to_all_single issues them: S bytes of each rank, an n-th to each.
// Cost grows with pairs of ranks. Nothing happens where it does already, and where it has no group
// or more than nccl::kMostP2pRanks ranks.
void add_all_to_all(Communicator& c);

}  // namespace ddpsim::collective
