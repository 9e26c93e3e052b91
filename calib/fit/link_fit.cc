// Efficiency from sizes of 16 MiB and more, latency from those below, on grids; the machines'
// medians are summed, and the distance from the profile.
#include "calib/fit/link_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "calib/fit/table_rows.h"

namespace ddpsim::calib {
namespace {

// Rows of a table that a search is judged by, by band. They are chosen before it: a value that
// could choose its rows would be best where none is left.
using Judges = std::array<std::vector<const CollectiveRow*>, kBands>;

// The term that a search varies. Efficiency: rows that the transport limits. Steps: rows of which
// most steps' latency passes over it.
enum class About : std::uint8_t { Efficiency, Steps };
const std::vector<Band>& bands_of(About about) {
  static const std::vector<Band> large{Band::Large};
  static const std::vector<Band> rest{Band::Small, Band::Middle};
  return about == About::Efficiency ? large : rest;
}
bool is_network(const std::string& transport) {
  return topology::kind_of(transport) == topology::LinkKind::Net;
}
double& value_of(LinkFit& f, About about, const std::string& transport) {
  return about == About::Efficiency ? f.efficiency
         : is_network(transport)    ? f.slower_us
                                    : f.step_factor;
}

// A band of which a few rows only are about the transport has none.
Judges judges_of(const CollectiveTable& t, const LinkFits& fits, About about,
                 const std::string& transport) {
  Judges out;
  std::array<std::size_t, kBands> all{};
  Profile p = with_fits(t.profile, fits);
  for (const CollectiveRow& row : t.rows) {
    auto band = static_cast<std::size_t>(band_of(row.bytes));
    ++all[band];
    if (!row.available) continue;
    CollectiveRow r = row;
    predict_row(t, p, r);
    bool says = about == About::Efficiency
                    ? r.price.limiting_transport == transport
                    : r.price.step_transport == transport && r.predicted == r.price.total;
    if (says) out[band].push_back(&row);
  }
  for (std::size_t b = 0; b < kBands; ++b)
    if (2 * out[b].size() < all[b]) out[b].clear();
  return out;
}

// Mean over these bands of the median error of their judges. -1 = there are none.
double error_by(const CollectiveTable& t, const Judges& judges, const LinkFits& fits,
                const std::vector<Band>& bands) {
  Profile p = with_fits(t.profile, fits);
  double sum = 0;
  int n = 0;
  for (Band b : bands) {
    std::vector<double> errors;
    for (const CollectiveRow* row : judges[static_cast<std::size_t>(b)]) {
      CollectiveRow r = *row;
      predict_row(t, p, r);
      errors.push_back(std::abs(error_of(r.predicted, r.measured)));
    }
    if (errors.empty()) continue;
    sum += std::min(1.0, median_of(std::move(errors)));
    ++n;
  }
  return n == 0 ? -1 : sum / n;
}

// Tables that have a say in something, each with its judges.
using Jury = std::vector<std::pair<const CollectiveTable*, Judges>>;

// Sum over machines; a machine counts once, however many tables it has.
double error_by(const Jury& jury, const LinkFits& fits, const std::vector<Band>& bands) {
  std::map<std::string, std::pair<double, int>> machines;
  for (const auto& [t, judges] : jury) {
    double e = error_by(*t, judges, fits, bands);
    if (e < 0) continue;
    machines[t->machine].first += e;
    ++machines[t->machine].second;
  }
  double sum = 0;
  for (const auto& [name, of] : machines) sum += of.first / of.second;
  return sum;
}

// Puts the best value of a grid into `fits`: by the jury's error and the prior's distance.
// How many tables had a say.
template <class Prior>
int search(const std::vector<const CollectiveTable*>& tables, const std::vector<double>& grid,
           About about, const std::string& transport, LinkFits& fits, Prior prior) {
  Jury jury;
  for (const CollectiveTable* t : tables) {
    Judges judges = judges_of(*t, fits, about, transport);
    bool any = false;
    for (Band b : bands_of(about)) any = any || !judges[static_cast<std::size_t>(b)].empty();
    if (any) jury.push_back({t, std::move(judges)});
  }
  if (jury.empty()) return 0;
  double& value = value_of(fits[transport], about, transport);
  double best = value;
  double least = 1e30;
  for (double v : grid) {
    value = v;
    double cost = prior(v) + error_by(jury, fits, bands_of(about));
    if (cost >= least - 1e-12) continue;
    least = cost;
    best = v;
  }
  value = best;
  return static_cast<int>(jury.size());
}

// All rows of the bands that a search is about.
double whole_error(const std::vector<const CollectiveTable*>& tables, const LinkFits& fits,
                   About about) {
  Jury jury;
  for (const CollectiveTable* t : tables) {
    Judges all;
    for (const CollectiveRow& r : t->rows)
      if (r.available) all[static_cast<std::size_t>(band_of(r.bytes))].push_back(&r);
    jury.push_back({t, std::move(all)});
  }
  return error_by(jury, fits, bands_of(about));
}

using TablesOf = std::map<std::string, std::vector<const CollectiveTable*>>;

// A link that limits no table's larger sizes as fitted could as well be faster.
void forget_idle(const TablesOf& of, LinkFits& fits) {
  for (const auto& [name, list] : of) {
    bool limits = false;
    for (const CollectiveTable* t : list) {
      Profile p = with_fits(t->profile, fits);
      for (const CollectiveRow& row : t->rows) {
        if (!row.available || band_of(row.bytes) != Band::Large) continue;
        CollectiveRow r = row;
        predict_row(*t, p, r);
        limits = limits || r.price.limiting_transport == name;
      }
    }
    if (!limits) fits[name].efficiency_told = false;
  }
}

}  // namespace

std::string steps_text(const std::string& transport, const LinkFit& fit) {
  return is_network(transport) ? fmt::format("{:+.1f} us", fit.slower_us)
                               : fmt::format("x {:.2f}", fit.step_factor);
}

Profile with_fits(Profile p, const LinkFits& fits) {
  for (const auto& [name, fit] : fits) {
    auto it = p.transports.find(name);
    if (it == p.transports.end()) continue;
    TransportSection& t = it->second;
    t.step_factor *= fit.step_factor;
    const std::int64_t more = std::llround(fit.slower_us * 1e6);
    auto slower = [more](Duration d) { return Duration{std::max<std::int64_t>(0, d.ps + more)}; };
    t.latency = slower(t.latency);
    if (t.ll_latency) t.ll_latency = slower(*t.ll_latency);
    t.efficiency.mid = std::min(1.0, t.efficiency.mid * fit.efficiency);
  }
  return p;
}

LinkFits fit_links(const std::vector<CollectiveTable>& tables, const std::string& without,
                   int generation) {
  TablesOf of;
  LinkFits fits;
  for (const CollectiveTable& t : tables)
    for (const std::string& name : transports_of(t)) {
      if (t.machine != without) of[name].push_back(&t);
      fits[name];
    }
  std::vector<double> shares;
  for (int k = 0; k <= 60; ++k) shares.push_back(0.70 + 0.01 * k);
  std::vector<double> factors;
  for (int k = 0; k <= 50; ++k) factors.push_back(0.5 + 0.05 * k);
  std::vector<double> microseconds;
  for (int k = -20; k <= 80; ++k) microseconds.push_back(0.5 * k);
  constexpr double kUsualStepUs = 5;  // NCCL's number of a tree's over a network, LL
  for (int round = 0; round < 2; ++round)
    for (const auto& [name, list] : of) {
      LinkFit& f = fits[name];
      f.tables = static_cast<int>(list.size());
      int told = search(list, shares, About::Efficiency, name, fits,
                        [](double v) { return 0.02 * std::abs(v - 1); });
      f.efficiency_told = told > 0;
      std::vector<const CollectiveTable*> alike;
      for (const CollectiveTable* t : list)
        if (is_network(name) || (generation_of(*t) == generation && nccl::nodes(*t->group) == 1))
          alike.push_back(t);
      f.step_tables = static_cast<int>(alike.size());
      told = is_network(name) ? search(alike, microseconds, About::Steps, name, fits,
                                       [](double v) { return 0.02 * std::abs(v) / kUsualStepUs; })
                              : search(alike, factors, About::Steps, name, fits, [](double v) {
                                  return 0.02 * std::abs(v > 1 ? v - 1 : 1 / v - 1);
                                });
      f.steps_told = told > 0;
    }
  forget_idle(of, fits);
  return fits;
}

void refuse_worse(const std::vector<CollectiveTable>& tables, LinkFits& fits) {
  std::vector<const CollectiveTable*> all;
  LinkFits base;
  for (const CollectiveTable& t : tables) all.push_back(&t);
  for (const auto& [name, fit] : fits) base[name];
  for (About about : {About::Efficiency, About::Steps}) {
    if (whole_error(all, fits, about) <= whole_error(all, base, about)) continue;
    for (auto& [name, fit] : fits) {
      LinkFit usual;
      value_of(fit, about, name) = value_of(usual, about, name);
      (about == About::Efficiency ? fit.efficiency_told : fit.steps_told) = false;
    }
  }
}

}  // namespace ddpsim::calib
