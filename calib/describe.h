// A model or a training script, described by tools/python/ddpsim_describe.py in a process of its
// own: shapes, operations and bytes, without a GPU and without the model's memory.
#pragma once

#include <string>
#include <vector>

#include "sim/io/json_reader.h"

namespace ddpsim::calib {

struct DescribeOptions {
  std::string python;                  // an interpreter that has PyTorch; "" = find_python()
  std::string script;                  // path of ddpsim_describe.py
  std::vector<std::string> arguments;  // of it, but --out and --report
};

struct Description {
  std::string workload;           // text of the document (ddpsim.workload/1)
  std::vector<std::string> says;  // sentences about it: size, notes, what was not known
  io::Json plan;                  // knobs that a script gave its wrapper; an object, maybe empty
};

// The first of python3 on PATH and /usr/bin/python3 that has PyTorch. Throws InputError if neither
// does.
std::string find_python();

// What the script prints goes to stderr; it gets no input. It ends with this process. Throws
// InputError with the describer's own sentence if it cannot, and std::runtime_error if the
// describer itself is wrong.
Description describe_model(const DescribeOptions& options);

}  // namespace ddpsim::calib
