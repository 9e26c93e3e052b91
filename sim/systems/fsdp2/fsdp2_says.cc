// FSDP2's decisions, and the lines of a script.
#include <algorithm>
#include <string_view>

#include "sim/systems/base/settings.h"
#include "sim/systems/fsdp/fsdp_settings.h"
#include "sim/systems/fsdp/plan.h"
#include "sim/systems/fsdp/wrapping.h"
#include "sim/systems/fsdp2/lowered.h"

namespace ddpsim::systems {

namespace {

Decision shape(const DecidedFor& of) {
  Decision d{"shard_degree",
             "HSDP: ranks that shard together; the others hold replicas (0: all shard)",
             {knob_setting("shard_degree", "0")},
             true};
  for (int n : shapes(of)) d.settings.push_back(knob_setting("shard_degree", std::to_string(n)));
  return d;
}
Decision reshard(const Plan& plan, const DecidedFor& of) {
  Decision d = of_knob(plan, "reshard_after_forward", {});
  d.settings.push_back({"default", [](Plan& p) { fsdp_of(p).reshard_after_forward = {}; }});
  if (plan.pytorch.has(pytorch::Change::RootMayBeFreed))  // else it is the default
    d.settings.push_back(knob_setting(d.name, "true"));
  d.settings.push_back(knob_setting(d.name, "false"));
  std::vector<int> smaller;
  for (int n : {2, 4, of.per_host})
    if (n > 1 && n < of.ranks && of.ranks % n == 0) smaller.push_back(n);
  std::sort(smaller.begin(), smaller.end());
  smaller.erase(std::unique(smaller.begin(), smaller.end()), smaller.end());
  for (int n : smaller) d.settings.push_back(knob_setting(d.name, std::to_string(n)));
  return d;
}
// The modules with parameters of layers [from, to).
std::string modules_text(const Workload& w, std::size_t from, std::size_t to) {
  std::string out;
  for (std::size_t l = from; l < to; ++l)
    if (!w.parameters_of(w.layers[l]).empty())
      out += (out.empty() ? "" : ", ") + path_of(w.layers[l].name);
  return out;
}

}  // namespace

std::vector<Decision> fsdp2_decisions(const Plan& plan, const DecidedFor& of) {
  return {units_decision(of.workload, can_part_ends(of.workload)), reshard(plan, of), shape(of),
          of_knob(plan, "forward_prefetch_units", texts({0, 1, 2, 3})),
          of_knob(plan, "backward_prefetch_units", texts({1, 2, 3}))};
}

std::optional<Setting> fsdp2_setting(std::string_view knob, const std::string& text) {
  return knob == "units" ? units_of_text(text) : std::nullopt;
}

std::vector<std::string> fsdp2_script(const Plan& plan, const Workload& w, DeviceKind, int ranks,
                                      int per_host) {
  const Sharded groups = sharded_of(plan, ranks, per_host);
  const FsdpPlan& f = fsdp_of(plan);
  const std::string precision = precision_text(f, "MixedPrecisionPolicy");
  std::vector<std::string> out;
  if (groups.replicas > 1)
    out.push_back("from torch.distributed.device_mesh import init_device_mesh");
  const bool is_public = plan.pytorch.has(pytorch::Change::FullyShardIsPublic);
  out.push_back(std::string("from torch.distributed.") + (is_public ? "" : "_composable.") +
                "fsdp import " + (f.cpu_offload ? "CPUOffloadPolicy, " : "") +
                (precision.empty() ? "" : "MixedPrecisionPolicy, ") + "fully_shard");
  std::string options;
  auto add = [&](const std::string& o) { options += (options.empty() ? "" : ", ") + o; };
  if (groups.replicas > 1) add("mesh=" + mesh_text(groups));
  if (f.reshard_after_forward.ranks) {
    const std::int64_t n = *f.reshard_after_forward.ranks;
    add("reshard_after_forward=" + (n > 1 ? std::to_string(n) : python(n == 1)));
  }
  if (!precision.empty()) add("mp_policy=" + precision);
  if (f.cpu_offload) add("offload_policy=CPUOffloadPolicy()");
  std::vector<std::string> units;
  const ModelEnds ends = ends_of(w);
  if (f.ends_apart && !modules_text(w, 0, ends.first).empty())
    units.push_back("units.append([" + modules_text(w, 0, ends.first) + "])");
  for (const Slices& s : slices_of(w, f)) {
    const std::string list = path_of(s.list);
    if (s.each)
      units.push_back("units += [[block] for block in " + list + "]");
    else
      units.insert(units.end(),
                   {"edges = " + edges_text(s),
                    "units += [list(" + list + "[a:b]) for a, b in zip(edges, edges[1:])]"});
  }
  if (f.ends_apart && !modules_text(w, ends.last, w.layers.size()).empty())
    units.push_back("units.append([" + modules_text(w, ends.last, w.layers.size()) + "])");
  if (units.empty()) {  // the root holds all, and there is nobody to fetch ahead
    out.push_back("fully_shard(model" + (options.empty() ? "" : ", " + options) + ")");
    return out;
  }
  out.insert(out.end(), {"options = dict(" + options + ")", "units = []"});
  out.insert(out.end(), units.begin(), units.end());
  out.insert(out.end(), {"for unit in units:", "    fully_shard(unit, **options)",
                         "fully_shard(model, **options)"});
  // As the tutorials set them: of units that have so many after or before them.
  const std::string ahead = std::to_string(f.forward_prefetch_units);
  if (f.forward_prefetch_units > 0)
    out.insert(
        out.end(),
        {"for i in range(len(units) - " + ahead + "):",
         "    units[i][0].set_modules_to_forward_prefetch([u[0] for u in units[i + 1 : i + 1 + " +
             ahead + "]])"});
  const std::string back = std::to_string(f.backward_prefetch_units);
  if (f.backward_prefetch_units > 1)
    out.insert(out.end(),
               {"for i in range(" + back + ", len(units)):",
                "    units[i][0].set_modules_to_backward_prefetch([u[0] for u in units[i - " +
                    back + " : i][::-1]])"});
  return out;
}

}  // namespace ddpsim::systems
