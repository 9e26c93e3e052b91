// The model with one mechanism taken out: what a validation that is worth its name must notice.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/predict/predict.h"

namespace ddpsim::predict {

enum class Mechanism : std::uint8_t {
  CopyIn,         // hooks copy gradients into buckets for nothing
  InOrderLaunch,  // a full bucket does not wait for those before it
  Burst,          // links have no token buckets
  HostLane,       // the host launches in no time
  Workers,        // one collective at a time
  ReverseOrder,   // gradients arrive in registration order
  UplinkSharing,  // uplinks carry any number of flows at full speed
  LateArrival,    // no rank computes longer than another
  ReductionTime,  // sums cost nothing
  FirstBucket,    // no small first bucket
  Connection,     // each of Gloo's collectives has connections of its own
  SharedMemory,   // emulated hosts have memory of their own
  SharedCores,    // the network needs no cores
  Stragglers,     // ranks compute alike
  Kernels,        // described layers take what a roofline with one efficiency a class says
  Conversions,    // convolutions of contiguous images convert nothing
  Calls,          // a call of the framework takes what its launches take
  Loop,           // nothing but the optimizer between the last gradient and the next forward
  HostMemory,     // through the host's memory, a link carries what it carries to a GPU
  KernelWait,     // a collective's kernel begins beside whatever runs
  Power,          // a GPU holds the clock of its peaks, whatever it draws
};
inline constexpr int kMechanisms = 21;
const char* name_of(Mechanism m);  // "copy_in", ...
std::optional<Mechanism> parse_mechanism(const std::string& name);

// Takes a mechanism out of a question's parts. What lies in the Program is for alter().
void remove(Mechanism m, Workload& workload, Cluster& cluster, Profile& profile,
            Scenario& scenario);
// Takes a mechanism out of a lowered Program; does nothing for those that remove() handles.
void alter(Mechanism m, Program& program, System system);

}  // namespace ddpsim::predict
