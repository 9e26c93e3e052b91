#include "sim/play/implied.h"

#include <algorithm>

namespace ddpsim::predict {
namespace {

struct Stream {
  std::uint32_t launch = kNoOp;  // of one of its kernels
  Duration since;                // what it does at least from that launch's end
};

std::uint32_t launch_of(const StepProgram& s, const Op& op) {
  std::uint32_t out = kNoOp;
  for (std::uint32_t d : op.dep)
    if (d != kNoOp && s.ops[d].lane == Lane::Host) out = d;
  return out;
}

}  // namespace

std::vector<StepProgram::ExtraDep> by_operation(const StepProgram& s) {
  std::vector<StepProgram::ExtraDep> out = s.extra_deps;
  std::stable_sort(out.begin(), out.end(),
                   [](const auto& a, const auto& b) { return a.op < b.op; });
  return out;
}

std::vector<std::uint32_t> implied_launches(const StepProgram& s,
                                            std::span<const Duration> durations,
                                            std::span<const StepProgram::ExtraDep> extra,
                                            std::size_t lanes) {
  std::vector<std::uint32_t> out(s.ops.size(), kNoOp);
  std::vector<Stream> streams(lanes);
  std::vector<Duration> host(s.ops.size());          // end of an operation of the host,
  std::vector<std::uint32_t> stretch(s.ops.size());  // since it last waited for something
  std::uint32_t last_stretch = 0;
  Duration now;
  auto next = extra.begin();
  for (std::uint32_t i = 0; i < s.ops.size(); ++i) {
    const Op& op = s.ops[i];
    while (next != extra.end() && next->op < i) ++next;
    if (op.lane == Lane::Host) {
      const bool waits = op.dep[0] != kNoOp || op.dep[1] != kNoOp || is_collective(op.kind) ||
                         (next != extra.end() && next->op == i);
      if (waits) ++last_stretch;
      host[i] = now = now + durations[i];
      stretch[i] = last_stretch;
      continue;
    }
    if (!on_device(op.lane) || is_collective(op.kind)) continue;
    Stream& stream = streams[number_of(op.lane)];
    if (const std::uint32_t launch = launch_of(s, op); launch != kNoOp) {
      const bool known = stream.launch != kNoOp && stretch[stream.launch] == stretch[launch];
      const Duration left =
          known ? stream.since - (host[launch] - host[stream.launch]) : Duration{-1};
      if (left.ps >= 0) out[i] = launch;
      stream = {launch, std::max(left, Duration{})};
    }
    stream.since += durations[i];
  }
  return out;
}

}  // namespace ddpsim::predict
