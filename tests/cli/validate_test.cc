// ddpsim validate and ddpsim compare, on a folder of Runs made here: predictions written down as if
// they had been measured, off by a known factor.
#include <cmath>
#include <filesystem>
#include <functional>
#include <sstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "sim/io/files.h"
#include "sim/predict/baselines.h"
#include "tests/support/support.h"
#include "tools/cmd/question.h"

namespace ddpsim::test {
namespace {

namespace fs = std::filesystem;
using io::Json;
using MeasuredRun = ddpsim::Run;

// How a made Run differs from its prediction.
struct Offset {
  double factor = 1;  // every time
  std::function<void(MeasuredRun&)> change = [](MeasuredRun&) {};
};

class Validate : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("ddpsim_validate_" + std::to_string(::getpid()));
    fs::create_directories(folder_ / "runs" / "scenarios");
    budget(Json::array());
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string at(const std::string& name) const { return (folder_ / name).string(); }
  void budget(const Json& limits) const {
    io::write_file(at("budget.json"),
                   Json{{"schema", "ddpsim.budget/1"}, {"limits", limits}}.dump());
  }

  // A scenario of `ranks` ranks on one switch, with these knobs.
  Json scenario(int ranks, Json plan = {{"system", "pytorch_ddp"}}) const {
    Json cluster = read_json("topologies/ethernet-10g.json");
    return {{"schema", "ddpsim.scenario/1"},
            {"workload", "resnet18-cpu"},
            {"cluster", cluster},
            {"plan", plan},
            {"ranks", ranks}};
  }
  // Adds a Run of it; returns the scenario's hash.
  std::string add(const std::string& name, const Json& scenario, const Offset& offset = {}) const {
    io::write_file(at("asked.json"), scenario.dump());
    std::ostringstream out, err;
    cli::Terminal t{out, err, false, DDPSIM_SOURCE_DIR, ""};
    cli::QuestionFlags flags;
    flags.scenario = at("asked.json");
    cli::Loaded l = cli::load(t, flags);
    predict::Prediction p = predict::predict(l.question(), l.options);
    MeasuredRun r;
    r.kind = RunKind::Measured;
    r.evidence = EvidenceClass::Replay;
    r.key = l.key;
    r.scenario = l.scenario_hash;
    r.workload = l.workload_hash;
    r.origin.hosts = "namespaces";
    r.origin.compute = "timed";
    r.origin.backend = "tcp";
    r.tensor_names = p.run.tensor_names;
    Duration step = scale(p.summary.step, offset.factor);
    for (StepKind kind :
         {StepKind::First, StepKind::Rebuild, StepKind::Steady, StepKind::Steady, StepKind::Steady})
      r.steps.push_back({kind, step});
    for (int k : {3, 4})
      for (Span s : p.run.spans) {
        s.step = k;
        for (TimePoint* x : {&s.ready, &s.begin, &s.end})
          x->ps = static_cast<std::int64_t>(
              std::llround(static_cast<double>(x->ps - p.run.spans_from.ps) * offset.factor));
        r.spans.push_back(s);
      }
    offset.change(r);
    io::write_file(at("runs/scenarios/" + l.scenario_hash + ".json"), l.document.dump(1));
    io::write_file(at("runs/" + name), io::write_run(r).dump());
    return l.scenario_hash;
  }
  Outcome validate(std::vector<std::string> more = {}) const {
    std::vector<std::string> args{"validate", "--runs", at("runs"), "--budget", at("budget.json")};
    args.insert(args.end(), more.begin(), more.end());
    return ddpsim(args);
  }
  Json answer(int code, std::vector<std::string> more = {}) const {
    more.insert(more.end(), {"--format", "json"});
    Outcome o = validate(more);
    EXPECT_EQ(o.code, code) << o.err;
    return o.code < 2 ? io::parse_json(o.out, "stdout") : Json();
  }
  fs::path folder_;
};

TEST_F(Validate, GoodRunsInsideTheBudgetPass) {
  add("a.json.gz", scenario(2), {1.01});
  add("b.json", scenario(4), {0.99});
  budget({{{"what", "replay.held_out.step.median_abs_error"}, {"max", 0.011}},
          {{"what", "replay.held_out.n"}, {"min", 2}},
          {{"what", "replay.held_out.bucket.p95_abs_error"}, {"max", 0.011}}});
  Outcome o = validate();
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.err, "");
  EXPECT_NE(o.out.find("replay, held_out"), std::string::npos) << o.out;
  EXPECT_NE(o.out.find("within"), std::string::npos);
  EXPECT_EQ(o.out.find("BROKEN"), std::string::npos);
  EXPECT_TRUE(std::all_of(o.out.begin(), o.out.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x7f;
  })) << "plain ASCII";
  Json j = answer(0);
  ASSERT_EQ(j["pairs"].size(), 2u);
  const Json& first = j["pairs"][0];
  EXPECT_NEAR(first["error"].get<double>(), 1 / 0.99 - 1, 1e-9)
      << "sorted by |error|, largest first";
  EXPECT_NEAR(j["pairs"][1]["error"].get<double>(), 1 / 1.01 - 1, 1e-9);
  EXPECT_EQ(first["evidence"], "replay");
  EXPECT_EQ(first["sample"], "held_out");
  EXPECT_EQ(first["verdict"], "within");
  EXPECT_EQ(first["in_interval"].get<bool>(), first["step_low_ps"] <= first["measured_ps"] &&
                                                  first["measured_ps"] <= first["step_high_ps"]);
  EXPECT_GT(first["bucket_error_p95"].get<double>(), 0);
  const Json& a = j["aggregates"]["replay"]["held_out"];
  EXPECT_EQ(a["n"], 2);
  EXPECT_NEAR(a["median_abs_error"].get<double>(), 0.0100, 1e-5);
  EXPECT_NEAR(a["p95_abs_error"].get<double>(), 1 / 0.99 - 1, 1e-9);
  EXPECT_EQ(a["p95_abs_error"], a["max_abs_error"]);
  EXPECT_EQ(j["passed"], true);
}

