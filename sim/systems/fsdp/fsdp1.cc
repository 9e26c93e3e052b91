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
// CPUOffload(offload_params=True): before it is gathered a shard is copied from the host's memory,
// on a stream before that of the cast, also where the weights are whole already; what was reduced
// is copied to the host, on the stream that reduced it; at the end the host waits for computation,
// and with it for these copies, and updates the shards.
//
// Before each gathering the host may wait until weights have been freed: the rate limiter. A
// collective has its place on its stream and on its group's communicator. Backward is forward read
// from its end: an output's hook where a unit's forward ended, a complete gradient where the views
// of the flat parameter were made (1.13: where forward begins; later: where it was gathered).
//
// Source: torch/distributed/fsdp/fully_sharded_data_parallel.py (1.13); _runtime_utils.py,
// _limiter_utils.py, _flat_param.py (2.7); tests/oracle/fsdp1.py lists the differences of the two.
// docs/model.md section 3.
#include "sim/systems/fsdp/fsdp1.h"

#include <utility>

#include "sim/systems/fsdp/fsdp_words.h"
#include "sim/systems/fsdp/plan.h"

namespace ddpsim::systems {

using namespace fsdp;  // its words

namespace fsdp1 {
Job::Job(const TimedWorkload& timed, const Plan& of)
    : w(timed.workload),
      plan(of),
      fsdp(fsdp_of(of)),
      no_sync(uses_no_sync(of)),
      types(unit_types(timed.workload, fsdp_of(of))),
      units(fsdp_units(w, of)),
      ranks(timed.ranks),
      predivisor(gradient_predivisor(timed.ranks)),
      groups(sharded_of(of, timed.ranks, timed.per_host)),
      // One rank has nothing to shard: FSDP says so and goes on.
      sharding(timed.ranks == 1 ? Sharding::NoShard : fsdp_of(of).sharding_strategy),
      backward_prefetch(fsdp_of(of).backward_prefetch.value_or(
          has(Change::PrefetchesBackward) ? BackwardPrefetch::Pre : BackwardPrefetch::None)),
      limits(fsdp_of(of).limit_all_gathers.value_or(has(Change::LimitsAllGathers))),
      sets_to_none(of.set_to_none.value_or(has(Change::ZeroGradSetsToNone))),
      memory(w, fsdp_of(of).param_dtype && element_size(*fsdp_of(of).param_dtype) == 2,
             timed.winograd),
      host(timed.host_memory),
      program(empty_program(timed, of)) {
  const bool old = !has(Change::UnshardStream);
  program.streams = {old ? "all_gather" : "unshard", "post_backward"};
  if (has_pre_unshard()) pre_unshard = add_stream(program, old ? "pre_all_gather" : "pre_unshard");
  if (sharded()) program.groups = fsdp_groups(of, timed.ranks, timed.per_host);
  if (hybrid()) {
    all_reduce = add_stream(program, "all_reduce");
    replicas = DeviceStreams::lane_of(add_stream(program, "comm_replicas"));
  }
  name_frozen(program, w);
  forward = unit_forward(timed, units, program);
  differentiated = ddpsim::differentiated(w);
  mixed_of.assign(w.layers.size(), 0);
  for (const Unit& u : units) {
    types_of.push_back(unit_types(w, u, fsdp));
    made.push_back(u.elements);
  }
  differentiate_mixed(timed);
  in_backward = units_in_backward(units, forward, differentiated);
  for (UnitIndex u = 0; u < units.size(); ++u) elements += updated(u);
  program.resident = resident_shards(w, host ? 0 : elements, types.weights, !host && !sets_to_none);
  for (UnitIndex u = 0; u < units.size() && !host; ++u) {  // what is not updated
    const std::int64_t bytes = (shard(u) - updated(u)) * element_size(types_of[u].weights);
    program.resident[Holds::Parameters] += bytes;
    if (trains(u) && !sets_to_none) program.resident[Holds::Gradients] += bytes;
  }
  program.activations_known = memory.known();
}

// In a mixed unit each parameter is a view of a flat one that requires a gradient, and so requires
// one, too (_use_unsharded_views, as_params=False): gradients of the frozen ones are made, put into
// the flat gradient and reduced, and the optimizer is shown the others' alone
// (_use_sharded_grad_views). A product's gradient of its weight, and that of its input, are taken
// to last as long as its forward.
void Job::differentiate_mixed(const TimedWorkload& timed) {
  std::vector<bool> in_mixed(w.frozen.size());
  for (const Unit& u : units)
    for (TensorIndex t : u.frozen) in_mixed[t] = u.mixed();
  std::vector<bool> seen(w.frozen.size());
  bool any = false;
  for (Part& part : forward.parts)
    for (std::size_t l = part.from; l < part.to; ++l) {
      const LayerDurations& d = timed.times.layers[l];
      const UnitIndex u = part.unit;
      bool weight = false;
      for (TensorIndex t : w.layers[l].frozen) {
        if (!in_mixed[t]) continue;
        weight = true;
        if (seen[t]) continue;
        seen[t] = true;
        mixed_of[l] += w.frozen[t].elements();
        made[u] += w.frozen[t].elements();
      }
      if (any && !differentiated[l]) part.backward.add(d.forward, d.host_forward);
      if (weight) part.backward.add(d.forward, d.host_forward);
      differentiated[l] = differentiated[l] || any || weight;
      any = any || weight;
    }
}

std::int64_t Job::updated_parameters() const {
  std::int64_t sum = 0;
  for (UnitIndex u = 0; u < units.size(); ++u) {
    const std::int64_t own = std::ssize(units[u].tensors);
    // Of the original parameters those that a shard has a part of.
    sum += !trains(u)             ? 0
           : fsdp.use_orig_params ? std::min(own, (own + groups.ranks - 1) / groups.ranks + 1)
                                  : 1;
  }
  return sum;
}

}  // namespace fsdp1

namespace {

constexpr OpWord kFsdpWords[] = {kStart,
                                 kLimit,
                                 kLimitAgain,
                                 kCastShard,
                                 kCastShardAgain,
                                 kGather,
                                 kGatherAgain,
                                 kUnitForward,
                                 kUnitBackward,
                                 kFlatten,
                                 kAccumulateFlat,
                                 kCastGradient,
                                 kPad,
                                 kZeroShard,
                                 kPredivide,
                                 kScatter,
                                 kReduce,
                                 kPostdivide,
                                 kCastBack,
                                 kAccumulateShard,
                                 kOrderCount,
                                 kOrderIndex,
                                 kOrderCountWait,
                                 kOrderIndexWait,
                                 kZeroGradients,
                                 kShardToDevice,
                                 kShardToDeviceTwice,
                                 kShardToDeviceAgainTwice,
                                 kCastShardTwice,
                                 kCastShardAgainTwice,
                                 kShardToDeviceAgain,
                                 kGradientToHost,
                                 kAwaitGradients,
                                 kZeroOnHost};

class FsdpLowering {
 public:
  FsdpLowering(const TimedWorkload& timed, const Plan& plan)
      : job_(timed, plan), ran_before_backward_(job_.units.size()) {}

