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
#include <deque>
#include <utility>

#include "sim/strategy/bucketing.h"
#include "sim/strategy/fsdp_words.h"
#include "sim/strategy/streams.h"

namespace ddpsim::strategy {
namespace {

using namespace fsdp;  // its words

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

class FsdpLowering {
 public:
  FsdpLowering(const TimedWorkload& timed, const Plan& plan)
      : timed_(timed),
        w_(timed.workload),
        plan_(plan),
        fsdp_(plan.fsdp),
        types_(unit_types(timed.workload, plan.fsdp)),
        how_(plan.pytorch == PytorchVersion::V1_13 ? kOld : kNew),
        units_(fsdp_units(w_, plan)),
        program_(empty_program(timed, plan)),
        ranks_(timed.ranks),
        groups_(sharded_of(plan, timed.ranks, timed.per_host)),
        memory_(w_, fsdp_.param_dtype && element_size(*fsdp_.param_dtype) == 2),
        streams_(kStreams),
        state_(units_.size()) {
    backward_prefetch_ = fsdp_.backward_prefetch.value_or(how_.backward_prefetch);
    limits_ = fsdp_.limit_all_gathers.value_or(how_.limit_all_gathers);
    sets_to_none_ = plan.set_to_none.value_or(behaviour(plan.pytorch).set_to_none);
    // One rank has nothing to shard: FSDP says so and goes on.
    sharding_ = ranks_ == 1 ? Sharding::NoShard : fsdp_.sharding_strategy;
    bool old = plan.pytorch == PytorchVersion::V1_13;
    program_.streams = {old ? "all_gather" : "unshard", "post_backward"};
    if (fsdp_.param_dtype)
      pre_unshard_ = add_stream(program_, old ? "pre_all_gather" : "pre_unshard");
    if (sharded()) program_.groups = fsdp_groups(plan, timed.ranks, timed.per_host);
    if (hybrid()) {
      all_reduce_ = add_stream(program_, "all_reduce");
      replicas_ = DeviceStreams::lane_of(add_stream(program_, "comm_replicas"));
    }
    forward_ = unit_forward(timed, units_, program_);
    for (std::size_t u = 0; u < units_.size(); ++u) elements_ += shard(u);
    program_.resident = resident_shards(w_, elements_, types_.weights, !sets_to_none_);
    program_.activations_known = memory_.known();
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
    bool saved = false;    // a shard's gradient of the micro-steps before
    bool counted = false;  // NoShard: a gradient that was reduced
  };
  using Stream = DeviceStreams::Stream;
  static constexpr Stream kCompute = DeviceStreams::kCompute;
  static constexpr Stream kUnshard = 1;
  static constexpr Stream kPostBackward = 2;
  static constexpr std::size_t kStreams = 1 + kMostStreams;

  bool sharded() const { return sharding_ != Sharding::NoShard; }
  bool hybrid() const { return sharded() && groups_.replicas > 1; }
  bool frees_after_forward() const {
    return sharding_ == Sharding::FullShard || sharding_ == Sharding::HybridShard;
  }
  std::uint8_t group() const { return hybrid() ? kShardGroup : 0; }
  std::int64_t shard(std::size_t u) const {
    return sharded() ? (units_[u].elements + groups_.ranks - 1) / groups_.ranks
                     : units_[u].elements;
  }
  std::int64_t padded(std::size_t u) const {
    return sharded() ? shard(u) * groups_.ranks : units_[u].elements;
  }
  bool empty(std::size_t u) const { return units_[u].elements == 0; }
  static std::uint32_t label(std::size_t u) { return static_cast<std::uint32_t>(u); }

  void wait(Stream stream, Stream other) { streams_.wait(stream, other); }
  void copy(Stream s, const OpWord& word, std::size_t u, std::int64_t bytes) {
    streams_.copy(s, word, label(u), bytes);
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
    copy(pre_unshard_, backward_ ? kCastShardAgain : kCastShard, u,
         shard(u) * (element_size(types_.weights) + element_size(types_.compute)));
    if (!s.cast) b_->allocate(Holds::Buckets, shard(u) * element_size(types_.compute));
    s.cast = true;
    return true;
  }

  // Another stream than its own used it last.
  void end_cast(std::size_t u, Stream used_on) {
    if (!std::exchange(state_[u].cast, false)) return;
    b_->release(Holds::Buckets, shard(u) * element_size(types_.compute), streams_.last(used_on),
                true);
  }