TEST_F(Validate, FailFastEndsWhereNoRunCanMendTheGate) {
  for (char c = 'a'; c < 'a' + 12; ++c) add(std::string(1, c) + ".json", scenario(2), {1.05});
  const char* largest = "replay.held_out.step.max_abs_error";
  const char* median = "replay.held_out.step.median_abs_error";
  budget({{{"what", median}, {"max", 0.01}}, {{"what", largest}, {"max", 0.04}}});
  Json j = answer(1, {"--fail-fast"});
  EXPECT_EQ(j["pairs"].size(), 8u) << "it is asked after every eighth";
  ASSERT_EQ(j["limits"].size(), 1u);
  EXPECT_EQ(j["limits"][0]["what"], largest);
  EXPECT_EQ(answer(1)["pairs"].size(), 12u);
  // What Runs to come may mend is asked at the end; and a gate that holds is the same gate.
  budget({{{"what", median}, {"max", 0.01}}, {{"what", largest}, {"max", 0.06}}});
  EXPECT_EQ(answer(1, {"--fail-fast"}), answer(1));
  budget({{{"what", largest}, {"max", 0.06}}});
  EXPECT_EQ(answer(0, {"--fail-fast"}), answer(0));
  add("0.json", scenario(2), {1, [](MeasuredRun& r) { r.workload = "0123456789abcdef"; }});
  EXPECT_EQ(answer(1, {"--fail-fast"})["pairs"].size(), 0u) << "the first Run is stale";
}

TEST_F(Validate, ABrokenLimitFailsTheGateInOneSentence) {
  add("a.json", scenario(2), {1.05});
  budget({{{"what", "replay.held_out.step.median_abs_error"}, {"max", 0.01}},
          {{"what", "replay.held_out.n"}, {"min", 2}},
          {{"what", "regret.max"}, {"max", 0.01}}});
  Outcome o = validate();
  EXPECT_EQ(o.code, 1);
  EXPECT_EQ(
      o.err,
      "ddpsim: budget: replay.held_out.step.median_abs_error is 0.04762, at most 0.01 is allowed\n"
      "ddpsim: budget: replay.held_out.n is 1, at least 2 is required\n"
      "ddpsim: budget: regret.max has no value: no clean run tells it\n");
  EXPECT_NE(o.out.find("BROKEN"), std::string::npos);
  EXPECT_EQ(answer(1)["passed"], false);
}

