#include "sim/systems/script.h"

#include "sim/systems/base/record.h"

namespace ddpsim::systems {

std::vector<std::string> script_lines(const Plan& plan, const Workload& w, DeviceKind device,
                                      int ranks, int per_host) {
  auto* const lines = record_of(plan.system).script;
  return lines ? lines(plan, w, device, ranks, per_host) : std::vector<std::string>{};
}

}  // namespace ddpsim::systems
