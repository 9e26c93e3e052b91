// One event of a profiler's file as it is written, and the parser that meets them one by one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sim/io/byte_stream.h"

namespace ddpsim::io {

// Fields that are absent are empty or -1.
struct KinetoEvent {
  std::string phase;     // "X"
  std::string category;  // "" = none
  std::string name;
  std::string process;
  std::string thread;
  std::int64_t begin_us = -1;  // of the file's clock, whole microseconds
  std::int64_t begin_ps = 0;   // and what is left
  std::int64_t duration_ps = -1;
  std::int64_t correlation = -1;
  std::int64_t sequence = -1;  // autograd's
  std::string collective;
  std::int64_t in_elements = -1;
  std::int64_t collective_sequence = -1;  // in its process group (PyTorch 2.12)
  std::int64_t out_elements = -1;
  std::int64_t group_size = -1;
  std::string dtype;
  std::string group;
  std::string group_ranks;
  bool typed = false;               // it says what its inputs are
  std::vector<std::int64_t> shape;  // of the first input
  std::string input_type;           // of the first input
};

// What stands beside the events.
struct KinetoHead {
  std::int64_t rank = -1;
  std::int64_t world = 0;
  std::string backend;
  std::string gpu;
  bool object = false;  // an object with "traceEvents", not a list of events
  bool events = false;  // one of the two was there
};

// Calls `each` for every event. Throws InputError.
KinetoHead parse_kineto(ByteStream& stream, const std::string& file,
                        const std::function<void(KinetoEvent&)>& each);

}  // namespace ddpsim::io
