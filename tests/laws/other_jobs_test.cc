// Jobs that share links see one another for as long as they do, however much their steps differ;
// and one question has one number, whoever asks it.
#include <gtest/gtest.h>

#include "sim/systems/ddp/plan.h"
#include "tests/laws/random_job.h"

namespace ddpsim::test {
namespace {

constexpr double kRate = 125e6;  // bytes/s of every link

// One gradient that is reduced when backward has ended, on two hosts of two racks: nothing hides,
// each direction of the uplink carries the gradient once a step.
struct Half {
  Duration compute;
  std::int64_t bytes = 0;
  Workload workload() const {
    return layered(1, bytes, {compute.ps / 2}, {compute.ps / 2}, DeviceKind::Cpu);
  }
  double computing() const { return static_cast<double>(compute.ps) / 1e12; }
  double sending() const { return static_cast<double>(bytes) / kRate; }
  double alone() const { return computing() + sending(); }
};

predict::Prediction beside(const Half& own, const std::vector<Half>& others,
                           predict::Fidelity fidelity) {
  Cluster c = star(2 + 2 * static_cast<int>(others.size()), Bandwidth{1'000'000'000});
  c.device = DeviceKind::Cpu;
  c.pattern = Pattern::Racks;
  c.racks = 2;
  c.uplink = c.link;
  int half = c.hosts / 2;
  Scenario s;
  s.ranks = 2;
  s.rank_order = {0, DeviceId::at(half)};
  s.plan.backend = Backend::Tcp;
  for (std::size_t k = 0; k < others.size(); ++k) {
    int rank = 1 + static_cast<int>(k);
    s.other_jobs.push_back(
        {"", others[k].workload(), s.plan, {DeviceId::at(rank), DeviceId::at(half + rank)}});
  }
  Workload w = own.workload();
  Profile p = ideal_profile({}, DeviceKind::Cpu);
  topology::Fabric fabric(c);
  predict::Question q{w, fabric, p, s};
  predict::Options o;
  o.fidelity = fidelity;
  o.interval = false;
  EXPECT_EQ(predict::check(q).message, "");
  predict::Prediction out = predict::predict(q, o);
  EXPECT_EQ(out.summary.step, predict::steady_period(q, Level::Mid, o));
  return out;
}

// While the long job sends, a step of the short one sends at half the rate, and the long one moves
// what is left: its whole rate while the short one computes, half of it while that sends.
struct Pair {
  double short_step, long_step;
  Pair(const Half& s, const Half& l) {
    double shared = s.computing() + 2 * s.sending();
    double shared_steps = l.sending() / (s.computing() + s.sending());
    double sends = shared_steps * shared;
    long_step = l.computing() + sends;
    short_step = long_step / (l.computing() / s.alone() + shared_steps);
  }
};

TEST(OtherJobs, SeeOneAnotherHoweverMuchTheirStepsDiffer) {
  const Half quick{kMillisecond * 2, 250'000};  // 4 ms alone
  for (int milliseconds : {60, 200, 1000, 4000}) {
    const Half slow{kMillisecond * milliseconds,
                    milliseconds * 75'000};  // sends for 0.6 times as long as it computes
    Pair expected(quick, slow);
    for (auto f : {predict::Fidelity::Collective, predict::Fidelity::Message}) {
      predict::Prediction of_quick = beside(quick, {slow}, f);
      EXPECT_NEAR(seconds(of_quick.summary.step) / expected.short_step, 1, 0.03)
          << milliseconds << " " << name_of(f);
      ASSERT_TRUE(of_quick.beside);
      EXPECT_TRUE(of_quick.beside->complete);
      EXPECT_GE(of_quick.beside->periods, 1.9);
      EXPECT_NEAR(seconds(of_quick.beside->shortest), quick.alone(), 1e-5);
      EXPECT_NEAR(seconds(of_quick.beside->longest), quick.computing() + 2 * quick.sending(), 1e-5);
      predict::Prediction of_slow = beside(slow, {quick}, f);
      EXPECT_NEAR(seconds(of_slow.summary.step) / expected.long_step, 1, 0.01)
          << milliseconds << " " << name_of(f);
      EXPECT_TRUE(of_slow.beside->complete);
      EXPECT_TRUE(of_slow.extrapolated.empty());
    }
  }
}

// Three: what is left of the links to the quickest is less than beside either.
TEST(OtherJobs, EachOfThemCosts) {
  const Half quick{kMillisecond * 2, 250'000};
  const Half middle{kMillisecond * 30, 2'000'000};
  const Half slow{kMillisecond * 500, 30'000'000};
  double with_middle = seconds(beside(quick, {middle}, predict::Fidelity::Collective).summary.step);
  double with_slow = seconds(beside(quick, {slow}, predict::Fidelity::Collective).summary.step);
  double with_both =
      seconds(beside(quick, {middle, slow}, predict::Fidelity::Collective).summary.step);
  EXPECT_GT(with_middle, 1.1 * quick.alone());
  EXPECT_GT(with_slow, 1.1 * quick.alone());
  EXPECT_GT(with_both, 1.05 * std::max(with_middle, with_slow));
  EXPECT_LT(with_both, quick.computing() + 3 * quick.sending());
}

// The Run's mean, which `ddpsim compare --mean` takes, is the summary's.
TEST(OtherJobs, AreInTheMeanOfTheRun) {
  predict::Prediction p = beside({kMillisecond * 2, 250'000}, {{kMillisecond * 200, 15'000'000}},
                                 predict::Fidelity::Collective);
  Duration sum;
  int steady = 0;
  for (const StepRecord& s : p.run.steps)
    if (s.kind == StepKind::Steady && steady++ > 0) sum += s.duration;
  EXPECT_EQ(steady - 1, p.beside->steps);
  EXPECT_EQ(sum.ps / (steady - 1), p.summary.step.ps);
  EXPECT_EQ(p.run.steps.back().duration, p.beside->last);
  for (const Span& s : p.run.spans) ASSERT_EQ(s.step, static_cast<int>(p.run.steps.size()) - 1);
}

// A neighbour whose step is a million of this job's cannot be simulated; the answer says so.
TEST(OtherJobs, AreSaidToBeLeftOutWhereTheyCost) {
  const Half quick{kMicrosecond * 200, 25'000};
  const Half endless{kMillisecond * 400'000, 1'000'000'000};
  for (auto [own, other] : {std::pair{quick, endless}, {endless, quick}}) {
    predict::Prediction p = beside(own, {other}, predict::Fidelity::Collective);
    EXPECT_FALSE(p.beside->complete);
    EXPECT_EQ(p.beside->periods, 0);
    EXPECT_EQ(p.extrapolated.size(), 1u);
  }
}

// predict with and without first steps, what levers and tuning ask, and the levers themselves.
void expect_one_number(const predict::Question& q, const std::string& name) {
  for (auto f : {predict::Fidelity::Collective, predict::Fidelity::Message}) {
    predict::Options o;
    o.fidelity = f;
    o.interval = false;
    if (f == predict::Fidelity::Message && predict::message_count(q) > 4e5) continue;
    Duration step = predict::predict(q, o).summary.step;
    EXPECT_EQ(step, predict::steady_period(q, Level::Mid, o)) << name << " " << name_of(f);
    EXPECT_EQ(step, predict::steady_step(q, Level::Mid, o).period) << name << " " << name_of(f);
    predict::Options bare = o;
    bare.warmup = bare.names = false;
    EXPECT_EQ(step, predict::predict(q, bare).summary.step) << name << " " << name_of(f);
  }
}

TEST(OneNumber, OfAJobAlone) {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    RandomJob j = random_job(seed * 31 + 7);
    // Hosts that share cores leave a collective one by one, and need longest to settle.
    if (seed % 2 && j.cluster.device == DeviceKind::Cpu) {
      j.cluster.emulated_on_cores = 2;
      for (auto& [name, t] : j.profile.transports)
        t.cpu_ps_per_byte = 300, t.message_core = kMicrosecond * 20;
    }
    topology::Fabric fabric(j.cluster);
    expect_one_number({j.workload, fabric, j.profile, j.scenario}, "seed " + std::to_string(seed));
  }
}

// Of these steps every second is a third longer, for as long as they are simulated: which of the
// two is the eighth depends on what the first began with.
TEST(OneNumber, OfStepsThatNeverSettle) {
  for (std::uint64_t seed : {198, 1471, 5890}) {
    RandomJob j = random_job(seed * 31 + 7);
    topology::Fabric fabric(j.cluster);
    expect_one_number({j.workload, fabric, j.profile, j.scenario}, "seed " + std::to_string(seed));
  }
}

TEST(OneNumber, OfAJobBesideAnother) {
  int cases = 0;
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    RandomJob j = random_job(seed * 17 + 3);
    RandomJob o = random_job(seed * 17 + 4);
    if (j.cluster.device != o.cluster.device || j.cluster.hosts < 4) continue;
    j.cluster.hosts -= j.cluster.hosts % 2;
    j.cluster.pattern = Pattern::Racks;
    j.cluster.racks = 2;
    j.cluster.uplink = j.cluster.link;
    int half = j.cluster.hosts / 2;
    j.scenario.ranks = 2;
    j.scenario.slow_ranks.clear();
    j.scenario.rank_order = {0, DeviceId::at(half)};
    j.scenario.other_jobs.push_back({"", o.workload, o.scenario.plan, {1, DeviceId::at(half + 1)}});
    topology::Fabric fabric(j.cluster);
    predict::Question q{j.workload, fabric, j.profile, j.scenario};
    ASSERT_EQ(predict::check(q).message, "");
    expect_one_number(q, "seed " + std::to_string(seed));
    ++cases;
  }
  EXPECT_GT(cases, 20);
}

TEST(OneNumber, OfALeverBesideAnotherJob) {
  Workload w = workload("resnet18-cpu");
  Cluster c = cluster("testbed-racks");
  c.hosts = 4;
  Profile p = profile(c.profile);
  topology::Fabric fabric(c);
  Scenario s;
  s.ranks = 2;
  s.rank_order = {0, 2};
  s.plan.backend = Backend::Tcp;
  ddp_of(s.plan).bucket_cap_mb = 10;
  s.other_jobs.push_back({"", workload("resnet50-cpu"), s.plan, {1, 3}});
  predict::Question q{w, fabric, p, s};
  predict::Options o;
  o.fidelity = predict::usual_fidelity(q);
  o.interval = false;
  int compared = 0;
  for (const predict::Lever& l : predict::levers(q, predict::predict(q, o).summary.step, o, -1)) {
    if (!l.change.starts_with("bucket_cap_mb=")) continue;
    Scenario changed = s;
    ddp_of(changed.plan).bucket_cap_mb = std::stod(l.change.substr(14));
    EXPECT_EQ(l.step, predict::predict({w, fabric, p, changed}, o).summary.step) << l.change;
    ++compared;
  }
  EXPECT_GT(compared, 0);
}

}  // namespace
}  // namespace ddpsim::test