TEST_F(Validate, AnotherScheduleFailsAndIsNotScored) {
  add("good.json", scenario(2));
  add("bad.json", scenario(4), {1.3, [](MeasuredRun& r) {
                                  for (Span& s : r.spans)
                                    if (s.op == "allreduce/bucket.1") s.bytes += 4;
                                }});
  Outcome o = validate();
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.err.find("mismatch: bad.json: allreduce/bucket.1 moves"), std::string::npos) << o.err;
  Json j = answer(1);
  EXPECT_EQ(j["aggregates"]["replay"]["held_out"]["n"], 1);
  EXPECT_LT(j["aggregates"]["replay"]["held_out"]["max_abs_error"], 1e-6);
  ASSERT_EQ(j["pairs"].size(), 2u);
  EXPECT_TRUE(j["pairs"][0]["error"].is_null());
  EXPECT_EQ(j["pairs"][0]["verdict"], "outside");
  EXPECT_EQ(j["errors"][0]["what"], "mismatch");
}

TEST_F(Validate, NoisyAndLoopbackRunsAreCountedApart) {
  add("clean.json", scenario(2), {1.001});
  add("noisy.json", scenario(3), {1.5, [](MeasuredRun& r) {
                                    r.quality = {Verdict::Noisy, 0.2, 0, 4, {"busy"}};
                                  }});
  add("loopback.json", scenario(4), {2, [](MeasuredRun& r) { r.origin.hosts = "loopback"; }});
  budget({{{"what", "replay.held_out.step.max_abs_error"}, {"max", 0.01}}});
  Json j = answer(0);
  EXPECT_EQ(j["pairs"].size(), 3u);
  EXPECT_EQ(j["aggregates"]["replay"]["held_out"]["n"], 1);
  EXPECT_EQ(j["set_aside"]["noisy"]["replay"]["held_out"]["n"], 1);
  EXPECT_EQ(j["set_aside"]["loopback"]["replay"]["held_out"]["n"], 1);
  EXPECT_NEAR(j["set_aside"]["loopback"]["replay"]["held_out"]["median_abs_error"].get<double>(),
              0.5, 1e-6);
  for (const Json& p : j["pairs"])
    EXPECT_EQ(p["verdict"],
              p["noisy"].get<bool>() || p["loopback"].get<bool>() ? "ambiguous" : "within");
  std::string table = validate().out;
  EXPECT_NE(table.find("replay, held_out (noisy)"), std::string::npos);
  EXPECT_NE(table.find("replay, held_out (loopback)"), std::string::npos);
}

TEST_F(Validate, StaleRunsFail) {
  add("workload.json", scenario(2), {1, [](MeasuredRun& r) { r.workload = "0000000000000000"; }});
  std::string lost = add("lost.json", scenario(3));
  fs::remove(at("runs/scenarios/" + lost + ".json"));
  std::string edited = add("edited.json", scenario(4));
  Json document = io::parse_json(io::read_file(at("runs/scenarios/" + edited + ".json")), "s");
  document["plan"]["bucket_cap_mb"] = 7;
  io::write_file(at("runs/scenarios/" + edited + ".json"), document.dump());
  add("nameless.json", scenario(5), {1, [](MeasuredRun& r) { r.scenario.clear(); }});
  Outcome o = validate();
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.err.find("stale: workload.json: the workload was changed"), std::string::npos)
      << o.err;
  EXPECT_NE(o.err.find("stale: lost.json: its scenario can no longer be predicted"),
            std::string::npos);
  EXPECT_NE(o.err.find("stale: edited.json: the file of its scenario was changed"),
            std::string::npos);
  EXPECT_NE(o.err.find("stale: nameless.json: it names no scenario"), std::string::npos);
  Json j = answer(1);
  EXPECT_EQ(j["pairs"].size(), 0u);
  EXPECT_EQ(j["errors"].size(), 4u);
}

