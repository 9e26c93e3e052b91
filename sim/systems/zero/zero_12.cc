// DeepSpeed ZeRO, stages 1 and 2. A gradient is copied into a bucket when it is there (2; 1 with
// overlap_comm, in the last micro-step) or after backward, in order of registration (1). A bucket
// that would grow beyond reduce_bucket_size is reduced first:
//
//   divide by the ranks; slices of several owners into one; all-reduce; each rank keeps its own
//
// With overlap_comm that is on a stream of its own, which waits for computation; computation goes
// on when what was reduced before is done: two buffers. A parameter above the limit stays where it
// is and is cut where shards end. At the end the optimizer updates a shard, and all weights are
// gathered at once.
//
// version.h says where other releases differ.
//
// Source: deepspeed/runtime/zero/stage_1_and_2.py (0.14.5): reduce_independent_p_g_buckets...,
// average_tensor, allreduce_and_scatter, independent_gradient_partition_epilogue, step.
#include <algorithm>
#include <map>

#include "sim/systems/zero/plan.h"
#include "sim/systems/zero/zero_offload.h"
#include "sim/systems/zero/zero_step.h"

namespace ddpsim::systems {
namespace {

constexpr OpWord kJoin = zero_word("join/bucket.", Does::Copy, Phase::Backward);
constexpr OpWord kAverageAfter =
    zero_word("average/reduced.", Does::Copy, Phase::Reduced, Operation::AllReduce, true);
constexpr OpWord kBack = zero_word("copy_back/bucket.", Does::Copy, Phase::Reduced);
constexpr OpWord kBeforeBucket{"wait/device.",
                               {.does = Does::Wait, .of = Of::Bucket, .in_micro_step = true}};
constexpr OpWord kAddShard{"accumulate_shard",
                           {.does = Does::Copy, .phase = Phase::Reduced, .in_micro_step = true}};
constexpr OpWord kGatherWeights{"all_gather/weights",
                                {.does = Does::Communicate,
                                 .phase = Phase::Update,
                                 .touches = Touches::Everything,
                                 .operation = Operation::AllGather}};
// Before DeepSpeed gathered them at once: into tensors of PyTorch's own, and out of these.
constexpr OpWord kGatherList{"all_gather/list.",
                             {.does = Does::Communicate,
                              .phase = Phase::Update,
                              .of = Of::Number,
                              .touches = Touches::Everything,
                              .operation = Operation::AllGather}};
constexpr OpWord kOutOfList = update_word("copy_out/list.", Does::Copy, Of::Number);
constexpr OpWord kToOwner =
    zero_word("reduce/bucket.", Does::Communicate, Phase::Backward, Operation::Reduce);
constexpr OpWord kZero12Words[] = {kJoin,     kAverageAfter,  kBack,       kToOwner,  kBeforeBucket,
                                   kAddShard, kGatherWeights, kGatherList, kOutOfList};

// A bucket's part that one rank owns; those of one rank that follow one another are one.
struct Piece {
  std::int64_t rank = 0;
  std::int64_t elements = 0;
  std::vector<TensorIndex> tensors;
  std::vector<Bucket::Slice> slices;  // of these
};
// What is reduced at once.
using Part = std::vector<Piece>;

// A slice that begins where one of the same tensor ended is one with it.
void append(Piece& to, const Piece& more) {
  to.elements += more.elements;
  for (std::size_t k = 0; k < more.tensors.size(); ++k) {
    if (!to.tensors.empty() && to.tensors.back() == more.tensors[k] &&
        to.slices.back().to == more.slices[k].from) {
      to.slices.back().to = more.slices[k].to;
      continue;
    }
    to.tensors.push_back(more.tensors[k]);
    to.slices.push_back(more.slices[k]);
  }
}

// allreduce_and_scatter(): all slices together, or those of each owner; a part ends above the
// limit, which only a parameter that was above it by itself reaches. Before it, slice by slice.
std::vector<Part> cut(const ZeroJob& job, const ZeroPartition& partition,
                      const std::vector<TensorIndex>& bucket) {
  std::vector<Piece> pieces;
  for (TensorIndex t : bucket)
    for (const ZeroPartition::Slice& s : partition.slices(t)) {
      if (pieces.empty() || pieces.back().rank != s.rank) pieces.push_back({s.rank, 0, {}, {}});
      append(pieces.back(), {s.rank, s.elements, {t}, {{s.from, s.from + s.elements}}});
    }
  std::vector<Part> owners;
  if (!job.has(ZeroChange::SharedAllReduce)) {
    for (Piece& p : pieces) owners.push_back({std::move(p)});
    return owners;
  }
  for (Piece& p : pieces) {
    auto same = [&](const Part& o) { return o.front().rank == p.rank; };
    auto at = job.zero.use_multi_rank_bucket_allreduce
                  ? owners.begin()
                  : std::find_if(owners.begin(), owners.end(), same);
    if (at == owners.end()) at = owners.insert(at, Part{});
    at->push_back(std::move(p));
  }
  std::vector<Part> out;
  for (Part& owner : owners) {
    std::int64_t n = 0;
    for (Piece& p : owner) {
      if (n == 0) out.emplace_back();
      n += p.elements;
      out.back().push_back(std::move(p));
      if (n > job.zero.reduce_bucket_size) n = 0;
    }
  }
  return out;
}

class Zero12Lowering {
 public:
  using Stream = ZeroStep::Stream;
  Zero12Lowering(const TimedWorkload& timed, const Plan& plan)
      : job_(timed, plan),
        accumulation_steps_(plan.accumulation_steps),
        partition_(job_.w, zero_of(plan), job_.ranks),
        offload_(job_, partition_, plan.accumulation_steps),
        timeline_(backward_timeline(timed, unused_tensors(job_.w, plan))) {}

