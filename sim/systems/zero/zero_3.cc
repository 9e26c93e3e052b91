// DeepSpeed ZeRO, stage 3: parameters are gathered module by module (zero_fetch.h). A gradient goes
// into a bucket on a stream of its own; a bucket that would grow beyond reduce_bucket_size is
// reduced first, also in micro-steps that are not the last:
//
//   interleave the ranks' parts; divide by the ranks; reduce-scatter; into the shard
//
// or, with qgZ, gradient by gradient what zero_exchange.cc says.
//
// All-gathers use the communicator of all ranks, everything else one of the data-parallel group.
//
// Source: deepspeed/runtime/zero/stage3.py (0.14.5): reduce_independent_p_g_buckets...,
// __add_grad_to_ipg_bucket, __reduce_and_partition_ipg_grads, step; runtime/comm/
// coalesced_collectives.py.
#include <algorithm>

#include "sim/systems/zero/zero_3_offload.h"
#include "sim/systems/zero/zero_exchange.h"
#include "sim/systems/zero/zero_fetch.h"

namespace ddpsim::systems {
namespace {

constexpr OpWord kLayerForward{"fwd/",
                               {.phase = Phase::Forward, .of = Of::Label, .in_micro_step = true}};
constexpr OpWord kLayerBackward{"bwd/",
                                {.phase = Phase::Backward, .of = Of::Label, .in_micro_step = true}};
constexpr OpWord kScaled = zero_word("scale/bucket.", Does::Copy, Phase::Reduced);
constexpr OpWord kLimitReduce{"limit/reduce.",
                              {.does = Does::Host, .of = Of::Number, .in_micro_step = true}};
constexpr OpWord kZero3Words[] = {kLayerForward,  kLayerBackward, kInterleave,
                                  kScatterBucket, kScaled,        kLimitReduce};

class Zero3Lowering {
 public:
  Zero3Lowering(const TimedWorkload& timed, const Plan& plan)
      : job_(timed, plan),
        accumulation_steps_(plan.accumulation_steps),
        trace_(zero_trace(job_.w)),
        differentiated_(differentiated(job_.w)),
        coordinator_(job_, trace_),
        offload_(job_, plan.accumulation_steps) {
    std::vector<bool> seen(job_.w.tensors.size(), true);
    for (TensorIndex t : job_.w.arrival) seen[t] = false;
    gradients_.resize(job_.w.layers.size());
    for (std::size_t l = 0; l < job_.w.layers.size(); ++l) {
      job_.program.labels.push_back(job_.w.layers[l].name);
      for (TensorIndex t : job_.w.layers[l].tensors) {
        if (!seen[t]) gradients_[l].push_back(t);
        seen[t] = true;
      }
    }
  }

  // The first step records; what it leaves to the next is settled after the second.
  Program run(Steps steps) {
    std::int64_t shards = 0;
    std::int64_t whole = 0;   // bytes of parameters that stay
    std::int64_t frozen = 0;  // of shards that are not updated
    for (TensorIndex t = 0; t < job_.w.parameters(); ++t) {
      (job_.w.is_frozen(t) ? frozen : shards) +=
          coordinator_.shard(t) * (job_.w.is_frozen(t) ? job_.size_of(t) : 1);
      if (job_.ranks > 1 && coordinator_.persistent(t)) whole += job_.elements(t) * job_.size_of(t);
    }
    Held& held = job_.program.resident;
    const std::int64_t updated = offloads() ? 0 : shards;  // on the device
    const std::int64_t own = job_.size * shards + frozen;
    held = zero_resident(job_.w, job_.zero.offload_param ? whole : own + whole, updated);
    held[Holds::Gradients] = job_.size * updated;
    if (job_.zero.contiguous_gradients)
      held[Holds::Buckets] = job_.size * job_.zero.reduce_bucket_size;
    StepProgram first = step(StepKind::First);
    step(StepKind::Steady);
    job_.program.steady = step(StepKind::Steady);
    if (steps == Steps::All) job_.program.warmup.push_back(std::move(first));
    return std::move(job_.program);
  }

 private:
  bool offloads() const { return job_.zero.offload_optimizer; }

  StepProgram step(StepKind kind) {
    ZeroStep s(job_, kind);
    s_ = &s;
    coordinator_.begin_step(s);
    limit_.begin_step();
    for (int m = 0; m < accumulation_steps_; ++m) {
      if (accumulation_steps_ > 1) s.b.set_micro(m);
      micro_ = m;
      forward();
      backward();
      if (m + 1 == accumulation_steps_) continue;
      s.end_micro_step();
      coordinator_.settle();
    }
    s.b.set_micro(-1);
    optimize();
    s.end_micro_step();
    return std::move(s.b.step);
  }