  // What a step leaves to the next (events of freed weights, gradients) is settled after the
  // second.
  Program run(Steps steps) {
    StepProgram first = step(StepKind::First);
    step(StepKind::Steady);
    job_.program.resident[Holds::Gathered] += weights_.left_whole();
    job_.program.steady = step(StepKind::Steady);
    if (steps == Steps::All) job_.program.warmup.push_back(std::move(first));
    return std::move(job_.program);
  }

 private:
  using Job = fsdp1::Job;

  void wait(Job::Stream stream, Job::Stream other) { now_.streams.wait(stream, other); }
  bool syncs() const { return now_.last_micro || !job_.no_sync; }

  // ---- forward

  void check_order(UnitIndex u) {
    for (auto [word, wait] :
         {std::pair{&kOrderCount, &kOrderCountWait}, std::pair{&kOrderIndex, &kOrderIndexWait}}) {
      now_.streams.collective(Job::kCompute, *word, u, 4 * job_.ranks, DType::Int32);
      now_.b->wait(*wait, u, now_.streams.last(Job::kCompute));
    }
  }

  void before_forward(UnitIndex u) {
    if (job_.empty(u)) return;
    if (now_.first_iteration && !job_.has(pytorch::Change::OrderIsNotChecked)) check_order(u);
    weights_.bring(u);
    weights_.used_in_forward(u);
    if (!job_.has(pytorch::Change::ViewsWhereGathered))
      now_.trace.push_back({UnitEvent::What::Views, u});
    wait(Job::kCompute, Job::kUnshard);
    const bool known = u == Job::kRoot || job_.has(pytorch::Change::PrefetchesEveryForward);
    if (job_.fsdp.forward_prefetch && known && !now_.first_iteration) weights_.prefetch_forward(u);
  }

