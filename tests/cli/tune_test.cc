// ddpsim tune, and explain of a step.
#include <algorithm>

#include <gtest/gtest.h>

#include "tests/support/files.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

const Args kSlow{"--workload", "resnet50", "--cluster", "gpu-ethernet-25g"};

// What is recommended has no cliff beside it: the shortest step of this question lies 0.2 % below a
// cap with which it is 4 % longer.
TEST(Tune, KeepsAwayFromCliffs) {
  Outcome o = ddpsim({"tune", "--workload", "resnet50", "--cluster", "hgx-h100", "--set",
                      "cluster.hosts=8", "--format", "json"});
  ASSERT_EQ(o.code, 0) << o.err;
  io::Json j = io::parse_json(o.out, "stdout");
  if (j["chosen"].is_null()) return;
  double chosen = j["chosen"]["value"].get<double>();
  auto step = j["chosen"]["step_ps"].get<double>();
  for (const io::Json& p : j["curve"])
    if (std::abs(p["value"].get<double>() / chosen - 1) <= 0.02) {
      EXPECT_LE(p["step_ps"].get<double>(), 1.005 * step) << p["value"];
    }
}

TEST(Tune, AnswersFirst) {
  Outcome o = ddpsim(Args{"tune"} + kSlow + Args{"--set", "bucket_cap_mb=1"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.out.rfind("bucket_cap_mb=", 0), 0u) << o.out;
  for (const char* part : {"makes the step", "shorter",
                           "ddp = torch.nn.parallel.DistributedDataParallel(model, "
                           "device_ids=[local_rank], bucket_cap_mb=",
                           "within 1 %", "no buckets can beat", "next, on top of that"})
    EXPECT_TRUE(has(o.out, part)) << part << "\n" << o.out;
}

TEST(Tune, JsonIsWhatAnySingleQuestionSays) {
  io::Json j = json_of(Args{"tune"} + kSlow + Args{"--set", "bucket_cap_mb=1"});
  EXPECT_EQ(j["schema"], "ddpsim.tuning/1");
  auto predicted = [&](const std::string& setting) {
    return json_of(Args{"predict"} + kSlow + Args{"--set", setting})["summary"];
  };
  io::Json best = predicted("bucket_cap_mb=" + j["best"]["value"].dump());
  EXPECT_EQ(j["best"]["step_ps"], best["step_ps"]);
  EXPECT_EQ(j["best"]["low_ps"], best["step_low_ps"]);
  EXPECT_EQ(j["best"]["high_ps"], best["step_high_ps"]);
  EXPECT_EQ(j["best"]["buckets"], best["buckets"].size());
  EXPECT_EQ(j["current"]["step_ps"], predicted("bucket_cap_mb=1")["step_ps"]);
  EXPECT_EQ(
      j["partition"]["step_ps"],
      predicted("bucket_cap_mb_list=" + j["partition"]["bucket_cap_mb_list"].dump())["step_ps"]);
  EXPECT_LE(j["lower_bound_ps"].get<std::int64_t>(), j["partition"]["step_ps"].get<std::int64_t>());
  for (const io::Json& p : j["curve"])
    EXPECT_LE(j["lower_bound_ps"].get<std::int64_t>(), p["step_ps"].get<std::int64_t>());
  EXPECT_FALSE(j["levers"].empty());
}

TEST(Tune, SearchesEverySystemsKnobs) {
  io::Json j = json_of(Args{"tune"} + kSlow + Args{"--plan", "averaging"});
  EXPECT_EQ(j["knob"], "granularity");
  EXPECT_EQ(j["best"]["value"], "flat");
  EXPECT_TRUE(j["lower_bound_ps"].is_null());
  EXPECT_EQ(json_of(Args{"tune"} + kSlow + Args{"--knob", "first_bucket_bytes"})["knob"],
            "first_bucket_bytes");
}

TEST(Tune, CountsTheCostOfAnEpoch) {
  io::Json j = json_of(
      Args{"tune"} + kSlow +
      Args{"--price-per-gpu-hour", "2.5", "--epoch-samples", "1281167", "--deadline", "20min"});
  const io::Json& s = j["scaling"];
  ASSERT_EQ(s["by_ranks"].size(), 4u);  // 1, 2, 4, 8
  for (const io::Json& r : s["by_ranks"]) {
    std::int64_t a_step = 32 * r["ranks"].get<std::int64_t>();
    double steps = static_cast<double>((1281167 + a_step - 1) / a_step);
    EXPECT_NEAR(r["epoch_s"].get<double>(), steps * r["step_ps"].get<double>() / 1e12, 1e-6);
    EXPECT_NEAR(r["epoch_cost"].get<double>(),
                r["epoch_s"].get<double>() / 3600 * 2.5 * r["ranks"].get<double>(), 1e-9);
  }
  ASSERT_FALSE(s["cheapest_in_time"].is_null());
  for (const io::Json& r : s["by_ranks"]) {
    if (r["ranks"] == s["cheapest_in_time"]) {
      EXPECT_LE(r["epoch_s"].get<double>(), 1200);
    }
  }
}

TEST(Tune, OneRankHasNothingToTune) {
  Outcome o = ddpsim(Args{"tune"} + kSlow + Args{"--ranks", "1"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(has(o.out, "difference")) << o.out;
}

TEST(Tune, RefusesWhatItCannotAnswer) {
  struct Bad {
    Args args;
    const char* part;
  };
  for (const Bad& b : std::vector<Bad>{
           {{"--knob", "bucket_cap"}, "did you mean \"bucket_cap_mb\""},
           {{"--knob", "granularity"}, "is not a knob of pytorch_ddp"},
           {{"--values", "1,zwei"},
            "\"zwei\" is not a setting of bucket_cap_mb (a positive number of MiB)"},
           {{"--values", "-5"}, "\"-5\""},
           {{"--values", "1,,5"}, "\"\" is not a setting"},
           {{"--price-per-gpu-hour", "2"}, "--epoch-samples"},
           {{"--price-per-gpu-hour", "two", "--epoch-samples", "5"}, "expected a positive number"},
           {{"--epoch-samples", "1e6", "--deadline", "soon"}, "2h, 90min"},
           {{"--format", "junit"}, "not a format"},
           {{"--set", "bucket_cap_mb_list=[1,0]"}, "positive number of MiB"},
           {{"--set", "bucket_cap_mb_list=[1]", "--set", "bucket_cap_mb=5"},
            "give one of the two"}}) {
    Outcome o = ddpsim(Args{"tune"} + kSlow + b.args);
    EXPECT_EQ(o.code, 2) << b.args[1];
    EXPECT_EQ(o.out, "");
    EXPECT_TRUE(has(o.err, b.part)) << o.err;
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
  }
}

class ManyGradients : public InFolder {};
TEST_F(ManyGradients, AreChosenForOnlyAmongNamedSettings) {
  io::Json w = read_json("workloads/mlp784-50-10-cpu.json");
  const int n = 10'001;
  const auto backward = w["times"]["backward_ps"].get<std::int64_t>();
  w["tensors"] = w["arrival"] = w["times"]["ready_ps"] = io::Json::array();
  w["times"].erase("modules");
  for (int i = 0; i < n; ++i) {
    w["tensors"].push_back(
        {{"name", "t" + std::to_string(i)}, {"shape", {64 + i % 7}}, {"dtype", "float32"}});
    w["arrival"].push_back(n - 1 - i);
    w["times"]["ready_ps"].push_back(backward / n * (i + 1));
  }
  put(at("many.json"), w.dump());
  const Args question{"tune",    "--workload", at("many.json"), "--cluster", "ethernet-10g",
                      "--ranks", "2"};
  Outcome refused = ddpsim(question);
  EXPECT_EQ(refused.code, 2);
  EXPECT_TRUE(has(refused.err, "at most 10000 gradients, and this one has 10001")) << refused.err;
  EXPECT_TRUE(has(refused.err, "--values")) << refused.err;
  Outcome named = ddpsim(question + Args{"--values", "1,25", "--no-levers"});
  EXPECT_EQ(named.code, 0) << named.err;
}

TEST(ExplainStep, PathIsGaplessAndEndsWithTheStep) {
  for (const Args& question :
       {kSlow, Args{"--workload", "resnet50", "--cluster", "hgx-h100"},
        Args{"--workload", "resnet18-cpu", "--cluster", "testbed-star", "--ranks", "4"},
        Args{"--workload", "resnet50", "--cluster", "gpu-ethernet-25g", "--set",
             "slow_ranks.3=1.5"},
        Args{"--workload", "resnet50", "--cluster", "gpu-ethernet-25g", "--plan", "averaging"}}) {
    io::Json j = json_of(Args{"explain"} + question);
    std::int64_t at = 0;
    for (const io::Json& p : j["path"]) {
      EXPECT_LE(p["begin_ps"].get<std::int64_t>(), at + 1) << p["what"];
      at = p["end_ps"].get<std::int64_t>();
    }
    EXPECT_EQ(at, j["step_ps"].get<std::int64_t>());
    EXPECT_LE(j["path"].front()["begin_ps"].get<std::int64_t>(), 0);
    ASSERT_EQ(j["words"].size(), 1u);
    EXPECT_TRUE(has(j["words"][0].get<std::string>(), "optimizer"));
  }
}

TEST(ExplainStep, NamesWhatDecides) {
  Outcome o = ddpsim(Args{"explain"} + kSlow);
  ASSERT_EQ(o.code, 0) << o.err;
  for (const char* part :
       {"the copying for sockets decides", "backward until fc.weight",
        "all-reduces one after another", "collectives are exposed", "bandwidth", "10 % faster"})
    EXPECT_TRUE(has(o.out, part)) << part << "\n" << o.out;
  EXPECT_EQ(ddpsim(Args{"explain"} + kSlow + Args{"--format", "md"}).code, 0);
}

// Bytes counted evenly over a collective's time may be more than a link carries where several are
// in flight: the page says so.
TEST(ExplainStep, SaysWhatMoreThanAllOfALinkMeans) {
  for (auto [file, above] : {std::pair{"token-bucket", true}, std::pair{"resnet50-hgx", false}}) {
    Outcome o =
        ddpsim({"explain", source_path(std::string("tests/golden/scenarios/") + file + ".json")});
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_TRUE(has(o.out, "link needed")) << o.out;
    EXPECT_EQ(has(o.out, "above 100 %: bytes are counted evenly"), above) << o.out;
  }
}

TEST(Headings, SayWhatIsSetOfNcclAndWhatBecomesOfJitter) {
  const Args nccl{"--set", "nccl=2.26", "--set", "NCCL_ALGO=allreduce:tree"};
  const Args jitter{"--set", "jitter={\"cv\":0.03,\"seed\":1,\"samples\":3}"};
  for (const Args& command : {Args{"predict"}, Args{"tune", "--values", "5,25"}, Args{"explain"}}) {
    EXPECT_TRUE(has(ddpsim(command + kSlow + nccl).out, "NCCL 2.26, NCCL_ALGO=allreduce:tree"))
        << command[0];
    if (command[0] != "tune") {
      EXPECT_FALSE(has(ddpsim(command + kSlow).out, "NCCL 2.")) << command[0];
    }  // it has levers of NCCL's
    if (command[0] == "predict") continue;
    const char* said = command[0] == "tune" ? "the mean of 3 with the scenario's jitter (cv 0.03)"
                                            : "jitter (cv 0.03) is left out";
    EXPECT_TRUE(has(ddpsim(command + kSlow + jitter).out, said)) << command[0];
    EXPECT_EQ(json_of(command + kSlow + jitter)["notes"].size(), 1u) << command[0];
    EXPECT_EQ(json_of(command + kSlow)["notes"].size(), 0u) << command[0];
  }
}

TEST(Terminal, SaysWhatAMissingArgumentIs) {
  for (const auto& [command, part] : std::vector<std::pair<std::string, std::string>>{
           {"show", "show: \"what\" is missing: program, buckets"},
           {"compare", "compare: \"predicted\" is missing: predicted Run"},
           {"import", "import of what? Known are nccl-tests"}}) {
    Outcome o = ddpsim({command});
    EXPECT_EQ(o.code, 2);
    EXPECT_TRUE(has(o.err, part)) << o.err;
  }
}

TEST(Terminal, LinesFitIn160Columns) {
  const Args cpu{"--workload",   "resnet18-cpu", "--cluster",
                 "testbed-star", "--set",        "plan.backend=tcp"};
  for (const Args& a :
       {Args{"list"}, Args{"doctor"}, Args{"--help"}, Args{"sweep", "--help"},
        Args{"run", "--help"}, Args{"topology", "show", "dgx-h100"}, Args{"predict"} + cpu,
        Args{"tune"} + cpu, Args{"explain"} + cpu, Args{"tune"} + kSlow, Args{"explain"} + kSlow,
        Args{"tune"} + kSlow +
            Args{"--set", "NCCL_ALGO=allreduce:tree,ring", "--set", "NCCL_PROTO=^LL128"},
        Args{"explain", "--cluster", "dgx-h100", "--set", "cluster.hosts=4"},
        Args{"explain", "--op", "send_recv", "--cluster", "hgx-h100"},
        Args{"explain", "--cluster", "hgx-h100", "--graph",
             source_path("tests/data/nccl/graph_8gpus.xml")},
        Args{"show", "program", "--workload", "bert-base", "--cluster", "dgx-h100"}}) {
    Outcome o = ddpsim(a);
    EXPECT_EQ(o.code, 0) << o.err;
    for (std::size_t from = 0; from < o.out.size();) {
      std::size_t end = std::min(o.out.find('\n', from), o.out.size());
      EXPECT_LE(end - from, 160u) << a[0] << ": " << o.out.substr(from, end - from);
      from = end + 1;
    }
  }
}

TEST(ExplainStep, IsNotAskedTogetherWithACollective) {
  for (const Args& a : {kSlow + Args{"--op", "all_reduce"}, kSlow + Args{"--bytes", "1MiB"},
                        Args{"--cluster", "hgx-h100", "--plan", "averaging"},
                        Args{"--cluster", "hgx-h100", "--format", "md"}}) {
    Outcome o = ddpsim(Args{"explain"} + a);
    EXPECT_EQ(o.code, 2);
    EXPECT_EQ(o.out, "");
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
  }
}

}  // namespace
}  // namespace ddpsim::test
