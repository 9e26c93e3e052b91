#include "sim/io/read_plan.h"

#include <algorithm>
#include <set>

#include "sim/io/field_meant.h"
#include "sim/io/nearest_plan.h"
#include "sim/model/cluster.h"
#include "sim/strategy/decisions.h"
#include "sim/strategy/systems.h"
#include "sim/units/number.h"

namespace ddpsim::io {
namespace {

PytorchVersion read_version(const Reader& r) {
  if (r.json().is_number()) r.fail("a version is text in quotes, for example \"2.7\"");
  const std::string text = r.text();
  if (const auto version = pytorch::parse_version(text)) return *version;
  const auto& oldest = pytorch::kReleases.front();
  const auto& newest = pytorch::kReleases.back();
  r.fail("\"" + text.substr(0, 40) + "\" is no release of PyTorch that was read; those are " +
         oldest.name + " to " + newest.name);
}

// Keys and names of systems that a plan cannot be of.
std::string known_systems() {
  std::string out;
  const auto all = strategy::systems();
  for (std::size_t k = 0; k < all.size(); ++k)
    out += std::string(k == 0                ? ""
                       : k + 1 == all.size() ? " and "
                                             : ", ") +
           all[k].title + " (\"" + all[k].name + "\")";
  return out;
}
std::string other_system() {
  return "ddpsim models " + known_systems();
}
void refuse_other_systems(const Reader& r) {
  if (r.has("fully_shard")) r.fail_at("/fully_shard", "is a system: {\"system\": \"fsdp2\"}");
  for (const char* key : {"zero_stage", "zero_optimization"})
    if (r.has(key))
      r.fail_at(std::string("/") + key,
                "DeepSpeed's zero_optimization is a plan of its own: {\"system\": \"zero\", "
                "\"stage\": 2, ...}, with the keys of zero_optimization beside stage");
}
std::string lower_case(std::string name) {
  for (char& c : name)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return name;
}
bool is_other_system(const std::string& name) {
  for (const char* part : {"fsdp", "zero", "fully_shard"})
    if (name.find(part) != std::string::npos) return true;
  return false;
}

// What every system has.
constexpr const char* kSharedKeys[] = {"system",
                                       "backend",
                                       "accumulation_steps",
                                       "gloo_threads",
                                       "tcp_streams",
                                       "algorithm",
                                       "gloo_algorithm",
                                       "pytorch",
                                       "nccl",
                                       "open_mpi",
                                       "environment",
                                       "set_to_none",
                                       "unused_parameters",
                                       "units"};

// A knob's setting into its place.
struct ReadField {
  const Reader& r;
  const strategy::KnobRecord& knob;
  Plan& plan;
  std::string framework() const {
    std::string title = strategy::owner_of(knob.name)->title;  // "PyTorch DDP"
    return title.substr(0, title.find(' '));
  }
  void operator()(bool* b) const { *b = r.boolean(); }
  void operator()(std::optional<bool>* b) const { *b = r.boolean(); }
  // Also 5e8, as DeepSpeed's sizes are written.
  void operator()(std::int64_t* n) const {
    const double v = r.json().is_number_float() ? r.number() : 0.5;
    bool whole = v >= -9e15 && v <= 9e15 && v == static_cast<double>(static_cast<std::int64_t>(v));
    *n = whole ? static_cast<std::int64_t>(v) : r.integer();
  }
  void operator()(std::optional<double>* v) const {
    if (r.json().is_string())
      r.fail(std::string("is a bare number") + (*knob.unit ? std::string(" of ") + knob.unit : "") +
             ", as in " + framework() + " (for example " + knob.initially + ")");
    *v = r.number();
  }
  void operator()(std::vector<double>* list) const {
    for (const Reader& item : r.items()) list->push_back(item.number());
  }
  void operator()(std::vector<std::int64_t>* list) const {
    if (r.json().is_number()) return list->push_back(r.integer());
    for (const Reader& item : r.items()) list->push_back(item.integer());
    if (list->empty()) r.fail("a number, or a list of at least one");
  }
  // Also "a,b", as --set takes it.
  void operator()(std::vector<std::string>* list) const {
    if (r.json().is_string()) {
      const std::string text = r.text();
      for (std::size_t from = 0; from <= text.size();) {
        const std::size_t comma = std::min(text.find(',', from), text.size());
        list->push_back(text.substr(from, comma - from));
        from = comma + 1;
      }
    } else {
      for (const Reader& item : r.items()) list->push_back(item.text());
    }
    if (list->empty()) r.fail("a name, or a list of at least one");
  }
  void operator()(Reshard* reshard) const {
    if (r.json() == "default")
      reshard->ranks.reset();
    else if (r.json().is_boolean())
      reshard->ranks = r.boolean() ? 1 : 0;
    else if (r.json().is_number_integer() && r.integer() > 1)
      reshard->ranks = r.small(2, kMaxDevices);
    else
      r.fail("true, false, or a number of ranks above 1");
  }
  void operator()(const strategy::Choice& c) const {
    // "stage": 2, as in DeepSpeed's file.
    const bool counted = *c.names.front() >= '0' && *c.names.front() <= '9';
    if (counted && r.json().is_number_integer()) {
      const std::string text = r.json().dump();
      for (std::size_t k = 0; k < c.names.size(); ++k)
        if (text == c.names[k]) return c.set(plan, static_cast<int>(k));
      r.fail(text.substr(0, 40) + " is none of " + c.names.front() + " to " + c.names.back());
    }
    c.set(plan, static_cast<int>(r.choice(c.names)));
  }
};

// "hybrid_shard:8": the strategy with its ranks, as tune names it.
bool read_shape(const Reader& r, Plan& p) {
  if (p.system != System::Fsdp || !r.json().is_string()) return false;
  const std::string text = r.text();
  const auto setting =
      text.find(':') == std::string::npos ? std::nullopt : strategy::strategy_of_text(text);
  if (setting) setting->make(p);
  return setting.has_value();
}

// Which modules are wrapped, in one word, as tune names it.
void read_units(const Reader& r, Plan& p) {
  if (!r.has("units")) return;
  const Reader units = r.at("units");
  if (p.system != System::Fsdp && p.system != System::Fsdp2)
    units.fail(std::string("is of fsdp and fsdp2, and the plan's system is ") + name_of(p.system));
  for (const char* part : {"auto_wrap_policy", "blocks_per_unit", "ends_apart", "min_num_params"})
    if (r.has(part)) units.fail(std::string("says what ") + part + " says; give one of the two");
  const auto setting = strategy::units_of_text(
      units.json().is_number_integer() ? std::to_string(units.integer()) : units.text());
  if (!setting)
    units.fail(
        "blocks of a unit (2), of each unit (1/4x3/8), either with +ends where what is "
        "before and after the blocks is apart, or none");
  setting->make(p);
}

void read_knobs(const Reader& r, Plan& p) {
  std::set<std::string> known;
  for (const strategy::KnobRecord& k : strategy::record_of(p.system).knobs) {
    known.insert(k.name);
    if (r.has(k.name) &&
        !(std::string_view(k.name) == "sharding_strategy" && read_shape(r.at(k.name), p)))
      std::visit(ReadField{r.at(k.name), k, p}, k.field(p));
  }
  for (const strategy::SystemRecord& s : strategy::systems())
    for (const strategy::KnobRecord& k : s.knobs)
      if (r.has(k.name) && !known.count(k.name))
        r.at(k.name).fail(std::string("is a knob of ") + s.name + ", and the plan's system is " +
                          name_of(p.system));
}

// "zero3", "ZeRO-3": the stage as part of the name; 0 = it is none.
int zero_stage_of(const std::string& text) {
  std::string name = lower_case(text);
  std::erase_if(name, [](char c) { return c == '-' || c == '_'; });
  bool named = name.size() == 5 && name.starts_with("zero") && name[4] >= '1' && name[4] <= '3';
  return named ? name[4] - '0' : 0;
}

// DiLoCo: the outer step as part of the name.
bool is_diloco(const std::string& name) {
  return lower_case(name) == "diloco";
}

System read_system(const Reader& r) {
  std::string name = r.text();
  if (is_other_parallelism(name))
    r.fail("\"" + name + "\" is not data parallelism, and ddpsim does not model it; it models " +
           known_systems());
  if (zero_stage_of(name)) return System::Zero;
  std::vector<const char*> names;
  for (const strategy::SystemRecord& s : strategy::systems()) {
    auto is_it = [&](const char* known) { return lower_case(name) == known; };
    if (is_it(s.name) || std::any_of(s.aliases.begin(), s.aliases.end(), is_it)) return s.system;
    names.push_back(s.name);
  }
  if (lower_case(name).find("deepspeed") != std::string::npos)
    r.fail(
        "DeepSpeed's ZeRO is system \"zero\", with knob stage (1, 2 or 3): --plan zero --set "
        "stage=2");
  if (lower_case(name).find("megatron") != std::string::npos)
    r.fail(
        "Megatron-LM's data parallelism is system \"megatron\"; the distributed optimizer is its "
        "knob use_distributed_optimizer, and Megatron-FSDP is not modelled");
  if (const char* instead = nearest_plan(lower_case(name)))
    r.fail("\"" + name.substr(0, 40) + "\" is no plan: " + instead);
  if (is_other_system(lower_case(name)))
    r.fail("\"" + name.substr(0, 40) + "\": " + other_system());
  return static_cast<System>(r.choice(names));
}

}  // namespace

void refuse_other_parallelism(const Reader& r) {
  if (!r.json().is_object()) return;
  for (const auto& [key, value] : r.json().items())
    if (is_other_parallelism(key)) r.fail_at("/" + key, kDataParallelismOnly);
}

std::vector<const char*> plan_keys() {
  std::vector<const char*> out(std::begin(kSharedKeys), std::end(kSharedKeys));
  for (const strategy::SystemRecord& s : strategy::systems())
    for (const strategy::KnobRecord& k : s.knobs) out.push_back(k.name);
  return out;
}

Plan read_plan(const Reader& r) {
  refuse_other_parallelism(r);
  refuse_other_systems(r);
  r.only(plan_keys());
  Plan p;
  if (r.has("system")) p.system = read_system(r.at("system"));
  if (r.has("backend"))
    p.backend = static_cast<Backend>(r.at("backend").choice({"nccl", "gloo", "tcp", "mpi"}));
  if (r.has("accumulation_steps"))
    p.accumulation_steps = r.at("accumulation_steps").small(-1, INT32_MAX);
  if (r.has("gloo_threads")) p.gloo_threads = r.at("gloo_threads").small(-1, INT32_MAX);
  if (r.has("tcp_streams")) p.tcp_streams = r.at("tcp_streams").small(-1, INT32_MAX);
  if (r.has("algorithm"))
    p.algorithm = kTcpAlgorithms[r.at("algorithm")
                                     .choice({"ring", "double_binary_tree", "recursive_doubling",
                                              "halving_doubling", "bcube", "hierarchical",
                                              "torus2d", "direct"})];
  if (r.has("gloo_algorithm"))
    p.gloo_algorithm =
        r.at("gloo_algorithm").choice({"ring", "bcube"}) == 0 ? Algorithm::Ring : Algorithm::Bcube;
  if (r.has("pytorch")) p.pytorch = read_version(r.at("pytorch"));
  if (r.has("nccl")) {
    if (r.at("nccl").json().is_number())
      r.at("nccl").fail("a version is text in quotes, for example \"2.26\"");
    p.nccl = r.at("nccl").text();
  }
  if (r.has("open_mpi")) {
    if (r.at("open_mpi").json().is_number())
      r.at("open_mpi").fail("a version is text in quotes, for example \"4.1\"");
    p.open_mpi = r.at("open_mpi").text();
  }
  if (r.has("environment"))
    for (const auto& [name, value] : r.at("environment").members()) {
      bool number = value.json().is_number_integer();
      p.environment[name] = number ? std::to_string(value.integer()) : value.text();
    }
  if (r.has("set_to_none")) p.set_to_none = r.at("set_to_none").boolean();
  if (r.has("unused_parameters"))
    for (const Reader& n : r.at("unused_parameters").items())
      p.unused_parameters.push_back(n.text());
  read_knobs(r, p);
  read_units(r, p);
  if (p.system == System::LocalSgd && is_diloco(r.at("system").text())) {
    if (r.has("outer_optimizer") && p.outer_optimizer != OuterOptimizer::Nesterov)
      r.at("outer_optimizer").fail("DiLoCo's is nesterov; without one it is local_sgd");
    p.outer_optimizer = OuterOptimizer::Nesterov;
  }
  if (int stage = p.system == System::Zero ? zero_stage_of(r.at("system").text()) : 0) {
    if (r.has("stage") && p.zero.stage != stage)
      r.at("stage").fail("the plan's system is " + r.at("system").text());
    p.zero.stage = stage;
  }
  return p;
}

}  // namespace ddpsim::io
