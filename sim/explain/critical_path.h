// Why a step ends when it does: the chain of operations of which none could have begun earlier.
#pragma once

#include <string>
#include <vector>

#include "sim/explain/played_step.h"

namespace ddpsim::predict {

// A stretch of the critical path: nothing in it could have begun earlier. Times from the start of
// the step.
struct PathPart {
  std::string
      what;  // "forward", "backward until layer1.0.conv1.weight", "all-reduce of bucket 3 (12 MiB)"
  OpKind kind;             // of its last operation
  std::int64_t bytes = 0;  // of a collective
  bool between = false;    // copies between reductions that were decided before the step
  Duration begin;
  Duration end;
  Duration waited;  // a collective: from ready to begin
  std::string waited_for;
};

std::vector<PathPart> critical_path(const PlayedStep& step, System system);

// One clause a part; collectives one after another are one, with the copies between them.
std::string path_in_words(const std::vector<PathPart>& path);

}  // namespace ddpsim::predict
