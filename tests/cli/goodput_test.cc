// ddpsim goodput, ddpsim epoch.
#include <gtest/gtest.h>

#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

const Args kJob{"goodput",           "--step", "2s",        "--ranks", "1024",
                "--checkpoint-size", "14GB",   "--storage", "5GB/s"};
const Args kFails{"--mtbf-per-gpu", "20000h"};

TEST(Goodput, SaysTheSameBytesTwice) {
  for (const char* format : {"table", "csv", "json"}) {
    const Args asked = kJob + kFails + Args{"--format", format};
    Outcome first = ddpsim(asked);
    ASSERT_EQ(first.code, 0) << first.err;
    EXPECT_EQ(first.out, ddpsim(asked).out);
    EXPECT_NE(first.out, ddpsim(asked + Args{"--seed", "2"}).out);
  }
}

TEST(Goodput, SharesSumToOneAndTheClosedFormIsNear) {
  const io::Json j = json_of(kJob + kFails);
  double sum = 0;
  for (const io::Json& share : j["shares"]) sum += share.get<double>();
  EXPECT_NEAR(sum, 1, 1e-9);
  const double mean = j["goodput"]["mean"].get<double>();
  EXPECT_NEAR(mean, j["expected_goodput"].get<double>(), 5 * j["goodput"]["error"].get<double>());
  EXPECT_LE(j["goodput"]["low"].get<double>(), mean);
  EXPECT_GE(j["goodput"]["high"].get<double>(), mean);
}

// 16,384 H100, 54 days, 419 unexpected interruptions, "higher than 90 % effective training time"
// (Llama 3, arXiv:2407.21783, section 3.3.4). Checkpoints of 405 billion parameters (bf16, fp32
// masters, two states), 2 TB/s sustained (section 3.1.1). Its own restarts are not printed.
TEST(Goodput, OfLlama3IsAboveNineTenthsAsPublished) {
  const io::Json j = json_of({"goodput", "--step", "6s", "--ranks", "16384", "--for", "54d",
                              "--mtbf-per-gpu", "50676h", "--checkpoint-size", "5.67TB",
                              "--checkpoint-layout", "sharded", "--storage", "2TB/s", "--phase",
                              "import_torch=60s", "--phase", "process_group=5min"});
  EXPECT_NEAR(j["failures"].get<double>(), 419, 10);
  EXPECT_GT(j["goodput"]["mean"].get<double>(), 0.9);
}

TEST(Goodput, AskedAboutAHundredThousandGpusAnswersAtOnce) {
  const double begin = cpu_seconds();
  const io::Json j = json_of({"goodput", "--step", "10s", "--ranks", "100000", "--mtbf-per-gpu",
                              "50000h", "--checkpoint-size", "1TB", "--checkpoint-layout",
                              "sharded", "--storage", "200GB/s"});
  EXPECT_LT(cpu_seconds() - begin, 5);  // measured 0.2
  EXPECT_GT(j["failures"].get<double>(), 1400);
}

TEST(Goodput, TakesItsStepAndItsStateFromAPrediction) {
  const Args question{"--workload", "gpt2-small", "--cluster", "hgx-h100"};
  const io::Json j =
      json_of(Args{"goodput", "--mtbf-per-gpu", "5000h", "--storage", "1GB/s"} + question);
  const io::Json p = json_of(Args{"predict"} + question);
  EXPECT_EQ(j["step_ps"], p["summary"]["step_ps"]);
  // AdamW: weights and two states of four bytes, 124,439,808 parameters.
  EXPECT_NEAR(j["checkpoints"]["bytes"].get<double>(), 124'439'808.0 * 12, 2e7);
  EXPECT_EQ(
      json_of(Args{"goodput", "--mtbf-per-gpu", "5000h", "--storage", "1GB/s", "--plan", "fsdp2"} +
              question)["checkpoints"]["bytes"],
      j["checkpoints"]["bytes"]);
}

TEST(Goodput, APhaseThatIsGivenIsSaidToBe) {
  const io::Json j = json_of(kJob + kFails + Args{"--phase", "import_torch=77s"});
  int given = 0;
  for (const io::Json& p : j["phases"]) {
    EXPECT_FALSE(p["source"].get<std::string>().empty()) << p["name"];
    if (p["evidence"] != "given") continue;
    ++given;
    EXPECT_EQ(p["name"], "import_torch");
    EXPECT_EQ(p["ps"], 77'000'000'000'000);
  }
  EXPECT_EQ(given, 1);
}

