// Lines of comma-separated values, as files about NCCL have them: fields without the spaces and
// quotes around them, no commas inside quotes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ddpsim::io {

struct CsvLine {
  int number = 0;     // from 1
  std::string where;  // FILE:LINE
  std::vector<std::string_view> fields;
};

// Lines that are neither empty nor comments (#). The fields point into `text`. Throws InputError
// for binary data.
std::vector<CsvLine> csv_lines(const std::string& text, const std::string& file);

}  // namespace ddpsim::io
