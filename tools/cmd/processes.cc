#include "tools/cmd/processes.h"

#include <cstdint>
#include <cstdlib>

#include <dlfcn.h>

#include "sim/model/error.h"
#include "sim/units/number.h"

namespace ddpsim::cli {
namespace {

// -1: not set, or no whole number.
std::int64_t number(const char* name) {
  const char* value = std::getenv(name);
  return value ? parse_integer(value).value_or(-1) : -1;
}

}  // namespace

bool started_by_mpi() {
  return number("OMPI_COMM_WORLD_SIZE") > 1 || number("PMI_SIZE") > 1;
}
bool is_mpi_follower() {
  return started_by_mpi() && (number("OMPI_COMM_WORLD_RANK") > 0 || number("PMI_RANK") > 0);
}

Processes::Processes(const std::string& executable) {
  std::string folder = executable.substr(0, executable.rfind('/') + 1);
  void* module = nullptr;
  for (const std::string& path : {folder + "ddpsim_mpi.so", folder + "../lib/ddpsim/ddpsim_mpi.so"})
    if (!module)
      module = ::dlopen(path.c_str(),
                        RTLD_NOW | RTLD_GLOBAL);  // Open MPI's own modules look for its symbols
  if (!module)
    throw InputError{
        "mpirun",
        "started several processes, and this ddpsim was built without MPI; build it where an MPI "
        "is installed (libopenmpi-dev), or make shards (--shard K/N) and ddpsim merge them"};
  auto start = reinterpret_cast<void (*)(int*, int*)>(::dlsym(module, "ddpsim_mpi_start"));
  broadcast_ = reinterpret_cast<void (*)(void*, int)>(::dlsym(module, "ddpsim_mpi_broadcast"));
  gather_ = reinterpret_cast<void (*)(const char*, int, void (*)(void*, const char*, int), void*)>(
      ::dlsym(module, "ddpsim_mpi_gather"));
  stop_ = reinterpret_cast<void (*)()>(::dlsym(module, "ddpsim_mpi_stop"));
  if (!start || !broadcast_ || !gather_ || !stop_)
    throw InputError{"ddpsim_mpi.so", "is of another version of ddpsim"};
  start(&rank_, &size_);
}

Processes::~Processes() {
  if (stop_) stop_();
}

}  // namespace ddpsim::cli
