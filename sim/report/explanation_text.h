// What `ddpsim explain SCENARIO` prints.
#pragma once

#include <string>

#include "sim/explain/explain.h"

namespace ddpsim::report {

// `question`: its first line. `markdown`: GitHub's tables instead of columns.
std::string explanation_page(const std::string& question, const predict::Explanation& e,
                             bool markdown);

}  // namespace ddpsim::report
