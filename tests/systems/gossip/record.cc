// Gossip SGD: after each update a rank averages its weights with one other rank. In step k of a
// round its partner is 2^(k mod log2 n) ranks away, so that after log2 n steps every rank has heard
// of every other. A step of the Program is a round of accumulation_steps batches.
//
// Source: Assran et al., Stochastic Gradient Push for Distributed Deep Learning, ICML 2019, section
// 3 and appendix A (one peer, exponential); both send and receive, as in AD-PSGD without its
// asynchrony.
#include "tests/systems/gossip/record.h"

#include "sim/systems/base/frame.h"

namespace ddpsim::systems {
namespace {

constexpr OpWord kPeerUpdate{"gossip_update",
                             {.phase = Phase::Update, .touches = Touches::Everything}};
constexpr OpWord kPeerAverage{"gossip_average",
                              {.does = Does::Communicate, .phase = Phase::Update}};
constexpr OpWord kWords[] = {kPeerUpdate, kPeerAverage};

// Pairs at each distance; the number of ranks is a power of two.
std::vector<RankGroups> pairs_of(const Plan&, int ranks, int) {
  std::vector<RankGroups> out;
  for (int distance = 1; distance < ranks; distance *= 2)
    out.push_back({"peers" + std::to_string(distance), 2, distance});
  return out;
}

class GossipLowering {
 public:
  GossipLowering(const TimedWorkload& timed, const Plan& plan) : f_(timed, plan) {
    f_.program.groups = pairs_of(plan, timed.ranks, timed.per_host);
  }

  Program run(Steps steps) {
    return f_.run(steps, [&](StepKind kind) { return step(kind); });
  }

 private:
  StepProgram step(StepKind kind) {
    StepBuilder b(f_.program, kind, f_.w, f_.memory);
    const std::int64_t bytes = f_.w.gradient_bytes().count;
    const std::size_t distances = f_.program.groups.size();
    f_.micro_steps(b, [&](int m, bool) {
      b.forward(f_.times);
      f_.backward(b, f_.keeps_gradients(kind) || (m > 0 && !f_.set_to_none), [](TensorIndex) {});
      if (f_.times.host) b.host_time(f_.times.host->optimizer);
      b.main(kPeerUpdate, kNoSubject, bytes, {.duration = f_.times.optimizer});
      if (f_.set_to_none) b.release_gradients();
      if (distances == 0) return;
      const std::uint32_t sent =
          b.collective(kPeerAverage, kNoSubject, bytes, f_.w.tensors.front().dtype);
      b.step.ops[sent].group =
          static_cast<std::uint8_t>(1 + static_cast<std::size_t>(m) % distances);
      b.before_next_main(sent);
    });
    b.end_update();
    return std::move(b.step);
  }

  Frame f_;
};

Problem check_pairs(const Plan&, const Workload&, DeviceKind, int ranks, int) {
  if ((ranks & (ranks - 1)) != 0)
    return {"/ranks", "gossip pairs ranks at powers of two: " + std::to_string(ranks) + " is none"};
  return {};
}

}  // namespace

SystemRecord gossip_record() {
  return {.system = System("gossip"),
          .title = "gossip SGD",
          .brief = "gossip SGD",
          .units = "exchanges",
          .does = "after each update a rank averages its weights with a partner that changes",
          .evidence = "of tests alone",
          .schedule = "schedule from the paper, of tests alone. A step is a round",
          .words = kWords,
          .knobs = {},
          .lower = [](const TimedWorkload& w, const Plan& p,
                      Steps steps) { return GossipLowering(w, p).run(steps); },
          .check = check_pairs,
          .groups = pairs_of,
          .updates = [](const Plan& p) { return p.accumulation_steps; }};
}

}  // namespace ddpsim::systems
