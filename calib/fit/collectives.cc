// Efficiency from sizes of 16 MiB and more, latency from sizes below 1 MiB, on grids; the tables' medians are summed, the prior as one table more.
#include "calib/fit/collectives.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace ddpsim::calib {
namespace {

double median_of(std::vector<double> v) {
  if (v.empty()) return 0;
  std::sort(v.begin(), v.end());
  std::size_t n = v.size();
  return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

double quantile_of(std::vector<double> v, double q) {
  if (v.empty()) return 0;
  std::sort(v.begin(), v.end());
  double at = q * static_cast<double>(v.size() - 1);
  auto low = static_cast<std::size_t>(at);
  std::size_t high = std::min(low + 1, v.size() - 1);
  return v[low] + (v[high] - v[low]) * (at - static_cast<double>(low));
}

double error_of(Duration predicted, Duration measured) { return static_cast<double>(predicted.ps) / static_cast<double>(measured.ps) - 1; }

// Transports that the table's messages cross.
std::set<std::string> transports_of(const CollectiveTable& t) {
  std::set<std::string> out;
  for (const collective::NcclHop& h : {t.group.intra, t.group.inter})
    if (h.exists) out.insert(t.group.fabric->transports()[h.transport]);
  return out;
}

double band_error(const CollectiveTable& t, const LinkFits& fits, Band band) {
  std::vector<double> errors;
  Profile p = with_fits(t.profile, fits);
  for (const CollectiveRow& r : predict_table(t, p))
    if (r.available && band_of(r.bytes) == band) errors.push_back(std::abs(error_of(r.predicted, r.measured)));
  return errors.empty() ? -1 : std::min(1.0, median_of(std::move(errors)));
}

// The best value on a grid by the sum of the tables' medians and of the prior's distance.
template <class Set, class Prior>
double best_on_grid(const std::vector<const CollectiveTable*>& tables, const std::vector<double>& grid, double now, Band band, LinkFits fits, Set set, Prior prior) {
  double best = now;
  double least = 1e30;
  for (double value : grid) {
    set(fits, value);
    double cost = prior(value);
    for (const CollectiveTable* t : tables) cost += std::max(0.0, band_error(*t, fits, band));
    if (cost < least - 1e-12) {
      least = cost;
      best = value;
    }
  }
  return best;
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

std::string words(const nccl::Choice& c) { return std::string(nccl::name_of(c.algorithm)) + "/" + nccl::name_of(c.protocol); }

}  // namespace

std::string machine_of(const CollectiveSetting& s) {
  std::string source = s.source;
  for (const char* end : {" @", " (", "; "})
    if (auto at = source.find(end); at != std::string::npos) source.resize(at);
  return s.cluster + ", " + source;
}

Band band_of(std::int64_t bytes) { return bytes < kMiB ? Band::Small : bytes < 16 * kMiB ? Band::Middle : Band::Large; }

Profile with_fits(Profile p, const LinkFits& fits) {
  for (const auto& [name, fit] : fits) {
    auto it = p.transports.find(name);
    if (it == p.transports.end()) continue;
    TransportSection& t = it->second;
    t.latency += fit.step;
    if (t.ll_latency) *t.ll_latency += fit.step;
    t.efficiency.mid = fit.efficiency;
  }
  return p;
}

std::vector<CollectiveRow> predict_table(const CollectiveTable& t, const Profile& p) {
  std::map<std::int64_t, CollectiveRow> rows;
  for (const Sample& s : t.run->samples) {
    auto bytes = s.parameters.find("bytes");
    if (bytes == s.parameters.end() || bytes->second <= 0 || s.durations.empty()) continue;
    auto place = s.parameters.find("in_place");
    bool in_place = place != s.parameters.end() && place->second == 1;
    std::vector<double> times;
    for (Duration d : s.durations) times.push_back(static_cast<double>(d.ps));
    Duration time{static_cast<std::int64_t>(median_of(std::move(times)))};
    CollectiveRow& row = rows[bytes->second];
    row.bytes = bytes->second;
    (in_place ? row.in_place : row.measured) = time;
  }
  std::vector<CollectiveRow> out;
  for (auto& [bytes, row] : rows) {
    if (row.measured.ps == 0) row.measured = row.in_place;
    auto choice = nccl::choose(t.group.system, t.group.settings, t.op, bytes);
    row.available = choice.has_value();
    if (choice) {
      row.choice = *choice;
      row.nccl = {static_cast<std::int64_t>(choice->estimate_us * 1e6)};
      row.price = collective::nccl_price(t.group, p, Level::Mid, t.op, *choice, {bytes});
      row.predicted = collective::nccl_tests_time(p, row.price, t.gpus_per_process, t.cooperative);
    }
    out.push_back(std::move(row));
  }
  return out;
}

LinkFits fit_links(const std::vector<CollectiveTable>& tables, const std::string& without) {
  std::map<std::string, std::vector<const CollectiveTable*>> of;
  LinkFits fits;
  for (const CollectiveTable& t : tables)
    for (const std::string& name : transports_of(t)) {
      if (t.machine != without) of[name].push_back(&t);
      LinkFit& f = fits[name];
      if (f.efficiency == 0) f.efficiency = t.profile.transports.at(name).efficiency.mid;
    }
  LinkFits prior = fits;
  // Machines with many tables count once: each of their tables by its share.
  std::vector<double> shares;
  for (int k = 0; k <= 60; ++k) shares.push_back(0.40 + 0.01 * k);
  for (int round = 0; round < 2; ++round)
    for (auto& [name, list] : of) {
      LinkFit& f = fits[name];
      f.tables = static_cast<int>(list.size());
      const LinkFit& from = prior[name];
      f.efficiency = best_on_grid(list, shares, f.efficiency, Band::Large, fits, [&n = name](LinkFits& all, double v) { all[n].efficiency = v; },
                                  [&](double v) { return std::abs(v / from.efficiency - 1); });
      std::vector<double> steps;
      bool net = name != "nvlink" && name != "pcie" && name != "c2c" && name != "upi";
      double unit = net ? 0.5e6 : 0.1e6;  // ps
      for (int k = -10; k <= 40; ++k) steps.push_back(unit * k);
      f.step.ps = static_cast<std::int64_t>(best_on_grid(list, steps, static_cast<double>(f.step.ps), Band::Small, fits,
                                                         [&n = name](LinkFits& all, double v) { all[n].step.ps = static_cast<std::int64_t>(v); },
                                                         [&](double v) { return std::abs(v) / (unit * 40); }));
    }
  return fits;
}

CollectiveReport judge_collectives(const std::vector<CollectiveTable>& tables) {
  CollectiveReport report;
  std::map<std::string, LinkFits> fits;
  for (const CollectiveTable& t : tables)
    if (!fits.count(t.machine)) fits[t.machine] = fit_links(tables, t.machine);
  std::array<std::vector<double>, kBands> medians;
  std::vector<double> pooled;
  for (const CollectiveTable& t : tables) {
    TableResult r;
    r.name = t.name;
    r.machine = t.machine;
    r.rows = predict_table(t, with_fits(t.profile, fits[t.machine]));
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
      if (ours[b].empty()) continue;
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
      auto at = [&](std::int64_t bytes) { return std::find_if(r.rows.begin(), r.rows.end(), [&](const CollectiveRow& x) { return x.bytes == bytes; }); };
      c.why = c.switched ? "NCCL changes from " + words(at(c.from)->choice) + " to " + words(at(c.to)->choice) : "not predicted: an artefact of the source";
    }
    report.tables.push_back(std::move(r));
  }
  for (std::size_t b = 0; b < kBands; ++b) report.median[b] = median_of(medians[b]);
  report.fitted_p95 = quantile_of(pooled, 0.95);
  report.fitted_pooled = pooled.size();
  return report;
}

}  // namespace ddpsim::calib
