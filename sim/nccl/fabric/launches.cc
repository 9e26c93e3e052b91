// What a host takes to launch, and what nccl-tests shows for it.
#include <algorithm>

#include "sim/nccl/fabric/group.h"
#include "sim/topology/hop_routes.h"

namespace ddpsim::nccl {
int most_of_a_host(const Group& g) {
  std::size_t most = 0;
  for (const std::vector<int>& ranks : topology::ranks_by_host(*g.fabric, g.devices))
    most = std::max(most, ranks.size());
  return static_cast<int>(most);
}

Duration launches(const Group& g, const Profile& p, const Choice& choice, int gpus_per_process) {
  Microseconds channel = g.settings.version.has(Change::WorkSharedByChannels)
                             ? g.constants.batch_channel
                             : g.constants.own_channel;
  return (p.host.launch + to_duration(channel * choice.channels)) * gpus_per_process;
}

Duration nccl_tests_time(const Group& g, const Profile& p, const OperationTime& price,
                         const Choice& choice, int gpus_per_process) {
  return std::max(price.total, launches(g, p, choice, gpus_per_process));
}

}  // namespace ddpsim::nccl
