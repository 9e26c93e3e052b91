// Knobs, the lists of buckets that they can make, and what tune says of them.
#include "sim/tune/tune.h"

#include <set>

#include <gtest/gtest.h>

#include "sim/explain/explain.h"
#include "sim/systems/ddp/bucketing.h"
#include "sim/systems/ddp/plan.h"
#include "sim/tune/knob_curve.h"
#include "sim/tune/planned_steps.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

using systems::Knob;
using systems::KnobValue;
using Buckets = std::vector<std::vector<TensorIndex>>;

Knob cap() {
  return systems::knobs(Plan{}).front();
}

Workload sizes(const std::vector<std::int64_t>& kib) {
  Workload w = layered(static_cast<int>(kib.size()), 4, kMillisecond, kMillisecond);
  for (std::size_t i = 0; i < kib.size(); ++i) w.tensors[i].shape = {kib[i] * 256};
  return w;
}

TEST(Knobs, ValuesMakeEveryListOfBucketsOnce) {
  Workload w = sizes({700, 3, 90, 512, 512, 20, 1300, 5, 64, 300});
  std::set<Buckets> made;
  for (const KnobValue& v : systems::values(cap(), w, Plan{}))
    EXPECT_TRUE(made.insert(systems::steady_buckets(w, systems::with(Plan{}, cap(), v))).second)
        << v.text;
  // Every KiB that a sum of neighbours can have.
  for (std::int64_t kib = 1; kib < 4000; ++kib) {
    Plan p;
    ddp_of(p).bucket_cap_mb = static_cast<double>(kib) / 1024;
    EXPECT_TRUE(made.count(systems::steady_buckets(w, p))) << kib << " KiB";
  }
}

TEST(Knobs, ValuesAreRound) {
  EXPECT_EQ(systems::roundest(kMiB * 24, kMiB * 26, kMiB), 25);
  EXPECT_EQ(systems::roundest(kMiB * 90, kMiB * 170, kMiB), 100);
  EXPECT_EQ(systems::roundest(kMiB / 2 - 10, kMiB / 2 + 10, kMiB), 0.5);
  for (auto [least, beyond] : {std::pair<std::int64_t, std::int64_t>{26'214'401, 26'214'402},
                               {1, 2},
                               {123'456'789, 123'456'791}}) {
    auto bytes = static_cast<std::int64_t>(systems::roundest(least, beyond, kMiB) * kMiB);
    EXPECT_GE(bytes, least);
    EXPECT_LT(bytes, beyond);
  }
}

TEST(Knobs, FirstBucketNeedsTheDefaultCapFromPyTorch27On) {
  Plan p;
  ddp_of(p).bucket_cap_mb = 50;
  Knob first = systems::knobs(p)[1];
  p.pytorch = PytorchVersion{2, 7};
  EXPECT_FALSE(ddp_of(systems::with(p, first, {"4194304", 4194304})).bucket_cap_mb);
  p.pytorch = PytorchVersion{2, 0};
  EXPECT_EQ(ddp_of(systems::with(p, first, {"4194304", 4194304})).bucket_cap_mb, 50);
}

TEST(CapList, GivesEachBucketItsOwnLimitAndRepeatsTheLast) {
  Workload w = sizes({100, 100, 100, 100, 100, 100, 100});
  Plan p;
  ddp_of(p).bucket_cap_mb_list = {100.0 / 1024, 300.0 / 1024, 200.0 / 1024};
  std::vector<std::size_t> tensors;
  for (const auto& b : systems::steady_buckets(w, p)) tensors.push_back(b.size());
  EXPECT_EQ(tensors, (std::vector<std::size_t>{1, 3, 2, 1}));
  EXPECT_EQ(systems::initial_buckets(w, p).size(), 4u)
      << "the first iteration keeps to the list, too";
}

