#include "sim/model/wrapping.h"
#include "sim/strategy/fsdp.h"
#include "sim/strategy/script.h"
#include "sim/strategy/systems.h"

namespace ddpsim::strategy {
namespace {

using Lines = std::vector<std::string>;

std::string python(bool b) {
  return b ? "True" : "False";
}
// "model.layers", "model.layer4[2]" of "layer4.2": a number is an index.
std::string path_of(const std::string& module) {
  std::string out = "model";
  for (std::size_t from = 0; from < module.size();) {
    const std::size_t dot = std::min(module.find('.', from), module.size());
    const std::string part = module.substr(from, dot - from);
    out += part.front() >= '0' && part.front() <= '9' ? "[" + part + "]" : "." + part;
    from = dot + 1;
  }
  return out;
}

// A list of blocks and where its units begin and end.
struct Slices {
  std::string list;
  std::vector<std::int64_t> edges;
  bool each = true;  // every unit is one block
};
std::vector<Slices> slices_of(const Workload& w, const FsdpPlan& plan) {
  std::vector<Slices> out;
  for (const std::vector<WrappedBlock>& unit : blocks_by_unit(w, plan)) {
    if (out.empty() || out.back().list != unit.front().list)
      out.push_back({unit.front().list, {unit.front().number}, true});
    out.back().edges.push_back(unit.back().number + 1);
    out.back().each = out.back().each && unit.size() == 1;
  }
  return out;
}
std::string edges_text(const Slices& s) {
  std::string out;
  for (std::int64_t e : s.edges) out += (out.empty() ? "" : ", ") + std::to_string(e);
  return "[" + out + "]";
}

std::string mesh_text(const Sharded& s) {
  return "init_device_mesh(\"cuda\", (" + std::to_string(s.replicas) + ", " +
         std::to_string(s.ranks) + "), mesh_dim_names=(\"replicate\", \"shard\"))";
}
std::string precision_text(const FsdpPlan& plan, const std::string& what) {
  std::string types;
  auto add = [&](const char* name, const std::optional<DType>& type) {
    if (type) types += (types.empty() ? "" : ", ") + std::string(name) + "=torch." + name_of(*type);
  };
  add("param_dtype", plan.param_dtype);
  add("reduce_dtype", plan.reduce_dtype);
  return types.empty() ? "" : what + "(" + types + ")";
}

// ---- fully_shard

// The modules with parameters of layers [from, to).
std::string modules_text(const Workload& w, std::size_t from, std::size_t to) {
  std::string out;
  for (std::size_t l = from; l < to; ++l)
    if (!w.parameters_of(w.layers[l]).empty())
      out += (out.empty() ? "" : ", ") + path_of(w.layers[l].name);
  return out;
}

Lines fsdp2_lines(const Plan& plan, const Workload& w, const Sharded& groups) {
  const FsdpPlan& f = plan.fsdp;
  const std::string precision = precision_text(f, "MixedPrecisionPolicy");
  Lines out;
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
  Lines units;
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

// ---- FullyShardedDataParallel

std::string upper(std::string text) {
  for (char& c : text)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return text;
}

Lines fsdp_lines(const Plan& plan, const Workload& w, const Sharded& groups) {
  const FsdpPlan& f = plan.fsdp;
  const bool shaped = is_hybrid(f.sharding_strategy) && f.shard_degree > 0;
  const std::string precision = precision_text(f, "MixedPrecision");
  Lines out;
  const bool by_size = f.auto_wrap_policy == "size_based";
  if (by_size) out.push_back("import functools");
  if (shaped) out.push_back("from torch.distributed.device_mesh import init_device_mesh");
  if (by_size) out.push_back("from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy");
  out.push_back(std::string("from torch.distributed.fsdp import BackwardPrefetch, ") +
                (f.cpu_offload ? "CPUOffload, " : "") + "FullyShardedDataParallel as FSDP, " +
                (precision.empty() ? "" : "MixedPrecision, ") + "ShardingStrategy");
  std::string options = "sharding_strategy=ShardingStrategy." + upper(name_of(f.sharding_strategy));
  if (shaped) options += ", device_mesh=" + mesh_text(groups);
  if (f.backward_prefetch)
    options += std::string(", backward_prefetch=") +
               (*f.backward_prefetch == BackwardPrefetch::None
                    ? "None"
                    : "BackwardPrefetch." + upper(name_of(*f.backward_prefetch)));
  if (f.forward_prefetch) options += ", forward_prefetch=True";
  if (f.limit_all_gathers) options += ", limit_all_gathers=" + python(*f.limit_all_gathers);
  if (f.use_orig_params) options += ", use_orig_params=True";
  if (!precision.empty()) options += ", mixed_precision=" + precision;
  if (f.cpu_offload) options += ", cpu_offload=CPUOffload(offload_params=True)";
  out.push_back("options = dict(" + options + ", device_id=local_rank)");
  for (const Slices& s : slices_of(w, f)) {
    const std::string list = path_of(s.list);
    if (s.each) {
      out.insert(out.end(), {"for i, block in enumerate(" + list + "):",
                             "    " + list + "[i] = FSDP(block, **options)"});
      continue;
    }
    out.insert(
        out.end(),
        {"# one module a unit: where a block takes and gives one tensor; names of parameters "
         "change",
         "edges = " + edges_text(s), "blocks = list(" + list + ")",
         list + " = torch.nn.Sequential(*[FSDP(torch.nn.Sequential(*blocks[a:b]), "
                "**options) for a, b in zip(edges, edges[1:])])"});
  }
  if (by_size)
    out.push_back("policy = functools.partial(size_based_auto_wrap_policy, min_num_params=" +
                  std::to_string(f.min_num_params) + ")");
  out.push_back(std::string("model = FSDP(model, ") + (by_size ? "auto_wrap_policy=policy, " : "") +
                "**options)");
  return out;
}

// ---- DeepSpeed

// What DeepSpeed has as an object, and ddpsim as knobs.
Lines zero_offload_lines(const ZeroPlan& z) {
  Lines out;
  const std::string pinned = z.offload_pin_memory ? ", \"pin_memory\": true" : "";
  if (z.offload_optimizer)
    out.push_back("  \"offload_optimizer\": {\"device\": \"cpu\"" + pinned + "},");
  if (z.offload_param) out.push_back("  \"offload_param\": {\"device\": \"cpu\"},");
  return out;
}

Lines zero_lines(const Plan& plan) {
  Plan initial;
  initial.system = plan.system;
  Lines out{"{\"zero_optimization\": {"};
  for (const KnobRecord& k : record_of(plan.system).knobs) {
    const std::string setting = setting_of(plan, k);
    const bool stage = std::string(k.name) == "stage";
    if (std::string(k.name).starts_with("offload_")) continue;
    if (stage || (!setting.empty() && setting != setting_of(initial, k)))
      out.push_back("  \"" + std::string(k.name) + "\": " + setting + ",");
  }
  const Lines offload = zero_offload_lines(plan.zero);
  out.insert(out.end(), offload.begin(), offload.end());
  out.back().pop_back();
  out.push_back("}}");
  return out;
}

}  // namespace

std::vector<std::string> sharded_lines(const Plan& plan, const Workload& w, int ranks,
                                       int per_host) {
  if (plan.system == System::Zero) return zero_lines(plan);
  const Sharded groups = sharded_of(plan, ranks, per_host);
  if (plan.system == System::Fsdp2) return fsdp2_lines(plan, w, groups);
  if (plan.system == System::Fsdp) return fsdp_lines(plan, w, groups);
  return {};
}

}  // namespace ddpsim::strategy
