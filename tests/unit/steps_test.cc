// Published training steps: what a file may say, what a step is, and how rows are pooled.
#include <functional>

#include <gtest/gtest.h>

#include "sim/io/files.h"
#include "sim/io/read_steps.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

using namespace validation;
using io::Json;

Json step_row(const std::string& id, int ranks, double rate) {
  return {{"id", id},
          {"workload", "resnet50"},
          {"batch", 32},
          {"precision", "fp16"},
          {"settings", {{"memory_format", "channels_last"}}},
          {"gpu", "V100-16"},
          {"ranks", ranks},
          {"hosts", 1},
          {"cluster", "dgx1-v100"},
          {"profile", "v100-sxm2.datasheet"},
          {"system", "torch DDP"},
          {"plan", {{"system", "pytorch_ddp"}, {"accumulation_steps", 2}}},
          {"measured", {{"samples_per_s", rate}}}};
}
Json steps_file(const Json& rows) {
  return {{"schema", "ddpsim.steps/1"},
          {"evidence", "published"},
          {"name", "somebody"},
          {"url", "https://example.org"},
          {"place", "README"},
          {"step", "all of it"},
          {"rows", rows}};
}

TEST(PublishedSteps, AreReadWithWhatTheyArePredictedWith) {
  Json several = step_row("b", 8, 2000);
  several["one_gpu"] = "a";
  several["off"] = {{"cause", "a slow switch"}, {"settles", "another switch"}};
  auto rows = io::read_steps(steps_file({step_row("a", 1, 320), several}), "f");
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[1].one_gpu, "a");
  EXPECT_EQ(rows[1].source, "somebody");
  EXPECT_EQ(rows[1].off, "a slow switch");
  EXPECT_EQ(rows[1].settles, "another switch");
  EXPECT_EQ(rows[0].off, "");
  EXPECT_EQ(rows[1].sets,
            (std::vector<std::string>{"workload.batch=32", "workload.precision=\"fp16\"",
                                      "cluster.hosts=1", "workload.memory_format=\"channels_last\"",
                                      "plan.accumulation_steps=2", "plan.system=\"pytorch_ddp\""}));
  EXPECT_EQ(measured_step(rows[0]).ps, 200'000'000'000);  // 2 x 32 samples at 320 a second
  EXPECT_EQ(measured_step(rows[1]).ps, 256'000'000'000);
}

TEST(PublishedSteps, OfFilesThatCannotBeMeantAreRefused) {
  auto refused = [](const std::function<void(Json&)>& change) {
    Json several = step_row("b", 8, 2000);
    several["one_gpu"] = "a";
    Json file = steps_file({step_row("a", 1, 320), several});
    change(file);
    try {
      io::read_steps(file, "f");
    } catch (const InputError& e) {
      return e.where;
    }
    return std::string("read");
  };
  EXPECT_EQ(refused([](Json&) {}), "read");
  EXPECT_EQ(refused([](Json& f) { f["evidence"] = "system"; }), "f#/evidence");
  EXPECT_EQ(refused([](Json& f) { f["rows"][0]["bach"] = 3; }), "f#/rows/0/bach");
  EXPECT_EQ(refused([](Json& f) { f["rows"][1]["id"] = "a"; }), "f#/rows/1/id");
  EXPECT_EQ(refused([](Json& f) { f["rows"][1]["off"] = {{"cause", "x"}}; }), "f#/rows/1/off");
  EXPECT_EQ(refused([](Json& f) { f["rows"][1]["one_gpu"] = "c"; }), "f#/rows/1/one_gpu");
  EXPECT_EQ(refused([](Json& f) { f["rows"][0]["batch"] = 64; }), "f#/rows/1/one_gpu");
  EXPECT_EQ(refused([](Json& f) { f["rows"][0]["ranks"] = 2; }), "f#/rows/1/one_gpu");
  EXPECT_EQ(refused([](Json& f) { f["rows"][0]["measured"]["s_per_iteration"] = 1; }),
            "f#/rows/0/measured");
  EXPECT_EQ(refused([](Json& f) {
              f["rows"][0]["measured"] = {{"samples_per_s", 0}};
            }),
            "f#/rows/0/measured/samples_per_s");
  EXPECT_EQ(refused([](Json& f) {
              f["rows"][1]["measured"] = {{"ms_forward_backward", 3}};
            }),
            "f#/rows/1/measured/ms_forward_backward");
}

StepResult judged_step(const std::string& source, const std::string& generation, double error) {
  StepResult r;
  r.row.id = source + std::to_string(error);
  r.row.source = source;
  r.row.workload = "workloads/bert-large-128.json";
  r.generation = generation;
  r.measured = {1'000'000};
  r.predicted = {static_cast<std::int64_t>(1e6 * (1 + error))};
  r.low = {900'000};
  r.high = {1'100'000 + r.predicted.ps - 1'000'000};
  r.error = error;
  return r;
}

TEST(PublishedSteps, ArePooledByPartAndNeverWithThoseThatWereFitted) {
  StepResult fitted = judged_step("a", "Volta", 5);
  fitted.row.fitted = "a constant";
  StepResult missing = judged_step("c", "", 0);
  missing.why_not = "no profile";
  StepsReport r = judge_steps({judged_step("a", "Volta", -0.1), judged_step("a", "Volta", -0.3),
                               judged_step("b", "Ampere", 0.5), fitted, missing});
  EXPECT_EQ(r.rows, 5U);
  EXPECT_EQ(r.predicted, 4U);
  auto v = values(r);
  EXPECT_EQ(v.at("one_gpu.n"), 3);
  EXPECT_DOUBLE_EQ(v.at("one_gpu.bias"), -0.1);
  EXPECT_DOUBLE_EQ(v.at("one_gpu.median"), 0.3);
  EXPECT_DOUBLE_EQ(v.at("one_gpu.p95"), 0.5);
  EXPECT_DOUBLE_EQ(v.at("one_gpu.coverage"), 2.0 / 3);
  EXPECT_DOUBLE_EQ(v.at("one_gpu.source.a.bias"), -0.2);
  EXPECT_DOUBLE_EQ(v.at("one_gpu.generation.Ampere.median"), 0.5);
  EXPECT_DOUBLE_EQ(v.at("one_gpu.sources"), 0.35);
  EXPECT_DOUBLE_EQ(v.at("one_gpu.worst_source"), 0.5);
  EXPECT_EQ(r.sources.at(StepQuestion::OneGpu).worst_generation, "Ampere");
  ASSERT_EQ(r.in_sample.size(), 1U);
  EXPECT_DOUBLE_EQ(r.in_sample[0].median, 5);
  for (const StepGroup& g : r.groups)
    if (g.by == "source" && g.name == "a") {
      EXPECT_DOUBLE_EQ(g.left_out.value(), 0.5);
    }
  EXPECT_EQ(v.count("one_gpu.family.bert.n"), 1U);
}

TEST(PublishedSteps, CountWhichOfThemAreSetAsideByThemselves) {
  StepResult own = judged_step("a", "Volta", 0.7);
  own.row.set_aside = "shorter sequences than stated";
  StepResult added = own;
  added.question = StepQuestion::OneHost;
  StepResult other = judged_step("a", "Volta", 0.1);
  other.question = StepQuestion::OneHost;
  StepsReport r = judge_steps({own, added, other});
  ASSERT_FALSE(r.groups.empty());
  const StepGroup& all = r.groups.front();
  EXPECT_EQ(all.question, StepQuestion::OneHost) << "its own step is in no group";
  EXPECT_EQ(all.n, 2U);
  EXPECT_EQ(all.set_aside, 1U);
}

TEST(PublishedSteps, OfTheTreeAreAllThere) {
  std::size_t rows = 0;
  for (const std::string& file : io::list_files(source_path("calib/published/steps"), {".json"}))
    rows += io::read_steps(io::parse_json(io::read_file(file), file), file).size();
  EXPECT_EQ(rows, 298U);
}

// Two sources; the first is best with the first constant, the second with the second.
TEST(PublishedSteps, LeftOutChooseTheConstantOfTheOthers) {
  auto result = [](const std::string& source, const std::string& id, double error) {
    StepResult r;
    r.row.source = source;
    r.row.id = id;
    r.generation = "Volta";
    r.error = error;
    return r;
  };
  std::vector<std::vector<StepResult>> by_constant{
      {result("a", "a1", 0.01), result("b", "b1", 0.4), result("b", "b2", 0.3)},
      {result("a", "a1", 0.5), result("b", "b1", 0.02), result("b", "b2", 0.03)}};
  by_constant[0].push_back(result("b", "b3", 0));
  by_constant[1].push_back(result("b", "b3", 9));
  for (auto& rows : by_constant) rows.back().row.set_aside = "does not choose";
  auto out = left_out(by_constant, "source");
  ASSERT_EQ(out.size(), 4U);
  EXPECT_EQ(out[0].error, 0.5) << "a, by what is best for b";
  EXPECT_EQ(out[1].error, 0.4) << "b, by what is best for a";
  EXPECT_EQ(out[0].question, StepQuestion::SourceLeftOut);
  EXPECT_TRUE(left_out(by_constant, "generation").empty()) << "no other one";
}

}  // namespace
}  // namespace ddpsim::test
