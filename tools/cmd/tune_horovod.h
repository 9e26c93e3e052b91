// ddpsim tune --autotune: what Horovod's own tuner would do.
#pragma once

#include "tools/cmd/command.h"
#include "tools/cmd/flags.h"
#include "tools/cmd/question.h"

namespace ddpsim::cli {

void autotune_command(Terminal& t, const Loaded& l, std::uint64_t seed, const OutputFlags& output);

}  // namespace ddpsim::cli