  void after_forward(UnitIndex u) {
    if (job_.empty(u)) return;
    ended_.push_back(u);
    weights_.reshard(u, u != Job::kRoot && job_.frees_after_forward());
    if (job_.in_backward.returned[u]) weights_.needed_in_backward(u);
    ran_before_backward_[u] = false;
  }

  void forward() {
    now_.backward = false;
    weights_.begin_forward();
    wait(Job::kUnshard, Job::kCompute);
    if (job_.has_pre_unshard()) wait(job_.pre_unshard, Job::kCompute);
    now_.trace.clear();
    ended_.clear();
    for (const UnitEvent& e : job_.forward.events) {
      // Of a unit without gradients, hooks are on what it was given.
      const bool hooked =
          e.what != UnitEvent::What::Enter ||
          (job_.has(pytorch::Change::ReshardsFrozenUnits) && !job_.empty(e.number) &&
           !job_.trains(e.number) && job_.in_backward.given[e.number]);
      if (hooked) now_.trace.push_back(e);
      if (e.what == UnitEvent::What::Enter)
        before_forward(e.number);
      else if (e.what == UnitEvent::What::Exit)
        after_forward(e.number);
      else
        compute(kUnitForward, job_.forward.parts[e.number], job_.forward.parts[e.number].forward);
    }
  }

  void compute(const OpWord& word, const Part& part, const Stretch& s) {
    now_.streams.compute(word, part.label, s);
    const bool back = &word == &kUnitBackward;
    now_.b->activations(back ? job_.memory.backward(part.from, part.to)
                             : job_.memory.forward(part.from, part.to));
    if (!back) return;
    std::int64_t made = part_elements(job_.w, job_.memory, part);
    for (std::size_t l = part.from; l < part.to; ++l) made += job_.mixed_of[l];
    now_.b->allocate(Holds::Gradients, made * element_size(job_.types.compute));
  }

  // ---- backward

  void before_backward(UnitIndex u) {
    if (ran_before_backward_[u] || job_.empty(u) || !job_.in_backward.returned[u]) return;
    weights_.bring(u);
    wait(Job::kCompute, Job::kUnshard);
    weights_.used_in_backward(u);
    if (job_.backward_prefetch == BackwardPrefetch::Pre) weights_.prefetch_backward(ended_, u);
    if (job_.trains(u)) gradients_.keep_shard(u);
    ran_before_backward_[u] = true;
  }

  void after_backward(UnitIndex u) {
    if (job_.empty(u)) return;
    if (job_.trains(u)) gradients_.flatten(u);
    weights_.reshard(u, frees_in_backward());
    const bool ahead = job_.trains(u) || job_.has(pytorch::Change::FrozenUnitsPrefetch);
    if (ahead && job_.backward_prefetch == BackwardPrefetch::Post)
      weights_.prefetch_backward(ended_, u);
    if (job_.trains(u) && syncs()) gradients_.reduce(u);
  }
  bool frees_in_backward() const {
    return job_.sharded() && (syncs() || job_.frees_after_forward());
  }

