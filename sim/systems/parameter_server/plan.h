// The knobs of parameter servers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/model/plan.h"

namespace ddpsim {

// Where variables are, and into which parts they are cut (tf.distribute.experimental.partitioners).
enum class ServerPlacement : std::uint8_t { RoundRobin, BySize };
enum class VariablePartitioner : std::uint8_t { None, FixedShards, MinSize, MaxSize };
// TensorFlow's ParameterServerStrategy, and the synchronous and bounded kinds of others.
struct ParameterServerPlan {
  std::int64_t servers = 1;
  bool own_hosts = false;       // server_hosts=own
  bool synchronous = false;     // one update of all ranks' gradients
  std::int64_t staleness = -1;  // steps ahead of the slowest rank; -1 = any number
  ServerPlacement placement = ServerPlacement::RoundRobin;
  VariablePartitioner variable_partitioner = VariablePartitioner::None;
  std::int64_t max_shards = 0;            // of a variable; 0 = as many as servers
  std::int64_t shard_bytes = 256 * 1024;  // min_shard_bytes, max_shard_bytes
  bool pull_after_push = false;           // pull=after_push
};

inline const ParameterServerPlan& parameter_server_of(const Plan& plan) {
  return plan.parts.get<ParameterServerPlan>();
}
inline ParameterServerPlan& parameter_server_of(Plan& plan) {
  return plan.parts.edit<ParameterServerPlan>();
}

}  // namespace ddpsim
