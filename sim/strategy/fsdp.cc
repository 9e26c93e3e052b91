// PyTorch FullyShardedDataParallel (FSDP1), one step on a GPU, hook by hook:
//
//   before a unit's forward   its weights are gathered, computation waits, [the next unit's are
//                             gathered: forward_prefetch]
//   after it                  they are freed (FULL_SHARD, not the root's)
//   before its backward       as before forward, [the unit before is gathered: BACKWARD_PRE]
//   its gradient is complete  weights freed, [BACKWARD_POST]; on a stream of its own the gradient
//                             is divided, reduced and scattered
//   at the end                computation waits for that stream; the optimizer updates shards
//
// Before each gathering the host may wait until weights have been freed: the rate limiter. A
// collective has its place on its stream and on its group's communicator. Backward is forward read
// from its end: an output's hook where a unit's forward ended, a complete gradient where the views
// of the flat parameter were made (1.13: where forward begins; later: where it was gathered).
//
// Source: torch/distributed/fsdp/fully_sharded_data_parallel.py (1.13); _runtime_utils.py,
// _limiter_utils.py, _flat_param.py (2.7); tests/oracle/fsdp1.py lists the differences of the two.
// sim/MODEL.md section 3.
#include "sim/strategy/fsdp.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>

#include "sim/strategy/bucketing.h"
#include "sim/strategy/builder.h"
#include "sim/strategy/lower.h"