  void compute_backward(const Part& part) {
    if (in_backward(job_.w, part, job_.differentiated))
      compute(kUnitBackward, part, part.backward);
    else
      now_.b->activations(job_.memory.backward(part.from, part.to));
  }

  void backward() {
    now_.backward = true;
    std::vector<UnitIndex> ending;  // units whose forwards ended here, the innermost last
    std::vector<UnitIndex> given;   // frozen units that were given what was made here
    const std::vector<UnitEvent> trace = now_.trace;
    for (std::size_t k = trace.size(); k-- > 0;) {
      const UnitEvent& e = trace[k];
      if (e.what == UnitEvent::What::Exit || e.what == UnitEvent::What::Enter) {
        (e.what == UnitEvent::What::Exit ? ending : given).push_back(e.number);
        continue;
      }
      for (std::size_t i = ending.size(); i-- > 0;) before_backward(ending[i]);
      ending.clear();
      if (e.what == UnitEvent::What::Views) {
        if (job_.trains(e.number)) after_backward(e.number);
        continue;
      }
      // Hooks of the same tensors, which were registered later.
      for (std::size_t i = given.size(); i-- > 0;) after_backward(given[i]);
      given.clear();
      compute_backward(job_.forward.parts[e.number]);
    }
    if (syncs()) {
      wait(Job::kCompute, Job::kPostBackward);
      if (job_.hybrid()) wait(Job::kCompute, job_.all_reduce);
      if (job_.host) gradients_.wait_for_host();
    }
    // _catch_all_reshard asks whether the flat parameter is the shard: after a forward that left it
    // whole it is, unless original parameters are views of the whole one.
    const bool views = job_.fsdp.use_orig_params && !job_.frees_after_forward();
    for (UnitIndex u = 0; u < job_.units.size(); ++u)
      if (!job_.trains(u) && (ran_before_backward_[u] || views))
        weights_.catch_all(u, frees_in_backward());
    weights_.end_backward();
    ran_before_backward_.assign(ran_before_backward_.size(), false);
  }

  // ---- the step

  StepProgram step(StepKind kind) {
    StepBuilder b(job_.program, kind, job_.w, job_.memory);
    now_.b = &b;
    for (UnitIndex u = 0; u < job_.units.size(); ++u)
      b.step.buckets.push_back({job_.units[u].parameters(job_.w),
                                {job_.flat(u) * element_size(job_.types_of[u].weights)},
                                {job_.padded(u) * element_size(job_.types_of[u].reduce)},
                                job_.types_of[u].weights});
    now_.streams.begin(b);
    weights_.begin_step();
    gradients_.begin_step();
    // What waits for computation waits for the optimizer of the step before.
    if (now_.streams.last(Job::kCompute) == kNoOp)
      now_.streams.set_last(Job::kCompute, b.event(kStart, Lane::Compute));
    for (int m = 0; m < job_.plan.accumulation_steps; ++m) {
      if (job_.plan.accumulation_steps > 1) b.set_micro(m);
      now_.last_micro = m + 1 == job_.plan.accumulation_steps;
      now_.first_iteration = kind == StepKind::First && m == 0;
      forward();
      backward();
    }
    b.set_micro(-1);
    const std::int64_t parameters = job_.updated_parameters();
    if (job_.host)
      update_on_host(b, job_.w, job_.elements, parameters, *job_.host);
    else
      update_shard(b, now_.streams, job_.w, job_.elements, parameters, job_.types.weights);
    return std::move(b.step);
  }

  Job job_;
  fsdp1::Now now_{job_};
  fsdp1::Weights weights_{job_, now_};
  fsdp1::Gradients gradients_{job_, now_};
  std::vector<UnitIndex> ended_;  // units, as forwards ended; backward goes from its end
  std::vector<bool> ran_before_backward_;
};

}  // namespace

std::span<const OpWord> fsdp_words() {
  return kFsdpWords;
}

Program lower_fsdp(const TimedWorkload& workload, const Plan& plan, Steps steps) {
  return FsdpLowering(workload, plan).run(steps);
}

}  // namespace ddpsim::systems
