// The Program with a bucket for each gradient, whose collectives take no time, is played once from
// idle lanes: no bucketing's step is shorter than that, since copies, computation and their order
// are the same in all. Only the last bucket's end is given a time:
//   end(last) >= max(ready(last gradient) + least time of a bucket that holds it,  ready(first
//     gradient) + least time of all collectives one after another)
#include "sim/tune/bound.h"

#include <algorithm>
#include <array>

#include "sim/collective/distinct.h"
#include "sim/cost/roofline.h"
#include "sim/systems/base/lower.h"
#include "sim/systems/base/record.h"
#include "sim/systems/ddp/bucketing.h"
#include "sim/systems/ddp/ddp_options.h"
#include "sim/systems/ddp/plan.h"
#include "sim/tune/partition.h"
#include "sim/units/by.h"

namespace ddpsim::predict {
namespace {

constexpr double kOneByte = 1.0 / (1024 * 1024);

double ring_factor(int n) {
  return 2.0 * (n - 1) / n;
}

// Bytes per picosecond that a pattern's phases reach at most: a token bucket at its peak.
double peak_rate(const collective::Communicator& c, const Profile& p,
                 const std::vector<collective::LinkLoad>& load) {
  double least = 1e300;
  collective::for_each_kind(c, load, [&](const collective::LinkLoad& l) {
    const topology::Link& link = c.fabric->links()[l.link];
    double rate = collective::link_rate(c, p, Level::Mid, l.link);
    if (link.burst.count > 0) rate *= link.peak.bytes_per_ps() / link.bandwidth.bytes_per_ps();
    least = std::min(least, rate / l.per_byte);
  });
  return least;
}

Duration least_time(const collective::Communicator& c, const Profile& p,
                    const collective::Price& price) {
  Duration out;
  const collective::Pattern& pattern = c.pattern(price.pattern);
  for (const collective::Phase& f : price.phases) {
    out += f.latency;
    if (f.work <= 0) continue;
    double rate = f.max_rate > 0 ? f.max_rate : 1e300;
    rate =
        std::min(rate, peak_rate(c, p, f.round < 0 ? pattern.load : pattern.rounds[f.round].load));
    if (rate < 1e299) out.ps += static_cast<std::int64_t>(f.work / rate);  // rounded down: a bound
  }
  return out;
}

// All gradients over the busiest link of a ring, whatever the buckets. A token bucket may lend its
// burst.
Duration busiest_link(const collective::Communicator& c, const Profile& p, std::int64_t bytes) {
  const collective::Pattern& pattern = c.pattern(Operation::AllReduce);
  if (nccl_group(c) || pattern.algorithm != Algorithm::Ring) return {};
  double most = 0;
  for (const collective::LinkLoad& l : pattern.load) {
    const topology::Link& link = c.fabric->links()[l.link];
    double carried = ring_factor(c.ranks()) * static_cast<double>(bytes) * l.per_byte -
                     static_cast<double>(link.burst.count);
    most = std::max(most, carried / collective::link_rate(c, p, Level::Mid, l.link));
  }
  return {static_cast<std::int64_t>(most)};
}

bool pooled(const Program& p) {
  return p.device == DeviceKind::Cpu || p.backend == Backend::Gloo;
}

class Chain {
 public:
  Chain(const Question& q, const Options& options, double factor)
      : q_(q),
        options_(options),
        factor_(factor),
        times_(step_times(q.workload, q.profile, Level::Mid, gathered_in(q.scenario.plan))) {
    Plan plan = q.scenario.plan;
    ddp_of(plan).bucket_cap_mb.reset();
    ddp_of(plan).bucket_cap_mb_list = {kOneByte};
    program_ = systems::lower({q.workload, times_, q.profile.kind, q.scenario.ranks}, plan,
                              systems::Steps::SteadyOnly);
    comm_ = &options.known->get(q, program_.backend);
    at_once_ = pooled(program_) ? program_.worker_threads : 1;
    by_phases_ = options.fidelity == Fidelity::Collective;
    for (std::uint32_t i = 0; i < ops().size(); ++i)
      if (carries_bucket(ops()[i].kind)) (first_ == kNoOp ? first_ : last_) = i;
    if (last_ == kNoOp) last_ = first_;
    price_collectives();
  }

  Bound bound() const {
    Bound b;
    b.compute = std::max(play({}, {}), host());
    b.communication = play({}, total_);
    b.tail = play(alone_, {});
    b.step = std::max({b.compute, b.communication, b.tail, link_});
    if (link_ > b.communication) b.communication = link_;
    return b;
  }

 private:
  const std::vector<Op>& ops() const { return program_.steady.ops; }

