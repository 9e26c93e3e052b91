// The executor's connections: every algorithm over plain loopback, a thread a rank; and what other
// libraries would choose.
#include "calib/mesh.h"

#include <atomic>
#include <thread>

#include <gtest/gtest.h>

#include "calib/data_check.h"
#include "calib/player.h"
#include "calib/stage.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

using calib::Mesh;
using collective::Layout;
using collective::Step;

std::vector<int> peers_of(const collective::RankSteps& steps,
                          std::vector<collective::Message> Step::*end) {
  std::vector<int> out;
  for (const auto& lane : steps.lanes)
    for (const Step& step : lane)
      for (const auto& m : step.*end)
        if (std::find(out.begin(), out.end(), m.peer) == out.end()) out.push_back(m.peer);
  return out;
}

// Rank r's element i before; exact as floats, whatever the order of sums.
float value(int rank, std::int64_t i) {
  return static_cast<float>((rank + 1) * 8 + i % 5);
}

// A thread a rank, connected as the schedule needs; returns what each threw. Body: (rank, mesh).
template <class Body>
std::vector<std::string> on_mesh(const collective::Schedule& s, Body body) {
  auto n = static_cast<int>(s.ranks.size());
  std::vector<calib::Peer> peers(s.ranks.size());
  std::atomic<int> listening = 0;
  std::atomic<int> connected = 0;
  std::vector<std::string> errors(s.ranks.size());
  auto meet = [n](std::atomic<int>& count) {
    ++count;
    while (count < n) std::this_thread::yield();
  };
  std::vector<std::thread> threads;
  for (int r = 0; r < n; ++r)
    threads.emplace_back([&, r] {
      auto me = static_cast<std::size_t>(r);
      const collective::RankSteps& mine = s.ranks[me];
      Mesh mesh(s.lanes());
      peers[me] = {"127.0.0.1", mesh.listen("127.0.0.1")};
      meet(listening);
      try {
        mesh.connect(r, peers, peers_of(mine, &Step::sends), peers_of(mine, &Step::receives));
        meet(connected);
        body(r, mesh);
      } catch (const std::exception& e) {
        errors[me] = e.what();
      }
    });
  for (auto& t : threads) t.join();
  return errors;
}

// Plays a schedule and returns every rank's buffer.
std::vector<std::vector<float>> play(const collective::Schedule& s, std::int64_t buffer,
                                     std::string& error) {
  std::vector<std::vector<float>> data(s.ranks.size());
  auto errors = on_mesh(s, [&](int r, Mesh& mesh) {
    auto me = static_cast<std::size_t>(r);
    for (std::int64_t i = 0; i < buffer; ++i) data[me].push_back(value(r, i));
    calib::Scratch scratch;
    mesh.play(s.ranks[me], reinterpret_cast<std::byte*>(data[me].data()), DType::Float32, scratch,
              0);
  });
  for (const auto& e : errors)
    if (!e.empty()) error = e;
  return data;
}

// Two groups of three ranks play `schedule`, which is said to be `said`, from or to member `root`;
// what the ranks find wrong.
std::string checked(Operation said, int root, const collective::Schedule& schedule, DType type) {
  calib::Part part;
  part.ranks = 6;
  part.groups = {{{0, 2, 4}, {1, 3, 5}}};
  calib::Part::Collective c;
  c.operation = said;
  c.elements = 1001;
  c.type = type;
  c.root = root;
  c.schedule.ranks.resize(6);
  for (std::size_t g = 0; g < 2; ++g)
    for (std::size_t i = 0; i < 3; ++i) {
      collective::RankSteps& steps = c.schedule.ranks[2 * i + g] = schedule.ranks[i];
      for (auto& lane : steps.lanes)
        for (Step& step : lane)
          for (auto* list : {&step.sends, &step.receives})
            for (auto& m : *list) m.peer = 2 * m.peer + static_cast<int>(g);
    }
  part.kinds.emplace_back().collectives.push_back(c);
  std::vector<std::string> wrong(6);
  auto errors = on_mesh(c.schedule, [&](int r, Mesh& mesh) {
    wrong[static_cast<std::size_t>(r)] = calib::check_collectives(part, r, mesh);
  });
  for (const auto& list : {errors, wrong})
    for (const std::string& e : list)
      if (!e.empty()) return e;
  return {};
}

