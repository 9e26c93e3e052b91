// Horovod's other all-reduces, streams, completion and tuner: closed forms. Order and volumes are
// held against an independent oracle by tests/oracle/horovod_parts_lowered.py.
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "sim/predict/predict.h"
#include "sim/systems/horovod/horovod.h"
#include "sim/systems/horovod/plan.h"
#include "sim/tune/autotune.h"
#include "tests/support/support.h"
#include "tests/support/systems.h"

namespace ddpsim::predict {
namespace {

struct HorovodJob {
  Workload workload;
  topology::Fabric fabric;
  Profile profile;
  Scenario scenario;
  explicit HorovodJob(int hosts, const std::string& name = "resnet50")
      : workload(test::workload(name)),
        fabric([&] {
          Cluster c = test::cluster("dgx-h100");
          c.hosts = hosts;
          c.host_memory = Bandwidth{2'400'000'000'000};  // 300 GB/s
          return topology::Fabric(c);
        }()),
        profile(test::profile("h100-sxm.datasheet")) {
    scenario.ranks = 8 * hosts;
    scenario.plan.system = systems::kHorovodSystem;
  }
  Question question() const { return {workload, fabric, profile, scenario}; }
  HorovodPlan& knobs() { return horovod_of(scenario.plan); }
  SteadyStep played() const { return steady_step(question()); }
};

// By name, of the first class: begin and end.
std::map<std::string, std::pair<std::int64_t, std::int64_t>> horovod_spans(const SteadyStep& s) {
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> out;
  for (std::uint32_t i = 0; i < s.program.steady.ops.size(); ++i)
    out[name_of(s.program, s.program.steady, i)] = {s.simulation.spans[i].begin.ps,
                                                    s.simulation.spans[i].end.ps};
  return out;
}

std::int64_t horovod_bytes(const SteadyStep& s, const std::string& name) {
  for (std::uint32_t i = 0; i < s.program.steady.ops.size(); ++i)
    if (name_of(s.program, s.program.steady, i) == name) return s.program.steady.ops[i].bytes;
  return -1;
}

enum class HorovodWay : std::uint8_t { Hierarchical, Torus, Adasum };
void horovod_takes(HorovodJob& a, HorovodWay way) {
  a.knobs().hierarchical_allreduce = way == HorovodWay::Hierarchical;
  a.knobs().torus_allreduce = way == HorovodWay::Torus;
  a.knobs().adasum = way == HorovodWay::Adasum;
}

TEST(HorovodParts, EveryGradientIsReducedOnce) {
  for (HorovodWay way : {HorovodWay::Hierarchical, HorovodWay::Torus, HorovodWay::Adasum}) {
    HorovodJob a(2);
    horovod_takes(a, way);
    SteadyStep s = a.played();
    std::vector<int> times(a.workload.tensors.size());
    for (const Bucket& b : s.program.steady.buckets)
      for (TensorIndex t : b.tensors) ++times[t];
    EXPECT_EQ(times, std::vector<int>(times.size(), 1));
    for (std::uint32_t i = 0; i < s.program.steady.ops.size(); ++i)
      for (std::uint32_t d : deps_of(s.program.steady, i)) {
        EXPECT_LT(d, i);
        EXPECT_LE(s.simulation.spans[d].end.ps, s.simulation.spans[i].begin.ps);
      }
  }
}

// All of a model in one set: an eighth of it goes between hosts.
TEST(HorovodParts, AnEighthGoesBetweenHosts) {
  for (HorovodWay way : {HorovodWay::Hierarchical, HorovodWay::Torus}) {
    HorovodJob a(4);
    horovod_takes(a, way);
    a.knobs().cycle_time = 1000;
    SteadyStep s = a.played();
    const std::int64_t whole = horovod_bytes(s, "reduce_scatter/fused.0");
    EXPECT_EQ(whole % (8 * 64 * 4), 0);
    EXPECT_GE(whole, a.workload.gradient_bytes().count);
    EXPECT_LT(whole, a.workload.gradient_bytes().count + 161 * 16 + 8 * 64 * 4);
    EXPECT_EQ(horovod_bytes(s, "allreduce_across/fused.0"), whole / 8);
    EXPECT_EQ(horovod_bytes(s, "allgather/fused.0"), whole);
  }
}

// Its thread is blocked: what it does itself follows one thing after another, and the next cycle
// waits for it.
TEST(HorovodParts, HierarchicalBlocksTheThreadAndTorusDoesNot) {
  HorovodJob a(2);
  horovod_takes(a, HorovodWay::Hierarchical);
  SteadyStep s = a.played();
  std::int64_t end = 0;
  for (std::uint32_t i = 0; i < s.program.steady.ops.size(); ++i) {
    if (s.program.steady.ops[i].lane != Lane::Worker) continue;
    EXPECT_GE(s.simulation.spans[i].begin.ps, end);
    end = s.simulation.spans[i].end.ps;
  }
  const auto spans = horovod_spans(s);
  EXPECT_GE(spans.at("to_host/fused.0").first, spans.at("reduce_scatter/fused.0").second);
  EXPECT_GE(spans.at("allgather/fused.0").first, spans.at("to_device/fused.0").second);
  HorovodJob b(2);
  horovod_takes(b, HorovodWay::Torus);
  const auto torus = horovod_spans(b.played());
  EXPECT_LT(torus.at("launch/allgather/fused.0").second, torus.at("allreduce_across/fused.0").first)
      << "launched before it could run";
  EXPECT_LT(steady_period(b.question()), steady_period(a.question()));
}

// Between h hosts by halving and doubling: 2 (h - 1)/h of an eighth over each NIC, with the sums.
TEST(HorovodParts, HierarchicalTakesWhatItsPartsTake) {
  HorovodJob a(2, "vgg16");
  horovod_takes(a, HorovodWay::Hierarchical);
  a.knobs().cycle_time = 1000;
  a.knobs().fusion_threshold = std::int64_t{1} << 30;
  a.scenario.stragglers = false;
  SteadyStep s = a.played();
  ASSERT_EQ(s.program.steady.buckets.size(), 1u);
  const auto spans = horovod_spans(s);
  auto lasts = [&](const char* name) {
    return static_cast<double>(spans.at(name).second - spans.at(name).first);
  };
  const auto part = static_cast<double>(horovod_bytes(s, "to_host/fused.0"));
  const double nic = 50e-3 * at(a.profile.transports.at("ib").efficiency, Level::Mid);  // 400 Gb/s
  EXPECT_NEAR(lasts("allreduce_across/fused.0"), part / nic, 0.03 * part / nic);
  EXPECT_NEAR(lasts("sum/fused.0"), 3 * part / 2 / (300e-3 / 8), 1e3)
      << "half is summed: two read, one written, at an eighth of the host's memory";
  EXPECT_EQ(lasts("to_host/fused.0"), lasts("to_device/fused.0"));
}

TEST(HorovodParts, AdasumHalvesFromHostToHost) {
  HorovodJob a(4);
  horovod_takes(a, HorovodWay::Adasum);
  a.knobs().cycle_time = 1000;
  SteadyStep s = a.played();
  ASSERT_EQ(s.program.groups.size(), 5u);  // host, two levels of two
  const std::int64_t part = horovod_bytes(s, "to_host/fused.0");
  EXPECT_EQ(horovod_bytes(s, "exchange_0/fused.0"), part);
  EXPECT_EQ(horovod_bytes(s, "exchange_1/fused.0"), part / 2);
  EXPECT_EQ(horovod_bytes(s, "collect_1/fused.0"), part / 2);
  EXPECT_EQ(horovod_bytes(s, "agree_0/fused.0"), 3 * 8 * 161);
  const auto spans = horovod_spans(s);
  EXPECT_LT(spans.at("add_0/fused.0").first, spans.at("exchange_1/fused.0").second);
  EXPECT_GE(spans.at("collect_0/fused.0").first, spans.at("collect_1/fused.0").second);
  EXPECT_EQ(spans.count("optimizer"), 0u) << "hooks update";
  EXPECT_EQ(spans.count("adasum_step/fc.weight"), 1u);
}

TEST(HorovodParts, BothFidelitiesAgreeInParts) {
  for (HorovodWay way : {HorovodWay::Hierarchical, HorovodWay::Torus, HorovodWay::Adasum}) {
    HorovodJob a(2);
    horovod_takes(a, way);
    a.knobs().cycle_time = 0.25;
    Duration priced = steady_period(a.question());
    Options by_message;
    by_message.fidelity = Fidelity::Message;
    Duration simulated = steady_period(a.question(), Level::Mid, by_message);
    EXPECT_NEAR(static_cast<double>(priced.ps) / static_cast<double>(simulated.ps), 1, 0.01)
        << static_cast<int>(way);
  }
}

TEST(HorovodParts, OneHostHasNoParts) {
  HorovodJob flat(1);
  for (HorovodWay way : {HorovodWay::Hierarchical, HorovodWay::Torus}) {
    HorovodJob a(1);
    horovod_takes(a, way);
    EXPECT_EQ(steady_period(a.question()), steady_period(flat.question()));
  }
}

// Whose hooks run for longer than a cycle: it is asked for as a whole.
TEST(HorovodGroups, AreNeverTorn) {
  HorovodJob a(1);
  a.knobs().groups = 1;
  a.knobs().cycle_time = 0.02;
  EXPECT_EQ(a.played().program.steady.buckets.size(), 1u);
  a.knobs().groups = 3;
  a.knobs().disable_group_fusion = true;
  EXPECT_EQ(a.played().program.steady.buckets.size(), 3u);
}

TEST(HorovodStreams, ReductionsTakeTurnsAndMeet) {
  HorovodJob a(2, "vgg16");
  a.knobs().cycle_time = 0.25;
  a.knobs().num_nccl_streams = 2;
  SteadyStep s = a.played();
  std::set<std::size_t> lanes;
  bool meet = false;
  std::int64_t before = -1;
  for (std::uint32_t i = 0; i < s.program.steady.ops.size(); ++i) {
    const Op& op = s.program.steady.ops[i];
    if (!is_collective(op.kind)) continue;
    lanes.insert(number_of(op.lane));
    meet = meet || s.simulation.spans[i].begin.ps < before;
    before = s.simulation.spans[i].end.ps;
  }
  EXPECT_EQ(lanes.size(), 2u);
  EXPECT_TRUE(meet);
}

TEST(HorovodAsync, TheHostGoesOnWhileTheDeviceWaits) {
  HorovodJob a(2);
  Duration waits = steady_period(a.question());
  a.knobs().enable_async_completion = true;
  SteadyStep s = a.played();
  const auto spans = horovod_spans(s);
  std::int64_t reduced = 0;
  for (const auto& [name, span] : spans)
    if (name.starts_with("copy_out/") || name.starts_with("allreduce/"))
      reduced = std::max(reduced, span.second);
  EXPECT_LT(spans.at("synchronize").second, reduced);
  EXPECT_GE(spans.at("reduced").second, reduced);
  EXPECT_GE(spans.at("optimizer").first, reduced);
  EXPECT_LT(s.period, waits) << "the host launches the next step meanwhile";
}

TEST(HorovodAutotuner, ScoresEveryCombinationOfWhatIsNotFixed) {
  systems::Autotuner all({});
  EXPECT_EQ(all.scores(), 21 * 16);
  systems::Autotuner::Fixed fixed;
  fixed.hierarchical_allreduce = fixed.hierarchical_allgather = fixed.torus_allreduce = false;
  systems::Autotuner tuner(fixed);
  EXPECT_EQ(tuner.scores(), 42);
  int scored = 0;
  for (; !tuner.done(); ++scored) {
    const systems::AutotuneSetting s = tuner.current();
    EXPECT_GE(s.fusion_mb, 0);
    EXPECT_LE(s.fusion_mb, 64);
    EXPECT_GE(s.cycle_ms, 1);
    EXPECT_LE(s.cycle_ms, 100);
    tuner.score(s.cache && s.cycle_ms == 25 ? 2 : 1);
  }
  EXPECT_EQ(scored, 42);
  EXPECT_TRUE(tuner.best().cache);
  EXPECT_EQ(tuner.best().cycle_ms, 25);
}

TEST(HorovodAutotuner, OfAStepItTakesTheBest) {
  HorovodJob a(1);
  a.knobs().cache_capacity = 0;  // fixed
  const AutotuneCourse c = autotune(a.question(), {}, 1);
  ASSERT_EQ(c.tried.size(), 21u * 8);
  EXPECT_EQ(c.steps, (3 + 21 * 8) * 50);
  Duration best = c.tried.front().step;
  for (const AutotuneCourse::Tried& t : c.tried) best = std::min(best, t.step);
  EXPECT_EQ(c.tuned_step, best);
  EXPECT_EQ(horovod_of(c.tuned).cache_capacity, 0);
}

}  // namespace
}  // namespace ddpsim::predict
