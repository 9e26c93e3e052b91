// Tables of nccl-tests beside the price of what NCCL ran: the mechanism alone, its one latency and
// one efficiency per kind of link taken from other machines' tables; a table's own sizes, every
// other one fitted; and a Profile that is fitted to all of them. Pure.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "calib/fit/collective_table.h"
#include "calib/fit/link_fit.h"

namespace ddpsim::calib {

// A size whose time is more than 10 % below that of the size before it.
struct Cliff {
  std::int64_t from = 0;
  std::int64_t to = 0;
  double fall = 0;  // share
  std::string why;  // "NCCL changes from tree/ll to tree/simple", or "an artefact of the source"
  bool switched = false;  // the predicted choice differs on both sides
};

struct BandError {
  std::size_t rows = 0;
  double median = 0;       // of |predicted / measured - 1|
  double nccl_median = 0;  // of NCCL's estimate
};
// One size of a table, from every other size: on the line between the sizes next to it (linear in
// bytes).
struct FittedRow {
  std::int64_t bytes = 0;
  double error = 0;
  bool at_cliff = false;   // a cliff begins at it, or at a size that it is predicted from
  std::int64_t below = 0;  // the sizes that it is predicted from
  std::int64_t above = 0;
  std::optional<double> in_place;  // in place / out of place - 1: how far the table is from itself
  bool gap() const { return above > 4 * below; }  // the table lacks a size beside it
  // The error of the line that fits the three sizes best, this one among them: e / (2 + e).
  double best_line() const { return error / (2 + error); }
};
struct TableResult {
  std::string name;
  std::string machine;
  bool in_sample = false;     // its profile was fitted to it: in no median of several tables
  LinkFits fits;              // from other machines' tables, of the links that it uses
  nccl::Constants constants;  // as those say them
  std::vector<CollectiveRow> rows;
  std::array<BandError, kBands> bands;
  std::vector<Cliff> cliffs;
  std::vector<FittedRow> fitted;
  double fitted_median = 0;
};
// A series on one machine: latency, efficiency and what the mechanism lacks by size are taken from
// the tables of at most `ranks` ranks; the errors are of the others.
struct Extrapolation {
  std::vector<std::string> from;
  std::string table;
  std::size_t rows = 0;
  double median = 0;
};
struct CollectiveReport {
  std::vector<TableResult> tables;
  nccl::Constants constants;            // as all tables say them
  std::array<double, kBands> median{};  // of the tables' medians
  std::size_t cells_off = 0;            // (table, band) where NCCL is off by more than 5 %
  std::size_t cells_closer = 0;         // ... and we are closer
  double most_worse = 0;                // elsewhere: our median less NCCL's, the largest
  double fitted_median = 0;             // of the medians of tables without a cliff
  double fitted_worst_median = 0;       // ... the largest of them
  double fitted_p95 = 0;                // pooled over 1 to 128 MiB, sizes at cliffs left out
  std::size_t fitted_pooled = 0;
  std::size_t fitted_at_cliffs = 0;
  std::size_t fitted_gaps = 0;      // of the pooled: beside a size that the table lacks
  double fitted_p95_no_gaps = 0;    // ... without them
  double fitted_p95_in_place = 0;   // of the pooled: in place against out of place
  double fitted_p95_best_line = 0;  // of the pooled: what no line through the three sizes avoids
  std::vector<Extrapolation> extrapolated;  // machines with tables of at most 64 ranks and of more
};

std::vector<Extrapolation> extrapolate(const std::vector<CollectiveTable>& tables,
                                       const std::string& machine, int ranks);

// A Profile whose links are fitted to all of these tables: factors of steps and efficiency, the
// range by the spread of the rows that a link limits. What the fit leaves, by table and size: in
// itself, of a size that it did not see, and what the table says of itself.
struct CollectiveResidual {
  std::string table;
  int ranks = 0;
  std::int64_t bytes = 0;
  Duration measured;
  double error = 0;                    // of this profile
  double base_error = 0;               // of the one that it was made from
  std::optional<double> without_size;  // of the profile that the same fit makes of all tables
                                       // without this size; none if they have no other
  std::optional<double> interpolated;  // of the line between the sizes beside it in the table,
                                       // which asks no profile; none at the ends
};
struct CollectiveFit {
  Profile profile;
  LinkFits links;
  std::vector<CollectiveResidual> residuals;
};
// What would leave a larger median error than `base` is refused.
// REQUIRES: one table at least; all of them of `base`'s devices.
CollectiveFit fit_collectives(const Profile& base, const std::string& name,
                              std::vector<CollectiveTable> tables);

// Leave one machine out.
CollectiveReport judge_collectives(const std::vector<CollectiveTable>& tables);

}  // namespace ddpsim::calib