TEST(CapList, MakesTheBucketsThatItIsFor) {
  Random random(7);
  for (int k = 0; k < 200; ++k) {
    std::vector<std::int64_t> kib;
    for (std::size_t i = 0, n = 1 + random.below(12u); i < n; ++i)
      kib.push_back(static_cast<std::int64_t>(1 + random.below(2000u)));
    Workload w = sizes(kib);
    Plan each;
    ddp_of(each).bucket_cap_mb_list = {1e-6};
    Buckets wanted;
    std::vector<systems::BucketSize> list;
    for (const auto& one : systems::steady_buckets(w, each)) {
      bool opens = wanted.empty() || random.below(3) == 0;
      if (opens) wanted.emplace_back(), list.emplace_back();
      wanted.back().push_back(one.front());
      list.back().last_tensor = w.tensors[one.front()].bytes().count;
      list.back().bytes += list.back().last_tensor;
    }
    Plan p;
    ddp_of(p).bucket_cap_mb_list = systems::cap_list(list);
    EXPECT_EQ(systems::steady_buckets(w, p), wanted);
  }
}

struct Job {
  Workload workload;
  Profile profile = ideal_profile(kMicrosecond * 20);
  topology::Fabric fabric;
  Scenario scenario;
  Job(Workload w, Bandwidth b, int ranks) : workload(std::move(w)), fabric(star(ranks, b)) {
    scenario.ranks = ranks;
  }
  predict::Tuning tune(const std::vector<KnobValue>& only = {}) const {
    predict::TuneOptions o;
    o.knob = systems::knobs(scenario.plan).front();
    o.only = only;
    return predict::tune({workload, fabric, profile, scenario}, o);
  }
};