  Program run(Steps steps) {
    job_.program.resident =
        offloads()
            ? offload_.resident()
            : zero_resident(job_.w, job_.w.elements() * job_.size + job_.w.frozen_bytes().count,
                            partition_.shard());
    if (steps == Steps::All) job_.program.warmup.push_back(step(StepKind::First));
    job_.program.steady = step(StepKind::Steady);
    return std::move(job_.program);
  }

 private:
  const ZeroPlan& zero() const { return job_.zero; }
  bool offloads() const { return job_.zero.offload_optimizer; }

  StepProgram step(StepKind kind) {
    ZeroStep s(job_, kind);
    s_ = &s;
    kept_ = 0;
    for (int m = 0; m < accumulation_steps_; ++m) {
      if (accumulation_steps_ > 1) s.b.set_micro(m);
      forward();
      bool last = m + 1 == accumulation_steps_;
      backward(m, last);
      if (!last) s.end_micro_step();
    }
    s.b.set_micro(-1);
    optimize();
    s.end_micro_step();
    return std::move(s.b.step);
  }

  void forward() {
    Stretch f = forward_of(job_.timed.times);
    s_->b.host_time(f.head);
    s_->kernel(ZeroStep::kMain, kForward, kNoSubject, 0, {.duration = f.device});
    s_->b.all_forward();
    s_->b.host_time(f.host - f.head);
  }

  void backward(int micro, bool last) {
    micro_ = micro;
    const bool second = zero().stage == 2;
    const bool hooks = second || (job_.overlaps && last);
    for (const Segment& g : timeline_.segments) {
      s_->b.host_time(g.host);
      if (g.device.ps > 0)
        s_->kernel(ZeroStep::kMain, kBackward, g.tensor, 0, {.duration = g.device});
      s_->b.gradient(g.tensor, second || micro == 0);
      if (!second && micro > 0)  // stage 2 has given the gradients of the micro-step before away
        s_->copy(ZeroStep::kMain, kAccumulate, g.tensor, 3 * job_.size * job_.elements(g.tensor));
      if (hooks) add(g.tensor);
    }
    s_->b.host_time(timeline_.tail_host);
    if (timeline_.tail_device.ps > 0)
      s_->kernel(ZeroStep::kMain, kBackwardTail, kNoSubject, 0,
                 {.duration = timeline_.tail_device});
    s_->b.gradient(StepBuilder::kNoTensor, false);
    if (!second && !last) return;
    if (!hooks) {
      std::vector<TensorIndex> registered;
      for (const Segment& g : timeline_.segments) registered.push_back(g.tensor);
      std::sort(registered.begin(), registered.end());
      for (TensorIndex t : registered) add(t);
    }
    reduce();
    s_->b.release(Holds::Buckets, ipg_);
    ipg_ = 0;
    if (job_.overlaps) s_->synchronize(kZeroReduced, kNoSubject);
    if (micro > 0 && second && !offloads())
      s_->copy(ZeroStep::kMain, kAddShard, kNoSubject, 3 * job_.size * partition_.shard(),
               partition_.tensors());
  }

