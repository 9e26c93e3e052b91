#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "tests/gpu/fake/fake.h"

namespace ddpsim::fake {
namespace {

[[noreturn]] void bad(const std::string& what) {
  std::fprintf(stderr, "fake GPU: %s\n", what.c_str());
  std::_Exit(70);
}

void set(Planted& p, const std::string& key, const std::string& value) {
  const std::map<std::string, double*> numbers{
      {"memory_bytes_per_s", &p.memory_bytes_per_s},
      {"kernel_us", &p.kernel_us},
      {"form", &p.form},
      {"cache_bytes", &p.cache_bytes},
      {"device_bytes", &p.device_bytes},
      {"fp32", &p.fp32},
      {"tf32", &p.tf32},
      {"bf16", &p.bf16},
      {"fp16", &p.fp16},
      {"conv", &p.conv},
      {"conv_algorithm", &p.conv_algorithm},
      {"conv_workspace_bytes", &p.conv_workspace_bytes},
      {"conv_quick", &p.conv_quick},
      {"conv_quick_algorithm", &p.conv_quick_algorithm},
      {"conv_quick_workspace_bytes", &p.conv_quick_workspace_bytes},
      {"wave_us", &p.wave_us},
      {"split_us", &p.split_us},
      {"tile128", &p.tile128},
      {"tile64", &p.tile64},
      {"aligned4", &p.aligned4},
      {"aligned2", &p.aligned2},
      {"launch_us", &p.launch_us},
      {"event_us", &p.event_us},
      {"latency_us", &p.latency_us},
      {"first_launch_us", &p.first_launch_us},
      {"product_hold", &p.product_hold},
      {"memory_hold", &p.memory_hold},
      {"block_bytes_per_us", &p.block_bytes_per_us},
      {"cold_ms", &p.cold_ms},
      {"pcie_bytes_per_s", &p.pcie_bytes_per_s},
      {"pageable_bytes_per_s", &p.pageable_bytes_per_s},
      {"noise", &p.noise},
      {"nccl_step_us", &p.nccl_step_us},
      {"nccl_bytes_per_s", &p.nccl_bytes_per_s},
      {"nccl_version", &p.nccl_version},
      {"power_cap", &p.power_cap},
      {"thermal", &p.thermal},
      {"refuse", &p.refuse},
      {"turns", &p.turns},
      {"hang_at", &p.hang_at},
      {"fail_at", &p.fail_at},
      {"crash_at", &p.crash_at}};
  const std::map<std::string, std::string*> words{
      {"missing", &p.missing}, {"hang", &p.hang}, {"fail", &p.fail}, {"crash", &p.crash}};
  if (auto word = words.find(key); word != words.end()) {
    *word->second = value;
    return;
  }
  auto number = numbers.find(key);
  if (number == numbers.end()) bad("nothing is called \"" + key + "\"");
  char* end = nullptr;
  *number->second = std::strtod(value.c_str(), &end);
  if (value.empty() || *end != 0) bad(key + ": \"" + value + "\" is no number");
}

}  // namespace

const Planted& planted() {
  static const Planted p = [] {
    Planted out;
    std::string key;
    std::string value;
    if (const char* path = std::getenv("DDPSIM_FAKE_GPU")) {
      std::ifstream file(path);
      if (!file) bad(std::string(path) + " cannot be read");
      while (file >> key >> value) set(out, key, value);
    }
    if (const char* faults = std::getenv("DDPSIM_FAKE_FAULT")) {
      std::istringstream words(faults);
      while (words >> key) {
        auto equals = key.find('=');
        if (equals == std::string::npos) bad("DDPSIM_FAKE_FAULT: \"" + key + "\" has no =");
        set(out, key.substr(0, equals), key.substr(equals + 1));
      }
    }
    return out;
  }();
  return p;
}

}  // namespace ddpsim::fake
