// What describes a model for a command: ddpsim describe, and ddpsim predict --script.
#pragma once

#include <string>
#include <vector>

#include "calib/describe.h"
#include "tools/cmd/command.h"

namespace ddpsim::cli {

struct DescribeFlags {
  std::string factory;  // one of these three
  std::string model;
  std::string script;  // its arguments are the terminal's `of_script`
  std::string ranks;   // that a script sees; empty: 8
  std::string name;    // of the workload; empty: by what is described
  std::string batch;
  std::string image;
  std::string optimizer;
  std::string optimizer_name;
  std::string precision;
  std::string python;
  std::string timeout;        // of a script; empty: 10 min
  bool allow_writes = false;  // of a script
};

// --optimizer-name, --python, --timeout, --allow-writes.
void add_describer_flags(Command& c, DescribeFlags& f);
// Runs the describer of ddpsim's folder. Throws InputError.
calib::Description describe(Terminal& t, const DescribeFlags& flags);
// Sentences to stderr, each with `what` before it.
void tell(Terminal& t, const std::string& what, const std::vector<std::string>& says);

}  // namespace ddpsim::cli
