#include "calib/gpu/play.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "sim/cost/roofline.h"

namespace ddpsim::calib::gpu {
namespace {

Stream stream_of(Lane l) {
  return l == Lane::Comm ? Stream::Comm : l == Lane::Callback ? Stream::Callback : Stream::Compute;
}

// Where each gradient lies: bucket after bucket, or tensor after tensor.
std::vector<std::int64_t> offsets_of(const StepProgram& s, const Program& p) {
  std::vector<std::int64_t> out(p.tensor_bytes.size(), -1);
  std::int64_t at = 0;
  for (const Bucket& b : s.buckets)
    for (TensorIndex t : b.tensors) {
      out[t] = at;
      at += p.tensor_bytes[t];
    }
  for (std::size_t t = 0; t < out.size(); ++t)
    if (out[t] < 0) {
      out[t] = at;
      at += p.tensor_bytes[t];
    }
  return out;
}

Part::Step make_step(const StepProgram& s, const Program& program, const Profile& profile,
                     int ranks, Part& part) {
  Part::Step out;
  out.program = &s;
  out.work.resize(s.ops.size());
  out.message.assign(s.ops.size(), -1);
  out.awaited.assign(s.ops.size(), 0);
  std::vector<std::int64_t> offset = offsets_of(s, program);
  std::int64_t gradients = 0;
  std::int64_t others = 0;
  for (std::int64_t b : program.tensor_bytes) gradients += b;
  for (std::uint32_t i = 0; i < s.ops.size(); ++i) {
    const Op& op = s.ops[i];
    for (std::uint32_t d : deps_of(s, i))
      if (s.ops[d].lane != op.lane) out.awaited[d] = 1;
    out.duration_ns.push_back(
        op.lane == Lane::Host ? predict::price(op, s, program, profile, Level::Mid).ps / 1000 : 0);
    if (op.lane == Lane::Host) continue;
    if (is_collective(op.kind)) {
      Message m;
      m.broadcast = is_broadcast(op.kind);
      m.type = op.dtype;
      m.elements = op.bytes / element_size(m.type);
      m.gradients = carries_tensors(op.kind);
      if (m.gradients)
        m.offset = offset[tensors_of(program, s, i).front()];
      else
        m.offset = others, others += (op.bytes + 15) / 16 * 16;
      out.message[i] = static_cast<std::int32_t>(out.messages.size());
      out.messages.push_back(m);
      continue;
    }
    Work& work = out.work[i];
    if (op.cost != Cost::Measured) {
      work.kind = Work::Kind::Move;
      work.traffic = op.traffic;
      work.kernels = std::max(1, op.kernels);
      if (op.kind.divides) {  // so that sums do not grow from step to step
        work.factor = 1.0 / ranks;
        work.offset = of_tensor(op.kind) ? offset[op.subject] : 0;
      }
    } else {
      work.ns = op.duration.ps / 1000;
    }
  }
  part.gradient_bytes = std::max(part.gradient_bytes, gradients);
  part.other_bytes = std::max(part.other_bytes, others);
  return out;
}

class Player {
 public:
  Player(const Part& part, const PlayOptions& options, Device& device)
      : part_(part), options_(options), device_(device) {}

  Played run() {
    std::vector<std::pair<std::size_t, bool>> sequence;  // kind, recorded
    for (std::size_t k = 0; k + 1 < part_.kinds.size(); ++k) sequence.emplace_back(k, false);
    for (int k = 0; k < options_.steady_steps + options_.recorded_steps; ++k)
      sequence.emplace_back(part_.kinds.size() - 1, k >= options_.steady_steps);
    device_.synchronize_all();
    out_.start_ns = clock_ = device_.now_ns();
    for (auto [kind, recorded] : sequence) step(part_.kinds[kind], recorded);
    device_.synchronize_all();
    out_.host_ns = device_.now_ns() - out_.start_ns;
    for (std::size_t k = 0; k < ends_.size(); ++k)
      out_.steps[k].end_ns = device_.moment_ns(ends_[k]);
    for (const Noted& n : noted_) {
      PlayedOp o = n.op;
      if (n.begin < 0) {  // the host's own
        out_.ops.push_back(o);
        continue;
      }
      o.begin_ns = device_.moment_ns(n.begin);
      o.end_ns = device_.moment_ns(n.end);
      o.ready_ns = n.waits.empty() ? o.begin_ns : INT64_MIN;
      for (Device::Event e : n.waits) o.ready_ns = std::max(o.ready_ns, device_.moment_ns(e));
      out_.ops.push_back(o);
    }
    return std::move(out_);
  }