TEST(Tune, FindsTheLeastOfEveryListWhereTheyAreFew) {
  Job j(sizes({700, 3, 90, 5120, 512, 20, 13000, 5, 64, 300}), {8'000'000'000}, 4);
  predict::Tuning t = j.tune();
  EXPECT_EQ(t.curve.size(), t.candidates);
  for (const predict::CurvePoint& p : t.curve) {
    EXPECT_GE(p.step.ps, t.curve[t.best].step.ps - t.curve[t.best].step.ps / 1000);
    EXPECT_LE(t.bound->step, p.step);
    EXPECT_LE(p.low, p.step);
    EXPECT_GE(p.high, p.step);
  }
  ASSERT_TRUE(t.partition);
  EXPECT_LE(t.bound->step, t.partition->step);
  // Equal caps make some of the partitions that the dynamic programme looks at.
  EXPECT_LE(t.partition->step.ps, t.curve[t.best].step.ps + t.curve[t.best].step.ps / 1000);
}

// What a search costs does not grow with the model: of 6,000 gradients a simulation takes 12 times
// as long as of 500, which may take 192.
TEST(Tune, TriesFewerSettingsOfLargerModels) {
  std::vector<std::int64_t> kib(6'000);
  for (std::size_t i = 0; i < kib.size(); ++i)
    kib[i] = 1 + static_cast<std::int64_t>(i * 7919 % 97);
  Job j(sizes(kib), {8'000'000'000}, 2);
  predict::TuneOptions o;
  o.knob = systems::knobs(j.scenario.plan).front();
  o.levers = o.partition = false;
  predict::Tuning t = predict::tune({j.workload, j.fabric, j.profile, j.scenario}, o);
  EXPECT_GT(t.candidates, 192u);
  EXPECT_GE(t.curve.size(), 8u);
  EXPECT_LE(t.curve.size(), 300'000 / kib.size() + 8);
}

TEST(Tune, StaysWhereNothingCouldBeMeasured) {
  Job j(sizes({100, 100, 100}), {400'000'000'000}, 2);
  predict::Tuning t = j.tune();
  EXPECT_FALSE(t.gain.measurable);
  EXPECT_FALSE(t.chosen);
  EXPECT_FALSE(ddp_of(t.recommended).bucket_cap_mb);
  EXPECT_NE(t.verdict.find("difference"), std::string::npos) << t.verdict;
}

// A profile that was off by more than the gain cannot tell the two apart.
TEST(Tune, GainsInsideTheProfilesUncertaintyAreNone) {
  Job j(sizes({700, 3, 90, 5120, 512, 20, 13000, 5, 64, 300}), {8'000'000'000}, 4);
  ddp_of(j.scenario.plan).bucket_cap_mb = 0.01;
  predict::Tuning sure = j.tune();
  ASSERT_TRUE(sure.gain.measurable);
  ASSERT_TRUE(sure.chosen);
  j.profile.step_residual =
      1.5 * static_cast<double>(sure.gain.mid.ps) / static_cast<double>(sure.current.step.ps);
  predict::Tuning unsure = j.tune();
  EXPECT_FALSE(unsure.gain.measurable);
  EXPECT_FALSE(unsure.chosen);
  EXPECT_EQ(unsure.verdict.rfind("nothing is surely better", 0), 0u) << unsure.verdict;
  EXPECT_NE(unsure.verdict.find("inside the profile's uncertainty"), std::string::npos);
}

// Each level of the ranges must agree: here the optimistic one has a network on which buckets do
// not matter.
TEST(Tune, GainsAtOneEndOnlyAreNone) {
  Job j(sizes({700, 3, 90, 5120, 512, 20, 13000, 5, 64, 300}), {8'000'000'000}, 4);
  ddp_of(j.scenario.plan).bucket_cap_mb = 100;
  ASSERT_TRUE(j.tune().gain.measurable);
  for (auto& [name, t] : j.profile.transports) t.efficiency = {1, 1, 1};
  j.profile.transports.begin()->second.efficiency.high = 1e6;
  predict::Tuning t = j.tune();
  EXPECT_LT(t.gain.high.ps * 200, t.current.step.ps);
  EXPECT_FALSE(t.gain.measurable);
  EXPECT_FALSE(t.chosen);
}

// The shortest step beside a longer one: the rule of the neighbours, at the level of the search.
TEST(Tune, NothingRecommendedHasALongerNeighbour) {
  Random random(11);
  for (int k = 0; k < 6; ++k) {
    std::vector<std::int64_t> kib;
    for (std::size_t i = 0; i < 14; ++i)
      kib.push_back(static_cast<std::int64_t>(20 + random.below(6000u)));
    Job j(sizes(kib), {4'000'000'000}, 4);
    ddp_of(j.scenario.plan).bucket_cap_mb = k % 2 == 0 ? 0.05 : 100;
    predict::Tuning t = j.tune();
    if (!t.chosen) continue;
    const predict::CurvePoint& p = t.curve[*t.chosen];
    for (double beside : {0.9805, 0.985, 0.99, 1.01, 1.015, 1.0195}) {
      Scenario s = j.scenario;
      ddp_of(s.plan).bucket_cap_mb = p.value->number * beside;
      Duration step = predict::steady_period({j.workload, j.fabric, j.profile, s});
      EXPECT_LE(static_cast<double>(step.ps), 1.0051 * static_cast<double>(p.step.ps))
          << k << ": " << p.value->text << " * " << beside;
    }
  }
}

// Buckets that wait for one another, on ranks of which one is late: what is exposed is what predict
// says, and no moment is two buckets'.
TEST(Explain, ExposesABucketForAsLongAsPredictDoes) {
  Job j(sizes({7000, 3000, 9000, 5120, 5120, 2000, 13000, 500, 6400, 3000}), {8'000'000'000}, 4);
  ddp_of(j.scenario.plan).bucket_cap_mb = 5;
  j.scenario.slow_ranks[1] = 1.3;
  predict::Question q{j.workload, j.fabric, j.profile, j.scenario};
  analysis::Summary s = predict::predict(q).summary;
  predict::Explanation e = predict::explain(q);
  EXPECT_EQ(e.exposed, s.exposed_communication);
  ASSERT_EQ(e.buckets.size(), s.buckets.size());
  bool waited = false;
  Duration sum;
  for (std::size_t i = 0; i < s.buckets.size(); ++i) {
    EXPECT_EQ(e.buckets[i].exposed, s.buckets[i].exposed) << i;
    EXPECT_EQ(e.buckets[i].end, s.buckets[i].end) << i;
    waited = waited || (s.buckets[i].exposed.ps > 0 && s.buckets[i].ready < s.buckets[i].begin);
    sum += e.buckets[i].exposed;
  }
  for (const analysis::OtherCommunication& o : e.others) sum += o.exposed;
  EXPECT_EQ(sum, e.exposed);
  EXPECT_TRUE(waited) << "no exposed bucket waits: nothing is told apart";
}

// Of more settings than the budget has simulations for, those of round numbers are among the tried.
TEST(Curve, HasTheSettingsThatPeopleWrite) {
  Job j(layered(8, 4'000'000, kMillisecond, kMillisecond), {1'000'000'000}, 2);
  const predict::Question q{j.workload, j.fabric, j.profile, j.scenario};
  predict::PlannedSteps steps(q, {}, 32);
  const systems::Knob knob = systems::knobs(j.scenario.plan).front();
  ASSERT_EQ(knob.unit, "MiB") << knob.name;
  std::vector<systems::KnobValue> all;
  for (int k = 1; k <= 500; ++k) all.push_back(*systems::parse_value(knob, std::to_string(k)));
  std::set<double> tried;
  for (const predict::CurvePoint& p : predict::curve_of(steps, knob, all, false))
    tried.insert(p.value->number);
  EXPECT_LE(tried.size(), 40u);
  for (double familiar : {1, 5, 10, 25, 50, 100, 200}) EXPECT_EQ(tried.count(familiar), 1u);
}

// A step list whose messages are too many for the usual fidelity is compared at the step's all the
// same, and its flags say so.
TEST(Levers, SayAtWhichFidelityTheyAreAsked) {
  Job j(layered(8, 4'000'000, kMillisecond, kMillisecond, DeviceKind::Cpu), {1'000'000'000}, 16);
  Cluster c = star(16, {1'000'000'000});
  c.device = DeviceKind::Cpu;
  topology::Fabric fabric(c);
  Profile p = ideal_profile(kMicrosecond * 50, DeviceKind::Cpu);
  j.scenario.plan.backend = Backend::Tcp;
  predict::Question q{j.workload, fabric, p, j.scenario};
  predict::Options o;
  o.fidelity = predict::usual_fidelity(q);
  ASSERT_EQ(o.fidelity, predict::Fidelity::Message);
  int others = 0;
  int usual = 0;
  for (const predict::Lever& l : predict::all_levers(q, o)) {
    if (!l.change.starts_with("algorithm=")) continue;
    Scenario s = j.scenario;
    for (Algorithm a : kTcpAlgorithms)
      if (l.change == std::string("algorithm=") + name_of(a)) s.plan.algorithm = a;
    predict::Question changed{j.workload, fabric, p, s};
    bool other = predict::usual_fidelity(changed) != o.fidelity;
    (other ? others : usual) += 1;
    EXPECT_EQ(l.command, "--set " + l.change + (other ? " --fidelity message" : ""));
    EXPECT_EQ(l.step, predict::steady_period(changed, Level::Mid, o)) << l.change;
  }
  EXPECT_GT(others, 0);
  EXPECT_GT(usual, 0);
}

// Whoever keeps communicators gets the answers of whoever does not.
TEST(Check, SaysTheSameWithCommunicatorsKept) {
  Cluster c = cluster("hgx-h100");
  topology::Fabric fabric(c);
  Workload w = workload("resnet50");
  Profile p = profile("h100-sxm.datasheet");
  predict::Communicators known;
  for (const char* value : {"allreduce:tree", "nvls", "allreduce:ring", "nvls"}) {
    Scenario s;
    s.ranks = 8;
    s.plan.environment["NCCL_ALGO"] = value;
    predict::Question q{w, fabric, p, s};
    EXPECT_EQ(predict::check(q, &known).message, predict::check(q).message) << value;
    if (predict::check(q)) continue;
    predict::Options o;
    o.known = &known;
    EXPECT_EQ(predict::steady_period(q, Level::Mid, o), predict::steady_period(q)) << value;
  }
}

TEST(Tune, ChoosesAmongGivenValuesOnly) {
  Job j(sizes({700, 3, 90, 5120, 512, 20, 13000, 5, 64, 300}), {8'000'000'000}, 4);
  predict::Tuning t = j.tune({{"1", 1}, {"30", 30}});
  ASSERT_EQ(t.curve.size(), 2u);
  EXPECT_FALSE(t.partition && t.other_best);
}

}  // namespace
}  // namespace ddpsim::test
