// Nsight Systems' SQLite export as Traces. Tables and columns: "SQLite Schema Reference" of
// NVIDIA's Nsight Systems documentation, 2019 to 2025; names of ranges: getNvtxStr of
// torch/csrc/profiler/util.cpp (emit_nvtx), PyTorch 1.8 to 2.x.
#pragma once

#include <string>
#include <vector>

#include "sim/analysis/trace.h"

namespace ddpsim::io {

// By its first bytes. False also where it cannot be read.
bool is_sqlite(const std::string& path);

// Whether this build has SQLite.
bool reads_nsys();
// One Trace of each process that trains, by device, then process; only the last `iterations`
// iterations are kept. Throws InputError: it is no such file, it lacks tables or ranges, or this
// build has no SQLite.
std::vector<analysis::Trace> read_nsys(const std::string& path, int iterations);

// What to record instead.
std::string nsys_remedy();

}  // namespace ddpsim::io
