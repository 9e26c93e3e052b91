// All-reduces executed alone, and what their simulation says.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "sim/analysis/compare.h"
#include "sim/predict/alone.h"
#include "tools/cmd/collectives.h"
#include "tools/cmd/executed.h"

namespace ddpsim::cli {
namespace {

constexpr double kWarmups = 2;  // plays of each size before those that count (calib/collectives.h)

std::string place_of(const Loaded& l) {
  std::string out = fmt::format("{}, {} ranks", l.cluster.name, l.scenario.ranks);
  if (l.scenario.rank_order.empty()) return out;
  out += ", order";
  for (int d : l.scenario.rank_order) out += " " + std::to_string(d);
  return out;
}

// Pairs of algorithms at one place and size.
void rank(ExecutedReport& r) {
  for (std::size_t i = 0; i < r.rows.size(); ++i)
    for (std::size_t j = i + 1; j < r.rows.size(); ++j) {
      const ExecutedRow& a = r.rows[i];
      const ExecutedRow& b = r.rows[j];
      if (a.gloo || a.where != b.where || a.bytes != b.bytes || a.algorithm == b.algorithm ||
          a.bytes < 256 * kKiB)
        continue;
      double ratio = static_cast<double>(a.measured.ps) / static_cast<double>(b.measured.ps);
      if (std::max(ratio, 1 / ratio) <= 1.03) continue;
      ++r.ranked;
      r.ranked_right += (a.predicted < b.predicted) == (a.measured < b.measured);
    }
}

}  // namespace

ExecutedReport judge_executed(const Terminal& t, const std::string& folder) {
  ExecutedReport r;
  std::vector<double> errors;
  std::vector<double> gloo_errors;
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
    collective::Communicator comm =
        collective::make_communicator(*l.fabric, devices_of(l.scenario), backend, algorithm);
    for (const Sample& s : run.samples) {
      auto bytes = s.parameters.find("bytes");
      if (s.op != "all_reduce" || bytes == s.parameters.end() || s.durations.empty()) continue;
      std::vector<double> times;
      for (Duration d : s.durations) times.push_back(static_cast<double>(d.ps));
      ExecutedRow row;
      row.where = place_of(l) + (backend == Backend::Gloo ? ", Gloo" : "");
      row.algorithm = algorithm;
      row.bytes = bytes->second;
      double median = analysis::median(times);
      row.measured = {static_cast<std::int64_t>(median)};
      for (double& x : times) x = std::abs(x - median);
      row.deviation = analysis::median(times) / median;
      row.gloo = backend == Backend::Gloo;
      row.predicted =
          predict::all_reduce_alone(comm, l.profile, {row.bytes}, predict::Fidelity::Message,
                                    Level::Mid, kWarmups + static_cast<double>(times.size()) / 2);
      double error = std::abs(static_cast<double>(row.predicted.ps) / median - 1);
      if (row.bytes >= 256 * kKiB && row.gloo) {
        ++r.gloo_rows;
        if (row.deviation <= kRepeats) gloo_errors.push_back(error);
      } else if (row.bytes >= 256 * kKiB) {
        errors.push_back(error);
      }
      r.rows.push_back(std::move(row));
    }
  }
  std::stable_sort(r.rows.begin(), r.rows.end(), [](const ExecutedRow& a, const ExecutedRow& b) {
    return std::tie(a.where, a.algorithm, a.bytes) < std::tie(b.where, b.algorithm, b.bytes);
  });
  r.judged = errors.size();
  if (!errors.empty()) {
    r.median = analysis::median(errors);
    r.p95 = analysis::percentile(errors, 95);
  }
  r.gloo_judged = gloo_errors.size();
  if (!gloo_errors.empty()) {
    r.gloo_median = analysis::median(gloo_errors);
    r.gloo_largest = *std::max_element(gloo_errors.begin(), gloo_errors.end());
  }
  rank(r);
  return r;
}

}  // namespace ddpsim::cli
