// Plan: the data-parallel system, its version and its knobs by their upstream names, in upstream
// units. File format: docs/formats.md.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/model/algorithm.h"
#include "sim/model/error.h"
#include "sim/model/ids.h"
#include "sim/model/parts.h"
#include "sim/model/pytorch.h"
#include "sim/model/workload.h"
#include "sim/units/by.h"

namespace ddpsim {

// A data-parallel system by its name in plans. All else is in its record (sim/systems).
class System {
 public:
  constexpr explicit System(const char* name) : name_(name) {}  // REQUIRES: it outlives this
  constexpr const char* name() const { return name_; }
  friend constexpr bool operator==(System a, System b) {
    return std::string_view(a.name_) == b.name_;
  }

 private:
  const char* name_;
};
// Tcp: ddpsim's own executor (calib): plain rings and trees over TCP; collectives in launch order,
// `tcp_streams` in flight. Mpi: Open MPI, one collective at a time.
enum class Backend : std::uint8_t { Nccl, Gloo, Tcp, Mpi };
using PytorchVersion = pytorch::Version;

inline const char* name_of(System s) {
  return s.name();
}
inline constexpr By<Backend, const char*, 4> kBackends{"nccl", "gloo", "tcp", "mpi"};
constexpr const auto& names_of(Backend) {
  return kBackends;
}

struct Plan {
  System system{"pytorch_ddp"};
  std::optional<Backend> backend;         // default: nccl on GPUs, gloo on CPUs
  int accumulation_steps = 1;             // micro-steps per optimizer step
  int gloo_threads = 2;                   // c10d's Gloo worker threads
  int tcp_streams = 1;                    // of backend tcp: collectives in flight together
  Algorithm algorithm = Algorithm::Ring;  // of backend tcp's all-reduce
  Algorithm gloo_algorithm =
      Algorithm::Ring;  // gloo::AllreduceOptions::setAlgorithm: Ring or Bcube
  PytorchVersion pytorch;
  std::string nccl;      // version of NCCL, "2.26.2"; "" = the one that this PyTorch brings
  std::string open_mpi;  // version of Open MPI, "4.1"; "" = 4.1
  // Of NCCL (NCCL_ALGO, NCCL_PROTO, ...: sim/nccl/choose.h) or of Open MPI (OMPI_MCA_...:
  // sim/collective/open_mpi.h), as the backend is.
  std::map<std::string, std::string> environment;
  std::optional<bool> set_to_none;  // of zero_grad; default by version
  std::optional<bool> no_sync;      // pytorch_ddp (default true), fsdp, fsdp2 (false): around
                                    // micro-steps but the last; false: each of them reduces
  std::vector<std::string> unused_parameters;  // by name: get no gradient
  Parts parts;                                 // knobs of systems (sim/systems/NAME/plan.h)
};

// Of c10d's process group, or of ddpsim's executor: collectives in flight together. MPI's is one.
int worker_threads(const Plan& plan, Backend backend);
// Of the plan's all-reduces. NCCL's rings, trees and the rest are chosen by price, not by the plan.
Algorithm all_reduce_algorithm(const Plan& plan, Backend backend);
// Those that `algorithm` may name.
inline constexpr std::array kTcpAlgorithms{Algorithm::Ring,
                                           Algorithm::DoubleBinaryTree,
                                           Algorithm::RecursiveDoubling,
                                           Algorithm::HalvingDoubling,
                                           Algorithm::Bcube,
                                           Algorithm::Hierarchical,
                                           Algorithm::Torus2d,
                                           Algorithm::Direct};
// Direct sends n (n - 1) messages a round.
inline constexpr int kMaxDirectRanks = 1024;
// The whole question.
struct Jitter {
  double cv = 0;  // coefficient of variation of a rank's compute time from step to step
  std::uint64_t seed = 1;
  int samples = 20;
};
// Another job on the same cluster, which computes and communicates at the same time on devices of
// its own.
struct OtherJob {
  std::string workload_name;
  Workload workload;
  Plan plan;
  std::vector<DeviceId>
      rank_order;  // device of each of its ranks; >= 2, disjoint from every other job's
};
// What makes batches of input, on each rank, and how they come to its device.
struct InputPipeline {
  double samples_per_s = 0;           // 0 = as many as are wanted
  std::int64_t bytes_per_sample = 0;  // copied to the device, from pinned memory
  bool ahead = false;  // on a stream of their own while the step before runs; false: in the loop,
                       // before forward (batch.to(device))
};
struct Scenario {
  Plan plan;
  int ranks = 0;
  std::vector<DeviceId> rank_order;  // device of each rank; empty = 0, 1, 2, ...
  std::vector<OtherJob> other_jobs;  // all jobs start together
  std::map<int, double> slow_ranks;  // compute-time factor of a rank
  std::optional<Jitter> jitter;
  bool stragglers = true;              // ranks vary as the profile says, unless jitter says how
  std::optional<InputPipeline> input;  // none: it is always there
  // On an emulated cluster: computation keeps a core of the shared machine busy (real), or is slept
  // (timed).
  bool real_compute = false;
};
Problem validate(const Scenario& s, int devices);
// The device of each rank: rank_order, or 0, 1, 2, ...
std::vector<DeviceId> devices_of(const Scenario& s);
// The scenario of another job by itself.
Scenario scenario_of(const OtherJob& job);

}  // namespace ddpsim
