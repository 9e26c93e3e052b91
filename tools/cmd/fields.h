// The fields of files, one by one, as `ddpsim show fields` prints them.
#pragma once

#include <string>

namespace ddpsim::cli {

// The fields whose path begins with `prefix`; a knob's path may also lack its "plan.". Throws
// InputError where there is none. `format`: "table", "csv" or "json".
std::string fields_text(const std::string& prefix, const std::string& format);

}  // namespace ddpsim::cli
