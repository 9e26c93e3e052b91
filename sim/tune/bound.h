// What no setting of DDP's buckets can beat.
#pragma once

#include <optional>

#include "sim/predict/predict.h"

namespace ddpsim::predict {

// Each is a lower bound of the steady step of every bucketing of the same plan; `step` is the
// largest.
struct Bound {
  Duration compute;  // what the device (on a CPU: the host thread) does in a step, and what the
                     // host thread launches, without any bucket's own work
  Duration communication;  // from the first gradient on, all collectives one after another in the
                           // cheapest sizes; then the last copy out and the optimizer
  Duration tail;  // everything until the last gradient, the reduction of its bucket alone, its copy
                  // out, the optimizer
  Duration input;  // a step's batches, one after another; 0 = there is no input pipeline
  Duration step;
};

// None where a plan has no buckets, or one rank only. At message fidelity collectives count by the
// bytes that the busiest link carries only.
std::optional<Bound> lower_bound(const Question& q, const Options& options = {});

// What one all-reduce of a bucket of `bytes` on the wire takes at least, whatever else is in
// flight.
Duration least_time(const collective::Communicator& c, const Profile& p, std::int64_t bytes,
                    DType type);

}  // namespace ddpsim::predict
