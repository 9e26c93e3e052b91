// The vocabularies of the data-parallel systems: what their operations are called and are. Each
// system defines its own words where it lowers; these are the ones that all share.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "sim/model/program.h"

namespace ddpsim::systems {

inline constexpr OpWord kLaunch{"launch/", {.does = Does::Launch, .of = Of::Operation}};
// Gloo with CUDA tensors: of a collective, into pinned memory before it and out of it afterwards.
inline constexpr OpWord kStageToHost{
    "copy_to_host/", {.does = Does::Move, .phase = Phase::Backward, .of = Of::Operation}};
inline constexpr OpWord kStageBack{
    "copy_back/", {.does = Does::Move, .phase = Phase::Reduced, .of = Of::Operation}};
inline constexpr OpWord kZeroGrad{"zero_grad",
                                  {.does = Does::Copy, .touches = Touches::Everything}};
inline constexpr OpWord kLoadInput{"load_input", {.does = Does::Load, .in_micro_step = true}};
inline constexpr OpWord kAwaitInput{"await_input", {.does = Does::Load, .in_micro_step = true}};
inline constexpr OpWord kCopyInput{"copy_input", {.does = Does::Load, .in_micro_step = true}};
inline constexpr OpWord kForward{"fwd", {.phase = Phase::Forward, .in_micro_step = true}};
inline constexpr OpWord kBackward{"bwd/",
                                  {.phase = Phase::Backward,
                                   .of = Of::Tensor,
                                   .touches = Touches::Tensor,
                                   .in_micro_step = true}};
// After the last gradient.
inline constexpr OpWord kBackwardTail{"bwd/tail",
                                      {.phase = Phase::Backward, .in_micro_step = true}};
inline constexpr OpWord kAccumulate{"accumulate/",
                                    {.does = Does::Copy,
                                     .phase = Phase::Backward,
                                     .of = Of::Tensor,
                                     .touches = Touches::Tensor,
                                     .in_micro_step = true}};
// Of a training loop (Workload::loop).
inline constexpr OpWord kUnscale{"unscale",
                                 {.phase = Phase::Update, .touches = Touches::Everything}};
inline constexpr OpWord kClip{"clip_grad_norm",
                              {.phase = Phase::Update, .touches = Touches::Everything}};
inline constexpr OpWord kAwaitFinite{"wait/found_inf",
                                     {.does = Does::Wait, .phase = Phase::Update}};
inline constexpr OpWord kReadLoss{"wait/loss", {.does = Does::Wait, .phase = Phase::Update}};
inline constexpr OpWord kReadForward{
    "wait/forward", {.does = Does::Wait, .phase = Phase::Forward, .in_micro_step = true}};
inline constexpr OpWord kOwnTraffic{"own_update", {.phase = Phase::Update}};
inline constexpr OpWord kOptimizer{"optimizer",
                                   {.phase = Phase::Update, .touches = Touches::Everything}};
// Of a system that offloads: the optimizer, on the host's cores.
inline constexpr OpWord kHostUnscale{"host_unscale", {.phase = Phase::Update}};
inline constexpr OpWord kHostClip{"host_clip", {.phase = Phase::Update}};
inline constexpr OpWord kHostOptimizer{"host_optimizer",
                                       {.phase = Phase::Update, .touches = Touches::Everything}};

// A word of the update.
constexpr OpWord update_word(const char* name, Does does, Of of = Of::Nothing,
                             Touches touches = Touches::Nothing) {
  return {name, {.does = does, .phase = Phase::Update, .of = of, .touches = touches}};
}
// A word of a bucket.
constexpr OpWord bucket_word(const char* name, Does does, Phase phase,
                             Operation o = Operation::AllReduce, bool divides = false) {
  return {name,
          {.does = does,
           .phase = phase,
           .of = Of::Bucket,
           .touches = Touches::Bucket,
           .operation = o,
           .divides = divides}};
}

// Of all systems.
const std::vector<OpWord>& all_words();
// What an operation of this name is ("micro0/copy_in/fc.weight"). None: no system has the word.
std::optional<OpKind> kind_of(std::string_view name);

}  // namespace ddpsim::systems
