// A sweep's rows as people and programs read them; as CSV they are in sim/sweep/rows.h.
#pragma once

#include <string>
#include <vector>

#include "sim/io/codecs.h"
#include "sim/sweep/summary.h"

namespace ddpsim::cli {

std::string sweep_table(const sweep::Sweep& s, const std::vector<sweep::SweepRow>& rows,
                        bool markdown);
// The lines of sim/sweep/flips.h are among its notes.
io::OrderedJson sweep_json(const sweep::Sweep& s, const std::vector<sweep::SweepRow>& rows);
// What a person wants to know when it is done.
std::string summary_text(const sweep::Sweep& s, const sweep::SweepSummary& summary);

}  // namespace ddpsim::cli
