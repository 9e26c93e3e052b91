// What a person decides of a plan that shards, each with the settings worth trying: which modules
// are wrapped, who shards with whom, how far is looked ahead, how large buckets are.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sim/model/plan.h"

namespace ddpsim::strategy {

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

// As a plan has them without a workload, whose blocks only a check of the plan counts: "2",
// "1/2x15/1", "2+ends", "none"; and of FSDP1's strategies "hybrid_shard:8".
std::optional<Setting> units_of_text(const std::string& text);
std::optional<Setting> strategy_of_text(const std::string& text);

// Units of so many blocks each; "+ends": what is before and after them apart.
Setting units_setting(std::vector<std::int64_t> blocks, bool ends_apart);

}  // namespace ddpsim::strategy
