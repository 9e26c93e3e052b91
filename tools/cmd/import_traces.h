// ddpsim import kineto TRACES, ddpsim import nsys FILES.
#pragma once

#include "tools/cmd/command.h"

namespace ddpsim::cli {

void add_import_traces(Command& import, Terminal& t);

}  // namespace ddpsim::cli
