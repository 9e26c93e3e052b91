// The GPU whose kernels were measured, for profiles whose `kernels` are carried over from it: the
// binary brings the files of its two profiles along, and the table of GPUs' names.
#pragma once

#include "sim/model/profile.h"

namespace ddpsim::io {

extern const char* const kReferenceName;  // "h100-sxm-measured"
extern const char* const kReferenceMeasured;
extern const char* const kReferenceDatasheet;
extern const char* const kGpus;  // ddpsim.gpus/1

// Kernels, calls of the host and SMs as they were measured; peaks, bandwidth and clock of its
// datasheet. Read once.
const Profile& reference_gpu();

}  // namespace ddpsim::io
