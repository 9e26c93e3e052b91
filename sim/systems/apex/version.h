// Differences between states of NVIDIA Apex's DistributedDataParallel, a row each; nothing else
// compares them. Apex is built from its master branch, and a state is the end of a month of it;
// from 22.03 on many are tags, too. Read from February 2019 to the tag 25.05; commit cb65b8ed of
// May 2025 removed apex.parallel.DistributedDataParallel.
//
// Read, and not modelled: up to 19.07 a gradient_predivide_factor that is the number of ranks
// leaves out the multiplication after the all-reduce; with retain_allreduce_buffers gradients stay
// beside the buffers, and an answer says so.
#pragma once

#include <cstdint>

#include "sim/units/release.h"

namespace ddpsim::apex {

// Named after what is so since the row's month.
enum class Change : std::uint8_t {
  UnflattensTogether,
  DisableAllreduce,
  SeveralStreams,
  FlattensOnTheMainStream,
  RetainedBuffersAreGradients,
};
struct Table {
  using Change = apex::Change;
  using Row = DifferenceOf<Change>;
  static constexpr const char* kSoftware = "NVIDIA Apex";
  static constexpr Release kOldest = "19.2";
  static constexpr Release kNewest = "25.5";
  static constexpr Release kInitially = "25.5";
  static constexpr bool kMonths = true;
  static constexpr const char* kNewer =
      "later ones have no DistributedDataParallel: commit cb65b8ed removed it";
  static constexpr std::array kRows{
      Row{Change::UnflattensTogether, "19.3",
          "a copy out of the flat buffer a gradient | multi_tensor_scale copies many",
          "7f0d8c87, apex/parallel/distributed.py"},
      Row{Change::DisableAllreduce, "19.6",
          "each micro-step reduces | disable_allreduce() keeps those before the last from it",
          "#356, apex/parallel/distributed.py"},
      Row{Change::SeveralStreams, "19.8", "one stream of reductions | num_allreduce_streams",
          "15648029 (73d4212d), apex/parallel/distributed.py"},
      Row{Change::FlattensOnTheMainStream, "19.8",
          "the flat copy is on the stream of reductions | on that of computation",
          "15648029 (25ac9897), apex/parallel/distributed.py"},
      Row{Change::RetainedBuffersAreGradients, "19.8",
          "retained buffers are beside gradients | gradients are views of them",
          "15648029 (25ac9897), apex/parallel/distributed.py"},
  };
};
static_assert(rows_in_order_of_time(Table::kRows), "a row for each Change, older ones first");

using Version = VersionOf<Table>;

}  // namespace ddpsim::apex
