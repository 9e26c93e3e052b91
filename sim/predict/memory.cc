#include "sim/predict/memory.h"

#include <algorithm>
#include <numeric>

#include "sim/model/blocks.h"
#include "sim/predict/lowered.h"
#include "sim/predict/roofline.h"

namespace ddpsim::predict {
namespace {

constexpr std::int64_t kMiBytes = 1024 * 1024;

struct Range3 {
  double low, mid, high;
};
// Reserved over allocated: 19 runs of Megatron 1.03 to 1.09, small models up to 1.16.
constexpr Range3 kReserved{1.0, 1.05, 1.15};
// CUDA's context and what libraries keep: 771 to 809 MiB in 97 captures (H100, H200, PyTorch 2.11);
// 0.3 GiB where modules are loaded as they are needed and little is used, 1.3 before CUDA 11.7.
constexpr Range3 kContext{300, 790, 1400};  // MiB
// cuBLAS' workspaces are in the allocator: one of forward's thread and one of backward's.
std::int64_t workspaces(const Profile& p) {
  constexpr std::int64_t kBeforeHopper = 8'519'680;
  return 2 * (p.compute.capability >= 90 ? 32 * kMiBytes : kBeforeHopper);
}
// Of NCCL, MiB a channel and kind of connection: 10 to receive into and 2 to send. Rings alone, or
// trees besides (src/transport/p2p.cc).
constexpr Range3 kChannel{12, 18, 24};
// NVLS: two buffers of 1 MiB a channel and head (2.22 and later), 16 channels on 8 heads.
constexpr std::int64_t kNvls = 256;

// NCCL's buffers of a communicator and of its groups, MiB.
Range3 of_communicators(const collective::Communicator& c, const Profile& p) {
  Range3 sum{0, 0, 0};
  auto add = [&](const collective::Communicator& one) {
    if (one.ranks() < 2 || one.backend != Backend::Nccl) return;
    auto channels = static_cast<double>(std::max<std::size_t>(1, one.rings.size()));
    const bool nvls = p.compute.capability >= 90 && one.ranks() > 2;
    sum.low += channels * kChannel.low;
    sum.mid += channels * kChannel.mid + (nvls ? kNvls : 0);
    sum.high += channels * kChannel.high + (nvls ? 2 * kNvls : 0);
  };
  if (c.groups.empty()) add(c);
  for (const collective::Communicator& g : c.groups) add(g);
  return sum;
}

std::int64_t bytes_of(double mebi) {
  return static_cast<std::int64_t>(mebi) * kMiBytes;
}

const char* phase_of(const Program& p, std::uint32_t op) {
  const OpKind kind = p.steady.ops[op].kind;
  return is_update(kind) ? "the optimizer's step" : is_forward(kind) ? "forward" : "backward";
}

// When the host issues an operation: its launch comes right before it.
Duration issued(const Program& p, std::span<const Span> spans, std::uint32_t op, TimePoint from) {
  const bool launched =
      op > 0 && is_launch(p.steady.ops[op - 1].kind) && p.steady.ops[op - 1].subject == op;
  return spans[launched ? op - 1 : op].begin - from;
}

}  // namespace

Memory memory_of(const Question& q, const Program& program, const collective::Communicator& comm,
                 std::span<const Span> spans) {
  const std::vector<MemoryChange>& changes = program.steady.memory;
  const bool timed = spans.size() >= program.steady.ops.size();
  std::vector<Duration> when(changes.size());
  std::vector<std::size_t> order(changes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const bool gpu = program.device == DeviceKind::Gpu;
  TimePoint from;   // the host's first
  TimePoint begun;  // the device's
  if (timed) {
    from = spans.front().begin;
    begun = spans.back().end;
    for (const Span& s : spans) {
      from = std::min(from, s.begin);
      if (!gpu || s.lane != Lane::Host) begun = std::min(begun, s.begin);
    }
    Duration latest;  // the host issues in order
    for (std::size_t k = 0; k < changes.size(); ++k) {
      const MemoryChange& c = changes[k];
      when[k] = c.at_end ? spans[c.op].end - from : issued(program, spans, c.op, from);
      if (!c.at_end) latest = when[k] = std::max(latest, when[k]);
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return when[a] < when[b]; });
  }
  Memory out;
  Held held = program.resident;
  if (gpu) held[static_cast<std::size_t>(Holds::Temporaries)] += workspaces(q.profile);
  std::int64_t now = std::accumulate(held.begin(), held.end(), std::int64_t{0});
  out.peak = held;
  out.allocated = now;
  out.phase = "forward";
  Duration shown;
  for (std::size_t k : order) {
    const MemoryChange& c = changes[k];
    held[static_cast<std::size_t>(c.holds)] += c.bytes;
    now += c.bytes;
    if (timed) {
      const Span& s = spans[c.op];
      shown = std::max(shown, (c.at_end ? s.end : s.begin) - begun);
      out.over_time.push_back({shown, now});
    }
    if (now <= out.allocated) continue;
    out.allocated = now;
    out.peak = held;
    out.during = name_of(program, program.steady, c.op);
    out.phase = phase_of(program, c.op);
  }
  out.activations = program.activations_known;
  const Range3 nccl = of_communicators(comm, q.profile);
  out.communicators = bytes_of(nccl.mid);
  out.context = gpu ? bytes_of(kContext.mid) : 0;
  auto on_device = [&](double reserved, double network, double context) {
    return static_cast<std::int64_t>(static_cast<double>(out.allocated) * (gpu ? reserved : 1)) +
           bytes_of(network) + (gpu ? bytes_of(context) : 0);
  };
  out.device_low = on_device(kReserved.low, nccl.low, kContext.low);
  out.device = on_device(kReserved.mid, nccl.mid, kContext.mid);
  out.device_high = on_device(kReserved.high, nccl.high, kContext.high);
  out.capacity = q.profile.memory.capacity.count;
  return out;
}

Memory memory_of(const Question& q, const Options& options) {
  Communicators own;
  Program program =
      lowered(q, step_times(q.workload, q.profile, Level::Mid), strategy::Steps::SteadyOnly);
  return memory_of(q, program, (options.known ? *options.known : own).get(q, program));
}

std::vector<Fit> what_fits(const Question& q, const Options& options) {
  std::vector<Fit> out;
  Communicators own;
  Options with = options;
  if (!with.known) with.known = &own;
  auto try_it = [&](const Workload& w, const Scenario& s, const std::string& change,
                    const std::string& command) {
    Question other{w, q.fabric, q.profile, s};
    if (check(other, with.known)) return false;
    Memory m = memory_of(other, with);
    if (m.fits()) out.push_back({change, command, m.device});
    return m.fits();
  };
  struct Change {
    const char* text;
    const char* command;
    bool possible;
    void (*make)(Workload&, Scenario&);
  };
  const bool described = q.workload.basis == Basis::Described;
  const bool attends = std::any_of(q.workload.layers.begin(), q.workload.layers.end(),
                                   [](const Layer& l) { return l.op.attention; });
  const System system = q.scenario.plan.system;
  const Change changes[] = {
      {"fused attention", "--set workload.attention=fused",
       described && attends && !q.workload.fused_attention,
       [](Workload& w, Scenario&) { w.fused_attention = true; }},
      {"activation checkpointing", "--set workload.checkpointing=full",
       described && q.workload.checkpointing == Checkpointing::None &&
           !blocks_of(q.workload).empty(),
       [](Workload& w, Scenario&) { w.checkpointing = Checkpointing::Full; }},
      {"fully_shard (FSDP2)", "--plan fsdp2",
       system != System::Fsdp && system != System::Fsdp2 && q.scenario.ranks > 1,
       [](Workload&, Scenario& s) {
         Plan plan;
         plan.system = System::Fsdp2;
         plan.pytorch = std::max(s.plan.pytorch, PytorchVersion::V2_7);
         plan.accumulation_steps = s.plan.accumulation_steps;
         s.plan = plan;
       }}};
  for (const Change& c : changes) {
    if (!c.possible) continue;
    Workload w = q.workload;
    Scenario s = q.scenario;
    c.make(w, s);
    try_it(w, s, c.text, c.command);
  }
  // One after another, until it fits.
  Workload all = q.workload;
  Scenario with_all = q.scenario;
  std::string text;
  std::string command;
  for (const Change& c : changes) {
    if (!out.empty() || !c.possible) continue;
    c.make(all, with_all);
    text += (text.empty() ? "" : " and ") + std::string(c.text);
    command += (command.empty() ? "" : " ") + std::string(c.command);
    try_it(all, with_all, text, command);
  }
  // The largest batch: less of it never needs more.
  Workload w = q.workload;
  int low = 0;
  int high = q.workload.batch;
  while (high - low > 1) {
    w.batch = low + (high - low) / 2;
    Question other{w, q.fabric, q.profile, q.scenario};
    (memory_of(other, with).fits() ? low : high) = w.batch;
  }
  w.batch = low;
  if (low > 0)
    try_it(w, q.scenario, "batch " + std::to_string(low),
           "--set workload.batch=" + std::to_string(low));
  return out;
}

}  // namespace ddpsim::predict
