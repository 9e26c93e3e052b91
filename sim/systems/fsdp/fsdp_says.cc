// FSDP1's decisions, and the lines of a script.
#include <array>
#include <string_view>

#include "sim/systems/base/settings.h"
#include "sim/systems/fsdp/fsdp_settings.h"
#include "sim/systems/fsdp/plan.h"
#include "sim/units/number.h"

namespace ddpsim::systems {

namespace {

constexpr const char* kStrategy = "sharding_strategy";

std::optional<Setting> strategy_of_text(const std::string& text) {
  const std::size_t colon = text.find(':');
  const std::string name = text.substr(0, colon);
  std::int64_t degree = 0;
  if (colon != std::string::npos) {
    auto n = parse_integer(text.substr(colon + 1));
    if (!n || *n < 1) return std::nullopt;
    degree = *n;
  }
  constexpr std::array kStrategies{Sharding::FullShard, Sharding::ShardGradOp, Sharding::NoShard,
                                   Sharding::HybridShard, Sharding::HybridShardZero2};
  for (Sharding s : kStrategies)
    if (name == name_of(s) && (degree == 0 || is_hybrid(s)))
      return Setting{text, [s, degree](Plan& p) {
                       fsdp_of(p).sharding_strategy = s;
                       fsdp_of(p).shard_degree = degree;
                     }};
  return std::nullopt;
}
std::string strategy_text(const Plan& plan) {
  std::string text = name_of(fsdp_of(plan).sharding_strategy);
  if (fsdp_of(plan).shard_degree > 0) text += ":" + std::to_string(fsdp_of(plan).shard_degree);
  return text;
}
Decision strategy(const Plan& plan, const DecidedFor& of) {
  Decision d{kStrategy,
             "what is freed after forward, and who shards with whom (hybrid_shard:RANKS)",
             {},
             true,
             [](const Workload&, const std::string& text) { return strategy_of_text(text); },
             "",
             strategy_text};
  auto add = [&](const std::string& text) { d.settings.push_back(*strategy_of_text(text)); };
  add(name_of(Sharding::FullShard));
  add(name_of(Sharding::ShardGradOp));
  if (!plan.pytorch.has(pytorch::Change::HybridStrategies)) return d;
  for (Sharding s : {Sharding::HybridShard, Sharding::HybridShardZero2})
    for (int n : shapes(of)) add(std::string(name_of(s)) + ":" + std::to_string(n));
  return d;
}
std::string upper(std::string text) {
  for (char& c : text)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return text;
}

}  // namespace

std::vector<Decision> fsdp_decisions(const Plan& plan, const DecidedFor& of) {
  const std::vector<std::string> switches{"true", "false"};
  return {units_decision(of.workload, false), strategy(plan, of),
          of_knob(plan, "backward_prefetch", {"none", "backward_pre", "backward_post"}),
          of_knob(plan, "forward_prefetch", switches),
          of_knob(plan, "limit_all_gathers", switches)};
}

std::optional<Setting> fsdp_setting(std::string_view knob, const std::string& text) {
  if (knob == "units") return units_of_text(text);
  return knob == kStrategy && text.find(':') != std::string::npos ? strategy_of_text(text)
                                                                  : std::nullopt;
}

std::vector<std::string> fsdp_script(const Plan& plan, const Workload& w, DeviceKind, int ranks,
                                     int per_host) {
  const Sharded groups = sharded_of(plan, ranks, per_host);
  const FsdpPlan& f = fsdp_of(plan);
  const bool shaped = is_hybrid(f.sharding_strategy) && f.shard_degree > 0;
  const std::string precision = precision_text(f, "MixedPrecision");
  std::vector<std::string> out;
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

}  // namespace ddpsim::systems
