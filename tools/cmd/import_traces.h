// ddpsim import kineto TRACES, ddpsim import nsys FILES.
#pragma once

#include <string>

#include "sim/io/codecs.h"
#include "tools/cmd/command.h"

namespace ddpsim::cli {

void add_import_traces(Command& import, Terminal& t);

// What an imported file is called: its name up to the first point, "imported" where that is empty.
std::string imported_name(const std::string& path);

// Indented by one, and a line's end.
std::string json_text(const io::OrderedJson& j);

}  // namespace ddpsim::cli
