// The event loop against times computed by hand, in picoseconds; one unit of work is a byte, a rate
// is bytes per picosecond.
#include "sim/engine/execute.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace ddpsim::engine {
namespace {

FlowId flow_on(TaskGraph& g, ResourceId r, double per_unit = 1, double weight = 1,
               double max_rate = 0) {
  Demand d{r, per_unit};
  return g.add_flow(std::span(&d, 1), weight, max_rate);
}

TaskId chained(TaskGraph& g, std::initializer_list<TaskId> tasks) {
  TaskId last = kNone;
  for (TaskId t : tasks) {
    if (last != kNone) g.add_edge(last, t);
    last = t;
  }
  return last;
}

// A graph with one link, and tasks on it that start after a delay.
struct OneLink {
  TaskGraph g;
  ResourceId link;
  FlowId flow;
  explicit OneLink(Resource r) : link(g.add_resource(r)), flow(flow_on(g, link)) {}
  TaskId task(std::int64_t delay, double work) { return g.add_task({delay}, work, flow); }
  TaskId task_of(FlowId f, std::int64_t delay, double work) { return g.add_task({delay}, work, f); }
};

TEST(Execute, AddsUpAChain) {
  TaskGraph g;
  TaskId a = g.add_fixed({5});
  TaskId b = g.add_fixed({7});
  g.add_edge(a, b);
  Timeline t = execute(g);
  EXPECT_TRUE(t.complete());
  EXPECT_EQ(t.begin[a].ps, 0);
  EXPECT_EQ(t.end[a].ps, 5);
  EXPECT_EQ(t.begin[b].ps, 5);
  EXPECT_EQ(t.end[b].ps, 12);
  EXPECT_EQ(t.makespan.ps, 12);
}

TEST(Execute, WaitsForTheLongerSideOfADiamond) {
  TaskGraph g;
  TaskId a = g.add_fixed({10}), b = g.add_fixed({3}), c = g.add_fixed({8}), d = g.add_fixed({1});
  chained(g, {a, b, d});
  chained(g, {a, c, d});
  Timeline t = execute(g);
  EXPECT_EQ(t.end[b].ps, 13);
  EXPECT_EQ(t.begin[d].ps, 18);
  EXPECT_EQ(t.makespan.ps, 19);
}

TEST(Execute, RunsAnEmptyGraph) {
  Timeline t = execute(TaskGraph{});
  EXPECT_TRUE(t.complete());
  EXPECT_EQ(t.makespan.ps, 0);
}

TEST(Execute, CountsAnEdgeThatIsGivenTwice) {
  TaskGraph g;
  TaskId a = g.add_fixed({4}), b = g.add_fixed({2});
  g.add_edge(a, b);
  g.add_edge(a, b);
  EXPECT_EQ(execute(g).end[b].ps, 6);
}

TEST(Execute, LengthensAFixedTask) {
  TaskGraph g;
  TaskId a = g.add_fixed({4});
  g.lengthen(a, {6});
  EXPECT_EQ(execute(g).end[a].ps, 10);
}

TEST(Execute, SpendsTheLatencyBeforeTheWork) {
  OneLink s({2, 0, 0});
  TaskId t = s.task(4, 10);
  Timeline r = execute(s.g);
  EXPECT_EQ(r.begin[t].ps, 0);
  EXPECT_EQ(r.end[t].ps, 9);
}

TEST(Execute, DoesNotShareDuringLatency) {
  OneLink s({2, 0, 0});
  TaskId a = s.task(0, 10), b = s.task(5, 10);
  Timeline r = execute(s.g);
  EXPECT_EQ(r.end[a].ps, 5);
  EXPECT_EQ(r.end[b].ps, 10);
}

TEST(Execute, RoundsTheEndUp) {
  OneLink s({3, 0, 0});
  TaskId t = s.task(0, 10);
  EXPECT_EQ(execute(s.g).end[t].ps, 4);
}

TEST(Execute, TreatsZeroWorkAsLatencyOnly) {
  OneLink s({2, 0, 0});
  TaskId a = s.task(3, 0), b = s.task(0, 0), c = s.task(0, 8);
  Timeline r = execute(s.g);
  EXPECT_EQ(r.end[a].ps, 3);
  EXPECT_EQ(r.end[b].ps, 0);
  EXPECT_EQ(r.end[c].ps, 4);
}

TEST(Sharing, ChangesTheRateWhenAFlowJoinsAndLeaves) {
  // A alone to 4 (40 of 100); 5 each until B's 30 are done at 10; then A's last 30 at 10.
  OneLink s({10, 0, 0});
  TaskId a = s.task(0, 100), b = s.task(4, 30);
  Timeline r = execute(s.g);
  EXPECT_EQ(r.end[b].ps, 10);
  EXPECT_EQ(r.end[a].ps, 13);
}

TEST(Sharing, TreatsTasksOfOneFlowLikeTasksOfTwo) {
  OneLink s({10, 0, 0});
  FlowId other = flow_on(s.g, s.link);
  TaskId a = s.task(0, 100), b = s.task_of(other, 4, 30);
  Timeline r = execute(s.g);
  EXPECT_EQ(r.end[b].ps, 10);
  EXPECT_EQ(r.end[a].ps, 13);
}

TEST(Sharing, GivesAWeightedFlowItsShare) {
  // 9 and 3 of 12: B (30) ends at 10, A did 90 and ends 10 later alone... of 210 120 are left
  // at 12.
  OneLink s({12, 0, 0});
  FlowId heavy = flow_on(s.g, s.link, 1, 3);
  TaskId a = s.task_of(heavy, 0, 210), b = s.task(0, 30);
  Timeline r = execute(s.g);
  EXPECT_EQ(r.end[b].ps, 10);
  EXPECT_EQ(r.end[a].ps, 20);
}

TEST(Sharing, KeepsAGroupOfManyTasksInOrderOfTheirWork) {
  // 2 each to 6, then 3 each to 8, then 6.
  OneLink s({6, 0, 0});
  TaskId a = s.task(0, 30), b = s.task(0, 12), c = s.task(0, 18);
  Timeline r = execute(s.g);
  EXPECT_EQ(r.end[b].ps, 6);
  EXPECT_EQ(r.end[c].ps, 8);
  EXPECT_EQ(r.end[a].ps, 10);
}

TEST(Sharing, LetsALateMemberOfAGroupEndLater) {
  // 8/ps. A (80) alone to 5: 40 left. With B (20): 4 each, B ends at 10; A's last 20 take 2.5
  // -> 13.
  OneLink s({8, 0, 0});
  TaskId a = s.task(0, 80), b = s.task(5, 20);
  Timeline r = execute(s.g);
  EXPECT_EQ(r.end[b].ps, 10);
  EXPECT_EQ(r.end[a].ps, 13);
}

TEST(Sharing, StartsAGroupAfreshAfterItWasEmpty) {
  OneLink s({2, 0, 0});
  TaskId a = s.task(0, 20), pause = s.g.add_fixed({100}), b = s.task(0, 20);
  chained(s.g, {a, pause, b});
  EXPECT_EQ(execute(s.g).end[b].ps, 120);
}

TEST(Sharing, ChargesATaskForEveryCrossing) {
  // Five connections on 10/ps, four of them carry A: both move 2/ps.
  OneLink s({10, 0, 0});
  FlowId four = flow_on(s.g, s.link, 4);
  TaskId a = s.task_of(four, 0, 20), b = s.task(0, 40);
  Timeline r = execute(s.g);
  EXPECT_EQ(r.end[a].ps, 10);
  EXPECT_EQ(r.end[b].ps, 12);
}

TEST(Sharing, LimitsAFlowByItsOwnRate) {
  OneLink s({10, 0, 0});
  FlowId slow = flow_on(s.g, s.link, 1, 1, 2);
  FlowId free = s.g.add_flow({}, 1, 4);
  TaskId a = s.task_of(slow, 0, 20), b = s.task(0, 80), c = s.task_of(free, 0, 40);
  Timeline r = execute(s.g);
  EXPECT_EQ(r.end[a].ps, 10);
  EXPECT_EQ(r.end[b].ps, 10);
  EXPECT_EQ(r.end[c].ps, 10);
}

TEST(Sharing, GivesEachMemberOfAnUnsharedFlowItsFullOwnRate) {
  TaskGraph g;
  FlowId f = g.add_flow({}, 1, 4);
  TaskId a = g.add_task({}, 40, f), b = g.add_task({5}, 40, f);
  Timeline r = execute(g);
  EXPECT_EQ(r.end[a].ps, 10);
  EXPECT_EQ(r.end[b].ps, 15);
}

TEST(Sharing, GivesWhatABottleneckElsewhereLeaves) {
  TaskGraph g;
  ResourceId wide = g.add_resource({10, 0, 0}), narrow = g.add_resource({2, 0, 0});
  Demand both[] = {{wide, 1}, {narrow, 1}};
  TaskId a = g.add_task({}, 40, g.add_flow(both)), b = g.add_task({}, 80, flow_on(g, wide));
  TaskId c = g.add_task({10}, 10, flow_on(g, narrow));
  // A at 2 and B at 8 to 10 (B done); then A and C at 1 each: C ends at 20, A has 10 left at 2.
  Timeline r = execute(g);
  EXPECT_EQ(r.end[b].ps, 10);
  EXPECT_EQ(r.end[c].ps, 20);
  EXPECT_EQ(r.end[a].ps, 25);
}

// ---- token bucket: 1/ps, 100 tokens, 5/ps while they last (they fall by 4/ps)

constexpr Resource kBucket{1, 100, 5};

TEST(TokenBucket, BurstsThenFallsToItsRate) {
  OneLink s(kBucket);
  TaskId a = s.task(0, 200);  // 125 by 25, the last 75 at 1
  EXPECT_EQ(execute(s.g).end[a].ps, 100);
}

TEST(TokenBucket, SendsAShortMessageAtItsPeak) {
  OneLink s(kBucket);
  TaskId a = s.task(0, 120);
  EXPECT_EQ(execute(s.g).end[a].ps, 24);
}

TEST(TokenBucket, RefillsWhileIdle) {
  OneLink s(kBucket);
  TaskId a = s.task(0, 125), idle = s.g.add_fixed({40}), b = s.task(0, 60);
  chained(s.g, {a, idle, b});
  Timeline r = execute(s.g);
  EXPECT_EQ(r.end[a].ps, 25);
  EXPECT_EQ(r.end[b].ps, 85);  // 40 tokens: 50 in 10, then 10 in 10
}

TEST(TokenBucket, NeverHoldsMoreThanItsBurst) {
  OneLink s(kBucket);
  TaskId a = s.task(0, 125), idle = s.g.add_fixed({100'000}), b = s.task(0, 200);
  chained(s.g, {a, idle, b});
  EXPECT_EQ(execute(s.g).end[b].ps, 25 + 100'000 + 100);
}

TEST(TokenBucket, KeepsWhatAShortMessageLeft) {
  // 50 bytes in 10: 60 tokens left, 68 after 8 idle; 17 at the peak move 85, the last 15 take 15.
  OneLink s(kBucket);
  TaskId a = s.task(0, 50), idle = s.g.add_fixed({8}), b = s.task(0, 100);
  chained(s.g, {a, idle, b});
  EXPECT_EQ(execute(s.g).end[b].ps, 10 + 8 + 17 + 15);
}

TEST(TokenBucket, RefillsUnderAFlowThatUsesLessThanItsRate) {
  OneLink s(kBucket);
  FlowId half = flow_on(s.g, s.link, 1, 1, 0.5);
  TaskId a = s.task(0, 125), slow = s.task_of(half, 0, 40), b = s.task(0, 60);
  chained(s.g, {a, slow, b});  // 80 ps at half its rate: 40 tokens
  EXPECT_EQ(execute(s.g).end[b].ps, 25 + 80 + 20);
}

TEST(TokenBucket, LetsAPacketPassAsSoonAsItHoldsEnough) {
  OneLink s(kBucket);
  FlowId packets = s.g.add_packet_flow(s.link);
  TaskId a = s.task_of(packets, 0, 60), b = s.task_of(packets, 0, 60), idle = s.g.add_fixed({30}),
         c = s.task_of(packets, 0, 20);
  chained(s.g,
          {a, b, idle, c});  // 100 tokens: 60, then 40 at once and 20 at the rate; 30 saved since
  Timeline r = execute(s.g);
  EXPECT_EQ(r.end[a].ps, 0);
  EXPECT_EQ(r.end[b].ps, 20);
  EXPECT_EQ(r.end[c].ps, 50);
}

TEST(TokenBucket, IsDrainedByTwoFlowsTogether) {
  OneLink s(kBucket);
  FlowId other = flow_on(s.g, s.link);
  TaskId a = s.task(0, 100), b = s.task_of(other, 0, 100);  // 62.5 each by 25, then 0.5 each
  Timeline r = execute(s.g);
  EXPECT_EQ(r.end[a].ps, 100);
  EXPECT_EQ(r.end[b].ps, 100);
}

TEST(TokenBucket, IsDrainedFasterByAFlowThatCrossesItTwice) {
  OneLink s(kBucket);
  TaskId a = s.task_of(flow_on(s.g, s.link, 2), 0, 100);  // 2.5/ps to 25, then 0.5/ps for 37.5
  EXPECT_EQ(execute(s.g).end[a].ps, 100);
}

TEST(TokenBucket, IsNotDrainedByAFlowThatIsLimitedElsewhere) {
  OneLink s(kBucket);
  FlowId steady = flow_on(s.g, s.link, 1, 1, 1);
  TaskId a = s.task_of(steady, 0, 500), b = s.task(0, 200);
  chained(s.g, {a, b});
  EXPECT_EQ(execute(s.g).end[b].ps, 500 + 100);
}

// ---- holds

struct Held {
  OneLink s{{1, 0, 0}};
  TaskId work = s.task(0, 10);
  // The share is gone from 2 to 6.
  void hold(double share) {
    TaskId wait = s.g.add_fixed({2}), first = s.g.add_fixed({1}), last = s.g.add_fixed({3});
    chained(s.g, {wait, first, last});
    s.g.add_hold(first, last, {s.link, share});
  }
  std::int64_t end() { return execute(s.g).end[work].ps; }
};

TEST(Holds, ReduceTheCapacityBetweenTheFirstAndTheLastTask) {
  Held h;
  h.hold(0.5);
  EXPECT_EQ(h.end(), 12);
}

TEST(Holds, StopTheWorkWhenTheyTakeAll) {
  Held h;
  h.hold(1);
  EXPECT_EQ(h.end(), 14);
}

TEST(Holds, AddUp) {
  Held h;
  h.hold(0.25);
  h.hold(0.5);
  EXPECT_EQ(h.end(), 13);
}

TEST(Holds, TakeNoMoreTogetherThanTheResourceGives) {
  Held h;
  h.s.link = h.s.g.add_resource({1, 0, 0, false, 0.75});
  h.work = h.s.g.add_task({}, 10, flow_on(h.s.g, h.s.link));
  h.hold(0.5);
  h.hold(0.5);
  EXPECT_EQ(h.end(), 13);
}

TEST(Holds, MayBeTakenAndGivenBackByOneTask) {
  OneLink s({1, 0, 0});
  TaskId work = s.task(0, 10), burst = s.g.add_fixed({4});
  s.g.add_hold(burst, burst, {s.link, 0.5});
  EXPECT_EQ(execute(s.g).end[work].ps, 12);
}

// ---- gates, controller, defects

struct Policy {
  std::vector<TaskId> seen;
  std::vector<std::int64_t> when;
  std::vector<TaskId> gates;  // released one per notification
  static void on_end(void* state, TaskId task, TimePoint now, std::vector<TaskId>& release) {
    auto& p = *static_cast<Policy*>(state);
    p.seen.push_back(task);
    p.when.push_back(now.ps);
    if (p.gates.empty()) return;
    release.push_back(p.gates.front());
    p.gates.erase(p.gates.begin());
  }
};

TEST(Gates, HoldATaskUntilTheControllerReleasesIt) {
  TaskGraph g;
  TaskId a = g.add_fixed({5}), silent = g.add_fixed({3}), b = g.add_fixed({7});
  g.add_gate(b);
  g.notify(a);
  Policy p;
  p.gates = {b};
  Timeline t = execute(g, {&p, &Policy::on_end});
  EXPECT_TRUE(t.complete());
  EXPECT_EQ(p.seen, std::vector<TaskId>{a});
  EXPECT_EQ(p.when, std::vector<std::int64_t>{5});
  EXPECT_EQ(t.end[silent].ps, 3);
  EXPECT_EQ(t.begin[b].ps, 5);
  EXPECT_EQ(t.end[b].ps, 12);
}

// The controller hears of what ends at one time in the order in which it began its work.
TEST(Gates, WhatEndsTogetherIsToldInTheOrderOfItsBeginning) {
  OneLink s({1, 0, 0});
  std::vector<TaskId> tasks;
  for (int k = 0; k < 5; ++k) {
    tasks.push_back(s.task(0, 10));
    s.g.notify(tasks.back());
  }
  Policy p;
  execute(s.g, {&p, &Policy::on_end});
  EXPECT_EQ(p.seen, tasks);
}

TEST(Gates, ComeOnTopOfEdges) {
  TaskGraph g;
  TaskId a = g.add_fixed({5}), late = g.add_fixed({9}), b = g.add_fixed({1});
  g.add_edge(late, b);
  g.add_gate(b);
  g.notify(a);
  Policy p;
  p.gates = {b};
  EXPECT_EQ(execute(g, {&p, &Policy::on_end}).begin[b].ps, 9);
}

TEST(Gates, LeaveTheGraphIncompleteWhenNobodyOpensThem) {
  TaskGraph g;
  TaskId a = g.add_fixed({5}), b = g.add_fixed({7});
  g.add_gate(b);
  Timeline t = execute(g);
  EXPECT_FALSE(t.complete());
  EXPECT_EQ(t.end[a].ps, 5);
  EXPECT_EQ(t.begin[b].ps, -1);
  EXPECT_EQ(t.end[b].ps, -1);
  EXPECT_EQ(t.completions, 1u);
}

TEST(Execute, EndsWithoutHangingOnACycle) {
  TaskGraph g;
  TaskId a = g.add_fixed({5}), b = g.add_fixed({7}), c = g.add_fixed({2});
  g.add_edge(a, b);
  g.add_edge(b, a);
  Timeline t = execute(g);
  EXPECT_FALSE(t.complete());
  EXPECT_EQ(t.end[c].ps, 2);
  EXPECT_EQ(t.end[a].ps, -1);
}

TEST(Execute, EndsWithoutHangingWhenAFlowIsHeldForEver) {
  TaskGraph g;
  ResourceId r = g.add_resource({1, 0, 0});
  TaskId work = g.add_task({}, 10, flow_on(g, r)), first = g.add_fixed({}), never = g.add_fixed({});
  g.add_gate(never);
  g.add_hold(first, never, {r, 1});
  Timeline t = execute(g);
  EXPECT_FALSE(t.complete());
  EXPECT_EQ(t.end[work].ps, -1);
}

// ---- random graphs

struct RandomGraph {
  TaskGraph g;
  std::vector<std::vector<TaskId>> before;
};

RandomGraph random_graph(std::uint64_t seed) {
  std::uint64_t state = seed * 2654435761u + 12345;
  auto below = [&](std::uint32_t n) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<std::uint32_t>(state >> 33) % n;
  };
  RandomGraph out;
  std::vector<FlowId> flows;
  for (int r = 0; r < 4; ++r)
    out.g.add_resource(below(3) == 0 ? Resource{0.5, 50, 2}
                                     : Resource{0.25 * (1 + below(8)), 0, 0});
  for (int f = 0; f < 6; ++f) {
    Demand d[] = {{below(2), 0.5 * (1 + below(3))}, {2 + below(2), 1}};
    flows.push_back(out.g.add_flow(d, 1 + below(3), below(3) == 0 ? 0.5 : 0));
  }
  for (TaskId t = 0; t < 120; ++t) {
    out.g.add_task({below(20)}, below(4) == 0 ? 0 : below(100), flows[below(6)]);
    out.before.emplace_back();
    for (std::uint32_t k = 0; t > 0 && k < below(3); ++k) {
      TaskId from = below(t);
      out.g.add_edge(from, t);
      out.before[t].push_back(from);
    }
  }
  return out;
}

TEST(Execute, GivesTheSameTimelineEveryTime) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Timeline a = execute(random_graph(seed).g);
    Timeline b = execute(random_graph(seed).g);
    ASSERT_TRUE(a.begin == b.begin && a.end == b.end) << "seed " << seed;
    ASSERT_EQ(a.solves, b.solves);
  }
}

TEST(Execute, EndsEveryTaskOfRandomGraphsInTheirOrder) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    RandomGraph r = random_graph(seed);
    Timeline t = execute(r.g);
    ASSERT_TRUE(t.complete()) << "seed " << seed;
    for (TaskId i = 0; i < r.g.size(); ++i) {
      std::int64_t start = 0;
      for (TaskId b : r.before[i]) start = std::max(start, t.end[b].ps);
      ASSERT_EQ(t.begin[i].ps, start) << "seed " << seed << ", task " << i;
      ASSERT_GE(t.end[i].ps, start + r.g.tasks()[i].latency);
    }
  }
}

