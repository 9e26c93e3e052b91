// Programs that are started, and what they said: all of it, a sentence of their own, or the last
// line.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace ddpsim::calib {

// Without the rules that mpirun draws below its sentences.
inline std::string last_line(std::string text) {
  text.erase(text.find_last_not_of("\n -") + 1);
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

// This process becomes `command` (looked for in PATH), with nothing to read, and writes to
// the descriptors `out` and `err`. Throws std::runtime_error if it cannot be started.
[[noreturn]] void become_command(const std::vector<std::string>& command, int out, int err);

// What `command` writes to its standard output; none: it cannot be started or exits with another
// status than 0. Throws std::runtime_error if there is no pipe or process left.
std::optional<std::string> output_of(const std::vector<std::string>& command);

}  // namespace ddpsim::calib
