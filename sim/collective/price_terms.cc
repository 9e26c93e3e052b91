#include "sim/collective/price_terms.h"

#include <algorithm>

#include "sim/collective/backend/sockets.h"
#include "sim/collective/distinct.h"
#include "sim/units/convert.h"

namespace ddpsim::collective {

double bottleneck(const Communicator& c, const Profile& p, Level level,
                  const std::vector<LinkLoad>& load, double io) {
  double worst = by_sockets(c) ? io / socket_rate(p, level) : 0;
  for_each_kind(c, load, [&](const LinkLoad& l) {
    worst = std::max(worst, l.per_byte / link_rate(c, p, level, l.link));
  });
  return worst;
}

double step_time(const Communicator& c, const Profile& p, Level level,
                 const std::vector<LinkLoad>& load, double bytes, double gap, double io) {
  double worst = by_sockets(c) ? bytes * io / socket_rate(p, level) : 0;
  for (const LinkLoad& l : load) {
    const topology::Link& link = c.fabric->links()[l.link];
    double rate = link_rate(c, p, level, l.link);
    double carried = bytes * l.per_byte;
    double time = carried / rate;
    if (link.burst.count > 0) {
      double saved = std::min(static_cast<double>(link.burst.count), rate * gap);
      double peak = rate * link.peak.bytes_per_ps() / link.bandwidth.bytes_per_ps();
      time = std::max(carried / peak, (carried - saved) / rate);
    }
    worst = std::max(worst, time);
  }
  return gap + worst;
}

double rate_with_latency(const Communicator& c, const Profile& p, Level level,
                         const std::vector<LinkLoad>& load, double work, double steps,
                         Duration latency) {
  auto gaps = static_cast<double>(latency.ps);
  return work / std::max(steps * step_time(c, p, level, load, work / steps, gaps / steps), gaps);
}

const TransportSection& section(const Communicator& c, const Profile& p, const Hop& hop) {
  return by_sockets(c) ? socket_section(p) : p.transports.at(c.fabric->transports()[hop.transport]);
}

Duration path_latency(const Communicator& c, const Profile& p, int passes) {
  std::int64_t sum = 0;
  std::int64_t skip = INT64_MAX;
  std::size_t n = c.ring_hops.size();
  auto latency = [&](std::size_t i) { return step_latency(c, p, c.ring_hops[i % n]).ps; };
  for (std::size_t i = 0; i < n; ++i) {
    std::int64_t l = latency(i);
    sum += l;
    skip = std::min(skip, passes == 1 ? l : l + latency(i + 1));
  }
  return {passes * sum - skip};
}

const std::vector<Knot>& slowest_knots(const Communicator& c, const Profile& p) {
  const TransportSection* slowest = nullptr;
  for (const Hop& h : c.ring_hops) {
    const TransportSection& t = section(c, p, h);
    if (!slowest || t.latency > slowest->latency) slowest = &t;
  }
  return slowest->knots;
}

Duration alone(const Price& price, double per_byte) {
  Duration total;
  for (const Phase& f : price.phases) {
    total += f.latency;
    double time = f.work * per_byte;
    if (f.max_rate > 0) time = std::max(time, f.work / f.max_rate);
    if (f.work > 0) total += Duration{ceil_ps(time, 1)};
  }
  return total;
}

Duration sum_time(const Communicator& c, const Profile& p, DType type, double busiest, double all) {
  if (!sums(c, p)) return {};
  int cores = c.fabric->cluster().emulated_on_cores;
  double together = cores > 0 ? std::max(1.0, all / (busiest * cores)) : 1;
  return {ceil_ps(busiest * together, sum_rate(c, p, type))};
}

bool sums(const Communicator& c, const Profile& p) {
  return by_sockets(c) || p.reduction_bytes_per_s > 0;
}

double sum_rate(const Communicator& c, const Profile& p, DType type) {
  bool half = type == DType::Float16 || type == DType::BFloat16;
  if (half && p.half_reduction_bytes_per_s > 0) return per_ps(p.half_reduction_bytes_per_s);
  return by_sockets(c) ? socket_sum_rate(p) : per_ps(p.reduction_bytes_per_s);
}

void price_sum(const Communicator& c, const Profile& p, DType type, double chunk, Price& price) {
  if (!sums(c, p)) return;
  int cores = c.fabric->cluster().emulated_on_cores;
  double together = cores > 0 ? std::max(1.0, static_cast<double>(c.ranks()) / cores) : 1;
  double rate = sum_rate(c, p, type);
  price.reduce = {ceil_ps(chunk * together, rate)};
  price.reduce_alone = {ceil_ps(chunk, rate)};
}

Price nothing(const Communicator& c, const Profile& p) {
  Price price;
  price.algorithm = "none (one rank)";
  price.phases.push_back({.latency = launch_time(c, p), .work = 0, .weight = 1, .max_rate = 0});
  price.alone = price.phases[0].latency;
  return price;
}

}  // namespace ddpsim::collective
