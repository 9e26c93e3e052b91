// A Profile's `power` as JSON (docs/formats.md).
#pragma once

#include "sim/io/codecs.h"
#include "sim/model/profile.h"

namespace ddpsim::io {

// Measured, or carried over from the reference GPU and a card of the same chip. REQUIRES: compute
// and memory of `p` are read.
PowerSection read_power(const Reader& r, const Profile& p);
OrderedJson write_power(const PowerSection& p);

}  // namespace ddpsim::io
