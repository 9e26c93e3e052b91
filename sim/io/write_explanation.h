// What `ddpsim explain SCENARIO` writes.
#pragma once

#include "sim/io/codecs.h"
#include "sim/predict/explain.h"

namespace ddpsim::io {

// ddpsim.explanation/1; keys as in docs/formats.md.
OrderedJson write_explanation(const predict::Explanation& e);

}  // namespace ddpsim::io
