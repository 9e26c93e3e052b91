// latency = T / (2 (n - 1)), of a ring's steps one after another; Gloo: T / (4 (n - 1)), two
// messages in flight, each a go-ahead and a payload (docs/model.md 4.2 with nothing on the wire);
// Open MPI: the rounds of the algorithm that it runs.
// Where more ranks than cores share a machine, messages take the cores in turn: message_core = that
// cores / n.
#include "calib/fit/message_cost.h"

#include <algorithm>
#include <map>
#include <utility>

#include "calib/fit/samples.h"
#include "sim/units/units.h"

namespace ddpsim::calib {
namespace {

bool crowded(const Point& p) {
  int cores = p.fabric->cluster().emulated_on_cores;
  return cores > 0 && p.ranks > cores;
}

// Those of the smallest size of each fabric and rank count, repetitions too.
std::vector<Point> smallest(const std::vector<Point>& points) {
  std::map<std::pair<const topology::Fabric*, int>, std::int64_t> bytes;
  for (const Point& p : points) {
    auto [it, first] = bytes.emplace(std::pair{p.fabric, p.ranks}, p.bytes);
    it->second = std::min(it->second, p.bytes);
  }
  std::vector<Point> out;
  for (const Point& p : points)
    if (bytes.at({p.fabric, p.ranks}) == p.bytes) out.push_back(p);
  return out;
}

// What single all-reduces, medians over their repetitions, say of a message.
struct Readings {
  std::vector<double> own;   // where each rank has a core: latency
  std::vector<double> core;  // where they take turns: message_core
};

double steps_of(const Point& p) {
  if (p.backend == Backend::Gloo) return 4.0 * (p.ranks - 1);
  if (p.backend != Backend::Mpi) return 2.0 * (p.ranks - 1);
  collective::Layout layout;
  layout.ranks = p.ranks;
  const collective::MpiAllReduce runs =
      collective::all_reduce_that_runs({}, p.ranks, p.bytes, element_size(DType::Float32));
  double steps = 0;
  for (const collective::Round& r :
       collective::make_rounds(algorithm_of(runs), Operation::AllReduce, layout).rounds)
    steps += r.times;
  return steps;
}

Readings readings_of(const std::vector<Point>& points) {
  Readings out;
  for (const Point& p : smallest(points)) {
    double step = p.ps / steps_of(p);
    if (crowded(p))
      out.core.push_back(step * p.fabric->cluster().emulated_on_cores / p.ranks);
    else
      out.own.push_back(step);
  }
  return out;
}

Duration median_of(const std::vector<double>& ps) {
  return {static_cast<std::int64_t>(analysis::median(ps))};
}

void widen(DurationRange& range, const std::vector<double>& readings) {
  for (double ps : readings) {
    range.low = std::min(range.low, Duration{static_cast<std::int64_t>(ps)});
    range.high = std::max(range.high, Duration{static_cast<std::int64_t>(ps)});
  }
}

std::string in_words(const TransportSection& t, const Readings& r) {
  DurationRange own{t.latency, t.latency, t.latency};
  DurationRange core{t.message_core, t.message_core, t.message_core};
  widen(own, r.own);
  widen(core, r.core);
  auto one = [](const DurationRange& d) {
    return to_string(d.mid) + " (" + to_string(d.low) + " to " + to_string(d.high) + ")";
  };
  return one(own) + ", " + one(core) + " of it on a core,";
}

// Rank counts and bytes.
using Sizes = std::map<int, std::int64_t>;

Sizes sizes_of(const std::vector<Point>& points) {
  Sizes out;
  for (const Point& p : points) {
    auto [it, first] = out.emplace(p.ranks, p.bytes);
    it->second = std::min(it->second, p.bytes);
  }
  return out;
}

}  // namespace

void fit_message_cost(const std::vector<Point>& points, TransportSection& t) {
  Readings r = readings_of(points);
  if (!r.core.empty()) t.message_core = median_of(r.core);
  t.latency = r.own.empty() ? t.message_core : median_of(r.own);
  t.latency = std::max(t.latency, t.message_core);
}

std::vector<std::string> fit_occasions(const std::vector<Point>& own, const std::string& own_name,
                                       const std::vector<OtherOccasion>& others,
                                       TransportSection& t) {
  Occasions all{1, own_name, {t.latency, t.latency, t.latency}, {}};
  all.message_core = {t.message_core, t.message_core, t.message_core};
  std::vector<std::string> notes;
  auto add = [&](const TransportSection& fitted, const std::vector<Point>& points,
                 const std::string& name) {
    Readings r = readings_of(points);
    notes.push_back("a message beside its bytes: " + in_words(fitted, r) + " on " + name);
    widen(all.latency, r.own);
    widen(all.message_core, r.core);
  };
  add(t, own, own_name);
  Sizes wanted = sizes_of(own);
  for (const OtherOccasion& o : others) {
    std::vector<Point> alike;
    Sizes found;
    for (const Point& p : o.points)
      if (auto it = wanted.find(p.ranks); it != wanted.end() && it->second == p.bytes) {
        alike.push_back(p);
        found.emplace(p.ranks, p.bytes);
      }
    if (found != wanted) {
      notes.push_back("left out of the range: " + o.name +
                      ", which lacks clean all-reduces of the sizes and rank counts that the "
                      "profile's cost of a message is from");
      continue;
    }
    TransportSection there = t;
    fit_message_cost(alike, there);
    add(there, alike, o.name);
    all.source += "; " + o.name;
    ++all.count;
  }
  // What of a message needs a core is a part of it, at both ends too.
  all.latency.low = std::max(all.latency.low, all.message_core.low);
  all.latency.high = std::max(all.latency.high, all.message_core.high);
  t.occasions.reset();
  if (all.count > 1) {
    notes.push_back("a range over " + std::to_string(all.count) +
                    " occasions: predictions' intervals hold it");
    t.occasions = std::move(all);
  } else {
    notes.push_back("seen on one occasion: by how much it differs on another is not known");
  }
  return notes;
}

}  // namespace ddpsim::calib
