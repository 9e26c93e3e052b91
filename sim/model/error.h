// InputError says what is wrong with an input: thrown where a file or a flag is read, caught once
// (tools/cmd/run.cc).
#pragma once

#include <array>
#include <string>

namespace ddpsim {

// The kinds of refusals, for programs: `input` where no other is meant.
inline constexpr std::array<const char*, 10> kErrorCodes{
    "usage",        "input",        "unknown_key",  "missing_key", "wrong_type",
    "out_of_range", "unknown_word", "no_such_file", "memory",      "internal"};

// `where`: file and JSON pointer ("topologies/x.json#/links/3/bandwidth") or flag; `what`: what is
// wrong and what to write instead.
struct InputError {
  std::string where;
  std::string what;
  std::string code = "input";  // one of kErrorCodes
  std::string remedy = {};     // what to write instead, by itself; "" = `what` says it, if anybody
};

// First rule that a value breaks; empty message = valid. `path` is relative to the value
// ("/plan/ranks").
struct Problem {
  std::string path;
  std::string message;
  explicit operator bool() const { return !message.empty(); }
};

}  // namespace ddpsim
