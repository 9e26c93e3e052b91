#include "sim/strategy/decisions.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "sim/model/wrapping.h"
#include "sim/strategy/systems.h"
#include "sim/units/number.h"

namespace ddpsim::strategy {
namespace {

constexpr const char* kUnits = "units";
constexpr const char* kShape = "shard_degree";
constexpr const char* kStrategy = "sharding_strategy";
constexpr const char* kEnds = "+ends";

const KnobRecord* knob_of(const Plan& plan, const std::string& name) {
  for (const KnobRecord& k : record_of(plan.system).knobs)
    if (name == k.name) return &k;
  return nullptr;
}

// The knob of the same name at a setting.
Setting knob_setting(const std::string& knob, const std::string& text) {
  return {text, [knob, text](Plan& p) { p = with_setting(p, knob, text); }};
}
Decision of_knob(const Plan& plan, const std::string& name,
                 const std::vector<std::string>& settings) {
  Decision d{name, knob_of(plan, name)->help, {}, true};
  for (const std::string& s : settings) d.settings.push_back(knob_setting(name, s));
  return d;
}

// ---- units

bool can_part_ends(const Workload& w) {
  FsdpPlan plan;
  plan.ends_apart = true;
  return !check_wrapping(plan, w);
}
// What is of size_based alone.
void forget_sizes(FsdpPlan& plan) {
  plan.min_num_params = FsdpPlan{}.min_num_params;
  plan.module_lists.clear();
}
Setting whole_model() {
  return {"none", [](Plan& p) {
            p.fsdp.auto_wrap_policy = "none";
            p.fsdp.blocks_per_unit.clear();
            p.fsdp.ends_apart = false;
            forget_sizes(p.fsdp);
          }};
}

Decision units(const Plan& plan, const DecidedFor& of) {
  Decision d{
      kUnits, "which modules are wrapped: so many blocks a unit; none: the model is one", {}, true};
  const auto blocks = static_cast<std::int64_t>(wrapped_blocks(of.workload).size());
  const bool parts = plan.system == System::Fsdp2 && can_part_ends(of.workload);
  for (bool apart : {false, true})
    for (std::int64_t n : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64})
      if ((!apart || parts) && (n == 1 || n <= blocks))
        d.settings.push_back(units_setting({n}, apart));
  d.settings.push_back(whole_model());
  return d;
}

std::optional<Setting> parse_units(const std::string& text, const DecidedFor& of) {
  if (text.ends_with(kEnds) && !can_part_ends(of.workload)) return std::nullopt;
  return units_of_text(text);
}

// ---- who shards with whom

// Ranks that may shard together: those of a part of a host, of a host, of several.
std::vector<int> shapes(const DecidedFor& of) {
  std::vector<int> out;
  for (int d = 2; d < of.ranks; ++d)
    if (of.ranks % d == 0 && (of.per_host % d == 0 || d % of.per_host == 0)) out.push_back(d);
  return out;
}

Decision shape(const DecidedFor& of) {
  Decision d{kShape,
             "HSDP: ranks that shard together; the others hold replicas (0: all shard)",
             {knob_setting(kShape, "0")},
             true};
  for (int n : shapes(of)) d.settings.push_back(knob_setting(kShape, std::to_string(n)));
  return d;
}

Decision strategy(const Plan& plan, const DecidedFor& of) {
  Decision d{kStrategy,
             "what is freed after forward, and who shards with whom (hybrid_shard:RANKS)",
             {},
             true};
  auto add = [&](const std::string& text) { d.settings.push_back(*strategy_of_text(text)); };
  add(name_of(Sharding::FullShard));
  add(name_of(Sharding::ShardGradOp));
  if (!plan.pytorch.has(pytorch::Change::HybridStrategies)) return d;
  for (Sharding s : {Sharding::HybridShard, Sharding::HybridShardZero2})
    for (int n : shapes(of)) add(std::string(name_of(s)) + ":" + std::to_string(n));
  return d;
}

// ---- what is kept between forward and backward

Decision reshard(const Plan& plan, const DecidedFor& of) {
  Decision d = of_knob(plan, "reshard_after_forward", {});
  d.settings.push_back({"default", [](Plan& p) { p.fsdp.reshard_after_forward = {}; }});
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

std::vector<std::string> texts(std::initializer_list<double> values) {
  std::vector<std::string> out;
  for (double v : values) out.push_back(std::to_string(static_cast<std::int64_t>(v)));
  return out;
}

std::vector<Decision> of_zero(const Plan& plan) {
  std::vector<Decision> out{
      of_knob(plan, "overlap_comm", {"false", "true"}),
      of_knob(plan, "reduce_bucket_size", texts({5e6, 1e7, 2e7, 5e7, 1e8, 2e8, 5e8}))};
  const std::vector<std::string> switches{"true", "false"};
  if (plan.zero.stage < 3) {
    out.push_back(of_knob(plan, "contiguous_gradients", switches));
    out.push_back(of_knob(plan, "use_multi_rank_bucket_allreduce", switches));
    out.push_back(of_knob(plan, "allgather_bucket_size", texts({5e6, 5e7, 2e8, 5e8})));
    out.back().joint = false;
    return out;
  }
  out.push_back(
      of_knob(plan, "stage3_prefetch_bucket_size", texts({0, 5e6, 1e7, 2e7, 5e7, 1e8, 2e8, 5e8})));
  out.push_back(
      of_knob(plan, "stage3_param_persistence_threshold", texts({0, 1e4, 1e5, 1e6, 1e7})));
  out.push_back(of_knob(plan, "stage3_max_live_parameters", texts({1e8, 3e8, 1e9, 3e9})));
  out.push_back(of_knob(plan, "stage3_max_reuse_distance", texts({0, 1e8, 1e9})));
  return out;
}

}  // namespace

std::optional<Setting> units_of_text(const std::string& text) {
  if (text == "none") return whole_model();
  const bool apart = text.ends_with(kEnds);
  const std::string counts =
      apart ? text.substr(0, text.size() - std::string_view(kEnds).size()) : text;
  std::vector<std::int64_t> list;
  for (std::size_t from = 0; from <= counts.size();) {
    const std::size_t slash = std::min(counts.find('/', from), counts.size());
    const std::string item = counts.substr(from, slash - from);
    const std::size_t x = item.find('x');
    auto n = parse_integer(item.substr(0, x));
    const auto times =
        x == std::string::npos ? std::optional<std::int64_t>(1) : parse_integer(item.substr(x + 1));
    if (!n || *n < 1 || *n > 1'000'000 || !times || *times < 1 || *times > 10'000)
      return std::nullopt;
    list.insert(list.end(), static_cast<std::size_t>(*times), *n);
    from = slash + 1;
  }
  return units_setting(std::move(list), apart);
}

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
                       p.fsdp.sharding_strategy = s;
                       p.fsdp.shard_degree = degree;
                     }};
  return std::nullopt;
}