TEST(CheckCollectives, NoticesWhatIsNotWhatItSays) {
  Layout l;
  l.ranks = 3;
  const auto steps = [&](Operation o) {
    const bool rooted = o == Operation::Broadcast || o == Operation::Reduce;
    return make_schedule(rooted ? Algorithm::BinomialTree : Algorithm::Ring, o, l, 1001);
  };
  const Operation all[] = {Operation::AllReduce, Operation::ReduceScatter, Operation::AllGather,
                           Operation::Broadcast, Operation::Reduce};
  for (Operation said : all) {
    for (DType type : {DType::Float32, DType::BFloat16})
      EXPECT_EQ(checked(said, 0, steps(said), type), "") << name_of(said);
    // An all-reduce leaves what half of it, or a reduce, is asked for.
    for (Operation played : all)
      if (played != said && played != Operation::AllReduce) {
        EXPECT_NE(checked(said, 0, steps(played), DType::Float32).find(name_of(said)),
                  std::string::npos)
            << name_of(played) << " for " << name_of(said);
      }
  }
  EXPECT_NE(checked(Operation::Broadcast, 1, steps(Operation::Broadcast), DType::Float32), "");
  EXPECT_NE(checked(Operation::Reduce, 2, steps(Operation::Reduce), DType::Float32), "");
}

