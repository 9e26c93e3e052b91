// Before a module's pass its parameters are gathered, if they are not there, and computation waits;
// then those of the modules to come, as the first step recorded them, until they are
// stage3_prefetch_bucket_size: once for each module that is entered. After the pass they are
// released, unless the module is used again within stage3_max_reuse_distance.
#include "sim/systems/zero/zero_fetch.h"

#include <algorithm>

#include "sim/systems/zero/zero_3_offload.h"

namespace ddpsim::systems {
namespace {

constexpr OpWord kShards = zero_word("join_shards/bucket.", Does::Copy, Phase::Between);
constexpr OpWord kFetch =
    zero_word("all_gather/bucket.", Does::Communicate, Phase::Forward, Operation::AllGather);
constexpr OpWord kFetchAgain =
    zero_word("all_gather/bwd.bucket.", Does::Communicate, Phase::Backward, Operation::AllGather);
// qwZ. What is gathered is int8; a Program says uint8.
constexpr OpWord kQuantise = zero_word("quantize/bucket.", Does::Copy, Phase::Between);
constexpr OpWord kDequantise = zero_word("dequantize/bucket.", Does::Copy, Phase::Between);
constexpr OpWord scales_word(const char* name, Phase phase) {
  return {name,
          {.does = Does::Communicate,
           .phase = phase,
           .of = Of::Number,
           .operation = Operation::AllGather,
           .in_micro_step = true}};
}
constexpr OpWord kFetchScales = scales_word("all_gather/scales.", Phase::Forward);
constexpr OpWord kFetchScalesAgain = scales_word("all_gather/bwd.scales.", Phase::Backward);
constexpr OpWord kSplit = zero_word("split/bucket.", Does::Copy, Phase::Between);
constexpr OpWord kLimitFetch{"limit/fetch.",
                             {.does = Does::Host, .of = Of::Number, .in_micro_step = true}};
// hpZ: a rank's part of the second copy, out of whole weights that are about to be released. The
// host waits for the copy ("temporary fix", _partition_param_sec).
constexpr OpWord kSecondary{
    "keep_secondary/",
    {.does = Does::Copy, .of = Of::Tensor, .touches = Touches::Tensor, .in_micro_step = true}};
constexpr OpWord kAwaitSecondary{"wait/secondary/",
                                 {.does = Does::Wait, .of = Of::Tensor, .in_micro_step = true}};
constexpr OpWord kPersistent{"all_gather/persistent.",
                             {.does = Does::Communicate,
                              .phase = Phase::Update,
                              .of = Of::Tensor,
                              .touches = Touches::Tensor,
                              .operation = Operation::AllGather}};
constexpr OpWord kAwaitPersistent{"wait/persistent", {.does = Does::Wait, .phase = Phase::Update}};
// assert_ints_same_as_other_ranks(): the order of modules, of parameters, of their uses.
constexpr OpWord kSameTrace{"broadcast/trace.",
                            {.does = Does::Communicate,
                             .of = Of::Number,
                             .operation = Operation::Broadcast,
                             .in_micro_step = true}};
constexpr OpWord kAwaitTrace{"wait/trace.",
                             {.does = Does::Wait, .of = Of::Number, .in_micro_step = true}};
constexpr OpWord kZeroFetchWords[] = {kShards,     kFetch,       kFetchAgain,      kSplit,
                                      kLimitFetch, kPersistent,  kAwaitPersistent, kSameTrace,
                                      kAwaitTrace, kSecondary,   kAwaitSecondary,  kQuantise,
                                      kDequantise, kFetchScales, kFetchScalesAgain};

constexpr std::size_t kNotInflight = SIZE_MAX;

}  // namespace

std::span<const OpWord> zero_fetch_words() {
  return kZeroFetchWords;
}

void ZeroLimit::before_next(ZeroStep& s, const OpWord& word) {
  if (events_.size() <= kMost) return;
  std::vector<std::uint32_t> event = std::move(events_.front());
  events_.pop_front();
  if (event.empty() || event == waited_) return;
  std::uint32_t host = s.b.host(word, Cost::Measured, number_++);
  for (std::uint32_t op : event) s.b.add_dep(host, op);
  waited_ = std::move(event);
}

ZeroCoordinator::ZeroCoordinator(ZeroJob& job, const ZeroTrace& trace)
    : job_(job),
      trace_(trace),
      secondary_ranks_(secondary_ranks(job.zero, job.ranks)),
      has_secondary_(job.w.parameters()),
      status_(job.w.parameters(), Status::Partitioned),
      inflight_(job.w.parameters(), kNotInflight),
      active_(job.w.parameters()),
      most_recent_(job.w.parameters(), kNever) {}

void ZeroCoordinator::begin_step(ZeroStep& s) {
  s_ = &s;
  gatherings_.clear();
  limit_.begin_step();
}

void ZeroCoordinator::fetch_sub_module(std::size_t module, bool backward) {
  backward_ = backward;
  if (!complete_) module_order_.push_back(module);
  const std::vector<TensorIndex>& needed = tensors_of(module);
  all_gather({needed.begin(), needed.end()});
  for (TensorIndex t : needed) {
    active_[t].insert(module);
    if (inflight_[t] == kNotInflight) continue;
    limit_.before_next(*s_, kLimitFetch);
    wait_for(gatherings_[inflight_[t]]);
    inflight_[t] = kNotInflight;
    limit_.happened(s_->position(ZeroStep::kGather));
  }
  s_->wait(ZeroStep::kMain, ZeroStep::kGather);
  if (complete_) prefetch(module);
  ++step_id_;
}

void ZeroCoordinator::prefetch(std::size_t module) {
  std::size_t missing = 0;
  for (TensorIndex t : tensors_of(module)) missing += most_recent_[t] < step_id_;
  std::set<TensorIndex> discarded;
  while (!queue_.empty() && discarded.size() < missing) {
    Use use = queue_.front();
    queue_.pop_front();
    most_recent_[use.tensor] = use.step;
    discarded.insert(use.tensor);
  }
  if (job_.zero.stage3_prefetch_bucket_size == 0) return;
  const std::int64_t most = std::min(job_.zero.stage3_max_live_parameters - available_,
                                     job_.zero.stage3_prefetch_bucket_size);
  std::set<TensorIndex> ahead;
  std::int64_t elements = 0;
  while (!queue_.empty() && elements < most) {
    Use use = queue_.front();
    queue_.pop_front();
    most_recent_[use.tensor] = std::max(most_recent_[use.tensor], use.step);
    if (status_[use.tensor] == Status::Partitioned && ahead.insert(use.tensor).second)
      elements += job_.elements(use.tensor);
  }
  all_gather(std::move(ahead));
}

// What has a second copy is gathered from there, apart from the others.
void ZeroCoordinator::all_gather(std::set<TensorIndex> tensors) {
  std::erase_if(tensors, [&](TensorIndex t) { return status_[t] != Status::Partitioned; });
  for (bool from_secondary : {true, false}) {
    std::vector<TensorIndex> of_kind;  // in order of registration
    for (TensorIndex t : tensors)
      if (has_secondary_[t] == from_secondary) of_kind.push_back(t);
    // One for each type, in the order in which these come (_all_gather_dtype); what is quantised is
    // of one.
    while (!of_kind.empty()) {
      const DType type = job_.type_of(of_kind.front());
      const auto other = std::stable_partition(of_kind.begin(), of_kind.end(), [&](TensorIndex t) {
        return job_.type_of(t) == type || job_.zero.zero_quantized_weights;
      });
      gather({of_kind.begin(), other}, from_secondary);
      of_kind.erase(of_kind.begin(), other);
    }
  }
}

void ZeroCoordinator::gather(std::vector<TensorIndex> tensors, bool from_secondary) {
  Gathering g;
  g.tensors = std::move(tensors);
  const DType type = job_.type_of(g.tensors.front());
  const std::int64_t size = element_size(type);
  std::int64_t whole = 0;
  std::int64_t shards = 0;
  std::int64_t own = 0;
  for (TensorIndex t : g.tensors) {
    whole += job_.elements(t);
    shards += shard(t);
    own += from_secondary ? secondary(t) : shard(t);
    status_[t] = Status::Inflight;
    inflight_[t] = gatherings_.size();
  }
  available_ += whole;
  if (job_.ranks > 1) {
    g.bucket = s_->bucket_of(type, g.tensors, whole, shards * job_.ranks);
    const bool away = job_.zero.offload_param;
    if (away) bring_shards(*s_, job_, g.bucket, size * own, std::ssize(g.tensors));
    if (g.tensors.size() > 1) {
      s_->copy(ZeroStep::kGather, kShards, g.bucket, 2 * size * own);
      if (away) s_->b.release(Holds::Temporaries, size * own);
    }
    const bool quantised = job_.zero.zero_quantized_weights;
    if (quantised) quantise(g, own, from_secondary ? secondary_ranks_ : job_.ranks);
    g.op = s_->collective(
        ZeroStep::kGather, backward_ ? kFetchAgain : kFetch, g.bucket,
        (quantised ? 1 : size) * shards * job_.ranks, quantised ? DType::UInt8 : type,
        from_secondary ? group_lane(job_, kSecondaryGroup) : world_lane(job_), true);
    if (from_secondary) s_->b.step.ops[g.op].group = kSecondaryGroup;
    if (quantised) gather_scales(g, from_secondary);
    if (away && g.tensors.size() == 1)  // NCCL's stream reads it
      s_->b.release(Holds::Temporaries, size * own, g.op, true);
    for (TensorIndex t : g.tensors)
      if (!persistent(t)) s_->b.allocate(Holds::Gathered, job_.size_of(t) * job_.elements(t));
  }
  gatherings_.push_back(std::move(g));
}

void ZeroCoordinator::quantise(Gathering& g, std::int64_t own, std::int64_t ranks) {
  const std::int64_t groups = quantisation_groups(own);
  g.groups = groups * ranks;
  s_->copy(ZeroStep::kGather, kQuantise, g.bucket, (job_.size + 1) * own + kSingle * groups);
  g.beside = (own + kSingle * groups) * (ranks + 1);
  s_->b.allocate(Holds::Temporaries, g.beside);
}

void ZeroCoordinator::gather_scales(Gathering& g, bool from_secondary) {
  g.scales = s_->collective(
      ZeroStep::kGather, backward_ ? kFetchScalesAgain : kFetchScales, g.bucket, kSingle * g.groups,
      DType::Float32, from_secondary ? group_lane(job_, kSecondaryGroup) : world_lane(job_), true);
  if (from_secondary) s_->b.step.ops[g.scales].group = kSecondaryGroup;
}

// All that was gathered together, padding and all; of one parameter, itself.
void ZeroCoordinator::dequantise(const Gathering& g) {
  const Bucket& bucket = s_->b.step.buckets[g.bucket];
  const std::int64_t elements =
      (g.tensors.size() > 1 ? bucket.wire_bytes : bucket.bytes).count / job_.size;
  s_->copy(ZeroStep::kGather, kDequantise, g.bucket,
           (1 + job_.size) * elements + kSingle * g.groups);
  s_->b.release(Holds::Temporaries, g.beside);
}

void ZeroCoordinator::keep_secondary(TensorIndex t) {
  if (secondary_ranks_ < 2 || has_secondary_[t]) return;
  const std::int64_t bytes = job_.size_of(t) * secondary(t);
  s_->copy(ZeroStep::kMain, kSecondary, t, 2 * bytes);
  s_->b.allocate(Holds::Parameters, bytes);
  if (job_.has(ZeroChange::HostWaitsForSecondCopy))
    s_->host_waits(kAwaitSecondary, t, s_->position(ZeroStep::kMain));
  has_secondary_[t] = true;
}

void ZeroCoordinator::invalidate_secondary() {
  for (TensorIndex t = 0; t < has_secondary_.size(); ++t)
    if (has_secondary_[t]) s_->b.release(Holds::Parameters, job_.size_of(t) * secondary(t));
  has_secondary_.assign(has_secondary_.size(), false);
}

// One parameter lies where it is used; several are made of the ranks' parts.
void ZeroCoordinator::wait_for(Gathering& g) {
  if (g.complete) return;
  g.complete = true;
  if (g.op != kNoOp) {
    s_->wait(ZeroStep::kGather, g.op);
    if (g.scales != kNoOp) {
      s_->wait(ZeroStep::kGather, g.scales);
      dequantise(g);
    }
    const std::int64_t tensors = g.tensors.size();
    if (tensors > 1)
      s_->copy(ZeroStep::kGather, kSplit, g.bucket, 2 * s_->b.step.buckets[g.bucket].bytes.count,
               tensors);
  }
  for (TensorIndex t : g.tensors) status_[t] = Status::Available;
}

void ZeroCoordinator::release_sub_module(std::size_t module) {
  const std::vector<TensorIndex>& own = tensors_of(module);
  if (own.empty()) return;
  for (TensorIndex t : own) active_[t].erase(module);
  if (!complete_) {
    for (TensorIndex t : own) release(t);
    return;
  }
  const std::set<TensorIndex>& freed = to_release(module);
  for (TensorIndex t : own)
    if (freed.count(t)) release(t);
}

const std::set<TensorIndex>& ZeroCoordinator::to_release(std::size_t module) {
  auto [at, fresh] = to_release_.try_emplace({module, step_id_});
  if (!fresh) return at->second;
  std::set<TensorIndex>& out = at->second;
  for (TensorIndex t : tensors_of(module))
    if (!persistent(t) && most_recent_[t] <= step_id_) out.insert(t);
  std::int64_t traversed = 0;
  for (std::size_t k = step_id_; k < module_order_.size() && !out.empty(); ++k) {
    if (traversed >= job_.zero.stage3_max_reuse_distance) break;
    for (TensorIndex t : tensors_of(module_order_[k])) {
      out.erase(t);
      traversed += job_.elements(t);
    }
  }
  return out;
}

void ZeroCoordinator::release(TensorIndex t) {
  if (status_[t] != Status::Available || !active_[t].empty()) return;
  keep_secondary(t);
  status_[t] = Status::Partitioned;
  if (job_.ranks > 1 && !persistent(t))
    s_->b.release(Holds::Gathered, job_.size_of(t) * job_.elements(t));
  available_ -= job_.elements(t);
}

void ZeroCoordinator::reset_step() {
  if (!complete_) {
    complete_ = true;
    for (std::int64_t k = 0; k < std::ssize(module_order_); ++k)
      for (TensorIndex t : tensors_of(module_order_[k])) order_.push_back({t, k});
    const std::int64_t numbers[] = {std::ssize(module_order_), std::ssize(order_),
                                    std::ssize(order_)};
    for (std::uint32_t k = 0; k < 3; ++k) {
      // Of eight bytes each; what a broadcast's type is, is never asked.
      std::uint32_t op = s_->collective(ZeroStep::kMain, kSameTrace, k, 8 * numbers[k],
                                        DType::Int32, world_lane(job_));
      s_->host_waits(kAwaitTrace, k, {op});
    }
  }
  queue_.assign(order_.begin(), order_.end());
  std::fill(most_recent_.begin(), most_recent_.end(), kNever);
  step_id_ = 0;
  if (!counts_what_stays()) available_ = 0;
}

bool ZeroCoordinator::counts_what_stays() const {
  return job_.has(ZeroChange::CountsWhatStays) && !job_.has(ZeroChange::CountsAnew);
}

void ZeroCoordinator::partition_all() {
  for (TensorIndex t = 0; t < status_.size(); ++t) {
    active_[t].clear();
    release(t);
  }
  if (counts_what_stays()) available_ = 0;
}

void ZeroCoordinator::gather_persistent() {
  std::vector<std::uint32_t> ops;
  std::int64_t brought = 0;
  std::int64_t tensors = 0;
  for (TensorIndex t = 0; t < status_.size(); ++t)
    if (job_.zero.offload_param && persistent(t)) brought += job_.size_of(t) * shard(t), ++tensors;
  if (tensors > 0) bring_persistent_shards(*s_, job_, brought, tensors);
  for (TensorIndex t = 0; t < status_.size(); ++t) {
    if (!persistent(t)) continue;
    status_[t] = Status::Available;
    if (job_.ranks > 1)
      ops.push_back(s_->collective(ZeroStep::kMain, kPersistent, t,
                                   job_.size_of(t) * shard(t) * job_.ranks, job_.type_of(t),
                                   world_lane(job_), true));
  }
  for (std::uint32_t op : ops) s_->wait(ZeroStep::kMain, op);
  if (!ops.empty()) s_->synchronize(kAwaitPersistent, kNoSubject);
  s_->b.release(Holds::Temporaries, brought);
  invalidate_secondary();
}

}  // namespace ddpsim::systems