TEST_F(Validate, RunsThatTheFitSawAreInSample) {
  std::string seen = add("seen.json", scenario(2), {1.02});
  add("new.json", scenario(4), {1.01});
  Json profile = read_json("calib/profiles/cpu-generic.datasheet.json");
  profile["fit"] = {{"scenarios", {seen}}};
  fs::create_directories(at("profiles"));
  io::write_file(at("profiles/cpu-generic.datasheet.json"), profile.dump());
  Json j = answer(0, {"--profiles", at("profiles")});
  EXPECT_NEAR(j["aggregates"]["replay"]["in_sample"]["max_abs_error"].get<double>(), 1 - 1 / 1.02,
              1e-6);
  EXPECT_NEAR(j["aggregates"]["replay"]["held_out"]["max_abs_error"].get<double>(), 1 - 1 / 1.01,
              1e-6);
  EXPECT_EQ(j["aggregates"]["replay"]["in_sample"]["n"], 1);
  EXPECT_EQ(answer(0)["aggregates"]["replay"]["held_out"]["n"], 2)
      << "the shipped profile saw none";
  j = answer(0, {"--profile", at("profiles/cpu-generic.datasheet.json")});
  EXPECT_EQ(j["aggregates"]["replay"]["in_sample"]["n"], 1);
}

// Computation on a GPU is as long as the profile of the execution says: no other one may predict
// it.
TEST_F(Validate, AReplayOnAGpuIsPredictedWithTheProfileItWasExecutedWith) {
  auto with = [](const char* profile) {
    return [profile](MeasuredRun& r) {
      r.origin.gpu = "a GPU";
      r.origin.hosts = "gpus";
      r.origin.backend = "nccl";
      r.origin.compute = "real";
      r.origin.profile = profile;
    };
  };
  Json one{{"schema", "ddpsim.scenario/1"},
           {"workload", "resnet18"},
           {"cluster", read_json("topologies/hgx-h100.json")},
           {"ranks", 1}};
  Json two = one;
  two["cluster"] = read_json("topologies/one-gpu.json");
  two["ranks"] = 2;
  two["plan"] = {{"environment", {{"NCCL_MIN_CTAS", "2"}, {"NCCL_MAX_CTAS", "2"}}}};
  add("one.json", one, {1, with("h100-sxm.datasheet")});
  add("two.json", two,
      {1, with("h100-sxm.datasheet")});  // which the cluster's profile computes like
  Json j = answer(0);
  ASSERT_EQ(j["pairs"].size(), 2u);
  EXPECT_EQ(j["aggregates"]["replay_gpu"]["held_out"]["n"], 1);
  EXPECT_EQ(j["aggregates"]["replay_one_gpu"]["held_out"]["n"], 1);
  // A profile of the folder's own comes before the shipped one.
  Json profile = read_json("calib/profiles/h200-sxm.datasheet.json");
  profile["name"] = "here";
  fs::create_directories(at("runs/profiles"));
  io::write_file(at("runs/profiles/h100-sxm.json"), profile.dump());
  Outcome o = validate();
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.err.find("stale: one.json: its computation was as long as profile h100-sxm.datasheet "
                       "says, and here would predict it"),
            std::string::npos)
      << o.err;
  fs::remove_all(at("runs/profiles"));
  add("other.json", one, {1, with("nowhere")});
  EXPECT_EQ(answer(1)["errors"].size(), 1u);
}

TEST_F(Validate, RealComputationIsAClassOfItsOwn) {
  add("timed.json", scenario(2), {1.01});
  add("real.json", scenario(2), {1.2, [](MeasuredRun& r) { r.origin.compute = "real"; }});
  add("system.json", scenario(2),
      {1.3, [](MeasuredRun& r) { r.evidence = EvidenceClass::System, r.origin.compute = "real"; }});
  add("sizes.json", scenario(2), {1, [](MeasuredRun& r) {
                                    r.evidence = EvidenceClass::Collective;
                                    r.steps.clear(), r.spans.clear();
                                    r.samples = {{"all_reduce", {{"bytes", 8}}, {{5}}}};
                                  }});
  Json j = answer(0);
  EXPECT_EQ(j["aggregates"]["replay"]["held_out"]["n"], 1);
  EXPECT_NEAR(j["aggregates"]["replay_real"]["held_out"]["max_abs_error"].get<double>(),
              1 - 1 / 1.2, 1e-6);
  EXPECT_NEAR(j["aggregates"]["system_other"]["held_out"]["max_abs_error"].get<double>(),
              1 - 1 / 1.3, 1e-6);
  EXPECT_EQ(j["without_steps"], 1);
  EXPECT_EQ(j["floor"]["scenarios"], 0) << "other evidence is no repetition";
}