  void add(TensorIndex t) {
    const std::int64_t n = job_.elements(t);
    if (elements_ + n > zero().reduce_bucket_size) reduce_full();
    if (zero().contiguous_gradients && n <= zero().reduce_bucket_size)
      s_->copy(ZeroStep::kMain, kZeroToBucket, t, 2 * job_.size * n);
    if (zero().contiguous_gradients && n <= zero().reduce_bucket_size) {
      // Buffers of the whole size, whatever the model: two where they take turns.
      if (ipg_ == 0) {
        ipg_ = (job_.overlaps ? 2 : 1) * job_.size * zero().reduce_bucket_size;
        s_->b.allocate(Holds::Buckets, ipg_);
      }
      s_->b.release(Holds::Gradients, job_.size * n);
    }
    bucket_.push_back(t);
    elements_ += n;
  }

  // With a change that lost overlap_comm's overlap until it was taken back.
  void reduce_full() {
    reduce();
    if (!zero().contiguous_gradients || !job_.overlaps || !job_.has(ZeroChange::WaitsForItself) ||
        job_.has(ZeroChange::OverlapsAgain))
      return;
    s_->wait(ZeroStep::kReduce, ZeroStep::kMain);
    s_->wait(ZeroStep::kMain, ZeroStep::kReduce);
  }

  // Elements that are divided, or all-reduced as a whole: once all of the buffer they are in.
  std::int64_t averaged() const {
    return job_.has(ZeroChange::AveragesWhatIsFilled)
               ? elements_
               : std::max(elements_, zero().reduce_bucket_size);
  }

  void reduce() {
    if (bucket_.empty()) return;
    if (zero().contiguous_gradients)
      average();
    else
      reduce_where_they_are();
    // The rank's part stays: of its own or, of a shard that has one, added to it.
    std::int64_t left = 0;
    std::int64_t own = 0;
    for (TensorIndex t : bucket_) {
      if (!zero().contiguous_gradients || job_.elements(t) > zero().reduce_bucket_size)
        left += job_.elements(t);
      own += job_.elements(t);
    }
    s_->b.release(Holds::Gradients, job_.size * left);
    own = offloads() ? 0 : (own + job_.ranks - 1) / job_.ranks;
    if (kept_ + own > partition_.shard()) own = partition_.shard() - kept_;
    s_->b.allocate(Holds::Gradients, job_.size * own);
    kept_ += own;
    bucket_.clear();
    elements_ = 0;
  }

  void average() {
    const Stream s = ZeroStep::kReduce;
    s_->wait(s, ZeroStep::kMain);
    if (job_.has(ZeroChange::ComputationWaits)) s_->wait(ZeroStep::kMain, s);
    if (!zero().reduce_scatter) {
      std::uint32_t k = s_->bucket(bucket_, elements_, averaged());
      all_reduce(k, averaged());
      if (job_.ranks > 1) s_->copy(s, kAverageAfter, k, 2 * job_.size * averaged());
      keep_shard(k);
      return;
    }
    const auto first = s_->b.step.next_bucket();
    for (const Part& part : cut(job_, partition_, bucket_)) {
      Piece whole;
      for (const Piece& p : part) append(whole, p);
      const std::int64_t n = whole.elements;
      const std::uint32_t k = s_->bucket(whole.tensors, n, n, whole.slices);
      if (k == first) s_->copy(s, kZeroAverage, k, 2 * job_.size * averaged());
      const bool owners = job_.has(ZeroChange::SharedAllReduce);  // else slices, where they are
      const bool all = owners && zero().use_multi_rank_bucket_allreduce;
      if (owners && !all && job_.overlaps) s_->synchronize(kBeforeBucket, k);
      if (part.size() > 1) s_->copy(s, kJoin, k, 2 * job_.size * n);
      const bool sums_all = all || (owners && !job_.has(ZeroChange::ReducesToOwners));
      s_->collective(s, sums_all ? kZeroAllReduce : kToOwner, k, job_.size * n, job_.type);
      if (part.size() > 1) copy_back(k, part);
    }
    keep_shard(first);
  }

  void all_reduce(std::uint32_t k, std::int64_t elements) {
    s_->collective(ZeroStep::kReduce, kZeroAllReduce, k, job_.size * elements, job_.type);
  }

