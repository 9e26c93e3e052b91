// What a file of ddpsim.program/1 says before its steps. Internal to read_playable.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "sim/io/program_file.h"

namespace ddpsim::io {

struct ProgramHead {
  ProgramFile file;     // without steps and names of operations
  int rank = 0;         // whose Program it is
  bool placed = false;  // the file says on what device it is
  std::vector<std::string> lanes;
  std::unordered_map<std::string, TensorIndex> tensor_numbers;
};
// For devices of this kind.
ProgramHead read_program_head(const Reader& file, DeviceKind device);

// An integer that is at least `low` and at most `high`; an error says `what` it is.
std::int64_t between(const Reader& r, std::int64_t low, std::int64_t high, const char* what);
DType read_dtype(const Reader& r);

}  // namespace ddpsim::io
