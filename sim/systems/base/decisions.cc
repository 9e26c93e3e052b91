#include "sim/systems/base/decisions.h"

#include <algorithm>
#include <cmath>

#include "sim/systems/base/settings.h"
#include "sim/units/number.h"

namespace ddpsim::systems {

namespace {

const KnobRecord* knob_of(const Plan& plan, const std::string& name) {
  for (const KnobRecord& k : record_of(plan.system).knobs)
    if (name == k.name) return &k;
  return nullptr;
}

}  // namespace

Setting knob_setting(const std::string& knob, const std::string& text) {
  return {text, [knob, text](Plan& p) { p = with_setting(p, knob, text); }};
}
Decision of_knob(const Plan& plan, const std::string& name,
                 const std::vector<std::string>& settings) {
  Decision d{name, knob_of(plan, name)->help, {}, true};
  for (const std::string& s : settings) d.settings.push_back(knob_setting(name, s));
  return d;
}
std::vector<std::string> texts(std::initializer_list<double> values) {
  std::vector<std::string> out;
  for (double v : values) out.push_back(std::to_string(static_cast<std::int64_t>(v)));
  return out;
}

std::vector<Decision> decisions(const Plan& plan, const DecidedFor& of) {
  auto* const decided = record_of(plan.system).decisions;
  return decided ? decided(plan, of) : std::vector<Decision>{};
}

std::optional<Setting> parse_setting(const Decision& d, const std::string& text,
                                     const DecidedFor& of) {
  if (d.parse) return d.parse(of.workload, text);
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
  if (*d.help) return d.help;
  std::string out;
  for (const Setting& s : d.settings) out += (out.empty() ? "" : ", ") + s.text;
  return "one of " + out + ", or another number that the knob takes";
}

std::string setting_text(const Plan& plan, const Decision& d) {
  if (d.text_of) return d.text_of(plan);
  const std::string text = setting_of(plan, *knob_of(plan, d.name));
  return text.empty() ? "default" : text;
}

}  // namespace ddpsim::systems
