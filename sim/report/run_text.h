// A Run for people: what it is of, and its samples.
#pragma once

#include <string>

#include "sim/model/run.h"

namespace ddpsim::report {

std::string run_page(const Run& run);
// op,PARAMETER...,readings,median_us,least_us,most_us: a row for each sample, a column for each
// parameter that one of them has.
std::string samples_csv(const Run& run);

}  // namespace ddpsim::report
