// What FSDP1 and FSDP2 have in common: units of parameters whose weights are gathered before they
// are used, groups of ranks that shard, the update of a shard.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/systems/base/builder.h"
#include "sim/systems/base/lower.h"
#include "sim/systems/base/record.h"
#include "sim/systems/fsdp/plan.h"

namespace ddpsim::systems {

// Steps after the first, which finds out the order of units, are alike: there is no warm-up.
// REQUIRES: workload.times.layers.
Program lower_fsdp(const TimedWorkload& workload, const Plan& plan, Steps steps);
std::span<const OpWord> fsdp_words();
// FSDP1 and FSDP2 need GPUs, layers and units.
Problem validate_units(const Plan& p, const Workload& w, DeviceKind device);
Problem validate_fsdp(const Plan& p, const Workload& w, DeviceKind device);
std::vector<Decision> fsdp_decisions(const Plan& plan, const DecidedFor& of);
std::optional<Setting> fsdp_setting(std::string_view knob, const std::string& text);
std::vector<std::string> fsdp_script(const Plan& plan, const Workload& w, DeviceKind device,
                                     int ranks, int per_host);

using UnitIndex = std::uint32_t;  // of a plan's units; the first labels of its Program

// One FlatParameter: what a wrapped module holds that no module wrapped inside it holds.
struct Unit {
  std::string name;                  // of the module; "root"
  std::vector<std::size_t> layers;   // of Workload::layers
  std::vector<TensorIndex> tensors;  // in order of registration
  std::int64_t elements = 0;         // of these
  UnitIndex inside = 0;              // the innermost unit around it; 0 = the root
  std::vector<TensorIndex> frozen;   // of Workload::frozen, in order of registration
  std::int64_t frozen_elements = 0;
  bool empty() const { return elements + frozen_elements == 0; }
  bool mixed() const { return elements > 0 && frozen_elements > 0; }
  // Of Workload::parameter: those that require a gradient, then the others.
  std::vector<TensorIndex> parameters(const Workload& w) const;
};
// The root first, a unit before those inside it, then in order of forward. REQUIRES: the workload
// has layers.
std::vector<Unit> fsdp_units(const Workload& w, const Plan& plan);

// An operation's subject is a unit, or a further place where one computes (Part::label); it is of
// backward.
constexpr bool of_unit(OpKind k) {
  return k.of == Of::Label;
}
constexpr bool in_backward(OpKind k) {
  return k.phase == Phase::Backward;
}

// Layers of one unit that run one after another.
struct Part {
  UnitIndex unit = 0;
  std::uint32_t label = 0;  // of Program::labels
  std::size_t from = 0;     // its layers: [from, to)
  std::size_t to = 0;
  Stretch forward;
  Stretch backward;
};
// The parameters whose gradients it makes: those that no layer before it has.
std::vector<TensorIndex> part_tensors(const Workload& w, const ModelMemory& memory,
                                      const Part& part);
std::int64_t part_elements(const Workload& w, const ModelMemory& memory, const Part& part);
// A forward as hooks of units see it.
struct UnitEvent {
  enum class What : std::uint8_t { Enter, Compute, Exit, Views } what = What::Compute;
  UnitIndex number = 0;  // of the unit; of the part
};
struct UnitForward {
  std::vector<Part> parts;  // in order
  std::vector<UnitEvent> events;
  std::vector<UnitIndex> order;  // of units that have parameters, as they are entered
};
// By unit, whether backward goes through what it is given, and through what it returns: FSDP's
// hooks are on these. Without frozen parameters: what is given to all but the first that computes,
// and what all return.
struct UnitsInBackward {
  std::vector<bool> given;
  std::vector<bool> returned;
};
// Whether backward goes through any of its layers; without frozen parameters, through all.
bool in_backward(const Workload& w, const Part& part, const std::vector<bool>& differentiated);
// `differentiated`: by layer (model/workload.h).
UnitsInBackward units_in_backward(const std::vector<Unit>& units, const UnitForward& forward,
                                  const std::vector<bool>& differentiated);
// Gives the Program a label for each unit, and for each further place where a unit computes.
UnitForward unit_forward(const TimedWorkload& timed, const std::vector<Unit>& units,
                         Program& program);

// Ranks that shard together, and how many such groups there are.
struct Sharded {
  int ranks = 1;
  int replicas = 1;
};
Sharded sharded_of(const Plan& plan, int ranks, int per_host);
// What FSDP says of so many ranks on hosts of so many devices.
Problem check_fsdp(const Plan& plan, int ranks, int per_host);
// Program::groups: of hybrid plans these two, then that of reshard_after_forward=N.
std::vector<RankGroups> fsdp_groups(const Plan& plan, int ranks, int per_host);
inline constexpr std::uint8_t kShardGroup = 1;
inline constexpr std::uint8_t kReplicaGroup = 2;

// What weights are kept, gathered and reduced in.
struct UnitTypes {
  DType weights = DType::Float32;
  DType compute = DType::Float32;
  DType reduce = DType::Float32;
};
UnitTypes unit_types(const Workload& w, const FsdpPlan& plan);
// Of one unit: frozen parameters by themselves have their own type.
UnitTypes unit_types(const Workload& w, const Unit& unit, const FsdpPlan& plan);
// Where units mix frozen and trainable parameters (use_orig_params), what that costs; empty: none
// do. A plan of another system passes.
std::string mixed_units_sentence(const Workload& w, const Plan& plan);
// What a gradient is divided by before it is reduced, so that halves neither overflow nor vanish:
// about the root of the ranks; by the rest after. Source: _get_gradient_predivide_factor,
// _get_gradient_divide_factors.
std::int64_t gradient_predivisor(std::int64_t ranks);
// The number of a new stream.
std::size_t add_stream(Program& program, const char* name);
// Of a rank with so many elements of weights, between steps; with their gradients (`gradients`).
Held resident_shards(const Workload& w, std::int64_t elements, DType type, bool gradients);

// Unscaling, clipping, the optimizer and what follows, on a rank's share of the parameters.
class DeviceStreams;
void update_shard(StepBuilder& b, DeviceStreams& streams, const Workload& w, std::int64_t elements,
                  std::int64_t parameters, DType dtype);

// The same on the host's cores, of a plan that offloads.
void update_on_host(StepBuilder& b, const Workload& w, std::int64_t elements,
                    std::int64_t parameters, const HostMemory& host);

}  // namespace ddpsim::systems
