// The problem of unit_partition.h as a simulated step poses it.
#pragma once

#include <optional>

#include "sim/predict/predict.h"
#include "sim/tune/unit_partition.h"

namespace ddpsim::predict {

// Of the question's plan with each block a unit. None: it gathers nothing, or has no blocks, or
// more than kMostBlocks. `options.known` outlives what is returned. REQUIRES: a plan of FSDP or
// FSDP2, check(q) found nothing, options.known.
std::optional<UnitProblem> unit_problem(const Question& q, const Options& options);

// The best partitions of the problem with units of at most 1, 2, 3, 4, 6, 8, ... blocks, each once,
// those of smaller units first: less memory than one of larger ones.
std::vector<UnitPartition> partitions_worth_trying(const UnitProblem& problem);

}  // namespace ddpsim::predict
