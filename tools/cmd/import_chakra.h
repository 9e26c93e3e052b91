// ddpsim import chakra FILES.
#pragma once

#include "tools/cmd/command.h"

namespace ddpsim::cli {

void add_import_chakra(Command& import, Terminal& t);

}  // namespace ddpsim::cli
