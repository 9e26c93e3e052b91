// What a measured Run says of where and how it was made.
#pragma once

#include <string>

#include "calib/stage.h"
#include "sim/model/run.h"

namespace ddpsim::calib {

// Core-seconds that the machine has been busy since it started, interrupts included.
double busy_core_seconds();
// Busy cores of the machine over a quarter of a second, by /proc/stat.
double machine_load();

// A Run of backend tcp, empty but for its origin (this machine, now) and its load; a machine that was busy before the run began makes it noisy.
Run measured_run(EvidenceClass evidence, const StageResult& stage, double load);

void add_noise(Quality& q, std::string reason);

}  // namespace ddpsim::calib
