// One collective's price taken apart, and what each rank has to do for it: what `ddpsim explain
// --op` says of backends tcp, gloo and mpi. docs/model.md 4.10.
#pragma once

#include <functional>

#include "sim/collective/price.h"

namespace ddpsim::collective {

// total = launch + latency + transfer + sums. `sums`: what it would take less if sums took no time;
// `latency`: what it would then take less if messages had none (of go-aheads and of Open MPI's
// rendezvous, too); `transfer`: the rest. What passes beside something longer is in no part: that
// is where Gloo's ring, which has two segments in flight, hides its latencies and sums. None is
// negative: a step's time does not fall where the gap before it grows (step_time, price_terms.h).
struct Parts {
  Duration launch;  // launch_time(); backend tcp: before it is queued (queued_launch)
  Duration latency;
  Duration transfer;
  Duration sums;
  Duration total;
};
// `of`: a price of this communicator, asked again with other profiles and hops. REQUIRES: what
// price() requires; no communicator with nccl_group(), whose price has parts of its own.
using PriceOf = std::function<Price(const Communicator&, const Profile&)>;
Parts parts_of(const Communicator& c, const Profile& p, const PriceOf& of);

// What a price makes each rank do.
struct Work {
  std::int64_t steps = 0;      // one after another; Gloo's ring: segments that a rank sends
  double sent = 0;             // bytes, by the rank that sends most
  std::int64_t message = 0;    // bytes of the largest message
  double bus_bytes_per_s = 0;  // nccl-tests' bus bandwidth; 0 = nothing is moved
};
Work work_of(const Communicator& c, const Price& price, Duration total, Bytes size);
// By what nccl-tests multiplies size / time: 2(n-1)/n, (n-1)/n, or 1.
double bus_factor(Operation o, int ranks);

// The communicator sends from each rank to the next one, too (nccl-tests' sendrecv): one message,
// all at once. Backends tcp, gloo and mpi.
void add_send_recv(Communicator& c);

}  // namespace ddpsim::collective
