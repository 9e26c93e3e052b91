// PyTorch fully_shard (FSDP2), one step on a GPU, hook by hook:
//
//   before a unit's forward   its shards are copied in, gathered, copied out on the compute stream;
//                             [units named by set_modules_to_forward_prefetch]
//   after it                  weights are freed, or kept in the shards of a smaller group
//   before its backward       as before forward, then the unit before is gathered
//   after its backward        weights freed; gradients, each padded, into one buffer on the compute
//                             stream, which waits for the reduce-scatter before; reduced on a
//                             stream of its own [and all-reduced among replicas on another]
//   at the end                units that no gradient left (the root), then computation waits for
//                             all reductions; the optimizer updates shards
//
// Nothing makes the host wait: buffers are reused after events. What local names in Python keep
// until a function returns is kept here, too. Source: torch/distributed/fsdp/
// _fully_shard/{_fsdp_state,_fsdp_param_group,_fsdp_collectives}.py (2.7; later versions: what
// differs stands where it matters). sim/MODEL.md section 3.
#include <algorithm>
#include <deque>
#include <string>
#include <utility>

#include "sim/strategy/bucketing.h"
#include "sim/strategy/fsdp.h"
#include "sim/strategy/fsdp_words.h"
#include "sim/strategy/streams.h"

namespace ddpsim::strategy {
namespace {

using namespace fsdp;  // its words

constexpr OpWord kFsdp2Words[] = {
    kStart,           kCastShard,     kCastShardAgain, kShardIn,       kShardInAgain,
    kGather,          kGatherAgain,   kUnitOut,        kUnitOutAgain,  kUnitForward,
    kUnitBackward,    kReshard,       kAccumulateFlat, kCastGradient,  kChunkCat,
    kPredivide,       kScatter,       kReduce,         kPostdivide,    kCastBack,
    kAccumulateShard, kZeroGradients, kCopyGradient,   kShardToDevice, kShardToDeviceAgain,
    kGradientToHost,  kAwaitToHost,   kAddOnHost};

class Fsdp2Lowering {
 public:
  Fsdp2Lowering(const TimedWorkload& timed, const Plan& plan)
      : w_(timed.workload),
        plan_(plan),
        fsdp_(plan.fsdp),
        types_(unit_types(timed.workload, plan.fsdp)),
        units_(fsdp_units(w_, plan)),
        program_(empty_program(timed, plan)),
        groups_(sharded_of(plan, timed.ranks, timed.per_host)),
        memory_(w_, fsdp_.param_dtype && element_size(*fsdp_.param_dtype) == 2),
        host_(timed.host_memory),
        copies_(groups_.ranks == 1 && plan.pytorch > PytorchVersion::V2_7),
        state_(units_.size()),
        streams_(1 + kMostStreams) {
    // NCCL averages, but halves of five exponent bits are divided by its roots before and after.
    if (types_.reduce == DType::Float16) {
      predivisor_ = gradient_predivisor(timed.ranks);
      postdivides_ = timed.ranks > predivisor_;
    }
    sets_to_none_ = plan.set_to_none.value_or(behaviour(plan.pytorch).set_to_none);
    program_.streams = {"all_gather_copy_in", "all_gather", "reduce_scatter"};
    program_.groups = fsdp_groups(plan, timed.ranks, timed.per_host);
    if (hybrid()) {
      all_reduce_ = add_stream(program_, "all_reduce");
      replicas_ = DeviceStreams::lane_of(add_stream(program_, "comm_replicas"));
    }
    if (fsdp_.separate_reduce_scatter_group)
      scatter_lane_ = DeviceStreams::lane_of(add_stream(program_, "comm_reduce_scatter"));
    if (smaller() > 1 && smaller() < groups_.ranks) {
      post_forward_ = static_cast<std::uint8_t>(program_.groups.size());
      post_forward_lane_ = DeviceStreams::lane_of(add_stream(program_, "comm_post_forward"));
    }
    forward_ = unit_forward(timed, units_, program_);
    for (std::size_t u = 0; u < units_.size(); ++u) {
      std::int64_t sum = 0;
      for (TensorIndex t : units_[u].tensors) sum += padded(t);
      padded_.push_back(sum);
      if (u != kRoot && !empty(u)) wrapped_.push_back(u);
    }
    for (std::size_t u = 0; u < units_.size(); ++u) elements_ += shard(u);
    program_.resident = resident_shards(w_, host_ ? 0 : elements_, types_.weights, !sets_to_none_);
    program_.activations_known = memory_.known();
  }

