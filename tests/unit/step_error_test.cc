// What the interval of a GPU is made of that nobody measured here.
#include "sim/predict/step_error.h"

#include <cmath>

#include <gtest/gtest.h>

#include "sim/io/files.h"
#include "sim/validation/steps.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

using namespace validation;

// The fit is `ddpsim validate --steps`, whose budget holds both ends of each family.
TEST(StepErrors, AreWhatPublishedStepsSay) {
  const std::string file = source_path("tests/validation/steps.json");
  const io::Json budget = io::parse_json(io::read_file(file), file);
  int checked = 0;
  const char* const questions[] = {"one_gpu", "several_gpus", "one_host", "several_hosts"};
  for (std::size_t k = 0; k < std::size(questions); ++k) {
    const predict::StepError& e = predict::step_errors()[k];
    for (const io::Json& limit : budget["limits"]) {
      const std::string what = limit["what"];
      for (auto [end, value] : {std::pair{".interval.low", e.low}, {".interval.high", e.high}}) {
        if (what != questions[k] + std::string(end)) continue;
        EXPECT_GE(value, limit["min"].get<double>()) << what;
        EXPECT_LE(value, limit["max"].get<double>()) << what;
        ++checked;
      }
    }
  }
  EXPECT_EQ(checked, 8);
}

StepResult off_by(const std::string& source, double measured_over_predicted) {
  StepResult r;
  r.row.id = source + std::to_string(measured_over_predicted);
  r.row.source = source;
  r.row.workload = "resnet50";
  r.error = 1 / measured_over_predicted - 1;
  return r;
}

// Three sources whose rows are 1, 1.21 and 1.1 times the predicted: of means 0, 2 l and l (l the
// logarithm of 1.1), l is the middle, l^2 the variance of sources, and t of two degrees 1.886.
TEST(StepErrors, AreOfAnotherSource) {
  StepsReport r = judge_steps(
      {off_by("a", 1), off_by("a", 1), off_by("a", 1), off_by("b", 1.21), off_by("c", 1.1)});
  ASSERT_EQ(r.intervals.size(), 1U);
  const StepInterval& i = r.intervals[0];
  EXPECT_EQ(i.rows, 5U);
  EXPECT_EQ(i.sources, 3U);
  const double off = std::sqrt(4.0 / 3) * 1.886;  // times l
  EXPECT_NEAR(std::log(i.low), (1 - off) * std::log(1.1), 2e-3);
  EXPECT_NEAR(std::log(i.high), (1 + off) * std::log(1.1), 2e-3);
  // Of a's rows none counts more for being three; b and c hold it, by Student's one degree.
  ASSERT_EQ(i.left_out.size(), 3U);
  EXPECT_EQ(i.left_out[0].source, "a");
  EXPECT_EQ(i.left_out[0].n, 3U);
  EXPECT_EQ(i.left_out[0].within, 3U);
  EXPECT_DOUBLE_EQ(values(r).at("one_gpu.interval.left_out"), 1);
}

}  // namespace
}  // namespace ddpsim::test
