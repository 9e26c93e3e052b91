// ddpsim validate --steps, on a folder of published steps made here.
#include <filesystem>

#include <gtest/gtest.h>
#include <unistd.h>

#include "sim/io/files.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

namespace fs = std::filesystem;
using io::Json;

class ValidateSteps : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("ddpsim_steps_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string at(const std::string& name) const { return (folder_ / name).string(); }

  static Json row(const std::string& id, int ranks, const Json& measured) {
    return {{"id", id},
            {"workload", "resnet50"},
            {"batch", 64},
            {"precision", "fp32"},
            {"gpu", "V100"},
            {"ranks", ranks},
            {"hosts", ranks > 8 ? 2 : 1},
            {"cluster", "dgx1-v100"},
            {"profile", "v100-sxm2.datasheet"},
            {"system", "torch DDP"},
            {"plan", {{"system", "pytorch_ddp"}, {"pytorch", "1.13"}}},
            {"measured", measured}};
  }
  void write(const Json& rows) const {
    io::write_file(at("somebody.json"), Json{{"schema", "ddpsim.steps/1"},
                                             {"evidence", "published"},
                                             {"name", "somebody"},
                                             {"url", "https://example.org"},
                                             {"place", "README"},
                                             {"step", "all of it"},
                                             {"rows", rows}}
                                            .dump());
  }
  Json judged() const {
    return Json::parse(
        ddpsim({"validate", "--steps", "--published", folder_.string(), "--format", "json"}).out);
  }
  fs::path folder_;
};

// What `ddpsim predict` says of the same question.
double step_ps(const std::string& ranks, const std::vector<std::string>& more) {
  std::vector<std::string> words = {
      "predict", "--workload",        "resnet50", "--cluster",    "dgx1-v100", "--ranks", ranks,
      "--set",   "workload.batch=64", "--set",    "pytorch=1.13", "--format",  "json"};
  words.insert(words.end(), more.begin(), more.end());
  return Json::parse(ddpsim(words).out)["summary"]["step_ps"].get<double>();
}

TEST_F(ValidateSteps, SayWhyARowIsNotPredicted) {
  Json wrong = row("b", 8, {{"samples_per_s", 300}});
  wrong["workload"] = "resnet51";
  write({row("a", 1, {{"samples_per_s", 320}}), wrong});
  const std::string why = judged()["results"][1]["not_predicted"];
  const Outcome o = ddpsim({"predict", "--workload", "resnet51", "--cluster", "dgx1-v100"});
  EXPECT_EQ(o.err.rfind("ddpsim: " + why.substr(0, why.find(';')), 0), 0U) << why << "\n" << o.err;
  EXPECT_NE(why.find("resnet51"), std::string::npos) << why;
  EXPECT_GT(why.size(), why.find(": ") + 10) << why;
}

