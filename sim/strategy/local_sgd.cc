// Local SGD: ranks train by themselves and meet at the end of a round. A step here is a round, of
// accumulation_steps batches, each with forward, backward and its own (inner) optimizer:
//
//   outer_optimizer none      PyTorch's PeriodicModelAverager: a flat copy of all parameters,
//   divided;
//                             the host waits for the device; one all-reduce; parameters are views
//   outer_optimizer nesterov  DiLoCo, as torchft does it with one fragment and the weights of the
//                             round before on the device: pseudo-gradients (those weights less
//                             these); on a stream of its own an all-reduce and a division of each,
//                             which the host waits for; these weights kept and those restored; SGD
//                             with Nesterov momentum; weights kept for the next round, and mixed
//                             with the local ones
//
// Nothing is sent in between, so a rank waits for the others once in a round.
//
// Source: PyTorch 1.13 and 2.7, torch/distributed/algorithms/model_averaging/{averagers,utils}.py;
// torchft/local_sgd.py (2025). sim/MODEL.md section 3.
#include <algorithm>

#include "sim/strategy/bucketing.h"
#include "sim/strategy/builder.h"
#include "sim/strategy/lower.h"
#include "sim/strategy/system_knobs.h"

namespace ddpsim::strategy {
namespace {

constexpr OpWord inner_word(const char* name, Does does) {
  return {name,
          {.does = does,
           .phase = Phase::Update,
           .touches = Touches::Everything,
           .in_micro_step = true}};
}
constexpr OpWord kInnerZero = inner_word("inner_zero_grad", Does::Copy);
constexpr OpWord kInnerUpdate = inner_word("inner_optimizer", Does::Compute);
constexpr OpWord kFlattenParameters = update_word("flatten/parameters", Does::Copy);
constexpr OpWord kDivideParameters = update_word("divide/parameters", Does::Copy);
constexpr OpWord kAwaitDevice = update_word("wait/before_averaging", Does::Wait);
constexpr OpWord kReduceParameters{
    "allreduce/parameters",
    {.does = Does::Communicate, .phase = Phase::Update, .touches = Touches::Everything}};
constexpr OpWord kAwaitParameters = update_word("wait/parameters", Does::Wait);
constexpr OpWord kParametersAveraged = update_word("parameters_averaged", Does::Compute);
constexpr OpWord kPseudoGradients = update_word("pseudo_gradients", Does::Copy);
constexpr OpWord kReduceOuter{"outer_allreduce/",
                              {.does = Does::Communicate,
                               .phase = Phase::Update,
                               .of = Of::Tensor,
                               .touches = Touches::Tensor}};
constexpr OpWord kDivideOuter =
    update_word("outer_divide/", Does::Copy, Of::Tensor, Touches::Tensor);
constexpr OpWord kAwaitOuter = update_word("wait/outer", Does::Wait);
constexpr OpWord kRestore = update_word("restore_parameters", Does::Copy);
constexpr OpWord kOuterUpdate = update_word("outer_optimizer", Does::Compute);
constexpr OpWord kKeepParameters = update_word("keep_parameters", Does::Copy);
constexpr OpWord kLocalSgdWords[] = {kInnerZero,        kInnerUpdate,        kFlattenParameters,
                                     kDivideParameters, kAwaitDevice,        kReduceParameters,
                                     kAwaitParameters,  kParametersAveraged, kPseudoGradients,
                                     kReduceOuter,      kDivideOuter,        kAwaitOuter,
                                     kRestore,          kOuterUpdate,        kKeepParameters};

constexpr std::int64_t kTensorsOfLaunch = 36;   // of the outer optimizer's kernels (torch/optim)
constexpr std::int64_t kTensorsOfJoined = 128;  // of torch.cat

class LocalSgdLowering {
 public:
  LocalSgdLowering(const TimedWorkload& timed, const Plan& plan)
      : w_(timed.workload),
        times_(timed.times),
        plan_(plan),
        diloco_(plan.outer_optimizer == OuterOptimizer::Nesterov),
        timeline_(backward_timeline(timed, unused_tensors(w_, plan))),
        bytes_(w_.gradient_bytes().count),
        tensors_(static_cast<std::int64_t>(w_.tensors.size())),
        program_(empty_program(timed, plan)),
        memory_(w_) {
    set_to_none_ = plan.set_to_none.value_or(behaviour(plan.pytorch).set_to_none);
    program_.resident = resident(w_, !set_to_none_);
    // The weights of the round before, and the outer momentum.
    if (diloco_) {
      of(program_.resident, Holds::Parameters) += bytes_;
      of(program_.resident, Holds::OptimizerState) += bytes_;
      if (timed.device == DeviceKind::Gpu) program_.streams = {"outer"};
    }
    program_.activations_known = memory_.known();
  }

