// One course of a job's days, and the mean of many.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/goodput/job.h"
#include "sim/units/by.h"

namespace ddpsim::goodput {

struct Course {
  Ledger ledger{};
  std::int64_t failures = 0;  // also those that fall into a recovery
  std::int64_t joins = 0;     // of hosts, to a job that ran without them
};
// REQUIRES: step > 0, checkpoints.steps >= 1, least_hosts <= hosts, horizon <= kLongest. The time
// that it takes goes with the failures, not with hosts or steps.
Course play(const Job& job, std::uint64_t seed, std::uint64_t course);

struct Courses {
  By<Spent, double, kSpent> share;  // of the time, mean
  double goodput = 0;               // share of Useful
  double low = 0;                   // of the courses' goodputs the 10th percentile
  double high = 0;                  // and the 90th
  double error = 0;                 // standard error of the mean
  double failures = 0;              // of a course, mean
  double joins = 0;
  int count = 0;
};
// REQUIRES: as play(); count >= 1.
Courses play_many(const Job& job, std::uint64_t seed, int count);

}  // namespace ddpsim::goodput