TEST_F(ValidateSteps, PredictsAsPredictDoesAndScalesToTheRowOfOneGpu) {
  Json several = row("b", 8, {{"s_per_iteration", 0.25}});
  Json hosts = row("c", 16, {{"samples_per_s", 4000}});
  several["one_gpu"] = hosts["one_gpu"] = "a";
  Json gone = row("d", 1, {{"samples_per_s", 300}});
  gone["profile"] = "no-such.datasheet";
  write({row("a", 1, {{"samples_per_s", 320}}), several, hosts, gone,
         row("e", 1, {{"ms_forward_backward", 150}})});
  Json answer = judged();
  EXPECT_EQ(answer["rows"], 5);
  EXPECT_EQ(answer["predicted"], 4);
  const Json& r = answer["results"];
  ASSERT_EQ(r.size(), 7U);
  EXPECT_EQ(r[0]["measured_ps"], 200'000'000'000);
  EXPECT_EQ(r[0]["predicted_ps"], step_ps("1", {}));
  EXPECT_EQ(r[1]["question"], "several_gpus");
  EXPECT_EQ(r[1]["predicted_ps"], step_ps("8", {}));
  EXPECT_EQ(r[2]["question"], "one_host");
  EXPECT_EQ(r[2]["predicted_ps"], step_ps("8", {"--samples-per-s", "320"}));
  EXPECT_EQ(r[4]["question"], "several_hosts");
  EXPECT_EQ(r[4]["predicted_ps"],
            step_ps("16", {"--set", "cluster.hosts=2", "--measured-step", "200ms"}));
  EXPECT_EQ(r[5]["not_predicted"], "no profile no-such.datasheet is shipped");
  EXPECT_LT(r[6]["predicted_ps"], r[0]["predicted_ps"]);  // no optimizer
}

TEST_F(ValidateSteps, SaysWhereTheFigureStandsThatRowsAreSetAside) {
  Json one = row("a", 1, {{"samples_per_s", 320}});
  Json several = row("b", 8, {{"s_per_iteration", 0.25}});
  one["set_aside"] = several["set_aside"] = "sequences are shorter than stated";
  several["one_gpu"] = "a";
  write({one, several});
  const Json groups = judged()["groups"];
  ASSERT_FALSE(groups.empty());
  EXPECT_EQ(groups[0]["question"], "one_host");
  EXPECT_EQ(groups[0]["set_aside"], 1);
  for (const char* format : {"table", "md"}) {
    std::string said =
        ddpsim({"validate", "--steps", "--published", folder_.string(), "--format", format}).out;
    EXPECT_NE(said.find("1 (1 set aside)"), std::string::npos) << said;
  }
}

// The interval says of what it is made, by the family of the question.
TEST(Intervals, SayOfWhatTheyAreMade) {
  auto of = [](std::vector<std::string> more, const char* family) {
    std::vector<std::string> words = {"predict",  "--workload", "resnet50", "--cluster",
                                      "dgx-a100", "--format",   "json"};
    words.insert(words.end(), more.begin(), more.end());
    Json j = Json::parse(ddpsim(words).out);
    const double step = j["summary"]["step_ps"], low = j["summary"]["step_low_ps"],
                 high = j["summary"]["step_high_ps"];
    words[words.size() - more.size() - 1] = "table";
    EXPECT_NE(ddpsim(words).out.find(std::string("published steps (") + family + "), each of "),
              std::string::npos)
        << ddpsim(words).out;
    return std::pair{low / step, high / step};
  };
  auto [one_low, one_high] = of({"--ranks", "1"}, "one GPU");
  auto [known_low, known_high] =
      of({"--ranks", "8", "--measured-step", "90ms"}, "one host, computation as measured");
  of({"--ranks", "8"}, "several GPUs");
  of({"--ranks", "8", "--plan", "fsdp2"}, "sharded training");
  EXPECT_LT(one_low, known_low) << "what one GPU takes is known";
  EXPECT_GT(one_high, known_high);
  EXPECT_LT(known_low, 0.95);
}

TEST_F(ValidateSteps, GatesAndShowsWhatIsNotPredicted) {
  Json gone = row("d", 1, {{"samples_per_s", 300}});
  gone["profile"] = "no-such.datasheet";
  write({row("a", 1, {{"samples_per_s", 320}}), gone});
  auto limits = [&](const Json& list) {
    io::write_file(at("budget.json"), Json{{"schema", "ddpsim.budget/1"}, {"limits", list}}.dump());
    return ddpsim({"validate", "--steps", "--published", folder_.string()});
  };
  auto ok = limits({{{"what", "rows"}, {"min", 2}}});
  EXPECT_EQ(ok.code, 0) << ok.err;
  EXPECT_NE(ok.out.find("not predicted, 1 rows: no profile no-such.datasheet is shipped\n  d"),
            std::string::npos)
      << ok.out;
  auto bad = limits(
      {{{"what", "predicted"}, {"min", 2}}, {{"what", "one_gpu.source.other.bias"}, {"max", 1}}});
  EXPECT_EQ(bad.code, 1);
  EXPECT_NE(bad.err.find("predicted is 1, at least 2 is required"), std::string::npos) << bad.err;
  EXPECT_NE(bad.err.find("one_gpu.source.other.bias has no value"), std::string::npos) << bad.err;
}

TEST_F(ValidateSteps, FailsFastByErrorsAndStillJudgesIntervals) {
  write({row("a", 1, {{"samples_per_s", 320}}), row("b", 1, {{"samples_per_s", 310}})});
  auto fast = [&](const Json& limit) {
    io::write_file(at("budget.json"),
                   Json{{"schema", "ddpsim.budget/1"}, {"limits", Json::array({limit})}}.dump());
    auto done = ddpsim({"validate", "--steps", "--published", folder_.string(), "--fail-fast",
                        "--without", "burst", "--format", "json"});
    Json r = Json::parse(done.out)["results"][0];
    return std::pair{done.code, r["step_high_ps"].get<double>() > r["step_low_ps"].get<double>()};
  };
  EXPECT_EQ(fast({{"what", "one_gpu.median"}, {"max", 0}}), std::pair(1, false));
  EXPECT_EQ(fast({{"what", "one_gpu.median"}, {"max", 9}}), std::pair(0, true));
  EXPECT_EQ(fast({{"what", "one_gpu.coverage"}, {"min", 2}}), std::pair(1, true));
}

TEST_F(ValidateSteps, TakesAMechanismOut) {
  Json several = row("b", 8, {{"s_per_iteration", 0.25}});
  several["one_gpu"] = "a";
  write({row("a", 1, {{"samples_per_s", 320}}), several});
  double with = judged()["results"][2]["predicted_ps"];
  Json without = Json::parse(ddpsim({"validate", "--steps", "--published", folder_.string(),
                                     "--without", "copy_in", "--format", "json"})
                                 .out);
  EXPECT_LT(without["results"][2]["predicted_ps"].get<double>(), with);
}

TEST_F(ValidateSteps, RefusesWhatItCannotJudge) {
  EXPECT_EQ(ddpsim({"validate", "--steps", "--published", folder_.string()}).code, 2);  // no file
  EXPECT_EQ(ddpsim({"validate", "--steps", "--collectives"}).code, 2);
  EXPECT_EQ(ddpsim({"validate", "--steps", "--format", "junit"}).code, 2);
  EXPECT_EQ(ddpsim({"validate", "--collectives", "--fail-fast"}).code, 2);
  EXPECT_EQ(ddpsim({"validate", "--steps", "--without", "gravity"}).code, 2);
  EXPECT_EQ(ddpsim({"validate", "--steps", "--published", source_path("workloads")}).code, 2);
  for (const char* flag : {"--runs", "--profile", "--profiles", "--tolerance"})
    EXPECT_EQ(ddpsim({"validate", "--steps", flag, "1"}).code, 2) << flag;
}

}  // namespace
}  // namespace ddpsim::test
