#include "sim/io/csv.h"

#include <algorithm>

#include "sim/model/error.h"

namespace ddpsim::io {

std::vector<CsvLine> csv_lines(const std::string& text, const std::string& file) {
  std::vector<CsvLine> out;
  int number = 0;
  for (std::size_t from = 0; from < text.size();) {
    auto end = std::min(text.find('\n', from), text.size());
    std::string_view line = std::string_view(text).substr(from, end - from);
    from = end + 1;
    ++number;
    std::string where = file + ":" + std::to_string(number);
    if (line.find('\0') != std::string_view::npos)
      throw InputError{where, "holds binary data; expected CSV"};
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ' || line.back() == '\t'))
      line.remove_suffix(1);
    while (!line.empty() && (line.front() == ' ' || line.front() == '\t')) line.remove_prefix(1);
    if (line.empty() || line.front() == '#') continue;
    CsvLine l{number, std::move(where), {}};
    for (;;) {
      auto comma = line.find(',');
      std::string_view f = line.substr(0, comma);
      while (!f.empty() && (f.front() == ' ' || f.front() == '"')) f.remove_prefix(1);
      while (!f.empty() && (f.back() == ' ' || f.back() == '"')) f.remove_suffix(1);
      l.fields.push_back(f);
      if (comma == std::string_view::npos) break;
      line.remove_prefix(comma + 1);
    }
    out.push_back(std::move(l));
  }
  return out;
}

}  // namespace ddpsim::io
