// A question about days: a job, what fails, what is saved.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/goodput/recovery.h"
#include "sim/units/by.h"
#include "sim/units/units.h"

namespace ddpsim::goodput {

inline constexpr Duration kLongest{kSecond * (100 * 86'400)};  // that is asked about

// Hosts that are lost, or come, at a time that is given.
struct HostsAt {
  Duration at;
  int hosts = 1;
};

struct Checkpoints {
  std::int64_t steps = 1;  // between two
  Duration stalls;         // the job, each: of a synchronous one all of it
  Duration writes;         // in the background afterwards; 0 = it is synchronous
};

// `hosts`: of torchft its replica groups. What is lost and comes is counted in these.
struct Job {
  Recovery recovery = Recovery::Torchrun;
  Failure failure = Failure::Process;
  Duration step;
  Duration horizon;
  int hosts = 1;
  int least_hosts = 1;           // fewer do not train
  int spares = 0;                // stand by, and take a lost one's place
  double host_mtbf_s = 0;        // mean time between failures of one; 0 = only `lost`
  std::optional<Duration> back;  // a lost host comes back after this; none: never
  std::vector<HostsAt> lost;     // ascending
  std::vector<HostsAt> added;    // ascending
  Checkpoints checkpoints;
  Times times;
};

using Ledger = By<Spent, Duration, kSpent>;  // sums to the horizon

}  // namespace ddpsim::goodput
