// ddpsim export chakra.
#pragma once

#include "tools/cmd/command.h"

namespace ddpsim::cli {

void add_export_chakra(Command& group, Terminal& t);

}  // namespace ddpsim::cli
