#include "sim/systems/fsdp/fsdp_settings.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "sim/systems/base/settings.h"
#include "sim/systems/fsdp/plan.h"
#include "sim/systems/fsdp/wrapping.h"
#include "sim/units/number.h"

namespace ddpsim::systems {

namespace {

constexpr const char* kEnds = "+ends";
constexpr DType kTypes[] = {DType::Float32, DType::Float16, DType::BFloat16};
constexpr const char* kWrapPolicies[] = {"block", "none", "size_based"};

int number_of(const std::optional<DType>& d) {
  return d ? static_cast<int>(std::find(std::begin(kTypes), std::end(kTypes), *d) - kTypes) : -1;
}
// What is of size_based alone.
void forget_sizes(FsdpPlan& plan) {
  plan.min_num_params = FsdpPlan{}.min_num_params;
  plan.module_lists.clear();
}
Setting whole_model() {
  return {"none", [](Plan& p) {
            fsdp_of(p).auto_wrap_policy = "none";
            fsdp_of(p).blocks_per_unit.clear();
            fsdp_of(p).ends_apart = false;
            forget_sizes(fsdp_of(p));
          }};
}
std::string units_text(const Plan& plan) {
  if (fsdp_of(plan).auto_wrap_policy == "size_based")
    return "size_based:" + std::to_string(fsdp_of(plan).min_num_params);
  if (fsdp_of(plan).auto_wrap_policy != "block") return "none";
  std::vector<std::int64_t> blocks = fsdp_of(plan).blocks_per_unit;
  if (blocks.empty()) blocks = {1};
  return units_setting(std::move(blocks), fsdp_of(plan).ends_apart).text;
}
std::optional<Setting> parse_units(const Workload& w, const std::string& text) {
  if (text.ends_with(kEnds) && !can_part_ends(w)) return std::nullopt;
  return units_of_text(text);
}

}  // namespace

Field param_dtype(Plan&) {
  return Choice{{"float32", "float16", "bfloat16"},
                [](const Plan& p) { return number_of(fsdp_of(p).param_dtype); },
                [](Plan& p, int k) { fsdp_of(p).param_dtype = kTypes[k]; }};
}
Field reduce_dtype(Plan&) {
  return Choice{{"float32", "float16", "bfloat16"},
                [](const Plan& p) { return number_of(fsdp_of(p).reduce_dtype); },
                [](Plan& p, int k) { fsdp_of(p).reduce_dtype = kTypes[k]; }};
}
int wrap_policy(const Plan& p) {
  const auto at =
      std::find(std::begin(kWrapPolicies), std::end(kWrapPolicies), fsdp_of(p).auto_wrap_policy);
  return static_cast<int>(at - std::begin(kWrapPolicies));
}
void set_wrap_policy(Plan& p, int k) {
  fsdp_of(p).auto_wrap_policy = kWrapPolicies[k];
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
            fsdp_of(p).auto_wrap_policy = "block";
            fsdp_of(p).blocks_per_unit = blocks;
            fsdp_of(p).ends_apart = ends_apart;
            forget_sizes(fsdp_of(p));
          }};
}

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

bool can_part_ends(const Workload& w) {
  FsdpPlan plan;
  plan.ends_apart = true;
  return !check_wrapping(plan, w);
}

Decision units_decision(const Workload& w, bool parts) {
  Decision d{"units",
             "which modules are wrapped: so many blocks a unit; none: the model is one",
             {},
             true,
             parse_units,
             "blocks of a unit (2), of each unit (1/4x3/8), +ends where what is before and after "
             "the blocks can be apart, or none",
             units_text};
  const std::int64_t blocks = wrapped_blocks(w).size();
  for (bool apart : {false, true})
    for (std::int64_t n : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64})
      if ((!apart || parts) && (n == 1 || n <= blocks))
        d.settings.push_back(units_setting({n}, apart));
  d.settings.push_back(whole_model());
  return d;
}

std::vector<int> shapes(const DecidedFor& of) {
  std::vector<int> out;
  for (int d = 2; d < of.ranks; ++d)
    if (of.ranks % d == 0 && (of.per_host % d == 0 || d % of.per_host == 0)) out.push_back(d);
  return out;
}

std::vector<PlanChange> smaller_units(const Plan& plan, const Workload& w) {
  if (w.basis != Basis::Described || fsdp_of(plan).param_dtype || w.precision != Precision::Fp32)
    return {};
  Plan halves = plan;
  fsdp_of(halves).param_dtype = DType::BFloat16;
  return {{"MixedPrecision", "--set param_dtype=bfloat16", halves}};
}

std::string advice_on_halves(const Workload& w, const Plan& plan) {
  if (fsdp_of(plan).param_dtype) return {};
  return std::string(name_of(w.precision)) +
         " is autocast here, with weights gathered and gradients reduced in 4 bytes; FSDP's "
         "MixedPrecision is --set param_dtype=bfloat16";
}

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

std::string python(bool b) {
  return b ? "True" : "False";
}

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

}  // namespace ddpsim::systems
