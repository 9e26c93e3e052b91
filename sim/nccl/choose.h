// What NCCL does with one operation: algorithm and protocol by the least estimate, then channels,
// threads, chunk. Honours NCCL_ALGO, NCCL_PROTO, NCCL_MIN_CTAS, NCCL_MAX_CTAS (and the older
// _NCHANNELS), NCCL_NTHREADS, NCCL_LL128_NTHREADS, NCCL_BUFFSIZE, (in the search)
// NCCL_CROSS_NIC and what GPUs of a host reach one another by (NCCL_P2P_DISABLE, NCCL_P2P_LEVEL,
// NCCL_SHM_DISABLE), and threads of sockets (NCCL_SOCKET_NTHREADS, NCCL_NSOCKS_PERTHREAD). Source:
// NCCL src/enqueue.cc (topoGetAlgoInfo, calcCollChunking), src/init.cc (computeBuffSizes),
// src/graph/tuning.cc; docs/model.md section 7.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/model/error.h"
#include "sim/nccl/tuning.h"

namespace ddpsim::nccl {

// What a tuner plugin names for some sizes of an operation (ncclTuner's getCollInfo): this cell is
// made to cost nothing, and the operation gets so many channels. Sizes as NCCL counts them.
struct Tuned {
  Operation op = Operation::AllReduce;
  std::int64_t from = 0;  // inclusive, both
  std::int64_t to = INT64_MAX;
  Algorithm algorithm = Algorithm::Ring;
  Protocol protocol = Protocol::Simple;
  int channels = 0;  // 0 = as NCCL has them
  int nodes = 0;     // of communicators of so many nodes and ranks; 0 = any
  int ranks = 0;
};

// Which cells of the table may be chosen, by operation; all at first.
struct Settings {
  Version version;
  By<Operation, By<Algorithm, By<Protocol, bool>>> allowed;
  int min_channels = 0;  // 0 = not set
  int max_channels = 0;
  int threads = 0;  // NCCL_NTHREADS; 0 = by the algorithm
  int ll128_threads = 0;
  std::int64_t buffer_bytes = 0;      // NCCL_BUFFSIZE; 0 = 4 MiB
  int cross_nic = 2;                  // NCCL_CROSS_NIC
  std::optional<PathType> p2p_level;  // NCCL_P2P_LEVEL, or LOC by NCCL_P2P_DISABLE
  bool shared_memory = true;          // not NCCL_SHM_DISABLE
  std::optional<int> socket_threads;  // NCCL_SOCKET_NTHREADS, of one connection
  int sockets_per_thread = 1;         // NCCL_NSOCKS_PERTHREAD
  std::vector<Tuned> tuned;           // the first that fits and is available counts
  Settings();
};

// The settings that a list of environment variables makes. The message names the variable, what is
// wrong with it, and what it takes.
struct ParsedSettings {
  Settings settings;
  Problem problem;  // path = the variable; empty message = none
};
ParsedSettings parse_settings(const std::map<std::string, std::string>& environment,
                              Version version);
// Variables that parse_settings reads.
const std::vector<std::string>& known_variables();

struct Candidate {
  Algorithm algorithm = Algorithm::Ring;
  Protocol protocol = Protocol::Simple;
  std::optional<Microseconds> estimate;  // NCCL's; none = not available
  std::string why_not;                   // of none
};

inline constexpr std::int64_t kStepsOfBuffer =
    8;  // NCCL_STEPS: a connection's buffer is handed over in that many parts

struct Choice {
  Algorithm algorithm = Algorithm::Ring;
  Protocol protocol = Protocol::Simple;
  int channels = 1;
  int threads = 512;       // of a thread block
  std::int64_t chunk = 0;  // bytes of one chunk of one channel, at most
  std::int64_t slice =
      0;  // bytes that are handed on at once: a part of a chunk (Simple), or a chunk
  Microseconds estimate;  // NCCL's
};

// Every cell of `table` (cost_table() of the operation, under the settings' version), NCCL's choice
// first among equals.
std::vector<Candidate> candidates(const System& s, const Table& table, const Settings& set,
                                  Operation op, std::int64_t bytes);
// The first of them. nullopt: nothing is available under these settings, and NCCL stops
// (Change::NothingAllowedIsAnError); before, it ran a ring.
std::optional<Choice> choose(const System& s, const Table& table, const Settings& set, Operation op,
                             std::int64_t bytes);
// The same for a given pair. `channels`: a tuner's, which take the place of NCCL's own and are at
// most those of the communicator (src/enqueue.cc, ncclGetAlgoInfo: nMaxChannels); 0 = it says none.
// REQUIRES: it is available.
Choice complete(const System& s, const Table& table, const Settings& set, Operation op, Algorithm a,
                Protocol p, std::int64_t bytes, int channels = 0);

}  // namespace ddpsim::nccl
