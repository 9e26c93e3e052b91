#include "sim/predict/memory.h"

#include <algorithm>
#include <numeric>

#include "sim/cost/roofline.h"
#include "sim/model/blocks.h"
#include "sim/predict/lowered.h"
#include "sim/systems/base/record.h"

namespace ddpsim::predict {
namespace {

constexpr std::int64_t kMiBytes = 1024 * 1024;

// Reserved over allocated: 19 runs of Megatron 1.03 to 1.09, small models up to 1.16.
constexpr Range kReserved{1.0, 1.05, 1.15};
// CUDA's context and what libraries keep: 771 to 809 MiB in 97 captures (H100, H200, PyTorch 2.11);
// 0.3 GiB where modules are loaded as they are needed and little is used, 1.3 before CUDA 11.7.
constexpr Range kContext{300, 790, 1400};  // MiB
// cuBLAS' workspaces are in the allocator: one of forward's thread and one of backward's.
std::int64_t workspaces(const Profile& p) {
  constexpr std::int64_t kBeforeHopper = 8'519'680;
  return 2 * (p.compute.capability >= 90 ? 32 * kMiBytes : kBeforeHopper);
}
// Of NCCL, MiB a channel and kind of connection: 10 to receive into and 2 to send. Rings alone, or
// trees besides (src/transport/p2p.cc).
constexpr Range kChannel{12, 18, 24};
// NVLS, MiB: two buffers of 1 MiB a channel and head (2.22 and later), 16 channels on 8 heads.
constexpr Range kNvls{0, 256, 512};

// NCCL's buffers of a communicator and of its groups, MiB.
double of_communicators(const collective::Communicator& c, const Profile& p, Level level) {
  double sum = 0;
  auto add = [&](const collective::Communicator& one) {
    if (one.ranks() < 2 || one.backend() != Backend::Nccl) return;
    const bool nvls = p.compute.capability >= 90 && one.ranks() > 2;
    sum += static_cast<double>(std::max<std::size_t>(1, one.rings.size())) * at(kChannel, level);
    if (nvls) sum += at(kNvls, level);
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
  out.frozen = q.workload.frozen_elements();
  out.frozen_bytes = q.workload.frozen_bytes().count;
  if (auto* const note = systems::record_of(q.scenario.plan.system).memory_note)
    out.mixed_units = note(q.workload, q.scenario.plan);
  Held held = program.resident;
  if (gpu) held[Holds::Temporaries] += workspaces(q.profile);
  std::int64_t now = std::accumulate(held.begin(), held.end(), std::int64_t{0});
  out.peak = held;
  out.allocated = now;
  out.phase = "forward";
  std::optional<std::uint32_t> highest;
  Duration shown;
  for (std::size_t k : order) {
    const MemoryChange& c = changes[k];
    held[c.holds] += c.bytes;
    now += c.bytes;
    if (timed) {
      const Span& s = spans[c.op];
      shown = std::max(shown, (c.at_end ? s.end : s.begin) - begun);
      out.over_time.push_back({shown, now});
    }
    if (now <= out.allocated) continue;
    out.allocated = now;
    out.peak = held;
    highest = c.op;
  }
  if (highest) {
    out.during = name_of(program, program.steady, *highest);
    out.phase = phase_of(program, *highest);
  }
  out.activations = program.activations_known;
  auto communicators = [&](Level l) { return bytes_of(of_communicators(comm, q.profile, l)); };
  auto context = [&](Level l) { return gpu ? bytes_of(at(kContext, l)) : 0; };
  auto on_device = [&](Level l) {
    const double reserved = gpu ? at(kReserved, l) : 1;
    return static_cast<std::int64_t>(static_cast<double>(out.allocated) * reserved) +
           communicators(l) + context(l);
  };
  out.communicators = communicators(Level::Mid);
  out.context = context(Level::Mid);
  out.device_low = on_device(Level::Low);
  out.device = on_device(Level::Mid);
  out.device_high = on_device(Level::High);
  out.capacity = q.profile.memory.capacity.count;
  return out;
}

Memory memory_of(const Question& q, const Options& options) {
  Communicators own;
  Program program =
      lowered(q, step_times(q.workload, q.profile, Level::Mid, gathered_in(q.scenario.plan)),
              systems::Steps::SteadyOnly);
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
    std::string text;
    std::string command;
    bool possible;
    std::function<void(Workload&, Scenario&)> make;
  };
  const bool described = q.workload.basis == Basis::Described;
  const bool attends = std::any_of(q.workload.layers.begin(), q.workload.layers.end(),
                                   [](const Layer& l) { return l.op.attention; });
  std::vector<Change> changes = {
      {"fused attention", "--set workload.attention=fused",
       described && attends && !q.workload.fused_attention,
       [](Workload& w, Scenario&) { w.fused_attention = true; }},
      {"activation checkpointing", "--set workload.checkpointing=full",
       described && q.workload.checkpointing == Checkpointing::None &&
           !blocks_of(q.workload).empty(),
       [](Workload& w, Scenario&) { w.checkpointing = Checkpointing::Full; }}};
  auto add = [&](const systems::PlanChange& c) {
    changes.push_back({c.text, c.command, true, [c](Workload&, Scenario& s) { s.plan = c.plan; }});
  };
  if (auto* const smaller = systems::record_of(q.scenario.plan.system).smaller)
    for (const systems::PlanChange& c : smaller(q.scenario.plan, q.workload)) add(c);
  for (const systems::SystemRecord& s : systems::all_systems())
    if (s.instead_of && q.scenario.ranks > 1)
      if (const auto c = s.instead_of(q.scenario.plan)) add(*c);
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

std::string in_words(std::span<const Fit> fits) {
  std::string out;
  for (const Fit& f : fits)
    out += (out.empty() ? "" : ", or with ") + f.change + " (" + f.command + ")";
  return out;
}

}  // namespace ddpsim::predict
