// Occasions: which Runs are of one, the range of a message's cost over several, and what a
// prediction makes of it.
#include "calib/fit/occasions.h"

#include <gtest/gtest.h>

#include "calib/fit/fit.h"
#include "sim/systems/ddp/plan.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

ddpsim::Run made(const std::string& date, const std::string& cpu = "AMD EPYC") {
  ddpsim::Run r;
  r.kind = RunKind::Measured;
  r.evidence = EvidenceClass::Collective;
  r.origin.date = date;
  r.origin.cpu = cpu;
  r.origin.cores = 2;
  r.origin.kernel = "Linux 6.18.44";
  r.origin.software = "PyTorch 1.13.0a0, gloo, 8 ranks";
  return r;
}

std::vector<calib::Occasion> occasions_of(const std::vector<ddpsim::Run>& runs) {
  std::vector<const ddpsim::Run*> all;
  for (const auto& r : runs) all.push_back(&r);
  return calib::occasions(all);
}

TEST(Occasions, DatesAreSeconds) {
  EXPECT_EQ(calib::seconds_of("1970-01-01T00:00:00Z"), 0);
  EXPECT_EQ(calib::seconds_of("2000-02-29T00:00:00Z"), 951782400);
  EXPECT_EQ(calib::seconds_of("2026-03-01T23:59:59Z"), 1772409599);
  EXPECT_EQ(calib::seconds_of("2026-11-21T19:33:03Z"), 1795289583);
  for (const char* bad : {"", "2026-11-21", "2026-11-21T19:33:03", "2026-13-21T19:33:03Z",
                          "2026-11-21T19:33:03Z and more", "yesterday"})
    EXPECT_FALSE(calib::seconds_of(bad)) << bad;
}

TEST(Occasions, EndWithAnHourWithoutARunOrWithAnotherMachine) {
  using Dates = std::vector<ddpsim::Run>;
  EXPECT_EQ(occasions_of(Dates{made("2026-11-21T20:10:00Z"), made("2026-11-21T18:30:00Z"),
                               made("2026-11-21T19:20:00Z")})
                .size(),
            1u)
      << "100 minutes, but never an hour without a Run, in whatever order";
  auto two = occasions_of(Dates{made("2026-11-22T00:20:00Z"), made("2026-11-21T23:19:59Z")});
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[0].first, "2026-11-21T23:19:59Z");
  EXPECT_EQ(two[0].runs, std::vector<std::size_t>{1});
  Dates apart{made("2026-11-21T19:00:00Z"), made("2026-11-21T19:00:00Z", "Xeon")};
  EXPECT_EQ(occasions_of(apart).size(), 2u) << "another CPU";
  apart[1] = apart[0];
  EXPECT_EQ(occasions_of(apart).size(), 1u);
  for (auto change : {+[](Origin& o) { o.cores = 4; }, +[](Origin& o) { o.kernel = "Linux 7"; },
                      +[](Origin& o) { o.software = "PyTorch 2.0, gloo, 8 ranks"; }}) {
    Dates other = apart;
    change(other[1].origin);
    EXPECT_EQ(occasions_of(other).size(), 2u);
  }
  apart[1].origin.software = "PyTorch 1.13.0a0, gloo, 2 ranks";
  apart[1].origin.revision = "1234567";
  EXPECT_EQ(occasions_of(apart).size(), 1u) << "neither ranks nor ddpsim's revision";
  EXPECT_EQ(occasions_of(Dates{made(""), made(""), made("once")}).size(), 2u) << "dates unread";
  EXPECT_EQ(calib::name_of(two[0]),
            "AMD EPYC, 2 cores, Linux 6.18.44, PyTorch 1.13.0a0 (from 2026-11-21T23:19:59Z)");
}

// ---- the fit

constexpr Duration us(std::int64_t n) {
  return kMicrosecond * n;
}

// All-reduces of Gloo on 2 and 4 hosts that share two cores: small ones take 4 (n - 1) messages of
// `latency`, or of `core` where four ranks take turns on two cores.
void plant(ddpsim::Run& r, Duration latency, Duration core, std::int64_t smallest = 1024) {
  for (int n : {2, 4})
    for (std::int64_t bytes : {smallest, std::int64_t{1} << 22, std::int64_t{1} << 24}) {
      Duration message = n == 2 ? latency : core * 2;
      double wire = 2.0 * (n - 1) / n * static_cast<double>(bytes) / 125e6 * 1e12;
      Duration took =
          bytes > 65536 ? Duration{static_cast<std::int64_t>(wire)} : message * (4 * (n - 1));
      r.samples.push_back({"all_reduce", {{"ranks", n}, {"bytes", bytes}}, {took}});
    }
}

