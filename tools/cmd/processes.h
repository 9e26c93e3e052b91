// Several ddpsim processes of one sweep, started by mpirun.
#pragma once

#include <optional>
#include <string>

namespace ddpsim::cli {

// Under mpirun or srun with more than one process (their environment says so).
bool started_by_mpi();
// Not the first of them: it keeps silent.
bool is_mpi_follower();

class Processes {
 public:
  // Opens ddpsim_mpi.so beside the executable or in ../lib/ddpsim. Throws InputError where it is
  // not.
  explicit Processes(const std::string& executable);
  ~Processes();
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;
  int rank() const { return rank_; }
  int size() const { return size_; }
  // From the first to all.
  void broadcast(void* data, int bytes) const { broadcast_(data, bytes); }
  // To the first, which is called once for each, in order.
  void gather(const std::string& mine, void (*take)(void* state, const char* data, int bytes),
              void* state) const {
    gather_(mine.data(), static_cast<int>(mine.size()), take, state);
  }

 private:
  void (*broadcast_)(void*, int) = nullptr;
  void (*gather_)(const char*, int, void (*)(void*, const char*, int), void*) = nullptr;
  void (*stop_)() = nullptr;
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace ddpsim::cli