 private:
  struct Noted {
    PlayedOp op;
    std::vector<Device::Event> waits;
    Device::Event begin = -1;
    Device::Event end = -1;
  };

  void step(const Part::Step& k, bool recorded) {
    const StepProgram& s = *k.program;
    events_.assign(s.ops.size(), -1);
    for (std::uint32_t i = 0; i < s.ops.size(); ++i) {
      if (s.ops[i].lane == Lane::Host)
        host(k, i, recorded);
      else
        issue(k, i, recorded);
    }
    // A step ends with its last operation: the optimizer, on the compute stream.
    ends_.push_back(device_.record(stream_of(s.ops.back().lane), true));
    out_.steps.push_back({&s, 0, recorded});
  }

  void host(const Part::Step& k, std::uint32_t i, bool recorded) {
    for (std::uint32_t d : deps_of(*k.program, i)) {
      if (events_[d] < 0) continue;
      device_.synchronize(events_[d]);
      clock_ = std::max(clock_, device_.now_ns());
    }
    std::int64_t begin = clock_;
    clock_ += k.duration_ns[i];
    device_.host_until(clock_);
    if (recorded) noted_.push_back({{out_.steps.size(), i, begin, begin, clock_}, {}, -1, -1});
  }

  void issue(const Part::Step& k, std::uint32_t i, bool recorded) {
    const StepProgram& s = *k.program;
    const Op& op = s.ops[i];
    Stream stream = stream_of(op.lane);
    Noted noted;
    for (std::uint32_t d : deps_of(s, i)) {
      if (s.ops[d].lane == op.lane || events_[d] < 0) continue;
      device_.wait(stream, events_[d]);
      noted.waits.push_back(events_[d]);
    }
    if (recorded) noted.begin = device_.record(stream, true);
    if (k.message[i] >= 0)
      device_.communicate(stream, k.messages[k.message[i]]);
    else
      device_.launch(stream, scaled(k.work[i]));
    if (k.awaited[i] || recorded) events_[i] = device_.record(stream, recorded);
    if (!recorded) return;
    noted.op.step = out_.steps.size();
    noted.op.op = i;
    noted.end = events_[i];
    noted_.push_back(noted);
  }

  Work scaled(Work w) const {
    if (w.kind == Work::Kind::Busy && options_.factor != 1)
      w.ns = std::llround(static_cast<double>(w.ns) * options_.factor);
    return w;
  }

  const Part& part_;
  const PlayOptions options_;
  Device& device_;
  Played out_;
  std::int64_t clock_ = 0;
  std::vector<Device::Event> events_;  // of the step being issued, by operation
  std::vector<Device::Event> ends_;    // by step
  std::vector<Noted> noted_;
};

}  // namespace

Part make_part(const Program& program, const Profile& profile, int ranks) {
  if (program.device != DeviceKind::Gpu)
    throw std::runtime_error("a Program of CPUs cannot be played on a GPU");
  if (!program.streams.empty())
    throw std::runtime_error(
        "a system with streams of its own (fsdp) cannot be played on a GPU yet");
  for (const Op& op : program.steady.ops)
    if (is_collective(op.kind) && op.kind.operation != Operation::AllReduce &&
        !is_broadcast(op.kind))
      throw std::runtime_error(std::string("a Program with collective ") +
                               name_of(op.kind.operation) +
                               " (zero) cannot be played on a GPU yet");
  Part part;
  for (const StepProgram& s : program.warmup)
    part.kinds.push_back(make_step(s, program, profile, ranks, part));
  part.kinds.push_back(make_step(program.steady, program, profile, ranks, part));
  return part;
}

Played play(const Part& part, const PlayOptions& options, Device& device) {
  return Player(part, options, device).run();
}

}  // namespace ddpsim::calib::gpu
