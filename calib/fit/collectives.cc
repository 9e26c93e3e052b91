// Efficiency from sizes of 16 MiB and more, latency from those below, on grids; the machines'
// medians are summed, and the distance from the profile.
#include "calib/fit/collectives.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "calib/fit/constants.h"
#include "sim/analysis/compare.h"

namespace ddpsim::calib {
namespace {

// 0 of nothing.
double median_of(std::vector<double> v) {
  return v.empty() ? 0 : analysis::median(std::move(v));
}

double percentile_of(std::vector<double> v, double percent) {
  return v.empty() ? 0 : analysis::percentile(std::move(v), percent);
}

double error_of(Duration predicted, Duration measured) {
  return predicted / measured - 1;
}

// Transports that the table's messages cross.
std::set<std::string> transports_of(const CollectiveTable& t) {
  std::set<std::string> out;
  for (std::uint8_t transport : nccl::wiring(*t.group).transports)
    out.insert(nccl::fabric(*t.group).transports()[transport]);
  return out;
}

// Rows of a table that a search is judged by, by band. They are chosen before it: a value that
// could choose its rows would be best where none is left.
using Judges = std::array<std::vector<const CollectiveRow*>, kBands>;

void predict_row(const CollectiveTable& t, const Profile& p, CollectiveRow& row) {
  row.price = nccl::time_of(*t.group, p, Level::Mid, t.op, row.choice, {row.bytes});
  row.predicted = nccl::nccl_tests_time(*t.group, p, row.price, row.choice, t.gpus_per_process);
}

// What a search varies. Efficiency: rows that the transport limits. Steps: rows of which most
// steps' latency passes over it.
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

void find_cliffs(TableResult& t) {
  for (std::size_t i = 1; i < t.rows.size(); ++i) {
    const CollectiveRow& a = t.rows[i - 1];
    const CollectiveRow& b = t.rows[i];
    double fall = -error_of(b.measured, a.measured);
    if (fall <= 0.1) continue;
    Cliff c{a.bytes, b.bytes, fall, {}, false};
    c.switched = a.choice.algorithm != b.choice.algorithm || a.choice.protocol != b.choice.protocol;
    t.cliffs.push_back(std::move(c));
  }
}

double ratio_of(const CollectiveRow& r) {
  return r.measured / r.predicted;
}

// Every row but the ends, on the line between the row before and the row after it. A row that an
// artefact touches is marked: it falls there, or is predicted from a row that the fall starts from.
std::vector<FittedRow> fit_every_other(const TableResult& t) {
  std::vector<FittedRow> out;
  for (std::size_t i = 1; i + 1 < t.rows.size(); ++i) {
    const CollectiveRow& a = t.rows[i - 1];
    const CollectiveRow& r = t.rows[i];
    const CollectiveRow& b = t.rows[i + 1];
    double at = static_cast<double>(r.bytes - a.bytes) / static_cast<double>(b.bytes - a.bytes);
    double time =
        static_cast<double>(a.measured.ps) + static_cast<double>((b.measured - a.measured).ps) * at;
    bool touched = std::any_of(t.cliffs.begin(), t.cliffs.end(), [&](const Cliff& x) {
      return x.from == a.bytes || x.from == r.bytes || x.from == b.bytes;
    });
    out.push_back(
        {r.bytes, time / static_cast<double>(r.measured.ps) - 1, touched, a.bytes, b.bytes, {}});
    if (r.in_place.ps > 0) out.back().in_place = error_of(r.in_place, r.measured);
  }
  return out;
}

std::string words(const nccl::Choice& c) {
  return std::string(nccl::name_of(c.algorithm)) + "/" + nccl::name_of(c.protocol);
}

}  // namespace

std::string machine_of(const CollectiveSetting& s) {
  std::string source = s.source;
  for (const char* end : {" @", " (", "; "})
    if (auto at = source.find(end); at != std::string::npos) source.resize(at);
  return s.cluster + ", " + source;
}

int generation_of(const CollectiveTable& t) {
  if (nccl::fabric(*t.group).cluster().nccl.rccl) return 0;
  return nccl::compute_capability(*t.group) / 10;
}

Band band_of(std::int64_t bytes) {
  return bytes < kMiB ? Band::Small : bytes < 16 * kMiB ? Band::Middle : Band::Large;
}

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

bool in_sample(const Profile& p, const CollectiveTable& t) {
  return std::find(p.fitted_from.begin(), p.fitted_from.end(), t.run->key) != p.fitted_from.end();
}

void read_rows(CollectiveTable& t) {
  std::map<std::int64_t, CollectiveRow> rows;
  for (const Sample& s : t.run->samples) {
    auto bytes = s.parameters.find("bytes");
    if (bytes == s.parameters.end() || bytes->second <= 0 || s.durations.empty()) continue;
    if (auto wrong = s.parameters.find("wrong"); wrong != s.parameters.end() && wrong->second > 0)
      continue;  // sums that were not right: nobody knows what ran
    auto place = s.parameters.find("in_place");
    bool in_place = place != s.parameters.end() && place->second == 1;
    std::vector<double> times;
    for (Duration d : s.durations) times.push_back(static_cast<double>(d.ps));
    Duration time{static_cast<std::int64_t>(median_of(std::move(times)))};
    // Readings are the slowest rank's, one by one: where ranks leave by turns all are too long.
    if (auto period = s.parameters.find("period_ps"); period != s.parameters.end())
      time = Duration{period->second};
    CollectiveRow& row = rows[bytes->second];
    row.bytes = bytes->second;
    (in_place ? row.in_place : row.measured) = time;
  }
  t.rows.clear();
  for (auto& [bytes, row] : rows) {
    if (row.measured.ps == 0) row.measured = row.in_place;
    auto choice = nccl::choose(*t.group, t.op, bytes);
    row.available = choice.has_value();
    if (choice) row.choice = *choice;
    row.nccl = {static_cast<std::int64_t>(picoseconds(row.choice.estimate))};
    t.rows.push_back(std::move(row));
  }
}

std::vector<CollectiveRow> predict_table(const CollectiveTable& t, const Profile& p) {
  std::vector<CollectiveRow> out = t.rows;
  for (CollectiveRow& row : out) {
    if (row.available) predict_row(t, p, row);
  }
  return out;
}

namespace {

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

namespace {

std::vector<CollectiveTable> with_constants(std::vector<CollectiveTable> tables,
                                            const nccl::Constants& constants) {
  for (CollectiveTable& t : tables) nccl::set_constants(*t.group, constants);
  return tables;
}

}  // namespace

CollectiveReport judge_collectives(const std::vector<CollectiveTable>& tables) {
  CollectiveReport report;
  std::map<std::string, LinkFits> fits;
  std::map<std::string, nccl::Constants> constants;
  report.constants = fit_constants(tables, "");
  for (const CollectiveTable& t : tables) {
    if (fits.count(t.machine)) continue;
    nccl::Constants& others = constants[t.machine] = fit_constants(tables, t.machine);
    fits[t.machine] = fit_links(with_constants(tables, others), t.machine, generation_of(t));
  }
  std::array<std::vector<double>, kBands> medians;
  std::vector<double> pooled;
  std::vector<double> whole;  // ... of them, beside no size that is lacking
  std::vector<double> again;
  std::vector<double> lines;
  std::vector<double> smooth;  // medians of tables without a cliff
  for (const CollectiveTable& t : tables) {
    TableResult r;
    r.name = t.name;
    r.machine = t.machine;
    r.in_sample = in_sample(t.profile, t);
    for (const std::string& name : transports_of(t)) r.fits[name] = fits[t.machine][name];
    r.constants = constants[t.machine];
    r.rows = predict_table(with_constants({t}, r.constants).front(),
                           with_fits(t.profile, fits[t.machine]));
    std::array<std::vector<double>, kBands> ours;
    std::array<std::vector<double>, kBands> theirs;
    for (const CollectiveRow& row : r.rows) {
      if (!row.available) continue;
      auto b = static_cast<std::size_t>(band_of(row.bytes));
      ours[b].push_back(std::abs(error_of(row.predicted, row.measured)));
      theirs[b].push_back(std::abs(error_of(row.nccl, row.measured)));
    }
    for (std::size_t b = 0; b < kBands; ++b) {
      r.bands[b] = {ours[b].size(), median_of(ours[b]), median_of(theirs[b])};
      if (ours[b].empty() || r.in_sample) continue;
      medians[b].push_back(r.bands[b].median);
      if (r.bands[b].nccl_median > 0.05) {
        ++report.cells_off;
        report.cells_closer += r.bands[b].median < r.bands[b].nccl_median;
      } else {
        report.most_worse = std::max(report.most_worse, r.bands[b].median - r.bands[b].nccl_median);
      }
    }
    find_cliffs(r);
    for (Cliff& c : r.cliffs) {
      auto at = [&](std::int64_t bytes) {
        return std::find_if(r.rows.begin(), r.rows.end(),
                            [&](const CollectiveRow& x) { return x.bytes == bytes; });
      };
      c.why = c.switched ? "NCCL changes from " + words(at(c.from)->choice) + " to " +
                               words(at(c.to)->choice)
                         : "not predicted: an artefact of the source";
    }
    r.fitted = fit_every_other(r);
    std::vector<double> errors;
    for (const FittedRow& f : r.fitted) {
      errors.push_back(std::abs(f.error));
      if (r.in_sample || f.bytes < kMiB || f.bytes > 128 * kMiB) continue;
      if (f.at_cliff) ++report.fitted_at_cliffs;
      if (f.at_cliff) continue;
      pooled.push_back(std::abs(f.error));
      lines.push_back(std::abs(f.best_line()));
      if (f.in_place) again.push_back(std::abs(*f.in_place));
      if (f.gap())
        ++report.fitted_gaps;
      else
        whole.push_back(std::abs(f.error));
    }
    r.fitted_median = median_of(errors);
    if (!r.in_sample && !errors.empty() && r.cliffs.empty()) smooth.push_back(r.fitted_median);
    report.tables.push_back(std::move(r));
  }
  for (std::size_t b = 0; b < kBands; ++b) report.median[b] = median_of(medians[b]);
  report.fitted_median = median_of(smooth);
  for (double m : smooth) report.fitted_worst_median = std::max(report.fitted_worst_median, m);
  report.fitted_p95 = percentile_of(pooled, 95);
  report.fitted_p95_no_gaps = percentile_of(whole, 95);
  report.fitted_p95_in_place = percentile_of(again, 95);
  report.fitted_p95_best_line = percentile_of(lines, 95);
  report.fitted_pooled = pooled.size();
  constexpr int kFew = 64;
  for (const auto& [machine, unused] : fits) {
    bool several =
        std::count_if(tables.begin(), tables.end(), [&, &m = machine](const CollectiveTable& t) {
          return t.machine == m && nccl::ranks(*t.group) <= kFew;
        }) > 1;
    if (!several) continue;
    for (Extrapolation& e : extrapolate(tables, machine, kFew))
      report.extrapolated.push_back(std::move(e));
  }
  return report;
}

std::vector<Extrapolation> extrapolate(const std::vector<CollectiveTable>& tables,
                                       const std::string& machine, int ranks) {
  std::vector<CollectiveTable> small;
  for (const CollectiveTable& t : tables)
    if (t.machine == machine && nccl::ranks(*t.group) <= ranks) small.push_back(t);
  LinkFits fits = fit_links(small, "", small.empty() ? 0 : generation_of(small.front()));
  // What the mechanism lacks, by way and size: of the largest table that has them.
  std::map<std::tuple<nccl::Algorithm, nccl::Protocol, std::int64_t>, double> lacks;
  std::vector<std::string> from;
  std::stable_sort(small.begin(), small.end(),
                   [](const CollectiveTable& a, const CollectiveTable& b) {
                     return nccl::ranks(*a.group) < nccl::ranks(*b.group);
                   });
  for (const CollectiveTable& t : small) {
    from.push_back(t.name);
    for (const CollectiveRow& r : predict_table(t, with_fits(t.profile, fits)))
      if (r.available && nccl::nodes(*t.group) > 1)
        lacks[{r.choice.algorithm, r.choice.protocol, r.bytes}] = ratio_of(r);
  }
  std::vector<Extrapolation> out;
  for (const CollectiveTable& t : tables) {
    if (t.machine != machine || nccl::ranks(*t.group) <= ranks) continue;
    std::vector<double> errors;
    for (const CollectiveRow& r : predict_table(t, with_fits(t.profile, fits))) {
      if (!r.available) continue;
      auto it = lacks.find({r.choice.algorithm, r.choice.protocol, r.bytes});
      double ratio = it == lacks.end() ? 1 : it->second;
      errors.push_back(std::abs(ratio / ratio_of(r) - 1));
    }
    out.push_back({from, t.name, errors.size(), median_of(errors)});
  }
  return out;
}

namespace {

// By table and size: the error of the profile that is fitted to all tables without that size.
// `tables`: of `base`.
std::map<std::pair<std::size_t, std::int64_t>, double> errors_without_size(
    const Profile& base, std::vector<CollectiveTable> tables, int generation) {
  std::vector<std::vector<CollectiveRow>> all;
  std::set<std::int64_t> sizes;
  for (const CollectiveTable& t : tables) {
    all.push_back(t.rows);
    for (const CollectiveRow& r : t.rows) sizes.insert(r.bytes);
  }
  std::map<std::pair<std::size_t, std::int64_t>, double> out;
  if (sizes.size() < 2) return out;
  for (std::int64_t size : sizes) {
    auto keep = [&](bool of_the_size) {
      for (std::size_t i = 0; i < tables.size(); ++i) {
        tables[i].rows.clear();
        for (const CollectiveRow& r : all[i])
          if ((r.bytes == size) == of_the_size) tables[i].rows.push_back(r);
      }
    };
    keep(false);
    Profile p = with_fits(base, fit_links(tables, "", generation));
    keep(true);
    for (std::size_t i = 0; i < tables.size(); ++i)
      for (const CollectiveRow& r : predict_table(tables[i], p))
        if (r.available) out[{i, size}] = error_of(r.predicted, r.measured);
  }
  return out;
}

}  // namespace

namespace {

// Of all links at once: no efficiencies, and no factors of steps, that leave more than the base's.
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

}  // namespace

CollectiveFit fit_collectives(const Profile& base, const std::string& name,
                              std::vector<CollectiveTable> tables) {
  CollectiveFit out;
  for (CollectiveTable& t : tables) t.profile = base;
  out.links = fit_links(tables, "", generation_of(tables.front()));
  refuse_worse(tables, out.links);
  out.profile = with_fits(base, out.links);
  out.profile.name = name;
  auto unseen = errors_without_size(base, tables, generation_of(tables.front()));
  bool ours = std::all_of(tables.begin(), tables.end(), [](const CollectiveTable& t) {
    return t.run->evidence == EvidenceClass::Collective;
  });
  std::map<std::string, std::vector<double>>
      rates;  // measured / predicted of rows that a link limits: what its efficiency was there
  std::string from;
  for (std::size_t i = 0; i < tables.size(); ++i) {
    const CollectiveTable& t = tables[i];
    from += (from.empty() ? "" : ", ") + t.name;
    TableResult r;
    r.rows = predict_table(t, out.profile);
    std::vector<CollectiveRow> before = predict_table(t, base);
    find_cliffs(r);
    std::map<std::int64_t, double> beside;
    for (const FittedRow& f : fit_every_other(r)) beside[f.bytes] = f.error;
    for (std::size_t k = 0; k < r.rows.size(); ++k) {
      const CollectiveRow& row = r.rows[k];
      if (!row.available) continue;
      out.residuals.push_back({t.name,
                               nccl::ranks(*t.group),
                               row.bytes,
                               row.measured,
                               error_of(row.predicted, row.measured),
                               error_of(before[k].predicted, row.measured),
                               {},
                               {}});
      if (auto it = unseen.find({i, row.bytes}); it != unseen.end())
        out.residuals.back().without_size = it->second;
      if (beside.count(row.bytes)) out.residuals.back().interpolated = beside[row.bytes];
      if (band_of(row.bytes) == Band::Large && !row.price.limiting_transport.empty())
        rates[row.price.limiting_transport].push_back(1 / ratio_of(row));
    }
  }
  for (const auto& [transport, fit] : out.links) {
    if (!fit.efficiency_told && !fit.steps_told) continue;
    TransportSection& section = out.profile.transports.at(transport);
    section.basis = ours ? Evidence::Measured : Evidence::Published;
    const char* what = fit.efficiency_told && fit.steps_told ? "steps and efficiency"
                       : fit.steps_told                      ? "steps"
                                                             : "efficiency";
    section.source = std::string("ddpsim fit --backend nccl-tests: ") + what + " from " + from +
                     "; the rest from " + base.name + ": " + section.source;
    if (auto it = rates.find(transport); it != rates.end()) {
      double mid = section.efficiency.mid;
      section.efficiency.low = std::min(mid, mid * analysis::percentile(it->second, 10));
      section.efficiency.high =
          std::min(1.0, std::max(mid, mid * analysis::percentile(it->second, 90)));
    }
  }
  return out;
}

}  // namespace ddpsim::calib
