// FSDP1 and FSDP2 call operations that are the same by the same words (systems/base/words.h).
#pragma once

#include "sim/systems/base/words.h"

namespace ddpsim::systems::fsdp {

constexpr OpWord copy_word(const char* name, Phase phase) {
  return {name, {.does = Does::Copy, .phase = phase, .of = Of::Label, .in_micro_step = true}};
}
constexpr OpWord collective_word(const char* name, Phase phase, Operation o) {
  return {name,
          {.does = Does::Communicate,
           .phase = phase,
           .of = Of::Label,
           .touches = Touches::Bucket,
           .operation = o,
           .in_micro_step = true}};
}
inline constexpr OpWord kStart{"wait/optimizer", {.does = Does::Host, .in_micro_step = true}};
inline constexpr OpWord kLimit{"limit/",
                               {.does = Does::Host, .of = Of::Label, .in_micro_step = true}};
inline constexpr OpWord kLimitAgain{"limit/bwd.",
                                    {.does = Does::Host, .of = Of::Label, .in_micro_step = true}};
inline constexpr OpWord kCastShard = copy_word("cast_shard/", Phase::Between);
inline constexpr OpWord kCastShardAgain = copy_word("cast_shard/bwd.", Phase::Between);
// 1.13 with CPUOffload and param_dtype: of a unit that was gathered ahead, once more.
inline constexpr OpWord kCastShardTwice = copy_word("cast_shard/again.", Phase::Between);
inline constexpr OpWord kCastShardAgainTwice = copy_word("cast_shard/bwd.again.", Phase::Between);
// CPUOffload, CPUOffloadPolicy.
constexpr OpWord move_word(const char* name, Phase phase) {
  return {name, {.does = Does::Move, .phase = phase, .of = Of::Label, .in_micro_step = true}};
}
inline constexpr OpWord kShardToDevice = move_word("to_device/", Phase::Between);
inline constexpr OpWord kShardToDeviceAgain = move_word("to_device/bwd.", Phase::Between);
inline constexpr OpWord kShardToDeviceTwice = move_word("to_device/again.", Phase::Between);
inline constexpr OpWord kShardToDeviceAgainTwice =
    move_word("to_device/bwd.again.", Phase::Between);
inline constexpr OpWord kGradientToHost = move_word("to_host/", Phase::Reduced);
inline constexpr OpWord kAwaitToHost{"wait/to_host/",
                                     {.does = Does::Wait, .of = Of::Label, .in_micro_step = true}};
// FSDP1: the host waits for all of them at once.
inline constexpr OpWord kAwaitGradients{"wait/to_host",
                                        {.does = Does::Wait, .in_micro_step = true}};
inline constexpr OpWord kZeroOnHost{"host_zero_gradients", {.does = Does::Host}};
inline constexpr OpWord kAddOnHost{"host_add/",
                                   {.does = Does::Host, .of = Of::Label, .in_micro_step = true}};
inline constexpr OpWord kGather =
    collective_word("all_gather/", Phase::Forward, Operation::AllGather);
inline constexpr OpWord kGatherAgain =
    collective_word("all_gather/bwd.", Phase::Backward, Operation::AllGather);
inline constexpr OpWord kUnitForward{
    "fwd/", {.phase = Phase::Forward, .of = Of::Label, .in_micro_step = true}};
inline constexpr OpWord kUnitBackward{
    "bwd/", {.phase = Phase::Backward, .of = Of::Label, .in_micro_step = true}};
// Gradients of a unit's parameters into one.
inline constexpr OpWord kFlatten{"flatten_gradient/",
                                 {.does = Does::Copy,
                                  .phase = Phase::Backward,
                                  .of = Of::Label,
                                  .touches = Touches::Bucket,
                                  .in_micro_step = true}};
inline constexpr OpWord kAccumulateFlat = copy_word("accumulate/", Phase::Backward);
inline constexpr OpWord kCastGradient = copy_word("cast_gradient/", Phase::Backward);
inline constexpr OpWord kPad = copy_word("pad/", Phase::Backward);
inline constexpr OpWord kZeroShard = copy_word("zero_shard/", Phase::Backward);
inline constexpr OpWord kPredivide = copy_word("predivide/", Phase::Backward);
inline constexpr OpWord kScatter =
    collective_word("reduce_scatter/", Phase::Backward, Operation::ReduceScatter);
inline constexpr OpWord kReduce =
    collective_word("allreduce/", Phase::Backward, Operation::AllReduce);
inline constexpr OpWord kPostdivide = copy_word("postdivide/", Phase::Reduced);
inline constexpr OpWord kCastBack = copy_word("cast_back/", Phase::Reduced);
inline constexpr OpWord kAccumulateShard = copy_word("accumulate_shard/", Phase::Reduced);
// 1.13, first step: whether all ranks run the same unit.
inline constexpr OpWord kOrderCount{"all_gather/order_count.",
                                    {.does = Does::Communicate,
                                     .of = Of::Label,
                                     .operation = Operation::AllGather,
                                     .in_micro_step = true}};
inline constexpr OpWord kOrderIndex{"all_gather/order_index.",
                                    {.does = Does::Communicate,
                                     .of = Of::Label,
                                     .operation = Operation::AllGather,
                                     .in_micro_step = true}};
inline constexpr OpWord kOrderCountWait{
    "wait/order_count.", {.does = Does::Wait, .of = Of::Label, .in_micro_step = true}};
inline constexpr OpWord kOrderIndexWait{
    "wait/order_index.", {.does = Does::Wait, .of = Of::Label, .in_micro_step = true}};
inline constexpr OpWord kZeroGradients = copy_word("zero_gradient/", Phase::Between);

// FSDP2: shards of a unit's parameters into one buffer, and weights out of it.
inline constexpr OpWord kShardIn = copy_word("copy_in_shard/", Phase::Between);
inline constexpr OpWord kShardInAgain = copy_word("copy_in_shard/bwd.", Phase::Between);
inline constexpr OpWord kUnitOut = copy_word("copy_out/unit.", Phase::Between);
inline constexpr OpWord kUnitOutAgain = copy_word("copy_out/bwd.", Phase::Between);
// Gradients of a unit's parameters, each padded, into one buffer of dtype reduce_dtype.
inline constexpr OpWord kChunkCat = copy_word("chunk_cat/", Phase::Backward);
// One rank: what would be reduced and scattered.
inline constexpr OpWord kCopyGradient = copy_word("copy_gradient/", Phase::Backward);
// Weights into the shards of a smaller group (reshard_after_forward=N).
inline constexpr OpWord kReshard = copy_word("reshard/", Phase::Forward);

}  // namespace ddpsim::systems::fsdp