namespace ddpsim::strategy {
namespace {

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
constexpr OpWord kStart{"wait/optimizer", {.does = Does::Host, .in_micro_step = true}};
constexpr OpWord kLimit{"limit/", {.does = Does::Host, .of = Of::Label, .in_micro_step = true}};
constexpr OpWord kLimitAgain{"limit/bwd.",
                             {.does = Does::Host, .of = Of::Label, .in_micro_step = true}};
constexpr OpWord kCastShard = copy_word("cast_shard/", Phase::Between);
constexpr OpWord kCastShardAgain = copy_word("cast_shard/bwd.", Phase::Between);
constexpr OpWord kGather = collective_word("all_gather/", Phase::Forward, Operation::AllGather);
constexpr OpWord kGatherAgain =
    collective_word("all_gather/bwd.", Phase::Backward, Operation::AllGather);
constexpr OpWord kUnitForward{"fwd/",
                              {.phase = Phase::Forward, .of = Of::Label, .in_micro_step = true}};
constexpr OpWord kUnitBackward{"bwd/",
                               {.phase = Phase::Backward, .of = Of::Label, .in_micro_step = true}};
// Gradients of a unit's parameters into one.
constexpr OpWord kFlatten{"flatten_gradient/",
                          {.does = Does::Copy,
                           .phase = Phase::Backward,
                           .of = Of::Label,
                           .touches = Touches::Bucket,
                           .in_micro_step = true}};
constexpr OpWord kAccumulateFlat = copy_word("accumulate/", Phase::Backward);
constexpr OpWord kCastGradient = copy_word("cast_gradient/", Phase::Backward);
constexpr OpWord kPad = copy_word("pad/", Phase::Backward);
constexpr OpWord kZeroShard = copy_word("zero_shard/", Phase::Backward);
constexpr OpWord kPredivide = copy_word("predivide/", Phase::Backward);
constexpr OpWord kScatter =
    collective_word("reduce_scatter/", Phase::Backward, Operation::ReduceScatter);
constexpr OpWord kReduce = collective_word("allreduce/", Phase::Backward, Operation::AllReduce);
constexpr OpWord kPostdivide = copy_word("postdivide/", Phase::Reduced);
constexpr OpWord kCastBack = copy_word("cast_back/", Phase::Reduced);
constexpr OpWord kAccumulateShard = copy_word("accumulate_shard/", Phase::Reduced);
// 1.13, first step: whether all ranks run the same unit.
constexpr OpWord kOrderCount{"all_gather/order_count.",
                             {.does = Does::Communicate,
                              .of = Of::Label,
                              .operation = Operation::AllGather,
                              .in_micro_step = true}};
constexpr OpWord kOrderIndex{"all_gather/order_index.",
                             {.does = Does::Communicate,
                              .of = Of::Label,
                              .operation = Operation::AllGather,
                              .in_micro_step = true}};
constexpr OpWord kOrderWait{"wait/order.",
                            {.does = Does::Wait, .of = Of::Label, .in_micro_step = true}};
constexpr OpWord kZeroGradients = copy_word("zero_gradient/", Phase::Between);
constexpr OpWord kFsdpWords[] = {
    kStart,       kLimit,           kLimitAgain,   kCastShard,  kCastShardAgain, kGather,
    kGatherAgain, kUnitForward,     kUnitBackward, kFlatten,    kAccumulateFlat, kCastGradient,
    kPad,         kZeroShard,       kPredivide,    kScatter,    kReduce,         kPostdivide,
    kCastBack,    kAccumulateShard, kOrderCount,   kOrderIndex, kOrderWait,      kZeroGradients};

// What 1.13 does otherwise.
struct Behaviour {
  BackwardPrefetch backward_prefetch;
  bool limit_all_gathers;
  bool limits_every_time;  // the host asks the limiter for weights that are there already, too
  bool limits_before_cast;
  bool prefetches_after_root;  // forward_prefetch knows the root only
  bool keeps_prefetched;       // until its weights are freed
  bool always_pads;
  bool zeroes_shard;
  bool views_at_forward;
  bool checks_order;
};
constexpr Behaviour kOld{
    BackwardPrefetch::None, false, true, true, true, true, true, true, true, true};
constexpr Behaviour kNew{
    BackwardPrefetch::Pre, true, false, false, false, false, false, false, false, false};

constexpr std::size_t kInFlight = 2;  // torch/distributed/fsdp/_limiter_utils.py
constexpr std::size_t kRoot = 0;

// Layers of one unit that run one after another.
struct Part {
  std::size_t unit = kRoot;
  std::uint32_t label = 0;
  Stretch forward;
  Stretch backward;
};
// A forward as its hooks see it.
struct Event {
  enum class What : std::uint8_t { Enter, Compute, Exit, Views } what = What::Compute;
  std::size_t number = 0;  // of the unit; of the part
};

class FsdpLowering {
 public:
  FsdpLowering(const TimedWorkload& timed, const Plan& plan)
      : timed_(timed),
        w_(timed.workload),
        plan_(plan),
        fsdp_(plan.fsdp),
        how_(plan.pytorch == PytorchVersion::V1_13 ? kOld : kNew),
        units_(fsdp_units(w_, plan)),
        program_(empty_program(timed, plan)),
        ranks_(timed.ranks),
        state_(units_.size()) {
    backward_prefetch_ = fsdp_.backward_prefetch.value_or(how_.backward_prefetch);
    limits_ = fsdp_.limit_all_gathers.value_or(how_.limit_all_gathers);
    sets_to_none_ = plan.set_to_none.value_or(behaviour(plan.pytorch).set_to_none);
    // One rank has nothing to shard: FSDP says so and goes on.
    sharding_ = ranks_ == 1 ? Sharding::NoShard : fsdp_.sharding_strategy;
    weights_ = w_.tensors.front().dtype;
    compute_type_ = fsdp_.param_dtype.value_or(weights_);
    reduce_type_ = fsdp_.reduce_dtype.value_or(compute_type_);
    while (ranks_ % predivisor_ == 0 && ranks_ / predivisor_ > predivisor_) predivisor_ *= 2;
    bool old = plan.pytorch == PytorchVersion::V1_13;
    program_.streams = {old ? "all_gather" : "unshard", "post_backward"};
    if (fsdp_.param_dtype) program_.streams.push_back(old ? "pre_all_gather" : "pre_unshard");
    for (const Unit& u : units_) program_.labels.push_back(u.name);
    find_parts();
  }

  // What a step leaves to the next (events of freed weights, gradients) is settled after the
  // second.
  Program run(Steps steps) {
    StepProgram first = step(StepKind::First);
    step(StepKind::Steady);
    program_.steady = step(StepKind::Steady);
    if (steps == Steps::All) program_.warmup.push_back(std::move(first));
    return std::move(program_);
  }

 private:
  struct State {
    bool whole = false;  // its flat parameter is there
    bool cast = false;   // NoShard: its copy in param_dtype is
    bool prefetched = false;
    bool needs_forward = false;
    bool needs_backward = false;
    bool ran_before_backward = false;
    enum class Gradient : std::uint8_t { None, Whole, Shard } gradient = Gradient::None;
    bool saved = false;  // a shard's gradient of the micro-steps before
  };
  enum Stream : std::size_t { kCompute, kUnshard, kPostBackward, kPreUnshard, kStreams };

