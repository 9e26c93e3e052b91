// Where parameter servers have what.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/model/plan.h"
#include "sim/model/program.h"
#include "sim/model/workload.h"
#include "sim/systems/base/record.h"

namespace ddpsim::systems {

// A worker's step. Steps are alike: there is no warm-up.
Program lower_parameter_server(const TimedWorkload& workload, const Plan& plan, Steps steps);
std::span<const OpWord> parameter_server_words();
Problem validate_parameter_server(const Plan& p, const Workload& w, DeviceKind device);

// A variable, or some of its rows, on a server.
struct ServerShard {
  TensorIndex tensor = 0;
  std::int64_t from = 0;  // elements
  std::int64_t to = 0;
  std::int64_t bytes = 0;
  int server = 0;
};
// In the order in which they are made: variables in registration order, the parts of each. Round
// robin: the k-th is on server k mod S (_create_variable_round_robin). By size: on the server that
// has least so far. Frozen variables come last; where weights only come back for gradients
// (pull=after_push) they are on no server.
std::vector<ServerShard> server_shards(const Workload& w, const Plan& plan);

// Bytes that a server touches to take a gradient in (`sum`: into what is there, besides), and to
// update weights and the optimizer's states with it: one pass over each.
std::int64_t summed_bytes(std::int64_t gradient);
std::int64_t updated_bytes(const Optimizer& o, std::int64_t gradient);

// SystemRecord::groups: one a server.
std::vector<RankGroups> server_groups(const Plan& plan, int ranks, int per_host);

}  // namespace ddpsim::systems
