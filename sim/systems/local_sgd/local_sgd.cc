// Local SGD: ranks train by themselves and meet at the end of a round. A step here is a round, of
// accumulation_steps batches, each with forward, backward and its own (inner) optimizer:
//
//   outer_optimizer none      PyTorch's PeriodicModelAverager: a flat copy of all parameters,
//                             divided; the host waits for the device; one all-reduce; parameters
//                             are views of it. HierarchicalModelAverager: the same after each
//                             batch that a period divides, in groups of that period's size
//   subgroup_size             post-local SGD: each batch is a step of DDP, whose buckets are
//   reduced
//                             within groups of so many ranks (PostLocalSGDState); before
//                             start_localSGD_iter among all
//   outer_optimizer nesterov  DiLoCo, as torchft does it with one fragment and the weights of the
//                             round before on the device: pseudo-gradients (those weights less
//                             these); on a stream of its own an all-reduce and a division of each,
//                             which the host waits for; these weights kept and those restored; SGD
//                             with Nesterov momentum; weights kept for the next round, and mixed
//                             with the local ones
//
// Without subgroups nothing is sent in between, so a rank waits for the others once in a round.
//
// Source: PyTorch 1.13 and 2.7, torch/distributed/algorithms/model_averaging/{averagers,
// hierarchical_model_averager,utils}.py, ddp_comm_hooks/post_localSGD_hook.py,
// torch/distributed/optim/post_localSGD_optimizer.py; torchft/local_sgd.py (2025). docs/model.md
// section 3.
#include "sim/systems/local_sgd/local_sgd.h"

#include <algorithm>

#include "sim/systems/base/frame.h"
#include "sim/systems/ddp/bucketing.h"
#include "sim/systems/ddp/ddp.h"
#include "sim/systems/local_sgd/plan.h"

namespace ddpsim::systems {
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
      : timed_(timed),
        f_(timed, plan),
        diloco_(local_sgd_of(plan).outer_optimizer == OuterOptimizer::Nesterov),
        bytes_(f_.w.gradient_bytes().count),
        tensors_(f_.w.tensors.size()) {
    // The weights of the round before, and the outer momentum.
    if (diloco_) {
      f_.program.resident[Holds::Parameters] += bytes_;
      f_.program.resident[Holds::OptimizerState] += bytes_;
      if (timed.device == DeviceKind::Gpu) f_.program.streams = {"outer"};
    }
    f_.program.groups = local_sgd_groups(plan, timed.ranks, timed.per_host);
  }

  Program run(Steps steps) {
    if (local_sgd_of(f_.plan).subgroup_size > 0) return in_subgroups(steps);
    return f_.run(steps, [&](StepKind kind) { return step(kind); });
  }

 private:
  StepProgram step(StepKind kind) {
    StepBuilder b(f_.program, kind, f_.w, f_.memory);
    b_ = &b;
    f_.micro_steps(b, [&](int m, bool) {
      inner_step(!f_.set_to_none && (m > 0 || kind != StepKind::First));
      if (!diloco_) average_after(m);
    });
    if (diloco_) outer_step();
    b.end_update();
    return std::move(b.step);
  }

  void inner_step(bool gradients_exist) {
    StepBuilder& b = *b_;
    if (gradients_exist) b.main(kInnerZero, kNoSubject, bytes_, {.traffic = bytes_});
    b.forward(f_.times);
    for (const Segment& s : f_.timeline.segments) {
      b.host_time(s.host);
      if (s.device.ps > 0) b.main(kBackward, s.tensor, 0, {.duration = s.device});
      b.gradient(s.tensor, f_.set_to_none);
      if (gradients_exist) f_.accumulate(b, s.tensor);
    }
    f_.backward_tail(b);
    inner_update();
  }

  void inner_update() {
    StepBuilder& b = *b_;
    if (f_.times.host) b.host_time(f_.times.host->optimizer);
    last_ = b.main(kInnerUpdate, kNoSubject, bytes_, {.duration = f_.times.optimizer});
    const std::int64_t beside = optimizer_temporaries(f_.w.optimizer, f_.w.elements()) * bytes_ /
                                std::max<std::int64_t>(1, f_.w.elements());
    b.allocate(Holds::Temporaries, beside);
    b.release(Holds::Temporaries, beside);
    if (f_.set_to_none) b.release_gradients();
  }

  // A round of DDP's steps; buckets and all else are DDP's.
  Program in_subgroups(Steps steps) {
    const DdpRound round{f_.plan.accumulation_steps, f_.program.groups, 1,
                         local_sgd_of(f_.plan).post_local_gradient_allreduce};
    return lower_rounds_on_ddp(timed_, f_.plan, steps, round, [&](StepBuilder& b, int batch) {
      b_ = &b;
      inner_update();
      if (batch >= 0) average_after(batch);
      if (batch + 1 == f_.plan.accumulation_steps || batch < 0) b.end_update();
    });
  }

