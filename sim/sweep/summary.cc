#include "sim/sweep/summary.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "sim/report/text.h"

namespace ddpsim::sweep {
namespace {

constexpr std::size_t kBest = 5;
constexpr std::size_t kProfilesNamed = 6;

template <class Before>
void keep_best(std::vector<SweepRow>& best, const SweepRow& row, Before before) {
  if (best.size() == kBest && !before(row, best.back())) return;
  best.insert(std::upper_bound(best.begin(), best.end(), row, before), row);
  if (best.size() > kBest) best.pop_back();
}

double of_a_rank(const SweepRow& r) {
  return r.samples_per_s / r.ranks;
}

}  // namespace

std::vector<std::string> provenance(const std::vector<SweepRow>& rows) {
  std::vector<std::string> out;
  for (const SweepRow& r : rows) {
    if (!r.reason.empty()) continue;
    std::string line = "profile " + r.profile + ": " + r.basis;
    if (std::find(out.begin(), out.end(), line) == out.end()) out.push_back(std::move(line));
  }
  return out;
}

void SweepSummary::add(const SweepRow& row) {
  ++rows_;
  jitter_ = jitter_ || row.jitter;
  internal_ += row.internal ? 1 : 0;
  if (!row.reason.empty()) {
    if (invalid_++ == 0) first_reason_ = row.reason;
    return;
  }
  if (!row.beyond.empty() && beyond_++ == 0) first_beyond_ = row.beyond;
  auto same = [&](const SweepRow& r) { return r.profile == row.profile && r.basis == row.basis; };
  if (profiles_.size() <= kProfilesNamed && std::none_of(profiles_.begin(), profiles_.end(), same))
    profiles_.push_back(row);
  if (!first_) first_ = row;
  samples_differ_ =
      samples_differ_ || std::abs(row.samples - first_->samples) > 1e-3 * first_->samples;
  ranks_differ_ = ranks_differ_ || row.ranks != first_->ranks;
  if (does_not_fit(row)) ++unfit_;
  // What does not fit comes after all that does.
  auto fitting = [](auto better) {
    return [better](const SweepRow& a, const SweepRow& b) {
      return does_not_fit(a) != does_not_fit(b) ? does_not_fit(b) : better(a, b);
    };
  };
  keep_best(shortest_, row,
            fitting([](const SweepRow& a, const SweepRow& b) { return a.step < b.step; }));
  keep_best(fastest_, row, fitting([](const SweepRow& a, const SweepRow& b) {
              return a.samples_per_s > b.samples_per_s;
            }));
  keep_best(cheapest_, row, fitting([](const SweepRow& a, const SweepRow& b) {
              return of_a_rank(a) > of_a_rank(b);
            }));
}

std::string SweepSummary::notes() const {
  std::string out = jitter_ ? std::string(kJitterNote) + "\n" : "";
  std::vector<std::string> lines = provenance(profiles_);
  for (std::size_t k = 0; k < std::min(lines.size(), kProfilesNamed); ++k)
    out += report::wrapped(lines[k] + "\n");
  if (lines.size() > kProfilesNamed)
    out += "... and other profiles: see the columns profile and basis\n";
  if (unfit_ > 0)
    out +=
        fmt::format("{} of {} points do not fit; they come after those that do\n", unfit_, rows_);
  if (beyond_ > 0)
    out += report::wrapped(fmt::format("{} of {} points beyond the model; the first: {}\n", beyond_,
                                       rows_, first_beyond_));
  return out;
}

std::vector<std::pair<const char*, const std::vector<SweepRow>*>> SweepSummary::lists() const {
  std::vector<std::pair<const char*, const std::vector<SweepRow>*>> out;
  if (first_ && !samples_differ_) out.emplace_back("shortest steps", &shortest_);
  if (first_ && samples_differ_) out.emplace_back("most samples per second", &fastest_);
  if (first_ && ranks_differ_)
    out.emplace_back("most samples per second of each rank (the least cost)", &cheapest_);
  return out;
}

std::string SweepSummary::problems() const {
  if (invalid_ == 0) return {};
  return report::wrapped(fmt::format("{} of {} points have no prediction; the first: {}\n",
                                     invalid_, rows_, first_reason_));
}

}  // namespace ddpsim::sweep