Setting units_setting(std::vector<std::int64_t> blocks, bool ends_apart) {
  while (blocks.size() > 1 && blocks[blocks.size() - 2] == blocks.back()) blocks.pop_back();
  std::string text;
  for (std::size_t from = 0; from < blocks.size();) {
    std::size_t to = from + 1;
    while (to < blocks.size() && blocks[to] == blocks[from]) ++to;
    text += (text.empty() ? "" : "/") + std::to_string(blocks[from]);
    if (to - from > 1) text += "x" + std::to_string(to - from);
    from = to;
  }
  if (ends_apart) text += kEnds;
  if (blocks.size() == 1 && blocks.front() == 1) blocks.clear();  // as it is by default
  return {text, [blocks, ends_apart](Plan& p) {
            p.fsdp.auto_wrap_policy = "block";
            p.fsdp.blocks_per_unit = blocks;
            p.fsdp.ends_apart = ends_apart;
            forget_sizes(p.fsdp);
          }};
}

std::vector<Decision> decisions(const Plan& plan, const DecidedFor& of) {
  const std::vector<std::string> switches{"true", "false"};
  switch (plan.system) {
    case System::Fsdp:
      return {units(plan, of), strategy(plan, of),
              of_knob(plan, "backward_prefetch", {"none", "backward_pre", "backward_post"}),
              of_knob(plan, "forward_prefetch", switches),
              of_knob(plan, "limit_all_gathers", switches)};
    case System::Fsdp2:
      return {units(plan, of), reshard(plan, of), shape(of),
              of_knob(plan, "forward_prefetch_units", texts({0, 1, 2, 3})),
              of_knob(plan, "backward_prefetch_units", texts({1, 2, 3}))};
    case System::Zero:
      return of_zero(plan);
    default:
      return {};
  }
}

std::optional<Setting> parse_setting(const Decision& d, const std::string& text,
                                     const DecidedFor& of) {
  if (d.name == kUnits) return parse_units(text, of);
  if (d.name == kStrategy) return strategy_of_text(text);
  for (const Setting& s : d.settings)
    if (s.text == text) return s;
  const bool counts = std::all_of(d.settings.begin(), d.settings.end(), [](const Setting& s) {
    return parse_number(s.text).has_value();
  });
  auto n = parse_number(text);  // also 5e8
  const bool whole = n && *n >= 0 && *n <= 1e12 && *n == std::floor(*n);
  if (!whole || (!counts && !(d.name == "reshard_after_forward" && *n > 1))) return std::nullopt;
  return knob_setting(d.name, std::to_string(static_cast<std::int64_t>(*n)));
}

std::string settings_help(const Decision& d) {
  if (d.name == kUnits)
    return "blocks of a unit (2), of each unit (1/4x3/8), +ends where what is before and after the "
           "blocks can be apart, or none";
  std::string out;
  for (const Setting& s : d.settings) out += (out.empty() ? "" : ", ") + s.text;
  return "one of " + out + ", or another number that the knob takes";
}

std::string setting_text(const Plan& plan, const Decision& d) {
  if (d.name == kUnits) {
    if (plan.fsdp.auto_wrap_policy == "size_based")
      return "size_based:" + std::to_string(plan.fsdp.min_num_params);
    if (plan.fsdp.auto_wrap_policy != "block") return "none";
    std::vector<std::int64_t> blocks = plan.fsdp.blocks_per_unit;
    if (blocks.empty()) blocks = {1};
    return units_setting(std::move(blocks), plan.fsdp.ends_apart).text;
  }
  std::string text = setting_of(plan, *knob_of(plan, d.name));
  if (d.name == kStrategy && plan.fsdp.shard_degree > 0)
    text += ":" + std::to_string(plan.fsdp.shard_degree);
  return text.empty() ? "default" : text;
}

}  // namespace ddpsim::strategy