  // average_parameters() behind batch m, if a period ends with it: the longest that does.
  void average_after(int m) {
    const LocalSgdPlan& l = local_sgd_of(f_.plan);
    const std::int64_t behind = m + 1;
    if (l.averaging_periods.empty()) {
      if (behind < f_.plan.accumulation_steps) return;
      b_->set_batch(-1);
      return average(0);
    }
    for (std::size_t k = l.averaging_periods.size(); k-- > 0;) {
      if (behind % l.averaging_periods[k] != 0) continue;
      // Groups of levels follow the subgroup's; the last level is of all ranks.
      const std::size_t group = k + 1 == l.averaging_periods.size() ? 0 : subgroups() + k + 1;
      if (f_.plan.accumulation_steps > 1) b_->set_batch(m);
      average(static_cast<std::uint8_t>(group));
      b_->set_batch(-1);
      return;
    }
  }
  std::size_t subgroups() const { return local_sgd_of(f_.plan).subgroup_size > 0 ? 1 : 0; }

  void average(std::uint8_t group) {
    StepBuilder& b = *b_;
    const auto kernels = (tensors_ + kTensorsOfJoined - 1) / kTensorsOfJoined;
    b.main(kFlattenParameters, kNoSubject, bytes_, {.traffic = 2 * bytes_, .kernels = kernels});
    b.allocate(Holds::Temporaries, bytes_);
    last_ = b.main(kDivideParameters, kNoSubject, bytes_, {.traffic = 2 * bytes_});
    if (b.gpu()) b.wait(kAwaitDevice, kNoSubject, last_);
    const std::uint32_t reduced =
        b.collective(kReduceParameters, kNoSubject, bytes_, f_.w.tensors.front().dtype,
                     f_.plan.pytorch.has(pytorch::Change::BlockingOnTheCallersStream));
    b.step.ops[reduced].group = group;
    if (b.gpu())
      b.add_dep(b.event(kParametersAveraged, Lane::Compute), reduced);
    else
      b.wait(kAwaitParameters, kNoSubject, reduced);
    b.release(Holds::Temporaries, bytes_);
  }

  Work of_each(std::int64_t traffic, std::int64_t kernels) const {
    return {.traffic = traffic, .kernels = kernels};
  }

  // prepare_sync(), perform_sync()
  void outer_step() {
    StepBuilder& b = *b_;
    const std::uint32_t pseudo =
        b.main(kPseudoGradients, kNoSubject, bytes_, of_each(3 * bytes_, tensors_));
    b.allocate(Holds::Gradients, bytes_);
    std::vector<std::uint32_t> divided;
    for (TensorIndex t = 0; t < f_.w.tensors.size(); ++t) divided.push_back(reduce(t, pseudo));
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
    const std::int64_t bytes = f_.bytes_of(t);
    if (!b.gpu()) return b.collective(kReduceOuter, t, bytes, f_.w.tensors[t].dtype);
    const std::uint32_t sent =
        b.collective_after(kReduceOuter, t, bytes, f_.w.tensors[t].dtype, std::span(&pseudo, 1));
    return b.on_stream(stream(0), kDivideOuter, t, bytes, {.traffic = 2 * bytes},
                       std::span(&sent, 1));
  }

  const TimedWorkload& timed_;
  Frame f_;
  const bool diloco_;
  const std::int64_t bytes_;
  const std::int64_t tensors_;
  // of the step being built
  StepBuilder* b_ = nullptr;
  std::uint32_t last_ = kNoOp;
};

}  // namespace

std::span<const OpWord> local_sgd_words() {
  static const std::vector<OpWord> words = [] {
    std::vector<OpWord> all(std::begin(kLocalSgdWords), std::end(kLocalSgdWords));
    const std::span<const OpWord> ddp = ddp_words();
    all.insert(all.end(), ddp.begin(), ddp.end());
    return all;
  }();
  return words;
}

std::vector<RankGroups> local_sgd_groups(const Plan& plan, int, int) {
  const LocalSgdPlan& l = local_sgd_of(plan);
  std::vector<RankGroups> out;
  if (l.subgroup_size > 0) out.push_back({"subgroup", static_cast<int>(l.subgroup_size), 1});
  for (std::size_t k = 0; k + 1 < l.averaging_group_sizes.size(); ++k)
    out.push_back({"average_" + std::to_string(l.averaging_periods[k]),
                   static_cast<int>(l.averaging_group_sizes[k]), 1});
  return out;
}

Problem check_local_sgd_ranks(const Plan& plan, int ranks, int) {
  const LocalSgdPlan& l = local_sgd_of(plan);
  auto parts = [&](const std::string& path, std::int64_t size) -> Problem {
    if (ranks % size == 0) return {};
    return {path, "groups of " + std::to_string(size) + " do not part " + std::to_string(ranks) +
                      " ranks; a divisor of them does"};
  };
  if (l.subgroup_size > 0)
    if (Problem p = parts("/plan/subgroup_size", l.subgroup_size)) return p;
  for (std::size_t k = 0; k < l.averaging_group_sizes.size(); ++k)
    if (Problem p =
            parts("/plan/averaging_group_sizes/" + std::to_string(k), l.averaging_group_sizes[k]))
      return p;
  if (!l.averaging_group_sizes.empty() && l.averaging_group_sizes.back() != ranks)
    return {"/plan/averaging_group_sizes",
            "the last is of all ranks, " + std::to_string(ranks) + " (PyTorch refuses another)"};
  return {};
}

Program lower_local_sgd(const TimedWorkload& workload, const Plan& plan, Steps steps) {
  return LocalSgdLowering(workload, plan).run(steps);
}

}  // namespace ddpsim::systems
