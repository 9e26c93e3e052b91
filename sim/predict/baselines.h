// Two simpler models of the same question, to show beside ddpsim what its mechanisms are worth.
// Neither is tuned to any measured Run.
#pragma once

#include "sim/predict/predict.h"

namespace ddpsim::predict {

// What a spreadsheet does. Rank 0's compute times; each bucket's ring in closed form, 2(n-1)/n S
// over the slowest HOST link at its nominal rate (hosts with several NICs use them all); buckets
// one after another, each from max(ready on rank 0, end of the one before); then the optimizer. No
// uplink, no link shared by ring edges, no latency, no burst, no reduction, no collective but the
// gradients', no straggler.
Duration naive_step(const Question& q);

// A good single queue. The slowest rank's compute times; every collective in one queue, from
// max(latest ready over all ranks, end of the one before); its ring (broadcast: tree, round by
// round) at the bottleneck link with the load that the ring's edges put on it, at the rate that the
// Profile's efficiency leaves. No latency, no burst, no reduction, one collective at a time, no
// other job.
Duration queue_step(const Question& q);

}  // namespace ddpsim::predict