  // What a step leaves to the next (gradients) is settled after the second.
  Program run(Steps steps) {
    StepProgram first = step(StepKind::First);
    program_.steady = step(StepKind::Steady);
    if (steps == Steps::All) program_.warmup.push_back(std::move(first));
    return std::move(program_);
  }

 private:
  using Stream = DeviceStreams::Stream;
  static constexpr Stream kCompute = DeviceStreams::kCompute;
  static constexpr Stream kCopy = 1;
  static constexpr Stream kAllGather = 2;
  static constexpr Stream kReduceScatter = 3;
  static constexpr std::size_t kRoot = 0;

  struct State {
    enum class Weights : std::uint8_t { Sharded, Smaller, Whole } weights = Weights::Sharded;
    bool unsharding = false;          // asked for, and not copied out yet
    std::uint32_t gathered = kNoOp;   // its all-gather
    std::uint32_t resharded = kNoOp;  // the copy into a smaller group's shards
    bool reduced = false;             // in this backward
    bool kept = false;                // unsharded gradients of micro-steps before
    bool gradient = false;            // of its shard
    bool offloading = false;          // to the host, which has not waited for it
    std::uint32_t reduction = kNoOp;  // the last of its operations in this backward
    std::int64_t reduced_bytes = 0;   // HSDP: what was all-reduced, until backward ends
  };

  bool hybrid() const { return groups_.replicas > 1; }
  std::uint8_t group() const { return hybrid() ? kShardGroup : 0; }
  // reshard_after_forward: 0 = no, 1 = yes, more = the ranks of a smaller group.
  std::int64_t smaller() const { return fsdp_.reshard_after_forward.ranks.value_or(1); }
  bool frees(std::size_t u) const {
    if (u != kRoot) return smaller() != 0;
    // Up to 2.7 the root's weights stay, whatever is asked for (#154704, #155319).
    return plan_.pytorch > PytorchVersion::V2_7 && fsdp_.reshard_after_forward.ranks &&
           smaller() != 0;
  }
  // Elements: each parameter by itself, its first dimension to a multiple of the ranks.
  std::int64_t padded(TensorIndex t) const {
    const Tensor& tensor = w_.tensors[t];
    const std::int64_t rows = tensor.shape.empty() ? 1 : tensor.shape.front();
    const std::int64_t of_row = rows > 0 ? tensor.elements() / rows : 0;
    return (rows + groups_.ranks - 1) / groups_.ranks * groups_.ranks * of_row;
  }
  std::int64_t shard(std::size_t u) const { return padded_[u] / groups_.ranks; }
  bool empty(std::size_t u) const { return units_[u].elements == 0; }
  static std::uint32_t label(std::size_t u) { return static_cast<std::uint32_t>(u); }
  std::uint32_t copy(Stream s, const OpWord& word, std::size_t u, std::int64_t bytes) {
    return streams_.copy(s, word, label(u), bytes);
  }
  // A kernel for each of its parameters, or so many.
  std::uint32_t copy_each(Stream s, const OpWord& word, std::size_t u, std::int64_t bytes,
                          int kernels = 1) {
    return streams_.copy(s, word, label(u), bytes,
                         kernels * static_cast<std::int32_t>(units_[u].tensors.size()));
  }

  // ---- weights

  void gathering_waits_for(std::uint32_t op) {
    streams_.wait_for(kCopy, op);
    streams_.wait_for(kAllGather, op);
  }

