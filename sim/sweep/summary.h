// What the rows of a sweep say together.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/sweep/rows.h"

namespace ddpsim::sweep {

inline constexpr const char* kJitterNote =
    "the scenario's jitter is in samples/s and efficiency; the steps are those without it";

// "profile h100-sxm.datasheet: datasheet, never measured on this hardware", for each profile.
std::vector<std::string> provenance(const std::vector<SweepRow>& rows);

// The best few of those that fit, and how many points have no prediction: what a person wants to
// know when it is done. Where points differ in the samples of a step, a shorter step says little:
// then by samples per second, and where they differ in ranks also by samples per second of a rank.
class SweepSummary {
 public:
  void add(const SweepRow& row);
  // Lists of rows, each with its title, the best row first.
  std::vector<std::pair<const char*, const std::vector<SweepRow>*>> lists() const;
  std::string notes() const;     // what all rows have in common, as lines
  std::string problems() const;  // how many have no prediction, as lines; "" = all have one
  std::int64_t internal_errors() const { return internal_; }

 private:
  std::int64_t rows_ = 0;
  std::int64_t invalid_ = 0;
  std::int64_t internal_ = 0;
  std::int64_t beyond_ = 0;
  std::int64_t unfit_ = 0;  // do not fit
  bool jitter_ = false;
  std::string first_reason_;
  std::string first_beyond_;
  std::optional<SweepRow> first_;  // of those with a prediction
  bool samples_differ_ = false;
  bool ranks_differ_ = false;
  std::vector<SweepRow> shortest_;
  std::vector<SweepRow> fastest_;   // samples per second
  std::vector<SweepRow> cheapest_;  // samples per second of a rank
  std::vector<SweepRow> profiles_;  // one of each
};

}  // namespace ddpsim::sweep
