// Run files: both kinds come back as they were written, mistakes are named, .gz is a matter of the
// path.
#include <filesystem>
#include <fstream>
#include <functional>

#include <gtest/gtest.h>
#include <unistd.h>

#include "sim/io/files.h"
#include "sim/systems/averaging/plan.h"
#include "sim/systems/base/lower.h"
#include "sim/systems/ddp/plan.h"
#include "tests/support/files.h"
#include "tests/support/support.h"
#include "tests/support/systems.h"

namespace ddpsim::test {
namespace {

namespace fs = std::filesystem;
using io::Json;

Run predicted_run(const Plan& plan, DeviceKind kind, const char* workload_name) {
  Workload w = workload(workload_name);
  Cluster c = star(3, Bandwidth{10'000'000'000});
  c.device = kind;
  Profile p = ideal_profile(kMicrosecond * 5, kind);
  topology::Fabric fabric(c);
  Scenario s;
  s.plan = plan;
  s.ranks = 3;
  s.slow_ranks[1] = 1.5;
  Run run = predict::predict({w, fabric, p, s}).run;
  run.key = "key/of it";
  return run;
}

Run measured_run() {
  Run r;
  r.kind = RunKind::Measured;
  r.evidence = EvidenceClass::Replay;
  r.key = "mlp@star/pytorch_ddp/n2/0123456789abcdef";
  r.scenario = "0123456789abcdef";
  r.split = "fit";
  r.workload = "fedcba9876543210";
  r.origin = {"0.1.0",
              "abc123",
              "2026-11-21T10:00:00Z",
              {"ddpsim", "run", "--ranks", "2"},
              "Some CPU",
              16,
              "6.1.0",
              "tcp",
              "namespaces",
              "",
              "timed",
              "cpu"};
  r.quality = {Verdict::Noisy, 0.0123, 7, 0.25, {"other work on the machine"}};
  r.steps = {{StepKind::First, {3'000'000}},
             {StepKind::Rebuild, {2'500'000}},
             {StepKind::Steady, {2'000'001}},
             {StepKind::Steady, {2'000'003}}};
  r.samples = {{"all_reduce", {{"bytes", 1024}, {"ranks", 2}}, {{10}, {12}, {0}}}};
  r.skipped = {{"8 ranks", "4 cores"}};
  r.tensor_names = {"a.weight", "a.bias"};
  Span fwd{2, 0, 1, Lane::Host, kind_of_op("fwd"), "fwd", {}, 0, {-5}, {-5}, {700'000}, ""};
  Span sum{3,
           1,
           1,
           Lane::Worker,
           kind_of_op("allreduce/bucket.0"),
           "allreduce/bucket.0",
           {1, 0},
           4096,
           {800'000},
           {900'000},
           {1'500'000},
           "ring"};
  r.spans = {fwd, sum};
  return r;
}

// Of the real framework.
Run system_run() {
  Run r = measured_run();
  r.evidence = EvidenceClass::System;
  r.origin.software = "PyTorch 1.13.0, gloo, 2 ranks, 1 threads a rank";
  r.steps.front().page_faults = 12'000;
  r.steps.push_back({StepKind::Steady, {2'100'000}, true});
  r.layers =
      LayerProfile{{400'000}, {900'000}, {50'000}, {30'000}, 2, {1, 0}, {{300'000}, {900'000}}};
  r.first_buckets = {8192};
  r.steady_buckets = {4096, 4096};
  return r;
}

std::string text_of(const Run& r) {
  return io::write_run(r).dump(1) + "\n";
}
Run reread(const Run& r) {
  return io::read_run(io::parse_json(text_of(r), "r.json"), "r.json");
}

void expect_same_spans(const Run& a, const Run& b, bool measured) {
  ASSERT_EQ(a.spans.size(), b.spans.size());
  for (std::size_t i = 0; i < a.spans.size(); ++i) {
    const Span& x = a.spans[i];
    const Span& y = b.spans[i];
    EXPECT_EQ(x.op, y.op);
    EXPECT_EQ(x.kind, y.kind) << x.op;
    EXPECT_EQ(x.lane, y.lane) << x.op;
    EXPECT_EQ(x.step, y.step);
    EXPECT_EQ(x.actor, y.actor);
    EXPECT_EQ(x.count, y.count);
    EXPECT_EQ(x.begin - a.spans_from, y.begin - b.spans_from);
    EXPECT_EQ(x.end - a.spans_from, y.end - b.spans_from);
    EXPECT_EQ(x.ready - a.spans_from, y.ready - b.spans_from);
    if (is_collective(x.kind)) {
      EXPECT_EQ(x.tensors, y.tensors) << x.op;
      EXPECT_EQ(x.bytes, y.bytes) << x.op;
      EXPECT_EQ(x.algorithm, y.algorithm) << x.op;
    }
  }
  EXPECT_EQ(measured, b.kind == RunKind::Measured);
}

TEST(RunFile, AMeasuredRunComesBack) {
  ddpsim::Run a = measured_run();
  ddpsim::Run b = reread(a);
  EXPECT_EQ(text_of(a), text_of(b));
  expect_same_spans(a, b, true);
  EXPECT_EQ(b.evidence, EvidenceClass::Replay);
  EXPECT_EQ(b.scenario, a.scenario);
  EXPECT_EQ(b.workload, a.workload);
  EXPECT_EQ(b.split, "fit");
  EXPECT_EQ(b.origin.argv, a.origin.argv);
  EXPECT_EQ(b.origin.hosts, "namespaces");
  EXPECT_EQ(b.quality.verdict, Verdict::Noisy);
  EXPECT_EQ(b.quality.spread, 0.0123);
  EXPECT_EQ(b.quality.reasons, a.quality.reasons);
  EXPECT_EQ(b.samples.at(0).parameters, a.samples[0].parameters);
  EXPECT_EQ(b.samples.at(0).durations, a.samples[0].durations);
  EXPECT_EQ(b.skipped.at(0).why, "4 cores");
  EXPECT_EQ(b.tensor_names, a.tensor_names);
  EXPECT_EQ(b.steps.at(1).kind, StepKind::Rebuild);
  EXPECT_EQ(b.steps.at(3).duration.ps, 2'000'003);
}

TEST(RunFile, TheSettingOfCollectivesComesBack) {
  ddpsim::Run a = measured_run();
  EXPECT_EQ(text_of(a).find("\"collectives\""),
            std::string::npos);  // a Run without it is written as before
  a.evidence = EvidenceClass::Published;
  a.collectives = CollectiveSetting{"all_reduce",
                                    8,
                                    1,
                                    "A100",
                                    2,
                                    "2.28.9",
                                    "nvlstree",
                                    "ll128",
                                    "dgx-a100",
                                    {{"NCCL_ALGO", "NVLSTree"}},
                                    "a page",
                                    {{4096, "ring", "ll", 2}}};
  ddpsim::Run b = reread(a);
  EXPECT_EQ(text_of(a), text_of(b));
  ASSERT_TRUE(b.collectives);
  EXPECT_EQ(b.collectives->environment, a.collectives->environment);
  EXPECT_EQ(b.collectives->chosen, a.collectives->chosen);
  EXPECT_EQ(b.collectives->hosts, 2);
  auto refused = [&](const char* pointer, const Json& value) {
    Json j = io::parse_json(text_of(a), "r.json");
    j[Json::json_pointer(pointer)] = value;
    try {
      io::read_run(j, "r.json");
      return std::string("nothing was thrown");
    } catch (const InputError& e) {
      return e.where + ": " + e.what;
    }
  };
  EXPECT_EQ(refused("/collectives/algorithm", "rnig"),
            "r.json#/collectives/algorithm: \"rnig\" is none of tree, ring, collnetdirect, "
            "collnetchain, nvls, nvlstree, pat (did you mean \"ring\"?)");
  EXPECT_EQ(refused("/collectives/ranks", 0),
            "r.json#/collectives/ranks: 0 is not within 1 and 1048576");
  EXPECT_EQ(refused("/collectives/enviroment", Json::object()),
            "r.json#/collectives/enviroment: unknown key (did you mean \"environment\"?)");
  EXPECT_EQ(refused("/collectives/chosen/0/bytes", -1),
            "r.json#/collectives/chosen/0/bytes: a number of bytes is not negative");
}

TEST(RunFile, ARunOfTheRealFrameworkComesBack) {
  ddpsim::Run a = system_run();
  ddpsim::Run b = reread(a);
  EXPECT_EQ(text_of(a), text_of(b));
  EXPECT_EQ(b.evidence, EvidenceClass::System);
  EXPECT_EQ(b.origin.software, a.origin.software);
  EXPECT_TRUE(b.steps.back().instrumented);
  EXPECT_FALSE(b.steps.front().instrumented);
  EXPECT_EQ(b.steps.front().page_faults, 12'000);
  EXPECT_EQ(b.steps.back().page_faults, 0);
  ASSERT_TRUE(b.layers.has_value());
  EXPECT_EQ(b.layers->core.ps, 30'000);
  EXPECT_EQ(b.layers->ranks, 2);
  EXPECT_EQ(b.layers->arrival, a.layers->arrival);
  EXPECT_EQ(b.first_buckets, a.first_buckets);
  EXPECT_EQ(b.steady_buckets, a.steady_buckets);
  Json j = io::parse_json(text_of(a), "r.json");
  j["layers"]["arrival"][0] = 7;
  EXPECT_THROW(io::read_run(j, "r.json"), InputError) << "there is no tensor 7";
  j = io::parse_json(text_of(a), "r.json");
  j["layers"]["ready_ps"].push_back(1);
  EXPECT_THROW(io::read_run(j, "r.json"), InputError) << "one ready time too many";
}

TEST(RunFile, ALayerProfileKeepsAGpusHostTimes) {
  auto a = system_run();
  EXPECT_FALSE(reread(a).layers->host.has_value());
  a.layers->host = HostTimes{{100'000}, {200'000}, {30'000}, {{50'000}, {200'000}}};
  auto b = reread(a);
  ASSERT_TRUE(b.layers->host.has_value());
  EXPECT_EQ(text_of(a), text_of(b));
  EXPECT_EQ(b.layers->host->forward.ps, 100'000);
  EXPECT_EQ(b.layers->host->backward.ps, 200'000);
  EXPECT_EQ(b.layers->host->optimizer.ps, 30'000);
  EXPECT_EQ(b.layers->host->ready, a.layers->host->ready);
  Json j = io::parse_json(text_of(a), "r.json");
  j["layers"]["host_ready_ps"].push_back(1);
  EXPECT_THROW(io::read_run(j, "r.json"), InputError) << "one ready time too many";
  j = io::parse_json(text_of(a), "r.json");
  j["layers"].erase("host_optimizer_ps");
  EXPECT_THROW(io::read_run(j, "r.json"), InputError) << "all of them, or none";
}

TEST(RunFile, PredictedRunsComeBackForEveryKindOfOperation) {
  Plan ddp;
  ddp_of(ddp).find_unused_parameters = true;
  ddp_of(ddp).comm_hook = CommHook::Fp16Compress;
  ddp.accumulation_steps = 2;
  Plan one_by_one;
  one_by_one.system = systems::kAveragingSystem;
  Plan flat = one_by_one;
  averaging_of(flat).granularity = Granularity::Flat;
  flat.accumulation_steps = 2;
  for (const Plan& plan : {Plan{}, ddp, one_by_one, flat})
    for (DeviceKind kind : {DeviceKind::Gpu, DeviceKind::Cpu}) {
      ddpsim::Run a =
          predicted_run(plan, kind, kind == DeviceKind::Gpu ? "resnet18" : "mlp784-50-10-cpu");
      ddpsim::Run b = reread(a);
      EXPECT_EQ(text_of(a), text_of(b));
      EXPECT_EQ(b.spans_from.ps, 0);
      EXPECT_EQ(b.profile, a.profile);
      expect_same_spans(a, b, false);
    }
}

TEST(RunFile, EveryNameOfEveryStepHasItsKind) {
  Plan plan;
  ddp_of(plan).find_unused_parameters = true;
  plan.pytorch = PytorchVersion{1, 13};
  plan.set_to_none = false;
  plan.accumulation_steps = 2;
  ddpsim::Run frame = measured_run();
  for (System system : {systems::kDdpSystem, systems::kAveragingSystem})
    for (DeviceKind kind : {DeviceKind::Gpu, DeviceKind::Cpu}) {
      plan.system = system;
      ddp_of(plan).find_unused_parameters = system == systems::kDdpSystem;
      Workload w = layered(3, 4'000'000, kMillisecond, kMillisecond, kind);
      w.buffers.push_back({"running_mean", {64}, DType::Float32});
      Program p = systems::lower({w, w.times, kind, 2}, plan);
      frame.spans.clear();
      p.warmup.push_back(p.steady);
      for (const StepProgram& s : p.warmup)
        for (std::uint32_t i = 0; i < s.ops.size(); ++i)
          frame.spans.push_back(
              {0, 0, 1, s.ops[i].lane, s.ops[i].kind, name_of(p, s, i), {}, 0, {}, {}, {}, ""});
      ddpsim::Run b = reread(frame);
      for (std::size_t i = 0; i < b.spans.size(); ++i)
        EXPECT_EQ(b.spans[i].kind, frame.spans[i].kind) << b.spans[i].op;
    }
}

struct Mistake {
  const char* name;
  std::function<void(Json&)> make;
  const char* where;
  const char* what;
};
TEST(RunFile, MistakesAreNamedWithPlaceAndRemedy) {
  const Mistake mistakes[] = {
      {"schema", [](Json& j) { j["schema"] = "ddpsim.run/2"; }, "/schema", "ddpsim.run/1"},
      {"key", [](Json& j) { j["evidense"] = 1; }, "/evidense", "evidence"},
      {"kind", [](Json& j) { j["kind"] = "guessed"; }, "/kind", "measured"},
      {"op", [](Json& j) { j["spans"][1]["op"] = "allreduce"; }, "/spans/1/op", "show program"},
      {"lane", [](Json& j) { j["spans"][1]["lane"] = "hots"; }, "/spans/1/lane", "host"},
      {"step", [](Json& j) { j["spans"][1]["step"] = 4; }, "/spans/1/step", "4 steps"},
      {"tensor", [](Json& j) { j["spans"][1]["tensors"][0] = 2; }, "/spans/1/tensors/0",
       "2 tensors"},
      {"order", [](Json& j) { j["spans"][0]["end_ps"] = -6; }, "/spans/0/end_ps", "before"},
      {"predicted's key", [](Json& j) { j["spans"][0]["class"] = 0; }, "/spans/0/class", ""},
      {"duration", [](Json& j) { j["steps"][0]["duration_ps"] = 0; }, "/steps/0/duration_ps",
       "takes time"},
      {"hash", [](Json& j) { j["case"]["scenario"] = "../../etc"; }, "/case/scenario",
       "16 hexadecimal"},
      {"clock", [](Json& j) { j["clock"]["domain"] = "virtual"; }, "/clock/domain",
       "CLOCK_MONOTONIC"},
      {"verdict", [](Json& j) { j["quality"]["verdict"] = "fine"; }, "/quality/verdict", "clean"},
      {"spread", [](Json& j) { j["quality"]["spread"] = -1; }, "/quality/spread", "negative"},
      {"sample", [](Json& j) { j["samples"][0]["durations_ps"] = Json::array(); },
       "/samples/0/durations_ps", "at least one"},
      {"nothing", [](Json& j) { j["steps"] = j["samples"] = j["spans"] = Json::array(); }, "#",
       "steps or samples"},
      {"missing", [](Json& j) { j.erase("quality"); }, "#", "quality"},
  };
  for (const Mistake& m : mistakes) {
    Json j = io::parse_json(text_of(measured_run()), "r");
    m.make(j);
    try {
      io::read_run(j, "r.json");
      ADD_FAILURE() << m.name << " was accepted";
    } catch (const InputError& e) {
      EXPECT_NE(e.where.find(m.where), std::string::npos) << m.name << ": " << e.where;
      EXPECT_NE((e.where + e.what).find(m.what), std::string::npos) << m.name << ": " << e.what;
    }
  }
}

class Files : public InFolder {
 protected:
  std::string refusal(const std::string& path) const {
    try {
      io::read_file(path);
    } catch (const InputError& e) {
      return e.what;
    }
    return "accepted";
  }
};

TEST_F(Files, GzipIsWrittenByNameAndReadByContent) {
  std::string text = text_of(measured_run());
  io::write_file(at("a.json.gz"), text);
  io::write_file(at("b.json.gz"), text);
  std::string packed = raw(at("a.json.gz"));
  EXPECT_EQ(packed.substr(0, 2), "\x1f\x8b");
  EXPECT_EQ(packed.substr(4, 4), std::string(4, '\0'))
      << "a time in the header would make every file differ";
  EXPECT_EQ(packed, raw(at("b.json.gz")));
  EXPECT_LT(packed.size(), text.size());
  EXPECT_EQ(io::read_file(at("a.json.gz")), text);
  fs::rename(at("a.json.gz"), at("a.json"));
  EXPECT_EQ(io::read_file(at("a.json")), text);
  io::write_file(at("empty.gz"), "");
  EXPECT_EQ(io::read_file(at("empty.gz")), "");
  put(at("two.gz"), packed + packed);
  EXPECT_EQ(io::read_file(at("two.gz")), text + text);
  EXPECT_EQ(io::list_files(folder_.string(), {""}).size(), 4u) << "a temporary is left";
}

TEST_F(Files, DamagedAndHugeGzipIsRefused) {
  io::write_file(at("a.gz"), text_of(measured_run()));
  std::string packed = raw(at("a.gz"));
  put(at("short.gz"), packed.substr(0, packed.size() / 2));
  EXPECT_NE(refusal(at("short.gz")).find("ends too early"), std::string::npos)
      << refusal(at("short.gz"));
  put(at("header.gz"), "\x1f\x8b");
  EXPECT_NE(refusal(at("header.gz")).find("ends too early"), std::string::npos);
  std::string flipped = packed;
  flipped[packed.size() - 6] ^= 1;  // checksum
  put(at("flipped.gz"), flipped);
  EXPECT_NE(refusal(at("flipped.gz")).find("damaged"), std::string::npos);
  put(at("tail.gz"), packed + "x");
  EXPECT_NE(refusal(at("tail.gz")), "accepted");
  // A bomb: 65 members of 1 MiB of zeros each.
  io::write_file(at("mib.gz"), std::string(1 << 20, '\0'));
  std::string member = raw(at("mib.gz"));
  std::string bomb;
  for (int i = 0; i < 65; ++i) bomb += member;
  put(at("bomb.gz"), bomb);
  EXPECT_NE(refusal(at("bomb.gz")).find("64 MiB"), std::string::npos);
}

TEST_F(Files, AFolderIsListedSortedAndFlat) {
  for (const char* name : {"b.json", "a.json.gz", "c.txt"}) put(at(name), "x");
  fs::create_directories(folder_ / "d.json");
  put(at("d.json/e.json"), "x");
  EXPECT_EQ(io::list_files(folder_.string(), {".json", ".json.gz"}),
            (std::vector<std::string>{at("a.json.gz"), at("b.json")}));
  try {
    io::list_files(at("nowhere"), {".json"});
    ADD_FAILURE();
  } catch (const InputError& e) {
    EXPECT_EQ(e.what, "no such folder");
  }
}

}  // namespace
}  // namespace ddpsim::test
