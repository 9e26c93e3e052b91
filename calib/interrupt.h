// Ctrl-C while something is measured: it ends, and what was measured is kept.
#pragma once

#include <cstddef>
#include <exception>
#include <string>

#include "sim/model/run.h"

namespace ddpsim::calib {

// While one lives, SIGINT is noted instead of ending the process; a second one does what the first
// would have done without it. One at a time, in the main thread.
class Interruptible {
 public:
  Interruptible();
  ~Interruptible();
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

 private:
  void (*before_)(int);
};

// Has a SIGINT been noted since the last Interruptible was made?
bool interrupted();

// Interrupted before anything that is worth keeping was measured. No std::runtime_error: those are
// of measurements that failed.
struct NothingMeasured : std::exception {
  const char* what() const noexcept override {
    return "interrupted before anything was measured; nothing is kept";
  }
};

// Says in `run.skipped` that only `done` of `all` points were measured. Throws NothingMeasured if
// none was. REQUIRES: interrupted().
void note_interrupted(Run& run, std::size_t done, std::size_t all);

// The last whole line of what a script wrote: each is a Run of all that it had measured then.
// Throws NothingMeasured if there is none.
std::string last_document(const std::string& lines);

}  // namespace ddpsim::calib
