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

// A Run of backend tcp, empty but for its origin (this machine, now) and its load; a machine that
// was busy before the run began makes it noisy.
Run measured_run(EvidenceClass evidence, const StageResult& stage, double load);

void add_noise(Quality& q, std::string reason);

// Notes the spread of the steady steps; one above 1 % is noise, unless they differ by nature
// (beside a job of another period).
void judge_spread(Run& run, bool differ_by_nature);

// Operations that a measured Run of ours has spans of.
bool worth_a_span(OpKind k);
// Of operation `op` on `rank`; clock times, and `step_start_ns` on the same clock. `algorithm`: of
// a collective.
Span measured_span(const Program& program, const StepProgram& step, std::uint32_t op,
                   int step_index, int rank, std::int64_t step_start_ns, std::int64_t ready_ns,
                   std::int64_t begin_ns, std::int64_t end_ns, const char* algorithm);

}  // namespace ddpsim::calib
