#include "calib/fit/host.h"

#include <array>
#include <map>
#include <utility>

#include "calib/fit/samples.h"

namespace ddpsim::calib {
namespace {

// Sample, and the op of layers that it stands for.
constexpr std::array<std::pair<const char*, const char*>, 9> kCalls{
    {{"add", "add"},
     {"relu", "relu"},
     {"matmul", "bmm"},
     {"dropout", "dropout"},
     {"linear_module", "linear"},
     {"linear_module_autocast", "linear_autocast"},
     {"layer_norm_module", "layer_norm"},
     {"batch_norm_module", "batch_norm"},
     {"conv_module", "conv"}}};

}  // namespace

void fit_host(const std::vector<const Run*>& runs, Profile& p, std::vector<std::string>& notes) {
  std::map<std::string, double> took;
  std::vector<double> bare;
  for (const Run* run : runs)
    for (const Sample& s : run->samples) {
      if (s.durations.empty()) continue;
      if (s.op == "launch") bare.push_back(median_ps(s));
      if (s.op.rfind("torch_host/", 0) == 0 && s.parameters.count("per_call"))
        took[s.op.substr(11)] = median_ps(s);
    }
  if (!bare.empty())
    notes.push_back("a bare launch of CUDA took " + number("%.1f", analysis::median(bare) / 1e6) +
                    " us of host time; it is no part of the profile");
  std::vector<CallCost> calls;
  for (const auto& [sample, op] : kCalls) {
    auto forward = took.find(sample + std::string("/forward"));
    auto backward = took.find(sample + std::string("/backward"));
    if (forward == took.end() || backward == took.end()) continue;
    calls.push_back({op, Duration{static_cast<std::int64_t>(forward->second)},
                     Duration{static_cast<std::int64_t>(backward->second)}});
  }
  auto plain = took.find("add/no_grad");
  if (calls.empty() || plain == took.end()) {
    notes.push_back("host: no Run says what a framework's calls cost; the base profile's");
    return;
  }
  p.host.launch = {static_cast<std::int64_t>(plain->second)};
  p.host.calls = std::move(calls);
  p.host.source =
      "launch and calls: PyTorch's own, measured on this machine's host (one thread, "
      "no profiler); the rest as in the base profile: " +
      p.host.source;
  notes.push_back("host: a call of PyTorch that launches one kernel took " +
                  number("%.1f", plain->second / 1e6) + " us; " +
                  std::to_string(p.host.calls.size()) + " kinds of calls");
}

}  // namespace ddpsim::calib
