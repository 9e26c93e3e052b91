// Open MPI: its choices (oracle/open_mpi.py has all of them), what MCA variables change, closed
// forms of what it runs, and its one collective at a time.
#include <cstdlib>
#include <map>

#include <gtest/gtest.h>

#include "sim/collective/messages.h"
#include "sim/play/alone.h"
#include "sim/systems/base/lower.h"
#include "sim/systems/ddp/plan.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

using collective::MpiAllReduce;
using collective::OpenMpi;
using collective::OpenMpiVersion;

constexpr double kMpiLatency = 50e6;      // picoseconds
constexpr double kMpiByte = 8'000;        // picoseconds at 1 Gb/s
constexpr double kMpiSum = 250;           // picoseconds a byte at 4 GB/s
constexpr double kMpiRendezvous = 300e6;  // picoseconds

// Closed form and messages of one all-reduce on `n` ranks of a star.
struct MpiTimes {
  double closed = 0;
  double messages = 0;
};
MpiTimes mpi_times(int n, std::int64_t bytes, const OpenMpi& mpi,
                   const std::string& transport = "wire", Level level = Level::Mid) {
  Profile p = ideal_profile(kMicrosecond * 50, DeviceKind::Cpu);
  p.reduction_bytes_per_s = 4e9;
  p.transports[transport] = p.transports.at("wire");
  p.transports.at(transport).rendezvous = kMicrosecond * 300;
  Cluster cluster = star(n, Bandwidth{1'000'000'000});
  cluster.link.transport = transport;
  const topology::Fabric fabric(cluster);
  const std::vector<DeviceId> devices = first_devices(n);
  const collective::Communicator c = collective::make_mpi(fabric, devices, mpi);
  const auto alone = [&](predict::Fidelity f) {
    return static_cast<double>(predict::all_reduce_alone(c, p, {bytes}, f, level, 0).ps);
  };
  return {alone(predict::Fidelity::Collective), alone(predict::Fidelity::Message)};
}

void expect_mpi(int n, std::int64_t bytes, int forced, double expected) {
  OpenMpi mpi;
  mpi.all_reduce = forced;
  const MpiTimes t = mpi_times(n, bytes, mpi);
  EXPECT_NEAR(t.closed / expected, 1, 1e-3) << n << " ranks, algorithm " << forced;
  EXPECT_NEAR(t.messages / expected, 1, 1e-2) << n << " ranks, algorithm " << forced;
}

// Messages of 8,000,000 / n bytes and more wait for their receivers.
TEST(OpenMpiTimes, AreTheClosedForms) {
  const double s = 8e6;
  const double a = kMpiLatency + kMpiRendezvous;
  for (int n : {2, 4, 8}) {
    const int k = n == 2 ? 1 : n == 4 ? 2 : 3;
    const double share = (n - 1) / static_cast<double>(n);
    expect_mpi(n, 8'000'000, 6, 2 * k * a + 2 * share * s * kMpiByte + share * s * kMpiSum);
    expect_mpi(n, 8'000'000, 3, k * (a + s * (kMpiByte + kMpiSum)));
    expect_mpi(n, 8'000'000, 4, 2 * (n - 1) * (a + s / n * kMpiByte) + (n - 1) * s / n * kMpiSum);
  }
  // Two are four with a neighbour each that folds: halves both ways, one half more, all at the end.
  expect_mpi(6, 8'000'000, 6,
             7 * a + (0.5 + 0.5 + 1.5 + 1) * s * kMpiByte + (0.5 + 0.75) * s * kMpiSum);
}

// Over TCP: with another rank than the last time, the directions go one after the other; what goes
// one way does not wait, and the first 64 KiB come with the announcement. Between levels: all of
// them, and none.
TEST(OpenMpiTimes, ExchangesWithAnotherRankTakeTurns) {
  const double s = 8e6;
  const double a = kMpiLatency + kMpiRendezvous;
  const double eager = 65'536 * kMpiByte;
  const auto expect = [&](int n, int forced, double expected, Level level = Level::Mid,
                          bool polls = false) {
    OpenMpi mpi;
    mpi.all_reduce = forced;
    mpi.polls = polls;
    const MpiTimes t = mpi_times(n, 8'000'000, mpi, "tcp", level);
    EXPECT_NEAR(t.closed / expected, 1, 1e-3) << n << " ranks, algorithm " << forced;
    EXPECT_NEAR(t.messages / expected, 1, 1e-2) << n << " ranks, algorithm " << forced;
  };
  // Two ranks: the second exchange as the first.
  const double two = 2 * a + s * kMpiByte + 0.5 * s * kMpiSum;
  expect(2, 6, two);
  expect(2, 6, two + s * kMpiByte - 2 * eager, Level::Low);
  expect(2, 6, two + 0.3 * (s * kMpiByte - 2 * eager), Level::Mid, true);
  // Four: the second partner is another, the third exchange is with it again, the fourth with the
  // first partner.
  const double four = 4 * a + 1.5 * s * kMpiByte + 0.75 * s * kMpiSum;
  expect(4, 6, four, Level::High);
  expect(4, 6, four + s * kMpiByte - 3 * eager);
  expect(4, 6, four + 1.5 * s * kMpiByte - 4 * eager, Level::Low);
  // A thread that polls: the first exchange, too, now and then.
  expect(4, 6, four + s * kMpiByte - 3 * eager + 0.3 * (0.5 * s * kMpiByte - eager), Level::Mid,
         true);
  expect(4, 3, 2 * (a + s * (kMpiByte + kMpiSum)) + s * kMpiByte - eager);
  expect(4, 4, 6 * (a + s / 4 * kMpiByte) + 0.75 * s * kMpiSum);
  // Three: halves exchanged with the neighbour, one half one way, two exchanges of two ranks, of
  // which one has waited in MPI, all of it one way.
  expect(3, 6, 5 * a + (0.5 + 0.5 + 1 + 1) * s * kMpiByte + s * kMpiByte - 2 * eager + s * kMpiSum);
}

TEST(OpenMpiTimes, SmallMessagesDoNotWaitForTheirReceivers) {
  OpenMpi mpi;
  mpi.all_reduce = 3;
  const double small = kMpiLatency + 65'536 * (kMpiByte + kMpiSum);
  EXPECT_NEAR(mpi_times(2, 65'536, mpi).closed, small, 1e-3 * small);
  const double large = small + kMpiRendezvous;
  EXPECT_NEAR(mpi_times(2, 65'540, mpi).closed, large, 1e-3 * large);
  EXPECT_NEAR(mpi_times(2, 65'540, mpi).messages, large, 1e-3 * large);
  mpi.eager = 1 << 20;
  EXPECT_NEAR(mpi_times(2, 65'540, mpi).closed, small, 1e-3 * small);
}

TEST(OpenMpiChoice, IsForcedByTwoVariables) {
  const std::string prefix = "OMPI_MCA_coll_tuned_";
  const auto parse = [&](std::map<std::string, std::string> variables) {
    std::map<std::string, std::string> environment;
    for (const auto& [name, value] : variables) environment[prefix + name] = value;
    return collective::parse_open_mpi("4.1.4", environment);
  };
  const auto ring = parse({{"use_dynamic_rules", "1"}, {"allreduce_algorithm", "ring"}});
  EXPECT_FALSE(ring.problem);
  EXPECT_EQ(collective::all_reduce_that_runs(ring.mpi, 8, 1 << 20, 4), MpiAllReduce::Ring);
  EXPECT_EQ(collective::all_reduce_that_runs(ring.mpi, 8, 28, 4), MpiAllReduce::RecursiveDoubling)
      << "seven elements";
  EXPECT_EQ(collective::all_reduce_that_runs({}, 40, 31 * 8, 8), MpiAllReduce::BasicLinear)
      << "31 elements, and 32 ranks are left of 40";
  const Problem alone = parse({{"allreduce_algorithm", "4"}}).problem;
  EXPECT_NE(alone.message.find("use_dynamic_rules=1"), std::string::npos);
  EXPECT_TRUE(parse({{"use_dynamic_rules", "1"}, {"allreduce_algorithm", "8"}}).problem);
  EXPECT_TRUE(parse({{"alltoall_algorithm", "1"}}).problem);
  EXPECT_TRUE(collective::parse_open_mpi("3.1", {}).problem);
  EXPECT_EQ(collective::parse_open_mpi("5.0.9", {}).mpi.version, OpenMpiVersion::V5_0);
}

TEST(OpenMpiChoice, OfBroadcasts) {
  struct Row {
    int ranks;
    std::int64_t bytes;
    Algorithm algorithm;
  };
  using A = Algorithm;
  for (const Row& r : {Row{2, 31, A::Chain},
                       {2, 32, A::BinaryTree},
                       {3, 512, A::Knomial},
                       {3, 1024, A::BasicLinear},
                       {2, 1 << 20, A::BinaryTree},
                       {4, 127, A::BinomialTree},
                       {7, 8192, A::BasicLinear},
                       {4, 1 << 20, A::Chain},
                       {8, 32768, A::BasicLinear},
                       {16, 1 << 20, A::ScatterAllGather},
                       {17, 1 << 20, A::BinomialTree},
                       {63, 2048, A::Knomial},
                       {4096, 8192, A::BinaryTree}})
    EXPECT_EQ(collective::fixed_broadcast(r.ranks, r.bytes), r.algorithm)
        << r.ranks << " ranks, " << r.bytes << " bytes";
}

// Who sends how many messages and bytes to whom: as Open MPI 4.1.4 did, by its own monitoring
// (tools/mpi_messages). Blocks that cannot be equal may differ by an element. What a reduce and a
// broadcast that do not overlap are made of is decided apart, and here only taken as trees.
TEST(OpenMpiChoice, SendsTheMessagesThatOpenMpiSent) {
  using Sent = std::map<std::pair<int, int>, std::pair<std::int64_t, std::int64_t>>;
  const io::Json file = read_json("tests/data/open_mpi_messages.json");
  int compared = 0;
  for (const io::Json& row : file.at("cases")) {
    const int n = row.at("ranks").get<int>();
    const auto bytes = row.at("bytes").get<std::int64_t>();
    const bool broadcast = row.at("operation") == "broadcast";
    OpenMpi mpi;
    mpi.all_reduce = row.value("forced", 0);
    if (mpi.all_reduce == static_cast<int>(MpiAllReduce::NonOverlapping)) continue;
    const topology::Fabric fabric(star(n, Bandwidth{1'000'000'000}));
    const std::vector<DeviceId> devices = first_devices(n);
    const collective::Communicator c = collective::make_mpi(fabric, devices, mpi);
    const auto& made = std::get<collective::Mpi>(c.library);
    const collective::PatternId pattern =
        broadcast ? made.broadcast_pattern(collective::fixed_broadcast(n, bytes))
                  : made.pattern(collective::all_reduce_that_runs(mpi, n, bytes, 4));
    const collective::Schedule s = collective::schedule_of(c, pattern, bytes / 4, 4);
    Sent ours;
    for (int r = 0; r < n; ++r)
      for (const auto& step : s.ranks[static_cast<std::size_t>(r)].lanes[0])
        for (const collective::Message& m : step.sends) {
          auto& [messages, moved] = ours[{r, m.peer}];
          ++messages;
          moved += 4 * m.count;
        }
    Sent theirs;
    for (const io::Json& m : row.at("messages"))
      theirs[{m.at(0).get<int>(), m.at(1).get<int>()}] = {m.at(2).get<std::int64_t>(),
                                                          m.at(3).get<std::int64_t>()};
    ++compared;
    std::string what = row.at("operation").get<std::string>() + " of " + std::to_string(bytes) +
                       " bytes on " + std::to_string(n) + " ranks, forced " +
                       std::to_string(mpi.all_reduce);
    ASSERT_EQ(ours.size(), theirs.size()) << what;
    for (const auto& [pair, sent] : theirs) {
      ASSERT_TRUE(ours.count(pair)) << what << ": " << pair.first << " to " << pair.second;
      EXPECT_EQ(ours[pair].first, sent.first)
          << what << ": " << pair.first << " to " << pair.second;
      EXPECT_LE(std::abs(ours[pair].second - sent.second), 4 * sent.first)
          << what << ": " << pair.first << " to " << pair.second;
    }
  }
  EXPECT_GE(compared, 100);
}

// ProcessGroupMPI: one thread, one queue.
TEST(OpenMpiGroup, RunsOneCollectiveAtATime) {
  const topology::Fabric fabric(cluster("ethernet-10g"));
  const Workload w = layered(6, kMiB, kMillisecond, kMicrosecond, DeviceKind::Cpu);
  Scenario s;
  s.ranks = 4;
  s.plan.backend = Backend::Mpi;
  ddp_of(s.plan).bucket_cap_mb = 0.0001;
  const Profile p = profile("cpu-generic.datasheet");
  const predict::Prediction out = predict::predict({w, fabric, p, s});
  ASSERT_EQ(out.summary.buckets.size(), 6u);
  for (std::size_t i = 0; i + 1 < 6; ++i)
    EXPECT_GE(out.summary.buckets[i + 1].begin, out.summary.buckets[i].end);
}

}  // namespace
}  // namespace ddpsim::test