  void unshard(std::size_t u) {
    State& s = state_[u];
    if (s.unsharding || s.weights == State::Weights::Whole || empty(u)) return;
    s.unsharding = true;
    gathering_waits_for(std::exchange(s.resharded, kNoOp));
    if (copies_) return;
    const std::int64_t size = element_size(types_.compute);
    const bool from_smaller = s.weights == State::Weights::Smaller;
    const std::int64_t own = from_smaller ? padded_[u] / smaller() : shard(u);
    const bool casts = types_.compute != types_.weights;
    const std::int64_t moved = host_ && !from_smaller ? own * element_size(types_.weights) : 0;
    if (moved > 0) {
      move(kCopy, backward_ ? kShardToDeviceAgain : kShardToDevice, u, moved);
      b_->allocate(Holds::Buckets, moved);
    }
    if (casts && moved > 0) {  // one by one: _get_param_all_gather_inputs
      copy_each(kCopy, backward_ ? kCastShardAgain : kCastShard, u,
                own * (size + element_size(types_.weights)));
      b_->allocate(Holds::Buckets, own * size);
      b_->release(Holds::Buckets, moved);
    } else if (casts) {
      // What a smaller group keeps has been cast, and is copied all the same.
      copy(kCopy, backward_ ? kCastShardAgain : kCastShard, u,
           own * (size + (from_smaller ? size : element_size(types_.weights))));
      b_->allocate(Holds::Buckets, own * size);
    }
    copy(kCopy, backward_ ? kShardInAgain : kShardIn, u, 2 * own * size);
    b_->allocate(Holds::Buckets, padded_[u] * size);  // its input is a slice of its output
    if (!casts) b_->release(Holds::Buckets, moved);
    streams_.wait(kAllGather, kCopy);
    s.gathered = streams_.collective(
        kAllGather, backward_ ? kGatherAgain : kGather, label(u), padded_[u] * size, types_.compute,
        from_smaller ? post_forward_ : group(), from_smaller ? post_forward_lane_ : Lane::Comm);
    if (casts) b_->release(Holds::Buckets, own * size);
  }

  void wait_for_unshard(std::size_t u) {
    State& s = state_[u];
    if (!s.unsharding) return;
    s.unsharding = false;
    if (!backward_) gathering_waits_for(std::exchange(copied_out_, kNoOp));
    streams_.wait_for(kCompute, std::exchange(s.gathered, kNoOp));
    const std::int64_t size = element_size(types_.compute);
    const std::int64_t buffer = copies_ ? 0 : padded_[u] * size;
    const OpWord& word = backward_ ? kUnitOutAgain : kUnitOut;
    const std::uint32_t out = copies_ ? copy_own(word, u) : copy(kCompute, word, u, 2 * buffer);
    b_->allocate(Holds::Gathered, buffer);
    if (s.weights == State::Weights::Smaller)
      b_->release(Holds::Gathered, padded_[u] / smaller() * size);
    s.weights = State::Weights::Whole;
    if (backward_ || copies_) {
      gathering_waits_for(out);
      b_->release(Holds::Buckets, buffer);
    } else {
      // The buffer of the unit before is freed once this one was copied out.
      copied_out_ = out;
      b_->release(Holds::Buckets, std::exchange(held_, buffer));
    }
  }

  // A group of one rank gathers nothing: each parameter is copied, and cast before that.
  std::uint32_t copy_own(const OpWord& word, std::size_t u) {
    const std::int64_t size = element_size(types_.compute);
    const bool casts = types_.compute != types_.weights;
    const std::uint32_t op = copy_each(
        kCompute, word, u,
        padded_[u] * (2 * size + (casts ? element_size(types_.weights) + size : 0)), casts ? 2 : 1);
    std::int64_t before = 0;
    for (TensorIndex t : units_[u].tensors) {
      const std::int64_t bytes = padded(t) * size;
      if (casts) b_->allocate(Holds::Buckets, bytes);
      b_->release(Holds::Buckets, std::exchange(before, casts ? bytes : 0));
      b_->allocate(Holds::Gathered, bytes);
    }
    b_->release(Holds::Buckets, before);
    return op;
  }

  // ---- forward

  // Prefetched by depth as the tutorials set it, of units but the root, in order of forward. False:
  // nothing is set for this one.
  bool prefetch_explicitly(std::size_t u, std::int64_t depth, bool back) {
    const auto found = std::find(wrapped_.begin(), wrapped_.end(), u);
    const auto at = found - wrapped_.begin();
    if (found == wrapped_.end() || (back ? at : std::ssize(wrapped_) - 1 - at) < depth)
      return false;
    for (std::int64_t k = 1; k <= depth; ++k)
      unshard(wrapped_[static_cast<std::size_t>(back ? at - k : at + k)]);
    return true;
  }

