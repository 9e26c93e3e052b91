// Differences between Horovod's releases, a row each; nothing else compares them. Read from the
// tags v0.20.0 to v0.28.1, and master 2626dc87, which does nothing otherwise that is modelled.
//
// Read, and not modelled: while synchronize() waits, Python's lock is free since 0.24.0 (#3353);
// the cache of responses knows all-gathers since 0.22.0 (#2872); process sets (0.23.0, #3042); over
// Gloo rank 0 gathers names since 0.26.0 (#3633), instead of all ranks.
#pragma once

#include <cstdint>

#include "sim/units/release.h"

namespace ddpsim::horovod {

// Named after what is so since the row's release.
enum class Change : std::uint8_t {
  OneMillisecond,
  BatchesCopies,
  Groups,
  WaitsOnTheDevice,
  AsyncCompletion,
  ScalesWithTheCopy,
  NcclAverages,
  TorusAllreduce,
};
struct Table {
  using Change = horovod::Change;
  using Row = DifferenceOf<Change>;
  static constexpr const char* kSoftware = "Horovod";
  static constexpr Release kOldest = "0.20.0";
  static constexpr Release kNewest = "0.28.1";
  static constexpr Release kInitially = "0.28.1";
  static constexpr bool kMonths = false;
  static constexpr const char* kNewer = "";
  static constexpr std::array kRows{
      Row{Change::OneMillisecond, "0.21.0",
          "a cycle of 5 ms and a fusion threshold of 64 MiB by default | 1 ms, 128 MiB",
          "#2468, horovod/common/operations.cc"},
      Row{Change::BatchesCopies, "0.21.0",
          "a copy into the fusion buffer a tensor | HOROVOD_BATCH_D2D_MEMCOPIES: one for up to 160",
          "#2435, horovod/common/ops/gpu_operations.cc"},
      Row{Change::Groups, "0.21.0",
          "each tensor by itself | groups (num_groups up to 0.21.2), HOROVOD_DISABLE_GROUP_FUSION",
          "#2453, #2523, horovod/torch/optimizer.py"},
      Row{Change::WaitsOnTheDevice, "0.23.0",
          "the thread waits for gradients before it reduces them | the stream waits",
          "#2963, horovod/common/operations.cc"},
      Row{Change::AsyncCompletion, "0.23.0",
          "the host waits for what is reduced | HOROVOD_ENABLE_ASYNC_COMPLETION: the device does",
          "#2963, horovod/common/ops/gpu_operations.cc"},
      Row{Change::ScalesWithTheCopy, "0.23.0",
          "a kernel divides sums | the batched copy out of the fusion buffer does",
          "#2973, horovod/common/ops/nccl_operations.cc"},
      Row{Change::NcclAverages, "0.26.0", "NCCL sums, and Horovod divides | NCCL averages",
          "#3646, horovod/common/ops/nccl_operations.cc"},
      Row{Change::TorusAllreduce, "0.26.0", "no torus | HOROVOD_TORUS_ALLREDUCE",
          "#3608, horovod/common/ops/nccl_operations.cc"},
  };
};
static_assert(rows_in_order_of_time(Table::kRows), "a row for each Change, older ones first");

using Version = VersionOf<Table>;

}  // namespace ddpsim::horovod