TEST(Mesh, SumsByEveryAlgorithm) {
  for (int a = 0; a < kAlgorithms; ++a)
    for (int n = 2; n <= 8; ++n) {
      auto algorithm = static_cast<Algorithm>(a);
      if (!collective::performs(algorithm, Operation::AllReduce, n)) continue;
      for (std::int64_t elements : {1, 7, 1001, 100'003}) {
        Layout l;
        l.ranks = n;
        for (int p = 0; p < n; ++p) l.group.push_back(p / 2);
        std::string error;
        auto data = play(make_schedule(algorithm, Operation::AllReduce, l, elements, {4096}),
                         elements, error);
        ASSERT_EQ(error, "") << name_of(algorithm) << " " << n << " " << elements;
        for (int r = 0; r < n; ++r)
          for (std::int64_t i = 0; i < elements; ++i)
            ASSERT_EQ(data[static_cast<std::size_t>(r)][static_cast<std::size_t>(i)],
                      static_cast<float>(4 * n * (n + 1) + n * (i % 5)))
                << name_of(algorithm) << " " << n << " " << elements << " rank " << r << " element "
                << i;
      }
    }
}

TEST(Mesh, ExchangesAndGathers) {
  for (int n = 2; n <= 5; ++n) {
    Layout l;
    l.ranks = n;
    std::string error;
    std::int64_t block = 1001;
    auto data = play(make_schedule(Algorithm::Direct, Operation::AllToAll, l, block * n),
                     2 * block * n, error);
    ASSERT_EQ(error, "");
    for (int r = 0; r < n; ++r)
      for (int q = 0; q < n; ++q)
        for (std::int64_t i = 0; q != r && i < block; ++i)
          ASSERT_EQ(
              data[static_cast<std::size_t>(r)][static_cast<std::size_t>((n + q) * block + i)],
              value(q, r * block + i));
    data = play(make_schedule(Algorithm::Ring, Operation::AllGather, l, block), block, error);
    for (int r = 0; r < n; ++r)
      for (int q = 0; q < n; ++q)
        for (std::int64_t i = collective::chunk_begin(block, n, q);
             i < collective::chunk_begin(block, n, q + 1); ++i)
          ASSERT_EQ(data[static_cast<std::size_t>(r)][static_cast<std::size_t>(i)], value(q, i));
    data = play(make_schedule(Algorithm::DoubleBinaryTree, Operation::Broadcast, l, block, {64}),
                block, error);
    for (int r = 0; r < n; ++r)
      for (std::int64_t i = 0; i < block; ++i)
        ASSERT_EQ(data[static_cast<std::size_t>(r)][static_cast<std::size_t>(i)], value(0, i));
    ASSERT_EQ(error, "");
  }
}

// As the executor's streams do. What threads share besides is ThreadSanitizer's to find
// (tools/ci_nightly --stage tsan).
TEST(Mesh, SeveralThreadsPlayAtOnce) {
  constexpr int kThreads = 4;
  constexpr std::int64_t kElements = 50'000;
  Layout l;
  l.ranks = 2;
  collective::Schedule s = make_schedule(Algorithm::Ring, Operation::AllReduce, l, kElements);
  std::vector<calib::Peer> peers(2);
  std::atomic<int> listening = 0;
  std::atomic<int> wrong = 0;
  auto rank = [&](int r) {
    auto me = static_cast<std::size_t>(r);
    Mesh mesh(kThreads);
    peers[me] = {"127.0.0.1", mesh.listen("127.0.0.1")};
    ++listening;
    while (listening < 2) std::this_thread::yield();
    int other[] = {1 - r};
    mesh.connect(r, peers, other, other);
    std::vector<std::thread> threads;
    for (int slot = 0; slot < kThreads; ++slot)
      threads.emplace_back([&, slot] {
        calib::Scratch scratch;
        std::vector<float> data(kElements, static_cast<float>(me + 1));
        auto* bytes = reinterpret_cast<std::byte*>(data.data());
        for (int k = 0; k < 3; ++k) mesh.play(s.ranks[me], bytes, DType::Float32, scratch, slot);
        for (float x : data) wrong += x != 12;  // 1 + 2, and twice that, twice
      });
    for (auto& t : threads) t.join();
    EXPECT_GT(mesh.summing_ns(), 0);
  };
  std::thread first(rank, 0);
  rank(1);
  first.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Mesh, SaysWhenStepsCannotGoOn) {
  collective::RankSteps steps{{{{}}, {{}}}};
  for (int l : {0, 1}) {
    steps.lanes[static_cast<std::size_t>(l)][0].after_lane = 1 - l;
    steps.lanes[static_cast<std::size_t>(l)][0].after_step = 0;
  }
  Mesh mesh(2);
  calib::Scratch scratch;
  EXPECT_THROW(mesh.play(steps, nullptr, DType::Float32, scratch, 0), std::runtime_error);
}

// What a run sums is checked on every rank: whatever the type, the ranks and the steps, what was
// summed as it should be is accepted, and a step that one rank missed is not.
TEST(Player, ChecksSumsOfEveryTypeAfterManySteps) {
  constexpr std::int64_t kElements = 200;
  for (DType type : {DType::Float16, DType::BFloat16, DType::Float32, DType::Float64})
    for (int ranks : {2, 3, 5, 6, 16})
      for (std::size_t steps : {1, 7, 14}) {
        SCOPED_TRACE(testing::Message() << element_size(type) << " bytes, " << ranks << " ranks, "
                                        << steps << " steps");
        calib::Part part;
        part.ranks = ranks;
        part.gradient_bytes = kElements * element_size(type);
        calib::Part::Collective c;
        c.elements = kElements;
        c.type = type;
        c.gradients = true;
        part.kinds.emplace_back().collectives.push_back(c);
        part.sequence.assign(steps, 0);
        auto played = [&](int misses) {
          std::vector<std::vector<std::byte>> of(
              ranks, std::vector<std::byte>(static_cast<std::size_t>(part.gradient_bytes)));
          for (int r = 0; r < ranks; ++r) calib::fill_gradients(part, r, of[r].data());
          for (std::size_t step = 0; step < steps; ++step) {
            std::vector<std::byte> sum = of[0];
            for (int r = 1; r < ranks; ++r)
              if (step > 0 || r != misses)
                calib::sum_into(sum.data(), of[r].data(), kElements, type);
            for (auto& data : of) data = sum;
          }
          return calib::check_gradients(part, of[0].data());
        };
        EXPECT_EQ(played(-1), "");
        EXPECT_NE(played(1), "");
      }
}

// Hosts that cannot be made of a cluster are processes on loopback, and it is said why.
TEST(Stage, SaysWhyItsHostsAreLoopback) {
  Cluster c = test::cluster("testbed-star");
  c.link.latency = kMicrosecond;
  calib::SharedMemory memory(sizeof(calib::Rendezvous));
  auto* rendezvous = new (memory.data()) calib::Rendezvous{};
  auto result = [&](bool loopback) {
    return calib::run_stage(c, {0, 1}, 2, loopback, 20, *rendezvous, [](int, bool) {});
  };
  EXPECT_FALSE(result(false).shaped);
  EXPECT_EQ(result(false).reason.rfind("/link/latency: the kernel's shaper adds no latency", 0), 0U)
      << result(false).reason;
  EXPECT_EQ(result(true).reason, "asked for");
}

}  // namespace
}  // namespace ddpsim::test