TEST_F(Validate, CoverageIsTheShareInTheInterval) {
  add("a.json", scenario(2), {1});
  add("b.json", scenario(3), {1.001});
  add("c.json", scenario(4), {0.999});
  add("d.json", scenario(5), {10});
  add("noisy.json", scenario(6), {10, [](MeasuredRun& r) { r.quality.verdict = Verdict::Noisy; }});
  budget({{{"what", "coverage"}, {"min", 0.65}, {"max", 0.95}}});
  Json j = answer(0);
  EXPECT_EQ(j["coverage"], 0.75);
  EXPECT_EQ(j["pairs"][0]["in_interval"], false);
  fs::remove(at("runs/d.json"));
  EXPECT_NE(validate().err.find("coverage is 1, at most 0.95 is allowed"), std::string::npos)
      << "an interval that always holds says nothing";
}

TEST_F(Validate, RegretIsWhatTheWrongCapCosts) {
  auto capped = [&](double cap) {
    return scenario(4, {{"system", "pytorch_ddp"}, {"bucket_cap_mb", cap}});
  };
  std::map<double, double> predicted;
  for (double cap : {1.0, 10.0, 40.0}) {
    add("probe.json", capped(cap));
    predicted[cap] = static_cast<double>(answer(0)["pairs"][0]["predicted_ps"].get<std::int64_t>());
  }
  fs::remove(at("runs/probe.json"));
  auto picked = std::min_element(predicted.begin(), predicted.end(),
                                 [](auto& a, auto& b) { return a.second < b.second; });
  // As measured, the cap that is predicted to be best takes 4 % longer than another one.
  double other = picked->first == 1.0 ? 10.0 : 1.0;
  for (auto [cap, ps] : predicted) {
    double wanted = cap == picked->first ? 1.04 : cap == other ? 1.0 : 1.5;
    add("cap" + std::to_string(static_cast<int>(cap)) + ".json", capped(cap),
        {wanted * picked->second / ps});
  }
  add("elsewhere.json", scenario(2, {{"system", "pytorch_ddp"}, {"bucket_cap_mb", 1.0}}));
  budget({{{"what", "regret.max"}, {"max", 0.01}}});
  Json j = answer(1);
  ASSERT_EQ(j["sweeps"].size(), 1u) << "one cap of another scenario is no sweep";
  EXPECT_EQ(j["sweeps"][0]["points"].size(), 3u);
  EXPECT_EQ(j["sweeps"][0]["best"], other);
  EXPECT_EQ(j["sweeps"][0]["picked"], picked->first);
  EXPECT_NEAR(j["sweeps"][0]["regret"].get<double>(), 0.04, 1e-6);
  EXPECT_NE(validate().err.find("regret.max is 0.04, at most 0.01"), std::string::npos)
      << validate().err;
  fs::remove(at("runs/cap40.json"));
  EXPECT_EQ(answer(1)["sweeps"].size(), 0u) << "two caps are no sweep";
}

TEST_F(Validate, RepetitionsGiveTheFloor) {
  add("a1.json", scenario(2), {1});
  add("a2.json", scenario(2), {1.01});
  add("a3.json", scenario(2), {1.005});
  add("b1.json", scenario(3), {1});
  add("b2.json", scenario(3), {1.03});
  add("c.json", scenario(4), {1.5});
  Json j = answer(0);
  EXPECT_EQ(j["floor"]["scenarios"], 2);
  EXPECT_NEAR(j["floor"]["median"].get<double>(), 0.02, 1e-6);
  EXPECT_NEAR(j["floor"]["max"].get<double>(), 0.03, 1e-6);
  // The last bucket of b ends with its step, 3 % later in b2.
  EXPECT_GT(j["floor"]["buckets"], 2);
  EXPECT_GT(j["floor"]["bucket_p95"].get<double>(), 0.02);
  EXPECT_LE(j["floor"]["bucket_p95"].get<double>(), 0.03);
  EXPECT_EQ(j["pairs"].size(), 6u);
  EXPECT_NE(validate().out.find("floor: 2 scenarios"), std::string::npos);
}

