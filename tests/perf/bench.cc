// Speed. One event = one completion popped, its successors released, rates solved again. Figures go
// to the README as printed.

#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include "sim/collective/backend/nccl.h"
#include "sim/engine/execute.h"
#include "sim/nccl/fabric/group.h"
#include "sim/systems/base/lower.h"
#include "sim/systems/ddp/plan.h"
#include "tests/support/support.h"

namespace ddpsim {
namespace {

using engine::Demand;
using engine::FlowId;
using engine::TaskGraph;
using engine::TaskId;

constexpr double kLinkRate = 0.0125;  // bytes per picosecond: 100 Gb/s

struct Lcg {
  std::uint32_t x = 1;
  std::uint32_t next() { return (x = x * 1664525u + 1013904223u) >> 8; }
};

double peak_megabytes() {
  rusage u{};
  getrusage(RUSAGE_SELF, &u);
  return static_cast<double>(u.ru_maxrss) / 1024;
}

void count(benchmark::State& state, std::uint64_t events) {
  state.counters["events/s"] =
      benchmark::Counter(static_cast<double>(events), benchmark::Counter::kIsRate);
}

// The loop that tools/bench counts the others in: integers, floating point and memory that a cache
// holds, and nothing of ddpsim's.
void reference(benchmark::State& state) {
  std::vector<double> values(1 << 15, 1.0);
  Lcg random;
  for (auto _ : state) {
    for (int i = 0; i < 1'000'000; ++i) {
      double& v = values[random.next() & (values.size() - 1)];
      v = v * 0.999 + i;
    }
    benchmark::DoNotOptimize(values.data());
  }
}
BENCHMARK(reference)->Unit(benchmark::kMillisecond);

// 16 chains of fixed tasks: nothing shared.
void events_without_sharing(benchmark::State& state) {
  TaskGraph g;
  for (int l = 0; l < 16; ++l)
    for (int i = 0; i < 20'000; ++i) {
      TaskId t = g.add_fixed({1000 + (i * 7919 + l * 104729) % 5000});
      if (i > 0) g.add_edge(t - 1, t);
    }
  std::uint64_t events = 0;
  for (auto _ : state) events += engine::execute(g).completions;
  count(state, events);
}
BENCHMARK(events_without_sharing)->Unit(benchmark::kMillisecond);

// 1,000 tasks in flight over 64 links, each on one link: about 16 share each.
void events_1000_tasks_64_links(benchmark::State& state) {
  TaskGraph g;
  Lcg rng;
  std::vector<FlowId> flows;
  for (int i = 0; i < 64; ++i) {
    Demand d{g.add_resource({kLinkRate, 0, 0}), 1};
    flows.push_back(g.add_flow(std::span(&d, 1)));
  }
  std::vector<TaskId> last(1000);
  for (int k = 0; k < 100; ++k)
    for (auto& l : last) {
      TaskId t = g.add_task({}, 1000 + rng.next() % 100'000, flows[rng.next() % 64]);
      if (k > 0) g.add_edge(l, t);
      l = t;
    }
  std::uint64_t events = 0;
  for (auto _ : state) events += engine::execute(g).completions;
  count(state, events);
}
BENCHMARK(events_1000_tasks_64_links)->Unit(benchmark::kMillisecond);

// The same, each task on two links (32 senders, 32 receivers, random pairs): one component of 64
// links, every completion re-solves all of it.
void events_1000_tasks_64_links_all_connected(benchmark::State& state) {
  TaskGraph g;
  Lcg rng;
  for (int i = 0; i < 64; ++i) g.add_resource({kLinkRate, 0, 0});
  std::vector<FlowId> flows;
  for (std::uint32_t i = 0; i < 32; ++i)
    for (std::uint32_t j = 0; j < 32; ++j) {
      Demand d[2] = {{i, 1}, {32 + j, 1}};
      flows.push_back(g.add_flow(d));
    }
  std::vector<TaskId> last(1000);
  for (int k = 0; k < 5; ++k)
    for (auto& l : last) {
      TaskId t = g.add_task({}, 1000 + rng.next() % 100'000, flows[rng.next() % 1024]);
      if (k > 0) g.add_edge(l, t);
      l = t;
    }
  std::uint64_t events = 0;
  for (auto _ : state) events += engine::execute(g).completions;
  count(state, events);
}
BENCHMARK(events_1000_tasks_64_links_all_connected)->Unit(benchmark::kMillisecond);

// RING n by message: 2(n-1)n completions, each on its sender's and its receiver's link; no symmetry
// used. Graph construction included.
void ring_by_message(benchmark::State& state) {
  auto n = static_cast<std::size_t>(state.range(0));
  std::uint64_t events = 0;
  for (auto _ : state) {
    TaskGraph g;
    for (std::size_t i = 0; i < 2 * n; ++i) g.add_resource({kLinkRate, 0, 0});
    std::vector<FlowId> flows;
    for (std::size_t i = 0; i < n; ++i) {
      Demand d[2] = {{static_cast<std::uint32_t>(i), 1},
                     {static_cast<std::uint32_t>(n + (i + 1) % n), 1}};
      flows.push_back(g.add_flow(d));
    }
    std::size_t steps = 2 * (n - 1);
    g.reserve(steps * n, 2 * steps * n);
    for (std::size_t s = 0; s < steps; ++s)
      for (std::size_t i = 0; i < n; ++i) {
        TaskId t = g.add_task(kMicrosecond, 1e8 / static_cast<double>(n), flows[i]);
        if (s == 0) continue;
        g.add_edge(static_cast<TaskId>(t - n), t);
        g.add_edge(static_cast<TaskId>((s - 1) * n + (i + n - 1) % n), t);
      }
    engine::Timeline timeline = engine::execute(g);
    events += timeline.completions;
    state.counters["simulated_ms"] = static_cast<double>(timeline.makespan.ps) / 1e9;
  }
  count(state, events);
  state.counters["peak_MB"] = peak_megabytes();
}
BENCHMARK(ring_by_message)->Arg(64)->Arg(256)->Arg(1024)->Unit(benchmark::kMillisecond);

struct Asked {
  Workload w;
  Cluster c;
  Profile p;
  topology::Fabric fabric;
  Scenario s;
  Asked(const char* workload, const char* cluster, int hosts, int ranks)
      : w(test::workload(workload)),
        c(test::cluster(cluster)),
        p(test::profile(c.profile)),
        fabric(scaled(hosts)) {
    s.ranks = ranks;
  }
  const Cluster& scaled(int hosts) {
    if (hosts > 0) c.hosts = hosts;
    return c;
  }
  predict::Question question() const { return {w, fabric, p, s}; }
};

// One steady ResNet-50 DDP step at collective fidelity: lower, price, play until the period
// settles.
void predict_resnet50_ddp(benchmark::State& state) {
  Asked a("resnet50", "hgx-h100", 0, 8);
  for (auto _ : state) benchmark::DoNotOptimize(predict::steady_period(a.question()));
}
BENCHMARK(predict_resnet50_ddp)->Unit(benchmark::kMicrosecond);

void predict_resnet50_ddp_cpu(benchmark::State& state) {
  Asked a("resnet50-cpu", "ethernet-10g", 0, 8);
  for (auto _ : state) benchmark::DoNotOptimize(predict::steady_period(a.question()));
}
BENCHMARK(predict_resnet50_ddp_cpu)->Unit(benchmark::kMicrosecond);

void predict_resnet50_ddp_65536_gpus(benchmark::State& state) {
  Asked a("resnet50", "fat-tree-h100", 8192, 65'536);
  for (auto _ : state) benchmark::DoNotOptimize(predict::steady_period(a.question()));
}
BENCHMARK(predict_resnet50_ddp_65536_gpus)->Unit(benchmark::kMillisecond);

// What a question about a large job costs before anything is played: NCCL's search, its channels,
// and the stages of its trees over every GPU.
void nccl_communicator(benchmark::State& state, const char* cluster) {
  auto ranks = static_cast<int>(state.range(0));
  Asked a("gpt2-small", cluster, ranks / 8, ranks);
  std::vector<DeviceId> devices = first_devices(ranks);
  double stages = 0;
  for (auto _ : state) {
    collective::Communicator c =
        collective::make_nccl_communicator(a.fabric, devices, {}, a.p.compute.capability);
    stages = 0;
    for (const nccl::Pipe& p : nccl_group(c)->pipes) stages += static_cast<double>(p.stages);
  }
  state.counters["stages"] = stages;
  state.counters["peak_MB"] =
      peak_megabytes();  // of the process so far: alone by --benchmark_filter
}
BENCHMARK_CAPTURE(nccl_communicator, dgx_a100, "dgx-a100")
    ->Arg(4096)
    ->Arg(65'536)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(nccl_communicator, hgx_h100, "hgx-h100")
    ->Arg(4096)
    ->Arg(65'536)
    ->Unit(benchmark::kMillisecond);

// One price of a tree over 512 hosts: pieces through its steps.
void nccl_tree_price(benchmark::State& state) {
  Asked a("gpt2-small", "dgx-a100", 512, 4096);
  std::vector<DeviceId> devices = first_devices(4096);
  collective::Communicator c =
      collective::make_nccl_communicator(a.fabric, devices, {}, a.p.compute.capability);
  Bytes size{25 << 20};
  nccl::Choice choice = nccl::complete(*nccl_group(c), Operation::AllReduce, nccl::Algorithm::Tree,
                                       nccl::Protocol::Simple, size.count);
  for (auto _ : state)
    benchmark::DoNotOptimize(
        nccl::time_of(*nccl_group(c), a.p, Level::Mid, Operation::AllReduce, choice, size));
}
BENCHMARK(nccl_tree_price)->Unit(benchmark::kMicrosecond);

// The whole command: caps x hosts x bandwidths, on all cores.
void sweep_10000_points(benchmark::State& state) {
  for (auto _ : state) {
    test::Outcome o =
        test::ddpsim({"sweep", "--workload", "resnet50", "--cluster", "hgx-h100", "--axis",
                      "bucket_cap_mb=1:25", "--axis", "cluster.hosts=1:20", "--axis",
                      "cluster.link.bandwidth=20Gb/s:400Gb/s:+20Gb/s", "--out", "/dev/null"});
    if (o.code != 0) state.SkipWithError(o.err.c_str());
  }
  state.counters["points/s"] = benchmark::Counter(
      10'000.0 * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}
BENCHMARK(sweep_10000_points)->Unit(benchmark::kMillisecond)->UseRealTime();

// ZeRO-3 of a GPT of 96 layers on 16,384 GPUs, as the command answers it: at most 1 s.
void predict_zero3_96_layers_16384_gpus(benchmark::State& state) {
  for (auto _ : state) {
    test::Outcome o =
        test::ddpsim({"predict", "--workload", "gpt3-175b", "--cluster", "fat-tree-h100", "--plan",
                      "zero3", "--set", "cluster.hosts=2048", "--format", "json"});
    if (o.code != 0) state.SkipWithError(o.err.c_str());
  }
}
BENCHMARK(predict_zero3_96_layers_16384_gpus)->Unit(benchmark::kMillisecond)->UseRealTime();

// Every system on one question, on all cores: at most 5 s.
void rank_plans(benchmark::State& state, const char* workload, const char* hosts) {
  for (auto _ : state) {
    test::Outcome o = test::ddpsim({"rank-plans", "--workload", workload, "--cluster", "dgx-h100",
                                    "--set", hosts, "--format", "json"});
    if (o.code != 0) state.SkipWithError(o.err.c_str());
  }
}
BENCHMARK_CAPTURE(rank_plans, gpt2_8_gpus, "gpt2-small", "cluster.hosts=1")
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK_CAPTURE(rank_plans, llama_8b_64_gpus, "llama-3.1-8b", "cluster.hosts=8")
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

// What asks for many predictions on 131,072 GPUs: at most 5 s.
void of_131072_gpus(benchmark::State& state, const char* command) {
  for (auto _ : state) {
    test::Outcome o = test::ddpsim({command, "--workload", "resnet50", "--cluster", "hgx-h100",
                                    "--set", "cluster.hosts=16384", "--format", "json"});
    if (o.code != 0) state.SkipWithError(o.err.c_str());
  }
}
BENCHMARK_CAPTURE(of_131072_gpus, explain, "explain")->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(of_131072_gpus, tune, "tune")->Unit(benchmark::kMillisecond)->UseRealTime();

// DP of the peers' comparison (50 layers, 25 buckets of 25 MB, 64 ranks): by message, and by
// collective (which uses the ring's symmetry).
void dp64(benchmark::State& state, predict::Fidelity fidelity) {
  Workload w = test::layered(50, 12'500'000, kMillisecond, kMillisecond * 2);
  Cluster c = test::star(64, Bandwidth{100'000'000'000});
  Profile p = test::ideal_profile(kMicrosecond);
  topology::Fabric fabric(c);
  Scenario s;
  s.ranks = 64;
  ddp_of(s.plan).bucket_cap_mb = 25e6 / (1024 * 1024);
  w.times.host.reset();
  w.times.host = HostTimes{{}, {}, {}, std::vector<Duration>(50)};
  Program program = systems::lower(w, s.plan);
  auto comm = collective::make_communicator(fabric, first_devices(64), Backend::Nccl);
  predict::SimulationOptions o;
  o.fidelity = fidelity;
  o.fold_links = fidelity == predict::Fidelity::Collective;
  o.spans = false;
  o.warmup = false;
  o.steady_steps = 1;
  auto classes = predict::fold_ranks(s, o.fold_links);
  std::uint64_t events = 0;
  for (auto _ : state) {
    auto r = predict::simulate(program, comm, p, classes, o);
    events += r.completions;
    state.counters["simulated_ms"] = static_cast<double>(r.steps.back().end.ps) / 1e9;
  }
  count(state, events);
}
BENCHMARK_CAPTURE(dp64, by_message, predict::Fidelity::Message)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(dp64, by_collective, predict::Fidelity::Collective)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace ddpsim

BENCHMARK_MAIN();
