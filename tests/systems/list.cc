// The systems that only tests have.
#include "tests/systems/mics/record.h"

namespace ddpsim::systems {

std::vector<SystemRecord> more_systems() {
  return {mics_record()};
}

}  // namespace ddpsim::systems
