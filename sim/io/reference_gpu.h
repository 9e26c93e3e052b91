// The GPU whose kernels were measured, for profiles whose `kernels` are carried over from it: the
// binary brings its two profiles along, whole, as JSON.
#pragma once

#include "sim/model/profile.h"

namespace ddpsim::io {

extern const char* const kReferenceName;  // "h100-sxm-measured"
extern const char* const kReferenceMeasured;
extern const char* const kReferenceDatasheet;

// Kernels, calls of the host and SMs as they were measured; peaks, bandwidth and clock of its
// datasheet. Read once.
const Profile& reference_gpu();

}  // namespace ddpsim::io
