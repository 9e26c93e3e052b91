// PyTorch's profiler (Kineto, and the list of events that builds without it export) as a Trace.
// Forms read: torch/csrc/autograd/profiler_{kineto,legacy}.cpp, libkineto/src/output_json.cpp of
// PyTorch 1.8 to 2.x.
#pragma once

#include <string>

#include "sim/analysis/trace.h"

namespace ddpsim::io {

// Gzip or not, of any length: the file is read twice, a block at a time, and only the last
// `iterations` iterations are kept. Throws InputError: it cannot be read, is no trace, or nothing
// in it says where an iteration begins.
analysis::Trace read_kineto(const std::string& path, int iterations);

// What to record instead, as two lines of Python.
std::string kineto_remedy();

}  // namespace ddpsim::io
