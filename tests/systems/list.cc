// The systems that only tests have.
#include "tests/systems/gossip/record.h"
#include "tests/systems/mics/record.h"

namespace ddpsim::systems {

std::vector<SystemRecord> more_systems() {
  return {mics_record(), gossip_record()};
}

}  // namespace ddpsim::systems
