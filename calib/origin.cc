#include "calib/origin.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <cmath>
#include <ctime>
#include <sstream>
#include <thread>

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

Run measured_run(EvidenceClass evidence, const StageResult& stage, double load) {
  Run run;
  run.kind = RunKind::Measured;
  run.evidence = evidence;
  run.origin = origin_of_here();
  run.origin.backend = "tcp";
  run.origin.hosts = stage.shaped ? "namespaces" : "loopback";
  run.origin.reason = stage.reason;
  run.quality.load = load;
  if (load > kNoisyLoad) add_noise(run.quality, fmt::format("{:.1f} cores were busy before the run began", load));
  return run;
}

}  // namespace ddpsim::calib
