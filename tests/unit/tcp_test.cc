// Backend tcp: prices, the simulation's use of them, other jobs, shared cores, the fit, the
// testbed's scripts.
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <set>

#include <gtest/gtest.h>

#include "calib/fit/fit.h"
#include "calib/mesh.h"
#include "calib/testbed.h"
#include "sim/collective/messages.h"
#include "sim/collective/segments.h"
#include "sim/engine/execute.h"
#include "sim/play/alone.h"
#include "sim/play/turns.h"
#include "sim/predict/mechanisms.h"
#include "sim/systems/ddp/plan.h"
#include "tests/support/support.h"
#include "tests/support/systems.h"

namespace ddpsim::test {
namespace {

TEST(Sums, OfEveryType) {
  float a[3] = {1, 2, 3};
  float b[3] = {10, 20, 30.5};
  calib::sum_into(reinterpret_cast<std::byte*>(a), reinterpret_cast<std::byte*>(b), 3,
                  DType::Float32);
  EXPECT_EQ(a[2], 33.5f);
  // fp16: 1 + 2^-10 (one unit in the last place), 65504 + 65504 = inf, subnormal + subnormal.
  std::uint16_t h[3] = {0x3c00, 0x7bff, 0x0001};
  std::uint16_t g[3] = {0x1400, 0x7bff, 0x0001};
  calib::sum_into(reinterpret_cast<std::byte*>(h), reinterpret_cast<std::byte*>(g), 3,
                  DType::Float16);
  EXPECT_EQ(h[0], 0x3c01);
  EXPECT_EQ(h[1], 0x7c00);
  EXPECT_EQ(h[2], 0x0002);
  // Eight at a time (by hardware, where there is any) as one at a time: every half, to others.
  for (std::uint16_t other : std::initializer_list<std::uint16_t>{0x0000, 0x0001, 0x03ff, 0x1400,
                                                                  0x3c00, 0xbc01, 0x7bff, 0xfc00}) {
    std::vector<std::uint16_t> together(65536), with(65536, other);
    std::iota(together.begin(), together.end(), 0);
    std::vector<std::uint16_t> alone = together;
    calib::sum_into(reinterpret_cast<std::byte*>(together.data()),
                    reinterpret_cast<std::byte*>(with.data()), 65536, DType::Float16);
    for (std::size_t i = 0; i < alone.size(); ++i) {
      calib::sum_into(reinterpret_cast<std::byte*>(&alone[i]),
                      reinterpret_cast<std::byte*>(&with[i]), 1, DType::Float16);
      bool nan = (alone[i] & 0x7fff) > 0x7c00;
      ASSERT_TRUE(nan ? (together[i] & 0x7fff) > 0x7c00 : together[i] == alone[i])
          << i << " + " << other << ": " << together[i] << " " << alone[i];
    }
  }
  std::uint16_t x[2] = {0x3f80, 0xbf80};  // bf16: 1 + 1, -1 + 1
  std::uint16_t y[2] = {0x3f80, 0x3f80};
  calib::sum_into(reinterpret_cast<std::byte*>(x), reinterpret_cast<std::byte*>(y), 2,
                  DType::BFloat16);
  EXPECT_EQ(x[0], 0x4000);
  EXPECT_EQ(x[1], 0x0000);
}

// ---- half a ring

// One collective of 8 MB on a star of `n` hosts of 1 Gb/s, alone, message by message; picoseconds.
std::int64_t played_alone(int n, Operation operation, int root = 0) {
  topology::Fabric fabric(star(n, Bandwidth{1'000'000'000}));
  std::vector<DeviceId> devices = first_devices(n);
  collective::Communicator c = collective::make_communicator(fabric, devices, Backend::Tcp);
  const Profile p = ideal_profile({10'000'000});
  const Bytes size{8'000'000};
  engine::TaskGraph g;
  std::map<topology::LinkId, engine::ResourceId> links;
  collective::FlowOfHop flow{[&](int from, int to, int) {
    topology::Route route;
    fabric.find_route(DeviceId::at(from), DeviceId::at(to), route);
    std::vector<engine::Demand> demands;
    for (topology::LinkId l : route.links) {
      auto [it, fresh] = links.try_emplace(l, 0);
      if (fresh) it->second = g.add_resource({collective::link_rate(c, p, Level::Mid, l), 0, 0});
      demands.push_back({it->second, 1});
    }
    return g.add_flow(demands);
  }};
  const std::vector<engine::TaskId> arrive(static_cast<std::size_t>(n), g.add_fixed({}));
  const auto price = collective::price(c, p, Level::Mid, operation, size);
  auto done = collective::add_messages(c, {.graph = g,
                                           .profile = p,
                                           .price = price,
                                           .operation = operation,
                                           .size = size,
                                           .root = root,
                                           .flow = flow,
                                           .arrive = arrive});
  engine::Timeline t = engine::execute(g);
  EXPECT_TRUE(t.complete());
  std::int64_t last = 0;
  for (engine::TaskId d : done) last = std::max(last, t.end[d].ps);
  EXPECT_NEAR(static_cast<double>(last), static_cast<double>(price.alone.ps),
              1e-6 * static_cast<double>(last))
      << n << " " << name_of(operation);
  return last;
}

// (n - 1) (a + S / (n B)): each pass of the ring; together they are the all-reduce.
TEST(HalfARing, IsOnePassByClosedFormAndByMessage) {
  for (int n : {2, 3, 4, 8}) {
    const double pass = (n - 1) * (10e6 + 8e6 / n / 125e-6);
    for (Operation o : {Operation::ReduceScatter, Operation::AllGather})
      EXPECT_NEAR(static_cast<double>(played_alone(n, o)), pass, 1e-4 * pass) << n;
    EXPECT_NEAR(static_cast<double>(played_alone(n, Operation::AllReduce)), 2 * pass, 2e-4 * pass);
  }
}

// Wherever the root is, on a star.
TEST(HalfARing, AndTreesToAndFromARoot) {
  for (int n : {2, 3, 4, 8})
    for (Operation o : {Operation::Reduce, Operation::Broadcast}) {
      const std::int64_t first = played_alone(n, o);
      for (int root : {1, n - 1})
        EXPECT_NEAR(static_cast<double>(played_alone(n, o, root)), static_cast<double>(first),
                    1e-6 * static_cast<double>(first))
            << n << " " << root;
    }
}

// ---- segments

// Streams of one message each on a star of four hosts, one link per direction, at once. Returns
// when the last byte of each is there, in picoseconds.
std::vector<double> stream_all(const std::vector<std::pair<int, int>>& hops, std::int64_t bytes,
                               std::int64_t buffer) {
  topology::Fabric fabric(star(4, Bandwidth{1'000'000'000}));
  collective::Communicator c = collective::make_communicator(fabric, {0, 1, 2, 3}, Backend::Tcp);
  engine::TaskGraph g;
  predict::Turns turns;
  std::map<topology::LinkId, engine::FlowId> flows;
  auto queue = [&](topology::LinkId l, double size, bool) {
    auto [it, fresh] = flows.try_emplace(l, 0);
    if (fresh) it->second = g.add_packet_flow(g.add_resource({125e-6, 0, 0}));
    engine::TaskId due = g.add_fixed({});
    return turns.add(g, turns.place_of_link(l), due,
                     size > 0 ? g.add_task({}, size, it->second) : g.add_fixed({}));
  };
  collective::SegmentPath path;
  path.queue = queue;
  path.plays_before = 0;
  engine::TaskId start = g.add_fixed({});
  std::vector<engine::TaskId> there;
  for (auto [from, to] : hops)
    there.push_back(collective::SegmentStream(c, from, to, {buffer})
                        .send(g, path, start, start, bytes, 1)
                        .there);
  auto on_end = [](void* state, engine::TaskId task, TimePoint,
                   std::vector<engine::TaskId>& release) {
    static_cast<predict::Turns*>(state)->decide(task, release);
  };
  engine::Timeline t = engine::execute(g, {&turns, on_end});
  EXPECT_TRUE(t.complete());
  std::vector<double> out;
  for (auto task : there) out.push_back(static_cast<double>(t.end[task].ps));
  return out;
}

constexpr double kStreamAlone = 40e6 / 125e-6;  // 40 MB at 1 Gb/s

TEST(Segments, TakeTheWholeLinkAlone) {
  EXPECT_NEAR(stream_all({{0, 1}}, 40'000'000, 650'000)[0] / kStreamAlone, 1, 0.01);
}

TEST(Segments, OfASmallBufferWaitForTheirAcknowledgements) {
  // One segment at a time, over two links each.
  EXPECT_NEAR(stream_all({{0, 1}}, 40'000'000, 1)[0] / kStreamAlone, 2, 0.01);
}

TEST(Segments, ShareALinkEvenlyWhereTheirWaysAreAlike) {
  auto t = stream_all({{0, 2}, {1, 2}}, 40'000'000, 650'000);
  EXPECT_NEAR(t[0] / kStreamAlone, 2, 0.02);
  EXPECT_NEAR(t[1] / kStreamAlone, 2, 0.02);
}

TEST(Segments, WhoseAcknowledgementsMeetAQueueTakeLess) {
  // 1 and 2 send to one another and get something from a third each: their acknowledgements wait
  // behind its data. Twice the round trip, half the rate.
  auto t = stream_all({{0, 2}, {1, 2}, {2, 1}, {3, 1}}, 40'000'000, 650'000);
  EXPECT_NEAR(t[0] / kStreamAlone, 1.5, 0.08);
  EXPECT_NEAR(t[3] / kStreamAlone, 1.5, 0.08);
  EXPECT_NEAR(t[1] / kStreamAlone, 2, 0.02);
  EXPECT_NEAR(t[2] / kStreamAlone, 2, 0.02);
}

TEST(Readers, AcknowledgeWhenTheyReadAndAtTheLatestAfterTheDelay) {
  engine::TaskGraph g;
  predict::Readers readers;
  std::size_t r = readers.add();
  auto at = [&](std::int64_t ps) { return g.add_fixed({ps}); };
  readers.reads(g, r, at(10));
  auto first = readers.acknowledge(g, r, 0, at(5), {40});    // before it is read
  auto second = readers.acknowledge(g, r, 0, at(12), {40});  // as it comes
  auto ahead = readers.acknowledge(g, r, 2, at(13), {40});   // unread until message 1 is begun
  readers.reads(g, r, at(20));
  auto late =
      readers.acknowledge(g, r, 2, at(30), {40});  // nobody begins anything before the delay
  auto with = readers.acknowledge(g, r, 2, at(35), {40});  // acknowledged with the one before
  readers.reads(g, r, at(100));
  auto on_end = [](void* state, engine::TaskId task, TimePoint,
                   std::vector<engine::TaskId>& release) {
    static_cast<predict::Readers*>(state)->decide(task, release);
  };
  engine::Timeline t = engine::execute(g, {&readers, on_end});
  EXPECT_TRUE(t.complete());
  EXPECT_EQ(t.end[first].ps, 10);
  EXPECT_EQ(t.end[second].ps, 12);
  EXPECT_EQ(t.end[ahead].ps, 20);
  EXPECT_EQ(t.end[late].ps, 70);
  EXPECT_EQ(t.end[with].ps, 70);
}

// ---- prices and simulation

struct Asked {
  Workload w;
  Cluster c;
  Profile p = ideal_profile(kMicrosecond * 50, DeviceKind::Cpu);
  Scenario s;
  Asked(Workload workload, int ranks, Bandwidth link)
      : w(std::move(workload)), c(star(ranks, link)) {
    c.device = DeviceKind::Cpu;
    s.ranks = ranks;
    s.plan.backend = Backend::Tcp;
  }
  predict::Prediction ask(predict::Fidelity f = predict::Fidelity::Message) const {
    topology::Fabric fabric(c);
    predict::Options o;
    o.fidelity = f;
    return predict::predict({w, fabric, p, s}, o);
  }
};

Workload one_layer(std::int64_t bytes) {
  return layered(1, bytes, kMillisecond, kMillisecond, DeviceKind::Cpu);
}

TEST(TcpRing, ClosedFormAndMessagesAgreeAlone) {
  for (int n : {2, 3, 4, 8})
    for (std::int64_t bytes : {40'000, 4'000'000, 40'000'000})
      for (double reduction : {0.0, 4e9}) {
        Asked a(one_layer(bytes), n, Bandwidth{1'000'000'000});
        a.p.reduction_bytes_per_s = reduction;
        auto message = a.ask().summary.buckets.at(0);
        auto closed = a.ask(predict::Fidelity::Collective).summary.buckets.at(0);
        double m = static_cast<double>((message.end - message.begin).ps);
        EXPECT_NEAR(static_cast<double>((closed.end - closed.begin).ps) / m, 1, 0.01)
            << n << " " << bytes << " " << reduction;
      }
}

TEST(TcpRing, IsItsClosedForm) {
  // 4 ranks, 40 MB at 1 Gb/s: 6 steps of 50 us + 10 MB / 125 MB/s, and 3 sums of 10 MB at 5 GB/s.
  Asked a(one_layer(40'000'000), 4, Bandwidth{1'000'000'000});
  a.p.reduction_bytes_per_s = 5e9;
  auto b = a.ask().summary.buckets.at(0);
  EXPECT_NEAR(static_cast<double>((b.end - b.begin).ps), 6 * (50e6 + 80e9) + 3 * 2e9, 1e6);
  // Four ranks that sum at once on one core: four times as long each.
  a.c.emulated_on_cores = 1;
  b = a.ask(predict::Fidelity::Collective).summary.buckets.at(0);
  EXPECT_NEAR(static_cast<double>((b.end - b.begin).ps), 6 * (50e6 + 80e9) + 3 * 4 * 2e9, 1e6);
}

TEST(TcpRing, SumsTakeSharedCoresInTurn) {
  // The last of four ranks has its sum 4 x 2 ms after the message, and passes the delay on; the
  // others went on before. Sharing a core evenly, all would wait 8 ms at each sum.
  Asked a(one_layer(40'000'000), 4, Bandwidth{1'000'000'000});
  a.p.reduction_bytes_per_s = 5e9;
  auto own = a.ask().summary.buckets.at(0);
  a.c.emulated_on_cores = 1;
  auto b = a.ask().summary.buckets.at(0);
  double waited = static_cast<double>(((b.end - b.begin) - (own.end - own.begin)).ps);
  EXPECT_GT(waited, 3 * 2e9 * 0.5);
  EXPECT_LT(waited, 3 * 6e9 * 0.7);
}

TEST(TcpRing, MessagesTakeSharedCoresInTurn) {
  // A step takes 50 us, 40 us of them on a core: 8 ranks on 2 cores take 4 x 40 us a step, 2 ranks
  // do not wait.
  for (auto [ranks, step] : {std::pair{2, 50}, {4, 80}, {8, 160}}) {
    Asked a(one_layer(4'000), ranks, Bandwidth{1'000'000'000'000});
    a.p.transports.at("wire").message_core = kMicrosecond * 40;
    a.c.emulated_on_cores = 2;
    for (auto f : {predict::Fidelity::Message, predict::Fidelity::Collective}) {
      auto b = a.ask(f).summary.buckets.at(0);
      EXPECT_NEAR(static_cast<double>((b.end - b.begin).ps), step * 1e6 * 2 * (ranks - 1),
                  step * 1e6 * 1.5)
          << ranks << " " << name_of(f);
    }
  }
}

TEST(TcpRing, TheSenderDoesNotWaitForWhatIsInItsBuffer) {
  // Rank 1 of 4 comes late, and finds the messages of three steps: it sends four at once. What it
  // needs for the last three has gone round the ring after four messages (200 us); one after
  // another, it has sent its own only after six (300 us). Its next step begins so much sooner.
  Asked a(one_layer(4'000), 4, Bandwidth{1'000'000'000'000});
  a.s.slow_ranks[1] = 100;
  Duration waiting = a.ask().summary.step;
  a.p.transports.at("wire").send_buffer = {100'000};
  EXPECT_NEAR(static_cast<double>((waiting - a.ask().summary.step).ps), 2 * 50e6, 1e6);
  // Room for two messages of 1,000 bytes; then for half of one, which does not hold the latency.
  a.p.transports.at("wire").send_buffer = {2'000};
  EXPECT_LT(a.ask().summary.step, waiting);
  a.p.transports.at("wire").send_buffer = {500};
  EXPECT_NEAR(static_cast<double>((waiting - a.ask().summary.step).ps), 0, 1e6);
}

// Of a connection alone, each of whose four links takes a millisecond: a round trip is four, in
// which as many segments go as its buffer holds; two wait in their host's own queue.
TEST(SegmentStream, ItsRateIsItsBufferOverTheRoundTrip) {
  const topology::Fabric fabric(star(2, {1'000'000'000}));
  const auto comm =
      collective::make_communicator(fabric, std::vector<DeviceId>{0, 1}, Backend::Tcp);
  auto arrives = [&](int in_buffer, int segments) {
    engine::TaskGraph g;
    collective::SegmentPath path;
    path.queue = [&](topology::LinkId, double, bool) {
      const engine::TaskId passes = g.add_fixed(kMillisecond);
      return collective::CoreTasks{passes, passes};
    };
    collective::SegmentStream stream(comm, 0, 1, {in_buffer * collective::kSegmentBytes});
    const engine::TaskId start = g.add_fixed({});
    const auto sent = stream.send(g, path, start, start, segments * collective::kSegmentBytes, 1);
    return engine::execute(g).end[sent.there];
  };
  // Three enter at 0, 0 and 1 ms, and the next three 4 ms later.
  for (int turns : {1, 2, 4})
    EXPECT_EQ(arrives(3, 3 * turns), TimePoint{} + kMillisecond * (4 * (turns - 1) + 3)) << turns;
  EXPECT_EQ(arrives(100, 12), TimePoint{} + kMillisecond * 7) << "two a millisecond";
}

TEST(TcpBroadcast, DoesNotWaitForItsReceivers) {
  // Rank 3 of 4 comes 100 ms late.
  for (std::int64_t buffer : {0, 100'000}) {
    Asked a(one_layer(4'000), 4, Bandwidth{1'000'000'000});
    a.p.transports.at("wire").send_buffer = {buffer};
    topology::Fabric fabric(a.c);
    engine::TaskGraph g;
    auto comm =
        collective::make_communicator(fabric, std::vector<DeviceId>{0, 1, 2, 3}, Backend::Tcp);
    std::vector<engine::TaskId> arrive;
    for (int r = 0; r < 4; ++r)
      arrive.push_back(g.add_fixed(r == 3 ? kMillisecond * 100 : kMillisecond));
    engine::Demand d{g.add_resource({0.001, 0, 0}), 1};
    engine::FlowId wire = g.add_flow(std::span(&d, 1));
    const collective::FlowOfHop flow{[&](int, int, int) { return wire; }};
    auto done = collective::add_messages(
        comm, {.graph = g,
               .profile = a.p,
               .price = collective::broadcast(comm, a.p, Level::Mid, {4'000}),
               .operation = Operation::Broadcast,
               .size = {4'000},
               .flow = flow,
               .arrive = arrive});
    engine::Timeline t = engine::execute(g);
    EXPECT_EQ(t.end[done[3]], TimePoint{} + kMillisecond * 100);
    EXPECT_LT(t.end[done[1]], TimePoint{} + kMillisecond * 2);
    if (buffer > 0)
      EXPECT_EQ(t.end[done[0]], TimePoint{} + kMillisecond);  // its messages fit in its buffer
    else
      EXPECT_GT(t.end[done[0]], TimePoint{} + kMillisecond);
  }
}

// ---- other algorithms than the ring

TEST(TcpAlgorithms, ClosedFormAndMessagesAgreeInAStep) {
  for (Algorithm algorithm : kTcpAlgorithms)
    for (int n : {2, 3, 5, 8})
      for (std::int64_t bytes : {40'000, 40'000'000}) {
        Asked a(one_layer(bytes), n, Bandwidth{1'000'000'000});
        a.s.plan.algorithm = algorithm;
        auto message = a.ask().summary.buckets.at(0);
        auto closed = a.ask(predict::Fidelity::Collective);
        auto bucket = closed.summary.buckets.at(0);
        double tolerance = algorithm == Algorithm::DoubleBinaryTree ? 0.02 : 0.01;
        EXPECT_NEAR(static_cast<double>((bucket.end - bucket.begin).ps) /
                        static_cast<double>((message.end - message.begin).ps),
                    1, tolerance)
            << name_of(algorithm) << " " << n << " " << bytes;
        EXPECT_GT(closed.busiest_link.busy, 0);
        for (const auto& s : closed.run.spans)
          EXPECT_TRUE(!carries_bucket(s.kind) || s.algorithm == name_of(algorithm)) << s.algorithm;
      }
}

// On a profile that knows the connections' buffers: segments.
double all_reduce_in_segments(Algorithm a, int ranks, std::int64_t bytes, double plays_before = 0) {
  Asked asked(one_layer(bytes), ranks, Bandwidth{1'000'000'000});
  for (auto& [name, section] : asked.p.transports) section.send_buffer = {650'000};
  topology::Fabric fabric(asked.c);
  std::vector<DeviceId> devices = first_devices(ranks);
  collective::Communicator c = collective::make_communicator(fabric, devices, Backend::Tcp, a);
  return static_cast<double>(predict::all_reduce_alone(c, asked.p, {bytes},
                                                       predict::Fidelity::Message, Level::Mid,
                                                       plays_before)
                                 .ps);
}

TEST(TcpAlgorithms, AFoldSharesItsReceiversLinkWithTheRoundAfterIt) {
  // Rank 2 sends to rank 1 at once, beside rank 0's fold; executed on 6 ranks so
  // (reports/collectives.md).
  EXPECT_NEAR(all_reduce_in_segments(Algorithm::RecursiveDoubling, 3, 12'500'000) / 100e9, 4, 0.05);
}

TEST(TcpAlgorithms, AFoldOnOldConnectionsIsDisturbedLess) {
  // A buffer in 40 ms and more, instead of half the link: at least 30 ms of 100 are won.
  double young = all_reduce_in_segments(Algorithm::RecursiveDoubling, 3, 12'500'000);
  double old = all_reduce_in_segments(Algorithm::RecursiveDoubling, 3, 12'500'000, 6);
  EXPECT_LT(old, young - 30e9);
  EXPECT_GT(old, 3.05 * 100e9);
  // Nobody is late in recursive doubling on four ranks.
  EXPECT_NEAR(all_reduce_in_segments(Algorithm::RecursiveDoubling, 4, 12'500'000, 6) /
                  all_reduce_in_segments(Algorithm::RecursiveDoubling, 4, 12'500'000),
              1, 0.001);
}

TEST(TcpAlgorithms, LeavesOfATreeOutrunItsInnerRanks) {
  // Sharing evenly, all links would be busy throughout, and 64 MiB take 2 S/B. The leaves'
  // connections take more (their acknowledgements meet no queue), are through early and leave links
  // idle at the end: executed 8.5 % longer.
  double even = 2.0 * 67'108'864 / 125e-6;
  double t = all_reduce_in_segments(Algorithm::DoubleBinaryTree, 4, 67'108'864) / even;
  EXPECT_GT(t, 1.06);
  EXPECT_LT(t, 1.14);
}

TEST(TcpAlgorithms, TwoInFlightAgreeInRacks) {
  // Rounds inside of racks beside rounds over the uplink: a phase for each round, or they would
  // overlap better than they can.
  for (Algorithm algorithm : kTcpAlgorithms) {
    Asked a(layered(8, 5'000'000, kMillisecond, kMillisecond, DeviceKind::Cpu), 6,
            Bandwidth{1'000'000'000});
    a.c.pattern = Pattern::Racks;
    a.c.racks = 2;
    a.c.uplink = a.c.link;
    a.p.reduction_bytes_per_s = 8e9;
    a.s.plan.algorithm = algorithm;
    ddp_of(a.s.plan).bucket_cap_mb = 4;
    a.s.plan.tcp_streams = 2;
    auto message = static_cast<double>(a.ask().summary.step.ps);
    EXPECT_NEAR(static_cast<double>(a.ask(predict::Fidelity::Collective).summary.step.ps) / message,
                1, 0.03)
        << name_of(algorithm);
  }
}

TEST(TcpAlgorithms, EndOnSharedCoresBesideOthers) {
  for (Algorithm algorithm : kTcpAlgorithms)
    for (bool real : {false, true}) {
      Asked a(layered(4, 1'000'000, kMillisecond, kMillisecond, DeviceKind::Cpu), 3,
              Bandwidth{1'000'000'000});
      a.c.hosts = 5;
      a.c.emulated_on_cores = 2;
      a.p.reduction_bytes_per_s = 4e9;
      a.p.transports.at("wire").message_core = kMicrosecond * 20;
      a.p.transports.at("wire").send_buffer = {300'000};
      a.s.plan.algorithm = algorithm;
      ddp_of(a.s.plan).bucket_cap_mb = 1;
      a.s.plan.tcp_streams = 2;
      a.s.real_compute = real;
      a.s.slow_ranks[1] = 1.3;
      OtherJob other{"", a.w, a.s.plan, {3, 4}};
      a.s.other_jobs.push_back(other);
      for (auto f : {predict::Fidelity::Message, predict::Fidelity::Collective})
        EXPECT_GT(a.ask(f).summary.step, kMillisecond * 8)
            << name_of(algorithm) << " " << name_of(f) << " " << real;
    }
}

TEST(TcpAlgorithms, FoldingLinksChangesNothing) {
  for (Algorithm algorithm : kTcpAlgorithms) {
    Asked a(layered(3, 1'000'000, kMillisecond, kMillisecond, DeviceKind::Cpu), 11,
            Bandwidth{1'000'000'000});
    a.c.pattern = Pattern::Racks;
    a.c.racks = 3;
    a.c.uplink = a.c.link;
    a.c.slow_links.push_back({4, Bandwidth{600'000'000}});
    a.s.plan.algorithm = algorithm;
    a.s.plan.tcp_streams = 2;
    ddp_of(a.s.plan).bucket_cap_mb = 1;
    topology::Fabric fabric(a.c);
    predict::Question q{a.w, fabric, a.p, a.s};
    EXPECT_EQ(predict::steady_period(q, Level::Mid, {.fold = true, .without = {}}),
              predict::steady_period(q, Level::Mid, {.fold = false, .without = {}}))
        << name_of(algorithm);
  }
}

TEST(TcpAlgorithms, CostWhatTheyMove) {
  // 8 ranks, 40 MB at 1 Gb/s (320 ms), nothing else: rounds of everything, or of what is left of
  // it.
  for (auto [algorithm, times] : {std::pair{Algorithm::RecursiveDoubling, 3.0},
                                  {Algorithm::HalvingDoubling, 1.75},
                                  {Algorithm::Bcube, 1.75},
                                  {Algorithm::Direct, 1.75},
                                  {Algorithm::Torus2d, 1.75}}) {
    Asked a(one_layer(40'000'000), 8, Bandwidth{1'000'000'000});
    a.p = ideal_profile({}, DeviceKind::Cpu);
    a.s.plan.algorithm = algorithm;
    auto b = a.ask().summary.buckets.at(0);
    EXPECT_NEAR(static_cast<double>((b.end - b.begin).ps), times * 320e9, 1e7)
        << name_of(algorithm);
  }
}

TEST(TcpAlgorithms, TwoLevelsSpareTheUplink) {
  // Two racks of four whose uplink is as wide as one link. A ring crosses it once either way at any
  // time; halving-doubling's first round is inside of the racks, but its quarters cross four at a
  // time; hierarchical sends a quarter of everything over it from each of four.
  auto ask = [](Algorithm algorithm) {
    Asked a(one_layer(40'000'000), 8, Bandwidth{1'000'000'000});
    a.c.pattern = Pattern::Racks;
    a.c.racks = 2;
    a.c.uplink = a.c.link;
    a.p = ideal_profile({}, DeviceKind::Cpu);
    a.s.plan.algorithm = algorithm;
    auto b = a.ask(predict::Fidelity::Collective).summary.buckets.at(0);
    return static_cast<double>((b.end - b.begin).ps) / 320e9;
  };
  EXPECT_NEAR(ask(Algorithm::Ring), 1.75, 1e-3);
  EXPECT_NEAR(ask(Algorithm::Hierarchical), 1.5 + 1,
              1e-3);  // 2 (3/4) inside, 2 (1/2) over the uplink
  EXPECT_NEAR(ask(Algorithm::HalvingDoubling), 1.5 + 2 * 0.5,
              1e-3);  // 2 (1/2 + 1/4) inside, then 4 x 1/8 over it, twice
  EXPECT_NEAR(ask(Algorithm::RecursiveDoubling), 2 + 4, 1e-3);
}

TEST(GlooBcube, ClosedFormAndMessagesAgreeInAStep) {
  for (int n : {2, 3, 6, 8}) {
    Asked a(one_layer(40'000'000), n, Bandwidth{1'000'000'000});
    a.s.plan.backend = Backend::Gloo;
    a.s.plan.gloo_algorithm = Algorithm::Bcube;
    a.p.reduction_bytes_per_s = 4e9;
    auto message = a.ask().summary.buckets.at(0);
    auto closed = a.ask(predict::Fidelity::Collective).summary.buckets.at(0);
    EXPECT_NEAR(static_cast<double>((closed.end - closed.begin).ps) /
                    static_cast<double>((message.end - message.begin).ps),
                1, 0.01)
        << n;
  }
}

TEST(TcpQueue, OnlyAnIdleThreadHasToWake) {
  Asked a(layered(4, 10'000'000, kMillisecond, kMillisecond, DeviceKind::Cpu), 2,
          Bandwidth{1'000'000'000});
  ddp_of(a.s.plan).bucket_cap_mb = 1;
  Duration without = a.ask().summary.step;
  a.p.transports.at("wire").launch = kMillisecond;
  // Four buckets back to back: the launch of the first alone is in the step.
  EXPECT_EQ(a.ask().summary.step - without, kMillisecond);
}

TEST(TcpQueue, PlaysAsManyCollectivesAsStreams) {
  for (int streams : {1, 2, 3}) {
    Asked a(layered(8, 1'000'000, kMillisecond, kMillisecond, DeviceKind::Cpu), 2,
            Bandwidth{200'000'000});
    ddp_of(a.s.plan).bucket_cap_mb = 0.5;
    a.s.plan.tcp_streams = streams;
    auto buckets = a.ask().summary.buckets;
    int most = 0;
    for (const auto& x : buckets) {
      int together = 0;
      for (const auto& y : buckets) together += y.begin <= x.begin && x.begin < y.end;
      most = std::max(most, together);
    }
    EXPECT_EQ(most, streams);
  }
}

// On one wire a short message of another stream waits behind what the long one has put into its
// sender's queue, at each step: two segments at 200 Mb/s are 5 ms, shared by rates it would be 0.4.
TEST(TcpQueue, AShortCollectiveWaitsBehindALongOne) {
  Asked a(layered(2, 40'000'000, kMillisecond, kMillisecond, DeviceKind::Cpu), 2,
          Bandwidth{200'000'000});
  a.w.tensors.front().shape = {1'000};  // its gradient is ready last
  a.p.transports.at("wire").send_buffer = {650'000};
  ddp_of(a.s.plan).bucket_cap_mb = 1;
  a.s.plan.tcp_streams = 2;
  auto buckets = a.ask().summary.buckets;
  ASSERT_EQ(buckets.size(), 2u);
  EXPECT_GT(buckets[1].end - buckets[1].begin, kMillisecond * 10);
  EXPECT_LT(buckets[1].end - buckets[1].begin, kMillisecond * 100);
  a.s.plan.tcp_streams = 1;
  buckets = a.ask().summary.buckets;
  EXPECT_LT(buckets[1].end - buckets[1].begin, kMillisecond) << "alone on the wire";
}

TEST(TcpQueue, NothingOfAStepIsHandedOverBeforeIt) {
  // A step whose first operation is a collective that waits for nothing, and a pause.
  Asked a(one_layer(4'000), 2, Bandwidth{1'000'000'000});
  topology::Fabric fabric(a.c);
  auto comm = collective::make_communicator(fabric, {0, 1}, Backend::Tcp, Algorithm::Ring);
  Program program;
  program.device = DeviceKind::Cpu;
  program.backend = Backend::Tcp;
  program.worker_threads = 1;
  program.steady.buckets.push_back({{0}, {4'000}, {4'000}, DType::Float32});
  Op reduce;
  reduce.kind = kind_of_op("allreduce/bucket.0");
  reduce.lane = Lane::Worker;
  reduce.subject = 0;
  reduce.bytes = 4'000;
  Op pause;
  pause.duration = kMillisecond * 10;
  program.steady.ops = {reduce, pause};
  predict::SimulationOptions o;
  o.fidelity = predict::Fidelity::Message;
  o.names = o.warmup = false;
  auto s = predict::simulate(program, comm, a.p, {{{0}, 1, {}}, {{1}, 1, {}}}, o);
  for (const Span& span : s.spans)
    if (is_collective(span.kind)) {
      EXPECT_EQ(span.ready, s.spans_from);
    }
}

// ---- a step that all ranks begin together

Asked drifting() {
  Asked a(layered(6, 4'000'000, kMillisecond * 10, kMillisecond * 20, DeviceKind::Cpu), 4,
          Bandwidth{200'000'000});
  a.c.slow_links = {{2, {100'000'000}}};
  a.p.transports.at("wire").send_buffer = {650'000};
  ddp_of(a.s.plan).bucket_cap_mb = 5;
  return a;
}

predict::Prediction from_common_start(const Asked& a, bool together) {
  topology::Fabric fabric(a.c);
  predict::Options o;
  o.fidelity = predict::Fidelity::Message;
  o.common_start = together;
  return predict::predict({a.w, fabric, a.p, a.s}, o);
}

std::set<std::int64_t> first_begins(const predict::Prediction& p) {
  std::map<int, std::int64_t> first;
  for (const Span& span : p.run.spans)
    if (auto [it, fresh] = first.try_emplace(span.actor, span.begin.ps); !fresh)
      it->second = std::min(it->second, span.begin.ps);
  std::set<std::int64_t> out;
  for (const auto& [actor, begin] : first) out.insert(begin);
  return out;
}

TEST(CommonStart, AllRanksBeginTogether) {
  EXPECT_GT(first_begins(from_common_start(drifting(), false)).size(), 1u);
  auto begins = first_begins(from_common_start(drifting(), true));
  EXPECT_EQ(begins.size(), 1u);
  EXPECT_EQ(*begins.begin(), from_common_start(drifting(), true).run.spans_from.ps);
}

TEST(CommonStart, IsNoShorterThanThePeriod) {
  auto period = from_common_start(drifting(), false).summary.step;
  auto together = from_common_start(drifting(), true).summary.step;
  EXPECT_GT(together, period);
  EXPECT_LT(static_cast<double>(together.ps), 1.1 * static_cast<double>(period.ps));
}

TEST(OtherJobs, ShareTheUplink) {
  Asked a(one_layer(10'000'000), 2, Bandwidth{1'000'000'000});
  a.c.pattern = Pattern::Racks;
  a.c.hosts = 4;
  a.c.racks = 2;
  a.c.uplink = a.c.link;
  a.s.rank_order = {0, 2};
  for (auto f : {predict::Fidelity::Message, predict::Fidelity::Collective}) {
    a.s.other_jobs.clear();
    auto alone = a.ask(f);
    OtherJob other;
    other.workload = a.w;
    other.plan = a.s.plan;
    other.rank_order = {1, 3};
    a.s.other_jobs.push_back(other);
    auto beside = a.ask(f);
    // 10 MB over the uplink at half its rate.
    EXPECT_NEAR(static_cast<double>((beside.summary.step - alone.summary.step).ps), 80e9, 1e9);
    a.c.uplink.bandwidth = Bandwidth{2'000'000'000};
    EXPECT_NEAR(
        static_cast<double>(a.ask(f).summary.step.ps) / static_cast<double>(alone.summary.step.ps),
        1, 1e-3);
    a.c.uplink = a.c.link;
  }
}

TEST(OtherJobs, AreCheckedLikeTheFirst) {
  Scenario s;
  s.ranks = 2;
  s.other_jobs.emplace_back();
  s.other_jobs[0].rank_order = {1, 2};
  EXPECT_EQ(validate(s, 4).path, "/other_jobs/0/rank_order/0");
  s.other_jobs[0].rank_order = {2};
  EXPECT_EQ(validate(s, 4).path, "/other_jobs/0/rank_order");
  s.other_jobs[0].rank_order = {2, 3};
  EXPECT_FALSE(validate(s, 4));
  s.jitter.emplace();
  EXPECT_EQ(validate(s, 4).path, "/jitter");
}

TEST(RealCompute, SharesTheMachinesCores) {
  Asked a(one_layer(4'000), 2, Bandwidth{1'000'000'000});
  a.w.times.forward = kSecond;
  a.c.emulated_on_cores = 1;
  Duration timed = a.ask().summary.step;
  a.s.real_compute = true;
  for (auto f : {predict::Fidelity::Message, predict::Fidelity::Collective})
    EXPECT_NEAR(static_cast<double>(a.ask(f).summary.step.ps) / static_cast<double>(timed.ps), 2,
                0.01);
  a.c.emulated_on_cores = 2;
  EXPECT_NEAR(static_cast<double>(a.ask().summary.step.ps) / static_cast<double>(timed.ps), 1,
              1e-3);
}

TEST(RealCompute, PaysForTheNetwork) {
  Asked a(layered(10, 10'000'000, kMillisecond, kMillisecond * 100, DeviceKind::Cpu), 2,
          Bandwidth{1'000'000'000});
  a.c.emulated_on_cores = 2;
  a.s.real_compute = true;
  ddp_of(a.s.plan).bucket_cap_mb = 5;
  Duration free = a.ask().summary.step;
  a.p.transports.at("wire").cpu_ps_per_byte = 1000;  // 2 x 100 MB x 1 ns on two cores: 100 ms each
  double slower = static_cast<double>((a.ask().summary.step - free).ps);
  EXPECT_GT(slower, 60e9);
  EXPECT_LT(slower, 105e9);
}

TEST(UsualFidelity, IsMessageForFewRanksOfTcp) {
  auto of = [](int ranks, Backend backend, std::int64_t bytes) {
    Asked a(one_layer(bytes), ranks, Bandwidth{1'000'000'000});
    a.s.plan.backend = backend;
    topology::Fabric fabric(a.c);
    return predict::usual_fidelity({a.w, fabric, a.p, a.s});
  };
  EXPECT_EQ(of(8, Backend::Tcp, 4'000), predict::Fidelity::Message);
  EXPECT_EQ(of(65, Backend::Tcp, 4'000), predict::Fidelity::Collective);
  EXPECT_EQ(of(8, Backend::Gloo, 4'000), predict::Fidelity::Collective);
}

// Horovod's reductions are decided while a step is played, and are messages as others' are: 32 GB
// of them over Gloo took 20 GB and more.
TEST(UsualFidelity, CountsTheMessagesOfReductionsThatAreDecidedLater) {
  auto of = [](System system, std::int64_t bytes) {
    Asked a(one_layer(bytes), 4, Bandwidth{1'000'000'000});
    a.c.emulated_on_cores = 2;
    a.s.plan.system = system;
    a.s.plan.backend = Backend::Gloo;
    topology::Fabric fabric(a.c);
    const predict::Question q{a.w, fabric, a.p, a.s};
    return std::pair{predict::usual_fidelity(q), predict::message_count(q)};
  };
  for (const std::int64_t bytes : {std::int64_t{4'000'000}, std::int64_t{32'000'000'000}}) {
    const auto [as_ddp, ddps] = of(systems::kDdpSystem, bytes);
    const auto [as_horovod, horovods] = of(systems::kHorovodSystem, bytes);
    EXPECT_EQ(as_ddp, as_horovod) << bytes;
    EXPECT_DOUBLE_EQ(horovods, 4 * ddps) << "twenty steps are played, not five";
    const double segments = std::max(8.0, std::ceil(static_cast<double>(bytes) / (1 << 20)));
    EXPECT_NEAR(ddps / (5 * 4 * 8 * segments), 1, 1e-3) << "each rank sends and takes each segment";
  }
  EXPECT_EQ(of(systems::kHorovodSystem, 4'000'000).first, predict::Fidelity::Message);
  EXPECT_EQ(of(systems::kHorovodSystem, 32'000'000'000).first, predict::Fidelity::Collective);
}

TEST(Levers, AreAskedAtTheStepsOwnFidelity) {
  // What a rank gains by leaving a ring early shows in messages only: compared across fidelities,
  // it would look like a lever's gain.
  Asked a(layered(8, 4'000'000, kMillisecond, kMillisecond, DeviceKind::Cpu), 4,
          Bandwidth{1'000'000'000});
  a.p.transports.at("wire").message_core = kMicrosecond * 40;
  a.c.emulated_on_cores = 2;
  ddp_of(a.s.plan).bucket_cap_mb = 100;
  a.s.slow_ranks[2] = 1.5;
  topology::Fabric fabric(a.c);
  predict::Question q{a.w, fabric, a.p, a.s};
  predict::Options o;
  o.fidelity = predict::usual_fidelity(q);
  Duration step = predict::predict(q, o).summary.step;
  int compared = 0;
  for (const predict::Lever& l : predict::levers(q, step, o, -1)) {
    if (!l.change.starts_with("bucket_cap_mb=")) continue;
    Scenario s = a.s;
    ddp_of(s.plan).bucket_cap_mb = std::stod(l.change.substr(14));
    predict::Question changed{a.w, fabric, a.p, s};
    ASSERT_NE(predict::predict(changed).summary.step, predict::predict(changed, o).summary.step)
        << "both fidelities agree: nothing is told apart";
    EXPECT_EQ(l.step, predict::predict(changed, o).summary.step) << l.change;
    ++compared;
  }
  EXPECT_GT(compared, 0);
}

TEST(Mechanisms, HaveNamesThatParse) {
  for (int m = 0; m < predict::kMechanisms; ++m) {
    auto mechanism = static_cast<predict::Mechanism>(m);
    EXPECT_EQ(predict::parse_mechanism(predict::name_of(mechanism)), mechanism);
  }
  EXPECT_FALSE(predict::parse_mechanism("gravity"));
}

// ---- fit

Sample all_reduce_sample(const topology::Fabric& f, const Profile& truth, int n,
                         std::int64_t bytes) {
  std::vector<DeviceId> devices = first_devices(n);
  auto c = collective::make_communicator(f, devices, Backend::Tcp);
  return {"all_reduce",
          {{"ranks", n}, {"bytes", bytes}},
          {collective::all_reduce(c, truth, Level::Mid, {bytes}).alone}};
}

TEST(Fit, FindsWhatTheSamplesWereMadeFrom) {
  Cluster c = star(8, Bandwidth{1'000'000'000});
  topology::Fabric f(c);
  Profile truth = ideal_profile(kMicrosecond * 70, DeviceKind::Cpu);
  truth.transports.at("wire").efficiency = {0.98, 0.98, 0.98};
  truth.reduction_bytes_per_s = 8e9;
  ddpsim::Run run;
  run.kind = RunKind::Measured;
  run.evidence = EvidenceClass::Collective;
  for (int n : {2, 4, 8})
    for (std::int64_t b = 256; b <= (16 << 20); b *= 4)
      run.samples.push_back(all_reduce_sample(f, truth, n, b));
  run.samples.push_back(
      {"ring_sum", {{"bytes", 8'000'000}, {"ranks", 2}, {"element_bytes", 4}}, {kMillisecond}});
  Profile base = ideal_profile(kMicrosecond * 5, DeviceKind::Cpu);
  calib::Fit fit = calib::fit(base, "found", {{&run, &f}}, {});
  const TransportSection& t = fit.profile.transports.at("wire");
  EXPECT_EQ(fit.profile.name, "found");
  EXPECT_TRUE(fit.identified);
  EXPECT_NEAR(static_cast<double>(t.latency.ps), 70e6, 1.5e6);
  EXPECT_NEAR(t.efficiency.mid, 0.98, 1e-3);
  EXPECT_NEAR(fit.profile.reduction_bytes_per_s, 8e9, 1e6);
  for (const auto& r : fit.residuals) {
    EXPECT_LT(std::abs(r.error), 0.02) << r.ranks << " " << r.bytes;
    EXPECT_LT(std::abs(r.without_ranks), 0.03) << r.ranks << " " << r.bytes;
  }
}

TEST(Fit, TakesItsIntervalFromPredictionsAsUsersGetThem) {
  Asked a(layered(8, 4'000'000, kMillisecond, kMillisecond, DeviceKind::Cpu), 4,
          Bandwidth{1'000'000'000});
  a.c.emulated_on_cores = 2;
  a.s.slow_ranks[1] = 2;
  topology::Fabric f(a.c);
  ddpsim::Run samples;
  for (std::int64_t b : {1 << 10, 1 << 20, 16 << 20})
    samples.samples.push_back(all_reduce_sample(f, a.p, 4, b));
  Profile found = calib::fit(a.p, "x", {{&samples, &f}}, {}).profile;
  predict::Question q{a.w, f, found, a.s};
  predict::Options usual;
  usual.fidelity = predict::usual_fidelity(q);
  ddpsim::Run executed;
  executed.kind = RunKind::Measured;
  Duration step = predict::steady_period(q, Level::Mid, usual);
  executed.steps.assign(4, {StepKind::Steady, step});
  EXPECT_LT(
      calib::fit(a.p, "x", {{&samples, &f}}, {{&executed, &a.w, &f, &a.s}}).profile.step_residual,
      2e-5);
  EXPECT_GT(
      std::abs(static_cast<double>(predict::steady_period(q).ps) / static_cast<double>(step.ps) -
               1),
      1e-4);  // or it would not tell
}

TEST(Fit, TheIntervalHoldsFourOfFiveSteps) {
  Asked a(layered(8, 4'000'000, kMillisecond, kMillisecond, DeviceKind::Cpu), 4,
          Bandwidth{1'000'000'000});
  topology::Fabric f(a.c);
  ddpsim::Run samples;
  for (std::int64_t b : {1 << 10, 1 << 20, 16 << 20})
    samples.samples.push_back(all_reduce_sample(f, a.p, 4, b));
  Profile found = calib::fit(a.p, "x", {{&samples, &f}}, {}).profile;
  predict::Question q{a.w, f, found, a.s};
  predict::Options usual;
  usual.fidelity = predict::usual_fidelity(q);
  const Duration step = predict::steady_period(q, Level::Mid, usual);
  std::vector<ddpsim::Run> executed(5);
  std::vector<calib::FitStep> steps;
  for (int percent : {1, 2, 3, 4, 5}) {
    ddpsim::Run& run = executed[static_cast<std::size_t>(percent - 1)];
    run.kind = RunKind::Measured;
    run.steps.assign(4, {StepKind::Steady, scale(step, 1 / (1 + percent / 100.0))});
    steps.push_back({&run, &a.w, &f, &a.s});
  }
  EXPECT_NEAR(calib::fit(a.p, "x", {{&samples, &f}}, steps).profile.step_residual, 0.04, 2e-5);
}

TEST(Fit, SaysWhenOneRankCountIdentifiesNothing) {
  Cluster c = star(2, Bandwidth{1'000'000'000});
  topology::Fabric f(c);
  Profile truth = ideal_profile(kMicrosecond * 70, DeviceKind::Cpu);
  ddpsim::Run run;
  for (std::int64_t b = 1024; b <= (1 << 20); b *= 4)
    run.samples.push_back(all_reduce_sample(f, truth, 2, b));
  EXPECT_FALSE(calib::fit(truth, "x", {{&run, &f}}, {}).identified);
  ddpsim::Run nothing;
  EXPECT_THROW(calib::fit(truth, "x", {{&nothing, &f}}, {}), InputError);
}

// ---- hosts

TEST(Testbed, ShapesEveryLinkAtBothEnds) {
  Cluster c = cluster("testbed-racks");
  c.slow_links.push_back({1, Bandwidth{300'000'000}});
  ASSERT_FALSE(calib::emulation_problem(c)) << calib::emulation_problem(c).message;
  auto s = calib::testbed_script(c, {"/n0", "/n1", "/n2", "/n3"});
  for (const char* end :
       {"dev p0 ", "dev p1 ", "dev p2 ", "dev p3 ", "dev u0 ", "dev c0 ", "dev u1 ", "dev c1 "})
    EXPECT_NE(s.tc_switch.find(end), std::string::npos) << end;
  ASSERT_EQ(s.tc_host.size(), 4u);
  EXPECT_NE(s.tc_host[0].find("rate 1000000000bit"), std::string::npos);
  EXPECT_NE(s.tc_host[1].find("rate 300000000bit"), std::string::npos);
  EXPECT_NE(s.tc_switch.find("dev p1 root tbf rate 300000000bit"), std::string::npos);
  EXPECT_NE(s.ip_switch.find("link set p1 master b0"), std::string::npos);
  EXPECT_NE(s.ip_switch.find("link set p2 master b1"), std::string::npos);
}

TEST(Testbed, SaysWhatItCannotMake) {
  Cluster c = cluster("testbed-star");
  EXPECT_FALSE(calib::emulation_problem(c));
  Cluster latency = c;
  latency.link.latency = kMicrosecond;
  EXPECT_EQ(calib::emulation_problem(latency).path, "/link/latency");
  Cluster plain = c;
  plain.link.burst = {};
  EXPECT_EQ(calib::emulation_problem(plain).path, "/link/burst");
  Cluster narrow = c;
  narrow.link.burst = {
      64 *
      1024};  // one packet of the kernel's: overflows while it waits for the tokens of the next
  EXPECT_EQ(calib::emulation_problem(narrow).path, "/link/burst");
  Cluster tree = c;
  tree.pattern = Pattern::FatTree;
  EXPECT_EQ(calib::emulation_problem(tree).path, "/pattern");
  Cluster wide = c;
  wide.hosts = 65;
  EXPECT_EQ(calib::emulation_problem(wide).path, "/hosts");
}

}  // namespace
}  // namespace ddpsim::test
