// TensorFlow's MirroredStrategy (one process, the GPUs of one host) and MultiWorkerMirroredStrategy
// (a process a host): every replica computes its part of the batch, and gradients are summed by a
// cross-device operation:
//
//   collective_all_reduce       gradients in the reverse of the variables' order, in packs by
//                               bytes_per_pack; in a tf.function a pack is concatenated and reduced
//                               when its last gradient is there (over NCCL in the order of packs),
//                               and split when the host has noticed that it is done. eager: after
//                               backward, one by one, each waited for
//   nccl_all_reduce             a flat copy of all gradients, in num_packs parts, when the last
//                               gradient is there; num_packs=0: each by itself
//   hierarchical_copy_all_reduce  the same parts; each is summed in both halves of the GPUs, then
//                               between two of them, and sent back
//   reduction_to_one_device     each gradient, when it is there, to the first GPU and back
//
// A mean is a division of each sum; Keras sums, and has divided the loss. The optimizer begins when
// all is done.
//
// Source: tensorflow/python/distribute/{cross_device_ops,cross_device_utils,mirrored_strategy,
// collective_all_reduce_strategy}.py, core/common_runtime/collective_param_resolver_local.cc (2.x,
// single files). docs/model.md section 3.
#include "sim/systems/mirrored/mirrored.h"

#include <algorithm>

#include "sim/systems/base/frame.h"
#include "sim/systems/mirrored/plan.h"

namespace ddpsim::systems {
namespace {

constexpr OpWord kConcatPack = bucket_word("concat/pack.", Does::Copy, Phase::Backward);
constexpr OpWord kReducePack = bucket_word("allreduce/pack.", Does::Communicate, Phase::Backward);
constexpr OpWord kAwaitPack{"wait/pack.",
                            {.does = Does::Wait, .phase = Phase::Reduced, .of = Of::Bucket}};
constexpr OpWord kSplitPack = bucket_word("split/pack.", Does::Copy, Phase::Reduced);
constexpr OpWord kDividePacked{"divide/packed.",
                               {.does = Does::Copy,
                                .phase = Phase::Reduced,
                                .of = Of::Tensor,
                                .touches = Touches::Tensor,
                                .divides = true}};
// Of what is concatenated as a whole, and split into parts.
constexpr OpWord kConcatAll{
    "concat/gradients",
    {.does = Does::Copy, .phase = Phase::Backward, .touches = Touches::Everything}};
constexpr OpWord kSplitParts{
    "split/parts", {.does = Does::Copy, .phase = Phase::Backward, .touches = Touches::Everything}};
constexpr OpWord kConcatParts{
    "concat/parts", {.does = Does::Copy, .phase = Phase::Reduced, .touches = Touches::Everything}};
constexpr OpWord kSplitAll{
    "split/gradients",
    {.does = Does::Copy, .phase = Phase::Reduced, .touches = Touches::Everything}};
constexpr OpWord kToOne =
    bucket_word("reduce/pack.", Does::Communicate, Phase::Backward, Operation::Reduce);
constexpr OpWord kFromOne =
    bucket_word("broadcast/pack.", Does::Communicate, Phase::Backward, Operation::Broadcast);
constexpr OpWord kBetweenHalves =
    bucket_word("reduce/halves.", Does::Communicate, Phase::Backward, Operation::Reduce);
constexpr OpWord kBackToHalf =
    bucket_word("broadcast/halves.", Does::Communicate, Phase::Backward, Operation::Broadcast);
constexpr OpWord kMirroredWords[] = {
    kConcatPack,  kReducePack, kAwaitPack, kSplitPack, kDividePacked,  kConcatAll, kSplitParts,
    kConcatParts, kSplitAll,   kToOne,     kFromOne,   kBetweenHalves, kBackToHalf};

constexpr std::uint8_t kHalfCopied = 1;  // of Program::groups: half of the GPUs
constexpr std::uint8_t kAcross = 2;      // one of each half

class MirroredLowering {
 public:
  MirroredLowering(const TimedWorkload& timed, const Plan& plan)
      : f_(timed, plan), mirrored_(mirrored_of(plan)), ranks_(timed.ranks) {
    for (TensorIndex t = 0; t < f_.w.tensors.size(); ++t)
      if (!f_.unused[t]) trained_.push_back(t);
    f_.program.resident = resident(f_.w, false);
    f_.program.groups = mirrored_groups(plan, ranks_, timed.per_host);
    // TensorFlow hands each pack to threads of its own; what is in flight together is the plan's.
  }

