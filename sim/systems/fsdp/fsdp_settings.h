// Settings of FSDP1 and FSDP2 that a person decides on and pastes into a script: units, strategies,
// precision.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/systems/base/record.h"
#include "sim/systems/fsdp/fsdp.h"
#include "sim/systems/fsdp/plan.h"

namespace ddpsim::systems {

// Knobs that both have.
Field param_dtype(Plan& plan);
Field reduce_dtype(Plan& plan);
int wrap_policy(const Plan& plan);  // of "block", "none", "size_based"
void set_wrap_policy(Plan& plan, int k);

// Units of so many blocks each; "+ends": what is before and after them apart.
Setting units_setting(std::vector<std::int64_t> blocks, bool ends_apart);
// As a plan has them without a workload, whose blocks only a check of the plan counts: "2",
// "1/2x15/1", "2+ends", "none".
std::optional<Setting> units_of_text(const std::string& text);
// `parts`: what is before and after the blocks may be units of their own.
Decision units_decision(const Workload& w, bool parts);
bool can_part_ends(const Workload& w);
// Ranks that may shard together: those of a part of a host, of a host, of several.
std::vector<int> shapes(const DecidedFor& of);

std::vector<PlanChange> smaller_units(const Plan& plan, const Workload& w);
std::string advice_on_halves(const Workload& w, const Plan& plan);

// ---- lines of a script
// "model.layers", "model.layer4[2]" of "layer4.2": a number is an index.
std::string path_of(const std::string& module);
std::string python(bool b);
// A list of blocks and where its units begin and end.
struct Slices {
  std::string list;
  std::vector<std::int64_t> edges;
  bool each = true;  // every unit is one block
};
std::vector<Slices> slices_of(const Workload& w, const FsdpPlan& plan);
std::string edges_text(const Slices& s);
std::string mesh_text(const Sharded& s);
// "MixedPrecision(param_dtype=torch.bfloat16)"; "" = neither type is set.
std::string precision_text(const FsdpPlan& plan, const std::string& what);

}  // namespace ddpsim::systems
