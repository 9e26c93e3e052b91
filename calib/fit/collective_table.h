// Tables of nccl-tests, each on the cluster that it was measured on: its rows by size, as measured,
// as NCCL chose, and as the price of what NCCL ran predicts them. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/model/run.h"
#include "sim/nccl/fabric/nccl.h"

namespace ddpsim::calib {

struct CollectiveRow {
  std::int64_t bytes = 0;
  Duration measured;  // out of place
  Duration in_place;  // 0 = not in the table
  Duration predicted;
  Duration nccl;  // NCCL's own estimate of what it chooses
  nccl::Choice choice;
  nccl::OperationTime price;
  bool available = true;  // false: nothing may run under the table's settings
};

// One table on the cluster that it was measured on. The Fabric that `group` names must outlive it.
struct CollectiveTable {
  std::string name;
  std::string machine;  // tables of one machine never fit one another
  const Run* run = nullptr;
  nccl::OwnedGroup group;
  Profile profile;  // of the cluster's devices, as shipped
  Operation op = Operation::AllReduce;
  int gpus_per_process = 1;
  std::vector<CollectiveRow>
      rows;  // by size: what was measured, and what NCCL chooses. read_rows() makes them
};
void read_rows(CollectiveTable& t);
// Whether the profile was fitted to this table: Profile::fitted_from has the key of its Run.
bool in_sample(const Profile& p, const CollectiveTable& t);

// Who measured it: the cluster and the source up to its revision.
std::string machine_of(const CollectiveSetting& s);

// Sizes: below 1 MiB, up to 16 MiB, and above.
enum class Band : std::uint8_t { Small, Middle, Large };
inline constexpr std::size_t kBands = 3;
Band band_of(std::int64_t bytes);

// Generation of its GPUs: 7 = Volta, 8 = Ampere, 9 = Hopper, 10 = Blackwell; 0 = AMD's, with RCCL.
int generation_of(const CollectiveTable& t);

// Its rows as the profile predicts them.
std::vector<CollectiveRow> predict_table(const CollectiveTable& t, const Profile& profile);

}  // namespace ddpsim::calib
