// What DDP does, if it is asked to, beside its buckets: join, batched_grad_copy, an optimizer that
// updates in backward, SyncBatchNorm.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "sim/systems/base/builder.h"
#include "sim/systems/base/lower.h"

namespace ddpsim::systems {

// Whether a step is its buckets' all-reduces beside backward, of which bounds and searches of
// buckets know: without PowerSGD, an optimizer in backward and SyncBatchNorm.
bool plain_buckets(const Plan& plan);

// process_group_size: groups of ranks, each with a model of its own; and which numbers of ranks
// they, and joined_ranks, leave.
std::vector<RankGroups> ddp_groups(const Plan& plan, int ranks, int per_host);
Problem check_ddp_ranks(const Plan& plan, int ranks, int per_host);

// model.join(), while every rank has inputs (distributed.py _pre_forward): all ranks tell that they
// are there; before buffers are sent they agree whose, the last rank's; then whether backward will
// reduce. What is told is not waited for, whose is; and with divide_by_initial_world_size=False how
// many they are, before the first gradient is copied.
void join_count(StepBuilder& b, std::uint32_t notified);
std::uint32_t join_notify(StepBuilder& b);
void join_find_source(StepBuilder& b);
void join_announce(StepBuilder& b);

// batched_grad_copy (#176638): when bucket k is complete, its gradients are copied into it
// together; `divides`: then it is divided, in one piece. `zeroed`: by unused parameters, of these
// bytes.
void copy_in_batched(StepBuilder& b, std::uint32_t k, const Workload& w, bool divides);

// _apply_optimizer_in_backward (optimizer_overlap_hooks.py): on a stream of its own, when bucket k
// is reduced, it is divided and its parameters are updated, one after another. CPU:
// _register_fused_optim: in the callback of the all-reduce, of what was divided before it. Returns
// the update.
std::uint32_t update_in_backward(StepBuilder& b, std::uint32_t k, std::uint32_t reduced,
                                 const Workload& w, const StepTimes& times, Lane stream);

// The compute stream goes on behind the last of these updates.
void await_update(StepBuilder& b, std::uint32_t update);

// SyncBatchNorm, in every batch norm of a described workload: forward all-gathers statistics, 2C +
// 1 floats a rank, and the host waits for them, since what it computes next depends on how many
// ranks had inputs; backward all-reduces 2C.
class SyncedNorms {
 public:
  // REQUIRES: both outlive it; times.layers. `current`: what blocks runs on the caller's stream.
  SyncedNorms(const Workload& w, const StepTimes& times, int ranks, bool current);
  void forward(StepBuilder& b) const;
  // Before the gradient of `t` is computed.
  void backward(StepBuilder& b, TensorIndex t) const;

 private:
  std::uint32_t blocking(StepBuilder& b, const OpWord& word, std::uint32_t norm, std::int64_t bytes,
                         bool awaited) const;
  const Workload& w_;
  const StepTimes& times_;
  const int ranks_;
  const bool current_;
  std::vector<std::size_t> norms_;  // layers
  std::vector<std::optional<std::uint32_t>>
      first_;  // by tensor: the norm whose first gradient it is
};

std::span<const OpWord> ddp_option_words();

}  // namespace ddpsim::systems
