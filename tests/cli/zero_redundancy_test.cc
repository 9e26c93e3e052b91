// `--plan zero_redundancy` in every command that makes sense, and what it refuses.
#include <gtest/gtest.h>

#include "tests/support/files.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

Args question(const Args& command, const Args& more) {
  Args out = command;
  for (const char* a :
       {"--workload", "cnn-cpu", "--cluster", "testbed-torch", "--plan", "zero_redundancy"})
    out.emplace_back(a);
  out.insert(out.end(), more.begin(), more.end());
  return out;
}
TEST(ZeroRedundancyCommand, AnswersInItsOwnWords) {
  expect_answer(question({"predict"}, {}),
                {"DDP with ZeroRedundancyOptimizer over gloo", "broadcast_param/17.weight",
                 "memory", "parameters_as_bucket_view=true"});
  expect_answer(
      question({"predict"}, {"--set", "parameters_as_bucket_view=true"}),
      {"parameters_as_bucket_view=true", "broadcast_params/bucket.2", "from source reading"});
  expect_answer(question({"predict"}, {"--set", "pytorch=1.13"}), {"executed PyTorch 1.13"});
  expect_answer(question({"explain"}, {}), {"broadcast"});
  expect_answer(question({"tune"}, {}), {"parameters_as_bucket_view"});
  expect_answer(question({"show", "program"}, {"--set", "parameters_as_bucket_view=true"}),
                {"broadcast_params/bucket.5", "wait/broadcast_params"});
  expect_answer({"list", "plans"}, {"zero_redundancy"});
  expect_answer({"show", "plan", "zero_redundancy"},
                {"parameters_as_bucket_view", "overlap_with_ddp", "bucket_cap_mb"});
  expect_answer({"predict", "--workload", "gpt2-small", "--cluster", "hgx-h100", "--plan",
                 "ZeroRedundancyOptimizer"},
                {"DDP with ZeroRedundancyOptimizer over nccl"});
}

TEST(ZeroRedundancyCommand, RefusesInASentence) {
  expect_refusal(question({"predict"}, {"--set", "overlap_with_ddp=true"}),
                 "PyTorch refuses it over gloo");
  expect_refusal({"predict", "--workload", "gpt2-small", "--cluster", "hgx-h100", "--plan",
                  "zero_redundancy", "--set", "overlap_with_ddp=true"},
                 "is not modelled");
  expect_refusal(question({"predict"}, {"--set", "parameters_as_bucket_view=2"}),
                 "parameters_as_bucket_view");
  expect_refusal(question({"predict"}, {"--set", "stage=2"}),
                 "is a knob of zero, and the plan's system is zero_redundancy");
  expect_refusal({"predict", "--workload", "cnn-cpu", "--cluster", "testbed-torch", "--set",
                  "parameters_as_bucket_view=true"},
                 "is a knob of zero_redundancy, and the plan's system is pytorch_ddp");
}

class ZeroRedundancyFiles : public InFolder {};

// A program knows from whom each broadcast comes, is read back, and is played by who can.
TEST_F(ZeroRedundancyFiles, AProgramNamesRoots) {
  const std::string file = at("p.json");
  put(file, ddpsim(question({"show", "program", "--format", "json"}, {})).out);
  EXPECT_NE(raw(file).find("\"root\":"), std::string::npos);
  auto step = [](const Args& argv) {
    Outcome o = ddpsim(argv);
    EXPECT_EQ(o.code, 0) << o.err;
    return io::parse_json(o.out, "stdout")["summary"]["step_ps"];
  };
  EXPECT_EQ(step(question({"predict", "--format", "json"}, {})),
            step({"predict", "--format", "json", "--program", file, "--cluster", "testbed-torch"}));
  io::Json tcp = io::parse_json(raw(file), "file");
  tcp["backend"] = "tcp";
  const std::string other = at("tcp.json");
  put(other, tcp.dump());
  expect_answer(
      {"run", "--loopback", "--steps", "2", "--program", other, "--cluster", "testbed-star"},
      {"measured", "predicted"});
  io::Json j = io::parse_json(raw(file), "file");
  for (auto& op : j["steps"][2]["ops"])
    if (op.contains("root")) op["root"] = 4;
  put(file, j.dump());
  expect_refusal({"predict", "--program", file, "--cluster", "testbed-torch"},
                 "a rank of the job, from 0 to 3");
}

}  // namespace
}  // namespace ddpsim::test