// A controller that adds to the graph.
struct Grower {
  TaskGraph* graph;
  TaskId first = 0, timer = kNone, added = kNone, late = kNone;
  FlowId flow = kNoFlow;
};

TEST(ExecuteGrowing, ATimerIsAFixedTaskThatIsAddedWhenItIsSet) {
  TaskGraph g;
  Grower w{&g};
  w.first = g.add_fixed({10});
  g.notify(w.first);
  auto on_end = [](void* state, TaskId t, TimePoint now, std::vector<TaskId>&) {
    auto& grower = *static_cast<Grower*>(state);
    if (t == grower.first) {
      EXPECT_EQ(now.ps, 10);
      grower.timer = grower.graph->add_fixed({25});
      grower.graph->notify(grower.timer);
    } else {
      EXPECT_EQ(now.ps, 35);
    }
  };
  Timeline t = execute_growing(g, {&w, on_end});
  EXPECT_TRUE(t.complete());
  EXPECT_EQ(t.begin[w.timer].ps, 10);
  EXPECT_EQ(t.end[w.timer].ps, 35);
}

// What is added shares links with what is under way, may wait for what has ended, and may be waited
// for by what was there.
TEST(ExecuteGrowing, WhatIsAddedTakesPart) {
  TaskGraph g;
  ResourceId link = g.add_resource({1.0, 0, 0});
  Grower w{&g};
  w.flow = flow_on(g, link);
  w.first = g.add_fixed({10});
  g.notify(w.first);
  TaskId long_one = g.add_task({}, 100, w.flow);
  w.late = g.add_fixed({1});
  g.add_gate(w.late);
  auto on_end = [](void* state, TaskId t, TimePoint, std::vector<TaskId>& release) {
    auto& grower = *static_cast<Grower*>(state);
    ASSERT_EQ(t, grower.first);
    TaskGraph& graph = *grower.graph;
    for (int k = 0; k < 40; ++k) flow_on(graph, graph.add_resource({1.0, 0, 0}));
    FlowId another = flow_on(graph, 0);
    grower.added = graph.add_task({}, 45, another);
    graph.add_edge(grower.first, grower.added);  // has ended
    graph.add_edge(grower.added, grower.late);
    release.push_back(grower.late);
  };
  Timeline t = execute_growing(g, {&w, on_end});
  EXPECT_TRUE(t.complete());
  // 10 alone, 90 shared by two until the shorter has its 45, the rest alone.
  EXPECT_EQ(t.end[w.added].ps, 100);
  EXPECT_EQ(t.end[long_one].ps, 145);
  EXPECT_EQ(t.begin[w.late].ps, 100);
}

}  // namespace
}  // namespace ddpsim::engine