  // All ranks run the same Program: that of the one that owns the most of this bucket.
  void copy_back(std::uint32_t k, const std::vector<Piece>& pieces) {
    std::map<std::int64_t, std::pair<std::int64_t, std::int64_t>> of_rank;
    for (const Piece& p : pieces) of_rank[p.rank].first += p.elements, ++of_rank[p.rank].second;
    copy_most(kBack, k, of_rank);
  }
  // Whole gradients of which a rank owns a part, out of the bucket that is used again.
  void keep_shard(std::uint32_t k) {
    if (offloads()) return offload_.take(*s_, k, bucket_, micro_);
    std::map<std::int64_t, std::pair<std::int64_t, std::int64_t>> of_rank;
    for (TensorIndex t : bucket_)
      for (const ZeroPartition::Slice& s : partition_.slices(t))
        of_rank[s.rank].first += job_.elements(t), ++of_rank[s.rank].second;
    copy_most(kZeroKeep, k, of_rank);
  }
  void copy_most(const OpWord& word, std::uint32_t k,
                 const std::map<std::int64_t, std::pair<std::int64_t, std::int64_t>>& of_rank) {
    std::pair<std::int64_t, std::int64_t> most;  // elements, kernels
    for (const auto& [rank, work] : of_rank) most = std::max(most, work);
    s_->copy(ZeroStep::kReduce, word, k, 2 * job_.size * most.first, most.second);
  }

  // contiguous_gradients=false: flattened, reduced, and copied back; with overlap_comm the host
  // waits for the device instead of one stream for the other.
  void reduce_where_they_are() {
    const std::int64_t tensors = bucket_.size();
    std::uint32_t k = s_->bucket(bucket_, elements_, elements_);
    if (job_.overlaps) s_->synchronize(kBeforeBucket, k);
    if (tensors > 1) s_->copy(ZeroStep::kReduce, kJoin, k, 2 * job_.size * elements_);
    s_->copy(ZeroStep::kReduce, kZeroAverage, k, 2 * job_.size * elements_);
    all_reduce(k, elements_);
    if (tensors > 1) s_->copy(ZeroStep::kReduce, kBack, k, 2 * job_.size * elements_, tensors);
  }

  void optimize() {
    const std::int64_t shard = partition_.shard();
    if (offloads()) {
      offload_.update(*s_);
      return gather();
    }
    // As float (6), isnan and isinf (5 each), logical_or (3), as float and max (9):
    // stage_1_and_2.py _has_inf_or_nan, for each tensor. Before, as float (halves) and its sum.
    const std::int64_t casts = job_.size == 4 ? 0 : 1;
    if (job_.has(ZeroChange::OverflowStaysOnTheDevice))
      s_->check_overflow(ZeroStep::kMain, 28, shard, 8 * partition_.tensors());
    else
      s_->check_overflow(ZeroStep::kMain, casts * (job_.size + 4) + 4, shard,
                         (1 + casts) * partition_.tensors(), partition_.tensors());
    s_->norm(0, shard, partition_.tensors(), DType::Float32);
    s_->update(0, shard);
    gather();
  }

  void gather() {
    s_->b.release_gradients();
    if (job_.has(ZeroChange::GathersAtOnce))
      s_->collective(ZeroStep::kMain, kGatherWeights, kNoSubject,
                     job_.size * partition_.shard() * job_.ranks, job_.type);
    else if (job_.ranks > 1)
      gather_lists();
    s_->read_loss();
  }

  // all_gather_dp_groups(): parts of all shards, of an even number of elements each but the last.
  void gather_lists() {
    const std::int64_t shard = partition_.shard();
    const std::int64_t lists = weight_lists(zero(), shard, job_.ranks);
    const std::int64_t each = shard / lists / 2 * 2;
    for (std::int64_t k = 0; k < lists; ++k) {
      const std::int64_t bytes =
          job_.size * job_.ranks * (k + 1 == lists ? shard - k * each : each);
      const auto number = static_cast<std::uint32_t>(k);
      s_->b.allocate(Holds::Temporaries, bytes);
      s_->collective(ZeroStep::kMain, kGatherList, number, bytes, job_.type);
      s_->copy(ZeroStep::kMain, kOutOfList, number, 2 * bytes, job_.ranks);
      s_->b.release(Holds::Temporaries, bytes);
    }
  }

  ZeroJob job_;
  const int accumulation_steps_;
  const ZeroPartition partition_;
  const ZeroOffload offload_;
  const BackwardTimeline timeline_;
  // of the step being built
  ZeroStep* s_ = nullptr;
  int micro_ = 0;
  std::vector<TensorIndex> bucket_;
  std::int64_t elements_ = 0;
  std::int64_t ipg_ = 0;   // bytes of the buffers that gradients are copied into; 0 = not there
  std::int64_t kept_ = 0;  // elements of the shard whose gradients are there
};

}  // namespace

std::span<const OpWord> zero_12_words() {
  return kZero12Words;
}

Program lower_zero_12(const TimedWorkload& workload, const Plan& plan, Steps steps) {
  return Zero12Lowering(workload, plan).run(steps);
}

}  // namespace ddpsim::systems
