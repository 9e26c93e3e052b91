// The fake device's own state, of one process: streams, events, memory, traffic.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/gpu/fake/fake.h"

namespace ddpsim::fake {

struct Stream {
  std::int64_t tail_ps = 0;
};
struct Event {
  std::int64_t at_ps = 0;
  bool recorded = false;
  bool timed = true;
  Stream* on = nullptr;
};

// A kernel that runs until the host stops it. Its stream and the events after it hold the end that
// it would have without that, until settle() knows better.
struct Traffic {
  bool live = false;
  Stream* on = nullptr;
  std::int64_t begin_ps = 0;
  std::int64_t end_ps = 0;
  const int* stop = nullptr;
  std::uint64_t moved = 0;  // address on the device
  int blocks = 0;
  double bytes_per_us = 0;  // of a block
};

// A collective of this process that was put on its stream.
struct Hold {
  std::int64_t begin_ps = 0;
  std::int64_t end_ps = 0;
  int blocks = 0;
};

struct Device {
  bool used = false;  // this process has a context
  std::set<Stream*> streams;
  std::set<Event*> events;
  Stream standard;                               // the default one
  std::map<std::uint64_t, std::int64_t> memory;  // address -> bytes
  std::map<std::uint64_t, std::int64_t> pinned;
  std::map<std::uint64_t, std::uint64_t> words;  // what little it remembers: 8 bytes at an address
  std::int64_t taken = 0;
  double busy_ps = 0;
  std::map<std::uint64_t, double> touched;  // address -> traffic when it was last used
  double traffic = 0;
  Traffic beside;
  std::vector<Hold> holds;           // one after another; the last ones
  cudaError_t broken = cudaSuccess;  // sticky
  cudaError_t last = cudaSuccess;
};
Device& device();

Stream* stream_of(cudaStream_t s);  // nullptr: not a stream
void settle();                      // ends traffic that the host has stopped
// A launch from the host: `name` as in the source, arguments as the CUDA runtime gets them.
cudaError_t launch_kernel(const std::string& name, dim3 grid, dim3 block, void** arguments,
                          cudaStream_t s);

}  // namespace ddpsim::fake
