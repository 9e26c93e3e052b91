// A plan in a scenario: the keys of all systems, and what people call them.
#pragma once

#include <vector>

#include "sim/io/json_reader.h"
#include "sim/model/plan.h"

namespace ddpsim::io {

// The shared keys, then the knobs of each system.
std::vector<const char*> plan_keys();
// Throws InputError: names what is wrong, and where.
Plan read_plan(const Reader& r);
// Of a scenario, or a plan: keys that ddpsim has nothing for.
void refuse_other_parallelism(const Reader& r);

}  // namespace ddpsim::io
