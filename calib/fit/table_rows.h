// Functions of rows of nccl-tests' tables that reading, fitting and judging them share. Internal:
// only the files of calib/fit include it.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "calib/fit/collective_table.h"
#include "sim/analysis/compare.h"

namespace ddpsim::calib {

// 0 of nothing.
inline double median_of(std::vector<double> v) {
  return v.empty() ? 0 : analysis::median(std::move(v));
}

// Share, signed.
inline double error_of(Duration predicted, Duration measured) {
  return predicted / measured - 1;
}

// Transports that the table's messages cross.
std::set<std::string> transports_of(const CollectiveTable& t);

// Prices a row's choice under the profile: `price` and `predicted`. REQUIRES: row.available.
void predict_row(const CollectiveTable& t, const Profile& p, CollectiveRow& row);

}  // namespace ddpsim::calib
