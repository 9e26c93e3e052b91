// A system that nothing else knows: words, a stream and a collective of its own, in this file
// alone. It is predicted, summed up, explained, drawn, written and read.
#include <gtest/gtest.h>

#include "sim/analysis/compare.h"
#include "sim/explain/explain.h"
#include "sim/io/codecs.h"
#include "sim/io/write_page.h"
#include "sim/io/write_prediction.h"
#include "sim/systems/base/builder.h"
#include "sim/systems/base/lower.h"
#include "tests/support/support.h"

namespace ddpsim {
namespace {

constexpr OpWord kBrew{"brew/", {.does = Does::Copy, .phase = Phase::Backward, .of = Of::Label}};
constexpr OpWord kPour{"pour/",
                       {.does = Does::Communicate,
                        .phase = Phase::Backward,
                        .of = Of::Label,
                        .touches = Touches::Bucket,
                        .operation = Operation::ReduceScatter}};

struct Teapot {
  Workload w = test::workload("mlp784-50-10");
  topology::Fabric fabric{test::cluster("hgx-h100")};
  Profile profile = test::profile("h100-sxm.datasheet");
  Scenario s;
  Program program;
  predict::Options options;

  Teapot() {
    s.ranks = 4;
    StepTimes none;
    program = systems::empty_program({w, none, DeviceKind::Gpu, 4}, s.plan);
    program.streams = {"kettle"};
    program.labels = {"cup"};
    const systems::ModelMemory memory(w);
    systems::StepBuilder b(program, StepKind::Steady, w, memory);
    b.step.buckets.push_back({{0, 1}, {40'000'000}, {40'000'000}, DType::Float32});
    std::uint32_t forward = b.main(systems::kForward, kNoSubject, 0, {.duration = kMillisecond});
    std::uint32_t brewed = b.on_stream(stream(0), kBrew, 0, 40'000'000, {.duration = kMillisecond},
                                       std::span(&forward, 1));
    b.before_next_main(
        b.collective_after(kPour, 0, 40'000'000, DType::BFloat16, std::span(&brewed, 1)));
    b.main(systems::kOptimizer, kNoSubject, 0, {.duration = kMillisecond});
    program.steady = std::move(b.step);
    options.program = &program;
  }
  predict::Question question() { return {w, fabric, profile, s}; }
};

TEST(AMadeUpSystem, IsPredictedAndSummedUp) {
  Teapot t;
  predict::Prediction p = predict::predict(t.question(), t.options);
  ASSERT_EQ(p.summary.buckets.size(), 1u);
  EXPECT_EQ(p.summary.buckets[0].name, "pour/cup");
  EXPECT_EQ(p.summary.buckets[0].tensors, (std::vector<TensorIndex>{0, 1}));
  EXPECT_GT(p.summary.exposed_communication.ps, 0);
  Duration computed = kMillisecond * 3;  // forward, brew and optimizer follow one another
  EXPECT_NEAR(static_cast<double>((p.summary.step - p.summary.exposed_communication).ps),
              static_cast<double>(computed.ps), 1e8);
  EXPECT_FALSE(p.busiest_link.name.empty());
}

TEST(AMadeUpSystem, IsExplainedAndDrawn) {
  Teapot t;
  predict::Explanation e = predict::explain(t.question(), t.options);
  ASSERT_FALSE(e.words.empty());
  EXPECT_NE(e.words.front().find("reduce-scatter of cup"), std::string::npos) << e.words.front();
  predict::Prediction p = predict::predict(t.question(), t.options);
  std::string trace = io::write_trace(p.run);
  for (const char* word : {"pour/cup", "brew/cup", "kettle"})
    EXPECT_NE(trace.find(word), std::string::npos) << word;
  std::string page = io::page_run(p.run).dump();
  EXPECT_NE(page.find("kettle"), std::string::npos);
}

// A file names operations by their words alone; what their subjects are is found out.
TEST(Words, OfOneNameDoTheSame) {
  const std::vector<OpWord>& words = systems::all_words();
  for (const OpWord& a : words)
    for (const OpWord& b : words) {
      if (std::string_view(a.name) != b.name) continue;
      EXPECT_EQ(a.kind.does, b.kind.does) << a.name;
      EXPECT_EQ(a.kind.phase, b.kind.phase) << a.name;
      EXPECT_EQ(a.kind.operation, b.kind.operation) << a.name;
    }
}

TEST(AMadeUpSystem, IsReadBackAsItWasWritten) {
  Teapot t;
  predict::Prediction p = predict::predict(t.question(), t.options);
  p.run.kind = RunKind::Measured;
  p.run.evidence = EvidenceClass::Replay;
  p.run.origin = {.version = "0",
                  .date = "2026-01-01",
                  .cpu = "x",
                  .cores = 1,
                  .kernel = "x",
                  .backend = "nccl",
                  .hosts = "gpus",
                  .compute = "timed",
                  .profile = "x"};
  p.run.split = "fit";
  ddpsim::Run read = io::read_run(io::parse_json(io::write_run(p.run).dump(), "it"), "it");
  ASSERT_EQ(read.spans.size(), p.run.spans.size());
  EXPECT_EQ(read.streams, p.run.streams);
  for (std::size_t i = 0; i < read.spans.size(); ++i) {
    EXPECT_EQ(read.spans[i].lane, p.run.spans[i].lane) << read.spans[i].op;
    EXPECT_EQ(read.spans[i].kind.does, p.run.spans[i].kind.does) << read.spans[i].op;
    EXPECT_EQ(read.spans[i].kind.phase, p.run.spans[i].kind.phase) << read.spans[i].op;
    EXPECT_EQ(read.spans[i].kind.operation, p.run.spans[i].kind.operation) << read.spans[i].op;
    EXPECT_EQ(carries_tensors(read.spans[i].kind), carries_tensors(p.run.spans[i].kind));
  }
}

}  // namespace
}  // namespace ddpsim
