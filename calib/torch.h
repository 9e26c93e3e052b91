// Real PyTorch on hosts of this machine: a process per rank runs tools/python/ddpsim_record.py in
// its host's namespace, and rank 0 writes the Run. Or on its GPUs: no hosts are made, and the ranks
// talk as NCCL finds best.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sim/io/descriptors.h"
#include "sim/model/cluster.h"
#include "sim/model/run.h"

namespace ddpsim::calib {

// A free TCP port of 127.0.0.1 that the kernel gives to nobody else while this lives: bound, not
// listening, with SO_REUSEADDR, so that the one who is told of it (rank 0's TCPStore, which comes
// seconds later) can listen there. Throws std::runtime_error if there is none.
class HeldPort {
 public:
  HeldPort();
  int number() const { return number_; }

 private:
  io::Descriptor held_;
  int number_ = 0;
};

struct TorchOptions {
  std::string python = "/usr/bin/python3";  // an interpreter that has PyTorch
  std::string script;                       // path of ddpsim_record.py
  std::vector<std::string> arguments;       // of the script, but --workload and --out
  std::string workload;  // text of the workload's document; "" = no workload is asked for
  std::map<int, double> slow_ranks;  // factors of timed layers
  bool loopback = false;             // do not make hosts
  bool partial = false;  // the script knows --partial: interrupted, what it wrote there is the Run
  bool gpus = false;     // rank r drives GPU r of this machine, unless `environment` says where
  // gpus: on top of the caller's environment, of rank r.
  std::function<std::vector<std::pair<std::string, std::string>>(int rank)> environment;
  double timeout_s = 600;
};

// hosts[r]: host of rank r. The Run has no case yet. Without privilege, or on a cluster that cannot
// be made of namespaces, the ranks run over plain loopback and origin.hosts and origin.reason say
// so. Throws std::runtime_error with the script's own sentence if a rank fails or the time is over;
// nothing is left running, and no file is left. `partial` and interrupted (calib/interrupt.h): what
// was measured, or NothingMeasured.
Run record_torch(const Cluster& cluster, const std::vector<int>& hosts,
                 const TorchOptions& options);

// "1.13" for the PyTorch of this interpreter. Throws std::runtime_error if it has none.
std::string torch_version(const std::string& python);

}  // namespace ddpsim::calib