  bool sharded() const { return sharding_ != Sharding::NoShard; }
  std::int64_t shard(std::size_t u) const {
    return sharded() ? (units_[u].elements + ranks_ - 1) / ranks_ : units_[u].elements;
  }
  std::int64_t padded(std::size_t u) const {
    return sharded() ? shard(u) * ranks_ : units_[u].elements;
  }
  bool empty(std::size_t u) const { return units_[u].elements == 0; }
  static std::uint32_t label(std::size_t u) { return static_cast<std::uint32_t>(u); }

  void find_parts() {
    std::vector<std::size_t> unit_of(w_.layers.size());
    for (std::size_t u = 0; u < units_.size(); ++u)
      for (std::size_t l : units_[u].layers) unit_of[l] = u;
    std::vector<int> seen(units_.size());
    std::vector<std::size_t> of_part(w_.layers.size());
    for (std::size_t l = 0; l < w_.layers.size(); ++l) {
      if (parts_.empty() || parts_.back().unit != unit_of[l]) {
        std::size_t u = unit_of[l];
        Part part{u, label(u), {}, {}};
        if (seen[u]++ > 0) {  // a unit that runs in several places has a label for each
          part.label = static_cast<std::uint32_t>(program_.labels.size());
          program_.labels.push_back(units_[u].name + "." + std::to_string(seen[u]));
        }
        parts_.push_back(part);
      }
      const LayerDurations& d = timed_.times.layers[l];
      parts_.back().forward.add(d.forward, d.host_forward);
      of_part[l] = parts_.size() - 1;
    }
    for (std::size_t l = w_.layers.size(); l-- > 0;) {
      const LayerDurations& d = timed_.times.layers[l];
      parts_[of_part[l]].backward.add(d.backward, d.host_backward);
    }
    std::vector<std::size_t> last(units_.size(), parts_.size());
    for (std::size_t k = 0; k < parts_.size(); ++k) last[parts_[k].unit] = k;
    std::vector<bool> entered(units_.size());
    events_.push_back({Event::What::Enter, kRoot});
    entered[kRoot] = true;
    for (std::size_t k = 0; k < parts_.size(); ++k) {
      std::size_t u = parts_[k].unit;
      if (!entered[u]) events_.push_back({Event::What::Enter, u});
      entered[u] = true;
      events_.push_back({Event::What::Compute, k});
      if (u != kRoot && last[u] == k) events_.push_back({Event::What::Exit, u});
    }
    events_.push_back({Event::What::Exit, kRoot});
    for (const Event& e : events_)
      if (e.what == Event::What::Enter && !empty(e.number)) forward_order_.push_back(e.number);
  }

  // ---- streams

  // What is put on `stream` next begins after all that is on `other` by now.
  void wait(Stream stream, Stream other) {
    if (last_[other] != kNoOp && (other != kCompute || stream != kCompute))
      pending_[stream].push_back(last_[other]);
    pending_[stream].insert(pending_[stream].end(), pending_[other].begin(), pending_[other].end());
  }
  std::vector<std::uint32_t> take_pending(Stream s) {
    std::vector<std::uint32_t> out = std::move(pending_[s]);
    pending_[s].clear();
    if (last_[s] != kNoOp && b_->step.ops[last_[s]].lane == Lane::Comm) out.push_back(last_[s]);
    return out;
  }
  static Lane lane_of(Stream s) {
    return s == kCompute ? Lane::Compute : stream(s == kPreUnshard ? 2 : s == kUnshard ? 0 : 1);
  }

  void kernel(Stream s, const OpWord& word, std::uint32_t subject, std::int64_t bytes, Work work) {
    std::vector<std::uint32_t> after = take_pending(s);
    last_[s] = b_->on_stream(lane_of(s), word, subject, bytes, work, after);
  }
  void copy(Stream s, const OpWord& word, std::size_t u, std::int64_t bytes) {
    kernel(s, word, label(u), bytes, {.traffic = bytes});
  }
  void collective(Stream s, const OpWord& word, std::size_t u, std::int64_t bytes, DType type) {
    std::vector<std::uint32_t> after = take_pending(s);
    if (last_[s] != kNoOp) after.push_back(last_[s]);
    last_[s] = b_->collective_after(word, label(u), bytes, type, after);
  }

