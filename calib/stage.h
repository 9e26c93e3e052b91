// A stage: a process of its own that makes the hosts, starts a process per rank, and is gone with
// all of them when its parent is, however that ended.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "sim/model/cluster.h"

namespace ddpsim::calib {

// Memory that the parent and all ranks share; zero at first. Pages cost nothing until touched.
class SharedMemory {
 public:
  explicit SharedMemory(std::size_t bytes);
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// What the processes agree by. Lives in shared memory.
struct Rendezvous {
  static constexpr int kMaxProcesses = 256;
  std::atomic<int> arrived[8];         // one counter per barrier
  std::atomic<std::int64_t> start_ns;  // common start
  std::atomic<std::uint16_t> port[kMaxProcesses];
  std::atomic<int> failed;
  char error[512];  // of the first that failed
  // Waits until `count` processes came to barrier `k`; throws if one failed.
  void meet(int k, int count);
  void fail(const std::string& why);
};

struct StageResult {
  bool shaped = false;
  std::string reason;        // why not
  bool interrupted = false;  // calib/interrupt.h: all processes were ended before they were done
};

// Runs body(process) in `processes` processes; process p lives on host hosts[p] of `cluster`
// (namespaces), or all on loopback if hosts cannot be made. `needed`: as soon as processes 0 ..
// needed - 1 have ended well, the others are ended. Throws std::runtime_error when one fails or
// after `timeout_s`. `address[p]` as seen by body is Testbed::address or 127.0.0.1: see
// stage_address().
StageResult run_stage(const Cluster& cluster, const std::vector<int>& hosts, int needed,
                      bool loopback, double timeout_s, Rendezvous& rendezvous,
                      const std::function<void(int process, bool shaped)>& body);

std::string stage_address(int host, bool shaped);

}  // namespace ddpsim::calib
