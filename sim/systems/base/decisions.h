// What a person decides of a plan that shards, each with the settings worth trying: which modules
// are wrapped, who shards with whom, how far is looked ahead, how large buckets are.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sim/model/plan.h"

namespace ddpsim::systems {

// A setting of one decision, which may take several knobs of a plan.
struct Setting {
  std::string text;  // as --values takes it
  std::function<void(Plan&)> make;
};
struct Decision {
  std::string name;     // a knob by its upstream name, or "units": which modules are wrapped
  std::string meaning;  // one line
  std::vector<Setting> settings;
  bool joint = true;  // false: decides nothing over NCCL, so that only who asks for it gets it
  // For a decision that is more than a knob: a setting as it may be typed, its help, and the plan's
  // own setting.
  std::optional<Setting> (*parse)(const Workload&, const std::string& text) = nullptr;
  const char* help = "";
  std::string (*text_of)(const Plan&) = nullptr;
};

// Who decides: the workload's blocks, the ranks, the devices of a host.
struct DecidedFor {
  const Workload& workload;
  int ranks = 1;
  int per_host = 1;
};

// Of the plan's system, in the order in which they are searched; none of a system that does not
// shard. Settings that another decision rules out are among them: whoever tries one checks the
// plan.
std::vector<Decision> decisions(const Plan& plan, const DecidedFor& of);

// What was typed, if it is a setting of the decision.
std::optional<Setting> parse_setting(const Decision& decision, const std::string& text,
                                     const DecidedFor& of);
// What `text` may be, in words.
std::string settings_help(const Decision& decision);

// As the plan has it, in the words of its settings.
std::string setting_text(const Plan& plan, const Decision& decision);

// ---- for records
// The knob of the same name at a setting.
Setting knob_setting(const std::string& knob, const std::string& text);
// A knob of the plan's system with these settings.
Decision of_knob(const Plan& plan, const std::string& name,
                 const std::vector<std::string>& settings);
// As whole numbers are typed.
std::vector<std::string> texts(std::initializer_list<double> values);

}  // namespace ddpsim::systems