  // Steps after the first, which builds the graph, are alike.
  Program run() {
    return f_.run(Steps::SteadyOnly, [&](StepKind) { return step(); });
  }

 private:
  bool in_order() const { return f_.program.backend == Backend::Nccl; }

  StepProgram step() {
    StepBuilder b(f_.program, StepKind::Steady, f_.w, f_.memory);
    b_ = &b;
    f_.micro_steps(b, [&](int m, bool last) { micro_step(m, last); });
    b.update(f_.times);
    return std::move(b.step);
  }

  void micro_step(int m, bool last) {
    b_->forward(f_.times);
    if (last) begin();
    f_.backward(*b_, m > 0, [&](TensorIndex t) {
      if (last) gradient(t);
    });
    if (last) after_backward();
  }
  static Work of(std::int64_t traffic) { return {.traffic = traffic}; }

  // ---- which, and when

  void begin() {
    const CrossDeviceOps ops = mirrored_.cross_device_ops;
    missing_.clear();
    reduced_.clear();
    pack_of_.assign(f_.w.tensors.size(), 0);
    if (ops != CrossDeviceOps::CollectiveAllReduce || mirrored_.eager) return;
    for (const auto& pack : tensorflow_packs(f_.w, f_.plan)) {
      for (TensorIndex t : pack) pack_of_[t] = static_cast<std::uint32_t>(missing_.size());
      missing_.push_back(pack.size());
      add_bucket(pack);
    }
  }

  void gradient(TensorIndex t) {
    if (mirrored_.cross_device_ops == CrossDeviceOps::ReductionToOneDevice) return to_one(t);
    if (missing_.empty()) return;
    const std::uint32_t pack = pack_of_[t];
    if (--missing_[pack] > 0) return;
    if (!in_order()) return reduce_pack(pack);
    for (auto next = static_cast<std::uint32_t>(reduced_.size());
         next < missing_.size() && missing_[next] == 0; ++next)
      reduce_pack(next);
  }

  void after_backward() {
    switch (mirrored_.cross_device_ops) {
      case CrossDeviceOps::CollectiveAllReduce:
        return mirrored_.eager ? one_by_one() : split_packs();
      case CrossDeviceOps::ReductionToOneDevice:
        return b_->before_next_main(last_);
      default:
        return packed_as_a_whole();
    }
  }

  std::uint32_t add_bucket(const std::vector<TensorIndex>& tensors) {
    Bucket bucket;
    bucket.tensors = tensors;
    bucket.dtype = f_.w.tensors[tensors.front()].dtype;
    for (TensorIndex t : tensors) bucket.bytes.count += f_.bytes_of(t);
    bucket.wire_bytes = bucket.bytes;
    b_->step.buckets.push_back(std::move(bucket));
    return b_->step.next_bucket() - 1;
  }

  // Reads all and writes all. Of one tensor there is nothing to do.
  void copy(const OpWord& word, std::uint32_t subject, std::int64_t bytes, std::size_t tensors) {
    b_->main(word, subject, bytes,
             {.traffic = 2 * bytes,
              .kernels =
                  static_cast<std::int32_t>((tensors + kTensorsOfLaunch - 1) / kTensorsOfLaunch)});
  }
  // What a copy is made of goes, and the copy is there.
  void change(Holds from, Holds to, std::int64_t bytes) {
    b_->allocate(to, bytes);
    b_->release(from, bytes);
  }

