// A Validation as people and programs read it.
#pragma once

#include <string>

#include "sim/io/codecs.h"
#include "sim/validation/validation.h"

namespace ddpsim::cli {

std::string validation_table(const validation::Validation& v);
io::OrderedJson validation_json(const validation::Validation& v);
std::string validation_junit(const validation::Validation& v);
// GitHub-flavoured: for a pull request, and for reports/accuracy.md.
std::string validation_markdown(const validation::Validation& v);

}  // namespace ddpsim::cli
