// One collective's parts on backends tcp, gloo and mpi (collective/parts.h), against closed forms
// on a star: a = a message's latency, B = a byte on the wire, r = a byte's sum.
#include "sim/collective/parts.h"

#include <gtest/gtest.h>

#include "sim/collective/messages.h"
#include "sim/play/alone.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

using collective::Communicator;
using collective::Parts;
using collective::Work;

constexpr double kA = 50e6;     // picoseconds
constexpr double kB = 8'000;    // at 1 Gb/s
constexpr double kR = 250;      // at 4 GB/s
constexpr double kL = 20e6;     // a launch
constexpr double kRdv = 300e6;  // Open MPI's rendezvous
constexpr double kS = 8e6;      // bytes

Profile with_parts() {
  Profile p = ideal_profile(Duration{static_cast<std::int64_t>(kA)}, DeviceKind::Cpu);
  p.reduction_bytes_per_s = 4e9;
  p.transports.at("wire").launch = Duration{static_cast<std::int64_t>(kL)};
  p.transports.at("wire").rendezvous = Duration{static_cast<std::int64_t>(kRdv)};
  return p;
}

struct Priced {
  Parts parts;
  Work work;
};

class PartsTest : public testing::Test {
 protected:
  Priced ask(int n, Backend backend, Algorithm algorithm, Operation op) {
    fabric_.emplace(star(n, Bandwidth{1'000'000'000}));
    const std::vector<DeviceId> devices = first_devices(n);
    collective::OpenMpi mpi;
    mpi.all_reduce = mpi_;
    Communicator c = backend == Backend::Mpi
                         ? collective::make_mpi(*fabric_, devices, mpi)
                         : collective::make_communicator(*fabric_, devices, backend, algorithm);
    if (op == Operation::SendRecv) collective::add_send_recv(c);
    const Profile p = with_parts();
    const Bytes size{static_cast<std::int64_t>(kS)};
    const collective::PriceOf of = [&](const Communicator& on, const Profile& with) {
      return collective::price(on, with, Level::Mid, op, size);
    };
    Priced out;
    out.parts = collective::parts_of(c, p, of);
    out.work = collective::work_of(c, of(c, p), out.parts.total, size);
    if (op == Operation::AllReduce)
      alone_ = predict::all_reduce_alone(c, p, size, predict::Fidelity::Collective, Level::Mid, 0);
    return out;
  }

  static void expect(const Priced& x, double latency, double transfer, double sums, double steps,
                     double sent, double factor) {
    EXPECT_EQ(x.parts.launch.ps + x.parts.latency.ps + x.parts.transfer.ps + x.parts.sums.ps,
              x.parts.total.ps);
    EXPECT_NEAR(static_cast<double>(x.parts.launch.ps), kL, 1);
    EXPECT_NEAR(static_cast<double>(x.parts.latency.ps), latency, 1e3);
    EXPECT_NEAR(static_cast<double>(x.parts.transfer.ps) / transfer, 1, 1e-6);
    EXPECT_NEAR(static_cast<double>(x.parts.sums.ps), sums, 1e3);
    EXPECT_EQ(static_cast<double>(x.work.steps), steps);
    EXPECT_NEAR(x.work.sent / sent, 1, 1e-12);
    EXPECT_NEAR(
        x.work.bus_bytes_per_s * static_cast<double>(x.parts.total.ps) / 1e12 / (kS * factor), 1,
        1e-9);
  }

  std::optional<topology::Fabric> fabric_;
  int mpi_ = 0;
  Duration alone_;
};

TEST_F(PartsTest, OfBackendTcp) {
  const int n = 4;
  const double bus = 2.0 * (n - 1) / n;
  // A ring: 2(n-1) messages of an n-th, half of them summed.
  expect(ask(n, Backend::Tcp, Algorithm::Ring, Operation::AllReduce), 6 * kA, bus * kS * kB,
         0.75 * kS * kR, 6, bus * kS, bus);
  // Halving and doubling: log2 n rounds each way.
  expect(ask(n, Backend::Tcp, Algorithm::HalvingDoubling, Operation::AllReduce), 4 * kA,
         bus * kS * kB, 0.75 * kS * kR, 4, bus * kS, bus);
  // Recursive doubling: all bytes, log2 n times.
  expect(ask(n, Backend::Tcp, Algorithm::RecursiveDoubling, Operation::AllReduce), 2 * kA,
         2 * kS * kB, 2 * kS * kR, 2, 2 * kS, bus);
  expect(ask(n, Backend::Tcp, Algorithm::Ring, Operation::AllGather), 3 * kA, 0.75 * kS * kB, 0, 3,
         0.75 * kS, 0.75);
  expect(ask(n, Backend::Tcp, Algorithm::Ring, Operation::ReduceScatter), 3 * kA, 0.75 * kS * kB,
         0.75 * kS * kR, 3, 0.75 * kS, 0.75);
  // The root of a binomial tree sends everything log2 n times.
  expect(ask(n, Backend::Tcp, Algorithm::Ring, Operation::Broadcast), 2 * kA, 2 * kS * kB, 0, 2,
         2 * kS, 1);
  expect(ask(n, Backend::Tcp, Algorithm::Ring, Operation::Reduce), 2 * kA, 2 * kS * kB, 2 * kS * kR,
         2, kS, 1);
}

// A message, all at once, from each rank to the next.
TEST_F(PartsTest, OfSendRecvOnEveryBackend) {
  for (int n : {2, 3, 8}) {
    expect(ask(n, Backend::Tcp, Algorithm::Ring, Operation::SendRecv), kA, kS * kB, 0, 1, kS, 1);
    // Gloo's payload goes after the receiver's word.
    expect(ask(n, Backend::Gloo, Algorithm::Ring, Operation::SendRecv), 2 * kA, kS * kB, 0, 1, kS,
           1);
    expect(ask(n, Backend::Mpi, Algorithm::Ring, Operation::SendRecv), kA + kRdv, kS * kB, 0, 1, kS,
           1);
  }
}

TEST_F(PartsTest, OfGloo) {
  const int n = 4;
  const double bus = 1.5;
  expect(ask(n, Backend::Gloo, Algorithm::HalvingDoubling, Operation::AllReduce), 8 * kA,
         bus * kS * kB, 0.75 * kS * kR, 4, bus * kS, bus);
  // Base 2 on four ranks: two rounds of pairs each way.
  expect(ask(n, Backend::Gloo, Algorithm::Bcube, Operation::AllReduce), 8 * kA, bus * kS * kB,
         0.75 * kS * kR, 4, bus * kS, bus);
  // The ring hides its latencies and sums behind its other segment: 2 (2 a + r) of one are left,
  // and the wire is never idle (a segment of 1 MB takes 8 ms).
  const Priced ring = ask(n, Backend::Gloo, Algorithm::Ring, Operation::AllReduce);
  const auto g = collective::gloo_segments(static_cast<std::int64_t>(kS), n);
  expect(ring, 4 * kA, bus * kS * kB, static_cast<double>(g.segment_bytes) * kR,
         6.0 * static_cast<double>(g.per_rank), bus * kS, bus);
}

TEST_F(PartsTest, OfOpenMpi) {
  const int n = 4;
  const double bus = 1.5;
  const double a = kA + kRdv;  // messages are above the eager limit
  mpi_ = 6;
  expect(ask(n, Backend::Mpi, Algorithm::Ring, Operation::AllReduce), 4 * a, bus * kS * kB,
         0.75 * kS * kR, 4, bus * kS, bus);
  mpi_ = 4;
  expect(ask(n, Backend::Mpi, Algorithm::Ring, Operation::AllReduce), 6 * a, bus * kS * kB,
         0.75 * kS * kR, 6, bus * kS, bus);
  mpi_ = 1;  // everybody to rank 0, which sends the result to everybody: its link carries 3 S
  expect(ask(n, Backend::Mpi, Algorithm::Ring, Operation::AllReduce), 2 * a, 6 * kS * kB,
         3 * kS * kR, 2, 3 * kS, bus);
}

// The whole is what a simulation of the collective alone takes.
TEST_F(PartsTest, AddUpToWhatASimulationTakes) {
  for (Backend b : {Backend::Tcp, Backend::Gloo, Backend::Mpi})
    for (int n : {2, 3, 4, 6, 8}) {
      const Priced x = ask(n, b, Algorithm::Ring, Operation::AllReduce);
      EXPECT_NEAR(static_cast<double>(x.parts.total.ps) / static_cast<double>(alone_.ps), 1, 1e-6)
          << name_of(b) << " " << n;
      for (Duration d : {x.parts.latency, x.parts.transfer, x.parts.sums}) EXPECT_GE(d.ps, 0);
    }
}

// A burst that fills while messages wait makes bytes faster than the steady rate: no part is
// negative for it.
TEST_F(PartsTest, AreNeverNegative) {
  Cluster c = star(4, Bandwidth{1'000'000'000});
  c.link.burst = {128 * 1024};
  c.link.peak = Bandwidth{10'000'000'000};
  const topology::Fabric fabric(c);
  const Profile p = with_parts();
  for (Backend b : {Backend::Tcp, Backend::Gloo, Backend::Mpi})
    for (std::int64_t bytes :
         {std::int64_t{64}, std::int64_t{4096}, std::int64_t{262144}, std::int64_t{8'000'000}}) {
      const Communicator comm = collective::make_communicator(fabric, {0, 1, 2, 3}, b);
      const Parts x =
          collective::parts_of(comm, p, [&](const Communicator& on, const Profile& with) {
            return collective::price(on, with, Level::Mid, Operation::AllReduce, {bytes});
          });
      for (Duration d : {x.launch, x.latency, x.transfer, x.sums}) EXPECT_GE(d.ps, 0) << bytes;
    }
}

}  // namespace
}  // namespace ddpsim::test
