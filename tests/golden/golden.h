// What a golden holds, and where it lies. A scenario whose name ends with ".message" is predicted
// message by message.
#pragma once

#include <string>
#include <vector>

#include "sim/io/codecs.h"

namespace ddpsim::test {

// Stems of *.json in tests/golden/FOLDER, sorted; NAME.new.json is left out.
std::vector<std::string> golden_names(const std::string& folder);

std::string scenario_path(const std::string& name);
std::string expected_path(const std::string& name);
std::string new_path(const std::string& name);  // what a mismatch is written to

// stdout of `ddpsim predict tests/golden/scenarios/NAME.json --format json`. Throws
// std::runtime_error with stderr if it fails.
std::string prediction_of(const std::string& name);

// The golden of a prediction: the summary, the steps, and the spans, or, of more than kMaxSpans
// spans, each lane's number of spans and the FNV-1a (64 bits) of their compact JSON.
inline constexpr std::size_t kMaxSpans = 64;
std::string condense(const std::string& prediction);

// "/summary/step_ps: 12 in the golden, 13 now": the first key, in the golden's order, that differs.
// Empty: none does.
std::string first_difference(const io::OrderedJson& golden, const io::OrderedJson& now,
                             const std::string& at = {});

}  // namespace ddpsim::test
