// PyTorch fully_shard: what its record is made of.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "sim/systems/base/record.h"

namespace ddpsim::systems {

// As FSDP1, without a warm-up. REQUIRES: workload.times.layers.
Program lower_fsdp2(const TimedWorkload& workload, const Plan& plan, Steps steps);
std::span<const OpWord> fsdp2_words();
Problem validate_fsdp2(const Plan& p, const Workload& w, DeviceKind device);
std::vector<Decision> fsdp2_decisions(const Plan& plan, const DecidedFor& of);
std::optional<Setting> fsdp2_setting(std::string_view knob, const std::string& text);
std::vector<std::string> fsdp2_script(const Plan& plan, const Workload& w, DeviceKind device,
                                      int ranks, int per_host);

}  // namespace ddpsim::systems
