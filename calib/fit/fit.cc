#include "calib/fit/fit.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "calib/fit/framework.h"
#include "calib/fit/network.h"
#include "calib/fit/occasions.h"
#include "calib/fit/samples.h"

namespace ddpsim::calib {
namespace {

// The Runs' all-reduces; of Gloo's, those in which every segment holds something: the others are
// not a ring's price.
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
