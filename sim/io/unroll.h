// Workload files that say a repeated block once (docs/formats.md, `repeat`).
#pragma once

#include <string>

#include "sim/io/json_reader.h"

namespace ddpsim::io {

// Whether rows of the document's `tensors` or `layers` repeat.
bool repeats(const Json& document);

// The document with every repetition written out: "{}" in a name is its number, tensors of a layer
// are those of the same repetition. Without `arrival` it is the layers' tensors, last layer first.
// Throws InputError. REQUIRES: repeats(document).
Json unrolled(const Json& document, const std::string& file);

}  // namespace ddpsim::io