  Program run(Steps steps) {
    if (steps == Steps::All) program_.warmup.push_back(step(StepKind::First));
    program_.steady = step(StepKind::Steady);
    return std::move(program_);
  }

 private:
  std::int64_t bytes_of(TensorIndex t) const { return program_.tensor_bytes[t]; }

  StepProgram step(StepKind kind) {
    StepBuilder b(program_, kind, w_, memory_);
    b_ = &b;
    for (int m = 0; m < plan_.accumulation_steps; ++m) {
      if (plan_.accumulation_steps > 1) b.set_micro(m);
      inner_step(!set_to_none_ && (m > 0 || kind != StepKind::First));
    }
    b.set_micro(-1);
    diloco_ ? outer_step() : average();
    b.end_update();
    return std::move(b.step);
  }

  void inner_step(bool gradients_exist) {
    StepBuilder& b = *b_;
    if (gradients_exist) b.main(kInnerZero, kNoSubject, bytes_, {.traffic = bytes_});
    b.forward(times_);
    for (const Segment& s : timeline_.segments) {
      b.host_time(s.host);
      if (s.device.ps > 0) b.main(kBackward, s.tensor, 0, {.duration = s.device});
      b.gradient(s.tensor, set_to_none_);
      if (gradients_exist)
        b.main(kAccumulate, s.tensor, bytes_of(s.tensor), {.traffic = 3 * bytes_of(s.tensor)});
    }
    b.host_time(timeline_.tail_host);
    if (timeline_.tail_device.ps > 0)
      b.main(kBackwardTail, kNoSubject, 0, {.duration = timeline_.tail_device});
    b.gradient(StepBuilder::kNoTensor, false);
    if (times_.host) b.host_time(times_.host->optimizer);
    last_ = b.main(kInnerUpdate, kNoSubject, bytes_, {.duration = times_.optimizer});
    const std::int64_t beside = optimizer_temporaries(w_.optimizer, w_.elements()) * bytes_ /
                                std::max<std::int64_t>(1, w_.elements());
    b.allocate(Holds::Temporaries, beside);
    b.release(Holds::Temporaries, beside);
    if (set_to_none_) b.release_gradients();
  }

  // average_parameters()
  void average() {
    StepBuilder& b = *b_;
    const auto kernels = (tensors_ + kTensorsOfJoined - 1) / kTensorsOfJoined;
    b.main(kFlattenParameters, kNoSubject, bytes_,
           {.traffic = 2 * bytes_, .kernels = static_cast<std::int32_t>(kernels)});
    b.allocate(Holds::Temporaries, bytes_);
    last_ = b.main(kDivideParameters, kNoSubject, bytes_, {.traffic = 2 * bytes_});
    if (b.gpu()) b.wait(kAwaitDevice, kNoSubject, last_);
    const std::uint32_t reduced =
        b.collective(kReduceParameters, kNoSubject, bytes_, w_.tensors.front().dtype,
                     behaviour(plan_.pytorch).blocking_on_current_stream);
    if (b.gpu())
      b.add_dep(b.event(kParametersAveraged, Lane::Compute), reduced);
    else
      b.wait(kAwaitParameters, kNoSubject, reduced);
    b.release(Holds::Temporaries, bytes_);
  }

