// A step of a file of ddpsim.program/1, operation by operation, until it is known which of their
// names are words of a system. Internal to read_playable.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "sim/io/program_head.h"

namespace ddpsim::io {

// What a file says of an operation, beyond what Op holds.
struct StatedOp {
  std::string name;
  OpKind kind;  // its `of` and `touches` are found out
  std::vector<TensorIndex> tensors;
  std::int64_t divided = 0;  // bytes
};

struct ListedStep {
  StepProgram step;  // its operations have no kind, word and subject, and it has no buckets
  std::vector<Reader> ops;
  std::vector<StatedOp> stated;  // of each
  std::unordered_map<std::string, std::uint32_t> number_of;
};
// The file's step of this number. Adds to the head's groups those that a collective names by ranks.
ListedStep read_listed_step(const Reader& r, std::size_t number, bool last, ProgramHead& head);

}  // namespace ddpsim::io
