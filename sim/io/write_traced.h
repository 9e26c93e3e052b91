// What is made of traces, as files.
#pragma once

#include "sim/analysis/traced_ranks.h"
#include "sim/analysis/traced_workload.h"
#include "sim/io/codecs.h"

namespace ddpsim::io {

// ddpsim.workload/1, captured. `source`: its keys beside those of the trace; read_workload() reads
// the result.
OrderedJson write_workload(const analysis::ImportedWorkload& imported, const analysis::Trace& trace,
                           const OrderedJson& source);
// Kinds of the Run's operations, from the words of the systems.
void name_kinds(Run& run, const analysis::TracedRanks& job);
// write_run(), with what the trace says of each collective beside its bytes.
OrderedJson write_traced_run(const Run& run, const analysis::TracedRanks& job);

}  // namespace ddpsim::io