  // ---- unshard and reshard

  void limit(std::size_t u) {
    if (!limits_ || freed_.size() < kInFlight) return;
    std::uint32_t freed = freed_.front();
    freed_.pop_front();
    std::uint32_t host = b_->host(backward_ ? kLimitAgain : kLimit, Cost::Measured, label(u));
    if (freed != kNoOp) b_->add_dep(host, freed);
  }

  bool cast_shard(std::size_t u) {
    State& s = state_[u];
    if (!fsdp_.param_dtype || (sharded() && s.whole)) return false;
    s.cast = true;
    copy(kPreUnshard, backward_ ? kCastShardAgain : kCastShard, u,
         shard(u) * (element_size(weights_) + element_size(compute_type_)));
    return true;
  }

  void unshard(std::size_t u) {
    State& s = state_[u];
    if (how_.limits_before_cast) limit(u);
    if (cast_shard(u)) wait(kUnshard, kPreUnshard);
    if (!how_.limits_before_cast) limit(u);
    if (sharded() && !s.whole) {
      collective(kUnshard, backward_ ? kGatherAgain : kGather, u,
                 padded(u) * element_size(compute_type_), compute_type_);
      s.whole = true;
    }
    if (sharded()) s.cast = false;
    if (!backward_ && !how_.views_at_forward) trace_.push_back({Event::What::Views, u});
  }

  void reshard(std::size_t u, bool frees) {
    State& s = state_[u];
    if (frees) s.whole = false;
    if (frees && limits_) freed_.push_back(last_[kCompute]);
    if (!sharded()) s.cast = false;
    if (frees || !how_.keeps_prefetched) s.prefetched = false;
  }

  void prefetch(const std::vector<std::size_t>& order, std::size_t u, int direction,
                bool State::*needs) {
    auto at = std::find(order.begin(), order.end(), u);
    if (at == order.end()) return;
    auto next = at - order.begin() + direction;
    if (next < 0 || next >= static_cast<std::ptrdiff_t>(order.size())) return;
    std::size_t target = order[static_cast<std::size_t>(next)];
    if (!(state_[target].*needs) || state_[target].prefetched) return;
    unshard(target);
    state_[target].prefetched = true;
  }

  void bring(std::size_t u) {
    if (how_.limits_every_time || !state_[u].prefetched) unshard(u);
  }

  // ---- forward

  void check_order(std::size_t u) {
    for (const OpWord* word : {&kOrderCount, &kOrderIndex}) {
      collective(kCompute, *word, u, 4 * ranks_, DType::Int32);
      if (word == &kOrderIndex) b_->wait(kOrderWait, label(u), last_[kCompute]);
    }
  }

  void before_forward(std::size_t u) {
    if (empty(u)) return;
    if (kind_ == StepKind::First && how_.checks_order && sharded()) check_order(u);
    bring(u);
    state_[u].needs_forward = false;
    if (how_.views_at_forward) trace_.push_back({Event::What::Views, u});
    wait(kCompute, kUnshard);
    bool known = u == kRoot || !how_.prefetches_after_root;
    if (fsdp_.forward_prefetch && known && kind_ != StepKind::First)
      prefetch(forward_order_, u, 1, &State::needs_forward);
  }

  void after_forward(std::size_t u) {
    if (empty(u)) return;
    backward_order_.push_back(u);
    reshard(u, u != kRoot && sharding_ == Sharding::FullShard);
    state_[u].needs_backward = true;
    state_[u].ran_before_backward = false;
  }

  void forward() {
    backward_ = false;
    if (fsdp_.forward_prefetch)
      for (State& s : state_) {
        s.needs_forward = true;
        if (!how_.keeps_prefetched) s.prefetched = false;
      }
    wait(kUnshard, kCompute);
    wait(kPreUnshard, kCompute);
    trace_.clear();
    backward_order_.clear();
    for (const Event& e : events_) {
      if (e.what != Event::What::Enter) trace_.push_back(e);
      if (e.what == Event::What::Enter)
        before_forward(e.number);
      else if (e.what == Event::What::Exit)
        after_forward(e.number);
      else
        compute(kUnitForward, parts_[e.number], parts_[e.number].forward);
    }
  }

