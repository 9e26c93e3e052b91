// What a Run says, the same for measured and predicted: where the time of a step goes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/model/run.h"

namespace ddpsim::analysis {

struct BucketTimes {
  std::string name;
  std::vector<TensorIndex> tensors;
  std::int64_t bytes = 0;
  Duration ready;  // relative to the start of the step; negative if work of this step began before
                   // the last one ended
  Duration begin;
  Duration end;
  std::string algorithm;
  Duration exposed;  // of ready to end, inside the step: time in which nothing computes. Buckets in
                     // flight together each count it
};

// All of one steady step, on the actor that ends last. step = compute + exposed_communication +
// input + idle.
struct Summary {
  Duration step;
  Duration forward;
  Duration backward;  // gradient computation
  Duration ddp;  // bucket copies, casts, divisions, zero_grad, buffers: work that averaging adds on
                 // the device
  Duration optimizer;
  Duration compute;                // union of all of the above
  Duration communication;          // union of time in which a collective is in flight or waited for
  Duration exposed_communication;  // the part of it in which nothing computes
  Duration copies;                // of it, union of copies between the device and its host's memory
  Duration exposed_copies;        // the part of them in which nothing computes
  Duration idle;                  // none of these: the device waits for its host
  std::optional<Duration> input;  // the host waits for its batch, and nothing else goes on; none =
                                  // there is no input pipeline
  double overlap = 0;             // 1 - exposed / communication; 0 without communication
  Duration host_busy;             // host thread launching (GPU)
  int actor = 0;
  std::vector<BucketTimes> buckets;  // gradient all-reduces in order of launch
};

// REQUIRES: a step, and the spans of the last one.
Summary summarize(const Run& run);

}  // namespace ddpsim::analysis
