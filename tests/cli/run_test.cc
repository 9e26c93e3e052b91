// ddpsim run, calibrate, fit: on plain loopback, so that they work wherever tests do.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "sim/io/files.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

namespace fs = std::filesystem;
using Args = std::vector<std::string>;

Args operator+(Args a, const Args& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const Args kRun{"run", "--workload", "mlp784-50-10-cpu", "--cluster", "testbed-star", "--set", "cluster.hosts=3", "--steps", "3", "--loopback"};

struct Folder {
  fs::path path = fs::temp_directory_path() / ("ddpsim_run_test" + std::to_string(::getpid()));
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
};

TEST(RunCommand, ExecutesEveryKindOfProgram) {
  for (const Args& more : {Args{}, Args{"--set", "comm_hook=fp16_compress"}, Args{"--set", "accumulation_steps=2"}, Args{"--set", "find_unused_parameters=true"},
                           Args{"--set", "static_graph=true"}, Args{"--plan", "averaging"}, Args{"--plan", "averaging", "--set", "async_op=true", "--set", "tcp_streams=3"},
                           Args{"--set", "ranks=2", "--set", "rank_order=[2,0]", "--set", "slow_ranks.1=1.5"}, Args{"--compute", "real"},
                           Args{"--set", "cluster.hosts=4", "--set", "ranks=2", "--set", "other_jobs=[{\"rank_order\":[2,3]}]"}}) {
    Outcome o = ddpsim(kRun + more);
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(o.err, "");
    EXPECT_NE(o.out.find("plain loopback, NOT shaped: asked for"), std::string::npos) << o.out;
    EXPECT_NE(o.out.find("measured"), std::string::npos);
    EXPECT_NE(o.out.find("predicted"), std::string::npos);
  }
}

TEST(RunCommand, ExecutesTheLanesOfAGpu) {
  Outcome o = ddpsim({"run", "--workload", "mlp784-50-10", "--cluster", "testbed-gpu", "--set", "cluster.hosts=2", "--steps", "2", "--loopback", "--format", "json"});
  ASSERT_EQ(o.code, 0) << o.err;
  io::Json run = io::parse_json(o.out, "stdout");
  bool comm = false;
  for (const auto& s : run["spans"]) comm = comm || s["lane"] == "comm";
  EXPECT_TRUE(comm);
}

TEST(RunCommand, WritesARunThatValidateReads) {
  Folder f;
  Outcome o = ddpsim(kRun + Args{"--runs", f.path.string(), "--split", "held_out"});
  ASSERT_EQ(o.code, 0) << o.err;
  auto files = io::list_files(f.path.string(), {".json.gz"});
  ASSERT_EQ(files.size(), 1u);
  io::Json run = io::parse_json(io::read_file(files[0]), files[0]);
  EXPECT_EQ(run["case"]["split"], "held_out");
  EXPECT_EQ(run["origin"]["hosts"], "loopback");
  std::string scenario = f.path.string() + "/scenarios/" + run["case"]["scenario"].get<std::string>() + ".json";
  ASSERT_TRUE(io::exists(scenario));
  // The stored scenario is the same question: it hashes to itself.
  Outcome again = ddpsim({"run", scenario, "--steps", "2", "--loopback", "--format", "json"});
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(io::parse_json(again.out, "stdout")["case"]["scenario"], run["case"]["scenario"]);
  Outcome v = ddpsim({"validate", "--runs", f.path.string(), "--format", "json"});
  io::Json j = io::parse_json(v.out, "stdout");
  ASSERT_EQ(j["pairs"].size(), 1u);
  EXPECT_TRUE(j["pairs"][0]["loopback"].get<bool>());
  EXPECT_TRUE(j["errors"].empty()) << j["errors"].dump();
}

TEST(RunCommand, RefusesInASentence) {
  for (const auto& [more, says] : std::vector<std::pair<Args, std::string>>{{{"--backend", "smoke"}, "--backend smoke"},
                                                                            {{"--compute", "fast"}, "expected timed or real"},
                                                                            {{"--split", "train"}, "expected fit or held_out"},
                                                                            {{"--set", "tcp_streams=0"}, "1 to 16"},
                                                                            {{"--set", "other_jobs=[{\"rank_order\":[0,1]}]"}, "already has a rank"}}) {
    Outcome o = ddpsim(kRun + more);
    EXPECT_EQ(o.code, 2) << o.out;
    EXPECT_NE(o.err.find(says), std::string::npos) << o.err;
    EXPECT_EQ(o.out, "");
  }
}

TEST(RunCommand, NeedsTwoSteadySteps) {
  Outcome o = ddpsim({"run", "--workload", "mlp784-50-10-cpu", "--cluster", "testbed-star", "--steps", "1"});
  EXPECT_EQ(o.code, 2);
  EXPECT_NE(o.err.find("2 to 64"), std::string::npos) << o.err;
}

TEST(FitCommand, RefusesAnUnknownSplit) {
  Outcome o = ddpsim({"fit", "--split", "tuning"});
  EXPECT_EQ(o.code, 2);
  EXPECT_NE(o.err.find("expected fit or held_out"), std::string::npos) << o.err;
}

TEST(FitCommand, RefusesAFolderWithoutSamples) {
  Folder f;
  fs::create_directories(f.path / "scenarios");
  Outcome o = ddpsim({"fit", "--runs", f.path.string()});
  EXPECT_EQ(o.code, 2);
  EXPECT_NE(o.err.find("all_reduce samples"), std::string::npos) << o.err;
}

}  // namespace
}  // namespace ddpsim::test
