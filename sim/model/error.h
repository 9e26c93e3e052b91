// Bad input: thrown where a file or a flag is read, caught once in tools/main.
#pragma once

#include <string>

namespace ddpsim {

// `where`: file and JSON pointer ("topologies/x.json#/links/3/bandwidth") or flag; `what`: what is
// wrong and what to write instead.
struct InputError {
  std::string where;
  std::string what;
};

// First rule that a value breaks; empty message = valid. `path` is relative to the value
// ("/plan/ranks").
struct Problem {
  std::string path;
  std::string message;
  explicit operator bool() const { return !message.empty(); }
};

}  // namespace ddpsim
