// Shared vocabulary of the lowerings: emits operations on the lanes of a CPU or a GPU rank (who launches, who waits).
#pragma once

#include "sim/model/program.h"

namespace ddpsim::strategy {

// What a main-lane operation costs.
struct Cost {
  Duration duration;         // measured device (GPU) or thread (CPU) time, if traffic == 0
  std::int64_t traffic = 0;  // bytes read + written; priced by the Profile
  std::int32_t kernels = 1;  // launched by the host
  std::int32_t hooks = 0;    // DDP hooks that run on the host with it
};

class StepBuilder {
 public:
  StepBuilder(const Program& program, StepKind kind);
  bool gpu() const { return program_.device == DeviceKind::Gpu; }
  void set_micro(int micro) { micro_ = static_cast<std::int16_t>(micro); }
  // Adds measured host time to the next launch (GPU).
  void host_time(Duration d) { host_carry_ += d; }

  // On the compute stream (GPU, behind its launch) or on the host thread (CPU). Zero kernels with zero traffic is measured work.
  std::uint32_t main(OpKind kind, std::uint32_t subject, std::int64_t bytes, Cost cost);
  // On the compute stream / host thread; on a GPU also waits for `dep` (CPU: the caller has emitted a host wait).
  std::uint32_t main_after(OpKind kind, std::uint32_t subject, std::int64_t bytes, Cost cost, std::uint32_t dep);
  // A collective: on the communicator's stream or Gloo's workers. `on_current_stream`: on the compute stream instead (GPU).
  std::uint32_t collective(OpKind kind, std::uint32_t subject, std::int64_t bytes, bool on_current_stream = false);
  // The host blocks until `dep` ended.
  std::uint32_t wait(OpKind kind, std::uint32_t subject, std::uint32_t dep);
  // Continuation of a collective (comm hook's future).
  std::uint32_t callback(OpKind kind, std::uint32_t subject, std::int64_t bytes, Cost cost, std::uint32_t dep);
  // Host-only work priced by the Profile.
  std::uint32_t host(OpKind kind);
  void add_dep(std::uint32_t op, std::uint32_t dep);
  // The next operation on the compute stream waits for `dep` (GPU; on a CPU the host waits).
  void before_next_main(std::uint32_t dep) { carried_.push_back(dep); }

  StepProgram step;

 private:
  std::uint32_t push(Op op);
  Op make(OpKind kind, Lane lane, std::uint32_t subject, std::int64_t bytes) const;
  std::uint32_t launch(Cost cost, bool measured);
  const Program& program_;
  std::int16_t micro_ = -1;
  std::uint32_t last_host_ = kNoOp;
  std::uint32_t last_compute_ = kNoOp;
  Duration host_carry_;
  std::vector<std::uint32_t> carried_;
};

}  // namespace ddpsim::strategy