  Work of_each(std::int64_t traffic, std::int64_t kernels) const {
    return {.traffic = traffic, .kernels = static_cast<std::int32_t>(kernels)};
  }

  // prepare_sync(), perform_sync()
  void outer_step() {
    StepBuilder& b = *b_;
    const std::uint32_t pseudo =
        b.main(kPseudoGradients, kNoSubject, bytes_, of_each(3 * bytes_, tensors_));
    b.allocate(Holds::Gradients, bytes_);
    std::vector<std::uint32_t> divided;
    for (TensorIndex t = 0; t < w_.tensors.size(); ++t) divided.push_back(reduce(t, pseudo));
    if (b.gpu()) divided = {divided.back()};
    const std::uint32_t awaited = b.wait(kAwaitOuter, kNoSubject, divided.front());
    for (std::uint32_t d : divided) b.add_dep(awaited, d);
    // Copies of these weights, and the restored ones.
    b.main(kRestore, kNoSubject, bytes_, of_each(4 * bytes_, 2 * tensors_));
    b.allocate(Holds::Temporaries, bytes_);
    // Momentum's product and sum, Nesterov's sum, the update: 8 + 12 + 12 + 12 bytes of four.
    b.main(kOuterUpdate, kNoSubject, bytes_,
           of_each(11 * bytes_, 4 * ((tensors_ + kTensorsOfLaunch - 1) / kTensorsOfLaunch)));
    b.release(Holds::Gradients, bytes_);
    // A copy and its copy; then lerp_ with the local ones.
    b.main(kKeepParameters, kNoSubject, bytes_, of_each(7 * bytes_, 3 * tensors_));
    b.release(Holds::Temporaries, bytes_);
  }

  std::uint32_t reduce(TensorIndex t, std::uint32_t pseudo) {
    StepBuilder& b = *b_;
    const std::int64_t bytes = bytes_of(t);
    if (!b.gpu()) return b.collective(kReduceOuter, t, bytes, w_.tensors[t].dtype);
    const std::uint32_t sent =
        b.collective_after(kReduceOuter, t, bytes, w_.tensors[t].dtype, std::span(&pseudo, 1));
    return b.on_stream(stream(0), kDivideOuter, t, bytes, {.traffic = 2 * bytes},
                       std::span(&sent, 1));
  }

  const Workload& w_;
  const StepTimes& times_;
  const Plan& plan_;
  const bool diloco_;
  const BackwardTimeline timeline_;
  const std::int64_t bytes_;
  const std::int64_t tensors_;
  Program program_;
  const ModelMemory memory_;
  bool set_to_none_ = true;
  // of the step being built
  StepBuilder* b_ = nullptr;
  std::uint32_t last_ = kNoOp;
};

}  // namespace

std::span<const OpWord> local_sgd_words() {
  return kLocalSgdWords;
}

std::span<const KnobRecord> local_sgd_knobs() {
  static const KnobRecord knobs[] = {
      {"outer_optimizer", "", "none",
       "none: parameters are averaged after each round; nesterov: DiLoCo's outer step", false,
       [](Plan&) {
         return Field(
             Choice{{"none", "nesterov"},
                    [](const Plan& p) { return static_cast<int>(p.outer_optimizer); },
                    [](Plan& p, int k) { p.outer_optimizer = static_cast<OuterOptimizer>(k); }});
       }}};
  return knobs;
}

Program lower_local_sgd(const TimedWorkload& workload, const Plan& plan, Steps steps) {
  return LocalSgdLowering(workload, plan).run(steps);
}

}  // namespace ddpsim::strategy
