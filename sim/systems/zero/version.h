// Differences between DeepSpeed's releases in ZeRO's schedule, volumes and memory, a row each;
// nothing else compares them. Read from the tags v0.10.3 to v0.19.5; files are of
// deepspeed/runtime.
//
// Read, and not modelled: 0.17.2 to 0.18.4 fill one of overlap_comm's two buffers before its
// reduction has ended (#6993, #7805), which takes no time. Options that are off by themselves: leaf
// modules (0.13.0, #4966), weights by all-reduce (0.14.3, #5420), gathered one by one (0.18.5,
// #7661). An answer names the rows below that are not modelled and that its plan meets.
#pragma once

#include <cstdint>

#include "sim/units/release.h"

namespace ddpsim::deepspeed {

// Named after what is so since the row's release.
enum class Change : std::uint8_t {
  ChecksFp16Alone,
  SharedAllReduce,
  GathersAtOnce,
  ReducesToOwners,
  NormOfAllIsRead,
  NormStaysOnTheDevice,
  SecondCopyByPresence,
  OverflowStaysOnTheDevice,
  HostWaitsForSecondCopy,
  AveragesWhatIsFilled,
  CopiesSinglesBack,
  ComputationWaits,
  ClipsOnTheDevice,
  NormOfStage3StaysOnTheDevice,
  HostKeepsTheFirst,
  CastsForTheHost,
  CountsWhatStays,
  NoBufferBetween,
  CountsAnew,
  CopiesHalvesBack,
  WaitsForItself,
  OverlapsAgain,
  HooksCount,
  HooksCountOnce,
  HostKeepsEach,
  PinsMemory,
};
struct Table {
  using Change = deepspeed::Change;
  using Row = DifferenceOf<Change>;
  static constexpr const char* kSoftware = "DeepSpeed";
  static constexpr Release kOldest = "0.10.3";
  static constexpr Release kNewest = "0.19.5";
  static constexpr Release kInitially = "0.14.5";
  static constexpr bool kMonths = false;
  static constexpr const char* kNewer = "";
  static constexpr std::array kRows{
      Row{Change::ChecksFp16Alone, "0.11.2",
          "gradients of each type are searched for infinities | of fp16",
          "#4512, zero/stage_1_and_2.py, zero/stage3.py"},
      Row{Change::SharedAllReduce, "0.12.4",
          "1, 2: slices are reduced to their owners one by one | a bucket is all-reduced "
          "(use_multi_rank_bucket_allreduce)",
          "#4695, zero/stage_1_and_2.py"},
      Row{Change::GathersAtOnce, "0.12.4",
          "1, 2: weights are gathered in lists of allgather_bucket_size | at once",
          "#4695, #4705, utils.py"},
      Row{Change::ReducesToOwners, "0.13.0",
          "1, 2: use_multi_rank_bucket_allreduce=false all-reduces what a rank owns | reduces it",
          "#4946, zero/stage_1_and_2.py"},
      Row{Change::NormOfAllIsRead, "0.13.0",
          "3: the host waits for each group's norm | for that of all", "#4436, zero/stage3.py"},
      Row{Change::NormStaysOnTheDevice, "0.13.2",
          "1, 2: the host reads the norm of each gradient, and of all | none",
          "#4974, zero/stage_1_and_2.py"},
      // Not modelled.
      Row{Change::SecondCopyByPresence, "0.13.2",
          "hpZ: backward gathers from the second copy | whoever finds it there does",
          "#4906, zero/partition_parameters.py"},
      Row{Change::OverflowStaysOnTheDevice, "0.13.3",
          "1, 2: the host reads the sum of each gradient | a flag of all",
          "#5115, zero/stage_1_and_2.py"},
      Row{Change::HostWaitsForSecondCopy, "0.13.5",
          "hpZ: the host goes on while a parameter's second copy is made | waits for it",
          "#5216, zero/partition_parameters.py"},
      Row{Change::AveragesWhatIsFilled, "0.14.1",
          "1, 2: a bucket's whole buffer is divided, and without reduce_scatter all-reduced | what "
          "is filled of it",
          "#5268, zero/stage_1_and_2.py"},
      Row{Change::CopiesSinglesBack, "0.14.1",
          "1, 2, offload_optimizer: the host casts weights before it copies them | the device "
          "casts",
          "#5301, zero/stage_1_and_2.py"},
      Row{Change::ComputationWaits, "0.14.3",
          "1, 2: computation passes by all reductions | waits for those before the last",
          "#5606, zero/stage_1_and_2.py"},
      Row{Change::ClipsOnTheDevice, "0.14.3",
          "1, 2: the host reads the norm to clip gradients | the device clips",
          "#5632, zero/stage_1_and_2.py"},
      Row{Change::NormOfStage3StaysOnTheDevice, "0.14.5",
          "3: the host reads the norm of all | none; each group's with offload_optimizer",
          "#5504, zero/stage3.py"},
      Row{Change::HostKeepsTheFirst, "0.15.2",
          "1, 2, offload_optimizer: sums go to the host in micro-steps but the last | in the first",
          "#6550, zero/stage_1_and_2.py"},
      Row{Change::CastsForTheHost, "0.15.4",
          "3, offload_optimizer: the host casts gradients | the device does; pinned memory between",
          "#6670, zero/stage3.py"},
      Row{Change::CountsWhatStays, "0.16.0",
          "3: weights that are there are counted from 0 after each backward | after each step",
          "#6726, zero/partitioned_param_coordinator.py"},
      Row{Change::NoBufferBetween, "0.16.3",
          "3, offload_optimizer: gradients by way of pinned memory | straight",
          "#6962, zero/stage3.py"},
      Row{Change::CountsAnew, "0.16.8",
          "3: weights that are there are counted from 0 after each step | after each backward",
          "#7258, zero/partitioned_param_coordinator.py"},
      Row{Change::CopiesHalvesBack, "0.17.0",
          "1, 2, offload_optimizer: the device casts weights | the host does, and copies halves",
          "#7309, zero/stage_1_and_2.py"},
      Row{Change::WaitsForItself, "0.17.5",
          "1, 2: computation waits for the reductions before the last | for the last, too: nothing "
          "overlaps",
          "#7371, zero/stage_1_and_2.py"},
      Row{Change::OverlapsAgain, "0.18.5",
          "1, 2: computation waits for each reduction | for those before the last",
          "#7805, zero/stage_1_and_2.py"},
      // Not modelled.
      Row{Change::HooksCount, "0.18.5",
          "a hook takes its gradient | counts all parameters of backward before",
          "#7780, zero/stage_1_and_2.py, zero/stage3.py"},
      Row{Change::HooksCountOnce, "0.18.7",
          "each hook counts all parameters of backward | the first does",
          "#7886, zero/stage_1_and_2.py, zero/stage3.py"},
      Row{Change::HostKeepsEach, "0.19.0",
          "1, 2, offload_optimizer: sums go to the host in the first micro-step | in each",
          "#7967, zero/stage_1_and_2.py"},
      Row{Change::PinsMemory, "0.19.5",
          "pin_memory is false by itself, and copies of gradients of four bytes are waited for | "
          "true, and not if pinned",
          "#8207, zero/offload_config.py, zero/stage3.py"},
  };
};
static_assert(rows_in_order_of_time(Table::kRows), "a row for each Change, older ones first");

using Version = VersionOf<Table>;

}  // namespace ddpsim::deepspeed
