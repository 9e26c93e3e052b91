// ddpsim tune of fsdp, fsdp2 and zero.
#include <algorithm>
#include <tuple>

#include <gtest/gtest.h>

#include "tests/support/files.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

Args on(const std::string& command, const std::string& plan) {
  return {command, "--workload", "llama-3.2-1b", "--cluster", "gpu-ethernet-100g", "--plan", plan};
}

TEST(TuneShardedCommand, AnswersFirstThenSettingsBesideOneAnother) {
  Outcome o = ddpsim(on("tune", "fsdp2") + Args{"--set", "auto_wrap_policy=none"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.out.rfind("units=", 0), 0u) << o.out;
  for (const char* part :
       {"makes it fit", "    fully_shard(unit, **options)", "now: the plan as it is",
        "one decision at a time", "reshard_after_forward=false", "shard_degree=4",
        "forward_prefetch_units=3", "a device", "were left out because they do not fit 80.0 GiB",
        "plans were simulated: coordinate descent over 5 decisions", "are within 1 %",
        "of the blocks are a dynamic programme's"})
    EXPECT_TRUE(has(o.out, part)) << part << "\n" << o.out;
  Outcome zero = ddpsim({"tune", "--workload", "gpt2-small", "--cluster", "hgx-h100", "--plan",
                         "zero3", "--set", "reduce_bucket_size=5000000"});
  ASSERT_EQ(zero.code, 0) << zero.err;
  for (const char* part :
       {"{\"zero_optimization\": {", "\"stage\": 3", "stage3_max_live_parameters", "ZeRO-3"})
    EXPECT_TRUE(has(zero.out, part)) << part << "\n" << zero.out;
}

TEST(TuneShardedCommand, JsonIsWhatAnySingleQuestionSays) {
  io::Json j = json_of(on("tune", "fsdp2") + Args{"--memory-limit", "78GiB"});
  EXPECT_EQ(j["schema"], "ddpsim.sharded_tuning/1");
  EXPECT_EQ(j["memory_limit_bytes"], std::int64_t{78} << 30);
  EXPECT_EQ(j["knobs"].size(), 5u);
  EXPECT_EQ(j["simulations"], j["tried"].size());
  int left_out = 0;
  for (const io::Json& p : j["tried"]) {
    EXPECT_EQ(p["fits"], p["memory_bytes"].get<std::int64_t>() <= std::int64_t{78} << 30);
    left_out += p["fits"] == false;
  }
  EXPECT_GT(left_out, 0);
  EXPECT_EQ(j["recommended"]["fits"], true);
  EXPECT_EQ(j["best"]["fits"], true);
  const io::Json predicted =
      json_of(on("predict", "fsdp2") + Args{"--set", "reshard_after_forward=false"});
  bool compared = false;
  for (const io::Json& p : j["around"])
    if (p["knob"] == "reshard_after_forward" && p["value"] == "false") {
      compared = true;
      EXPECT_EQ(p["step_ps"], predicted["summary"]["step_ps"]);
      EXPECT_EQ(p["memory_bytes"], predicted["summary"]["memory"]["device_bytes"]);
      EXPECT_EQ(p["exposed_communication_ps"], predicted["summary"]["exposed_communication_ps"]);
    }
  EXPECT_TRUE(compared);
}

TEST(TuneShardedCommand, OneKnobAndItsValues) {
  io::Json j = json_of(on("tune", "fsdp2") + Args{"--knob", "units", "--values", "1,2,4/4/8,none"});
  EXPECT_EQ(j["knobs"], io::Json({"units"}));
  EXPECT_EQ(j["tried"].size(), 4u);
  EXPECT_EQ(j["around"].size(), 4u);
  EXPECT_EQ(j["tried"][0]["settings"]["units"], "1");
  io::Json zero = json_of(on("tune", "zero2") +
                          Args{"--knob", "reduce_bucket_size", "--values", "1e7,20000000,5e8"});
  EXPECT_EQ(zero["tried"].size(), 3u);
  EXPECT_EQ(json_of(on("tune", "zero2") + Args{"--knob", "allgather_bucket_size"})["knobs"],
            io::Json({"allgather_bucket_size"}));
  EXPECT_EQ(json_of(on("tune", "fsdp") + Args{"--knob", "sharding_strategy", "--values",
                                              "full_shard,hybrid_shard:4"})["tried"]
                .size(),
            2u);
}

// What tune calls a setting is one of predict, too.
TEST(TuneShardedCommand, ItsSettingsCanBeGivenToPredict) {
  const Args place{"--workload", "gpt2-small", "--cluster", "hgx-h100", "--ranks", "8"};
  for (const char* plan : {"fsdp", "fsdp2"}) {
    const io::Json tuned = json_of(Args{"tune", "--plan", plan} + place);
    for (const io::Json& each : tuned["around"]) {
      Args asked = Args{"predict", "--plan", plan} + place;
      for (const auto& [name, setting] : each["settings"].items())
        if (setting != tuned["current"]["settings"][name] || name == "units")
          asked.insert(asked.end(), {"--set", name + "=" + setting.get<std::string>()});
      EXPECT_EQ(json_of(asked)["summary"]["step_ps"], each["step_ps"]) << plan << each["settings"];
    }
    EXPECT_GT(tuned["around"].size(), 8u);
  }
  auto step = [&](const Args& sets) {
    return json_of(Args{"predict", "--plan", "fsdp2"} + place + sets)["summary"]["step_ps"];
  };
  EXPECT_EQ(step({"--set", "units=1x2/2/4"}), step({"--set", "blocks_per_unit=[1,1,2,4]"}));
  for (const auto& [plan, sets, words] :
       {std::tuple{"fsdp2", Args{"--set", "units=two"}, "blocks of a unit (2)"},
        {"pytorch_ddp", Args{"--set", "units=2"}, "is of fsdp and fsdp2"},
        {"fsdp2", Args{"--set", "units=2", "--set", "blocks_per_unit=3"}, "give one of the two"}})
    expect_refusal(Args{"predict", "--plan", plan} + place + sets, words);
  expect_refusal({"predict", "--plan", "fsdp2", "--workload", "llama-3.2-1b", "--cluster",
                  "hgx-h100", "--set", "units=1+ends"},
                 "--set units=1+ends");
}

TEST(TuneShardedCommand, CsvHasARowForEveryPlanThatWasSimulated) {
  const Args question = on("tune", "fsdp2");
  Outcome csv = ddpsim(question + Args{"--format", "csv"});
  ASSERT_EQ(csv.code, 0) << csv.err;
  EXPECT_EQ(csv.out.rfind("units,reshard_after_forward,shard_degree,forward_prefetch_units,"
                          "backward_prefetch_units,step_ps,",
                          0),
            0u)
      << csv.out;
  EXPECT_EQ(static_cast<std::size_t>(std::count(csv.out.begin(), csv.out.end(), '\n')),
            json_of(question)["tried"].size() + 1);
  Outcome md = ddpsim(question + Args{"--format", "md"});
  ASSERT_EQ(md.code, 0) << md.err;
  EXPECT_TRUE(has(md.out, "```python")) << md.out;
  EXPECT_TRUE(has(md.out, "| setting | step |")) << md.out;
}

TEST(TuneShardedCommand, CountsTheCostOfAnEpoch) {
  Outcome o =
      ddpsim(on("tune", "fsdp2") + Args{"--price-per-gpu-hour", "2", "--epoch-samples", "1e6"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(has(o.out, "samples/s")) << o.out;
  EXPECT_TRUE(has(o.out, "cost")) << o.out;
}

TEST(TuneShardedCommand, LinesFitIn160Columns) {
  for (const Args& a : {on("tune", "fsdp2"), on("tune", "fsdp"), on("tune", "zero3")}) {
    Outcome o = ddpsim(a);
    EXPECT_EQ(o.code, 0) << o.err;
    for (std::size_t from = 0; from < o.out.size();) {
      std::size_t end = std::min(o.out.find('\n', from), o.out.size());
      const std::string line = o.out.substr(from, end - from);
      if (!has(line, "options = dict(") && !has(line, "from torch")) {
        EXPECT_LE(line.size(), 160u) << line;
      }
      from = end + 1;
    }
  }
}

TEST(TuneShardedCommand, RefusesInASentence) {
  struct Refused {
    Args args;
    const char* part;
  };
  for (const Refused& b : std::vector<Refused>{
           {on("tune", "fsdp2") + Args{"--knob", "unit"}, "did you mean \"units\""},
           {on("tune", "fsdp2") + Args{"--knob", "reduce_bucket_size"}, "is not a knob of fsdp2"},
           {on("tune", "zero2") + Args{"--knob", "units"}, "is not a knob of zero"},
           {on("tune", "fsdp2") + Args{"--values", "1,2"}, "name it (--knob units)"},
           {on("tune", "fsdp2") + Args{"--knob", "units", "--values", "0"},
            "\"0\" is not a setting"},
           {on("tune", "fsdp2") + Args{"--knob", "units", "--values", "1+ends"},
            "\"1+ends\" is not a setting"},  // tied weights
           {on("tune", "fsdp2") + Args{"--knob", "shard_degree", "--values", "two"},
            "\"two\" is not a setting"},
           {on("tune", "fsdp2") + Args{"--memory-limit", "much"}, "60GiB"},
           {on("tune", "fsdp2") + Args{"--memory-limit", "0GiB"}, "60GiB"},
           {on("tune", "fsdp2") + Args{"--memory-limit", "200GiB"}, "more than the device has"},
           {on("tune", "pytorch_ddp") + Args{"--memory-limit", "60GiB"}, "is of plans that shard"},
           {on("predict", "fsdp2") + Args{"--set", "blocks_per_unit=0"}, "1 to 1,000,000 blocks"},
           {on("predict", "fsdp2") + Args{"--set", "blocks_per_unit=[]"}, "a list of at least one"},
           {on("predict", "fsdp2") + Args{"--set", "blocks_per_unit=[2,1.5]"}, "blocks_per_unit"},
           {on("predict", "fsdp2") + Args{"--set", "ends_apart=true"}, "tied weights"},
           {on("predict", "fsdp2") +
                Args{"--set", "auto_wrap_policy=none", "--set", "blocks_per_unit=2"},
            "the model is one unit"},
           {on("predict", "fsdp") + Args{"--set", "ends_apart=true"}, "is a knob of fsdp2"}}) {
    Outcome o = ddpsim(b.args);
    EXPECT_EQ(o.code, 2) << b.part;
    EXPECT_EQ(o.out, "");
    EXPECT_TRUE(has(o.err, b.part)) << b.part << "\n" << o.err;
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
  }
}

}  // namespace
}  // namespace ddpsim::test
