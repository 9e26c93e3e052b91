// `ddpsim compare A B` of two Programs (ddpsim.program/1).
#pragma once

#include "sim/io/files.h"
#include "tools/cmd/question.h"

namespace ddpsim::cli {

// Writes the differences; GateFailed if there are any. Throws InputError.
void compare_program_files(Terminal& t, const OutputFlags& output, const io::Json& first,
                           const std::string& first_file, const io::Json& second,
                           const std::string& second_file);
bool is_program(const io::Json& j);

}  // namespace ddpsim::cli
