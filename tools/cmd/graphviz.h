// Graphviz as a child process.
#pragma once

#include <string>

namespace ddpsim::cli {

// The picture that `dot -Tsvg`, found on PATH, makes of DOT text. Throws InputError with the
// package's name if there is none, or with what it said.
std::string graphviz_svg(const std::string& dot);

}  // namespace ddpsim::cli
