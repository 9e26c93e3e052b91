// What a script that was started said: its own sentence, or the last line.
#pragma once

#include <string>

namespace ddpsim::calib {

inline std::string last_line(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  auto at = text.rfind('\n');
  return at == std::string::npos ? text : text.substr(at + 1);
}

// `mark`: "ddpsim_record: ". Of the first rank that said one.
inline std::string said(const std::string& text, const std::string& mark) {
  auto at = text.find(mark);
  if (at == std::string::npos) return last_line(text);
  at += mark.size();
  return text.substr(at, text.find('\n', at) - at);
}

}  // namespace ddpsim::calib