  void unshard(std::size_t u) {
    State& s = state_[u];
    if (how_.limits_before_cast) limit(u);
    if (cast_shard(u)) wait(kUnshard, pre_unshard_);
    if (!how_.limits_before_cast) limit(u);
    if (sharded() && !s.whole) {
      streams_.collective(kUnshard, backward_ ? kGatherAgain : kGather, label(u),
                          padded(u) * element_size(types_.compute), types_.compute, group());
      b_->allocate(Holds::Gathered, padded(u) * element_size(types_.compute));
      s.whole = true;
    }
    if (sharded()) end_cast(u, kUnshard);
    if (!backward_ && !how_.views_at_forward) trace_.push_back({UnitEvent::What::Views, u});
  }

  void reshard(std::size_t u, bool frees) {
    State& s = state_[u];
    // Another stream used them: free when computation has got here.
    if (frees && s.whole)
      b_->release(Holds::Gathered, padded(u) * element_size(types_.compute),
                  streams_.last(kCompute), true);
    if (frees) s.whole = false;
    if (frees && limits_) freed_.push_back(streams_.last(kCompute));
    if (!sharded()) end_cast(u, kCompute);
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
      streams_.collective(kCompute, *word, label(u), 4 * ranks_, DType::Int32);
      if (word == &kOrderIndex) b_->wait(kOrderWait, label(u), streams_.last(kCompute));
    }
  }

  void before_forward(std::size_t u) {
    if (empty(u)) return;
    if (kind_ == StepKind::First && how_.checks_order && sharded()) check_order(u);
    bring(u);
    state_[u].needs_forward = false;
    if (how_.views_at_forward) trace_.push_back({UnitEvent::What::Views, u});
    wait(kCompute, kUnshard);
    bool known = u == kRoot || !how_.prefetches_after_root;
    if (fsdp_.forward_prefetch && known && kind_ != StepKind::First)
      prefetch(forward_.order, u, 1, &State::needs_forward);
  }

  void after_forward(std::size_t u) {
    if (empty(u)) return;
    backward_order_.push_back(u);
    reshard(u, u != kRoot && frees_after_forward());
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
    if (fsdp_.param_dtype) wait(pre_unshard_, kCompute);
    trace_.clear();
    backward_order_.clear();
    for (const UnitEvent& e : forward_.events) {
      if (e.what != UnitEvent::What::Enter) trace_.push_back(e);
      if (e.what == UnitEvent::What::Enter)
        before_forward(e.number);
      else if (e.what == UnitEvent::What::Exit)
        after_forward(e.number);
      else
        compute(kUnitForward, forward_.parts[e.number], forward_.parts[e.number].forward);
    }
  }

  void compute(const OpWord& word, const Part& part, const Stretch& s) {
    streams_.compute(word, part.label, s);
    const bool back = &word == &kUnitBackward;
    b_->activations(back ? memory_.backward(part.from, part.to)
                         : memory_.forward(part.from, part.to));
    if (back)
      b_->allocate(Holds::Gradients,
                   part_elements(w_, memory_, part) * element_size(types_.compute));
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
    std::int64_t bytes = units_[u].elements * element_size(types_.compute);
    copy(kCompute, kFlatten, u, 2 * bytes);
    b_->allocate(Holds::Buckets, bytes);
    b_->release(Holds::Gradients, bytes);
    if (s.gradient != State::Gradient::None) {
      copy(kCompute, kAccumulateFlat, u, 3 * bytes);
      b_->release(Holds::Buckets, bytes);
    }
    s.gradient = State::Gradient::Whole;
    bool syncs = last_micro_ || !fsdp_.no_sync;
    reshard(u, sharded() && (syncs || frees_after_forward()));
    if (backward_prefetch_ == BackwardPrefetch::Post)
      prefetch(backward_order_, u, -1, &State::needs_backward);
    if (syncs) reduce(u);
  }

  void divide(Stream s, const OpWord& word, std::size_t u, std::int64_t elements, bool needed) {
    if (needed) copy(s, word, u, 2 * elements * element_size(types_.reduce));
  }

