#include "calib/fit/collectives.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "calib/fit/constants.h"
#include "calib/fit/table_rows.h"
#include "sim/analysis/compare.h"

namespace ddpsim::calib {
namespace {

double percentile_of(std::vector<double> v, double percent) {
  return v.empty() ? 0 : analysis::percentile(std::move(v), percent);
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

std::vector<CollectiveTable> with_constants(std::vector<CollectiveTable> tables,
                                            const nccl::Constants& constants) {
  for (CollectiveTable& t : tables) nccl::set_constants(*t.group, constants);
  return tables;
}

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
