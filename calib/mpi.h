// The real Open MPI on hosts of this machine, and the real Horovod over it: mpirun starts a script
// of tools/python once per rank in its host's namespace, and rank 0 writes the Run.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "sim/model/cluster.h"
#include "sim/model/run.h"

namespace ddpsim::calib {

struct MpiOptions {
  std::string python = "/usr/bin/python3";         // an interpreter that has what the script needs
  std::string script;                              // path of ddpsim_mpi.py or ddpsim_horovod.py
  std::vector<std::string> arguments;              // of the script, but --workload and --out
  std::string workload;                            // text of the workload's document; "" = none
  std::map<std::string, std::string> environment;  // OMPI_MCA_...
  bool loopback = false;                           // do not make hosts
  double timeout_s = 600;
};

// hosts[r]: host of rank r, each another. The Run has no case yet. As record_torch: without
// privilege the ranks run over plain loopback and the Run says so; throws std::runtime_error with
// the script's own sentence or mpirun's if a rank fails or the time is over; nothing is left
// running. Sizes (--sizes) and interrupted (calib/interrupt.h): what was measured, or
// NothingMeasured.
Run record_mpi(const Cluster& cluster, const std::vector<int>& hosts, const MpiOptions& options);

// "4.1.4", of mpirun in the PATH. Throws std::runtime_error if there is none.
std::string open_mpi_version();
// Throw std::runtime_error if Python lacks it.
void require_mpi4py(const std::string& python);
void require_horovod(const std::string& python);

}  // namespace ddpsim::calib