  void before_forward(std::size_t u) {
    if (u == kRoot) {
      streams_.wait(kCopy, kCompute);
      streams_.wait(kAllGather, kCompute);
    }
    unshard(u);
    wait_for_unshard(u);
    prefetch_explicitly(u, fsdp_.forward_prefetch_units, false);
  }

  void after_forward(std::size_t u) {
    if (!empty(u)) {
      if (frees(u)) post_forward_ > 0 ? keep_part(u) : free_weights(u);
      order_.push_back(u);
    }
    if (u != kRoot) return;
    gathering_waits_for(std::exchange(copied_out_, kNoOp));
    b_->release(Holds::Buckets, std::exchange(held_, 0));
  }
  void keep_part(std::size_t u) {
    State& s = state_[u];
    const std::int64_t size = element_size(types_.compute);
    s.resharded = copy_each(kCompute, kReshard, u, 2 * padded_[u] / smaller() * size);
    for (TensorIndex t : units_[u].tensors) {
      b_->allocate(Holds::Gathered, padded(t) / smaller() * size);
      b_->release(Holds::Gathered, padded(t) * size);
    }
    s.weights = State::Weights::Smaller;
  }
  void free_weights(std::size_t u) {
    if (state_[u].weights == State::Weights::Whole)
      b_->release(Holds::Gathered, padded_[u] * element_size(types_.compute));
    state_[u].weights = State::Weights::Sharded;
  }
  void compute(const OpWord& word, const Part& part, bool back) {
    streams_.compute(word, part.label, back ? part.backward : part.forward);
    b_->activations(back ? memory_.backward(part.from, part.to)
                         : memory_.forward(part.from, part.to));
    if (!back) return;
    const std::vector<TensorIndex> made = part_tensors(w_, memory_, part);
    std::int64_t elements = 0;
    for (TensorIndex t : made) elements += w_.tensors[t].elements();
    const std::int64_t bytes = elements * element_size(types_.compute);
    if (!state_[part.unit].kept || types_.reduce != types_.compute)
      b_->allocate(Holds::Gradients, bytes);
    else if (!made.empty())  // autograd adds to what is there
      streams_.copy(kCompute, kAccumulateFlat, part.label, 3 * bytes,
                    static_cast<std::int32_t>(made.size()));
  }

  void forward() {
    backward_ = false;
    order_.clear();
    for (const UnitEvent& e : forward_.events) {
      if (e.what == UnitEvent::What::Enter)
        before_forward(e.number);
      else if (e.what == UnitEvent::What::Exit)
        after_forward(e.number);
      else
        compute(kUnitForward, forward_.parts[e.number], false);
    }
  }

  // ---- backward

  void before_backward(std::size_t u) {
    if (empty(u)) return;
    unshard(u);
    wait_for_unshard(u);
    const std::int64_t depth = fsdp_.backward_prefetch_units;
    if (depth > 1 && prefetch_explicitly(u, depth, true)) return;
    auto at = std::find(order_.begin(), order_.end(), u);
    if (at != order_.end() && at != order_.begin()) unshard(*(at - 1));
  }

  void after_backward(std::size_t u) {
    if (empty(u)) return;
    State& s = state_[u];
    s.reduced = true;
    const std::int64_t from = element_size(types_.compute);
    const std::int64_t to = element_size(types_.reduce);
    const bool casts = types_.reduce != types_.compute;
    if (s.kept && casts) {
      copy_each(kCompute, kAccumulateFlat, u, units_[u].elements * (from + 2 * to));
      b_->release(Holds::Gradients, units_[u].elements * from);
    }
    free_weights(u);
    if (!last_micro_ && fsdp_.no_sync) {
      if (!s.kept && casts) {
        copy_each(kCompute, kCastGradient, u, units_[u].elements * (from + to));
        for (TensorIndex t : units_[u].tensors) {
          b_->allocate(Holds::Gradients, w_.tensors[t].elements() * to);
          b_->release(Holds::Gradients, w_.tensors[t].elements() * from);
        }
      }
      s.kept = true;
      return;
    }
    std::int64_t recycled = 0;
    while (std::ssize(scattered_) >= fsdp_.reduce_scatter_max_input_buffers) {
      streams_.wait_for(kCompute, scattered_.front().op);
      recycled += scattered_.front().bytes;
      scattered_.pop_front();
    }
    // 2.12's loop keeps its variable until the function returns.
    const bool late = plan_.pytorch == PytorchVersion::V2_12;
    if (!late) b_->release(Holds::Buckets, recycled);
    reduce(u, s.kept ? to : from);
    s.kept = false;
    if (late) b_->release(Holds::Buckets, recycled);
  }

