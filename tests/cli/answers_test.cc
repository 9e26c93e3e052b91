// Answers that must not mislead: what is recommended has no cliff beside it, every number says
// whose it is, spreads and ranges reach the answer, and what is refused names what works.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "sim/io/files.h"
#include "sim/io/page_template.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

namespace fs = std::filesystem;
using io::Json;

Json summary(const Args& question) {
  return json_of(Args{"predict"} + question)["summary"];
}
std::string text_of(const Args& args) {
  Outcome o = ddpsim(args);
  EXPECT_EQ(o.code, 0) << o.err;
  return o.out;
}
Json column(const Json& sweep, const std::string& name) {
  for (std::size_t k = 0; k < sweep["columns"].size(); ++k)
    if (sweep["columns"][k]["name"] == name) return sweep["data"][k];
  return {};
}

class Answers : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(path_); }
  void TearDown() override { fs::remove_all(path_); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  fs::path path_ = fs::path(testing::TempDir()) / ("ddpsim_answers_" + std::to_string(::getpid()));
};

const Args kP4d{"--workload", "resnet50", "--cluster", "aws-p4d", "--set", "cluster.hosts=4"};
const Args kSlow{"--workload", "resnet50", "--cluster", "gpu-ethernet-25g"};
const Args kHgx{"--workload", "resnet50", "--cluster", "hgx-h100"};