  void reduce(std::size_t u) {
    State& s = state_[u];
    const std::int64_t elements = units_[u].elements;
    const std::int64_t from = element_size(types_.compute);
    const std::int64_t to = element_size(types_.reduce);
    const std::int64_t kept = sharded() ? shard(u) : elements;
    const bool casts_back = types_.reduce != types_.weights;
    wait(kPostBackward, kCompute);
    // What is held until the hook returns: the flat gradient, which is of another stream, and
    // copies.
    std::int64_t flat = s.counted ? 0 : elements * from;
    std::int64_t copies = 0;
    if (types_.reduce != types_.compute) {
      copy(kPostBackward, kCastGradient, u, elements * (from + to));
      b_->allocate(Holds::Buckets, elements * to);
      copies += elements * to;
    }
    if (sharded() && (padded(u) != elements || how_.always_pads)) {
      copy(kPostBackward, kPad, u, (elements + padded(u)) * to);
      b_->allocate(Holds::Buckets, padded(u) * to);
      copies += padded(u) * to;
    }
    const auto first = static_cast<std::uint32_t>(b_->step.ops.size()) + 1;  // behind its launch
    if (sharded() && how_.zeroes_shard) copy(kPostBackward, kZeroShard, u, kept * to);
    divide(kPostBackward, kPredivide, u, padded(u), predivisor_ > 1);
    streams_.collective(kPostBackward, sharded() ? kScatter : kReduce, label(u), padded(u) * to,
                        types_.reduce, group());
    if (sharded())
      b_->allocate(casts_back || s.saved ? Holds::Buckets : Holds::Gradients, kept * to, first);
    Stream after = kPostBackward;
    if (hybrid()) {
      after = all_reduce_;
      wait(after, kPostBackward);
      streams_.collective(after, kReduce, label(u), kept * to, types_.reduce, kReplicaGroup,
                          replicas_);
    }
    divide(after, kPostdivide, u, kept, ranks_ > predivisor_);
    if (casts_back) {
      copy(after, kCastBack, u, kept * (to + element_size(types_.weights)));
      b_->allocate(s.saved || s.counted ? Holds::Buckets : Holds::Gradients,
                   kept * element_size(types_.weights));
      if (sharded()) b_->release(Holds::Buckets, kept * to, kNoOp, hybrid());
    } else if (!sharded() && !s.counted) {  // what was reduced is the gradient
      b_->release(Holds::Buckets, kept * to);
      b_->allocate(Holds::Gradients, kept * to);
      (copies > 0 ? copies : flat) = 0;
    }
    if (s.saved) copy(after, kAccumulateShard, u, 3 * kept * element_size(types_.weights));
    if (s.saved || (casts_back && s.counted))
      b_->release(Holds::Buckets, kept * element_size(types_.weights), kNoOp,
                  hybrid() && !casts_back);
    b_->release(Holds::Buckets, flat, streams_.last(kPostBackward), true);
    b_->release(Holds::Buckets, copies, streams_.last(kPostBackward));
    s.counted = !sharded();
    s.saved = false;
    s.gradient = sharded() ? State::Gradient::Shard : State::Gradient::Whole;
  }

  void backward() {
    backward_ = true;
    std::vector<std::size_t> ending;  // units whose forwards ended here, the innermost last
    const std::vector<UnitEvent> trace = trace_;
    for (std::size_t k = trace.size(); k-- > 0;) {
      const UnitEvent& e = trace[k];
      if (e.what == UnitEvent::What::Exit) {
        ending.push_back(e.number);
        continue;
      }
      for (std::size_t i = ending.size(); i-- > 0;) before_backward(ending[i]);
      ending.clear();
      if (e.what == UnitEvent::What::Views)
        after_backward(e.number);
      else
        compute(kUnitBackward, forward_.parts[e.number], forward_.parts[e.number].backward);
    }
    if (last_micro_ || !fsdp_.no_sync) {
      wait(kCompute, kPostBackward);
      if (hybrid()) wait(kCompute, all_reduce_);
    }
    for (State& s : state_) s.ran_before_backward = s.needs_backward = s.prefetched = false;
  }

  // ---- the step

  StepProgram step(StepKind kind) {
    StepBuilder b(program_, kind, w_, memory_);
    b_ = &b;
    kind_ = kind;
    for (std::size_t u = 0; u < units_.size(); ++u) {
      Bucket bucket;
      bucket.tensors = units_[u].tensors;
      bucket.dtype = types_.weights;
      bucket.bytes = {units_[u].elements * element_size(types_.weights)};
      bucket.wire_bytes = {padded(u) * element_size(types_.reduce)};
      b.step.buckets.push_back(std::move(bucket));
    }
    streams_.begin(b);
    for (std::uint32_t& f : freed_) f = kNoOp;  // of the step before: long done
    for (std::size_t u = 0; u < units_.size(); ++u) {
      State& s = state_[u];
      if (s.gradient == State::Gradient::None) continue;
      std::int64_t bytes = (s.gradient == State::Gradient::Shard ? shard(u) : units_[u].elements) *
                           element_size(types_.weights);
      if (sets_to_none_)
        s.gradient = State::Gradient::None, s.counted = false;
      else
        copy(kCompute, kZeroGradients, u, bytes);
    }
    // What waits for computation waits for the optimizer of the step before.
    if (streams_.last(kCompute) == kNoOp)
      streams_.set_last(kCompute, b.event(kStart, Lane::Compute));
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
    std::int64_t parameters = 0;
    for (std::size_t u = 0; u < units_.size(); ++u) parameters += empty(u) ? 0 : 1;
    update_shard(*b_, streams_, w_, elements_, parameters, types_.weights);
  }