  void compute(const OpWord& word, const Part& part, const Stretch& s) {
    b_->host_time(s.head);
    kernel(kCompute, word, part.label, 0, {.duration = s.device});
    b_->host_time(s.host - s.head);
  }

  // ---- backward

  void before_backward(std::size_t u) {
    State& s = state_[u];
    if (s.ran_before_backward || empty(u)) return;
    bring(u);
    wait(kCompute, kUnshard);
    s.needs_backward = false;
    if (backward_prefetch_ == BackwardPrefetch::Pre)
      prefetch(backward_order_, u, -1, &State::needs_backward);
    if (s.gradient == State::Gradient::Shard) s.saved = true, s.gradient = State::Gradient::None;
    s.ran_before_backward = true;
  }

  void after_backward(std::size_t u) {
    if (empty(u)) return;
    State& s = state_[u];
    std::int64_t bytes = units_[u].elements * element_size(compute_type_);
    copy(kCompute, kFlatten, u, 2 * bytes);
    if (s.gradient != State::Gradient::None) copy(kCompute, kAccumulateFlat, u, 3 * bytes);
    s.gradient = State::Gradient::Whole;
    bool syncs = last_micro_ || !fsdp_.no_sync;
    reshard(u, sharded() && (syncs || sharding_ == Sharding::FullShard));
    if (backward_prefetch_ == BackwardPrefetch::Post)
      prefetch(backward_order_, u, -1, &State::needs_backward);
    if (syncs) reduce(u);
  }

  void divide(const OpWord& word, std::size_t u, std::int64_t elements, bool needed) {
    if (needed) copy(kPostBackward, word, u, 2 * elements * element_size(reduce_type_));
  }

  void reduce(std::size_t u) {
    State& s = state_[u];
    const std::int64_t elements = units_[u].elements;
    const std::int64_t from = element_size(compute_type_);
    const std::int64_t to = element_size(reduce_type_);
    const std::int64_t kept = sharded() ? shard(u) : elements;
    wait(kPostBackward, kCompute);
    if (reduce_type_ != compute_type_)
      copy(kPostBackward, kCastGradient, u, elements * (from + to));
    if (sharded() && (padded(u) != elements || how_.always_pads))
      copy(kPostBackward, kPad, u, (elements + padded(u)) * to);
    if (sharded() && how_.zeroes_shard) copy(kPostBackward, kZeroShard, u, kept * to);
    divide(kPredivide, u, padded(u), predivisor_ > 1);
    collective(kPostBackward, sharded() ? kScatter : kReduce, u, padded(u) * to, reduce_type_);
    divide(kPostdivide, u, kept, ranks_ > predivisor_);
    if (reduce_type_ != weights_)
      copy(kPostBackward, kCastBack, u, kept * (to + element_size(weights_)));
    if (s.saved) copy(kPostBackward, kAccumulateShard, u, 3 * kept * element_size(weights_));
    s.saved = false;
    s.gradient = sharded() ? State::Gradient::Shard : State::Gradient::Whole;
  }

  void backward() {
    backward_ = true;
    std::vector<std::size_t> ending;  // units whose forwards ended here, the innermost last
    const std::vector<Event> trace = trace_;
    for (std::size_t k = trace.size(); k-- > 0;) {
      const Event& e = trace[k];
      if (e.what == Event::What::Exit) {
        ending.push_back(e.number);
        continue;
      }
      for (std::size_t i = ending.size(); i-- > 0;) before_backward(ending[i]);
      ending.clear();
      if (e.what == Event::What::Views)
        after_backward(e.number);
      else
        compute(kUnitBackward, parts_[e.number], parts_[e.number].backward);
    }
    if (last_micro_ || !fsdp_.no_sync) wait(kCompute, kPostBackward);
    for (State& s : state_) s.ran_before_backward = s.needs_backward = s.prefetched = false;
  }

  // ---- the step

