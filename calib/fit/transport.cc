#include "calib/fit/transport.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>

#include "calib/fit/samples.h"

namespace ddpsim::calib {
namespace {

constexpr std::int64_t kShort = 64 * 1024;  // below: latency decides
constexpr std::int64_t kLong = 4 * kMiB;    // from here on: bytes do
constexpr double kMostLatencyPs = 1e10;

std::vector<CollectiveRow> rows_of(const CollectiveTable& t, std::int64_t from, std::int64_t to) {
  std::vector<CollectiveRow> out;
  for (const CollectiveRow& r : t.rows)
    if (r.available && r.bytes >= from && r.bytes < to) out.push_back(r);
  return out;
}

Duration predicted(const CollectiveTable& t, const CollectiveRow& row, const Profile& p) {
  auto price = nccl::time_of(*t.group, p, Level::Mid, t.op, row.choice, {row.bytes});
  return nccl::nccl_tests_time(*t.group, p, price, row.choice, t.gpus_per_process);
}

// The value between `fast` and `slow` at which the prediction meets the row; the nearer end where
// none does. Bisection: 60 halvings leave nothing that a profile's file would show.
double meet(const CollectiveTable& t, const CollectiveRow& row, Profile p, double fast, double slow,
            const std::function<void(Profile&, double)>& set) {
  for (int k = 0; k < 60; ++k) {
    double middle = (fast + slow) / 2;
    set(p, middle);
    (predicted(t, row, p) > row.measured ? slow : fast) = middle;
  }
  return (fast + slow) / 2;
}

struct Term {
  std::vector<double> values;
  double median() const { return analysis::median(values); }
};

Term term_of(const std::vector<const CollectiveTable*>& tables, const char* protocol,
             std::int64_t from, std::int64_t to, const Profile& p, double fast, double slow,
             const std::function<void(Profile&, double)>& set) {
  Term out;
  for (const CollectiveTable* t : tables)
    if (t->run->collectives->protocol == protocol)
      for (const CollectiveRow& row : rows_of(*t, from, to))
        out.values.push_back(meet(*t, row, p, fast, slow, set));
  return out;
}

constexpr std::string_view kRepeated = "loopback/";  // ddpsim_loopback.py: loopback/PLACE/OP
constexpr std::string_view kBothWays = "/all_reduce";
constexpr std::string_view kOneWay = "/reduce";  // of two ranks: one sends, and one receives

bool is_repeat(const Sample& s) {
  return s.op.starts_with(kRepeated) && !s.durations.empty() && s.parameters.count("ranks") &&
         s.parameters.count("bytes") && s.parameters.count("cycle");
}

// One row for each place, cycle and size of `ranks`: the median of what its ranks read.
std::vector<CollectiveRow> repeated_rows(const std::vector<const Run*>& repeats, int ranks,
                                         std::string_view way) {
  std::map<std::tuple<std::string, std::int64_t, std::int64_t>, std::vector<double>> read;
  for (const Run* run : repeats)
    for (const Sample& s : run->samples) {
      if (!is_repeat(s) || !s.op.ends_with(way) || s.parameters.at("ranks") != ranks) continue;
      const std::int64_t bytes = s.parameters.at("bytes");
      if (bytes < kLong) continue;
      for (Duration d : s.durations)
        read[{s.op, s.parameters.at("cycle"), bytes}].push_back(static_cast<double>(d.ps));
    }
  std::vector<CollectiveRow> out;
  for (const auto& [what, times] : read) {
    CollectiveRow row;
    row.bytes = std::get<2>(what);
    row.measured = Duration{std::llround(analysis::median(times))};
    out.push_back(row);
  }
  return out;
}

// How many times as fast a rank is that only sends or only receives: reduces of two ranks beside
// their all-reduces of the same size, which send and receive as much as that each. Nothing: not
// told.
std::optional<double> one_way_of(const std::vector<const Run*>& repeats) {
  std::map<std::int64_t, std::vector<double>> both, one;
  for (const CollectiveRow& r : repeated_rows(repeats, 2, kBothWays))
    both[r.bytes].push_back(static_cast<double>(r.measured.ps));
  for (const CollectiveRow& r : repeated_rows(repeats, 2, kOneWay))
    one[r.bytes].push_back(static_cast<double>(r.measured.ps));
  std::vector<double> ratios;
  for (const auto& [bytes, times] : one)
    if (auto b = both.find(bytes); b != both.end())
      ratios.push_back(analysis::median(b->second) / analysis::median(times));
  if (ratios.empty()) return {};
  return std::clamp(std::round(100 * analysis::median(ratios)) / 100, 1.0, 2.0);
}

// The table that says what `protocol` runs as, of those that were forced to it.
const CollectiveTable* long_rows(const std::vector<const CollectiveTable*>& tables,
                                 const char* protocol) {
  for (const CollectiveTable* t : tables)
    if (t->run->collectives->protocol == protocol && !rows_of(*t, kLong, INT64_MAX).empty())
      return t;
  return nullptr;
}

// What `channels` blocks of the stand-in take from products and from what memory decides.
void fit_hold(const std::vector<const Run*>& kernels, std::int64_t channels, TransportFit& out) {
  const Losses all = losses_beside(kernels);
  const auto measured = all.find(channels);
  if (measured == all.end() || measured->second[0].empty()) {
    out.notes.push_back("interference: of " + std::to_string(channels) +
                        " blocks nothing was measured; it stays the base profile's");
    return;
  }
  const auto& [products, memory] = measured->second;
  Profile& p = out.profile;
  p.interference_basis = Evidence::Measured;
  p.sm_hold = hold_of(products);
  if (!memory.empty()) p.memory_hold = hold_of(memory);
  p.hold_at.clear();  // these are of as many blocks as the collectives have
  out.notes.push_back("interference: a stand-in of " + std::to_string(channels) +
                      " blocks, as many as the collectives have channels, takes " +
                      number("%.1f", 100 * p.sm_hold.mid) + " % of products");
}

}  // namespace

bool repeats_transport(const Run& run) {
  return std::any_of(run.samples.begin(), run.samples.end(), is_repeat);
}

bool fits_transport(const CollectiveSetting& s) {
  bool known = s.protocol == "simple" || s.protocol == "ll";
  return s.op == "all_reduce" && s.algorithm == "ring" && known && s.ranks == s.hosts;
}

TransportFit fit_transport(const Profile& base, const std::string& name,
                           std::vector<CollectiveTable> tables,
                           const std::vector<const Run*>& kernels,
                           const std::vector<const Run*>& repeats) {
  TransportFit out;
  int fewest = std::numeric_limits<int>::max();
  for (const CollectiveTable& t : tables)
    if (fits_transport(*t.run->collectives)) fewest = std::min(fewest, nccl::ranks(*t.group));
  std::vector<const CollectiveTable*> seen;
  for (const CollectiveTable& t : tables)
    if (fits_transport(*t.run->collectives) && nccl::ranks(*t.group) == fewest) seen.push_back(&t);
  if (seen.empty())
    throw InputError{"fit",
                     "no Run holds all-reduces whose ring was forced, a host of its own for each "
                     "rank (ddpsim calibrate --backend nccl --one-gpu --runs DIR makes them)"};
  out.transport = nccl::network_transport(*seen.front()->group);
  Profile& p = out.profile;
  p = base;
  p.name = name;
  p.fitted_from.clear();
  p.step_residual = 0;
  auto it = p.transports.find(out.transport);
  if (it == p.transports.end())
    throw InputError{base.name, "has no transport \"" + out.transport + "\" to begin with"};
  TransportSection& section = it->second;
  section.step_factor = 1;
  section.knots.clear();
  section.thread_bytes_per_s.reset();  // what threads copy is in the fitted efficiency
  const std::string& way = out.transport;
  auto latency = [&way](Profile& q, double ps) {
    q.transports.at(way).latency = {static_cast<std::int64_t>(std::llround(ps))};
  };
  auto ll_latency = [&way](Profile& q, double ps) {
    q.transports.at(way).ll_latency = Duration{static_cast<std::int64_t>(std::llround(ps))};
  };
  auto efficiency = [&way](Profile& q, double share) {
    q.transports.at(way).efficiency = {share, share, share};
  };
  auto require = [&](const Term& t, const char* what) {
    if (t.values.empty()) throw InputError{"fit", std::string("no forced ring tells its ") + what};
  };
  std::vector<CollectiveRow> again = repeated_rows(repeats, fewest, kBothWays);
  const CollectiveTable* longest = long_rows(seen, "simple");
  if (longest)
    for (CollectiveRow& row : again) row.choice = rows_of(*longest, kLong, INT64_MAX).back().choice;
  Term rate;
  Term simple;
  Term ll;
  for (int round = 0; round < 3; ++round) {  // latency is a little of a long one's time
    rate = term_of(seen, "simple", kLong, INT64_MAX, p, 1, 1e-3, efficiency);
    require(rate, "rate: Simple, 4 MiB and more");
    for (const CollectiveRow& row : again)
      rate.values.push_back(meet(*longest, row, p, 1, 1e-3, efficiency));
    efficiency(p, rate.median());
    simple = term_of(seen, "simple", 0, kShort, p, 0, kMostLatencyPs, latency);
    require(simple, "latency: Simple, below 64 KiB");
    latency(p, simple.median());
    ll = term_of(seen, "ll", 0, kShort, p, 0, kMostLatencyPs, ll_latency);
    require(ll, "latency: LL, below 64 KiB");
    ll_latency(p, ll.median());
  }
  auto rounded = [](double v) { return std::round(v * 1e4) / 1e4; };
  const double cut = again.empty() ? 0 : 10;  // in per cent
  section.efficiency = {rounded(analysis::percentile(rate.values, cut)), rounded(rate.median()),
                        rounded(analysis::percentile(rate.values, 100 - cut))};
  if (const std::optional<double> one_way = one_way_of(repeats)) section.one_way = *one_way;
  section.basis = Evidence::Measured;
  std::string from;
  for (const CollectiveTable* t : seen) {
    from += (from.empty() ? "" : ", ") + t->run->key;
    p.fitted_from.push_back(t->run->key);
  }
  if (!again.empty()) {
    std::string read;
    for (const Run* run : repeats)
      if (!repeated_rows({run}, fewest, kBothWays).empty())
        read += (read.empty() ? "" : ", ") + run->key;
    from +=
        ", and " + std::to_string(again.size()) + " all-reduces read over minutes (" + read + ")";
  }
  const std::string& gpu = seen.front()->run->collectives->gpu;
  section.source = "ddpsim fit --backend nccl: latency_ps, ll_latency_ps and efficiency from " +
                   from + (gpu.empty() ? "" : ", on " + gpu) + "; the rest as in " + base.name +
                   ": " + section.source;
  out.notes.push_back(
      way + ": " + number("%.2f", section.efficiency.mid) + " of the link's rate (" +
      number("%.2f", section.efficiency.low) + " to " + number("%.2f", section.efficiency.high) +
      "), a step " + number("%.1f", simple.median() / 1e6) + " us with Simple and " +
      number("%.1f", ll.median() / 1e6) + " us with LL; from " + std::to_string(seen.size()) +
      " of " + std::to_string(tables.size()) + " tables: " + from);
  if (section.one_way != 1)
    out.notes.push_back(way + ": a rank that only sends or only receives is " +
                        number("%.2f", section.one_way) + " times as fast");
  std::int64_t channels = 0;
  for (const CollectiveTable* t : seen)
    for (const CollectiveRow& r : t->rows)
      channels = std::max<std::int64_t>(channels, r.choice.channels);
  fit_hold(kernels, channels, out);
  for (const CollectiveTable& t : tables) {
    bool fitted = in_sample(p, t);
    for (const CollectiveRow& row : predict_table(t, p))
      if (row.available)
        out.residuals.push_back({t.name, nccl::ranks(*t.group), row.bytes, row.measured,
                                 row.predicted / row.measured - 1, fitted});
  }
  return out;
}

}  // namespace ddpsim::calib
