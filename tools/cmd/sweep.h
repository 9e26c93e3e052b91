// The points of a sweep as questions, and their answers.
#pragma once

#include <string>
#include <vector>

#include "sim/door/loader.h"
#include "sim/sweep/rows.h"
#include "tools/cmd/question.h"

namespace ddpsim::cli {

// Checks every field and every name before any work. Throws InputError.
sweep::Sweep make_sweep(const Terminal& t, Loader& loader, const QuestionFlags& flags,
                        const std::vector<std::string>& axes, const std::vector<std::string>& zips,
                        bool interval);

// "resnet50 on hgx-h100: bucket_cap_mb x cluster.hosts", of the first point that has a question.
std::string title(Loader& loader, const sweep::Sweep& sweep);

// Throws nothing that a question can be blamed for: what is wrong with it is the row's reason. So
// is an internal error, which the summary counts.
sweep::SweepRow ask_point(Loader& loader, const sweep::Sweep& sweep, std::int64_t point);

}  // namespace ddpsim::cli