  void compute(const OpWord& word, std::size_t label, const Stretch& t) {
    s_->b.host_time(t.head);
    s_->kernel(ZeroStep::kMain, word, static_cast<std::uint32_t>(label), 0, {.duration = t.device});
    s_->b.host_time(t.host - t.head);
  }

  void forward() {
    for (const ZeroEvent& e : trace_.forward) {
      if (e.what == ZeroEvent::What::Enter) coordinator_.fetch_sub_module(e.number, false);
      if (e.what == ZeroEvent::What::Exit) coordinator_.release_sub_module(e.number);
      if (e.what != ZeroEvent::What::Compute) continue;
      Stretch t;
      for (std::size_t l = e.number; l < e.number + e.layers; ++l)
        t.add(job_.timed.times.layers[l].forward, job_.timed.times.layers[l].host_forward);
      compute(kLayerForward, e.number, t);
      s_->b.activations(job_.memory.forward(e.number, e.number + e.layers));
    }
  }

  // Forward from its end.
  void backward() {
    for (std::size_t k = trace_.forward.size(); k-- > 0;) {
      const ZeroEvent& e = trace_.forward[k];
      if (e.what == ZeroEvent::What::Exit && trace_.modules[e.number].returns)
        coordinator_.fetch_sub_module(e.number, true);
      if (e.what == ZeroEvent::What::Enter && trace_.modules[e.number].differentiable)
        coordinator_.release_sub_module(e.number);
      if (e.what != ZeroEvent::What::Compute) continue;
      Stretch t;
      bool any = job_.w.frozen.empty();
      for (std::size_t l = e.number + e.layers; l-- > e.number;) {
        t.add(job_.timed.times.layers[l].backward, job_.timed.times.layers[l].host_backward);
        any = any || differentiated_[l];
      }
      if (any) compute(kLayerBackward, e.number, t);
      s_->b.activations(job_.memory.backward(e.number, e.number + e.layers));
      for (std::size_t l = e.number; l < e.number + e.layers; ++l)
        for (TensorIndex g : gradients_[l])
          s_->b.allocate(Holds::Gradients, job_.size * job_.elements(g));
      for (std::size_t l = e.number + e.layers; l-- > e.number;)
        for (TensorIndex g : gradients_[l]) add(g);
    }
    coordinator_.reset_step();
    reduce();
    s_->host_waits(kZeroReduced, kNoSubject, s_->position(ZeroStep::kReduce));
    limit_.settle();
  }

  // ---- gradients

  void add(TensorIndex t) {
    const std::int64_t n = job_.elements(t);
    if (elements_ + n > job_.zero.reduce_bucket_size) reduce();
    s_->wait(ZeroStep::kReduce, ZeroStep::kMain);
    if (job_.zero.contiguous_gradients && elements_ + n <= job_.zero.reduce_bucket_size)
      s_->copy(ZeroStep::kReduce, kZeroToBucket, t, 2 * job_.size * n);
    s_->b.release(Holds::Gradients, job_.size * n);
    bucket_.push_back(t);
    elements_ += n;
  }

  void reduce() {
    if (bucket_.empty()) return;
    limit_.before_next(*s_, kLimitReduce);
    const std::int64_t tensors = bucket_.size();
    std::int64_t shards = 0;
    std::int64_t largest = 0;
    for (TensorIndex t : bucket_) {
      shards += coordinator_.shard(t);
      largest = std::max(largest, coordinator_.shard(t));
    }
    const std::int64_t size = job_.size;
    bool whole = job_.zero.contiguous_gradients && !job_.zero.reduce_scatter &&
                 elements_ <= job_.zero.reduce_bucket_size;
    const bool exchanges = exchanges_gradients(job_.zero, job_.ranks, job_.timed.per_host);
    const std::uint32_t k = whole       ? all_reduce()
                            : exchanges ? exchange()
                                        : reduce_scatter(shards * job_.ranks);
    if (offloads())
      offload_.take(*s_, k, {shards, tensors, largest}, micro_);
    else
      s_->copy(ZeroStep::kReduce, kZeroKeep, k, (micro_ == 0 ? 2 : 3) * size * shards, tensors);
    limit_.happened(s_->position(ZeroStep::kReduce));
    bucket_.clear();
    elements_ = 0;
  }

