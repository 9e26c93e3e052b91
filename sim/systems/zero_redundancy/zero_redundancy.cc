// PyTorch ZeroRedundancyOptimizer, one step:
//   as DDP up to the last copy out of a bucket; optimizer of this rank's parameters; then rank by
//   rank, without waiting, a broadcast of each parameter that the rank updated, or of its one
//   bucket of them (parameters_as_bucket_view); the host (GPU: the compute stream) waits for all.
// Ranks update different parameters, and a Program is every rank's: its optimizer is that of the
// rank with the most elements, for which all broadcasts wait, since each of them is of all ranks.
//
// Source: torch/distributed/optim/zero_redundancy_optimizer.py, step() and _sync_params().
#include "sim/systems/zero_redundancy/zero_redundancy.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "sim/systems/ddp/ddp.h"
#include "sim/systems/zero_redundancy/plan.h"

namespace ddpsim::systems {
namespace {

constexpr OpWord kBroadcastParameter{"broadcast_param/",
                                     {.does = Does::Communicate,
                                      .phase = Phase::Update,
                                      .of = Of::Tensor,
                                      .touches = Touches::Tensor,
                                      .operation = Operation::Broadcast}};
// All that a rank updated, in a bucket after those of gradients.
constexpr OpWord kBroadcastBucket =
    bucket_word("broadcast_params/bucket.", Does::Communicate, Phase::Update, Operation::Broadcast);
constexpr OpWord kBroadcastWait = update_word("wait/broadcast_params", Does::Wait);
// GPU: the compute stream goes on behind the broadcasts.
constexpr OpWord kParametersThere{"params_there", {.phase = Phase::Update}};
constexpr OpWord kZeroRedundancyWords[] = {kBroadcastParameter, kBroadcastBucket, kBroadcastWait,
                                           kParametersThere};

class Owners {
 public:
  Owners(const Workload& w, const Plan& plan, int ranks)
      : w_(w),
        whole_(zero_redundancy_of(plan).parameters_as_bucket_view),
        of_ranks_(parameters_of_ranks(w, ranks)) {}

  std::int64_t elements(const std::vector<TensorIndex>& tensors) const {
    std::int64_t sum = 0;
    for (TensorIndex t : tensors) sum += w_.tensors[t].elements();
    return sum;
  }
  std::int64_t most_elements() const {
    std::int64_t most = 0;
    for (const auto& tensors : of_ranks_) most = std::max(most, elements(tensors));
    return most;
  }

  void broadcast(StepBuilder& b) const {
    std::vector<std::uint32_t> sent;
    for (std::int32_t rank = 0; rank < std::ssize(of_ranks_); ++rank) {
      auto send = [&](const OpWord& word, std::uint32_t subject, std::int64_t bytes, DType type) {
        sent.push_back(b.collective(word, subject, bytes, type));
        b.step.ops[sent.back()].root = rank;
      };
      if (whole_) {
        const Bucket bucket = of_rank(rank);
        send(kBroadcastBucket, b.step.next_bucket(), bucket.bytes.count, bucket.dtype);
        b.step.buckets.push_back(bucket);
        continue;
      }
      for (TensorIndex t : of_ranks_[rank])
        send(kBroadcastParameter, t, w_.tensors[t].bytes().count, w_.tensors[t].dtype);
    }
    // Of a GPU's rank the last one is behind the others on the communicator's stream.
    std::uint32_t last = sent.back();
    std::uint32_t there = b.gpu() ? b.event(kParametersThere, Lane::Compute)
                                  : b.wait(kBroadcastWait, kNoSubject, last);
    if (b.gpu()) sent = {last};
    for (std::uint32_t s : sent) b.add_dep(there, s);
  }

 private:
  // Of a rank without parameters: torch.zeros(1), _build_param_buckets.
  Bucket of_rank(std::size_t rank) const {
    Bucket bucket;
    bucket.tensors = of_ranks_[rank];
    if (!bucket.tensors.empty()) bucket.dtype = w_.tensors.front().dtype;
    bucket.bytes.count =
        std::max<std::int64_t>(1, elements(bucket.tensors)) * element_size(bucket.dtype);
    bucket.wire_bytes = bucket.bytes;
    return bucket;
  }

  const Workload& w_;
  const bool whole_;
  const std::vector<std::vector<TensorIndex>> of_ranks_;
};

}  // namespace

std::span<const OpWord> zero_redundancy_words() {
  return kZeroRedundancyWords;
}

std::vector<std::vector<TensorIndex>> parameters_of_ranks(const Workload& w, int ranks) {
  std::vector<TensorIndex> order(w.tensors.size());
  std::iota(order.begin(), order.end(), TensorIndex{0});
  std::stable_sort(order.begin(), order.end(), [&](TensorIndex a, TensorIndex b) {
    return w.tensors[a].elements() > w.tensors[b].elements();
  });
  std::set<std::pair<std::int64_t, std::size_t>> loads;  // elements so far, rank
  for (int r = 0; r < ranks; ++r) loads.emplace(0, r);
  std::vector<std::vector<TensorIndex>> out(loads.size());
  for (TensorIndex t : order) {
    auto [elements, rank] = *loads.begin();
    loads.erase(loads.begin());
    out[rank].push_back(t);
    loads.emplace(elements + w.tensors[t].elements(), rank);
  }
  return out;
}

Program lower_zero_redundancy(const TimedWorkload& timed, const Plan& plan, Steps steps) {
  const Workload& w = timed.workload;
  const Owners owners(w, plan, timed.ranks);
  const std::int64_t most = owners.most_elements();
  Program program = lower_on_ddp(timed, plan, steps, [&](StepBuilder& b) {
    b.optimize(timed.times, most);
    owners.broadcast(b);
    b.end_update();
  });
  const std::int64_t bytes = most * element_size(w.tensors.front().dtype);
  Held share = resident(w, most, bytes);
  program.resident[Holds::OptimizerState] = share[Holds::OptimizerState];
  return program;
}

}  // namespace ddpsim::systems
