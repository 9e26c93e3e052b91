#include "calib/fit/fit.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "calib/fit/message_cost.h"
#include "calib/fit/occasions.h"
#include "calib/fit/samples.h"

namespace ddpsim::calib {
namespace {

collective::Communicator communicator(const Point& p) {
  return collective::make_communicator(*p.fabric, first_devices(p.ranks), p.backend);
}

double priced(const Point& p, const Profile& profile) {
  return static_cast<double>(
      collective::all_reduce(communicator(p), profile, Level::Mid, {p.bytes}).alone.ps);
}

std::string transport_of(const Point& p) {
  return p.fabric->transports()[communicator(p).ring_hops.front().transport];
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

// Wake-up of an idle communication thread: begin - ready of collectives that found it idle.
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

// How long a small broadcast between two hosts takes that were silent, less its message: what it
// costs to begin.
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

// Gloo sums halves in software: the rate at which the price of an all-reduce of halves is what was
// measured, by bisection.
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

constexpr double kSmallMatrix = 16 << 10;  // bytes of one whose product is its operators' calls
constexpr std::int64_t kLarge = 1 << 20;   // bytes of a tensor whose kernels do not count

// What `with` adds to `without`, of a model without computation: {tensors, bytes of each, ranks at
// once} -> picoseconds.
using Added = std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, double>;
Added added(const std::vector<FitCollectives>& runs, const char* without, const char* with) {
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>,
           std::map<bool, std::vector<double>>>
      found;
  for (const FitCollectives& c : runs)
    for (const Sample& s : c.run->samples)
      if (bool more = s.op == with; more || s.op == without)
        found[{parameter(s, "tensors"), parameter(s, "bytes"), parameter(s, "ranks")}][more]
            .push_back(median_ps(s));
  Added out;
  for (const auto& [key, sides] : found)
    if (sides.size() == 2)
      out[key] = analysis::median(sides.at(true)) - analysis::median(sides.at(false));
  return out;
}

// fp16_compress_hook reads and writes four times the bucket's bytes, and divides half of them: what
// large buckets take, less the traffic.
void fit_half_division(const Added& by_hook, Fit& out) {
  std::vector<double> found;
  for (const auto& [key, ps] : by_hook) {
    auto [tensors, bytes, ranks] = key;
    auto total = static_cast<double>(bytes * tensors);
    double left = ps - 4e12 * total / out.profile.memory.bandwidth_bytes_per_s;
    if (bytes >= kLarge && ranks == 1 && left > 0) found.push_back(0.5e12 * total / left);
  }
  out.profile.memory.half_divide_bytes_per_s =
      found.empty() ? 0 : std::round(analysis::median(found));
  if (!found.empty())
    out.notes.push_back(
        "division of halves: " + number("%.2f", out.profile.memory.half_divide_bytes_per_s / 1e9) +
        " GB/s a core");
}

// Products of a matrix with a few columns (PowerSGD's three): of small ones what an operator that
// Python calls costs, of large ones the matrix's bytes over the rest of their time.
void fit_thin_products(const std::vector<FitCollectives>& runs, Fit& out) {
  std::vector<const Sample*> all;
  for (const FitCollectives& c : runs)
    for (const Sample& s : c.run->samples)
      if (s.op == "thin_product") all.push_back(&s);
  auto bytes = [](const Sample& s) {
    return 4.0 * static_cast<double>(parameter(s, "rows") * parameter(s, "columns"));
  };
  std::vector<double> small;
  for (const Sample* s : all)
    if (bytes(*s) <= kSmallMatrix)
      small.push_back(median_ps(*s) / static_cast<double>(parameter(*s, "operators")));
  const double call = small.empty() ? 0 : analysis::median(small);
  std::vector<double> found;
  for (const Sample* s : all) {
    const double left = median_ps(*s) - call * static_cast<double>(parameter(*s, "operators"));
    if (bytes(*s) >= static_cast<double>(kLarge) && left > 0)
      found.push_back(1e12 * bytes(*s) / left);
  }
  if (found.empty()) return;
  out.profile.host.small_operator = {std::llround(call)};
  out.profile.memory.thin_product_bytes_per_s = std::round(analysis::median(found));
  auto [slowest, fastest] = std::minmax_element(found.begin(), found.end());
  out.notes.push_back("products of matrices with a few columns: " +
                      number("%.2f", analysis::median(found) / 1e9) + " GB/s of the matrix (" +
                      number("%.1f", *slowest / 1e9) + " to " + number("%.1f", *fastest / 1e9) +
                      "), and " + number("%.1f", call / 1e6) + " us an operator that Python calls");
}

// DDP copies a gradient into its bucket and out again: two reads and two writes of it, two kernels
// and one hook a parameter.
//   small ones: hook + 2 kernels;   large ones, less that: 4 S / bandwidth, of one rank alone and
//                                   of several at once
void fit_framework(const std::vector<FitCollectives>& runs, Fit& out) {
  Added by_ddp = added(runs, "bare_backward", "ddp_backward");
  if (by_ddp.empty()) return;
  Profile& p = out.profile;
  constexpr std::int64_t kSmall = 16 << 10;
  std::vector<double> each;
  for (const auto& [key, ps] : by_ddp)
    if (auto [tensors, bytes, ranks] = key; bytes <= kSmall && ranks == 1)
      each.push_back(ps / static_cast<double>(tensors));
  if (each.empty()) return;
  double small = std::max(0.0, analysis::median(each));
  std::vector<double> alone;
  std::vector<double> together;
  for (const auto& [key, ps] : by_ddp) {
    auto [tensors, bytes, ranks] = key;
    if (bytes < kLarge) continue;
    double rate = 4e12 * static_cast<double>(bytes * tensors) /
                  std::max(1.0, ps - small * static_cast<double>(tensors));
    (ranks == 1 ? alone : together).push_back(rate * static_cast<double>(ranks));
  }
  if (alone.empty()) return;
  // One hook and two kernels are not told apart: a third each.
  p.host.hook = p.memory.kernel = {static_cast<std::int64_t>(small / 3)};
  p.host.basis = p.memory.basis = Evidence::Measured;
  p.host.source =
      "fitted: hook and kernels of one small parameter under DDP, a third each; launch, "
      "collective_launch and traverse as in the base profile";
  p.memory.source =
      "fitted: DDP's copies of large parameters by one rank, and by several at once "
      "(shared_bytes_per_s)";
  p.memory.bandwidth_bytes_per_s = std::round(analysis::median(alone));
  auto [slowest, fastest] = std::minmax_element(alone.begin(), alone.end());
  p.memory.efficiency = {std::min(1.0, *slowest / p.memory.bandwidth_bytes_per_s), 1, 1};
  out.notes.push_back(
      "DDP's own work: " + number("%.1f", small / 1e6) + " us a parameter, copies at " +
      number("%.1f", p.memory.bandwidth_bytes_per_s / 1e9) + " GB/s (" +
      number("%.1f", *slowest / 1e9) + " to " + number("%.1f", *fastest / 1e9) + ")");
  fit_half_division(added(runs, "ddp_backward", "half_backward"), out);
  if (together.empty()) return;
  p.memory.shared_bytes_per_s = std::round(analysis::median(together));
  out.notes.push_back("copies of several ranks at once: " +
                      number("%.1f", p.memory.shared_bytes_per_s / 1e9) + " GB/s together");
}

// Of Gloo's, those in which every segment holds something: the others are not a ring's price.
std::vector<Point> points_of(const std::vector<FitCollectives>& runs) {
  std::vector<Point> out;
  for (const FitCollectives& c : runs)
    for (const Sample& s : c.run->samples) {
      if (s.op != "all_reduce") continue;
      Point p{c.fabric, c.backend, static_cast<int>(parameter(s, "ranks")), parameter(s, "bytes"),
              median_ps(s)};
      if (p.backend != Backend::Gloo || p.bytes >= 8 * p.ranks) out.push_back(p);
    }
  return out;
}

// A profile is of one occasion: that on which most steps were executed; of several, that with most
// all-reduces, then the last. Samples of others tell how far a message's cost goes.
struct Split {
  std::string name;
  std::vector<FitCollectives> collectives;
  std::vector<OtherOccasion> others;
};
Split split_by_occasion(const std::vector<FitCollectives>& all, const std::vector<FitStep>& steps) {
  std::vector<const Run*> runs;
  for (const FitCollectives& c : all) runs.push_back(c.run);
  for (const FitStep& s : steps) runs.push_back(s.run);
  struct Found {
    Occasion occasion;
    std::vector<FitCollectives> collectives;
    std::vector<Point> points;
  };
  std::vector<Found> found;
  for (Occasion& o : occasions(runs)) {
    Found f{std::move(o), {}, {}};
    for (std::size_t run : f.occasion.runs)
      if (run < all.size()) f.collectives.push_back(all[run]);
    f.points = points_of(f.collectives);
    if (!f.points.empty()) found.push_back(std::move(f));
  }
  if (found.empty()) return {"", all, {}};
  auto rank = [](const Found& f) {
    return std::tuple{f.occasion.runs.size() - f.collectives.size(), f.points.size(),
                      f.occasion.first};
  };
  auto own = std::max_element(found.begin(), found.end(),
                              [&](const Found& a, const Found& b) { return rank(a) < rank(b); });
  Split out{name_of(own->occasion), own->collectives, {}};
  for (Found& f : found) {
    if (&f == &*own) continue;
    // A noisy Run tells what else the machine did, rather than how it schedules these threads.
    std::erase_if(f.collectives,
                  [](const FitCollectives& c) { return c.run->quality.verdict == Verdict::Noisy; });
    out.others.push_back({name_of(f.occasion), points_of(f.collectives)});
  }
  return out;
}

}  // namespace

Fit fit(const Profile& base, const std::string& name, const std::vector<FitCollectives>& all,
        const std::vector<FitStep>& steps) {
  Fit out;
  Profile& p = out.profile;
  p = base;
  p.name = name;
  Split split = split_by_occasion(all, steps);
  const std::vector<FitCollectives>& collectives = split.collectives;
  std::vector<Point> points = points_of(collectives);
  std::vector<double> reduction;
  std::vector<double> half;
  for (const FitCollectives& c : collectives)
    for (const Sample& s : c.run->samples) {
      // A core's own rate: where no rank waits for a core.
      if (s.op == "ring_sum" &&
          parameter(s, "ranks") <= std::max(2, c.fabric->cluster().emulated_on_cores))
        (parameter(s, "element_bytes") == 2 ? half : reduction)
            .push_back(static_cast<double>(parameter(s, "bytes")) / median_ps(s) * 1e12);
    }
  if (points.empty())
    throw InputError{
        "fit",
        "no Run holds all_reduce samples (ddpsim calibrate --backend tcp --runs DIR makes one)"};
  std::sort(points.begin(), points.end(), [](const Point& a, const Point& b) {
    return std::tie(a.ranks, a.bytes) < std::tie(b.ranks, b.bytes);
  });
  std::string transport = transport_of(points.front());
  if (!p.transports.count(transport))
    throw InputError{"fit", "the base profile has no transport \"" + transport + "\""};
  std::set<int> counts;
  std::set<std::int64_t> sizes;
  for (const Point& q : points) counts.insert(q.ranks), sizes.insert(q.bytes);
  out.identified = counts.size() > 1;
  if (!reduction.empty()) {
    p.reduction_bytes_per_s = std::round(analysis::median(reduction));
    p.reduction_basis = Evidence::Measured;
    out.notes.push_back("reduction: " + number("%.2f", p.reduction_bytes_per_s / 1e9) +
                        " GB/s a core, sums of received chunks in rings");
  }
  if (!half.empty()) p.half_reduction_bytes_per_s = std::round(analysis::median(half));
  fit_network(points, p);
  TransportSection& t = p.transports.at(transport);
  t.basis = Evidence::Measured;
  for (std::string& note : fit_occasions(points, split.name, split.others, t))
    out.notes.push_back(std::move(note));
  // Core time per byte of message, sums taken off. Tcp: where as many ranks as cores run, so that
  // nobody waits.
  std::vector<double> cpu;
  for (const FitCollectives& c : collectives)
    for (const Sample& s : c.run->samples) {
      if (s.op != "all_reduce_cpu" || (c.backend == Backend::Tcp && parameter(s, "ranks") != 2))
        continue;
      if (c.backend == Backend::Gloo && parameter(s, "bytes") < (16 << 20))
        continue;  // the kernel counts in ticks
      double moved = 2.0 * (static_cast<double>(parameter(s, "ranks")) - 1) *
                     static_cast<double>(parameter(s, "bytes"));
      double sums = p.reduction_bytes_per_s > 0 ? 0.5e12 / p.reduction_bytes_per_s : 0;
      cpu.push_back(std::max(0.0, median_ps(s) / moved - sums));
    }
  if (!cpu.empty()) {
    t.cpu_ps_per_byte = std::round(analysis::median(cpu) * 10) / 10;
    out.notes.push_back("core time of the network: " + number("%.0f", t.cpu_ps_per_byte) +
                        " ps a byte sent and received");
  }
  if (points.front().backend == Backend::Gloo) {
    fit_launch(collectives, t);
    fit_half_sums(collectives, p);
    if (p.half_reduction_bytes_per_s > 0)
      out.notes.push_back("sums of halves: " + number("%.2f", p.half_reduction_bytes_per_s / 1e9) +
                          " GB/s a core");
  }
  fit_framework(collectives, out);
  fit_thin_products(all, out);
  std::vector<double> wakes;
  for (const FitStep& s : steps)  // a framework's Run does not say when a collective was picked up
    if (s.run->quality.verdict == Verdict::Clean && s.run->evidence == EvidenceClass::Replay)
      if (std::vector<double> w = wake_ups(*s.run); !w.empty())
        wakes.push_back(analysis::median(w));
  if (!wakes.empty()) {
    t.launch = {static_cast<std::int64_t>(analysis::median(wakes))};
    out.notes.push_back(
        "launch: " + number("%.1f", static_cast<double>(t.launch.ps) / 1e6) +
        " us, wake-up of an idle communication thread: median over executed runs of their medians");
  }
  t.source = "fitted from " + std::to_string(points.size()) + " all-reduce points at " +
             std::to_string(counts.size()) + " rank counts and " + std::to_string(steps.size()) +
             " executed steps";
  auto without = [&](auto leave) {
    std::vector<Point> kept;
    for (const Point& q : points)
      if (!leave(q)) kept.push_back(q);
    Profile again = p;
    if (!kept.empty()) fit_network(kept, again);
    return again;
  };
  std::map<std::int64_t, Profile> by_size;
  std::map<int, Profile> by_count;
  for (std::int64_t s : sizes) by_size[s] = without([s](const Point& q) { return q.bytes == s; });
  for (int n : counts) by_count[n] = without([n](const Point& q) { return q.ranks == n; });
  for (const Point& q : points)
    out.residuals.push_back({q.ranks, q.bytes, Duration{static_cast<std::int64_t>(q.ps)},
                             priced(q, p) / q.ps - 1, priced(q, by_size[q.bytes]) / q.ps - 1,
                             priced(q, by_count[q.ranks]) / q.ps - 1});
  std::set<std::string> seen;
  std::vector<double> errors;
  for (const FitStep& s : steps) {
    predict::Question question{*s.workload, *s.fabric, p, *s.scenario};
    if (p.kind != s.fabric->cluster().device) continue;
    if (predict::check(question) || s.run->quality.verdict == Verdict::Noisy) continue;
    bool mean = !s.scenario->other_jobs.empty();
    double measured = static_cast<double>(analysis::typical_step(*s.run, mean).ps);
    predict::Options usual;
    usual.fidelity = predict::usual_fidelity(question);
    errors.push_back(std::abs(
        static_cast<double>(predict::steady_period(question, Level::Mid, usual).ps) / measured -
        1));
  }
  for (const FitStep& s : steps)
    if (!s.run->scenario.empty()) seen.insert(s.run->scenario);
  p.fitted_from.assign(seen.begin(), seen.end());
  if (!errors.empty()) {
    p.step_residual = std::ceil(analysis::percentile(errors, 80) * 1e5) / 1e5;
    out.notes.push_back("interval: 80 % of " + std::to_string(errors.size()) +
                        " fit-set steps were predicted within " +
                        number("%.2f", 100 * p.step_residual) + " %");
  }
  return out;
}

}  // namespace ddpsim::calib
