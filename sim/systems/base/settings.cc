#include "sim/systems/base/settings.h"

#include <algorithm>
#include <cstdio>

#include "sim/units/number.h"

namespace ddpsim::systems {

namespace {

void choose(Plan& plan, const KnobRecord& r, const std::string& text) {
  Field f = r.field(plan);
  if (auto* c = std::get_if<Choice>(&f)) {
    auto at = std::find(c->names.begin(), c->names.end(), text);
    if (at != c->names.end()) c->set(plan, static_cast<int>(at - c->names.begin()));
  } else if (bool** b = std::get_if<bool*>(&f)) {
    **b = text == "true";
  } else if (std::optional<bool>** o = std::get_if<std::optional<bool>*>(&f)) {
    **o = text == "true";
  } else if (std::int64_t** n = std::get_if<std::int64_t*>(&f)) {
    **n = static_cast<std::int64_t>(parse_number(text).value_or(0));
  } else if (Reshard** reshard = std::get_if<Reshard*>(&f)) {
    (*reshard)->ranks = text == "true" ? 1 : text == "false" ? 0 : parse_integer(text).value_or(1);
  } else if (std::optional<double>** v = std::get_if<std::optional<double>*>(&f)) {
    **v = parse_number(text);
  } else if (auto* release = std::get_if<Released>(&f)) {
    release->set(plan, text);
  }
}

}  // namespace

std::string title_of(const Plan& plan) {
  const SystemRecord& s = record_of(plan.system);
  if (*s.title_knob != 0) return std::string(s.title) + "-" + setting_of(plan, s.title_knob);
  return s.versions ? std::string("PyTorch ") + name_of(plan.pytorch) + " " + s.brief : s.title;
}

std::string number_text(double v) {
  char text[40];
  std::snprintf(text, sizeof text, "%.10g", v);
  return text;
}

std::string setting_of(const Plan& plan, const KnobRecord& knob) {
  Plan copy = plan;
  struct Text {
    const Plan& plan;
    std::string operator()(bool* b) const { return *b ? "true" : "false"; }
    std::string operator()(std::optional<bool>* b) const {
      return !*b ? "" : **b ? "true" : "false";
    }
    std::string operator()(std::int64_t* n) const { return std::to_string(*n); }
    std::string operator()(std::optional<double>* v) const { return *v ? number_text(**v) : ""; }
    std::string operator()(Reshard* r) const {
      if (!r->ranks) return "";
      return *r->ranks > 1 ? std::to_string(*r->ranks) : *r->ranks == 1 ? "true" : "false";
    }
    std::string operator()(std::vector<double>* list) const { return all(*list); }
    std::string operator()(std::vector<std::int64_t>* list) const {
      return all({list->begin(), list->end()});
    }
    std::string operator()(std::vector<std::string>* list) const {
      std::string out;
      for (const std::string& name : *list) out += (out.empty() ? "" : ",") + name;
      return out;
    }
    std::string all(const std::vector<double>& list) const {
      std::string out;
      for (double v : list) out += (out.empty() ? "[" : ",") + number_text(v);
      return out.empty() ? out : out + "]";
    }
    std::string operator()(const Choice& c) const {
      int k = c.get(plan);
      return k < 0 ? "" : c.names[k];
    }
    std::string operator()(const Released& r) const { return r.get(plan); }
  };
  return std::visit(Text{plan}, knob.field(copy));
}

std::string setting_of(const Plan& plan, std::string_view knob) {
  for (const KnobRecord& k : record_of(plan.system).knobs)
    if (knob == k.name) return setting_of(plan, k);
  return {};
}

std::string settings_text(const Plan& plan) {
  Plan initial;
  initial.system = plan.system;
  std::string out;
  for (const KnobRecord& k : record_of(plan.system).knobs) {
    std::string now = setting_of(plan, k);
    if (now != setting_of(initial, k))
      out += (out.empty() ? "" : ", ") + std::string(k.name) + "=" + now;
  }
  return out;
}

Plan with_setting(const Plan& plan, std::string_view knob, const std::string& setting) {
  Plan out = plan;
  for (const KnobRecord& r : record_of(plan.system).knobs)
    if (knob == r.name) choose(out, r, setting);
  return out;
}

const SystemRecord* owner_of(std::string_view knob) {
  for (const SystemRecord& s : all_systems())
    for (const KnobRecord& k : s.knobs)
      if (knob == k.name) return &s;
  return nullptr;
}

}  // namespace ddpsim::systems
