// ddpsim import kineto and explain TRACES: what comes of the traces in tests/data/kineto, of real
// runs of PyTorch.
#include <filesystem>

#include <gtest/gtest.h>
#include <unistd.h>

#include "sim/io/files.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

namespace fs = std::filesystem;
using io::Json;

std::string trace(const std::string& name) {
  return source_path("tests/data/kineto/" + name + ".json.gz");
}

class Kineto : public ::testing::Test {
 protected:
  Kineto() : folder_(fs::temp_directory_path() / ("ddpsim-kineto-" + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
  }
  ~Kineto() override { fs::remove_all(folder_); }
  std::string at(const std::string& name) const { return (folder_ / name).string(); }
  // The summary of an import that writes `at("w.json")`.
  Json import(std::vector<std::string> args) const {
    args.insert(args.begin(), {"import", "kineto", "--format", "json", "--workload", at("w.json")});
    Outcome o = ddpsim(args);
    EXPECT_EQ(o.code, 0) << o.err;
    return io::parse_json(o.out, "out");
  }
  double predicted(std::vector<std::string> args) const {
    args.insert(args.begin(), {"predict", "--workload", at("w.json"), "--format", "json"});
    Outcome o = ddpsim(args);
    EXPECT_EQ(o.code, 0) << o.err;
    return io::parse_json(o.out, "out")["summary"]["step_ps"].get<double>();
  }

 private:
  fs::path folder_;
};

// A parser takes a NUL byte for the end of a text, and would not look at what follows.
TEST_F(Kineto, EndsAtNoNulByte) {
  std::string text = io::read_file(trace("cnn-0-0"));
  text += std::string("\0{", 2);
  for (const char* name : {"nul.json", "nul.json.gz"}) {
    io::write_file(at(name), text);
    Outcome o = ddpsim({"import", "kineto", at(name)});
    EXPECT_EQ(o.code, 2) << name;
    EXPECT_TRUE(has(o.err, "is a NUL byte")) << o.err;
  }
  io::write_file(at("cluster.json"), io::read_file(source_path("topologies/ethernet-10g.json")) +
                                         std::string("\0{", 2));
  expect_refusal({"predict", "--workload", "mlp784-50-10-cpu", "--cluster", at("cluster.json")},
                 "is a NUL byte");
}

// The captured step of a process without DDP is the trace's own iteration.
TEST_F(Kineto, AnImportedStepIsTheTracesIteration) {
  Json s = import({trace("cnn-0-0"), "--model", "cnn-cpu"});
  double parts = s["forward_ps"].get<double>() + s["backward_ps"].get<double>() +
                 s["optimizer_ps"].get<double>();
  EXPECT_NEAR(parts, s["iteration_ps"].get<double>(), 1);
  EXPECT_EQ(s["gradients"], 16);
  EXPECT_EQ(s["iterations"], 4);
  Workload w = io::read_workload(io::parse_json(io::read_file(at("w.json")), "w"), "w");
  EXPECT_EQ(w.batch, 4);
  EXPECT_EQ(w.tensors.size(), 16u);
  EXPECT_LT(w.times.quick, 1);
  EXPECT_FALSE(validate(w));
}

// HolisticTraceAnalysis: ResNet-50 on a V100, under DDP of one rank: with what ddpsim adds for DDP,
// the step is the trace's.
TEST_F(Kineto, APublishedTraceOfAGpuIsPredictedAsItWas) {
  Json s = import({trace("v100-resnet50-ddp1"), "--model", "resnet50"});
  EXPECT_EQ(s["device"], "gpu");
  EXPECT_EQ(s["gradients"], 161);
  double iteration = s["iteration_ps"].get<double>();
  EXPECT_NEAR(iteration, 95.55e9, 0.2e9);
  double step = predicted({"--cluster", "aws-p3dn", "--ranks", "1"});
  EXPECT_NEAR(step / iteration, 1, 0.01);
  EXPECT_GT(predicted({"--cluster", "aws-p3dn", "--ranks", "16", "--set", "cluster.hosts=2"}),
            step);
}

TEST_F(Kineto, ATraceWithShapesNeedsNoModel) {
  Json s = import({trace("mi250-minitoy"), "--batch", "20"});
  EXPECT_EQ(s["gradients"], 2);
  Workload w = io::read_workload(io::parse_json(io::read_file(at("w.json")), "w"), "w");
  EXPECT_EQ(w.elements(), 128 + 128 * 128);
  EXPECT_EQ(w.batch, 20);
}

TEST_F(Kineto, TracesOfSeveralRanksAreOneRun) {
  Outcome o = ddpsim({"import", "kineto", trace("cnn-2-1"), trace("cnn-2-0"), "--model", "cnn-cpu",
                      "--run", at("run.json.gz"), "--name", "cnn"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("first file is rank 0"), std::string::npos) << o.out;
  ddpsim::Run run = io::read_run(io::parse_json(io::read_file(at("run.json.gz")), "run"), "run");
  EXPECT_EQ(run.key, "kineto/cnn/n2");
  EXPECT_EQ(run.steps.size(), 4u);
  int reduces = 0;
  for (const Span& s : run.spans)
    if (s.op.starts_with("allreduce/bucket.")) {
      ++reduces;
      EXPECT_GE(s.begin, s.ready);
    }
  EXPECT_EQ(reduces, 4 * 2 * 3);
}

TEST_F(Kineto, WhatNcclReducedIsInTheRun) {
  Outcome o = ddpsim({"import", "kineto", trace("a100-resnet50-ddp2"), "--run", at("run.json")});
  ASSERT_EQ(o.code, 0) << o.err;
  Json j = io::parse_json(io::read_file(at("run.json")), "run");
  std::int64_t bytes = 0;
  for (const Json& s : j["spans"])
    if (s["op"].get<std::string>().starts_with("allreduce/bucket.")) {
      bytes += s["bytes"].get<std::int64_t>();
      EXPECT_EQ(s["dtype"], "float32");
      EXPECT_EQ(s["group"], "[0, 1]");
    }
  EXPECT_EQ(bytes, 25'557'032 * 4);
}

// The buckets that DDP reduced on two A100s are those of the prediction: what a trace says is
// compared, what it does not say is not.
TEST_F(Kineto, ARunOfATraceIsComparedWithItsPrediction) {
  struct Case {
    std::vector<std::string> traces;
    const char* model;
    const char* cluster;
    const char* pytorch;
    const char* cap;  // as it ran; "null": the default
  };
  for (const Case& c : {Case{{"a100-resnet50-ddp2"}, "resnet50", "dgx-a100", "2.7", "null"},
                        Case{{"cnn-2-0", "cnn-2-1"}, "cnn-cpu", "ethernet-10g", "1.13", "5"}}) {
    std::vector<std::string> args{"--model", c.model, "--run", at("run.json")};
    for (const std::string& t : c.traces) args.push_back(trace(t));
    import(args);
    for (const std::string cap : {c.cap, "1"}) {
      Outcome p = ddpsim({"predict", "--workload", at("w.json"), "--cluster", c.cluster, "--ranks",
                          "2", "--set", std::string("pytorch=") + c.pytorch, "--set",
                          "bucket_cap_mb=" + cap, "--format", "json"});
      ASSERT_EQ(p.code, 0) << p.err;
      io::write_file(at("p.json"), p.out);
      Outcome o = ddpsim({"compare", at("p.json"), at("run.json")});
      bool differs = (o.out + o.err).find("schedule mismatch") != std::string::npos;
      EXPECT_EQ(differs, cap == "1") << o.out << o.err;
    }
  }
}

TEST_F(Kineto, ExplainsWhoWasLate) {
  std::vector<std::string> all{"explain"};
  for (const char* r : {"0", "1", "2", "3"}) all.push_back(trace(std::string("cnn-4-") + r));
  expect_answer(all, {"4 steps of 4 ranks", "came last", "no straggler", "communication free"});
  all.insert(all.end(), {"--format", "json"});
  Outcome o = ddpsim(all);
  ASSERT_EQ(o.code, 0) << o.err;
  Json j = io::parse_json(o.out, "out");
  EXPECT_EQ(j["schema"], "ddpsim.trace_explanation/1");
  EXPECT_EQ(j["ranks"].size(), 4u);
  double replayed = j["what_if"]["replayed_ps"].get<double>();
  EXPECT_NEAR(replayed / j["step_ps"].get<double>(), 1, 0.03);
  EXPECT_LT(j["what_if"]["without_straggler_ps"].get<double>(), replayed);
  EXPECT_LT(j["what_if"]["without_network_ps"].get<double>(), replayed);
}

// ResNet-50 on A100s, whose host enqueues too late: all-reduces are over before it goes on.
TEST_F(Kineto, ExplainsThatTheHostDecides) {
  expect_answer({"explain", trace("a100-resnet50-ddp2")},
                {"the host: for ", "what decides the step: the host, which enqueues too late",
                 "the host enqueues every kernel in time"});
  Outcome o = ddpsim({"explain", trace("a100-resnet50-ddp2"), "--format", "json"});
  Json j = io::parse_json(o.out, "out");
  EXPECT_EQ(j["decides"], "host");
  double network = j["exposed"]["network_ps"].get<double>();
  double without = j["what_if"]["without_network_ps"].get<double>();
  double step = j["what_if"]["replayed_ps"].get<double>();
  EXPECT_LT(network, 2 * (step - without) + 0.01 * step) << "exposed, and yet nothing to gain";
}

TEST_F(Kineto, ExplainsOnAnotherNetwork) {
  expect_answer({"explain", trace("cnn-2-0"), trace("cnn-2-1"), "--cluster", "ethernet-10g",
                 "--workload", "cnn-cpu"},
                {"this computation on ethernet-10g with 2 ranks, predicted"});
}

TEST_F(Kineto, RefusesWhatSaysTooLittle) {
  const std::string one = trace("cnn-0-0");
  expect_refusal({"import", "kineto", one, "--workload", at("w.json")}, "record_shapes=True");
  expect_refusal({"import", "kineto", one, "--model", "gpt-cpu"}, "65");
  expect_refusal({"import", "kineto", one, "--model", "cnn-cup"}, "did you mean \"cnn-cpu\"");
  expect_refusal({"import", "kineto", one, "--precision", "fp8"}, "fp32, tf32, bf16 or fp16");
  expect_refusal({"import", "kineto", one, "--rank", "7"}, "traces of 0");
  expect_refusal({"import", "kineto", at("missing.json")}, "no such file");
  expect_refusal({"import", "kineto", trace("v100-resnet50-ddp1"), trace("v100-resnet50-ddp1")},
                 "one trace of each rank");
  expect_refusal({"import", "kineto", source_path("workloads/cnn-cpu.json")}, "traceEvents");
  expect_refusal({"explain", one, "--ranks", "4"}, "--cluster");
  expect_refusal({"explain", one, "--cluster", "ethernet-10g"}, "--workload");
  expect_refusal({"explain", one, "--format", "md"}, "table and json");
  io::write_file(at("none.json"), "{\"traceEvents\": []}");
  expect_refusal({"import", "kineto", at("none.json")}, "prof.step()");
}

}  // namespace
}  // namespace ddpsim::test
