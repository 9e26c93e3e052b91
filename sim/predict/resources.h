// The same question on better hardware: one resource faster, everything else as it was.
#pragma once

#include <array>
#include <optional>

#include "sim/predict/predict.h"

namespace ddpsim::predict {

enum class Resource : std::uint8_t {
  Arithmetic,  // peak flop/s of the device; of a captured workload its forward and backward
  Memory,      // bandwidth of the device's memory; of a captured workload its optimizer, too
  Host,        // the thread that launches, hooks and traverses
  Network,     // bandwidth between hosts
  Sockets,     // the threads that copy between sockets and memory
  Inside,      // bandwidth between the devices of a host
  Latency,     // what a collective and each of its steps take whatever they carry
  Input,       // samples that the input pipeline makes a second
};
inline constexpr std::array kResources{Resource::Arithmetic, Resource::Memory,  Resource::Host,
                                       Resource::Network,    Resource::Sockets, Resource::Inside,
                                       Resource::Latency,    Resource::Input};
// Whether threads copy for NCCL's sockets here (TransportSection::thread_bytes_per_s).
bool copied_by_threads(const Question& q);
const char* name_of(Resource r);  // "the network between hosts", for sentences

// What a question refers to, changed.
struct Hardware {
  Workload workload;
  Cluster cluster;
  Profile profile;
};
// REQUIRES: factor > 0. Resource::Input: nothing, it is the scenario's.
Hardware faster(const Question& q, Resource resource, double factor);
// A fabric with what is known of it.
struct OtherFabric {
  topology::Fabric fabric;
  Communicators known;
  explicit OtherFabric(const Cluster& c) : fabric(c) {}
};
// The step there. Not for other jobs' workloads, which stay as they are. `kept`: where a faster
// fabric is kept for the next question about the same cluster, resource and factor; null = nowhere.
Duration step_if_faster(const Question& q, Resource resource, double factor,
                        const Options& options = {}, std::optional<OtherFabric>* kept = nullptr);

}  // namespace ddpsim::predict