  // `from`: bytes of an element of its gradients.
  void reduce(std::size_t u, std::int64_t from) {
    State& s = state_[u];
    const std::int64_t to = element_size(types_.reduce);
    const std::int64_t input = padded_[u] * to;
    const std::int64_t output = shard(u) * to;
    copy(kCompute, kChunkCat, u, units_[u].elements * from + input);
    b_->allocate(Holds::Buckets, input);
    // A loop's variable keeps the last gradient until the function returns.
    const std::int64_t last = copies_ ? 0 : w_.tensors[units_[u].tensors.back()].elements() * from;
    b_->release(Holds::Gradients, units_[u].elements * from - last);
    streams_.wait(kReduceScatter, kCompute);
    std::uint32_t begins = kNoOp;
    if (predivisor_ > 1) begins = copy(kReduceScatter, kPredivide, u, 2 * input);
    const std::uint32_t scattered =
        copies_ ? copy(kReduceScatter, kCopyGradient, u, input + output)
                : streams_.collective(kReduceScatter, kScatter, label(u), input, types_.reduce,
                                      group(), scatter_lane_);
    scattered_.push_back({scattered, input});
    const bool casts = types_.reduce != types_.weights;
    const bool kept = !host_;  // on the device
    b_->allocate(casts || s.gradient || !kept ? Holds::Buckets : Holds::Gradients, output, begins);
    Stream after = kReduceScatter;
    if (hybrid()) {
      after = all_reduce_;
      streams_.wait(after, kReduceScatter);
      streams_.collective(after, kReduce, label(u), output, types_.reduce, kReplicaGroup,
                          replicas_);
    }
    if (postdivides_) copy(after, kPostdivide, u, 2 * output);
    const std::int64_t gradient = shard(u) * element_size(types_.weights);
    if (casts) {
      copy(after, kCastBack, u, output + gradient);
      b_->allocate(s.gradient || !kept ? Holds::Buckets : Holds::Gradients, gradient);
    }
    if (host_) return offload(u, after, last, casts ? output + gradient : output);
    const bool ends = casts || s.gradient;  // what was reduced is not what is kept
    if (casts && !hybrid()) b_->release(Holds::Buckets, output);
    if (s.gradient) copy_each(after, kAccumulateShard, u, 3 * gradient);
    b_->release(Holds::Gradients, last);
    if (s.gradient && (casts || !hybrid())) b_->release(Holds::Buckets, gradient);
    if (ends && hybrid()) s.reduced_bytes = output;
    s.gradient = true;
    s.reduction = streams_.last(after);
  }

  // CPUOffloadPolicy, pinned: the host waits at the end of backward; where it adds to what it has,
  // at once. `held`: bytes of what was reduced.
  void offload(std::size_t u, Stream after, std::int64_t last, std::int64_t held) {
    State& s = state_[u];
    const std::int64_t gradient = shard(u) * element_size(types_.weights);
    move(after, kGradientToHost, u, gradient);
    b_->release(Holds::Gradients, last);
    b_->release(Holds::Buckets, held);
    s.reduction = streams_.last(after);
    if (s.gradient) {
      b_->wait(kAwaitToHost, label(u), s.reduction);
      b_->host(kAddOnHost, label(u), 3 * gradient, host_->touch(3 * gradient));
    }
    s.offloading = !s.gradient;
    s.gradient = true;
  }
  void move(Stream stream, const OpWord& word, std::size_t u, std::int64_t bytes) {
    const auto copies = std::ssize(units_[u].tensors);
    streams_.kernel(
        stream, word, label(u), bytes,
        {.duration = host_->copy(bytes, copies), .kernels = static_cast<std::int32_t>(copies)});
  }

