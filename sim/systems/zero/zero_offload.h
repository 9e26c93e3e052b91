// ZeRO-Offload of stages 1 and 2: the optimizer and its state are the host's.
#pragma once

#include <vector>

#include "sim/systems/zero/zero_step.h"

namespace ddpsim::systems {

// Of a bucket, every stage: what the host has comes back, and is added; the rank's part of it goes
// to the host, which waits where memory is not pinned.
inline constexpr OpWord kZeroFromHost = zero_word("to_device/bucket.", Does::Move, Phase::Reduced);
inline constexpr OpWord kZeroAddHosts =
    zero_word("accumulate_host/bucket.", Does::Copy, Phase::Reduced);
inline constexpr OpWord kZeroToHost = zero_word("to_host/bucket.", Does::Move, Phase::Reduced);
inline constexpr OpWord kZeroAwaitHost = zero_word("wait/to_host.", Does::Wait, Phase::Reduced);

// DeepSpeedCPUAdam, of an element: gradient, weight and two states read, three of them written,
// once. Source: csrc/adam/cpu_adam_impl.cpp.
inline constexpr std::int64_t kHostAdam = 28;

class ZeroOffload {
 public:
  // REQUIRES: job.timed.host_memory. `job` and `partition` are there as long as this.
  ZeroOffload(const ZeroJob& job, const ZeroPartition& partition, int micro_steps)
      : job_(job), partition_(partition), micro_steps_(micro_steps) {}

  // Between steps, of a rank: all weights, and a buffer as large as the largest parameter.
  Held resident() const;
  // Bucket k has been reduced: what the rank owns of it goes to the host.
  void take(ZeroStep& s, std::uint32_t k, const std::vector<TensorIndex>& tensors, int micro) const;
  // The optimizer's step, until the rank's own weights are on the device again.
  void update(ZeroStep& s) const;

 private:
  struct Owned {
    std::int64_t elements = 0;
    std::int64_t whole = 0;  // of the parameters that these are of
    std::int64_t slices = 0;
  };
  Owned owned(const std::vector<TensorIndex>& tensors) const;
  void move(ZeroStep& s, ZeroStep::Stream stream, const OpWord& word, std::uint32_t subject,
            std::int64_t bytes) const;
  void on_host(ZeroStep& s, const OpWord& word, std::int64_t bytes) const;
  void bring_weights(ZeroStep& s) const;

  const ZeroJob& job_;
  const ZeroPartition& partition_;
  const int micro_steps_;
};

std::span<const OpWord> zero_offload_words();

}  // namespace ddpsim::systems
