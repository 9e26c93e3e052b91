#include "calib/origin.h"

#include <cmath>
#include <ctime>
#include <sstream>
#include <thread>

#include <fmt/format.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "sim/analysis/compare.h"
#include "sim/io/files.h"
#include "sim/model/version.h"

namespace ddpsim::calib {
namespace {

constexpr double kNoisyLoad = 0.3;

std::string line_of(const char* file, const std::string& key) {
  std::istringstream in(io::exists(file) ? io::read_file(file) : std::string());
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(key)) {
      auto colon = line.find(": ");
      return colon == std::string::npos ? line : line.substr(colon + 2);
    }
  return {};
}

}  // namespace

double busy_core_seconds() {
  std::istringstream in(line_of("/proc/stat", "cpu "));
  std::string name;
  std::int64_t v[8] = {};
  in >> name;
  for (auto& x : v) in >> x;
  std::int64_t busy = v[0] + v[1] + v[2] + v[5] + v[6] + v[7];  // all but idle and iowait
  return static_cast<double>(busy) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

double machine_load() {
  double before = busy_core_seconds();
  timespec t{0, 250'000'000};
  ::nanosleep(&t, nullptr);
  return std::round((busy_core_seconds() - before) / 0.25 * 100) / 100;
}

namespace {

Origin origin_of_here() {
  Origin o;
  o.version = kVersion;
  std::time_t now = std::time(nullptr);
  char date[32];
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  o.date = date;
  o.cpu = line_of("/proc/cpuinfo", "model name");
  o.cores = static_cast<int>(std::thread::hardware_concurrency());
  utsname u{};
  ::uname(&u);
  std::string release = u.release;
  o.kernel = std::string(u.sysname) + " " + release.substr(0, release.find('-'));
  return o;
}

}  // namespace

void add_noise(Quality& q, std::string reason) {
  q.verdict = Verdict::Noisy;
  q.reasons.push_back(std::move(reason));
}

void judge_spread(Run& run, bool differ_by_nature) {
  constexpr double kNoisySpread = 0.01;
  auto middle = static_cast<double>(analysis::typical_step(run, false).ps);
  std::vector<double> deviations;
  for (Duration d : analysis::settled_steps(run))
    deviations.push_back(std::abs(static_cast<double>(d.ps) - middle));
  Quality& q = run.quality;
  q.spread = middle > 0 ? std::round(analysis::median(deviations) / middle * 1e6) / 1e6 : 0;
  if (!differ_by_nature && q.spread > kNoisySpread)
    add_noise(
        q, fmt::format("the steps spread by {:.1f} % (median absolute deviation)", 100 * q.spread));
}

bool worth_a_span(OpKind k) {
  return is_collective(k) || is_forward(k) || is_update(k);
}

Span measured_span(const Program& program, const StepProgram& step, std::uint32_t op,
                   int step_index, int rank, std::int64_t step_start_ns, std::int64_t ready_ns,
                   std::int64_t begin_ns, std::int64_t end_ns, const char* algorithm) {
  const Op& o = step.ops[op];
  Span span;
  span.step = step_index;
  span.actor = rank;
  span.lane = o.lane;
  span.kind = o.kind;
  span.op = name_of(program, step, op);
  if (is_collective(o.kind)) {
    span.tensors = tensors_of(program, step, op);
    span.algorithm = algorithm;
  }
  span.bytes = o.bytes;
  span.ready = TimePoint{(ready_ns - step_start_ns) * 1000};
  span.begin = TimePoint{(begin_ns - step_start_ns) * 1000};
  span.end = TimePoint{(end_ns - step_start_ns) * 1000};
  return span;
}

Run measured_run(EvidenceClass evidence, const StageResult& stage, double load) {
  Run run;
  run.kind = RunKind::Measured;
  run.evidence = evidence;
  run.origin = origin_of_here();
  run.origin.backend = "tcp";
  run.origin.hosts = stage.shaped ? "namespaces" : "loopback";
  run.origin.reason = stage.reason;
  run.quality.load = load;
  if (load > kNoisyLoad)
    add_noise(run.quality, fmt::format("{:.1f} cores were busy before the run began", load));
  return run;
}

}  // namespace ddpsim::calib
