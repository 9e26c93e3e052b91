// Processes that each drive a GPU, or all the same one, with an NCCL communicator over all of them.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "calib/stage.h"

namespace ddpsim::calib::cuda {

// A private MPS daemon: ranks on one GPU run side by side instead of in turns of milliseconds.
// Started in folders of its own, and ended with this object.
class MpsDaemon {
 public:
  MpsDaemon();  // throws std::runtime_error where it cannot be started
  MpsDaemon(const MpsDaemon&) = delete;
  MpsDaemon& operator=(const MpsDaemon&) = delete;
  ~MpsDaemon();
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
  int guard_ = -1;  // process
  int pipe_ = -1;
};

struct RankPlace {
  int rank = 0;
  int ranks = 1;
  int device = 0;
};

struct RanksOptions {
  int ranks = 1;
  const MpsDaemon* one_gpu =
      nullptr;  // all ranks on the first GPU, under this daemon; else rank r drives GPU r
  bool as_one_host = false;  // one_gpu: shared_gpu_environment, not one_gpu_environment
  std::vector<std::pair<std::string, std::string>>
      environment;  // of NCCL, on top of what one_gpu needs
  std::string log;  // file for NCCL's words of rank 0; "" = none
  double timeout_s = 120;
};

// Environment of rank r for several ranks on one GPU: each a host of its own for NCCL, sockets on
// loopback, few channels.
std::vector<std::pair<std::string, std::string>> one_gpu_environment(int rank, int ranks,
                                                                     const std::string& mps_folder);

// The same where NCCL itself lets ranks share a GPU (2.30.3 and later): ranks of one host, through
// the device's memory.
std::vector<std::pair<std::string, std::string>> shared_gpu_environment(
    int ranks, const std::string& mps_folder);
inline constexpr int kSharesGpus = 23003;  // ncclGetVersion

// What the ranks share: `data`, and barriers.
struct RanksShared {
  Rendezvous rendezvous;
  ncclUniqueId id;
};

// A rank that cannot go on while others wait for it in a collective: says why, and ends at once.
// Destructors would wait for the collective.
[[noreturn]] void leave(RanksShared& shared, const RankPlace& place, const std::exception& why);

// Of ranks on one GPU, all of which call it: leaves if an all-reduce of 8 bytes takes more than a
// millisecond. Then they take turns on the GPU, and MPS is not effective.
void require_side_by_side(RanksShared& shared, const RankPlace& place, ncclComm_t comm);

// Runs body in a process per rank: the device is set and the communicator made. A body that fails
// while a collective is under way calls leave(). Throws what a rank said; nothing is left running.
// REQUIRES: the calling process has not used CUDA (a fork cannot).
void run_ranks(const RanksOptions& options, RanksShared& shared,
               const std::function<void(const RankPlace&, ncclComm_t)>& body);

// Runs body in a child, so that the caller's process stays one that has not used CUDA; returns what
// it said. Throws what it threw.
std::string in_child(const std::function<std::string()>& body, double timeout_s = 60);

// The same for something long: `say` replaces what was said so far, and what was said last is
// returned even if the body fails, hangs or crashes. `why`: then the reason, else "".
std::string in_child_so_far(
    const std::function<void(const std::function<void(const std::string&)>& say)>& body,
    double timeout_s, std::string& why);

}  // namespace ddpsim::calib::cuda
