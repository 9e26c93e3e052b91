// The knobs of TensorFlow's mirrored strategies.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/model/plan.h"

namespace ddpsim {

// tf.distribute.CrossDeviceOps, and CommunicationImplementation.
enum class CrossDeviceOps : std::uint8_t {
  CollectiveAllReduce,
  NcclAllReduce,
  HierarchicalCopyAllReduce,
  ReductionToOneDevice
};
enum class TensorflowCollective : std::uint8_t { Auto, Ring, Nccl };
// TensorFlow's MirroredStrategy and MultiWorkerMirroredStrategy, 2.x.
struct MirroredPlan {
  CrossDeviceOps cross_device_ops = CrossDeviceOps::CollectiveAllReduce;
  std::optional<TensorflowCollective>
      implementation;               // default: NCCL of one host's GPUs, else AUTO
  std::int64_t bytes_per_pack = 0;  // 0 = one pack
  std::int64_t num_packs = 1;       // of NcclAllReduce and HierarchicalCopyAllReduce; 0 = none
  bool mean = false;                // ReduceOp.MEAN
  bool eager = false;               // no tf.function
};

inline const MirroredPlan& mirrored_of(const Plan& plan) {
  return plan.parts.get<MirroredPlan>();
}
inline MirroredPlan& mirrored_of(Plan& plan) {
  return plan.parts.edit<MirroredPlan>();
}

}  // namespace ddpsim
