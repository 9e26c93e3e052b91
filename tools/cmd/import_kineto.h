// ddpsim import kineto TRACES.
#pragma once

#include "tools/cmd/command.h"

namespace ddpsim::cli {

void add_import_kineto(Command& import, Terminal& t);

}  // namespace ddpsim::cli
