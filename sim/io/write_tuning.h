// What `ddpsim tune` writes.
#pragma once

#include "sim/io/codecs.h"
#include "sim/tune/scaling.h"
#include "sim/tune/tune.h"

namespace ddpsim::io {

// ddpsim.tuning/1; keys as in docs/formats.md. `scaling`: null without a price.
OrderedJson write_tuning(const predict::Tuning& t, const predict::Scaling* scaling);

// Ranks, and what an epoch takes and costs with them.
OrderedJson write_scaling(const predict::Scaling& s);

}  // namespace ddpsim::io
