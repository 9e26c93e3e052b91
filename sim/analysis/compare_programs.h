// Two Programs from files (ddpsim.program/1, docs/formats.md): a lowered one beside one that a
// recorder of a real system wrote, communication by communication. This is how the schedule of a
// system is proved. What only the lowered one knows (launches, copies, waits in C++) is not asked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ddpsim::analysis {

struct ListedCollective {
  std::string op;         // its name in its file
  std::string operation;  // "all_reduce", "broadcast", ...
  std::string dtype;      // on the wire; "" = the file does not say
  std::string group;      // "0,1"; "" = all ranks
  std::int64_t bytes = 0;
  std::vector<std::string> tensors;  // in the order in which they lie there; empty: not said
  std::string after;                 // the last gradient that it waits for; "" = none
};
struct ListedStep {
  std::string kind;
  std::vector<std::string> gradients;  // in order of arrival
  std::vector<ListedCollective> collectives;
};
struct ListedProgram {
  std::vector<ListedStep> steps;
};

struct ProgramDifference {
  std::size_t step = 0;  // from 0
  std::string first;     // collectives; "" = there is none
  std::string second;
  std::string what;  // a sentence
};
struct ProgramComparison {
  std::size_t steps = 0;
  std::size_t collectives = 0;  // of the first, in these steps
  std::size_t equal = 0;        // that the second has, too, at that place and in every respect
  std::vector<ProgramDifference> differences;
};

// Step by step; where one lists more steps, the other's last stands for its later ones. Collectives
// are aligned by operation, bytes and tensors, and are then compared in every respect that both
// files know.
// REQUIRES: each has a step.
ProgramComparison compare_programs(const ListedProgram& first, const ListedProgram& second);

}  // namespace ddpsim::analysis
