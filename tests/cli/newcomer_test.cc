// Traps for people who had only the documents: whose precision it is, whether it fits, and which
// rows count.
#include <map>
#include <sstream>

#include <gtest/gtest.h>

#include "tests/support/files.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

const Args kLlama{"--workload", "llama-3.2-1b", "--cluster", "hgx-h100"};
const Args kHalves{"--set", "workload.precision=bf16"};
const Args kMasters = kHalves + Args{"--set", "workload.casting=master_weights"};
const Args kMixed{"--set", "param_dtype=bfloat16"};
const Args kTooLarge{"--workload", "llama-3.2-1b",    "--cluster", "aws-p4d",
                     "--set",      "cluster.hosts=2", "--plan",    "fsdp2"};

TEST(Precision, HeadingsSayWhoCasts) {
  for (const char* command : {"predict", "explain", "tune", "rank-plans"}) {
    const Args of = Args{command} + kLlama;
    expect_answer(of, {", fp32"});
    expect_answer(of + kHalves, {", bf16 (autocast)"});
    expect_answer(of + kMasters, {", bf16 (master weights)"});
    expect_answer(of + kHalves + Args{"--set", "workload.casting=pure"}, {", bf16 (weights, too)"});
    expect_answer(of + kMixed + Args{"--plan", "fsdp2"}, {", bf16 (param_dtype)"});
  }
  // Steps of that precision are what it is held to.
  expect_answer(Args{"predict"} + kLlama + kMixed + Args{"--plan", "fsdp"},
                {"H100-SXM5-80GB, bf16"});
}

TEST(Attention, HuggingFacesWordsAreOurs) {
  auto step = [](const char* word) {
    return json_of(Args{"predict"} + kLlama +
                   Args{"--set", std::string("workload.attention=") + word})["summary"];
  };
  EXPECT_EQ(step("sdpa"), step("fused"));
  EXPECT_EQ(step("flash_attention_2"), step("flash2"));
  EXPECT_NE(step("sdpa"), step("eager"));
}

TEST(Precision, AutocastOfASystemThatShardsIsNamed) {
  auto notes = [](const char* plan, const Args& more) {
    return ddpsim(Args{"predict"} + kLlama + more + Args{"--plan", plan}).out;
  };
  const char* deepspeed = "DeepSpeed's own bf16 is --set workload.casting=master_weights";
  const char* fsdp = "FSDP's MixedPrecision is --set param_dtype=bfloat16";
  auto says = [](const std::string& page, const std::string& what) {
    std::istringstream words(page);
    std::string line;
    for (std::string word; words >> word;) line += word + " ";
    return line.find(what) != std::string::npos;
  };
  EXPECT_TRUE(says(notes("zero2", kHalves), deepspeed));
  EXPECT_FALSE(says(notes("zero2", kMasters), deepspeed));
  EXPECT_TRUE(says(notes("fsdp", kHalves), fsdp));
  EXPECT_TRUE(says(notes("fsdp2", kHalves), fsdp));
  EXPECT_FALSE(says(notes("fsdp2", kMixed), fsdp));
  EXPECT_FALSE(says(notes("pytorch_ddp", kHalves), "is autocast here"));
}

TEST(Fits, EachCommandSaysThatItDoesNot) {
  expect_answer(Args{"predict"} + kTooLarge, {"it does not fit: "});
  expect_answer(Args{"tune"} + kTooLarge, {"no setting fits 40.0 GiB",
                                           "as it is it would fit with activation checkpointing"});
  const Args fails{"goodput", "--mtbf-per-gpu", "50000h"};
  expect_answer(fails + kTooLarge, {"it does not fit: "});
  EXPECT_TRUE(json_of(fails + kTooLarge)["notes"][0].get<std::string>().starts_with("it does not"));
  Outcome o = ddpsim(Args{"trace"} + kTooLarge);
  EXPECT_EQ(o.code, 0);
  EXPECT_NE(o.err.find("it does not fit: "), std::string::npos) << o.err;
}

class TracePicture : public InFolder {};

TEST_F(TracePicture, IsOfTheStepThatIsPredicted) {
  const Args job{"trace", "--workload", "resnet50", "--cluster", "hgx-h100"};
  Outcome o = ddpsim(job + Args{"--format", "svg"});
  EXPECT_TRUE(o.out.starts_with("<svg")) << o.err;
  EXPECT_NE(o.out.find("<title>resnet50 on hgx-h100, 8 ranks: a step of "), std::string::npos);
  EXPECT_EQ(ddpsim(job + Args{"--out", at("step.svg")}).code, 0);
  EXPECT_EQ(raw(at("step.svg")), o.out);
  EXPECT_EQ(ddpsim(job + Args{"--out", at("step.json")}).code, 0);
  EXPECT_TRUE(raw(at("step.json")).starts_with("{"));
  EXPECT_NE(ddpsim(job + Args{"--ranks", "1", "--format", "svg"}).out.find(", 1 rank: "),
            std::string::npos);
  expect_refusal(job + Args{"--out", at("step.png")}, "a picture is an SVG (--out step.svg)");
  EXPECT_FALSE(std::filesystem::exists(at("step.png")));
}

// The table shows some rows of the curve: within a percent on both sides of one that is not.
TEST(TuneRows, EachWithinAPercentIsMarked) {
  const Args asked{"tune",
                   "--workload",
                   "bert-large",
                   "--cluster",
                   "dgx-a100",
                   "--set",
                   "cluster.hosts=4",
                   "--set",
                   "workload.precision=fp16",
                   "--set",
                   "workload.sequence=384"};
  const io::Json j = json_of(asked);
  std::map<double, double> steps;
  for (const io::Json& p : j["curve"]) steps[p["value"]] = p["step_ps"];
  const double most = 1.01 * j["best"]["step_ps"].get<double>();
  std::istringstream page(ddpsim(asked).out);
  std::string line;
  while (std::getline(page, line) && line.find("bucket_cap_mb ") == std::string::npos) {
  }
  std::string marks;
  while (std::getline(page, line) && line.find("now ") == std::string::npos) {
    double value = 0;
    std::istringstream(line.substr(1)) >> value;
    ASSERT_TRUE(steps.count(value)) << line;
    EXPECT_EQ(line[0] != ' ', steps[value] <= most) << line;
    marks += line[0];
  }
  EXPECT_NE(marks.find("= ="), std::string::npos) << marks;  // on both sides of a longer one
}

}  // namespace
}  // namespace ddpsim::test
