// What the host pays for a framework's calls. Pure.
#pragma once

#include <string>
#include <vector>

#include "sim/model/profile.h"
#include "sim/model/run.h"

namespace ddpsim::calib {

// torch_host/OP/forward and /backward -> host.calls; torch_host/add/no_grad, a call that launches
// one kernel -> host.launch. CUDA's bare launch (sample `launch`) is said in a note and is no part
// of the profile: a framework's call costs several of it. The section stays a datasheet's: the rest
// of it was not measured, and another machine's host differs.
void fit_host(const std::vector<const Run*>& runs, Profile& p, std::vector<std::string>& notes);

}  // namespace ddpsim::calib
