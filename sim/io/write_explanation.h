// What `ddpsim explain SCENARIO` writes.
#pragma once

#include "sim/explain/explain.h"
#include "sim/io/codecs.h"

namespace ddpsim::io {

// ddpsim.explanation/1; keys as in docs/formats.md.
OrderedJson write_explanation(const predict::Explanation& e);

}  // namespace ddpsim::io