// A user's own number of one GPU, wherever a step is told.
TEST_F(Answers, AMeasuredStepIsNamedInEveryAnswer) {
  const std::string said = "computation x2: measured 38.16 ms on one GPU, predicted 19.08 ms";
  const Args measured = kHgx + Args{"--measured-step", "38.16ms"};
  for (const char* format : {"table", "md", "csv"})
    EXPECT_TRUE(has(text_of(Args{"predict"} + measured + Args{"--format", format}), said))
        << format;
  EXPECT_TRUE(has(text_of(Args{"explain"} + measured), said));
  for (const char* format : {"table", "md", "csv", "json"})
    EXPECT_TRUE(has(text_of(Args{"tune"} + measured +
                            Args{"--values", "1,25", "--no-levers", "--format", format}),
                    said))
        << format;
  for (const char* format : {"table", "csv", "json"})
    EXPECT_TRUE(has(text_of(Args{"sweep"} + measured +
                            Args{"--axis", "bucket_cap_mb=1,25", "--format", format}),
                    said))
        << format;
  if (io::page_template().gzip) {
    text_of(Args{"predict"} + measured + Args{"--html", file("page.html")});
    EXPECT_TRUE(has(io::read_file(file("page.html")), said));
  }
  Json j = summary(measured);
  EXPECT_EQ(j["measured_step"]["measured_ps"], 38'160'000'000);
  EXPECT_NEAR(j["single_rank_step_ps"].get<double>(), 38'160'000'000., 100);
  EXPECT_FALSE(summary(kHgx).contains("measured_step"));
}

TEST_F(Answers, AMeasuredRateIsAStepOfItsSamplesAndSoIsAScenarios) {
  // 32 samples, 4 micro-steps of them
  for (auto [micro_steps, step] : {std::pair{"1", "20ms"}, std::pair{"4", "80ms"}}) {
    Args q = kHgx + Args{"--set", std::string("accumulation_steps=") + micro_steps};
    Json rate = summary(q + Args{"--samples-per-s", "1600"});
    Json time = summary(q + Args{"--measured-step", step});
    Json set = summary(q + Args{"--set", std::string("measured_step=") + step});
    EXPECT_EQ(rate, time);
    EXPECT_EQ(set, time);
  }
  io::write_file(file("s.json"),
                 R"({"schema": "ddpsim.scenario/1", "workload": "resnet50", "cluster": "hgx-h100",
                     "measured_step": "17ms"})");
  EXPECT_EQ(summary({file("s.json")}), summary(kHgx + Args{"--measured-step", "17ms"}));
  EXPECT_EQ(summary({file("s.json"), "--measured-step", "20ms"}),
            summary(kHgx + Args{"--measured-step", "20ms"}));
}

TEST_F(Answers, AMeasuredStepOfAnotherQuestionIsDoubted) {
  auto doubted = [](const char* step) {
    return has(summary(kHgx + Args{"--measured-step", step})["extrapolated"].dump(),
               "probably of another batch");
  };
  EXPECT_FALSE(doubted("40ms"));
  EXPECT_TRUE(doubted("90ms"));
  EXPECT_TRUE(doubted("3ms"));
}

TEST_F(Answers, ASweepCarriesTheFactorOfTheMeasuredBatch) {
  Json j = json_of(Args{"sweep"} + kHgx +
                   Args{"--measured-step", "38158000000ps", "--axis", "workload.batch=16,32"});
  EXPECT_TRUE(has(column(j, "basis")[0].get<std::string>(), "x2: ")) << j;
  EXPECT_TRUE(has(column(j, "basis")[0].get<std::string>(), "carried over"));
  EXPECT_FALSE(has(column(j, "basis")[1].get<std::string>(), "carried over"));
  Json alone = summary(kHgx + Args{"--measured-step", "38158000000ps"});
  EXPECT_EQ(column(j, "step_ps")[1], alone["step_ps"]);
  // Of another device there is no number.
  Json clusters = json_of(Args{"sweep", "--workload", "resnet50", "--cluster", "hgx-h100",
                               "--measured-step", "17ms", "--axis", "cluster=dgx-h100,dgx-a100"});
  EXPECT_EQ(column(clusters, "reason")[0], "");
  EXPECT_TRUE(has(column(clusters, "reason")[1].get<std::string>(), "measured on a device"));
}

// 32 samples in 32 ms, and a step of 20.2 ms.
TEST_F(Answers, AStepThatWaitsForInputSaysSo) {
  const Args slow = kHgx + Args{"--set", "input.samples_per_s=1000"};
  Json j = summary(slow);
  EXPECT_EQ(j["step_ps"], 32'000'000'000);
  EXPECT_GT(j["input_ps"], 4'000'000'000);
  EXPECT_FALSE(summary(kHgx).contains("input_ps"));
  for (const char* format : {"table", "md"}) {
    std::string text = text_of(Args{"predict"} + slow + Args{"--format", format});
    EXPECT_TRUE(has(text, "waiting for input")) << text;
    EXPECT_TRUE(has(text, "the input pipeline")) << text;
    EXPECT_TRUE(has(text, "input at 1000 samples/s per rank")) << text;
  }
  EXPECT_TRUE(has(text_of(Args{"explain"} + slow), "the input pipeline decides"));
  EXPECT_TRUE(has(text_of(Args{"tune"} + slow + Args{"--values", "1,25", "--no-levers"}),
                  "the input pipeline makes a step's batches in no less"));
  Json sweep = json_of(Args{"sweep"} + kHgx + Args{"--axis", "input.samples_per_s=1000,1e9"});
  EXPECT_EQ(column(sweep, "step_ps")[0], j["step_ps"]);
  EXPECT_EQ(column(sweep, "step_ps")[1], summary(kHgx)["step_ps"]);
  Json trace = io::parse_json(text_of(Args{"trace"} + slow), "stdout");
  double waited = 0;
  for (const Json& e : trace["traceEvents"])
    if (e["name"] == "await_input") waited = e["dur"].get<double>();
  EXPECT_GT(waited, 4000);
  // As a program it is the same.
  for (const Args& more : {Args{}, Args{"--set", "accumulation_steps=3"}, Args{"--plan", "fsdp"}}) {
    text_of(Args{"show", "program"} + slow + more +
            Args{"--format", "json", "--out", file("p.json")});
    Json shown = summary({"--program", file("p.json"), "--cluster", "hgx-h100"});
    Json own = summary(slow + more);
    EXPECT_EQ(shown["step_ps"], own["step_ps"]);
    EXPECT_EQ(shown["input_ps"], own["input_ps"]);
  }
}

// Of every knob: a model that differs a little must not fall off what is recommended.
TEST(Predict, SaysTheSequenceBesideTheBatch) {
  Args bert{"--workload", "bert-base", "--cluster", "hgx-h100"};
  EXPECT_TRUE(
      has(ddpsim(Args{"predict"} + bert).out, "bert-base, batch 32 per rank, sequence 128, fp32"));
  Args longer = bert + Args{"--set", "workload.sequence=384"};
  EXPECT_TRUE(has(ddpsim(Args{"predict"} + longer).out, "batch 32 per rank, sequence 384, fp32"));
  EXPECT_TRUE(has(ddpsim(Args{"explain"} + longer).out, "batch 32 per rank, sequence 384, fp32"));
  Outcome sweep = ddpsim(Args{"sweep"} + bert + Args{"--axis", "workload.sequence=64,128"});
  EXPECT_EQ(sweep.code, 0) << sweep.err;
  EXPECT_TRUE(has(sweep.out, "workload.sequence"));
}

TEST(Recommended, HasNoMeasurablyLongerNeighbours) {
  for (const Args& question : {kP4d, kSlow + Args{"--set", "bucket_cap_mb=1"},
                               kP4d + Args{"--knob", "first_bucket_bytes"}}) {
    Json j = json_of(Args{"tune", "--no-levers"} + question);
    bool other = j["other"].is_object() && j["other"]["better"].get<bool>();
    const Json& p = other ? j["other"] : j["chosen"];
    if (p.is_null()) continue;
    std::string knob = other ? j["other"]["knob"] : j["knob"];
    Args asked = question;
    if (auto flag = std::find(asked.begin(), asked.end(), "--knob"); flag != asked.end())
      asked.erase(flag, flag + 2);
    if (knob != "bucket_cap_mb" || has(asked.back(), "bucket_cap_mb"))
      asked.resize(asked.size() - (has(asked.back(), "bucket_cap_mb") ? 2 : 0));
    auto at = p["value"].get<double>();
    for (double beside : {0.981, 0.99, 0.995, 1.005, 1.01, 1.019}) {
      std::string value = knob == "first_bucket_bytes"
                              ? std::to_string(static_cast<std::int64_t>(at * beside))
                              : std::to_string(at * beside);
      double step = summary(asked + Args{"--set", knob + "=" + value})["step_ps"].get<double>();
      EXPECT_LE(step, 1.0055 * p["step_ps"].get<double>()) << knob << "=" << value;
    }
  }
}

TEST(Recommended, LinesReachBehindNoInterface) {
  for (const Args& question : {kP4d, kP4d + Args{"--knob", "first_bucket_bytes"}, kSlow}) {
    Json j = json_of(Args{"tune", "--no-levers"} + question);
    for (const Json& line : j["lines"]) EXPECT_FALSE(has(line, "torch.distributed._")) << line;
    // A setting that is no argument is never recommended unasked.
    if (j["other"].is_object() && j["other"]["knob"] == "first_bucket_bytes") {
      EXPECT_FALSE(j["other"]["better"].get<bool>());
    }
  }
  EXPECT_TRUE(has(text_of(Args{"tune", "--no-levers"} + kP4d), "is no argument of PyTorch's"));
}

TEST(Recommended, GainsAtEveryEndOfTheRanges) {
  for (const Args& question : {kP4d, kSlow + Args{"--set", "bucket_cap_mb=1"}, kHgx}) {
    Json j = json_of(Args{"tune", "--no-levers"} + question);
    if (j["chosen"].is_null()) {
      EXPECT_TRUE(has(j["verdict"], "no difference you could measure") ||
                  has(j["verdict"], "nothing is surely better") ||
                  has(j["verdict"], "keeps its gain") || has(j["verdict"], "makes no difference"))
          << j["verdict"];
      continue;
    }
    for (const char* end : {"mid_ps", "low_ps", "high_ps"})
      EXPECT_GT(j["gain"][end].get<std::int64_t>(), 0) << end;
  }
}

TEST(Provenance, IsInEverySweepAndTuning) {
  const std::string basis = "datasheet, never measured on this hardware";
  const Args sweep = Args{"sweep"} + kHgx + Args{"--axis", "bucket_cap_mb=5,25"};
  std::istringstream csv(text_of(sweep));
  std::string line;
  std::getline(csv, line);
  EXPECT_TRUE(has(line, ",profile,basis,")) << line;
  while (std::getline(csv, line))
    EXPECT_TRUE(has(line, ",h100-sxm.datasheet,\"" + basis + "\",")) << line;
  for (const char* format : {"table", "md"})
    EXPECT_TRUE(
        has(text_of(sweep + Args{"--format", format}), "profile h100-sxm.datasheet: " + basis))
        << format;
  Json j = json_of(sweep);
  EXPECT_EQ(j["provenance"], (Json{"profile h100-sxm.datasheet: " + basis}));
  EXPECT_EQ(column(j, "basis"), (Json{basis, basis}));
  EXPECT_EQ(column(j, "profile"), (Json{"h100-sxm.datasheet", "h100-sxm.datasheet"}));
  // Of two clusters, both.
  Json two = json_of({"sweep", "--workload", "resnet50", "--axis", "cluster=hgx-h100,dgx-a100"});
  EXPECT_EQ(two["provenance"].size(), 2u);
  const Args tune = Args{"tune", "--no-levers", "--values", "5,25"} + kHgx;
  Json t = json_of(tune);
  EXPECT_EQ(t["profile"], "h100-sxm.datasheet");
  EXPECT_EQ(t["basis"], basis);
  for (const char* format : {"table", "md", "csv"})
    EXPECT_TRUE(has(text_of(tune + Args{"--format", format}), basis)) << format;
  EXPECT_TRUE(has(text_of(Args{"explain"} + kHgx), basis));
  EXPECT_EQ(json_of(Args{"explain"} + kHgx)["basis"], basis);
}

TEST(Provenance, OfAListOfCapsIsItsWarning) {
  const Args list{"--set", "bucket_cap_mb_list=[1,25]"};
  const std::string warning = "#169026";
  for (const Args& a :
       {Args{"predict"}, Args{"predict", "--format", "md"}, Args{"predict", "--format", "json"},
        Args{"tune", "--no-levers", "--values", "5"},
        Args{"tune", "--no-levers", "--values", "5", "--format", "json"}, Args{"explain"},
        Args{"sweep", "--axis", "cluster.hosts=1,2"}})
    EXPECT_TRUE(has(text_of(a + kSlow + list), warning)) << a[0] << " " << a.back();
  EXPECT_TRUE(has(text_of(Args{"predict"} + kSlow + list), "bucket_cap_mb_list=[1, 25]"));
  Json t = json_of(Args{"tune", "--no-levers"} + kSlow);
  EXPECT_TRUE(has(t["partition"]["warning"], warning));
  // From 2.12 on it is an argument, and is offered as one.
  const Args newer = kSlow + Args{"--set", "pytorch=2.13"};
  for (const Args& a : {Args{"predict"}, Args{"explain"}})
    EXPECT_FALSE(has(text_of(a + newer + list), warning)) << a[0];
  t = json_of(Args{"tune", "--no-levers"} + newer);
  ASSERT_TRUE(t["partition"].is_object());
  EXPECT_FALSE(t["partition"].contains("warning"));
}

// Half of the passes took three times as long: 80 % of them lie between one and three times the
// median, or below it.
TEST_F(Answers, ACapturesSpreadReachesTheInterval) {
  Json w = read_json("workloads/mlp784-50-10-cpu.json");
  auto write = [&](const std::string& name, double factor) {
    Json changed = w;
    Json& plain = changed["times"]["raw"]["step_plain"];
    for (std::size_t i = 0; i < plain.size(); ++i)
      plain[i] = i % 3 == 0 ? static_cast<std::int64_t>(3'600'000'000 * factor)
                            : std::int64_t{3'600'000'000};
    io::write_file(file(name), changed.dump());
    return summary({"--workload", file(name), "--cluster", "ethernet-10g"});
  };
  Json quiet = write("quiet.json", 1);
  Json loaded = write("loaded.json", 3);
  EXPECT_EQ(quiet["step_ps"], loaded["step_ps"]);
  double step = loaded["step_ps"].get<double>();
  EXPECT_LT(quiet["step_high_ps"].get<double>(), 1.3 * step);
  EXPECT_GT(loaded["step_high_ps"].get<double>(), 2 * step);
  EXPECT_EQ(quiet["step_low_ps"], loaded["step_low_ps"]) << "no pass was quicker";
  EXPECT_TRUE(
      has(text_of({"predict", "--workload", file("loaded.json"), "--cluster", "ethernet-10g"}),
          "80 % of the capture's passes"));
}

TEST(Efficiency, HasARange) {
  for (const Args& q :
       {kHgx, kSlow, Args{"--workload", "resnet18-cpu", "--cluster", "testbed-star"}}) {
    Json s = summary(q);
    EXPECT_LE(s["scaling_efficiency_low"].get<double>(), s["scaling_efficiency"].get<double>());
    EXPECT_GE(s["scaling_efficiency_high"].get<double>(), s["scaling_efficiency"].get<double>());
    EXPECT_LT(s["scaling_efficiency_low"].get<double>(),
              s["scaling_efficiency_high"].get<double>());
  }
  EXPECT_TRUE(has(text_of(Args{"predict"} + kSlow), " % to "));
  Json sweep = json_of(Args{"sweep", "--interval"} + kSlow + Args{"--axis", "bucket_cap_mb=25"});
  Json s = summary(kSlow + Args{"--set", "bucket_cap_mb=25"});
  EXPECT_EQ(column(sweep, "scaling_efficiency_low")[0], s["scaling_efficiency_low"]);
  EXPECT_EQ(column(sweep, "scaling_efficiency_high")[0], s["scaling_efficiency_high"]);
}

TEST_F(Answers, AWorkloadThatComputesNothingHasNoEfficiency) {
  Json w = read_json("workloads/mlp784-50-10-cpu.json");
  Json& t = w["times"];
  for (const char* key : {"forward_ps", "backward_ps", "optimizer_ps"}) t[key] = 1;
  for (Json& ready : t["ready_ps"]) ready = 0;
  for (const char* key : {"raw", "modules", "core_ps"}) t.erase(key);
  io::write_file(file("idle.json"), w.dump());
  const Args q{"--workload", file("idle.json"), "--cluster", "ethernet-10g"};
  EXPECT_TRUE(summary(q)["scaling_efficiency"].is_null());
  for (const char* format : {"table", "md"}) {
    std::string text = text_of(Args{"predict", "--format", format} + q);
    EXPECT_TRUE(has(text, "scaling efficiency none")) << text;
    EXPECT_FALSE(has(text, "scaling efficiency 0.0")) << text;
  }
  EXPECT_TRUE(column(json_of(Args{"sweep"} + q + Args{"--axis", "bucket_cap_mb=1"}),
                     "scaling_efficiency")[0]
                  .is_null());
}

TEST_F(Answers, WhereRanksVaryASweepRanksByThroughput) {
  Outcome o = ddpsim(Args{"sweep"} + kSlow +
                     Args{"--axis", "cluster.hosts=1:8:x2", "--out", file("s.csv")});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_FALSE(has(o.out, "shortest steps")) << o.out;
  auto fastest = o.out.find("most samples per second\n");
  auto cheapest = o.out.find("most samples per second of each rank");
  ASSERT_NE(fastest, std::string::npos) << o.out;
  ASSERT_NE(cheapest, std::string::npos) << o.out;
  auto first_row = [&](std::size_t from) {
    from = o.out.find('\n', o.out.find('\n', from) + 1) + 1;
    return o.out.substr(from, o.out.find(' ', from) - from);
  };
  EXPECT_EQ(first_row(fastest), "8") << o.out;
  EXPECT_EQ(first_row(cheapest), "1") << o.out;
  // With the batch alone, too; with neither, by the step.
  EXPECT_TRUE(has(
      ddpsim(Args{"sweep"} + kSlow + Args{"--axis", "workload.batch=8,64", "--out", file("b.csv")})
          .out,
      "most samples per second\n"));
  EXPECT_TRUE(has(
      ddpsim(Args{"sweep"} + kSlow + Args{"--axis", "bucket_cap_mb=8,64", "--out", file("c.csv")})
          .out,
      "shortest steps\n"));
}

TEST(Levers, FewerRanksAreNoGainByThemselves) {
  Json j = json_of(Args{"tune"} + kSlow);
  ASSERT_FALSE(j["levers"].empty());
  double before = 0;
  bool found = false;
  for (const Json& l : j["levers"]) {
    double taken = l["step_ps"].get<double>() / l["samples"].get<double>();
    EXPECT_GE(taken, before * (1 - 1e-9)) << l;
    before = taken;
    found = found || (has(l["change"], "half the ranks") && l["samples"] == 0.5);
  }
  EXPECT_TRUE(found);
  EXPECT_FALSE(has(j["levers"][0]["change"], "half the ranks"));
  EXPECT_TRUE(has(text_of(Args{"tune"} + kSlow), "samples/s of now"));
}

TEST(Averaging, HasNoBucketsAndIsNoDdp) {
  const Args q = kSlow + Args{"--plan", "averaging"};
  std::string page = text_of(Args{"predict"} + q);
  EXPECT_FALSE(has(page, "without DDP")) << page;
  EXPECT_TRUE(has(page, "one rank without averaging")) << page;
  for (const Args& a : {Args{"predict"}, Args{"tune", "--no-levers"}, Args{"explain"}}) {
    std::string text = text_of(a + q);
    EXPECT_FALSE(has(text, "bucket")) << a[0] << "\n" << text;
  }
}

TEST(Stragglers, AreNamedByExplainAsByPredict) {
  const Args q = kSlow + Args{"--set", "slow_ranks.3=1.5", "--set", "slow_ranks.5=1.2"};
  EXPECT_TRUE(
      has(text_of(Args{"predict"} + q), "rank 3 decides, which computes 1.5 times as long"));
  std::string text = text_of(Args{"explain"} + q);
  EXPECT_TRUE(has(text, "rank 3 decides, which computes 1.5 times as long")) << text;
  Json j = json_of(Args{"explain"} + q);
  EXPECT_EQ(j["straggler"]["rank"], 3);
  EXPECT_EQ(j["straggler"]["step_ps"], summary(kSlow)["step_ps"]);
  EXPECT_TRUE(json_of(Args{"explain"} + kSlow)["straggler"].is_null());
}

TEST(Jitter, IsInEveryStepThatTuneSays) {
  const Args jitter{"--set", "jitter={\"cv\":0.05,\"seed\":1,\"samples\":5}"};
  Json with = json_of(Args{"tune", "--no-levers", "--values", "5,25"} + kSlow + jitter);
  Json without = json_of(Args{"tune", "--no-levers", "--values", "5,25"} + kSlow);
  EXPECT_GT(with["current"]["step_ps"].get<std::int64_t>(),
            without["current"]["step_ps"].get<std::int64_t>());
  Json s = summary(kSlow + jitter);
  double samples = 32.0 * 8;
  EXPECT_NEAR(with["current"]["step_ps"].get<double>() / 1e12,
              samples / s["samples_per_s"].get<double>(), 1e-8);
  EXPECT_TRUE(has(with["notes"][0], "mean of 5"));
}

// Each end of an arrow lies in a slice of its thread, and the arrow leads from what made the
// all-reduce ready over it to what waits for it.
void check_arrows(const Args& question) {
  Json trace = io::parse_json(text_of(Args{"trace"} + question), "stdout");
  struct Slice {
    std::string name;
    double begin, end;
  };
  std::map<std::pair<int, int>, std::vector<Slice>> threads;
  for (const Json& e : trace["traceEvents"])
    if (e["ph"] == "X")
      threads[{e["pid"], e["tid"]}].push_back(
          {e["name"], e["ts"], e["ts"].get<double>() + e["dur"].get<double>()});
  auto under = [&](const Json& e) {
    std::string found;
    for (const Slice& s : threads[{e["pid"], e["tid"]}])
      if (s.begin < e["ts"].get<double>() && e["ts"].get<double>() < s.end)
        found += (found.empty() ? "" : " and ") + s.name;
    return found;
  };
  std::map<int, std::map<std::string, std::string>> arrows;
  std::map<int, std::string> names;
  for (const Json& e : trace["traceEvents"]) {
    std::string phase = e["ph"];
    if (phase != "s" && phase != "t" && phase != "f") continue;
    arrows[e["id"]][phase] = under(e);
    names[e["id"]] = e["name"];
  }
  EXPECT_FALSE(arrows.empty());
  for (const auto& [id, ends] : arrows) {
    ASSERT_EQ(ends.size(), 3u) << names[id];
    EXPECT_EQ(ends.at("t"), names[id]);
    EXPECT_NE(ends.at("s"), "") << names[id];
    EXPECT_NE(ends.at("f"), "") << names[id];
    for (const char* end : {"s", "f"}) EXPECT_FALSE(has(ends.at(end), "allreduce")) << ends.at(end);
  }
}
TEST(TraceArrows, LeadFromWhatWasReadyToWhatWaits) {
  check_arrows({"--workload", "resnet18", "--cluster", "hgx-h100"});
  check_arrows({"--workload", "resnet18-cpu", "--cluster", "ethernet-10g"});
  check_arrows(kSlow + Args{"--plan", "averaging"});
  check_arrows(kSlow + Args{"--set", "gradient_as_bucket_view=true"});
}

TEST(Versions, OfDdpThatChangedNothingByDefault) {
  Json before = json_of(Args{"predict"} + kHgx + Args{"--set", "pytorch=2.11"});
  for (const char* version : {"2.12", "2.13"}) {
    Json now = json_of(Args{"predict"} + kHgx + Args{"--set", std::string("pytorch=") + version});
    EXPECT_EQ(now["summary"], before["summary"]) << version;
    EXPECT_TRUE(
        has(text_of(Args{"predict"} + kHgx + Args{"--set", std::string("pytorch=") + version}),
            std::string("PyTorch ") + version));
  }
}

TEST(Refusals, NameWhatWorks) {
  struct Bad {
    Args args;
    const char* part;
  };
  for (const Bad& b : {Bad{{"--hosts", "4"}, "write --set cluster.hosts=VALUE"},
                       Bad{{"--nodes", "4"}, "write --set cluster.hosts=VALUE"},
                       Bad{{"--batch", "4"}, "write --set workload.batch=VALUE"},
                       Bad{{"--batch-size=4"}, "write --set workload.batch=VALUE"},
                       Bad{{"--seq-len=4"}, "write --set workload.sequence=VALUE"},
                       Bad{{"--precision", "bf16"}, "write --set workload.precision=VALUE"},
                       Bad{{"--world-size", "4"}, "write --ranks VALUE"},
                       Bad{{"--set", "hosts=4"}, "write cluster.hosts=4"},
                       Bad{{"--set", "world_size=4"}, "write ranks=4"},
                       Bad{{"--set", "batch=4"}, "write workload.batch=4"},
                       Bad{{"--set", "workload.seq_len=4"}, "write workload.sequence=4"}})
    for (const char* command : {"predict", "tune", "sweep", "explain"}) {
      Outcome o =
          ddpsim(Args{command} + kHgx + b.args +
                 (std::string(command) == "sweep" ? Args{"--axis", "bucket_cap_mb=1"} : Args{}));
      EXPECT_EQ(o.code, 2);
      EXPECT_TRUE(has(o.err, b.part)) << o.err;
      EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
    }
  for (auto [axis, field] : {std::pair{"hosts", "cluster.hosts"},
                             {"nodes", "cluster.hosts"},
                             {"batch", "workload.batch"},
                             {"sequence_length", "workload.sequence"},
                             {"precision", "workload.precision"},
                             {"world_size", "ranks"}}) {
    Outcome o = ddpsim(Args{"sweep"} + kHgx + Args{"--axis", std::string(axis) + "=1,2"});
    EXPECT_EQ(o.code, 2);
    EXPECT_TRUE(has(o.err, std::string("--axis ") + axis + ": ") &&
                has(o.err, std::string("write ") + field))
        << o.err;
  }
}

class AnswersPage : public Answers {
 protected:
  void SetUp() override {
    Answers::SetUp();
    if (!io::page_template().gzip) GTEST_SKIP() << "this build has no page";
  }
  Json data(const std::string& name) const {
    std::string html = io::read_file(file(name));
    const std::string open = "id=\"ddpsim-data\">";
    auto from = html.find(open) + open.size();
    return io::parse_json(html.substr(from, html.find("</script>", from) - from), name);
  }
};

TEST_F(AnswersPage, OfAResumedAndAMergedSweepHasAllRows) {
  const Args sweep = Args{"sweep"} + kHgx +
                     Args{"--axis", "bucket_cap_mb=1,5,25", "--axis", "ranks=1,8,99", "--interval"};
  ASSERT_EQ(ddpsim(sweep + Args{"--out", file("whole.csv"), "--html", file("whole.html")}).code, 0);
  Json whole = data("whole.html");
  // Half of the file, then the rest.
  std::string text = io::read_file(file("whole.csv"));
  io::write_file(file("half.csv"), text.substr(0, text.size() / 2));
  Outcome o =
      ddpsim(sweep + Args{"--out", file("half.csv"), "--resume", "--html", file("half.html")});
  ASSERT_EQ(o.code, 0) << o.err;
  Args merge{"merge"};
  for (const char* k : {"0", "1"}) {
    ASSERT_EQ(ddpsim(sweep + Args{"--shard", std::string(k) + "/2", "--out", file(k)}).code, 0);
    merge.push_back(file(k));
  }
  o = ddpsim(merge + Args{"--out", file("merged.csv"), "--html", file("merged.html")});
  ASSERT_EQ(o.code, 0) << o.err;
  for (const char* name : {"half.html", "merged.html"}) {
    Json page = data(name);
    EXPECT_EQ(page["columns"], whole["columns"]) << name;
    EXPECT_EQ(page["sweep"], whole["sweep"]) << name;
    EXPECT_EQ(page["provenance"], whole["provenance"]) << name;
    for (const char* exact : {"bucket_cap_mb", "ranks", "step_ps", "step_low_ps", "exposed_ps",
                              "largest_all_reduce", "busiest_link", "basis", "reason"})
      EXPECT_EQ(column(page, exact), column(whole, exact)) << name << " " << exact;
    // As many decimals as a CSV has.
    Json rates = column(page, "samples_per_s");
    for (std::size_t k = 0; k < rates.size(); ++k)
      if (!rates[k].is_null()) {
        EXPECT_NEAR(rates[k].get<double>(), column(whole, "samples_per_s")[k].get<double>(), 6e-4);
      }
  }
}

TEST_F(AnswersPage, SaysWhoseItsNumbersAre) {
  ASSERT_EQ(
      ddpsim(Args{"tune", "--values", "5,25"} + kHgx + Args{"--html", file("tune.html")}).code, 0);
  Json page = data("tune.html");
  EXPECT_EQ(page["basis"], "datasheet, never measured on this hardware");
  EXPECT_EQ(page["documents"]["profile"]["name"], "h100-sxm.datasheet");
}

// --ranks says how many hosts there are, in each command and from a file, as --set would.
TEST_F(Answers, RanksRaiseHosts) {
  const Args set{"--set", "cluster.hosts=8"};
  for (const Args& one : {Args{"predict"}, Args{"explain"}, Args{"tune"}}) {
    const Args asked =
        one + Args{"--workload", "resnet50", "--cluster", "dgx-h100", "--ranks", "64"};
    Outcome raised = ddpsim(asked);
    ASSERT_EQ(raised.code, 0) << raised.err;
    EXPECT_TRUE(has(raised.err, "dgx-h100: has 8 devices; taken with --set cluster.hosts=8"));
    EXPECT_EQ(raised.out, ddpsim(asked + set).out);
  }
  std::ofstream(file("q.json")) << R"({"schema": "ddpsim.scenario/1", "workload": "resnet50",
    "cluster": "dgx-h100", "ranks": 64})";
  EXPECT_EQ(ddpsim({"predict", file("q.json")}).out,
            ddpsim(Args{"predict", file("q.json")} + set).out);
  EXPECT_NE(ddpsim(Args{"predict", file("q.json"), "--set", "cluster.hosts=4"}).code, 0);
}

// Four of a host's eight GPUs, drawn hosts or not: the ranks' devices, as rank_order would say
// them.
TEST_F(Answers, GpusOfEachHost) {
  for (const char* cluster : {"dgx-h100", "dgx1-v100", "hgx-h100"}) {
    const Args asked{"predict", "--workload", "resnet50", "--cluster", cluster};
    const Args placed = asked + Args{"--gpus-per-host", "4", "--ranks", "8"};
    Outcome o = ddpsim(placed);
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_TRUE(has(o.err, "taken with --set cluster.hosts=2")) << o.err;
    const Args listed = asked + Args{"--set", "cluster.hosts=2", "--ranks", "8", "--set"};
    EXPECT_EQ(o.out, text_of(listed + Args{"rank_order=[0,1,2,3,8,9,10,11]"})) << cluster;
    EXPECT_NE(o.out, text_of(asked + Args{"--ranks", "8"})) << cluster;
  }
  const Args two = Args{"predict"} + kHgx + Args{"--set", "cluster.hosts=2"};
  EXPECT_TRUE(has(ddpsim(two + Args{"--ranks", "8"}).err, "its 8 ranks are on 1 of 2 hosts"));
  EXPECT_EQ(text_of(two + Args{"--gpus-per-host", "4"}),
            text_of(Args{"predict"} + kHgx + Args{"--ranks", "8", "--gpus-per-host", "4"}));
  EXPECT_TRUE(has(ddpsim(Args{"predict"} + kHgx + Args{"--gpus-per-host", "9"}).err,
                  "--gpus-per-host 9: a host of hgx-h100 has 8 devices"));
  // Where it places nothing it is no flag that is passed over.
  EXPECT_EQ(ddpsim({"epoch", "--epoch-samples", "1000", "--ranks", "8", "--batch", "32",
                    "--gpus-per-host", "4"})
                .code,
            2);
  // A collective by itself is placed by the same rule.
  for (const Args& command :
       {Args{"explain", "--op", "all_reduce"}, Args{"export", "nccl-tuner"}}) {
    const Args asked = command + Args{"--cluster", "dgx1-v100", "--ranks", "8"};
    Outcome o = ddpsim(asked + Args{"--gpus-per-host", "4"});
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_TRUE(has(o.err, "taken with --set cluster.hosts=2")) << o.err;
    EXPECT_EQ(o.out, text_of(asked + Args{"--set", "cluster.hosts=2", "--gpus-per-host", "4"}));
    EXPECT_NE(o.out, text_of(asked)) << command[0];
  }
  EXPECT_TRUE(has(ddpsim(two + Args{"--gpus-per-host", "4", "--ranks", "16"}).err,
                  "16 ranks need 4 hosts, and the cluster has 2"));
}

// What a file says of itself is of the file, not of what --set made of it.
TEST_F(AnswersPage, DescriptionsAreOfTheFile) {
  ASSERT_EQ(
      ddpsim(Args{"predict"} + kHgx + Args{"--set", "cluster.hosts=2", "--html", file("p.html")})
          .code,
      0);
  Json page = data("p.html");
  for (const Json& text :
       {page["topology"]["description"], page["documents"]["cluster"]["description"]})
    EXPECT_TRUE(has(text, "(of the file, before --set cluster.hosts=2)")) << text;
  ASSERT_EQ(ddpsim(Args{"predict"} + kHgx + Args{"--html", file("p.html")}).code, 0);
  EXPECT_FALSE(has(data("p.html")["topology"]["description"], "of the file"));
  EXPECT_TRUE(has(text_of({"topology", "show", "hgx-h100", "--set", "cluster.hosts=2"}),
                  "(of the file, before --set cluster.hosts=2)"));
}

// A gate in a repository of one's own: the folder holds all that it needs, and its own budget, if
// it has one.
TEST_F(Answers, AFolderOfOnesOwnRunsCanBeValidated) {
  fs::create_directories(file("repository"));
  io::write_file(file("repository/mylm.json"),
                 io::read_file(source_path("workloads/mlp784-50-10-cpu.json")));
  Json question{{"schema", "ddpsim.scenario/1"},
                {"workload", "mylm.json"},
                {"cluster", "testbed-star"},
                {"ranks", 2}};
  io::write_file(file("repository/question.json"), question.dump());
  const std::string runs = file("repository/runs");
  // A shipped workload that --set changed is no shipped one, either.
  for (const Args& more :
       {Args{}, Args{"--workload", "mlp784-50-10-cpu", "--set", "workload.device.name=mine"}}) {
    Outcome o = ddpsim(Args{"run", file("repository/question.json"), "--steps", "3", "--loopback",
                            "--runs", runs} +
                       more);
    ASSERT_EQ(o.code, 0) << o.err;
  }
  fs::remove(file("repository/mylm.json"));  // another clone may have another one
  Outcome o = ddpsim({"validate", "--runs", runs});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_FALSE(has(o.err, "stale")) << o.err;
  EXPECT_TRUE(has(o.err, "no budget")) << o.err;
  io::write_file(
      runs + "/budget.json",
      R"({"schema": "ddpsim.budget/1", "limits": [{"what": "replay.held_out.n", "min": 1}]})");
  o = ddpsim({"validate", "--runs", runs});
  EXPECT_EQ(o.code, 1) << "the run over loopback does not count";
  EXPECT_TRUE(has(o.err, "ddpsim: budget: replay.held_out.n is 0, at least 1 is required"))
      << o.err;
}

// Runs are read on all cores; what is told is as if they were read one after another.
TEST_F(Answers, ValidateTellsOfTheFirstRunThatIsNone) {
  fs::create_directories(file("runs"));
  std::string long_one = "[0";
  for (int k = 0; k < 300'000; ++k) long_one += ",0";
  io::write_file(file("runs/a.json"), long_one);  // ends too early, which is seen late
  io::write_file(file("runs/b.json"), "b");
  for (int k = 0; k < 3; ++k) {
    Outcome o = ddpsim({"validate", "--runs", file("runs")});
    EXPECT_EQ(o.code, 2);
    EXPECT_TRUE(has(o.err, "a.json")) << o.err;
    EXPECT_FALSE(has(o.err, "b.json")) << o.err;
  }
}

TEST_F(Answers, ARunOfTorchrunIsGivenItsQuestion) {
  // As ddpsim_record.py writes it under torchrun: without a case.
  std::string shipped = source_path("calib/runs/torch-fe8e143dc25d9acb-20261121T185539Z.json.gz");
  Json run = io::parse_json(io::read_file(shipped), shipped);
  for (const char* key : {"scenario", "workload", "key"}) run["case"].erase(key);
  run["case"]["key"] = "";
  io::write_file(file("measured.json"), run.dump());
  fs::create_directories(file("runs"));
  io::write_file(file("runs/measured.json"), run.dump());
  Outcome o = ddpsim({"validate", "--runs", file("runs")});
  EXPECT_EQ(o.code, 1);
  EXPECT_TRUE(has(o.err, "ddpsim import run FILE QUESTION --runs FOLDER")) << o.err;
  fs::remove(file("runs/measured.json"));
  const std::string question = source_path("calib/runs/scenarios/fe8e143dc25d9acb.json");
  o = ddpsim({"import", "run", file("measured.json"), question, "--runs", file("runs")});
  ASSERT_EQ(o.code, 0) << o.err;
  o = ddpsim({"validate", "--runs", file("runs")});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_FALSE(has(o.err, "stale")) << o.err;
  o = ddpsim(
      {"import", "run", file("measured.json"), question, "--ranks", "3", "--runs", file("runs")});
  EXPECT_EQ(o.code, 2);
  o = ddpsim({"import", "run", shipped, question, "--runs", file("runs")});
  EXPECT_EQ(o.code, 2);
  EXPECT_TRUE(has(o.err, "already")) << o.err;
}

// A step that all ranks begin together is another number, and says so in every form.
TEST(CommonStart, IsSaidWhereItIsAsked) {
  Args question{"predict", "--workload", "resnet18-cpu", "--cluster", "testbed-star"};
  Json period = json_of(question);
  EXPECT_FALSE(period["summary"].contains("step"));
  Json together = json_of(question + Args{"--step", "common-start"});
  EXPECT_EQ(together["summary"]["step"], "common-start");
  EXPECT_GE(together["summary"]["step_ps"], period["summary"]["step_ps"]);
  Outcome table = ddpsim(question + Args{"--step", "common-start"});
  EXPECT_TRUE(has(table.out, "all ranks begin the step together")) << table.out;
  Outcome wrong = ddpsim(question + Args{"--step", "barrier"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_TRUE(has(wrong.err, "common-start")) << wrong.err;
}

}  // namespace
}  // namespace ddpsim::test