TEST_F(Validate, TheSimplerModelsStandBeside) {
  add("a.json", scenario(2));
  Json j = answer(0);
  const Json& p = j["pairs"][0];
  Workload w = workload("resnet18-cpu");
  Cluster c = cluster("ethernet-10g");
  Profile profile_of = profile("cpu-generic.datasheet");
  topology::Fabric fabric(c);
  Scenario s;
  s.ranks = 2;
  predict::Question q{w, fabric, profile_of, s};
  auto measured = static_cast<double>(p["measured_ps"].get<std::int64_t>());
  EXPECT_DOUBLE_EQ(p["naive_error"].get<double>(),
                   static_cast<double>(predict::naive_step(q).ps) / measured - 1);
  EXPECT_DOUBLE_EQ(p["queue_error"].get<double>(),
                   static_cast<double>(predict::queue_step(q).ps) / measured - 1);
  EXPECT_EQ(j["values"]["naive.over_5_percent"],
            std::abs(p["naive_error"].get<double>()) > 0.05 ? 1 : 0);
}

// Every element closed in order, every attribute quoted, no bare & or <. Returns the names of the
// elements, "" first if not well-formed.
std::vector<std::string> xml_elements(const std::string& text) {
  std::vector<std::string> names, open;
  for (std::size_t i = text.find('&'); i != std::string::npos; i = text.find('&', i + 1))
    if (text.compare(i, 5, "&amp;") && text.compare(i, 4, "&lt;") && text.compare(i, 4, "&gt;") &&
        text.compare(i, 6, "&quot;"))
      return {""};
  std::size_t i = text.find("?>") + 2;
  while (i < text.size()) {
    if (text[i] != '<') {
      ++i;
      continue;
    }
    std::size_t end = i + 1;
    for (bool quoted = false; end < text.size() && (quoted || text[end] != '>'); ++end) {
      if (text[end] == '"') quoted = !quoted;
      if (text[end] == '<') return {""};
    }
    std::string tag = text.substr(i + 1, end - i - 1);
    std::string name = tag.substr(0, tag.find_first_of(" /", 1));
    if (tag[0] == '/') {
      if (open.empty() || "/" + open.back() != tag) return {""};
      open.pop_back();
    } else {
      names.push_back(name);
      if (tag.back() != '/') open.push_back(name);
    }
    i = end + 1;
  }
  return open.empty() ? names : std::vector<std::string>{""};
}

TEST_F(Validate, JunitIsWellFormedAndCountsEveryPairAndLimit) {
  add("a.json", scenario(2), {1.01, [](MeasuredRun& r) { r.key = "<odd> & \"key\"\n"; }});
  add("noisy.json", scenario(3), {1, [](MeasuredRun& r) { r.quality.verdict = Verdict::Noisy; }});
  add("stale.json", scenario(4), {1, [](MeasuredRun& r) { r.workload = "0000000000000000"; }});
  budget({{{"what", "replay.held_out.n"}, {"min", 1}},
          {{"what", "replay.held_out.step.max_abs_error"}, {"max", 0.001}}});
  Outcome o = validate({"--format", "junit", "--out", at("junit.xml")});
  EXPECT_EQ(o.code, 1);
  EXPECT_EQ(o.out, "");
  std::string xml = io::read_file(at("junit.xml"));
  auto names = xml_elements(xml);
  ASSERT_FALSE(names.empty());
  ASSERT_NE(names[0], "") << xml;
  auto count = [&](const char* name) { return std::count(names.begin(), names.end(), name); };
  EXPECT_EQ(count("testcase"), 5);
  EXPECT_EQ(count("failure"), 2) << xml;  // stale, and one limit
  EXPECT_EQ(count("skipped"), 1);
  EXPECT_NE(xml.find("tests=\"5\" failures=\"2\""), std::string::npos);
  EXPECT_EQ(xml_elements("<?xml?><a><b></a>")[0], "") << "the check can fail";
}

