// What differs between PyTorch's releases, a row a difference; nothing else compares versions. Read
// from the sources of 1.11 to 2.14. A new release is a line of kReleases, and a row for each thing
// that it does otherwise.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "sim/units/release.h"

namespace ddpsim::pytorch {

// Named after what is so since the row's release.
enum class Change : std::uint8_t {
  // c10d and optimizers
  ZeroGradSetsToNone,
  ZeroGradTakesFewKernels,
  GlooReducesBfloat16,
  BlockingOnTheCallersStream,
  // DistributedDataParallel
  OneInitialBucket,
  CapHoldsForTheFirstBucket,
  OptimizerInBackwardOnGpus,
  SkipsUnusedBuckets,
  CapForEachBucket,
  CopiesGradientsTogether,
  // FullyShardedDataParallel
  Fsdp,
  UseOrigParams,
  HybridStrategies,
  PrefetchesBackward,
  LimitsAllGathers,
  LimitsWhatIsNew,
  LimitsAfterTheCast,
  PrefetchesEveryForward,
  ReshardingForgetsPrefetch,
  PadsWhereItMust,
  ShardIsNotZeroed,
  ViewsWhereGathered,
  OrderIsNotChecked,
  HoldsWhatWasMoved,
  ReshardsFrozenUnits,
  FrozenUnitsPrefetch,
  UnshardStream,
  // fully_shard
  FullyShard,
  FullyShardIsPublic,
  HybridHoldsItsInputs,
  RootMayBeFreed,
  OneRankGathersNothing,
  OneRankScattersNothing,
  FrozenOfAnotherType,
  WaitsForInputsInEachUnit,
  SeveralInputs,
};

// The releases that were read, with the NCCL that PyPI's default wheels require (METADATA; of 1.11,
// 1.13, 2.9 and 2.14 by other texts). Wheels for an older CUDA may bring an older one.
struct Known {
  const char* name;
  const char* nccl;
  Release release;
  consteval Known(const char* n, const char* with) : name(n), nccl(with), release(n) {}
};
inline constexpr std::array kReleases{
    Known{"1.11", "2.10.3"}, Known{"1.12", "2.10.3"}, Known{"1.13", "2.14.3"},
    Known{"2.0", "2.14.3"},  Known{"2.1", "2.18.1"},  Known{"2.2", "2.19.3"},
    Known{"2.3", "2.20.5"},  Known{"2.4", "2.20.5"},  Known{"2.5", "2.21.5"},
    Known{"2.6", "2.21.5"},  Known{"2.7", "2.26.2"},  Known{"2.8", "2.27.3"},
    Known{"2.9", "2.27.5"},  Known{"2.10", "2.27.5"}, Known{"2.11", "2.28.9"},
    Known{"2.12", "2.29.7"}, Known{"2.13", "2.29.7"}, Known{"2.14", "2.30.7"},
};

// Sources are pull requests, or files of PyTorch's tree.
using Difference = DifferenceOf<Change>;
inline constexpr std::string_view kFsdp1 = "torch/distributed/fsdp/_runtime_utils.py";
inline constexpr std::array kDifferences{
    // c10d and optimizers
    Difference{Change::ZeroGradSetsToNone, "2.0", "zero_grad() writes zeros | frees gradients",
               "#92731"},
    // Assumed: with foreach=True, or fused=True from 2.1 on; otherwise a kernel a tensor.
    Difference{Change::ZeroGradTakesFewKernels, "2.0",
               "zero_grad() takes a kernel a tensor | one for some 110",
               "torch/optim/optimizer.py"},
    Difference{Change::GlooReducesBfloat16, "2.3", "Gloo stops at bfloat16 | sums it", "#113557"},
    Difference{Change::BlockingOnTheCallersStream, "2.8",
               "async_op=False runs on the communicator's stream | on the caller's", "#150398"},
    // DistributedDataParallel
    Difference{Change::OneInitialBucket, "1.12",
               "the first step has the buckets of the last parameters first | one of all",
               "#72843"},
    Difference{Change::CapHoldsForTheFirstBucket, "2.4",
               "the first bucket is of 1 MiB although bucket_cap_mb is given | of the cap",
               "#121640"},
    Difference{Change::OptimizerInBackwardOnGpus, "2.0",
               "on GPUs no hook takes the optimizer | _apply_optimizer_in_backward",
               "torch/distributed/algorithms/ddp_comm_hooks/optimizer_overlap_hooks.py"},
    Difference{Change::SkipsUnusedBuckets, "2.8",
               "unused buckets are reduced | unless skip_all_reduce_unused_params", "#151503"},
    Difference{Change::CapForEachBucket, "2.12", "one cap | bucket_cap_mb may be a list",
               "#169026"},
    Difference{Change::CopiesGradientsTogether, "2.12", "a copy a gradient | batched_grad_copy",
               "#176638"},
    // FullyShardedDataParallel
    Difference{Change::Fsdp, "1.13",
               "has no limiter and no forward_prefetch, and was not read whole | was read",
               "fully_sharded_data_parallel.py"},
    Difference{
        Change::UseOrigParams, "2.1",
        "flat parameters, in 2.0 also original ones without gaps | use_orig_params with gaps",
        "#97667"},
    Difference{Change::HybridStrategies, "2.1",
               "three strategies, in 2.0 also hybrid ones on one stream | hybrid ones on two",
               "#106080"},
    Difference{Change::PrefetchesBackward, "2.0", "backward_prefetch=None | BACKWARD_PRE",
               "#88428"},
    Difference{Change::LimitsAllGathers, "2.1", "limit_all_gathers=False | True", "#104900"},
    Difference{Change::LimitsWhatIsNew, "2.1",
               "the limiter is asked for weights that are there, too | unless prefetched",
               "#97981"},
    Difference{Change::LimitsAfterTheCast, "2.0",
               "the limiter is asked before weights are cast | after it", "#89057"},
    Difference{Change::PrefetchesEveryForward, "2.1",
               "forward_prefetch knows the root only | every unit", "#104488"},
    Difference{Change::ReshardingForgetsPrefetch, "2.2",
               "a unit is prefetched until its weights are freed | until it is resharded",
               "#111354, #110139"},
    Difference{Change::PadsWhereItMust, "2.0",
               "a gradient is copied to be padded by nothing, too | only to be padded", kFsdp1},
    Difference{Change::ShardIsNotZeroed, "2.0", "a shard's gradient is zeros first | empty",
               kFsdp1},
    Difference{Change::ViewsWhereGathered, "2.1",
               "views of weights are made where forward begins | where they are gathered",
               "#98249"},
    Difference{Change::OrderIsNotChecked, "2.2",
               "the first step gathers the order of units | only under DETAIL", "#109049"},
    Difference{Change::HoldsWhatWasMoved, "2.2",
               "what came from the host is free once its gathering is issued | has ended",
               "torch/distributed/fsdp/flat_param.py"},
    Difference{Change::ReshardsFrozenUnits, "2.1",
               "frozen units are resharded at the end | when their inputs' gradients are there",
               "#101982"},
    Difference{Change::FrozenUnitsPrefetch, "2.3",
               "with BACKWARD_POST a frozen unit gathers nothing ahead | the next unit", kFsdp1},
    Difference{Change::UnshardStream, "2.0", "a stream named all_gather | unshard", kFsdp1},
    // fully_shard
    Difference{Change::FullyShard, "2.5",
               "gradients are copied in on the stream that reduces them, and held otherwise | on "
               "computation's",
               "torch/distributed/_composable/fsdp/_fsdp_param_group.py"},
    Difference{Change::FullyShardIsPublic, "2.6",
               "torch.distributed._composable.fsdp has fully_shard | torch.distributed.fsdp",
               "torch/distributed/fsdp/__init__.py"},
    Difference{Change::HybridHoldsItsInputs, "2.6",
               "what replicas reduce is free when it was issued | when it has ended",
               "torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py"},
    Difference{Change::RootMayBeFreed, "2.8",
               "the root's weights stay after forward | reshard_after_forward=True frees them",
               "#154704, #155319"},
    Difference{Change::OneRankGathersNothing, "2.9", "one rank gathers by a collective | copies",
               "#160135"},
    Difference{Change::OneRankScattersNothing, "2.10", "one rank scatters by a collective | copies",
               "#162021"},
    Difference{Change::FrozenOfAnotherType, "2.8",
               "a unit is of one type | of one type where it trains",
               "torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py"},
    Difference{Change::WaitsForInputsInEachUnit, "2.12",
               "only a unit that reduces waits for the reduction before | each",
               "torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py"},
    Difference{
        Change::SeveralInputs, "2.13",
        "one reduce-scatter's input is there | reduce_scatter_max_input_buffers, and a group "
        "of its own",
        "#186000, #186335"},
};

constexpr const Difference& difference_of(Change c) {
  return kDifferences[static_cast<std::size_t>(c)];
}

class Version {
 public:
  constexpr Version() = default;  // 2.7
  constexpr Version(int major, int minor) : release_{major, minor} {}
  constexpr bool has(Change c) const { return release_ >= difference_of(c).since; }
  // This version, or the first that has the change.
  constexpr Version with(Change c) const {
    Version v = *this;
    v.release_ = std::max(release_, difference_of(c).since);
    return v;
  }
  bool operator==(const Version&) const = default;
  // Of one that was read. "2.7"; "2.26.2".
  friend const char* name_of(Version v);
  friend const char* shipped_nccl(Version v);

 private:
  Release release_{2, 7};
};
// The first release that has it.
const char* first_with(Change c);
// "2.7", "2.7.1", "2.7.1+cu126", where 2.7 was read.
std::optional<Version> parse_version(std::string_view text);

}  // namespace ddpsim::pytorch
