// Parts of a task against the same work as tasks one behind another.
#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "sim/engine/execute.h"

namespace ddpsim::engine {
namespace {

struct Kernel {
  std::size_t flow;
  double work;
  bool awaited;  // a timer begins when it has ended
};

// Streams of kernels on resources that they share or have for themselves, and shares of these taken
// for a while, by timers and behind kernels.
struct Job {
  std::vector<Resource> resources;
  std::vector<std::vector<Demand>> flows;
  std::vector<double> most;  // rate of each flow
  std::vector<std::vector<Kernel>> streams;
  std::vector<std::int64_t> latency;  // of each stream's first
  struct Taken {
    std::int64_t after, lasts;
    Hold hold;
  };
  std::vector<Taken> taken;
};

Job random_job(std::uint64_t seed) {
  std::uint64_t state = seed * 2654435761u + 99;
  auto below = [&](std::uint32_t n) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<std::uint32_t>(state >> 33) % n;
  };
  Job out;
  const std::uint32_t resources = 1 + below(4);
  for (std::uint32_t r = 0; r < resources; ++r)
    out.resources.push_back(below(6) == 0 ? Resource{0.5, 50, 2}
                                          : Resource{0.25 * (1 + below(8)), 0, 0});
  const std::uint32_t flows = 1 + below(5);
  for (std::uint32_t f = 0; f < flows; ++f) {
    out.flows.push_back({{below(resources), 0.5 * (1 + below(3))}});
    if (const ResourceId other = below(resources);
        below(4) == 0 && other != out.flows.back()[0].resource)
      out.flows.back().push_back({other, 1});
    out.most.push_back(below(3) == 0 ? 0.5 : 0);
  }
  const std::uint32_t streams = 1 + below(3);
  for (std::uint32_t s = 0; s < streams; ++s) {
    out.streams.emplace_back();
    out.latency.push_back(below(40));
    const std::uint32_t kernels = 1 + below(40);
    for (std::uint32_t k = 0; k < kernels; ++k)
      out.streams.back().push_back({below(static_cast<std::uint32_t>(out.flows.size())),
                                    0.1 * (1 + below(900)), below(10) == 0});
  }
  const std::uint32_t taken = below(6);
  for (std::uint32_t h = 0; h < taken; ++h)
    out.taken.push_back({below(900), below(300), {below(resources), 0.1 * (1 + below(9))}});
  return out;
}

// Begins and ends of all kernels, then of all else, in the order of the job.
struct Times {
  std::vector<std::int64_t> of;
  std::size_t tasks = 0;
  std::uint64_t solves = 0;
};

Times played(const Job& job, bool parts) {
  TaskGraph g;
  for (const Resource& r : job.resources) g.add_resource(r);
  for (std::size_t f = 0; f < job.flows.size(); ++f) g.add_flow(job.flows[f], 1, job.most[f]);
  struct Place {
    TaskId task;
    PartId part;
  };
  std::vector<Place> kernels;
  std::vector<TaskId> others;
  for (std::size_t s = 0; s < job.streams.size(); ++s) {
    TaskId last = kNone;
    bool open = false;
    for (const Kernel& k : job.streams[s]) {
      const auto flow = static_cast<FlowId>(k.flow);
      PartId part = kNone;
      if (parts && open) {
        part = g.add_part(last, k.work, flow);
      } else {
        const TaskId t = g.add_task({last == kNone ? job.latency[s] : 0}, k.work, flow);
        if (last != kNone) g.add_edge(last, t);
        last = t;
      }
      kernels.push_back({last, part});
      open = !k.awaited;
      if (!k.awaited) continue;
      others.push_back(g.add_fixed({25}));
      g.add_edge(last, others.back());
    }
  }
  for (const Job::Taken& t : job.taken) {
    const TaskId before = g.add_fixed({t.after});
    const TaskId held = g.add_fixed({t.lasts});
    g.add_edge(before, held);
    g.add_hold(held, held, t.hold);
    others.push_back(held);
  }
  const Timeline t = execute(g);
  EXPECT_TRUE(t.complete());
  Times out{{}, g.size(), t.solves};
  for (const Place& k : kernels) {
    const PartId next = g.part_after(k.task, k.part);
    out.of.push_back((k.part == kNone ? t.begin[k.task] : t.part[k.part]).ps);
    out.of.push_back((next == kNone ? t.end[k.task] : t.part[next]).ps);
  }
  for (TaskId o : others) out.of.push_back(t.begin[o].ps), out.of.push_back(t.end[o].ps);
  out.of.push_back(t.makespan.ps);
  return out;
}

TEST(TaskParts, AreTasksOneBehindAnotherToThePicosecond) {
  std::size_t saved = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    const Job job = random_job(seed);
    const Times apart = played(job, false);
    const Times together = played(job, true);
    ASSERT_EQ(together.of, apart.of) << "seed " << seed;
    saved += apart.tasks - together.tasks;
  }
  EXPECT_GT(saved, 50'000u);
}

TEST(TaskParts, GoOnPastEachOtherWithoutATurnOfTheEventLoop) {
  TaskGraph g;
  const ResourceId r = g.add_resource({2, 0, 0});
  const Demand d{r, 1};
  const FlowId f = g.add_flow(std::span(&d, 1));
  const TaskId t = g.add_task({5}, 10, f);
  const PartId second = g.add_part(t, 7, f);
  const PartId third = g.add_part(t, 1, f);
  const TaskId timer = g.add_fixed({8});
  g.add_hold(timer, timer, {r, 0.5});  // half of it until 8 ps
  const Timeline out = execute(g);
  EXPECT_EQ(out.begin[t].ps, 0);
  // 3 ps at 1, 7 left at 2: 11.5, rounded up.
  EXPECT_EQ(out.part[second].ps, 12);
  EXPECT_EQ(out.part[third].ps, 16);
  EXPECT_EQ(out.end[t].ps, 17);
  EXPECT_EQ(g.part_after(t, kNone), second);
  EXPECT_EQ(g.part_after(t, second), third);
  EXPECT_EQ(g.part_after(t, third), kNone);
  EXPECT_EQ(g.part_after(timer, kNone), kNone);
}

}  // namespace
}  // namespace ddpsim::engine
