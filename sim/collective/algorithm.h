// Algorithms of collectives, as this room knows them: which of them perform which operation as step
// lists.
#pragma once

#include "sim/model/algorithm.h"

namespace ddpsim::collective {

using ddpsim::Algorithm;
using ddpsim::name_of;
using ddpsim::Operation;

// Whether schedule.h has the steps. Halving-doubling's reduce-scatter and all-gather: only where
// `ranks` is a power of two.
bool performs(Algorithm a, Operation o, int ranks);

}  // namespace ddpsim::collective
