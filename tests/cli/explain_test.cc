// ddpsim explain --op, export nccl-tuner --cluster, fit --backend nccl-tests, validate --collectives.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "sim/io/files.h"
#include "sim/io/json_reader.h"
#include "sim/report/nccl_tuner.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

using Args = std::vector<std::string>;
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Explain, NamesTheChoiceThePricesAndWhatLimitsThem) {
  Outcome o = ddpsim({"explain", "--op", "all_reduce", "--bytes", "25MiB", "--cluster", "hgx-h100"});
  ASSERT_EQ(o.code, 0) << o.err;
  for (const char* part : {"\n* ", "ring/simple", "nvls/simple", "NCCL says", "ddpsim", "limited by", "nvlink", "NCCL's choice by size:"}) EXPECT_TRUE(has(o.out, part)) << part << "\n" << o.out;
}

TEST(Explain, SaysWhereTheTimeFallsAlthoughTheSizeGrows) {
  Outcome o = ddpsim({"explain", "--cluster", "gh200x4-slingshot", "--nccl", "2.23.4"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(has(o.out, "NCCL 2.23;")) << o.out;
}

// Before 2.24 NCCL falls back to a ring where its settings leave nothing.
TEST(Explain, OldVersionsFallBackToRings) {
  Outcome o = ddpsim({"explain", "--op", "all_gather", "--cluster", "hgx-h100", "--set", "NCCL_ALGO=tree", "--nccl", "2.20"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(has(o.out, "* ring/")) << o.out;
  o = ddpsim({"explain", "--op", "broadcast", "--cluster", "hgx-h100", "--set", "NCCL_ALGO=nvls", "--nccl", "2.23", "--format", "json"});
  ASSERT_EQ(o.code, 0) << o.err;
  io::Json j = io::parse_json(o.out, "stdout");
  ASSERT_EQ(j["candidates"].size(), 1u);
  EXPECT_EQ(j["candidates"][0]["chosen"], true);
}

TEST(Explain, JsonHoldsTheParts) {
  Outcome o = ddpsim({"explain", "--bytes", "1MiB", "--cluster", "dgx-a100", "--ranks", "8", "--set", "NCCL_ALGO=ring", "--format", "json"});
  ASSERT_EQ(o.code, 0) << o.err;
  io::Json j = io::parse_json(o.out, "stdout");
  int chosen = 0;
  ASSERT_FALSE(j["candidates"].empty());
  for (const io::Json& c : j["candidates"]) {
    EXPECT_EQ(c["algorithm"], "ring");
    chosen += c["chosen"].get<bool>();
    EXPECT_EQ(c["price_ps"].get<std::int64_t>(), c["base_ps"].get<std::int64_t>() + c["steps_ps"].get<std::int64_t>() + c["fill_ps"].get<std::int64_t>() + c["transfer_ps"].get<std::int64_t>());
  }
  EXPECT_EQ(chosen, 1);
}

TEST(Explain, RefusesWhatItCannotAnswer) {
  struct Bad {
    Args args;
    const char* part;
  };
  for (const Bad& b : {Bad{{"explain"}, "no cluster given"},
                       Bad{{"explain", "--cluster", "hgx-h10"}, "hgx-h100"},
                       Bad{{"explain", "--cluster", "ethernet-10g"}, "GPUs"},
                       Bad{{"explain", "--cluster", "hgx-h100", "--op", "alreduce"}, "all_reduce"},
                       Bad{{"explain", "--cluster", "hgx-h100", "--bytes", "25"}, "unit"},
                       Bad{{"explain", "--cluster", "hgx-h100", "--bytes", "0B"}, "at least one byte"},
                       Bad{{"explain", "--cluster", "hgx-h100", "--ranks", "9"}, "8 devices"},
                       Bad{{"explain", "--cluster", "hgx-h100", "--ranks", "1"}, "two ranks"},
                       Bad{{"explain", "--cluster", "hgx-h100", "--nccl", "two"}, "version"},
                       Bad{{"explain", "--cluster", "hgx-h100", "--nccl", "2.7"}, "2.19"},
                       Bad{{"explain", "--cluster", "hgx-h100", "--set", "NCCL_ALGO=rings"}, "none of ring"},
                       Bad{{"explain", "--cluster", "hgx-h100", "--set", "NCCL_ALGOS=ring"}, "NCCL_ALGO"},
                       Bad{{"explain", "--cluster", "hgx-h100", "--set", "NCCL_ALGO=pat"}, "leave nothing"},
                       Bad{{"explain", "--cluster", "hgx-h100", "--set", "bucket_cap_mb=3"}, "cluster and a profile only"},
                       Bad{{"export", "nccl-tuner"}, "--cluster"},
                       Bad{{"export", "nccl-tuner", "--cluster", "hgx-h100", "--set", "NCCL_ALGO=collnetchain"}, "leaves nothing"}}) {
    Outcome o = ddpsim(b.args);
    EXPECT_EQ(o.code, 2) << o.out;
    EXPECT_TRUE(has(o.err, b.part)) << b.part << "\n" << o.err;
    EXPECT_EQ(o.out, "");
  }
}

TEST(ExportTuner, WritesPricesWithExplicitChannels) {
  Outcome o = ddpsim({"export", "nccl-tuner", "--cluster", "hgx-h100"});
  ASSERT_EQ(o.code, 0) << o.err;
  std::vector<report::TunerRow> rows = report::parse_tuner_csv(o.out, "stdout");
  ASSERT_FALSE(rows.empty());
  EXPECT_EQ(report::validate(rows).message, "");
  for (const report::TunerRow& r : rows) {
    EXPECT_GE(r.channels, 1);
    EXPECT_EQ(r.ranks, 8);
  }
}

// A table made of the mechanism itself, with a known latency and efficiency: the fit finds them.
TEST(FitNcclTests, FindsWhatATableWasMadeWith) {
  namespace fs = std::filesystem;
  fs::path folder = fs::path(testing::TempDir()) / ("ddpsim_fit_" + std::to_string(::getpid()));
  fs::create_directories(folder);
  io::Json run = read_json("calib/published/alps_gh200_g00004_n0001_slingshot.json");
  io::Json profile = read_json("calib/profiles/gh200-96gb.datasheet.json");
  profile["transports"]["nvlink"]["step_factor"] = 1.5;
  profile["transports"]["nvlink"]["efficiency"]["mid"] = 0.824 * 0.9;
  std::string other = (folder / "other.json").string();
  io::write_file(other, profile.dump());
  for (io::Json& s : run["samples"]) {
    Outcome o = ddpsim({"explain", "--cluster", "gh200x4-slingshot", "--ranks", "4", "--nccl", "2.23.4", "--profile", other, "--bytes",
                        std::to_string(s["parameters"]["bytes"].get<std::int64_t>()) + "B", "--format", "json"});
    ASSERT_EQ(o.code, 0) << o.err;
    io::Json answer = io::parse_json(o.out, "stdout");
    for (const io::Json& c : answer["candidates"])
      if (c["chosen"].get<bool>()) s["durations_ps"] = io::Json::array({c["price_ps"]});
  }
  io::write_file((folder / "table.json").string(), run.dump());
  fs::path runs = folder / "runs";
  fs::create_directories(runs);
  fs::rename(folder / "table.json", runs / "table.json");
  std::string out = (folder / "fitted.json").string();
  Outcome o = ddpsim({"fit", "--backend", "nccl-tests", "--runs", runs.string(), "--base", "gh200-96gb.datasheet", "--name", "fitted", "--out", out});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(has(o.out, "steps x 1.50, efficiency x 0.90")) << o.out;
  Outcome bad = ddpsim({"fit", "--backend", "nccl-tests", "--runs", runs.string(), "--base", "h100-sxm.datasheet"});
  EXPECT_EQ(bad.code, 2);
  EXPECT_TRUE(has(bad.err, "h100-sxm.datasheet")) << bad.err;
  EXPECT_EQ(ddpsim({"fit", "--backend", "nccl-tests", "--runs", runs.string(), "--base", "testbed.datasheet"}).code, 2);
  fs::remove_all(folder);
}

TEST(ValidateCollectives, RefusesWhatItCannotJudge) {
  EXPECT_EQ(ddpsim({"validate", "--published", "/nowhere"}).code, 2);
  EXPECT_EQ(ddpsim({"validate", "--collectives", "--published", "/nowhere"}).code, 2);
  EXPECT_EQ(ddpsim({"validate", "--collectives", "--format", "junit"}).code, 2);
  for (const char* flag : {"--budget", "--profile", "--without"}) EXPECT_EQ(ddpsim({"validate", "--collectives", flag, "x"}).code, 2) << flag;
  EXPECT_EQ(ddpsim({"validate", "--collectives", "--published", source_path("workloads")}).code, 2);
}

}  // namespace
}  // namespace ddpsim::test
