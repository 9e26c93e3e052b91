// A TCP connection delivers in order, across collectives. Where every hop of the ring has its links
// to itself (a star; racks that the ring enters and leaves once) and every rank its cores:
//   the end of a bucket does not depend on the buckets after it: what they send queues behind it,
//   everywhere a larger send buffer never lengthens anything: a sender that goes on sooner puts
//   nothing before anybody's data, and every
//     time is a maximum or a sum of earlier ones
#include <gtest/gtest.h>

#include "sim/systems/ddp/plan.h"
#include "tests/laws/shared_links.h"

namespace ddpsim::test {
namespace {

constexpr std::uint64_t kCases = 200;

struct Ring {
  SharedLinks net;
  std::vector<std::int64_t> bytes;  // of the buckets
  std::vector<double> slow;         // computation, by rank
};

Ring random_ring(std::uint64_t seed) {
  Random rng(seed * 9176 + 11);
  Ring out;
  SharedLinks& s = out.net;
  int hosts = 2 * (1 + rng.below(4));
  Bandwidth nic{static_cast<std::int64_t>(1e8 * (1 + rng.below(10)))};
  s.cluster = star(hosts, nic);
  s.cluster.device = DeviceKind::Cpu;
  s.profile = ideal_profile(kMicrosecond * (5 + rng.below(45)), s.cluster.device);
  s.profile.reduction_bytes_per_s = rng.below(2) ? 1e9 : 0;
  if (rng.below(2)) s.cluster.link.burst = {131'072}, s.cluster.link.peak = {10'000'000'000};
  if (rng.below(3) == 0) {
    s.cluster.pattern = Pattern::Racks;
    s.cluster.racks = 2;
    s.cluster.uplink = s.cluster.link;
    s.cluster.uplink.bandwidth = times(nic, 0.4 + rng.uniform());
  }
  if (rng.below(3) > 0)
    s.cluster.slow_links = {{HostId::at(rng.below(hosts)), times(nic, 0.3 + 0.5 * rng.uniform())}};
  for (int r = 0; r < hosts; ++r) {
    s.renamed.push_back(r);
    out.slow.push_back(rng.below(3) == 0 ? 1 + 2 * rng.uniform() : 1);
  }
  s.parts.assign(2, {first_devices(hosts), 1});
  for (int k = 2 + rng.below(5); k > 0; --k)
    out.bytes.push_back(
        static_cast<std::int64_t>(1e5 * (1 << rng.below(8)) * (0.5 + rng.uniform())));
  s.name = "seed " + std::to_string(seed);
  return out;
}

predict::Simulation play(const Ring& ring, std::int64_t buffer, std::size_t buckets, int steps) {
  SharedLinks s = ring.net;
  s.profile.transports.begin()->second.send_buffer = {buffer};
  topology::Fabric fabric(s.cluster);
  auto comm = communicator(s, fabric, 0);
  std::vector<std::int64_t> bytes = ring.bytes;
  bytes.resize(buckets);
  Program program = program_of(s, fabric, bytes);
  program.worker_threads = 1;
  program.steady.ops[0].duration = kMillisecond * 2;
  auto classes = classes_of(comm.ranks(), predict::Fidelity::Message);
  for (std::size_t r = 0; r < classes.size(); ++r) classes[r].factor = ring.slow[r];
  predict::SimulationOptions options;
  options.fidelity = predict::Fidelity::Message;
  options.names = false;
  options.warmup = false;
  options.steady_steps = steps;
  auto out = predict::simulate(program, comm, s.profile, classes, options);
  EXPECT_TRUE(out.complete) << s.name;
  return out;
}

// By bucket and rank.
std::vector<std::vector<std::int64_t>> ends_of(const predict::Simulation& s, std::size_t ranks) {
  std::vector<std::vector<std::int64_t>> out(ranks);
  for (const Span& span : s.spans)
    if (is_collective(span.kind)) out[static_cast<std::size_t>(span.actor)].push_back(span.end.ps);
  return out;
}

// A transfer that begins in a burst is cut by picoseconds elsewhere when others are told of its
// end.
constexpr std::int64_t kRounding = 1'000'000;

TEST(Connections, TheEndOfABucketDoesNotDependOnTheNext) {
  for (std::uint64_t seed = 0; seed < kCases; ++seed) {
    Ring ring = random_ring(seed);
    for (std::int64_t buffer : {50'000, 650'000, 4'000'000}) {
      auto all = ends_of(play(ring, buffer, ring.bytes.size(), 1), ring.slow.size());
      for (std::size_t k = 1; k < ring.bytes.size(); ++k) {
        auto without = ends_of(play(ring, buffer, k, 1), ring.slow.size());
        for (std::size_t r = 0; r < all.size(); ++r)
          ASSERT_NEAR(static_cast<double>(all[r][k - 1]), static_cast<double>(without[r][k - 1]),
                      kRounding)
              << ring.net.name << ": bucket " << k << " of " << ring.bytes.size() << ", rank " << r
              << ", buffer " << buffer;
      }
    }
  }
}

TEST(Connections, ALargerSendBufferNeverLengthensAStep) {
  for (std::uint64_t seed = 0; seed < kCases; ++seed) {
    Ring ring = random_ring(seed);
    predict::Simulation before = play(ring, 0, ring.bytes.size(), 4);
    for (std::int64_t buffer : {1, 50'000, 200'000, 650'000, 1'300'000, 4'000'000, 100'000'000}) {
      predict::Simulation more = play(ring, buffer, ring.bytes.size(), 4);
      for (std::size_t k = 0; k < more.steps.size(); ++k)
        ASSERT_LE(more.steps[k].end.ps, before.steps[k].end.ps + kRounding)
            << ring.net.name << ": step " << k << ", buffer " << buffer;
      before = std::move(more);
    }
  }
}

// The same of what a user is told: a slow host on which the buckets of a whole step queue.
TEST(Connections, ALargerSendBufferNeverLengthensThePredictedStep) {
  Workload w = workload("resnet18-cpu");
  Cluster c = star(4, Bandwidth{200'000'000});
  c.device = DeviceKind::Cpu;
  c.slow_links = {{2, {100'000'000}}};
  topology::Fabric fabric(c);
  Profile p = ideal_profile(kMicrosecond * 50, DeviceKind::Cpu);
  Scenario s;
  s.ranks = 4;
  s.plan.backend = Backend::Tcp;
  for (double cap : {1.0, 5.0, 25.0}) {
    ddp_of(s.plan).bucket_cap_mb = cap;
    std::int64_t before = 0;
    for (std::int64_t buffer : {0, 100'000, 650'000, 4'000'000}) {
      p.transports.at("wire").send_buffer = {buffer};
      predict::Options o;
      o.fidelity = predict::Fidelity::Message;
      o.interval = false;
      std::int64_t step = predict::predict({w, fabric, p, s}, o).summary.step.ps;
      if (before > 0) {
        EXPECT_LE(step, before + before / 10'000) << cap << " " << buffer;
      }
      before = step;
    }
  }
}

}  // namespace
}  // namespace ddpsim::test