  std::uint32_t reduce_scatter(std::int64_t padded) {
    constexpr std::int64_t kParts = 128;  // that one kernel of torch.cat takes
    const std::int64_t parts = std::ssize(bucket_) * job_.ranks;
    std::sort(bucket_.begin(), bucket_.end());
    const std::uint32_t k = s_->bucket(bucket_, elements_, padded);
    if (bucket_.size() > 1 || padded != elements_)
      s_->copy(ZeroStep::kReduce, kInterleave, k, 2 * job_.size * padded,
               (parts + kParts - 1) / kParts);
    s_->copy(ZeroStep::kReduce, kZeroAverage, k, 2 * job_.size * padded);
    s_->collective(ZeroStep::kReduce, kScatterBucket, k, job_.size * padded, job_.type);
    return k;
  }

  std::uint32_t exchange() {
    std::sort(bucket_.begin(), bucket_.end());
    return exchange_gradients(*s_, job_, bucket_);
  }

  // reduce_scatter=false; what is above the limit is scattered all the same.
  std::uint32_t all_reduce() {
    const std::uint32_t k = s_->bucket(bucket_, elements_, elements_);
    const std::int64_t bytes = job_.size * elements_;
    s_->copy(ZeroStep::kReduce, kZeroAverage, k, 2 * bytes);
    s_->collective(ZeroStep::kReduce, kZeroAllReduce, k, bytes, job_.type);
    if (job_.ranks > 1) s_->copy(ZeroStep::kReduce, kScaled, k, 2 * bytes);  // by predivide's 1.0
    return k;
  }

  // ---- the step

  struct Group {
    std::int64_t elements = 0;
    std::int64_t tensors = 0;
  };
  std::vector<Group> sub_groups() const {
    const std::int64_t most = job_.zero.sub_group_size;
    std::vector<Group> out(1);
    for (TensorIndex t = 0; t < job_.w.tensors.size(); ++t) {
      if (out.back().elements >= most && out.back().tensors > 0) out.emplace_back();
      out.back().elements += coordinator_.shard(t);
      ++out.back().tensors;
    }
    return out;
  }

  void optimize() {
    coordinator_.partition_all();
    const std::vector<Group> groups = sub_groups();
    std::int64_t elements = 0;
    for (const Group& g : groups) elements += g.elements;
    offloads() ? update_on_host(groups, elements) : update(groups, elements);
    coordinator_.gather_persistent();
    s_->read_loss();
  }

  void update(const std::vector<Group>& groups, std::int64_t elements) {
    // isinf and isnan write a byte that any() reads: stage3.py, has_overflow.
    s_->check_overflow(ZeroStep::kReduce, 2 * job_.size + 4, elements, 6);
    const bool reads = !job_.has(ZeroChange::NormOfStage3StaysOnTheDevice);
    const bool each = !job_.has(ZeroChange::NormOfAllIsRead);
    for (std::uint32_t g = 0; g < groups.size(); ++g) {
      s_->norm(g, groups[g].elements, groups[g].tensors, DType::Float64);
      if (reads && (each || g + 1 == groups.size())) s_->read_norm(g);
    }
    for (std::uint32_t g = 0; g < groups.size(); ++g) s_->update(g, groups[g].elements);
  }
  void update_on_host(const std::vector<Group>& groups, std::int64_t elements) {
    offload_.check_overflow(*s_, elements);
    for (std::uint32_t g = 0; g < groups.size(); ++g)
      offload_.norm(*s_, g, groups[g].tensors, g + 1 == groups.size());
    for (std::uint32_t g = 0; g < groups.size(); ++g) offload_.update(*s_, g, groups[g].elements);
  }

  ZeroJob job_;
  const int accumulation_steps_;
  const ZeroTrace trace_;
  const std::vector<bool> differentiated_;  // by layer
  ZeroCoordinator coordinator_;
  const Zero3Offload offload_;
  std::vector<std::vector<TensorIndex>> gradients_;  // that are complete in a layer's backward
  // of the step being built
  ZeroStep* s_ = nullptr;
  ZeroLimit limit_;
  int micro_ = 0;
  std::vector<TensorIndex> bucket_;
  std::int64_t elements_ = 0;
};

}  // namespace

std::span<const OpWord> zero_3_words() {
  return kZero3Words;
}

Program lower_zero_3(const TimedWorkload& workload, const Plan& plan, Steps steps) {
  return Zero3Lowering(workload, plan).run(steps);
}

}  // namespace ddpsim::systems
