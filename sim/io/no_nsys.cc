// This build has no SQLite.
#include "sim/io/nsys.h"
#include "sim/model/error.h"

namespace ddpsim::io {

bool reads_nsys() {
  return false;
}

std::vector<analysis::Trace> read_nsys(const std::string& path, int) {
  throw InputError{path,
                   "cannot be read: this build of ddpsim has no SQLite; install Debian's "
                   "libsqlite3-dev and build again, or give a trace of PyTorch's profiler (ddpsim "
                   "import kineto)"};
}

}  // namespace ddpsim::io
