// All-reduces executed alone, and what their simulation says. Before each the hosts wait for each
// other, so that the links' saved bursts are there, as all_reduce_alone() has it.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "sim/analysis/compare.h"
#include "sim/play/alone.h"
#include "sim/systems/base/record.h"
#include "tools/cmd/collectives.h"
#include "tools/cmd/executed.h"

namespace ddpsim::cli {
namespace {

constexpr double kWarmups = 2;  // plays of each size before those that count (calib/collectives.h)

std::string place_of(const Loaded& l) {
  std::string out = fmt::format("{}, {} ranks", l.cluster.name, l.scenario.ranks);
  if (l.scenario.rank_order.empty()) return out;
  out += ", order";
  for (DeviceId d : l.scenario.rank_order) out += " " + to_string(d);
  return out;
}

void add_executed(const Terminal& t, const std::string& folder,
                  std::vector<validation::ExecutedRow>& rows) {
  for (const std::string& file : run_files(folder)) {
    auto slash = file.rfind('/');
    if (file.compare(slash + 1, 10, "allreduce-") != 0) continue;
    Run run = io::read_run(io::parse_json(io::read_file(file), file), file);
    if (run.evidence != EvidenceClass::Collective || run.origin.hosts != "namespaces") continue;
    QuestionFlags q;
    q.scenario = folder + "/scenarios/" + run.scenario + ".json";
    Loaded l = load(t, q);
    Backend backend = backend_of(l.scenario.plan, l.cluster.device);
    Algorithm algorithm = all_reduce_algorithm(l.scenario.plan, backend);
    collective::OpenMpi mpi;
    if (backend == Backend::Mpi)
      mpi = collective::parse_open_mpi(l.scenario.plan.open_mpi, l.scenario.plan.environment).mpi;
    const collective::Communicator comm =
        backend == Backend::Mpi
            ? collective::make_mpi(*l.fabric, devices_of(l.scenario), mpi)
            : collective::make_communicator(*l.fabric, devices_of(l.scenario), backend, algorithm);
    for (const Sample& s : run.samples) {
      auto bytes = s.parameters.find("bytes");
      if (s.op != "all_reduce" || bytes == s.parameters.end() || s.durations.empty()) continue;
      std::vector<double> times;
      for (Duration d : s.durations) times.push_back(static_cast<double>(d.ps));
      validation::ExecutedRow row;
      row.where = place_of(l);
      row.algorithm = name_of(algorithm);
      row.bytes = bytes->second;
      if (backend == Backend::Gloo) {
        row.played_by = validation::PlayedBy::Gloo;
        row.where += ", Gloo";
      } else if (backend == Backend::Mpi) {
        row.played_by = validation::PlayedBy::OpenMpi;
        row.where += ", Open MPI";
        row.algorithm = name_of(collective::all_reduce_that_runs(mpi, comm.ranks(), row.bytes,
                                                                 element_size(DType::Float32)));
        row.in_sample = run.split != "held_out";
      }
      row.predicted =
          predict::all_reduce_alone(comm, l.profile, {row.bytes}, predict::Fidelity::Message,
                                    Level::Mid, kWarmups + static_cast<double>(times.size()) / 2);
      validation::set_measured(row, std::move(times));
      rows.push_back(std::move(row));
    }
  }
}

}  // namespace

validation::ExecutedReport judge_executed(const Terminal& t,
                                          const std::vector<std::string>& folders) {
  std::vector<validation::ExecutedRow> rows;
  for (const std::string& folder : folders) add_executed(t, folder, rows);
  return validation::judge(std::move(rows));
}

}  // namespace ddpsim::cli
