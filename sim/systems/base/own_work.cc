#include "sim/systems/base/own_work.h"

#include <algorithm>
#include <cmath>

#include "sim/systems/base/insert.h"

namespace ddpsim::systems {
namespace {

constexpr OpWord own_word(const char* name, Operation o) {
  return {name,
          {.does = Does::Communicate, .of = Of::Number, .operation = o, .in_micro_step = true}};
}
constexpr OpWord kOwnAllReduce = own_word("own_all_reduce.", Operation::AllReduce);
constexpr OpWord kOwnScatter = own_word("own_reduce_scatter.", Operation::ReduceScatter);
constexpr OpWord kOwnGather = own_word("own_all_gather.", Operation::AllGather);
constexpr OpWord kOwnBroadcast = own_word("own_broadcast.", Operation::Broadcast);
constexpr OpWord kOwnReduce = own_word("own_reduce.", Operation::Reduce);
constexpr OpWord kOwnToAll = own_word("own_all_to_all.", Operation::AllToAll);
constexpr OpWord kOwnWait{"wait/own.",
                          {.does = Does::Wait, .of = Of::Number, .in_micro_step = true}};
// The compute stream's place behind a collective.
constexpr OpWord kOwnThere{"own_there.", {.of = Of::Number, .in_micro_step = true}};
constexpr OpWord kOwnWords[] = {kOwnAllReduce, kOwnScatter, kOwnGather, kOwnBroadcast, kOwnReduce,
                                kOwnToAll,     kOwnWait,    kOwnThere,  kReadForward,  kOwnTraffic};

const OpWord& word_of(Operation o) {
  for (const OpWord& w : kOwnWords)
    if (is_collective(w.kind) && w.kind.operation == o) return w;
  return kOwnAllReduce;  // REQUIRES: one of them (validate)
}

// As this Program counts them: of a gather and a scatter, all ranks' parts.
std::int64_t bytes_of(const OwnCollective& c, const Workload& w, int ranks) {
  const bool parts = c.operation == Operation::AllGather || c.operation == Operation::ReduceScatter;
  const double bytes = c.bytes_per_sample * w.batch + c.bytes_fixed;
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::llround(bytes))) *
         (parts ? ranks : 1);
}

class OwnWork {
 public:
  OwnWork(Program& p, StepProgram& s, const TimedWorkload& timed, const Plan& plan)
      : program_(p),
        timed_(timed),
        loop_(timed.workload.loop),
        gpu_(p.device == DeviceKind::Gpu),
        on_current_stream_(plan.pytorch.has(pytorch::Change::BlockingOnTheCallersStream)),
        in_(p, s) {}

  void into(const std::vector<std::uint32_t>& backward) {
    for (int m = 0; m < std::ssize(backward); ++m) {
      in_.until(backward[m]);
      collectives(true, m);
      if (loop_.forward_item && gpu_) in_.at(in_.add(kReadForward, Lane::Host, m)).dep[0] = before_;
    }
    in_.until(static_cast<std::uint32_t>(-1));
    collectives(false, -1);
    if (loop_.traffic > 0) traffic();
    in_.finish();
  }

 private:
  void collectives(bool in_forward, int micro) {
    before_ = in_.last_on(gpu_ ? Lane::Compute : Lane::Host);
    std::uint32_t number = 0;
    for (const OwnCollective& c : loop_.collectives)
      for (int k = 0; k < c.count; ++k, ++number)
        if (c.in_forward == in_forward) collective(c, number, micro);
  }

  void collective(const OwnCollective& c, std::uint32_t number, int micro) {
    const bool workers = !gpu_ || program_.backend != Backend::Nccl;
    const bool on_stream = !workers && on_current_stream_;
    std::uint32_t launched = workers ? kNoOp : in_.add(kLaunch, Lane::Host, -1);
    const std::uint32_t op = in_.add(word_of(c.operation),
                                     workers     ? Lane::Worker
                                     : on_stream ? Lane::Compute
                                                 : Lane::Comm,
                                     micro);
    if (launched != kNoOp) {
      in_.at(launched).subject = op;
      in_.at(launched).cost = Cost::LaunchCollective;
    }
    Op& made = in_.at(op);
    made.subject = number;
    made.bytes = bytes_of(c, timed_.workload, timed_.ranks);
    made.dtype = c.dtype;
    made.dep[0] = launched == kNoOp ? in_.last_on(Lane::Host) : launched;
    if (!on_stream && gpu_) made.dep[1] = before_;
    before_ = op;
    if (workers || c.host) {
      const std::uint32_t wait = in_.add(kOwnWait, Lane::Host, micro);
      in_.at(wait).subject = number;
      in_.at(wait).dep[0] = op;
    }
    if (on_stream || !gpu_) return;
    before_ = in_.add(kOwnThere, Lane::Compute, micro);
    in_.at(before_).subject = number;
    in_.at(before_).dep[0] = op;
  }

  void traffic() {
    std::uint32_t launched = gpu_ ? in_.add(kLaunch, Lane::Host, -1) : kNoOp;
    const std::uint32_t op = in_.add(kOwnTraffic, gpu_ ? Lane::Compute : Lane::Host, -1);
    Op& made = in_.at(op);
    made.traffic = loop_.traffic;
    made.bytes = loop_.traffic;
    made.cost = Cost::Memory;
    made.kernels = loop_.kernels;
    made.dep[0] = launched;
    if (launched == kNoOp) return;
    in_.at(launched).subject = op;
    in_.at(launched).cost = Cost::Launch;
    in_.at(launched).kernels = loop_.kernels;
  }

  const Program& program_;
  const TimedWorkload& timed_;
  const Loop& loop_;
  const bool gpu_;
  const bool on_current_stream_;
  Insertion in_;
  std::uint32_t before_ = kNoOp;  // what the next operation on the device is behind
};

}  // namespace

void add_own_work(Program& p, const TimedWorkload& timed, const Plan& plan) {
  const Loop& loop = timed.workload.loop;
  if (loop.collectives.empty() && loop.traffic == 0 && !loop.forward_item) return;
  auto add = [&](StepProgram& s) {
    const std::vector<std::uint32_t> backward =
        first_in_micro_steps(s, p.micro_steps, [](const Op& op) { return is_backward(op.kind); });
    OwnWork(p, s, timed, plan).into(backward);
  };
  for (StepProgram& s : p.warmup) add(s);
  add(p.steady);
}

std::vector<Operation> own_operations(const Loop& loop) {
  std::vector<Operation> out;
  for (const OwnCollective& c : loop.collectives)
    if (std::find(out.begin(), out.end(), c.operation) == out.end()) out.push_back(c.operation);
  return out;
}

std::span<const OpWord> own_words() {
  return kOwnWords;
}

}  // namespace ddpsim::systems
