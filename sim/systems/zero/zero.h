// DeepSpeed ZeRO: optimizer state (stage 1), gradients (2) and parameters (3) in shards.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/model/plan.h"
#include "sim/model/program.h"
#include "sim/systems/base/model_memory.h"
#include "sim/systems/base/record.h"
#include "sim/systems/zero/plan.h"

namespace ddpsim::systems {

using ZeroChange = deepspeed::Change;

// By its stage. Steps after the first are alike: DeepSpeed's own timer begins with the third, and
// stage 3 prefetches from the second on. REQUIRES: of stage 3, workload.times.layers.
Program lower_zero(const TimedWorkload& workload, const Plan& plan, Steps steps);
std::span<const OpWord> zero_words();
Problem validate_zero(const Plan& p, const Workload& w, DeviceKind device);
// Settings, and the lines of DeepSpeed's configuration (zero_says.cc).
std::vector<Decision> zero_decisions(const Plan& plan, const DecidedFor& of);
std::vector<std::string> zero_script(const Plan& plan, const Workload& w, DeviceKind device,
                                     int ranks, int per_host);

inline constexpr const char* kZeroRelease = "deepspeed";  // the knob that says which
std::vector<std::string> zero_warnings(const Plan& plan);
const char* zero_schedule_of(const Plan& plan);

bool overlaps(const ZeroPlan& zero);  // overlap_comm, or the stage's default
bool pins(const ZeroPlan& zero);      // offload_pin_memory, or the release's default

// Stages 1 and 2: all parameters as one vector, cut into equal shards. Source:
// deepspeed/runtime/zero/stage_1_and_2.py (0.14.5), get_partition_info, average_tensor.
class ZeroPartition {
 public:
  // Of one tensor: what belongs to one rank.
  struct Slice {
    std::int64_t rank = 0;
    std::int64_t from = 0;
    std::int64_t elements = 0;
  };
  ZeroPartition(const Workload& w, const ZeroPlan& zero, std::int64_t ranks);
  std::int64_t shard() const { return shard_; }  // elements of each rank, padding counted
  std::vector<Slice> slices(TensorIndex t) const;
  std::int64_t tensors() const { return tensors_; }  // of the rank that owns parts of the most

 private:
  std::int64_t shard_ = 0;
  std::int64_t tensors_ = 0;
  std::vector<std::int64_t> begin_;  // of each tensor, in the vector
  std::vector<std::int64_t> end_;
};

// Collectives that gather weights of shards of so many elements, where it is not one. Source:
// deepspeed/runtime/utils.py, all_gather_dp_groups (0.12.3).
std::int64_t weight_lists(const ZeroPlan& zero, std::int64_t shard, std::int64_t ranks);

// Stage 3: modules in the order of forward, as DeepSpeed's hooks see them. A layer with parameters,
// and one that PyTorch has a module for, is one; so are the containers in its name, but those whose
// children are numbered in a model without convolutions (a ModuleList is never called). A parameter
// belongs to the module that its name says.
struct ZeroModule {
  std::string name;
  std::vector<TensorIndex> tensors;  // of Workload::parameter, in order of registration
  bool differentiable = true;        // what it is given: otherwise backward does not tell its end
  bool returns = true;               // what it returns: otherwise nor its begin
};
struct ZeroEvent {
  enum class What : std::uint8_t { Enter, Compute, Exit } what = What::Compute;
  std::size_t number = 0;  // of the module; of the first layer
  std::size_t layers = 0;  // that are computed, one after another
};
struct ZeroTrace {
  std::vector<ZeroModule> modules;
  std::vector<ZeroEvent> forward;
};
// REQUIRES: the workload has layers.
ZeroTrace zero_trace(const Workload& w);

// hpZ: ranks that have the weights of a step among them; 1 = none. Source:
// deepspeed/utils/groups.py, _create_zero_param_parallel_group (0.14.5).
std::int64_t secondary_ranks(const ZeroPlan& zero, std::int64_t ranks);
std::vector<RankGroups> zero_groups(const Plan& plan, int ranks, int per_host);
Problem check_zero_groups(const Plan& plan, int ranks, int per_host);
// qwZ and qgZ: what DeepSpeed asserts of what it quantises, of qwZ here of each parameter's shard.
// A plan of another system, or without them, passes.
Problem check_quantised(const Plan& plan, const Workload& w, int ranks, int per_host);
// Groups of so many elements, each with a scale: the fewest that part them into multiples of 8,
// of about 8,000 or less. REQUIRES: elements > 0, a multiple of 8. Source: CUDAQuantizer.quantize
// (deepspeed/runtime/zero/partition_parameters.py, 0.14.5).
std::int64_t quantisation_groups(std::int64_t elements);
inline constexpr std::uint8_t kSecondaryGroup = 1;

// qgZ: whether gradients are exchanged as int4. On one host they are reduced as without it. Source:
// deepspeed/runtime/zero/stage3.py, __avg_scatter_grads (0.14.5).
bool exchanges_gradients(const ZeroPlan& zero, std::int64_t ranks, std::int64_t per_host);
// Of a gradient that is quantised, its groups, each with a scale; 0: of one dimension, or no
// multiple of 2 x ranks, and it is reduced and scattered by itself. Source:
// deepspeed/runtime/comm/coalesced_collectives.py, all_to_all_quant_reduce (0.14.5).
std::int64_t gradient_groups(const Tensor& t, std::int64_t ranks);
// Program::groups, numbered from 1: the ranks of a host, and those of one place on each host.
std::uint8_t local_group(const ZeroPlan& zero, std::int64_t ranks);
std::uint8_t across_group(const ZeroPlan& zero, std::int64_t ranks);

// Between steps, of a rank: `weights` bytes of its parameters, the optimizer's copy of a shard of
// `shard` elements and its states, four bytes each.
Held zero_resident(const Workload& w, std::int64_t weights, std::int64_t shard);

}  // namespace ddpsim::systems
