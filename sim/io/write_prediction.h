// What `ddpsim predict` and `ddpsim trace` write.
#pragma once

#include <string>

#include "sim/io/codecs.h"
#include "sim/predict/predict.h"

namespace ddpsim::io {

// {"summary": {...}, "run": {...}}; keys as in docs/formats.md.
OrderedJson write_summary(const predict::Prediction& p);
OrderedJson write_prediction(const predict::Prediction& p);

// Chrome / Perfetto trace of the recorded step: a process per class of ranks, a thread per lane,
// and for each bucket a flow from its last gradient to its launch to its completion.
std::string write_trace(const Run& run);

}  // namespace ddpsim::io