  std::uint32_t collective(const OpWord& word, std::uint32_t k, std::uint8_t group = 0,
                           std::int32_t root = 0) {
    const Bucket& bucket = b_->step.buckets[k];
    const std::uint32_t op = b_->collective(word, k, bucket.wire_bytes.count, bucket.dtype);
    b_->step.ops[op].group = group;
    b_->step.ops[op].root = root;
    return last_ = op;
  }

  void average(TensorIndex t) {
    if (mirrored_.mean) b_->main(kDividePacked, t, f_.bytes_of(t), {.traffic = 2 * f_.bytes_of(t)});
  }
  void average_all() {
    for (TensorIndex t : trained_) average(t);
  }

  // ---- collective_all_reduce

  void reduce_pack(std::uint32_t k) {
    const Bucket bucket = b_->step.buckets[k];
    if (bucket.tensors.size() > 1) {
      copy(kConcatPack, k, bucket.bytes.count, bucket.tensors.size());
      change(Holds::Gradients, Holds::Buckets, bucket.bytes.count);
    }
    reduced_.push_back({k, collective(kReducePack, k)});
  }

  // The host learns that a pack is done, and only then enqueues what follows.
  void split_packs() {
    for (const Reduced& r : reduced_) {
      const Bucket bucket = b_->step.buckets[r.pack];
      b_->wait(kAwaitPack, r.pack, r.op);
      if (bucket.tensors.size() < 2) continue;
      copy(kSplitPack, r.pack, bucket.bytes.count, bucket.tensors.size());
      change(Holds::Buckets, Holds::Gradients, bucket.bytes.count);
    }
    average_all();
  }

  void one_by_one() {
    for (auto t = trained_.rbegin(); t != trained_.rend(); ++t) {
      const std::uint32_t k = add_bucket({*t});
      b_->wait(kAwaitPack, k, collective(kReducePack, k));
    }
    average_all();
  }

  // ---- nccl_all_reduce, hierarchical_copy_all_reduce

  // Part of what all gradients are, one after another, in one flat copy.
  void add_part(std::int64_t from, std::int64_t to) {
    Bucket part;
    part.dtype = f_.w.tensors[trained_.front()].dtype;
    part.bytes.count = (to - from) * element_size(part.dtype);
    part.wire_bytes = part.bytes;
    std::int64_t begin = 0;
    for (TensorIndex t : trained_) {
      const std::int64_t elements = f_.w.tensors[t].elements();
      const std::int64_t a = std::max(from, begin) - begin;
      const std::int64_t z = std::min(to, begin + elements) - begin;
      if (a < z) {
        part.tensors.push_back(t);
        part.slices.push_back({a, z});
      }
      begin += elements;
    }
    b_->step.buckets.push_back(std::move(part));
  }

  void packed_as_a_whole() {
    std::int64_t elements = 0;
    std::int64_t bytes = 0;
    for (TensorIndex t : trained_) {
      elements += f_.w.tensors[t].elements();
      bytes += f_.bytes_of(t);
    }
    const bool packs = mirrored_.num_packs > 0;
    const bool parts = mirrored_.num_packs > 1;
    const bool flat = packs && trained_.size() > 1;
    if (flat) {
      copy(kConcatAll, kNoSubject, bytes, trained_.size());
      change(Holds::Gradients, Holds::Buckets, bytes);
    }
    if (parts) copy(kSplitParts, kNoSubject, bytes, 1);
    std::int64_t from = 0;
    for (std::int64_t n :
         packs ? packed_parts(elements, mirrored_.num_packs) : std::vector<std::int64_t>{}) {
      add_part(from, from + n);
      from += n;
    }
    if (!packs)
      for (TensorIndex t : trained_) add_bucket({t});
    for (std::uint32_t k = 0; k < b_->step.buckets.size(); ++k)
      mirrored_.cross_device_ops == CrossDeviceOps::NcclAllReduce
          ? static_cast<void>(collective(kReducePack, k))
          : by_halves(k);
    b_->before_next_main(last_);
    if (parts) copy(kConcatParts, kNoSubject, bytes, 1);
    if (flat) {
      copy(kSplitAll, kNoSubject, bytes, trained_.size());
      change(Holds::Buckets, Holds::Gradients, bytes);
    }
    average_all();
  }

