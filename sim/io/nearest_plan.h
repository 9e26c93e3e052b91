// What people call a way of training that is no plan of its own.
#pragma once

#include <string>

namespace ddpsim::io {

// What is nearest to it, and how it is asked for; null: the name is none of these. REQUIRES: in
// lower case.
const char* nearest_plan(const std::string& name);

}  // namespace ddpsim::io