TEST(Goodput, RefusesWithARemedy) {
  const std::vector<std::pair<Args, const char*>> cases{
      {{"goodput", "--step", "2s", "--ranks", "8"}, "--mtbf-per-gpu 50000h"},
      {Args{"goodput", "--step", "2s"} + kFails, "--ranks 1024"},
      {Args{"goodput", "--step", "2s", "--ranks", "8"} + kFails, "--checkpoint-stall"},
      {kJob + kFails + Args{"--mtbf-per-host", "5h"}, "give one of them"},
      {kJob + kFails + Args{"--phase", "import_toch=3s"}, "did you mean import_torch=...?"},
      {kJob + kFails + Args{"--phase", "sync=3s"}, "write NAME=TIME with one of"},
      {kJob + kFails + Args{"--failure", "host"}, "--spares 4"},
      {kJob + kFails + Args{"--workload", "resnet50"}, "so does --step"},
      {kJob + kFails + Args{"--for", "1y"}, "30d"},
      {kJob + kFails + Args{"--for", "101d"}, "100 days"},
      {kJob + kFails + Args{"--for", "1s"}, "shorter than a step"},
      {kJob + kFails + Args{"--checkpoint", "0steps"}, "expected a whole number"},
      {kJob + kFails + Args{"--checkpoint", "often"}, "expected a time"},
      {kJob + kFails + Args{"--asynchronous"}, "--snapshot 20GB/s"},
      {kJob + kFails + Args{"--snapshot", "20GB/s"}, "is of --asynchronous"},
      {kJob + kFails + Args{"--recovery", "horovod_elastic"}, "--network 400Gb/s"},
      {kJob + kFails + Args{"--min-hosts", "129"}, "1 to 128"},
      {kJob + Args{"--mtbf-per-gpu", "1s"}, "is the unit right?"},
      {kJob + Args{"--mtbf-per-gpu", "0s"}, "expected a time above 0"},
      {kJob + Args{"--mtbf-per-host", "0h"}, "expected a time"},
      {kJob + Args{"--lose", "2h:1", "--spares", "1"}, "nobody knows before"},
      {kJob + Args{"--lose", "2h:0"}, "expected a whole number"},
      {kJob + Args{"--mtbf-per-gpu", "2000s", "--for", "100d"}, "--courses 1"},
  };
  for (const auto& [args, words] : cases) expect_refusal(args, words);
}

// Losses at given times move what happens, not when is saved: who saves does not know of them.
TEST(Goodput, WhenToSaveDoesNotKnowWhatWillFail) {
  const Args lost{"--lose", "40h:1", "--spares", "1"};
  const io::Json without = json_of(kJob + kFails);
  const io::Json with = json_of(kJob + kFails + lost);
  EXPECT_EQ(with["intervals"], without["intervals"]);
  EXPECT_EQ(with["checkpoints"], without["checkpoints"]);
  EXPECT_LT(with["goodput"]["mean"], without["goodput"]["mean"]);
  const io::Json given = json_of(kJob + lost + Args{"--checkpoint", "10min"});
  EXPECT_FALSE(given.contains("intervals"));
}

TEST(Goodput, AHostThatIsLostAtATimeComesBackToo) {
  const Args lost = kJob + Args{"--checkpoint", "10min", "--lose", "48h:4", "--min-hosts", "1"};
  const double never = json_of(lost)["goodput"]["mean"].get<double>();
  const io::Json back = json_of(lost + Args{"--back-after", "24h"});
  EXPECT_EQ(back["joins"], 1);
  // Four of 128 hosts are missing for 27 days less.
  EXPECT_NEAR(back["goodput"]["mean"].get<double>() - never, 4.0 / 128 * 27 / 30, 0.001);
}