  // aggregate_gradients_using_hierarchical_copy: parts take turns in whose sums they are.
  void by_halves(std::uint32_t k) {
    const int half = ranks_ / 2;
    if (half == 0) return;
    const int turn = static_cast<int>(k) % ranks_;
    const std::int32_t main = turn % half;
    const std::int32_t side = turn / half;
    if (half > 1) collective(kToOne, k, kHalfCopied, main);
    const std::uint8_t across = half > 1 ? kAcross : std::uint8_t{0};
    collective(kBetweenHalves, k, across, side);
    collective(kBackToHalf, k, across, side);
    if (half > 1) collective(kFromOne, k, kHalfCopied, main);
  }

  // ---- reduction_to_one_device

  void to_one(TensorIndex t) {
    const std::uint32_t k = add_bucket({t});
    std::uint32_t there = collective(kToOne, k);
    // Not on the compute stream's way: it is launched when the copies are there.
    if (mirrored_.mean)
      there =
          b_->callback(kDividePacked, t, f_.bytes_of(t), {.traffic = 2 * f_.bytes_of(t)}, there);
    last_ = b_->collective_after(kFromOne, k, f_.bytes_of(t), f_.w.tensors[t].dtype,
                                 std::span(&there, 1));
  }

  static constexpr std::size_t kTensorsOfLaunch = 128;  // taken as torch.cat's: not read

  struct Reduced {
    std::uint32_t pack;
    std::uint32_t op;
  };
  Frame f_;
  const MirroredPlan& mirrored_;
  const int ranks_;
  std::vector<TensorIndex> trained_;  // in the variables' order
  // of the step being built
  StepBuilder* b_ = nullptr;
  std::vector<std::uint32_t> pack_of_;
  std::vector<std::size_t> missing_;  // of each pack
  std::vector<Reduced> reduced_;      // in the order in which they are issued
  std::uint32_t last_ = kNoOp;        // collective
};

}  // namespace

std::vector<std::vector<TensorIndex>> tensorflow_packs(const Workload& w, const Plan& plan) {
  const std::vector<bool> unused = unused_tensors(w, plan);
  std::vector<std::vector<TensorIndex>> packs;
  std::int64_t held = 0;
  for (TensorIndex t = w.tensor_count(); t-- > 0;) {
    if (unused[t]) continue;
    const std::int64_t most = mirrored_of(plan).bytes_per_pack;
    if (packs.empty() || (most > 0 && held > most)) {
      packs.emplace_back();
      held = 0;
    }
    packs.back().push_back(t);
    held += w.tensors[t].bytes().count;
  }
  return packs;
}

std::vector<std::int64_t> packed_parts(std::int64_t elements, std::int64_t packs) {
  std::vector<std::int64_t> out(packs, elements / packs);
  out.back() = elements - elements / packs * (packs - 1);
  return out;
}

std::vector<RankGroups> mirrored_groups(const Plan& plan, int ranks, int) {
  const bool halves =
      mirrored_of(plan).cross_device_ops == CrossDeviceOps::HierarchicalCopyAllReduce && ranks > 2;
  if (!halves) return {};
  return {{"half", ranks / 2, 1}, {"across", 2, ranks / 2}};
}

Problem check_mirrored_ranks(const Plan& plan, int ranks, int) {
  if (mirrored_of(plan).cross_device_ops == CrossDeviceOps::HierarchicalCopyAllReduce &&
      ranks > 1 && ranks % 2 != 0)
    return {"/plan/cross_device_ops",
            "hierarchical_copy_all_reduce sums in two halves: an even number of ranks, or "
            "nccl_all_reduce"};
  return {};
}

std::span<const OpWord> mirrored_words() {
  return kMirroredWords;
}

Program lower_mirrored(const TimedWorkload& workload, const Plan& plan, Steps) {
  return MirroredLowering(workload, plan).run();
}

}  // namespace ddpsim::systems
