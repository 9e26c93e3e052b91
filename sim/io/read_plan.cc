#include "sim/io/read_plan.h"

#include <algorithm>
#include <set>

#include "sim/io/field_meant.h"
#include "sim/io/nearest_plan.h"
#include "sim/io/schema/scenario_fields.h"
#include "sim/model/cluster.h"
#include "sim/systems/base/decisions.h"
#include "sim/systems/base/settings.h"
#include "sim/units/number.h"

namespace ddpsim::io {
namespace {

// Keys and names of systems that a plan cannot be of.
std::string known_systems() {
  std::string out;
  const auto& all = systems::all_systems();
  for (std::size_t k = 0; k < all.size(); ++k)
    out += std::string(k == 0                ? ""
                       : k + 1 == all.size() ? " and "
                                             : ", ") +
           all[k].title + " (\"" + all[k].name() + "\")";
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

// A knob's setting into its place.
struct ReadField {
  const Reader& r;
  const systems::KnobRecord& knob;
  Plan& plan;
  std::string framework() const {
    std::string title = systems::owner_of(knob.name)->title;  // "PyTorch DDP"
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
  void operator()(systems::Reshard* reshard) const {
    if (r.json() == "default")
      reshard->ranks.reset();
    else if (r.json().is_boolean())
      reshard->ranks = r.boolean() ? 1 : 0;
    else if (r.json().is_number_integer() && r.integer() > 1)
      reshard->ranks = r.small(2, kMaxDevices);
    else
      r.fail("true, false, or a number of ranks above 1");
  }
  void operator()(const systems::Released& release) const {
    if (r.json().is_number())
      r.fail(std::string("a version is text in quotes, for example \"") + knob.initially + "\"");
    if (const std::string problem = release.set(plan, r.text()); !problem.empty()) r.fail(problem);
  }
  void operator()(const systems::Choice& c) const {
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

// A setting with another knob's in it, as tune names it.
bool read_with(const Reader& r, const char* knob, Plan& p) {
  auto* const own = systems::record_of(p.system).setting_with;
  if (!own || !r.json().is_string()) return false;
  const auto setting = own(knob, r.text());
  if (setting) setting->make(p);
  return setting.has_value();
}

// Which modules are wrapped, in one word, as tune names it.
void read_units(const Reader& r, Plan& p) {
  if (!r.has("units")) return;
  const Reader units = r.at("units");
  const systems::SystemRecord& system = systems::record_of(p.system);
  if (!system.wraps)
    units.fail(std::string("is of fsdp and fsdp2, and the plan's system is ") + name_of(p.system));
  for (const char* part : {"auto_wrap_policy", "blocks_per_unit", "ends_apart", "min_num_params"})
    if (r.has(part)) units.fail(std::string("says what ") + part + " says; give one of the two");
  const auto setting = system.setting_with(
      "units", units.json().is_number_integer() ? std::to_string(units.integer()) : units.text());
  if (!setting)
    units.fail(
        "blocks of a unit (2), of each unit (1/4x3/8), either with +ends where what is "
        "before and after the blocks is apart, or none");
  setting->make(p);
}

void read_knobs(const Reader& r, Plan& p) {
  std::set<std::string> known;
  for (const systems::KnobRecord& k : systems::record_of(p.system).knobs) {
    known.insert(k.name);
    if (r.has(k.name) && !read_with(r.at(k.name), k.name, p))
      std::visit(ReadField{r.at(k.name), k, p}, k.field(p));
  }
  for (const systems::SystemRecord& s : systems::all_systems())
    for (const systems::KnobRecord& k : s.knobs)
      if (r.has(k.name) && !known.count(k.name))
        r.at(k.name).fail(std::string("is a knob of ") + s.name() + ", and the plan's system is " +
                          name_of(p.system));
}

// Without regard to case, "-" and "_".
bool is_called(const std::string& name, const char* known) {
  auto bare = [](std::string text) {
    std::erase_if(text, [](char c) { return c == '-' || c == '_'; });
    return lower_case(text);
  };
  return bare(name) == bare(known);
}

// "zero3": a setting as part of the system's name.
void read_named_setting(const Reader& r, Plan& p) {
  for (const systems::Alias& alias : systems::record_of(p.system).aliases) {
    if (*alias.knob == 0 || !is_called(r.at("system").text(), alias.name)) continue;
    const Plan named = systems::with_setting(p, alias.knob, alias.setting);
    if (r.has(alias.knob) && systems::settings_text(named) != systems::settings_text(p))
      r.at(alias.knob)
          .fail("the plan's system is " + r.at("system").text() + ", a name with a setting (" +
                alias.knob + "=" + alias.setting + "); without one it is " + p.system.name());
    p = named;
  }
}

System read_system(const Reader& r) {
  std::string name = r.text();
  if (is_other_parallelism(name))
    r.fail("\"" + name + "\" is not data parallelism, and ddpsim does not model it; it models " +
           known_systems());
  std::vector<const char*> names;
  for (const systems::SystemRecord& s : systems::all_systems()) {
    auto is_it = [&](const systems::Alias& a) { return is_called(name, a.name); };
    if (is_called(name, s.name()) || std::any_of(s.aliases.begin(), s.aliases.end(), is_it))
      return s.system;
    names.push_back(s.name());
  }
  for (const systems::SystemRecord& s : systems::all_systems())
    if (s.meant && lower_case(name).find(s.meant->word) != std::string::npos)
      r.fail(s.meant->sentence);
  if (const char* instead = nearest_plan(lower_case(name)))
    r.fail("\"" + name.substr(0, 40) + "\" is no plan: " + instead);
  if (is_other_system(lower_case(name)))
    r.fail("\"" + name.substr(0, 40) + "\": " + other_system());
  return System(names[r.choice(names)]);
}

}  // namespace

void refuse_other_parallelism(const Reader& r) {
  if (!r.json().is_object()) return;
  for (const auto& [key, value] : r.json().items())
    if (is_other_parallelism(key)) r.fail_at("/" + key, kDataParallelismOnly);
}

void Codec<System>::read(const Reader& r, System& into) {
  into = read_system(r);
}
void Codec<System>::list(FieldRecord& f) {
  f.kind = FieldKind::Choice;
  f.loose = true;
  for (const systems::SystemRecord& s : systems::all_systems()) {
    f.choices.push_back(s.name());
    for (const systems::Alias& a : s.aliases) f.choices.push_back(a.name);
  }
}
void Codec<PytorchVersion>::read(const Reader& r, PytorchVersion& into) {
  if (r.json().is_number()) r.fail("a version is text in quotes, for example \"2.7\"");
  const std::string text = r.text();
  if (const auto version = pytorch::parse_version(text)) {
    into = *version;
    return;
  }
  const auto& oldest = pytorch::kReleases.front();
  const auto& newest = pytorch::kReleases.back();
  r.fail("\"" + text.substr(0, 40) + "\" is no release of PyTorch that was read; those are " +
         oldest.name + " to " + newest.name);
}
void Codec<AsRelease>::read(const Reader& r, AsRelease into) {
  if (r.json().is_number())
    r.fail(std::string("a version is text in quotes, for example \"") + into.such + "\"");
  into.value = r.text();
}
void Codec<AsEnvironment>::read(const Reader& r, AsEnvironment into) {
  for (const auto& [name, value] : r.members())
    into.value[name] =
        value.json().is_number_integer() ? std::to_string(value.integer()) : value.text();
}
void Codec<AsPlan>::read(const Reader& r, AsPlan into) {
  into.value = read_plan(r);
}

std::vector<const char*> plan_keys() {
  std::vector<const char*> out = keys_of<Plan>();
  out.push_back("units");
  for (const systems::SystemRecord& s : systems::all_systems())
    for (const systems::KnobRecord& k : s.knobs) out.push_back(k.name);
  return out;
}

namespace {

// A kind that stands in several ways.
FieldRecord& one_of(FieldRecord& f, std::vector<FieldKind> kinds) {
  f.kind = FieldKind::OneOf;
  for (FieldKind kind : kinds) f.fields.emplace_back().kind = kind;
  return f;
}
struct ListKnob {
  FieldRecord& f;
  void operator()(bool*) const { f.kind = FieldKind::Truth; }
  void operator()(std::optional<bool>*) const { f.kind = FieldKind::Truth; }
  void operator()(std::int64_t*) const { f.kind = FieldKind::Whole; }
  void operator()(std::optional<double>*) const { f.kind = FieldKind::Number; }
  void operator()(std::vector<double>*) const {
    f.kind = FieldKind::List;
    f.fields.emplace_back().kind = FieldKind::Number;
  }
  void operator()(std::vector<std::int64_t>*) const {
    one_of(f, {FieldKind::Whole, FieldKind::List}).fields[1].fields.emplace_back().kind =
        FieldKind::Whole;
  }
  void operator()(std::vector<std::string>*) const {
    one_of(f, {FieldKind::Text, FieldKind::List}).fields[1].fields.emplace_back();
  }
  void operator()(systems::Reshard*) const {
    one_of(f, {FieldKind::Truth, FieldKind::Whole, FieldKind::Choice}).fields[1].least = 2;
    f.fields[2].choices = {"default"};
  }
  void operator()(const systems::Released&) const { f.kind = FieldKind::Release; }
  void operator()(const systems::Choice& c) const {
    f.kind = FieldKind::Choice;
    f.choices.assign(c.names.begin(), c.names.end());
  }
};
FieldRecord list_knob(const systems::KnobRecord& k, const systems::SystemRecord& s) {
  FieldRecord f;
  f.key = k.name;
  f.unit = k.unit;
  f.help = k.help;
  f.initially = k.initially;
  Plan p;
  std::visit(ListKnob{f}, k.field(p));
  // Another knob's setting may be in its own: "hybrid_shard:8".
  if (f.kind == FieldKind::Choice && s.setting_with) f.loose = true;
  return f;
}
// The names that plans have for a system.
Condition of_system(const systems::SystemRecord& s) {
  Condition c{"system", {s.name()}};
  for (const systems::Alias& a : s.aliases) c.words.push_back(a.name);
  c.absent = s.system == Plan().system;
  return c;
}
std::vector<FieldRecord> list_plan() {
  std::vector<FieldRecord> out = fields_of<Plan>();
  FieldRecord units;
  units.key = "units";
  units.help = "which modules are wrapped: blocks of a unit (2, 1/4x3/8), with +ends, or none";
  units.only = Condition{"system", {}};
  one_of(units, {FieldKind::Whole, FieldKind::Text});
  for (const systems::SystemRecord& s : systems::all_systems()) {
    const Condition own = of_system(s);
    auto add = [&](FieldRecord f) {
      const auto same = std::find_if(out.begin(), out.end(),
                                     [&](const FieldRecord& o) { return o.key == f.key; });
      if (same == out.end()) {
        f.only = own;
        out.push_back(std::move(f));
        return;
      }
      Condition& all = *same->only;
      all.words.insert(all.words.end(), own.words.begin(), own.words.end());
      all.absent = all.absent || own.absent;
    };
    if (s.wraps) add(units);
    for (const systems::KnobRecord& k : s.knobs) add(list_knob(k, s));
  }
  return out;
}

}  // namespace

const std::vector<FieldRecord>& plan_fields() {
  static const std::vector<FieldRecord> all = list_plan();
  return all;
}

Plan read_plan(const Reader& r) {
  refuse_other_parallelism(r);
  refuse_other_systems(r);
  r.only(plan_keys());
  Plan p;
  ReadFields v(r);
  fields(v, p);
  read_knobs(r, p);
  read_units(r, p);
  if (r.has("system")) read_named_setting(r, p);
  return p;
}

}  // namespace ddpsim::io
