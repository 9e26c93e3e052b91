// What published tables say of launches and of NVLS's chunks, from tables that were made with other
// values; and that a machine's own tables have no say in what it is judged with.

#include <gtest/gtest.h>

#include "calib/fit/constants.h"
#include "tests/support/support.h"

namespace ddpsim::calib {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

// A table of eight H100 as a machine with these constants would measure it.
struct Planted {
  Cluster cluster = test::cluster("hgx-h100");
  std::optional<topology::Fabric> fabric;
  CollectiveTable table;
  Planted(const std::string& machine, int minor, int gpus_per_process,
          const nccl::Constants& constants) {
    cluster.hosts = 1;
    fabric.emplace(cluster);
    nccl::Settings set;
    set.version = nccl::Version(minor);
    table.machine = machine;
    table.profile = test::profile(cluster.profile);
    table.group = nccl::build(*fabric, first_devices(8), set, table.profile.compute.capability);
    table.gpus_per_process = gpus_per_process;
    CollectiveTable made = table;
    nccl::set_constants(*made.group, constants);
    for (std::int64_t bytes = 8; bytes <= 256 * kMiB; bytes *= 2) {
      CollectiveRow row;
      row.bytes = bytes;
      row.choice = *nccl::choose(*table.group, table.op, bytes);
      made.rows = {row};
      row.measured = predict_table(made, made.profile).front().predicted;
      table.rows.push_back(row);
    }
  }
  Planted(const Planted&) = delete;
};

TEST(NcclConstants, AreWhatTheOtherMachinesTablesSay) {
  Planted first("first", 19, 8, {.own_channel = {0.3}});
  Planted second("second", 21, 8, {.own_channel = {0.5}});
  Planted newer("newer", 29, 8, {.batch_channel = {0.4}});
  Planted alone("alone", 29, 1, {.batch_channel = {0.9}, .nvls_chunk = {0.5}});
  const std::vector<CollectiveTable> tables{first.table, second.table, newer.table, alone.table};
  auto fitted = [&](const std::string& without) { return fit_constants(tables, without); };
  EXPECT_NEAR(fitted("").own_channel.us, 0.4, 1e-3) << "between the two machines";
  EXPECT_NEAR(fitted("first").own_channel.us, 0.5, 1e-3);
  EXPECT_NEAR(fitted("second").own_channel.us, 0.3, 1e-3);
  EXPECT_NEAR(fitted("").batch_channel.us, 0.4, 1e-3)
      << "one process a GPU says nothing of launches by channel";
  EXPECT_EQ(fitted("newer").batch_channel.us, 0);
}

TEST(NcclConstants, ChunksOfNvlsAreFound) {
  Planted machine("machine", 20, 1, {.nvls_chunk = {0.5}});
  EXPECT_NEAR(fit_constants({machine.table}, "").nvls_chunk.us, 0.5, 1e-9);
  EXPECT_EQ(fit_constants({machine.table}, "machine").nvls_chunk.us, 0);
}

// 16 channels, 8 heads, chunks of 16 KiB: a loop is 2 MiB, and one of half a chunk for each head
// has as many chunks to get going.
TEST(NcclConstants, AChunkThatIsNotFullTakesAsLongToGetGoing) {
  Planted machine("machine", 20, 1, {});
  auto total = [&](std::int64_t bytes, double chunk_us) {
    nccl::set_constants(*machine.table.group, {.nvls_chunk = {chunk_us}});
    nccl::Choice c = nccl::complete(*machine.table.group, Operation::AllReduce,
                                    nccl::Algorithm::Nvls, nccl::Protocol::Simple, bytes);
    EXPECT_EQ(c.chunk, 16 << 10);
    return nccl::time_of(*machine.table.group, machine.table.profile, Level::Mid,
                         Operation::AllReduce, c, {bytes})
        .total;
  };
  const std::int64_t full = total(2 * kMiB, 0.7).ps - total(2 * kMiB, 0.35).ps;
  EXPECT_NEAR(static_cast<double>(full), (8 - 16) * 0.35e6, 2)
      << "eight copies in, less NCCL's own latency, which has eight in and eight out";
  for (std::int64_t bytes : {kMiB / 4, kMiB})
    EXPECT_NEAR(static_cast<double>(total(bytes, 0.7).ps - total(bytes, 0.35).ps),
                static_cast<double>(full), 2)
        << bytes;
}

}  // namespace
}  // namespace ddpsim::calib
