#include "calib/fit/collective_table.h"

#include <algorithm>
#include <map>
#include <utility>

#include "calib/fit/table_rows.h"

namespace ddpsim::calib {

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

bool in_sample(const Profile& p, const CollectiveTable& t) {
  return std::find(p.fitted_from.begin(), p.fitted_from.end(), t.run->key) != p.fitted_from.end();
}

std::set<std::string> transports_of(const CollectiveTable& t) {
  std::set<std::string> out;
  for (std::uint8_t transport : nccl::wiring(*t.group).transports)
    out.insert(nccl::fabric(*t.group).transports()[transport]);
  return out;
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

void predict_row(const CollectiveTable& t, const Profile& p, CollectiveRow& row) {
  row.price = nccl::time_of(*t.group, p, Level::Mid, t.op, row.choice, {row.bytes});
  row.predicted = nccl::nccl_tests_time(*t.group, p, row.price, row.choice, t.gpus_per_process);
}

std::vector<CollectiveRow> predict_table(const CollectiveTable& t, const Profile& p) {
  std::vector<CollectiveRow> out = t.rows;
  for (CollectiveRow& row : out) {
    if (row.available) predict_row(t, p, row);
  }
  return out;
}

}  // namespace ddpsim::calib
