// A plan in words: its system's title, and its knobs as --set takes them.
#pragma once

#include <string>
#include <string_view>

#include "sim/systems/base/record.h"

namespace ddpsim::systems {

// With what of the plan decides most: "PyTorch 2.7 FSDP2", "DeepSpeed ZeRO-3".
std::string title_of(const Plan& plan);
// The knobs that are not at their default, as --set takes them: "sharding_strategy=shard_grad_op,
// no_sync=true".
std::string settings_text(const Plan& plan);
// A knob's setting as --set takes it; "" = left at its default. By its name: "", too, where the
// plan's system has no such knob.
std::string setting_of(const Plan& plan, const KnobRecord& knob);
std::string setting_of(const Plan& plan, std::string_view knob);
// The plan with a knob of its system set. REQUIRES: as --set takes it.
Plan with_setting(const Plan& plan, std::string_view knob, const std::string& setting);
// As settings have it: ten digits, without trailing zeros.
std::string number_text(double v);
// None: no system has this knob.
const SystemRecord* owner_of(std::string_view knob);

}  // namespace ddpsim::systems