struct Fitted {
  Cluster c = star(4, Bandwidth{1'000'000'000});
  std::optional<topology::Fabric> fabric;
  Profile base = ideal_profile(kMicrosecond, DeviceKind::Cpu);
  Workload w = layered(4, 1'000'000, kMillisecond, kMillisecond, DeviceKind::Cpu);
  Scenario s;
  Fitted() {
    c.device = DeviceKind::Cpu;
    c.emulated_on_cores = 2;
    fabric.emplace(c);
    s.plan.backend = Backend::Gloo;
    s.ranks = 4;
  }
  calib::Fit fit(const std::vector<ddpsim::Run>& samples, const std::vector<ddpsim::Run>& steps) {
    std::vector<calib::FitCollectives> collectives;
    for (const auto& r : samples) collectives.push_back({&r, &*fabric, Backend::Gloo});
    std::vector<calib::FitStep> executed;
    for (const auto& r : steps) executed.push_back({&r, &w, &*fabric, &s});
    return calib::fit(base, "fitted", collectives, executed);
  }
};

ddpsim::Run executed_on(const std::string& date) {
  ddpsim::Run r = made(date);
  r.evidence = EvidenceClass::System;
  r.quality.verdict = Verdict::Noisy;  // counted for its date, and for nothing else
  return r;
}

std::string joined(const std::vector<std::string>& notes) {
  std::string out;
  for (const std::string& n : notes) out += n + "\n";
  return out;
}

TEST(FitOccasions, FindsTheRangeThatWasPlanted) {
  Fitted f;
  std::vector<ddpsim::Run> samples{made("2026-11-21T19:30:00Z"), made("2026-11-23T08:00:00Z"),
                                   made("2026-11-24T08:00:00Z", "Xeon")};
  plant(samples[0], us(300), us(150));
  plant(samples[1], us(700), us(100));
  plant(samples[2], us(12), us(6));
  // Bandwidth of another occasion is not the profile's.
  for (Sample& s : samples[2].samples)
    if (s.parameters.at("bytes") > 65536) s.durations[0] = s.durations[0] * 3;
  calib::Fit fit = f.fit(samples, {executed_on("2026-11-21T19:00:00Z")});
  const TransportSection& t = fit.profile.transports.at("wire");
  EXPECT_EQ(t.latency, us(300)) << "the occasion of the executed steps, though others are later";
  EXPECT_EQ(t.message_core, us(150));
  EXPECT_NEAR(t.efficiency.mid, 1, 1e-3);
  ASSERT_TRUE(t.occasions);
  EXPECT_EQ(t.occasions->count, 3);
  EXPECT_EQ(t.occasions->latency.low, us(12));
  EXPECT_EQ(t.occasions->latency.mid, us(300));
  EXPECT_EQ(t.occasions->latency.high, us(700));
  EXPECT_EQ(t.occasions->message_core.low, us(6));
  EXPECT_EQ(t.occasions->message_core.mid, us(150));
  EXPECT_EQ(t.occasions->message_core.high, us(150));
  EXPECT_NE(t.occasions->source.find("Xeon, 2 cores"), std::string::npos) << t.occasions->source;
  EXPECT_NE(t.occasions->source.find("(from 2026-11-21T19:00:00Z)"), std::string::npos)
      << t.occasions->source;
  EXPECT_FALSE(validate(fit.profile)) << validate(fit.profile).message;
  EXPECT_NE(joined(fit.notes).find("a range over 3 occasions"), std::string::npos);
  // Steps of another occasion: the profile is of that.
  calib::Fit other = f.fit(samples, {executed_on("2026-11-23T08:30:00Z")});
  EXPECT_EQ(other.profile.transports.at("wire").latency, us(700));
}

TEST(FitOccasions, ReadingsOfAnOccasionAreInTheRange) {
  Fitted f;
  std::vector<ddpsim::Run> samples{made("2026-11-21T19:30:00Z"), made("2026-11-21T19:31:00Z"),
                                   made("2026-11-23T08:00:00Z")};
  plant(samples[0], us(150), us(100));
  plant(samples[1], us(510), us(140));
  plant(samples[2], us(320), us(120));
  std::vector<ddpsim::Run> steps{executed_on("2026-11-21T19:00:00Z")};
  const TransportSection t = f.fit(samples, steps).profile.transports.at("wire");
  EXPECT_EQ(t.latency, us(330)) << "the median of two";
  ASSERT_TRUE(t.occasions);
  EXPECT_EQ(t.occasions->count, 2);
  EXPECT_EQ(t.occasions->latency.low, us(150));
  EXPECT_EQ(t.occasions->latency.high, us(510));
  EXPECT_EQ(t.occasions->message_core.low, us(100));
  EXPECT_EQ(t.occasions->message_core.high, us(140));
}

TEST(FitOccasions, OneOccasionIsNoRange) {
  Fitted f;
  std::vector<ddpsim::Run> samples{made("2026-11-21T19:30:00Z"), made("2026-11-21T19:40:00Z")};
  plant(samples[0], us(200), us(150));
  plant(samples[1], us(400), us(150));
  f.base.transports.at("wire").occasions = Occasions{7, "an earlier fit's", {}, {}};
  calib::Fit fit = f.fit(samples, {});
  EXPECT_EQ(fit.profile.transports.at("wire").latency, us(300)) << "both, ten minutes apart";
  EXPECT_FALSE(fit.profile.transports.at("wire").occasions);
  EXPECT_NE(joined(fit.notes).find("seen on one occasion"), std::string::npos);
}

// What of a message needs a core is a part of what it takes, however noisy the readings are.
TEST(FitOccasions, AMessageTakesAtLeastWhatItsCoreDoes) {
  Fitted f;
  std::vector<ddpsim::Run> samples{made("2026-11-21T19:30:00Z")};
  plant(samples[0], us(50), us(200));
  const TransportSection t = f.fit(samples, {}).profile.transports.at("wire");
  EXPECT_EQ(t.message_core, us(200));
  EXPECT_EQ(t.latency, us(200));
}

TEST(FitOccasions, OtherSizesAreNotCompared) {
  Fitted f;
  std::vector<ddpsim::Run> samples{made("2026-11-21T19:30:00Z"), made("2026-11-23T08:00:00Z")};
  plant(samples[0], us(300), us(150));
  plant(samples[1], us(12), us(6), 16384);
  calib::Fit fit = f.fit(samples, {executed_on("2026-11-21T19:00:00Z")});
  EXPECT_FALSE(fit.profile.transports.at("wire").occasions);
  EXPECT_NE(joined(fit.notes).find("left out of the range: AMD EPYC"), std::string::npos);
}

TEST(FitOccasions, ANoisyRunIsNoOccasion) {
  Fitted f;
  std::vector<ddpsim::Run> samples{made("2026-11-21T19:30:00Z"), made("2026-11-23T08:00:00Z"),
                                   made("2026-11-23T08:10:00Z")};
  plant(samples[0], us(300), us(150));
  plant(samples[1], us(12), us(6));
  plant(samples[2], us(900), us(450));
  samples[2].quality.verdict = Verdict::Noisy;
  std::vector<ddpsim::Run> steps{executed_on("2026-11-21T19:00:00Z")};
  const auto range = f.fit(samples, steps).profile.transports.at("wire").occasions;
  ASSERT_TRUE(range);
  EXPECT_EQ(range->latency.low, us(12));
  EXPECT_EQ(range->latency.high, us(300));
  samples[1].quality.verdict = Verdict::Noisy;
  EXPECT_FALSE(f.fit(samples, steps).profile.transports.at("wire").occasions);
}

// ---- the profile

Profile ranged(Duration low, Duration mid, Duration high) {
  Profile p = ideal_profile(kMicrosecond, DeviceKind::Cpu);
  TransportSection& t = p.transports.at("wire");
  t.basis = Evidence::Measured;
  auto half = [](Duration d) { return Duration{d.ps / 2}; };
  t.latency = mid;
  t.message_core = half(mid);
  t.occasions =
      Occasions{3, "three machines", {low, mid, high}, {half(low), half(mid), half(high)}};
  return p;
}

TEST(ProfileOccasions, AreWrittenAndRead) {
  Profile p = ranged(us(12), us(300), us(700));
  std::string text = io::write_profile(p, {}).dump();
  Profile again = io::read_profile(io::parse_json(text, "p"), "p");
  EXPECT_EQ(io::write_profile(again, {}).dump(), text);
  const auto& o = again.transports.at("wire").occasions;
  ASSERT_TRUE(o);
  EXPECT_EQ(o->count, 3);
  EXPECT_EQ(o->source, "three machines");
  EXPECT_EQ(o->latency.low, us(12));
  EXPECT_EQ(o->latency.high, us(700));
  EXPECT_EQ(o->message_core.low, us(6));
  p.transports.at("wire").occasions.reset();
  text = io::write_profile(p, {}).dump();
  EXPECT_EQ(text.find("occasions"), std::string::npos);
  EXPECT_FALSE(io::read_profile(io::parse_json(text, "p"), "p").transports.at("wire").occasions);
}

TEST(ProfileOccasions, AreHeldToTheirRules) {
  ASSERT_FALSE(validate(ranged(us(12), us(300), us(700))));
  struct Bad {
    const char* path;
    void (*change)(Occasions&);
  };
  for (const Bad& bad : {
           Bad{"/count", [](Occasions& o) { o.count = 1; }},
           Bad{"/latency_ps", [](Occasions& o) { o.latency.low = us(301); }},
           Bad{"/latency_ps", [](Occasions& o) { o.latency.high = us(299); }},
           Bad{"/latency_ps", [](Occasions& o) { o.latency.low = us(-1); }},
           Bad{"/latency_ps/mid", [](Occasions& o) { o.latency.mid = us(301); }},
           Bad{"/message_core_ps", [](Occasions& o) { o.message_core.high = us(149); }},
           Bad{"/message_core_ps/mid", [](Occasions& o) { o.message_core.mid = us(149); }},
           Bad{"/message_core_ps", [](Occasions& o) { o.message_core.low = us(13); }},
           Bad{"/message_core_ps", [](Occasions& o) { o.message_core.high = us(701); }},
       }) {
    Profile p = ranged(us(12), us(300), us(700));
    bad.change(*p.transports.at("wire").occasions);
    Problem found = validate(p);
    ASSERT_TRUE(found) << bad.path;
    EXPECT_EQ(found.path, std::string("/transports/wire/occasions") + bad.path);
  }
}

// ---- the prediction

struct Asked {
  Workload w = layered(40, 40'000, kMillisecond, kMillisecond, DeviceKind::Cpu);
  Cluster c = star(4, Bandwidth{1'000'000'000});
  Scenario s;
  Asked() {
    c.device = DeviceKind::Cpu;
    c.emulated_on_cores = 2;
    s.plan.backend = Backend::Gloo;
    ddp_of(s.plan).bucket_cap_mb = 0.05;
    ddp_of(s.plan).broadcast_buffers = false;
    s.ranks = 4;
  }
  predict::Prediction ask(const Profile& p) const {
    topology::Fabric fabric(c);
    predict::Question q{w, fabric, p, s};
    predict::Options o;
    o.fidelity = predict::usual_fidelity(q);
    return predict::predict(q, o);
  }
  Duration step(Duration latency) const {
    Profile p = ranged(latency, latency, latency);
    p.transports.at("wire").occasions.reset();
    return ask(p).summary.step;
  }
};

TEST(MessageRange, IsInTheIntervalWithWhatTheFitWasOffBy) {
  Asked a;
  Profile p = ranged(us(12), us(335), us(700));
  p.step_residual = 0.02;
  predict::Prediction got = a.ask(p);
  EXPECT_EQ(got.summary.step, a.step(us(335))) << "the step is the profile's own";
  EXPECT_EQ(got.step_low, scale(a.step(us(12)), 0.98));
  EXPECT_EQ(got.step_high, scale(a.step(us(700)), 1.02));
  EXPECT_LT(got.step_low, scale(got.summary.step, 0.9)) << "else it shows nothing";
  EXPECT_LT(got.efficiency_low, got.scaling_efficiency * 0.9);
  EXPECT_GT(got.efficiency_high, got.scaling_efficiency * 1.05);
  ASSERT_EQ(got.extrapolated.size(), 1u);
  for (const char* part : {"12 us to 700 us", "on 3 occasions", "another occasion may be outside"})
    EXPECT_NE(got.extrapolated[0].find(part), std::string::npos) << got.extrapolated[0];
  p.step_residual = 0;
  got = a.ask(p);
  EXPECT_EQ(got.step_low, a.step(us(12)));
  EXPECT_EQ(got.step_high, a.step(us(700)));
}

TEST(MessageRange, IsNotWorthASentenceWhereMessagesHardlyMatter) {
  Asked a;
  EXPECT_TRUE(a.ask(ranged(us(330), us(335), us(336))).extrapolated.empty());
  a.s.ranks = 1;
  predict::Prediction alone = a.ask(ranged(us(12), us(335), us(700)));
  EXPECT_TRUE(alone.extrapolated.empty()) << "no messages";
  EXPECT_EQ(alone.step_low, alone.step_high);
}

TEST(MessageRange, OneOccasionIsSaidWhereMessagesMatter) {
  Asked a;
  Profile p = ranged(us(335), us(335), us(335));
  TransportSection& t = p.transports.at("wire");
  t.occasions.reset();
  predict::Prediction got = a.ask(p);
  EXPECT_EQ(got.step_low, got.step_high) << "nothing is known of others";
  ASSERT_EQ(got.extrapolated.size(), 1u);
  EXPECT_NE(got.extrapolated[0].find("(335 us)"), std::string::npos) << got.extrapolated[0];
  EXPECT_NE(got.extrapolated[0].find("seen on one occasion"), std::string::npos);
  t.basis = Evidence::Datasheet;
  EXPECT_TRUE(a.ask(p).extrapolated.empty()) << "a datasheet's latency is no occasion's";
  t.basis = Evidence::Measured;
  t.latency = t.message_core = Duration{100'000};
  EXPECT_TRUE(a.ask(p).extrapolated.empty()) << "they cost nothing";
}

}  // namespace
}  // namespace ddpsim::test