  StepProgram step(StepKind kind) {
    StepBuilder b(program_, kind);
    b_ = &b;
    kind_ = kind;
    for (std::size_t u = 0; u < units_.size(); ++u) {
      Bucket bucket;
      bucket.tensors = units_[u].tensors;
      bucket.dtype = weights_;
      bucket.bytes = {units_[u].elements * element_size(weights_)};
      bucket.wire_bytes = {padded(u) * element_size(reduce_type_)};
      b.step.buckets.push_back(std::move(bucket));
    }
    last_.fill(kNoOp);
    for (auto& p : pending_) p.clear();
    for (std::uint32_t& f : freed_) f = kNoOp;  // of the step before: long done
    for (std::size_t u = 0; u < units_.size(); ++u) {
      State& s = state_[u];
      if (s.gradient == State::Gradient::None) continue;
      std::int64_t bytes = (s.gradient == State::Gradient::Shard ? shard(u) : units_[u].elements) *
                           element_size(weights_);
      if (sets_to_none_)
        s.gradient = State::Gradient::None;
      else
        copy(kCompute, kZeroGradients, u, bytes);
    }
    // What waits for computation waits for the optimizer of the step before.
    if (last_[kCompute] == kNoOp) last_[kCompute] = b.event(kStart, Lane::Compute);
    for (int m = 0; m < plan_.accumulation_steps; ++m) {
      if (plan_.accumulation_steps > 1) b.set_micro(m);
      last_micro_ = m + 1 == plan_.accumulation_steps;
      forward();
      backward();
    }
    b.set_micro(-1);
    optimize();
    return std::move(b.step);
  }

  void optimize() {
    std::int64_t elements = 0;
    std::int64_t parameters = 0;
    for (std::size_t u = 0; u < units_.size(); ++u)
      elements += shard(u), parameters += empty(u) ? 0 : 1;
    const LoopWork loop = loop_work(w_, elements, parameters);
    const std::int64_t bytes = elements * element_size(weights_);
    if (loop.unscale > 0)
      kernel(kCompute, kUnscale, kNoSubject, bytes,
             {.traffic = loop.unscale, .kernels = loop.unscale_kernels});
    if (loop.clip > 0)
      kernel(kCompute, kClip, kNoSubject, bytes,
             {.traffic = loop.clip, .kernels = loop.clip_kernels});
    if (loop.waits) b_->wait(kAwaitFinite, kNoSubject, last_[kCompute]);
    auto traffic =
        static_cast<std::int64_t>(static_cast<double>(elements) * optimizer_bytes_per_element(w_));
    auto kernels = static_cast<std::int32_t>(optimizer_kernels(w_.optimizer, parameters));
    kernel(kCompute, kOptimizer, kNoSubject, bytes,
           {.traffic = std::max<std::int64_t>(1, traffic), .kernels = kernels});
    if (w_.loop.loss_item) b_->wait(kReadLoss, kNoSubject, last_[kCompute]);
  }

  const TimedWorkload timed_;
  const Workload& w_;
  const Plan& plan_;
  const FsdpPlan& fsdp_;
  const Behaviour how_;
  std::vector<Unit> units_;
  Program program_;
  const std::int64_t ranks_;
  std::int64_t predivisor_ =
      1;  // of gradients before their reduction: a power of two near the square root of the ranks
  BackwardPrefetch backward_prefetch_ = BackwardPrefetch::Pre;
  bool limits_ = true;
  bool sets_to_none_ = true;
  Sharding sharding_ = Sharding::FullShard;
  DType weights_ = DType::Float32;
  DType compute_type_ = DType::Float32;
  DType reduce_type_ = DType::Float32;
  std::vector<Part> parts_;                 // in order of forward
  std::vector<Event> events_;               // of a forward
  std::vector<std::size_t> forward_order_;  // of units
  std::deque<std::uint32_t>
      freed_;  // computation after which weights were freed, for the limiter; across steps
  // of the step being built
  StepBuilder* b_ = nullptr;
  StepKind kind_ = StepKind::Steady;
  std::vector<State> state_;
  std::array<std::uint32_t, kStreams> last_{};
  std::array<std::vector<std::uint32_t>, kStreams> pending_;
  std::vector<Event> trace_;  // of the forward, with the places where views were made
  std::vector<std::size_t> backward_order_;  // as forwards ended; backward goes from its end
  bool backward_ = false;
  bool last_micro_ = true;
};

}  // namespace

std::span<const OpWord> fsdp_words() {
  return kFsdpWords;
}

Program lower_fsdp(const TimedWorkload& workload, const Plan& plan, Steps steps) {
  return FsdpLowering(workload, plan).run(steps);
}

}  // namespace ddpsim::strategy