TEST_F(Validate, BadInputIsNamed) {
  auto refused = [&](const Outcome& o, const char* what) {
    EXPECT_EQ(o.code, 2) << what;
    EXPECT_EQ(o.out, "");
    EXPECT_NE(o.err.find(what), std::string::npos) << o.err;
  };
  refused(validate(), "holds no runs");
  refused(ddpsim({"validate", "--runs", at("nowhere")}), "no such folder");
  std::string hash = add("a.json", scenario(2));
  budget({{{"what", "replay.held_out.step.median_abs_eror"}, {"max", 1}}});
  refused(validate(), "did you mean \"replay.held_out.step.median_abs_error\"?");
  budget({{{"what", "coverage"}}});
  refused(validate(), "a limit has a \"min\" or a \"max\"");
  budget({{{"what", "coverage"}, {"min", 2}, {"max", 1}}});
  refused(validate(), "nothing can keep that limit");
  budget(Json::array());
  refused(validate({"--profile", "cpu-genric.datasheet"}), "cpu-generic.datasheet");
  refused(validate({"--profiles", at("nowhere")}), "no such folder");
  refused(validate({"--format", "csv"}), "not a format");
  Outcome predicted =
      ddpsim({"predict", at("runs/scenarios/" + hash + ".json"), "--format", "json"});
  io::write_file(at("runs/b.json"), Json(io::parse_json(predicted.out, "p")["run"]).dump());
  refused(validate(), "is a predicted run");
}

TEST_F(Validate, CompareShowsOnePairOperationByOperation) {
  std::string hash = add("m.json.gz", scenario(3), {1.01});
  Outcome p = ddpsim({"predict", at("runs/scenarios/" + hash + ".json"), "--format", "json"});
  ASSERT_EQ(p.code, 0) << p.err;
  io::write_file(at("whole.json"), p.out);
  io::write_file(at("run.json.gz"), Json(io::parse_json(p.out, "p")["run"]).dump());
  std::string m = at("runs/m.json.gz");
  for (const char* file : {"whole.json", "run.json.gz"}) {
    Outcome o = ddpsim({"compare", at(file), m});
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_NE(o.out.find("error      -0.990 %"), std::string::npos) << o.out;
    EXPECT_NE(o.out.find("verdict    within"), std::string::npos);
    EXPECT_NE(o.out.find("allreduce/bucket.0"), std::string::npos);
    Json j = io::parse_json(ddpsim({"compare", at(file), m, "--format", "json"}).out, "c");
    EXPECT_NEAR(j["error"].get<double>(), 1 / 1.01 - 1, 1e-9);
    EXPECT_EQ(j["mismatch"], "");
    EXPECT_FALSE(j["buckets"].empty());
  }
  EXPECT_EQ(ddpsim({"compare", at("whole.json"), m, "--format", "csv"}).out.substr(0, 7),
            "op,lane");
  Outcome strict = ddpsim({"compare", at("whole.json"), m, "--tolerance", "0.005"});
  EXPECT_EQ(strict.code, 1);
  EXPECT_NE(strict.err.find("too short, tolerance 0.500 %"), std::string::npos) << strict.err;
  // Noisy and far off: a gate must not pass it.
  for (double factor : {1.05, 1.5}) {
    add("noisy.json", scenario(3),
        {factor, [](MeasuredRun& r) { r.quality.verdict = Verdict::Noisy; }});
    Outcome o = ddpsim({"compare", at("whole.json"), at("runs/noisy.json")});
    EXPECT_EQ(o.code, factor > 1.1 ? 1 : 0) << o.err;
    EXPECT_NE(o.out.find("verdict    ambiguous"), std::string::npos) << o.out;
    EXPECT_EQ(o.err.find("more than 10.000 %") != std::string::npos, factor > 1.1) << o.err;
    EXPECT_EQ(
        ddpsim({"compare", at("whole.json"), at("runs/noisy.json"), "--ambiguous", "0.6"}).code, 0);
  }
  Outcome swapped = ddpsim({"compare", m, at("whole.json")});
  EXPECT_EQ(swapped.code, 2);
  EXPECT_NE(swapped.err.find("ddpsim compare PREDICTED MEASURED"), std::string::npos);
}

}  // namespace
}  // namespace ddpsim::test
