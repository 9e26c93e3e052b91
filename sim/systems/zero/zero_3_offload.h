// Offloading of ZeRO-3: the optimizer and its state, gradients and, with offload_param, the shards
// of weights are the host's.
#pragma once

#include <vector>

#include "sim/systems/zero/zero_step.h"

namespace ddpsim::systems {

// What a step does in place of what it does with shards on the device. Elements are those of a
// rank's shards, padding counted.
class Zero3Offload {
 public:
  // REQUIRES: job.timed.host_memory. `job` is there as long as this.
  Zero3Offload(const ZeroJob& job, int micro_steps) : job_(job), micro_steps_(micro_steps) {}

  // Bucket k has been reduced: the rank's part, of so many parameters (the largest one's part:
  // `largest`), goes to the host.
  struct Part {
    std::int64_t elements = 0;
    std::int64_t tensors = 0;
    std::int64_t largest = 0;
  };
  void take(ZeroStep& s, std::uint32_t k, const Part& part, int micro) const;
  // fp16: whether a gradient that the host has is infinite.
  void check_overflow(ZeroStep& s, std::int64_t elements) const;
  // The norm of a group's gradients, from those of its parameters.
  void norm(ZeroStep& s, std::uint32_t group, std::int64_t tensors, bool last) const;
  // The optimizer over a group's shards; weights from it.
  void update(ZeroStep& s, std::uint32_t group, std::int64_t elements) const;

 private:
  void move(ZeroStep& s, ZeroStep::Stream stream, const OpWord& word, std::uint32_t subject,
            std::int64_t bytes, std::int64_t copies) const;
  void on_host(ZeroStep& s, const OpWord& word, std::uint32_t subject, std::int64_t bytes) const;
  // In the last micro-step: the optimizer's gradients of four bytes.
  void give_optimizer(ZeroStep& s, std::uint32_t k, const Part& part) const;

  const ZeroJob& job_;
  const int micro_steps_;
};

// offload_param: shards of so many parameters, which are about to be gathered as bucket k, come to
// the device; the host waits for each.
void bring_shards(ZeroStep& s, const ZeroJob& job, std::uint32_t k, std::int64_t bytes,
                  std::int64_t tensors);
// The same of parameters that stay whole, after the optimizer.
void bring_persistent_shards(ZeroStep& s, const ZeroJob& job, std::int64_t bytes,
                             std::int64_t tensors);

std::span<const OpWord> zero_3_offload_words();

}  // namespace ddpsim::systems