  void backward() {
    backward_ = true;
    for (State& s : state_) s.reduced = false, s.reduction = kNoOp;
    // The input of what computes first needs no gradient: that unit's end is the end of backward.
    const auto first = std::find_if(forward_.parts.begin(), forward_.parts.end(),
                                    [&](const Part& part) { return !empty(part.unit); });
    std::vector<std::size_t> ending;  // hooks of one tensor run as they were registered
    for (std::size_t k = forward_.events.size(); k-- > 0;) {
      const UnitEvent& e = forward_.events[k];
      if (e.what == UnitEvent::What::Exit) {
        ending.push_back(e.number);
      } else if (e.what == UnitEvent::What::Compute) {
        for (; !ending.empty(); ending.pop_back()) before_backward(ending.back());
        compute(kUnitBackward, forward_.parts[e.number], true);
      } else if (e.number != kRoot && e.number != first->unit) {
        after_backward(e.number);
      }
    }
    for (std::size_t u = 0; u < units_.size(); ++u) {
      State& s = state_[u];
      if (!s.reduced) after_backward(u);
      streams_.wait_for(kCompute, s.reduction);
      if (std::exchange(s.offloading, false)) b_->wait(kAwaitToHost, label(u), s.reduction);
      b_->release(Holds::Buckets, std::exchange(s.reduced_bytes, 0));
    }
    for (const Scattered& s : scattered_) {
      streams_.wait_for(kCompute, s.op);
      b_->release(Holds::Buckets, s.bytes);
    }
    scattered_.clear();
  }

  // ---- the step

  StepProgram step(StepKind kind) {
    StepBuilder b(program_, kind, w_, memory_);
    b_ = &b;
    for (std::size_t u = 0; u < units_.size(); ++u)
      b.step.buckets.push_back({units_[u].tensors,
                                {units_[u].elements * element_size(types_.weights)},
                                {padded_[u] * element_size(types_.reduce)},
                                types_.weights});
    streams_.begin(b);
    for (std::size_t u = 0; u < units_.size(); ++u) {
      if (!state_[u].gradient) continue;
      if (sets_to_none_)
        state_[u].gradient = false;
      else
        copy(kCompute, kZeroGradients, u, shard(u) * element_size(types_.weights));
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
    std::int64_t parameters = 0;
    for (const Unit& u : units_) parameters += std::ssize(u.tensors);
    if (host_)
      update_on_host(b, w_, elements_, parameters, *host_);
    else
      update_shard(b, streams_, w_, elements_, parameters, types_.weights);
    return std::move(b.step);
  }

  const Workload& w_;
  const Plan& plan_;
  const FsdpPlan& fsdp_;
  const UnitTypes types_;
  const std::vector<Unit> units_;
  std::vector<std::int64_t> padded_;  // elements, by unit
  std::vector<std::size_t> wrapped_;  // units that have parameters, but the root
  Program program_;
  const Sharded groups_;
  Stream all_reduce_ = 0;
  Lane replicas_ = Lane::Comm;
  Lane scatter_lane_ = Lane::Comm;
  std::uint8_t post_forward_ = 0;  // reshard_after_forward=N: the group; 0 = none
  Lane post_forward_lane_ = Lane::Comm;
  std::int64_t predivisor_ = 1;
  bool postdivides_ = false;
  bool sets_to_none_ = true;
  const ModelMemory memory_;
  std::int64_t elements_ = 0;             // of this rank's shards
  const std::optional<HostMemory> host_;  // of a plan that offloads
  const bool copies_;                     // one rank shards: nothing to gather nor to scatter
  UnitForward forward_;
  StepBuilder* b_ = nullptr;
  std::vector<State> state_;
  DeviceStreams streams_;
  std::uint32_t copied_out_ = kNoOp;  // of the unit before, in forward
  struct Scattered {
    std::uint32_t op;
    std::int64_t bytes;
  };
  std::int64_t held_ = 0;            // the buffer that it was copied out of
  std::deque<Scattered> scattered_;  // reduce-scatters whose input is there
  std::vector<std::size_t> order_;   // of units, as forwards ended
  bool backward_ = false;
  bool last_micro_ = true;
};

}  // namespace

std::span<const OpWord> fsdp2_words() {
  return kFsdp2Words;
}

Program lower_fsdp2(const TimedWorkload& workload, const Plan& plan, Steps steps) {
  return Fsdp2Lowering(workload, plan).run(steps);
}

}  // namespace ddpsim::strategy
