// Source: torch/distributed/utils.py (_sync_module_states), torch/csrc/distributed/c10d/comm.cpp
// (broadcast_coalesced).
#include "sim/systems/ddp/ddp_buffers.h"

#include "sim/systems/ddp/bucketing.h"
#include "sim/systems/ddp/ddp_options.h"

namespace ddpsim::systems {
namespace {

constexpr OpWord kFlattenBuffers{"flatten/buffers.", {.does = Does::Copy, .of = Of::Number}};
constexpr OpWord kBufferBroadcast{
    "broadcast/buffers.",
    {.does = Does::Communicate, .of = Of::Number, .operation = Operation::Broadcast}};
constexpr OpWord kBufferWait{"wait/broadcast/buffers.", {.does = Does::Wait, .of = Of::Number}};
constexpr OpWord kUnflattenBuffers{"unflatten/buffers.", {.does = Does::Copy, .of = Of::Number}};
constexpr OpWord kDdpBufferWords[] = {kFlattenBuffers, kBufferBroadcast, kBufferWait,
                                      kUnflattenBuffers};

constexpr std::size_t kMaxBroadcastsInFlight = 2;

// A group may hold buffers of several types: what they are summed as is never asked.
DType type_of_bytes(std::int64_t bytes) {
  return bytes % 4 == 0 ? DType::Int32 : DType::UInt8;
}

}  // namespace

std::span<const OpWord> ddp_buffer_words() {
  return kDdpBufferWords;
}

DdpBuffers::DdpBuffers(const Workload& w, int joined_from)
    : w_(w), joined_from_(joined_from), groups_(buffer_groups(w)) {}

std::int64_t DdpBuffers::bytes(std::size_t group) const {
  std::int64_t sum = 0;
  for (TensorIndex t : groups_[group]) sum += w_.buffers[t].bytes().count;
  return sum;
}

void DdpBuffers::broadcast(StepBuilder& b) const {
  if (groups_.empty()) return;
  if (joined_from_ >= 0) join_find_source(b);
  std::vector<std::uint32_t> flying(groups_.size(), kNoOp);
  std::uint32_t finished = 0;
  for (std::uint32_t g = 0; g < groups_.size(); ++g) {
    if (g - finished >= kMaxBroadcastsInFlight) finish(b, finished, flying[finished]), ++finished;
    const std::int64_t size = bytes(g);
    b.main(kFlattenBuffers, g, size, {.traffic = 2 * size});
    flying[g] = b.collective(kBufferBroadcast, g, size, type_of_bytes(size));
    if (joined_from_ >= 0) b.step.ops[flying[g]].root = joined_from_;
  }
  for (; finished < groups_.size(); ++finished) finish(b, finished, flying[finished]);
}

void DdpBuffers::finish(StepBuilder& b, std::uint32_t group, std::uint32_t op) const {
  const std::int64_t size = bytes(group);
  b.await(kBufferWait, group, op);
  b.main_after(kUnflattenBuffers, group, size,
               {.traffic = 2 * size, .kernels = std::ssize(groups_[group])}, op);
}

}  // namespace ddpsim::systems
