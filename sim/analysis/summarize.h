// summarize says where the time of a step goes, the same for measured and predicted Runs; mean_of
// says it of several steps.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/analysis/intervals.h"
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
  Duration exposed;  // its own part of Summary::exposed_communication, by the rule of exposure.h
  std::vector<Interval> exposed_at;  // when, ps from the start of the step
};
// Communication that carries no tensors of the model's, or is none of a collective: a barrier, a
// copy to the host, a wait.
struct OtherCommunication {
  std::string name;
  Duration exposed;  // as BucketTimes::exposed
};

// All of one steady step, on the actor that ends last, or the mean of several. Exactly:
//   step = compute + exposed_communication + input + idle
//   compute = forward + backward + optimizer + ddp
//   exposed_communication = the sum of `exposed` over buckets and others
struct Summary {
  Duration step;
  Duration forward;
  Duration backward;  // gradient computation; what runs beside forward is forward
  Duration ddp;  // bucket copies, casts, divisions, zero_grad, buffers: work that averaging adds on
                 // the device
  Duration optimizer;              // but what runs beside forward or backward
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
  std::vector<BucketTimes> buckets;        // gradient all-reduces in order of launch
  std::vector<OtherCommunication> others;  // in order of launch
};

// REQUIRES: a step, and the spans of the last one.
Summary summarize(const Run& run);
// The same of one step's spans, on the clock of `from`, where it began.
Summary summarize(std::span<const Span> spans, TimePoint from, Duration step);

// The mean of steps, whose parts sum to it as those of one step do. Step k counts `weights[k]`
// times; none = each once. `step`: their mean, to the picosecond. What is no length of time
// (the actor; when a bucket is ready, begins, ends and is exposed) is of the last step; the exposed
// time of the k-th bucket is the mean over the k-th of each step, and what the last step has no
// bucket for is in `others`. REQUIRES: not empty; a weight for each, or none.
Summary mean_of(std::span<const Summary> steps, Duration step,
                std::span<const double> weights = {});

}  // namespace ddpsim::analysis
