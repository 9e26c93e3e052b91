// What Horovod writes about itself (HOROVOD_TIMELINE): of each tensor when ranks negotiated about
// it, and what was done with it. Source: horovod 0.28.1, horovod/common/timeline.cc,
// operations.cc (PerformOperation), common.h (names of activities).
#pragma once

#include <string>
#include <vector>

#include "sim/model/run.h"

namespace ddpsim::io {

// Microseconds of the file's clock.
struct TimelineActivity {
  std::string name;  // "MPI_ALLREDUCE", "MEMCPY_IN_FUSION_BUFFER", "QUEUE", ...
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
// What was reduced together.
struct TimelineReduction {
  std::vector<std::size_t> tensors;  // into HorovodTimeline::tensors, in the buffer's order
  std::vector<TimelineActivity> activities;
  // The first and the last of its tensors to be negotiated about; = begin if none was.
  std::int64_t first_asked = 0;
  std::int64_t asked = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
struct HorovodTimeline {
  struct Tensor {
    std::string name;
    std::string dtype;  // "" = the file does not say it
    std::int64_t elements = 0;
  };
  std::vector<Tensor> tensors;
  // By step: a tensor is reduced once in each. In the order of their ends.
  std::vector<std::vector<TimelineReduction>> steps;
  std::vector<std::int64_t> cycles;  // CYCLE_START marks
  int ranks = 0;                     // that were named; 0 = none was
  // Of tensors that ranks asked for by name: how often each rank was the last.
  std::vector<std::int64_t> last_rank;
  std::vector<std::string> notes;
};

// A file that its writer had no time to end is read as far as it goes. Throws InputError.
HorovodTimeline read_horovod_timeline(const std::string& text, const std::string& file);
// Steps end with the end of their last reduction; the first begins with its first request.
Run run_of(const HorovodTimeline& timeline);

}  // namespace ddpsim::io
