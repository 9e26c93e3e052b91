// What decides a step, in words: the same in every answer.
#pragma once

#include <string>

#include "sim/explain/diagnosis.h"

namespace ddpsim::report {

// "the network between hosts decides: 10 % faster, and the step is 3.1 % shorter (41.0 ms)".
std::string decision_sentence(const predict::Diagnosis& d);
// The same in a few words, for a table: "the network between hosts".
std::string decider(const predict::Diagnosis& d);

}  // namespace ddpsim::report
