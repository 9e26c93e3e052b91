// `ddpsim calibrate --backend tcp` by itself, over plain loopback: what it runs is compiled with
// AddressSanitizer in every build (tests/CMakeLists.txt). Exit code 0: every sample is there.
#include <cstdio>
#include <exception>
#include <set>

#include "calib/calibrate.h"

int main() {
  using namespace ddpsim;
  Cluster c;
  c.name = "three hosts";
  c.device = DeviceKind::Cpu;
  c.hosts = 3;
  c.link.bandwidth = {1'000'000'000};
  c.link.transport = "tcp";
  calib::CalibrateOptions o;
  o.rank_counts = {2, 3};
  o.collective_bytes = {4096, 65536};
  o.repetitions = 2;
  o.loopback = true;
  o.timeout_s = 120;
  try {
    Run run = calib::calibrate(topology::Fabric(c), o);
    std::set<std::string> kinds;
    std::multiset<std::int64_t> ranks;  // whose core time of a large all-reduce is there
    for (const Sample& s : run.samples) {
      kinds.insert(s.op);
      if (s.durations.empty())
        return std::printf("a sample of %s has no durations\n", s.op.c_str()), 1;
      if (s.op != "all_reduce_cpu") continue;
      if (s.parameters.at("bytes") != 65536)
        return std::printf("of an all-reduce of few bytes\n"), 1;
      ranks.insert(s.parameters.at("ranks"));
    }
    std::printf("%zu samples of %zu kinds\n", run.samples.size(), kinds.size());
    return kinds.size() >= 5 && ranks == std::multiset<std::int64_t>{2, 3} ? 0 : 1;
  } catch (const std::exception& e) {
    return std::printf("%s\n", e.what()), 1;
  }
}
