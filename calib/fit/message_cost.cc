// latency = T / (2 (n - 1)), of a ring's steps one after another; Gloo: T / (4 (n - 1)), two
// messages in flight, each a go-ahead and a payload (sim/MODEL.md 4.2 with nothing on the wire).
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

std::vector<Point> smallest(const std::vector<Point>& points) {
  std::map<std::pair<const topology::Fabric*, int>, Point> found;
  for (const Point& p : points) {
    auto [it, first] = found.emplace(std::pair{p.fabric, p.ranks}, p);
    if (!first && p.bytes < it->second.bytes) it->second = p;
  }
  std::vector<Point> out;
  for (const auto& [key, p] : found) out.push_back(p);
  return out;
}

Duration median_of(const std::vector<double>& ps) {
  return {static_cast<std::int64_t>(analysis::median(ps))};
}

std::string in_words(const TransportSection& t) {
  return to_string(t.latency) + " (" + to_string(t.message_core) + " of it on a core)";
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
  std::vector<double> own;
  std::vector<double> core;
  for (const Point& p : smallest(points)) {
    double step = p.ps / ((p.backend == Backend::Gloo ? 4.0 : 2.0) * (p.ranks - 1));
    if (crowded(p))
      core.push_back(step * p.fabric->cluster().emulated_on_cores / p.ranks);
    else
      own.push_back(step);
  }
  if (!core.empty()) t.message_core = median_of(core);
  t.latency = own.empty() ? t.message_core : median_of(own);
  t.latency = std::max(t.latency, t.message_core);
}

std::vector<std::string> fit_occasions(const std::vector<Point>& own, const std::string& own_name,
                                       const std::vector<OtherOccasion>& others,
                                       TransportSection& t) {
  std::vector<std::string> notes{"a message beside its bytes: " + in_words(t) + " on " + own_name};
  Occasions all{1, own_name, {t.latency, t.latency, t.latency}, {}};
  all.message_core = {t.message_core, t.message_core, t.message_core};
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
    notes.push_back("a message beside its bytes: " + in_words(there) + " on " + o.name);
    all.latency.low = std::min(all.latency.low, there.latency);
    all.latency.high = std::max(all.latency.high, there.latency);
    all.message_core.low = std::min(all.message_core.low, there.message_core);
    all.message_core.high = std::max(all.message_core.high, there.message_core);
    all.source += "; " + o.name;
    ++all.count;
  }
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
