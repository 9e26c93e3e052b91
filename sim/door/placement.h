// Where the ranks of a question are: one rule of --ranks and --gpus-per-host for all commands.
#pragma once

#include <string>
#include <vector>

#include "sim/door/question.h"

namespace ddpsim::door {

struct Placing {
  int ranks = 0;
  int each = 0;      // of a host
  std::string set;   // "cluster.hosts=4": what the cluster lacks; "" = nothing
  std::string says;  // what a person has to know of it, a sentence; "" = nothing
};
// As many hosts as `ranks` (0 = all devices) need, --gpus-per-host of each (""= all of its
// devices): one switch takes more than it has, unless `sized`, --set, says how many it has. Throws
// InputError.
Placing place_ranks(const Cluster& cluster, int ranks, const std::string& gpus_per_host,
                    bool sized);
// Of each rank.
std::vector<DeviceId> devices_of(const Placing& p, const Cluster& cluster);

// Hardware with the ranks of a collective by itself on it: at least two.
struct PlacedHardware {
  Hardware hardware;
  int ranks = 0;
  std::vector<DeviceId> devices;
};
PlacedHardware load_placed_hardware(const Context& context, QuestionText flags);

}  // namespace ddpsim::door
