#include "calib/fit/network.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "calib/fit/samples.h"

namespace ddpsim::calib {
namespace {

collective::Communicator communicator(const Point& p) {
  return collective::make_communicator(*p.fabric, first_devices(p.ranks), p.backend);
}

std::int64_t chunk(const Point& p) {
  return p.bytes / p.ranks;
}

// Gloo's efficiency: the slope between the two largest sizes of each rank count. What passes before
// the wire is busy is small there, and not the latency that small messages see: it overlaps.
void fit_slope(const std::vector<Point>& points, const Profile& profile, TransportSection& t) {
  std::map<std::pair<const topology::Fabric*, int>, std::map<std::int64_t, double>> by_size;
  for (const Point& p : points) by_size[{p.fabric, p.ranks}][p.bytes] = p.ps;
  std::vector<double> found;
  t.efficiency = {1, 1, 1};
  for (const auto& [key, sizes] : by_size) {
    if (sizes.size() < 2) continue;
    auto large = sizes.rbegin();
    auto next = std::next(large);
    collective::Communicator c = communicator({key.first, Backend::Gloo, key.second, 0, 0});
    double wire = 0;  // of one byte over every hop, picoseconds
    for (const auto& l : c.pattern(Operation::AllReduce).load)
      wire = std::max(wire, l.per_byte / collective::link_rate(c, profile, Level::Mid, l.link));
    double ideal =
        wire * 2 * (key.second - 1) / key.second * static_cast<double>(large->first - next->first);
    found.push_back(std::min(1.0, ideal / (large->second - next->second)));
  }
  if (found.empty()) return;
  auto [worst, best] = std::minmax_element(found.begin(), found.end());
  t.efficiency = {*worst, analysis::median(found), *best};
}

// Efficiency: the largest chunk of each rank count, by bisection on the price.
void fit_efficiency(const std::vector<Point>& points, Profile& profile, TransportSection& t) {
  std::map<std::pair<const topology::Fabric*, int>, Point> largest;
  for (const Point& p : points) {
    Point& best = largest[{p.fabric, p.ranks}];
    if (p.bytes > best.bytes) best = p;
  }
  std::vector<double> found;
  for (const auto& [key, p] : largest) {
    double low = 0.2;
    double high = 1.2;
    for (int i = 0; i < 40; ++i) {
      double mid = (low + high) / 2;
      t.efficiency = {mid, mid, mid};
      (priced(p, profile) > p.ps ? low : high) = mid;
    }
    found.push_back(low);
  }
  double mid = std::min(1.0, analysis::median(found));
  auto [worst, best] = std::minmax_element(found.begin(), found.end());
  t.efficiency = {std::min(mid, *worst), mid, std::max(mid, std::min(1.0, *best))};
}

constexpr double kTrust = 0.5;  // a point moves a knot by the share of its time that is transfer,
                                // and not at all below this

void fit_knots(const std::vector<Point>& points, Profile& profile, TransportSection& t) {
  t.knots.clear();
  std::map<std::int64_t, std::vector<double>> by_chunk;
  std::int64_t top = 0;
  for (const Point& p : points) top = std::max(top, chunk(p));
  for (const Point& p : points) {
    double price = priced(p, profile);
    collective::Communicator c = communicator(p);
    double wire = 0;
    for (const auto& l : c.pattern(Operation::AllReduce).load)
      wire = std::max(wire, l.per_byte / collective::link_rate(c, profile, Level::Mid, l.link));
    double share =
        std::min(1.0, wire * static_cast<double>(p.bytes) * 2 * (p.ranks - 1) / p.ranks / price);
    if (share < kTrust) continue;
    std::int64_t octave = 1;
    while (octave * 2 <= chunk(p)) octave *= 2;
    by_chunk[octave].push_back(1 + (p.ps / price - 1) * share);
  }
  for (const auto& [octave, factors] : by_chunk)
    t.knots.push_back(
        {octave, octave * 2 > top ? 1.0 : std::round(analysis::median(factors) * 1e5) / 1e5});
}

// Open MPI: what messages above the eager limit wait for their receivers, of all-reduces whose
// largest message is one of at most four times the limit, by bisection on the price. Launch: no
// part of a small all-reduce is left for it.
void fit_rendezvous(const std::vector<Point>& points, Profile& profile, TransportSection& t) {
  constexpr std::int64_t kEager = collective::OpenMpi{}.eager;
  t.launch = t.rendezvous = {};
  std::vector<double> waits;
  for (const Point& p : points) {
    const std::int64_t message =
        collective::all_reduce(communicator(p), profile, Level::Mid, {p.bytes}).chunk;
    if (message <= kEager + 1 || message > 4 * kEager) continue;
    double low = 0;
    double high = 1e11;
    for (int i = 0; i < 40; ++i) {
      t.rendezvous = {static_cast<std::int64_t>((low + high) / 2)};
      (priced(p, profile) > p.ps ? high : low) = (low + high) / 2;
    }
    waits.push_back(low);
  }
  t.rendezvous = {waits.empty() ? 0 : static_cast<std::int64_t>(analysis::median(waits))};
}

}  // namespace

double priced(const Point& p, const Profile& profile) {
  return static_cast<double>(
      collective::all_reduce(communicator(p), profile, Level::Mid, {p.bytes}).alone.ps);
}

std::string transport_of(const Point& p) {
  return p.fabric->transports()[communicator(p).ring_hops.front().transport];
}

void fit_network(const std::vector<Point>& points, Profile& profile) {
  TransportSection& t = profile.transports.at(transport_of(points.front()));
  t.knots.clear();
  fit_message_cost(points, t);
  if (points.front().backend == Backend::Mpi) {
    return fit_rendezvous(points, profile, t);
  }
  if (points.front().backend == Backend::Gloo) return fit_slope(points, profile, t);
  fit_efficiency(points, profile, t);
  fit_knots(points, profile, t);
}

std::vector<double> wake_ups(const Run& run) {
  std::vector<double> out;
  std::map<std::pair<int, int>, TimePoint> busy_until;
  for (const Span& s : run.spans) {
    if (!is_collective(s.kind)) continue;
    TimePoint& until =
        busy_until.try_emplace({s.step, s.actor}, TimePoint{INT64_MIN}).first->second;
    if (s.ready > until) out.push_back(static_cast<double>((s.begin - s.ready).ps));
    until = std::max(until, s.end);
  }
  return out;
}

void fit_launch(const std::vector<FitCollectives>& runs, TransportSection& t) {
  std::vector<double> found;
  for (const FitCollectives& c : runs)
    for (const Sample& s : c.run->samples)
      if (s.op == "broadcast_idle" && parameter(s, "ranks") == 2 && parameter(s, "bytes") <= 1024)
        found.push_back(median_ps(s));
  if (!found.empty())
    t.launch = std::max(Duration{},
                        Duration{static_cast<std::int64_t>(analysis::median(found))} - t.latency);
}

void fit_half_sums(const std::vector<FitCollectives>& runs, Profile& p) {
  std::vector<double> found;
  for (const FitCollectives& c : runs) {
    if (c.backend != Backend::Gloo) continue;
    for (const Sample& s : c.run->samples) {
      if (s.op != "half_all_reduce" || parameter(s, "bytes") < (4 << 20)) continue;
      Point point{c.fabric, Backend::Gloo, static_cast<int>(parameter(s, "ranks")),
                  parameter(s, "bytes"), median_ps(s)};
      double low = 1e7;
      double high = 1e11;
      for (int i = 0; i < 50; ++i) {
        p.half_reduction_bytes_per_s = (low + high) / 2;
        double price =
            static_cast<double>(collective::all_reduce(communicator(point), p, Level::Mid,
                                                       {point.bytes}, DType::Float16)
                                    .alone.ps);
        (price > point.ps ? low : high) = p.half_reduction_bytes_per_s;
      }
      if (high < 1e10) found.push_back(low);  // else the wire hides it
    }
  }
  p.half_reduction_bytes_per_s = found.empty() ? 0 : std::round(analysis::median(found));
}

}  // namespace ddpsim::calib
