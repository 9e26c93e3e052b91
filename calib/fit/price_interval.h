// Intervals of NCCL's prices: of each size, what 80 % of other machines' published rows took for
// each second of their price, with the shipped profiles; and how many rows of a machine that was
// left out are inside. Pure.
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "calib/fit/collective_table.h"
#include "sim/nccl/fabric/spread.h"

namespace ddpsim::calib {

struct PriceInterval {
  double low = 1;   // measured / predicted: a tenth of all machines' rows is below, each machine
  double high = 1;  // counted once; a tenth is above
  std::size_t machines = 0;
  std::size_t rows = 0;
  std::size_t inside = 0;  // rows in the interval that the other machines' rows make
};
using PriceIntervals = std::array<PriceInterval, nccl::kPriceSpread.size()>;  // by its sizes

// Of measured / predicted of each machine's rows, by machine.
PriceInterval interval_of(const std::map<std::string, std::vector<double>>& by_machine);

// Collects rows that are priced with the shipped profiles.
class PriceRatios {
 public:
  void add(const std::string& machine, const std::vector<CollectiveRow>& shipped);
  PriceIntervals intervals() const;

 private:
  std::array<std::map<std::string, std::vector<double>>, nccl::kPriceSpread.size()> by_size_;
};

}  // namespace ddpsim::calib