  // Buckets of one dtype hold gradients that follow one another among those of the dtype.
  void price_collectives() {
    By<DType, std::vector<std::int64_t>, kDTypes> bytes;
    std::int64_t all = 0;
    const Op& last = ops()[last_];
    for (const Op& op : ops()) {
      if (!carries_bucket(op.kind)) continue;
      bytes[op.dtype].push_back(op.bytes);
      all += op.bytes;
    }
    link_ = busiest_link(*comm_, q_.profile, all);
    if (!by_phases_) return;
    Duration serial;
    for (std::size_t t = 0; t < bytes.size(); ++t)
      serial += least_total(bytes.values[t], [&](std::int64_t n) {
        return predict::least_time(*comm_, q_.profile, n, static_cast<DType>(t));
      });
    total_ = {serial.ps / at_once_};
    std::int64_t held = 0;
    const auto& own = bytes[last.dtype];
    alone_ = {kForever};
    for (std::size_t i = own.size(); i-- > 0;) {
      held += own[i];
      alone_ = std::min(alone_, predict::least_time(*comm_, q_.profile, held, last.dtype));
    }
  }

  Duration time_of(const Op& op) const {
    if (is_broadcast(op.kind))
      return by_phases_ && comm_->ranks() > 1
                 ? least_time(
                       *comm_, q_.profile,
                       collective::broadcast(*comm_, q_.profile, Level::Mid, Bytes{op.bytes}))
                 : Duration{};
    if (is_collective(op.kind) || of_bucket(op.kind)) return {};
    if (program_.device == DeviceKind::Gpu && op.lane == Lane::Host)
      return {};  // it may have run ahead
    return scaled(price(op, program_.steady, program_, q_.profile, Level::Mid));
  }
  Duration scaled(Duration d) const { return factor_ == 1 ? d : scale(d, factor_); }

  // From the end of the step before, on the slowest rank. `alone`: the last bucket's reduction;
  // `total`: all of them, from the first gradient on.
  Duration play(Duration alone, Duration total) const {
    std::vector<TimePoint> ends(ops().size());
    ByLane<TimePoint> lanes;
    TimePoint first;
    for (std::uint32_t i = 0; i < ops().size(); ++i) {
      const Op& op = ops()[i];
      TimePoint begin;
      for (std::uint32_t d : deps_of(program_.steady, i)) begin = std::max(begin, ends[d]);
      TimePoint* lane = !in_order(op.lane) ? nullptr : &lanes[op.lane];
      if (lane) begin = std::max(begin, *lane);
      if (i == first_) first = begin;
      ends[i] = begin + time_of(op);
      if (i == last_) ends[i] = std::max(begin + alone, first + total);
      if (lane) *lane = ends[i];
    }
    return ends.back() - TimePoint{0};
  }

  // GPU: the host thread's own work; launches of what belongs to a bucket count by the measured
  // time that they carry only.
  Duration host() const {
    Duration sum;
    if (program_.device != DeviceKind::Gpu) return sum;
    for (const Op& op : ops()) {
      if (op.lane != Lane::Host) continue;
      bool buckets = is_launch(op.kind) && of_bucket(ops()[op.subject].kind);
      sum += scaled(buckets ? op.duration
                            : price(op, program_.steady, program_, q_.profile, Level::Mid));
    }
    return sum;
  }

  const Question& q_;
  const Options& options_;
  double factor_;
  StepTimes times_;
  Program program_;
  const collective::Communicator* comm_ = nullptr;
  int at_once_ = 1;
  bool by_phases_ = true;
  std::uint32_t first_ = kNoOp;
  std::uint32_t last_ = kNoOp;
  Duration total_;
  Duration alone_;
  Duration link_;
};

}  // namespace

Duration least_time(const collective::Communicator& c, const Profile& p, std::int64_t bytes,
                    DType type) {
  return least_time(c, p, collective::all_reduce(c, p, Level::Mid, Bytes{bytes}, type));
}

std::optional<Bound> lower_bound(const Question& q, const Options& given) {
  const Plan& plan = q.scenario.plan;
  if (!systems::record_of(plan.system).bucketed || q.scenario.ranks < 2) return {};
  if (!systems::plain_buckets(plan) || !q.workload.loop.collectives.empty()) return {};
  Communicators own;
  Options options = given;
  if (!options.known) options.known = &own;
  double slowest = std::ssize(q.scenario.slow_ranks) == q.scenario.ranks ? 0 : 1;
  for (const auto& [rank, factor] : q.scenario.slow_ranks) slowest = std::max(slowest, factor);
  Bound bound = Chain(q, options, slowest).bound();
  if (q.scenario.input) bound.input = batch_times(q).made * q.scenario.plan.accumulation_steps;
  bound.step = std::max(bound.step, bound.input);
  return bound;
}

}  // namespace ddpsim::predict
