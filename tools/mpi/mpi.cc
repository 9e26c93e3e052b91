// The part of ddpsim that is linked with MPI: a module that `ddpsim sweep` opens under mpirun
// (tools/cmd/processes.cc), so that the binary starts without MPI.
#include <vector>

#include <mpi.h>

extern "C" {

void ddpsim_mpi_start(int* rank, int* size) {
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, rank);
  MPI_Comm_size(MPI_COMM_WORLD, size);
}

// From process 0 to all.
void ddpsim_mpi_broadcast(void* data, int bytes) {
  MPI_Bcast(data, bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
}

// Each process's bytes to process 0, which is called once for each, in order.
void ddpsim_mpi_gather(const char* data, int bytes,
                       void (*take)(void* state, const char* data, int bytes), void* state) {
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  std::vector<int> counts(static_cast<std::size_t>(size));
  MPI_Gather(&bytes, 1, MPI_INT, counts.data(), 1, MPI_INT, 0, MPI_COMM_WORLD);
  if (rank != 0) {
    MPI_Send(data, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    return;
  }
  take(state, data, bytes);
  std::vector<char> theirs;
  for (int from = 1; from < size; ++from) {
    theirs.resize(static_cast<std::size_t>(counts[static_cast<std::size_t>(from)]) + 1);
    MPI_Recv(theirs.data(), counts[static_cast<std::size_t>(from)], MPI_BYTE, from, 0,
             MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    take(state, theirs.data(), counts[static_cast<std::size_t>(from)]);
  }
}

void ddpsim_mpi_stop() {
  MPI_Finalize();
}
}
