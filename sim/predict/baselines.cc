// One rank's Program in listed order: begin = max(dependencies, end of the lane's operation
// before); collectives are a lane of their own.
//   naive: t(S) = 2(n-1)/n S / (rings x min over host links of bandwidth); half of it for a
//     reduce-scatter or an all-gather
// Both know rings only, whatever the plan's algorithm.
//   queue: t(S) = 2(n-1)/n S max over links of load / (bandwidth x efficiency);  broadcast: S times
//     the sum over rounds of that maximum
#include "sim/predict/baselines.h"

#include <algorithm>
#include <array>

#include "sim/cost/roofline.h"
#include "sim/predict/lowered.h"

namespace ddpsim::predict {
namespace {

constexpr int kQueuedSteps = 8;

struct Asked {
  StepTimes times;
  Program program;
  collective::Communicator comm;
};

Asked ask(const Question& q) {
  Asked a;
  a.times = step_times(q.workload, q.profile, Level::Mid, gathered_in(q.scenario.plan));
  a.program = lowered(q, a.times, systems::Steps::SteadyOnly);
  // They know rings alone.
  const Backend backend = a.program.backend == Backend::Mpi ? Backend::Tcp : a.program.backend;
  a.comm = collective::make_communicator(q.fabric, devices_of(q.scenario), backend);
  return a;
}

// The period of the steady step on a rank that computes `factor` times as long. CollectiveTime:
// (const Op&) -> Duration.
template <class CollectiveTime>
Duration play(const Asked& a, const Question& q, double factor, CollectiveTime time_of) {
  const StepProgram& s = a.program.steady;
  std::vector<Duration> durations;
  for (const Op& op : s.ops)
    durations.push_back(is_collective(op.kind)
                            ? time_of(op)
                            : scale(price(op, s, a.program, q.profile, Level::Mid), factor));
  ByLane<TimePoint> lanes;
  TimePoint queue;
  std::vector<TimePoint> ends(s.ops.size());
  TimePoint previous;
  Duration period;
  for (int k = 0; k < kQueuedSteps; ++k) {
    for (std::uint32_t i = 0; i < s.ops.size(); ++i) {
      const Op& op = s.ops[i];
      TimePoint begin;
      for (std::uint32_t d : deps_of(s, i)) begin = std::max(begin, ends[d]);
      TimePoint* lane = is_collective(op.kind) ? &queue
                        : !in_order(op.lane)   ? nullptr
                                               : &lanes[op.lane];
      if (lane) begin = std::max(begin, *lane);
      ends[i] = begin + durations[i];
      if (lane) *lane = ends[i];
    }
    period = ends.back() - previous;
    previous = ends.back();
  }
  return period;
}

double factor_of(const Scenario& s, int rank) {
  auto it = s.slow_ranks.find(rank);
  return it == s.slow_ranks.end() ? 1 : it->second;
}

// Bytes per picosecond of the slowest link at either end of a ring's hop (a host's NIC, or a
// device's link inside its host), times the rings side by side.
double slowest_host_link(const Question& q, const collective::Communicator& c) {
  double slowest = 1e300;
  topology::Route route;
  for (const collective::Ring& ring : c.rings)
    for (std::size_t i = 0; i < ring.order.size(); ++i) {
      const std::size_t from = ring.order[i];
      const std::size_t to = ring.order[(i + 1) % ring.order.size()];
      q.fabric.find_route(c.devices[from], c.devices[to], route);
      for (topology::LinkId l : {route.links.front(), route.links.back()})
        slowest = std::min(slowest, q.fabric.links()[l].bandwidth.bytes_per_ps());
    }
  return slowest * static_cast<double>(c.rings.size());
}

// Of a collective's bytes, what each hop of a ring of its ranks carries.
double ring_share(const Program& p, const Op& op, int ranks) {
  const double n = op.group > 0 ? p.groups[op.group - 1u].size : ranks;
  const Operation o = op.kind.operation;
  const bool half = o == Operation::ReduceScatter || o == Operation::AllGather ||
                    o == Operation::AllToAll;  // of which pairs carry as much
  return (half ? 1 : 2) * (n - 1) / n;
}

// Picoseconds per byte that the pattern moves over each of its hops.
double bottleneck(const Question& q, const collective::Communicator& c,
                  const std::vector<collective::LinkLoad>& load) {
  double worst = 0;
  for (const auto& l : load)
    worst = std::max(worst, l.per_byte / collective::link_rate(c, q.profile, Level::Mid, l.link));
  return worst;
}

}  // namespace

Duration naive_step(const Question& q) {
  Asked a = ask(q);
  int n = q.scenario.ranks;
  double rate = n > 1 ? slowest_host_link(q, a.comm) : 1;
  return play(a, q, factor_of(q.scenario, 0), [&](const Op& op) {
    return carries_tensors(op.kind) && n > 1
               ? Duration{ceil_ps(ring_share(a.program, op, n) * static_cast<double>(op.bytes),
                                  rate)}
               : Duration{};
  });
}

Duration queue_step(const Question& q) {
  Asked a = ask(q);
  int n = q.scenario.ranks;
  double slowest = 0;
  for (int r = 0; r < n; ++r) slowest = std::max(slowest, factor_of(q.scenario, r));
  double ring = bottleneck(q, a.comm, a.comm.pattern(Operation::AllReduce).load);
  double tree = 0;
  for (const auto& round : a.comm.pattern(Operation::Broadcast).rounds)
    tree += bottleneck(q, a.comm, round.load);
  if (a.comm.backend() == Backend::Nccl) tree = ring;  // NCCL broadcasts along its rings
  return play(a, q, slowest, [&](const Op& op) {
    double per_byte = is_broadcast(op.kind) ? tree : ring_share(a.program, op, n) * ring;
    return per_byte > 0 ? Duration{ceil_ps(static_cast<double>(op.bytes) * per_byte, 1)}
                        : Duration{};
  });
}

}  // namespace ddpsim::predict
