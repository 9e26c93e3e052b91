// What DDP does with a model's buffers before each forward: rank 0's (inside join the last rank's
// that has inputs) are flattened, broadcast and copied back, type by type.
#pragma once

#include <span>
#include <vector>

#include "sim/systems/base/builder.h"

namespace ddpsim::systems {

class DdpBuffers {
 public:
  // REQUIRES: `w` outlives it. `joined_from`: inside join, the rank whose buffers are sent; -1: not
  // inside join.
  DdpBuffers(const Workload& w, int joined_from);
  // Nothing, without buffers.
  void broadcast(StepBuilder& b) const;

 private:
  void finish(StepBuilder& b, std::uint32_t group, std::uint32_t op) const;
  std::int64_t bytes(std::size_t group) const;
  const Workload& w_;
  const int joined_from_;
  const std::vector<std::vector<TensorIndex>> groups_;  // that travel together
};

std::span<const OpWord> ddp_buffer_words();

}  // namespace ddpsim::systems