  const TimedWorkload timed_;
  const Workload& w_;
  const Plan& plan_;
  const FsdpPlan& fsdp_;
  const UnitTypes types_;
  const Behaviour how_;
  std::vector<Unit> units_;
  Program program_;
  const std::int64_t ranks_;
  const std::int64_t predivisor_ = gradient_predivisor(ranks_);
  const Sharded groups_;
  Stream pre_unshard_ = 0;      // with param_dtype
  Stream all_reduce_ = 0;       // hybrid
  Lane replicas_ = Lane::Comm;  // hybrid: of the all-reduces among groups
  BackwardPrefetch backward_prefetch_ = BackwardPrefetch::Pre;
  bool limits_ = true;
  bool sets_to_none_ = true;
  Sharding sharding_ = Sharding::FullShard;
  const ModelMemory memory_;
  std::int64_t elements_ = 0;  // of this rank's shards
  UnitForward forward_;
  std::deque<std::uint32_t>
      freed_;  // computation after which weights were freed, for the limiter; across steps
  // of the step being built
  StepBuilder* b_ = nullptr;
  StepKind kind_ = StepKind::Steady;
  DeviceStreams streams_;
  std::vector<State> state_;
  std::vector<UnitEvent> trace_;  // of the forward, with the places where views were made
  std::vector<std::size_t> backward_order_;  // as forwards ended; backward goes from its end
  bool backward_ = false;
  bool last_micro_ = true;
};

}  // namespace

Problem check_fsdp(const Plan& plan, int ranks, int per_host) {
  const FsdpPlan& f = plan.fsdp;
  const std::string path = "/plan/shard_degree";
  if (f.cpu_offload && ranks == 1)
    return {"/plan/cpu_offload", "of one rank, which gathers nothing, is not modelled"};
  if (f.cpu_offload && !plan.set_to_none.value_or(true))
    return {"/plan/set_to_none", "false is not modelled where gradients are the host's"};
  if (f.shard_degree < 0 || f.shard_degree > ranks)
    return {path, "ranks that shard together: 1 to the job's " + std::to_string(ranks) +
                      ", 0 = as the strategy has it"};
  const bool one = plan.system == System::Fsdp;
  if (one && !is_hybrid(f.sharding_strategy)) {
    if (f.shard_degree == 0) return {};
    return {path, "is of sharding_strategy hybrid_shard and hybrid_shard_zero2"};
  }
  if (one && plan.pytorch == PytorchVersion::V1_13)
    return {"/plan/sharding_strategy", "PyTorch 1.13 has no hybrid strategies (2.0 and later)"};
  const Sharded s = sharded_of(plan, ranks, per_host);
  if (ranks % s.ranks != 0)
    return {path, "groups of " + std::to_string(s.ranks) +
                      " ranks that shard together do not "
                      "part " +
                      std::to_string(ranks) + " ranks"};
  const std::int64_t smaller = one ? 1 : f.reshard_after_forward.ranks.value_or(1);
  if (smaller > 1 && (smaller >= s.ranks || s.ranks % smaller != 0))
    return {"/plan/reshard_after_forward",
            "a number of ranks that is less than, and a divisor of, the " +
                std::to_string(s.ranks) + " that shard together"};
  if (one && s.ranks == 1 && ranks > 1)
    return {path,
            "groups of one rank shard nothing: FSDP takes no_shard then, and does not "
            "reduce gradients at all (a host has one device; give shard_degree)"};
  return {};
}

std::span<const OpWord> fsdp_words() {
  return kFsdpWords;
}

Program lower_fsdp(const TimedWorkload& workload, const Plan& plan, Steps steps) {
  return FsdpLowering(workload, plan).run(steps);
}

}  // namespace ddpsim::strategy