TEST(Goodput, AssumesAStorageAndSaysSo) {
  const Args job{"goodput", "--step", "2s", "--ranks", "1024", "--checkpoint-size", "14GB"};
  expect_answer(job + kFails,
                {"storage is assumed: 1", "GB/s a host (Llama", "--storage says yours"});
  const io::Json j = json_of(job + kFails);
  EXPECT_EQ(j["checkpoints"]["stall_ps"], 14'000'000'000'000);
  EXPECT_NE(j["checkpoints"]["how"].get<std::string>().find("is assumed"), std::string::npos);
  // What a host gets is known; that all get it at once is assumed.
  const Args host = job + kFails + Args{"--storage-per-host", "7GB/s"};
  expect_answer(host, {"storage is assumed to", "give all hosts that at once"});
  EXPECT_EQ(json_of(host)["checkpoints"]["stall_ps"], 2'000'000'000'000);
  expect_refusal(Args{"goodput", "--step", "2s", "--ranks", "8", "--asynchronous",
                      "--checkpoint-stall", "1s", "--phase", "restore=1s"} +
                     kFails,
                 "--checkpoint-size");
}

TEST(Goodput, TorchftNeedsNoCheckpoints) {
  const io::Json j = json_of(kJob + kFails + Args{"--recovery", "torchft", "--network", "400Gb/s"});
  EXPECT_FALSE(j.contains("checkpoints"));
  EXPECT_TRUE(j["expected_goodput"].is_null());
  EXPECT_GT(j["goodput"]["mean"].get<double>(), 0.99);
}

TEST(Epoch, SaysStepsAndTheLastBatch) {
  expect_answer({"epoch", "--epoch-samples", "60000", "--ranks", "7", "--batch", "64"},
                {"8572 samples a rank (4 that somebody has already are repeated)",
                 "134 steps an epoch", "the last batch has 60 of 64 samples"});
  expect_answer({"epoch", "--epoch-samples", "10", "--ranks", "3", "--batch", "8", "--drop-last",
                 "--drop-last-batch"},
                {"no step: not one whole batch"});
  expect_answer({"epoch", "--epoch-samples", "10", "--ranks", "3", "--batch", "3", "--rank", "2",
                 "--no-shuffle"},
                {"batch 0: 2 5 8", "batch 1: 1"});
}

TEST(Epoch, OfAWorkloadIsTheOneThatTuneAndRankPlansCount) {
  const Args question{"--workload", "resnet50",        "--cluster",
                      "hgx-h100",   "--epoch-samples", "1281167"};
  const io::Json e = json_of(Args{"epoch"} + question);
  const io::Json plans = json_of(Args{"rank-plans"} + question);
  EXPECT_EQ(e["steps"], (1281167 + 8 * 32 - 1) / (8 * 32));
  for (const char* key : {"steps", "last_batch", "repeated", "samples_per_rank"})
    EXPECT_EQ(plans["epoch"][key], e[key]) << key;
  for (const io::Json& p : plans["plans"])
    if (p["asked"] == true) {
      EXPECT_NEAR(p["epoch_s"].get<double>(), e["epoch_s"].get<double>(), 0.01);
    }
  const io::Json tuned = json_of(Args{"tune"} + question)["scaling"]["by_ranks"];
  EXPECT_EQ(tuned.back()["steps"], e["steps"]);
  EXPECT_EQ(tuned.back()["last_batch"], e["last_batch"]);
}

TEST(Epoch, RefusesWithARemedy) {
  expect_refusal({"epoch", "--ranks", "3"}, "--epoch-samples 1281167");
  expect_refusal({"epoch", "--epoch-samples", "10", "--ranks", "3"}, "--batch 32");
  expect_refusal({"epoch", "--epoch-samples", "10", "--ranks", "3", "--batch", "2", "--rank", "3"},
                 "0 to 2");
  expect_refusal({"epoch", "--epoch-samples", "10", "--workload", "resnet50", "--cluster",
                  "hgx-h100", "--batch", "3"},
                 "--set workload.batch=3");
}

TEST(Epoch, CostsItsStepsNotItsMicroSteps) {
  const io::Json j =
      json_of({"epoch", "--epoch-samples", "1000003", "--workload", "resnet50", "--cluster",
               "hgx-h100", "--ranks", "8", "--set", "accumulation_steps=4"});
  const double steps = j["steps"].get<double>();
  EXPECT_GT(j["micro_steps"].get<double>(), 3 * steps);
  EXPECT_NEAR(j["epoch_s"].get<double>(), steps * j["step_ps"].get<double>() * 1e-12, 1e-9);
}

}  // namespace
}  // namespace ddpsim::test
