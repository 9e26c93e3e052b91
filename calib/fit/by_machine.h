// Errors of nccl-tests tables as somebody with another machine would find them: a machine's tables
// together, priced with what other machines' tables say, and with the shipped profile alone. Pure.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "calib/fit/collectives.h"
#include "calib/fit/price_interval.h"

namespace ddpsim::calib {

// Sizes: from, up to and without.
struct SizeRange {
  const char* what;
  std::int64_t from;
  std::int64_t to;
};
inline constexpr std::int64_t kMebibyte = 1 << 20;
inline constexpr std::array<SizeRange, 4> kSizeRanges{
    {{"< 1 MiB", 0, kMebibyte},
     {"1-16 MiB", kMebibyte, 16 * kMebibyte},
     {"16-128 MiB", 16 * kMebibyte, 128 * kMebibyte},
     {">= 16 MiB", 16 * kMebibyte, INT64_MAX}}};

struct RangeError {
  std::size_t rows = 0;
  double median = 0;   // of |predicted / measured - 1|
  double bias = 0;     // median of predicted / measured - 1
  double shipped = 0;  // of |...|, with the shipped profile
};
struct MachineErrors {
  std::string machine;
  nccl::Constants constants;  // as the other machines' tables say them
  std::size_t tables = 0;
  std::array<RangeError, kSizeRanges.size()> ranges;
};
// Over machines that have such sizes.
struct OverMachines {
  std::size_t machines = 0;
  double median = 0;
  double shipped = 0;
  double worst = 0;
  std::string worst_machine;
};
struct MachineReport {
  std::vector<MachineErrors> machines;
  nccl::Constants constants;  // as all tables say them
  std::array<OverMachines, kSizeRanges.size()> over;
  PriceIntervals intervals;
};
// `report`: of judge_collectives(tables). Tables that a profile was fitted to have no say.
MachineReport by_machine(const std::vector<CollectiveTable>& tables,
                         const CollectiveReport& report);

}  // namespace ddpsim::calib
