// ddpsim import horovod-timeline FILE.
#pragma once

#include "tools/cmd/command.h"

namespace ddpsim::cli {

void add_import_horovod(Command& import, Terminal& t);

}  // namespace ddpsim::cli
