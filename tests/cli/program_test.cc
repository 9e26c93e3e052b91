// A Program as a file: what show program writes is what predict --program plays, to the picosecond;
// what a recorder wrote is played as it is; what cannot be played is refused in a sentence.
#include <filesystem>
#include <sstream>

#include "sim/cost/roofline.h"
#include "sim/io/program_file.h"
#include "sim/predict/given_program.h"
#include "sim/predict/lowered.h"
#include "sim/systems/base/lower.h"
#include "tests/support/files.h"
#include "tests/support/systems.h"
#include "tools/cmd/question.h"

namespace ddpsim::test {
namespace {

namespace fs = std::filesystem;
using io::Json;

// ---- round trips

struct RoundTrip {
  Program lowered;
  io::ProgramFile read;
};

// Of a Program whose step decides what is reduced together, the step that was played.
RoundTrip round_trip(const cli::Loaded& l) {
  StepTimes times =
      predict::step_times(l.workload, l.profile, Level::Mid, predict::gathered_in(l.scenario.plan));
  RoundTrip out{predict::lowered(l.question(), times), {}};
  if (out.lowered.coordination) {
    out.lowered = predict::steady_step(l.question(), Level::Mid, l.options).program;
    out.lowered.coordination.reset();
    out.lowered.warmup.clear();
  }
  std::string text = io::write_program(out.lowered, l.workload, l.scenario.ranks).dump();
  out.read = io::read_playable(io::parse_json(text, "p.json"), "p.json", l.profile.kind);
  out.read.program.backend = *out.read.backend;
  return out;
}

void expect_same(const Program& a, const StepProgram& s, const Program& b, const StepProgram& t) {
  ASSERT_EQ(s.ops.size(), t.ops.size());
  EXPECT_EQ(s.kind, t.kind);
  for (std::uint32_t i = 0; i < s.ops.size(); ++i) {
    const Op& x = s.ops[i];
    const Op& y = t.ops[i];
    ASSERT_EQ(name_of(a, s, i), name_of(b, t, i));
    OpKind read = y.kind;
    read.in_micro_step = x.kind.in_micro_step;  // how a lowering names it
    ASSERT_EQ(x.kind, read) << name_of(a, s, i);
    ASSERT_EQ(tensors_of(a, s, i), tensors_of(b, t, i)) << name_of(a, s, i);
    std::vector<std::uint32_t> deps = deps_of(s, i);  // FSDP's name one twice
    deps.erase(std::unique(deps.begin(), deps.end()), deps.end());
    ASSERT_EQ(deps, deps_of(t, i)) << name_of(a, s, i);
    ASSERT_TRUE(x.lane == y.lane && x.bytes == y.bytes && x.dtype == y.dtype && x.root == y.root)
        << name_of(a, s, i);
    if (is_collective(x.kind) || is_wait(x.kind)) continue;  // have no cost of their own
    ASSERT_TRUE(x.cost == y.cost && x.duration == y.duration && x.traffic == y.traffic &&
                x.kernels == y.kernels && x.hooks == y.hooks)
        << name_of(a, s, i);
  }
}

void expect_same_prediction(const cli::Loaded& l, const RoundTrip& r, predict::Fidelity fidelity,
                            const std::string& name) {
  predict::Options options = l.options;
  options.fidelity = fidelity;
  options.interval = false;
  predict::Prediction direct = predict::predict(l.question(), options);
  Workload w = predict::stand_in(r.read.program, r.read.name, r.read.tensors, r.read.batch);
  Scenario s = l.scenario;
  Plan plan;  // what is not about collectives is in the Program
  plan.backend = r.read.backend;
  for (auto copied : {&Plan::algorithm, &Plan::gloo_algorithm}) plan.*copied = s.plan.*copied;
  plan.pytorch = s.plan.pytorch;
  plan.nccl = s.plan.nccl;
  plan.environment = s.plan.environment;
  plan.accumulation_steps = r.read.program.micro_steps;
  s.plan = plan;
  options.program = &r.read.program;
  predict::Prediction given = predict::predict({w, *l.fabric, l.profile, s}, options);
  EXPECT_EQ(direct.summary.step, given.summary.step) << name << " " << name_of(fidelity);
  ASSERT_EQ(direct.run.steps.size(), given.run.steps.size());
  for (std::size_t k = 0; k < direct.run.steps.size(); ++k)
    EXPECT_EQ(direct.run.steps[k].duration, given.run.steps[k].duration) << name << " step " << k;
  EXPECT_EQ(io::write_run(direct.run)["spans"], io::write_run(given.run)["spans"]) << name;
  EXPECT_EQ(direct.samples_per_s, given.samples_per_s) << name;
}

// Every golden scenario: DDP, averaging and FSDP, on CPUs and GPUs, with hooks, accumulation, slow
// ranks and orders of ranks.
TEST(ProgramFile, IsTheProgramThatItWasWrittenFrom) {
  std::ostringstream out;
  std::ostringstream err;
  cli::Terminal t{out, err, false, DDPSIM_SOURCE_DIR, ""};
  int compared = 0;
  std::set<std::string> systems;
  std::vector<fs::path> files;
  for (const auto& f : fs::directory_iterator(source_path("tests/golden/scenarios")))
    if (f.path().extension() == ".json") files.push_back(f.path());
  std::sort(files.begin(), files.end());
  for (const fs::path& f : files) {
    cli::QuestionFlags flags;
    flags.scenario = f.string();
    cli::Loaded l = cli::load(t, flags);
    const std::string name = f.stem().string();
    RoundTrip r = round_trip(l);
    ASSERT_EQ(r.lowered.warmup.size(), r.read.program.warmup.size()) << name;
    for (std::size_t k = 0; k < r.lowered.warmup.size(); ++k)
      expect_same(r.lowered, r.lowered.warmup[k], r.read.program, r.read.program.warmup[k]);
    expect_same(r.lowered, r.lowered.steady, r.read.program, r.read.program.steady);
    systems.insert(l.scenario.plan.system.name());
    if (!l.scenario.other_jobs.empty() || l.scenario.ranks > 64) continue;
    if (l.scenario.plan.system == systems::kHorovodSystem) continue;  // a mean of steps, below
    predict::check_program(r.read.program, l.question());
    expect_same_prediction(l, r, predict::Fidelity::Collective, name);
    ++compared;
    if (l.scenario.ranks <= 4 && predict::by_message(r.lowered) &&
        l.fabric->cluster().emulated_on_cores > 0)
      expect_same_prediction(l, r, predict::Fidelity::Message, name);
  }
  EXPECT_GE(compared, 20);
  EXPECT_EQ(systems.size(), systems::all_systems().size());
}

class ProgramCommands : public InFolder {
 protected:
  std::string shown(const Args& question) {
    Outcome o = ddpsim(Args{"show", "program", "--format", "json"} + question);
    EXPECT_EQ(o.code, 0) << o.err;
    put(at("p.json"), o.out);
    return at("p.json");
  }
  static Json summary(const Args& args) {
    Outcome o = ddpsim(args + Args{"--format", "json"});
    EXPECT_EQ(o.code, 0) << o.err;
    return o.code == 0 ? Json::parse(o.out)["summary"] : Json();
  }
  void refused(const Json& program, const Args& more, const char* words) {
    put(at("bad.json"), program.dump());
    Outcome o =
        ddpsim(Args{"predict", "--program", at("bad.json"), "--cluster", "testbed-star"} + more);
    EXPECT_EQ(o.code, 2) << words << o.out;
    EXPECT_NE(o.err.find(words), std::string::npos) << o.err;
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
  }
};

// A step as it was played, with its decisions: about as long as the mean of such steps.
TEST_F(ProgramCommands, PlayWhatACycleDecided) {
  Args question{"--workload", "resnet50", "--plan", "horovod"};
  Args cluster{"--cluster", "hgx-h100"};
  std::string file = shown(question + cluster);
  Json direct = summary(Args{"predict"} + question + cluster);
  Json given = summary(Args{"predict", "--program", file} + cluster);
  EXPECT_NEAR(given["step_ps"].get<double>() / direct["step_ps"].get<double>(), 1, 0.05);
  std::size_t tensors = 0;
  for (const Json& fused : given["buckets"]) tensors += fused["tensors"].size();
  EXPECT_EQ(tensors, 161u) << "every gradient once";
}

// The plan of who gives a Program has no servers: what the Program's take is its own word.
TEST_F(ProgramCommands, SayThemselvesWhatTheirServersTake) {
  Args plan{"--plan", "parameter_server", "--set", "synchronous=true"};
  Args cluster{"--cluster", "dgx-h100", "--workload", "resnet18"};
  Args bare{"--cluster", "dgx-h100"};
  const Json direct = summary(Args{"predict"} + cluster + plan);
  const Json given = summary(Args{"predict", "--program", shown(cluster + plan)} + bare);
  EXPECT_EQ(direct["step_ps"], given["step_ps"]);
  EXPECT_NE(direct["extrapolated"].dump().find("what servers take"), std::string::npos);
  EXPECT_EQ(given["extrapolated"].dump().find("what servers take"), std::string::npos);
}

TEST_F(ProgramCommands, PredictWhatWasShown) {
  struct Shown {
    const char* cluster;
    Args question;
  };
  for (const Shown& c : std::vector<Shown>{
           {"hgx-h100", {"--workload", "resnet50"}},
           {"hgx-h100", {"--workload", "gpt2-small", "--plan", "fsdp"}},
           {"dgx-a100", {"--workload", "resnet18", "--plan", "averaging"}},
           {"ethernet-10g", {"--workload", "resnet18-cpu", "--set", "comm_hook=fp16_compress"}},
           {"testbed-star", {"--workload", "cnn-cpu", "--set", "backend=tcp"}}}) {
    Args cluster{"--cluster", c.cluster};
    std::string file = shown(c.question + cluster);
    Json direct = summary(Args{"predict"} + c.question + cluster);
    Json given = summary(Args{"predict", "--program", file} + cluster);
    EXPECT_EQ(direct["step_ps"], given["step_ps"]) << c.cluster;
    EXPECT_EQ(direct["buckets"], given["buckets"]) << c.cluster;
    EXPECT_EQ(direct["samples_per_s"], given["samples_per_s"]) << c.cluster;
    EXPECT_TRUE(given["peak_memory_bytes"].is_null()) << "a program does not say what is held";
  }
}

TEST_F(ProgramCommands, AnswerInEveryForm) {
  std::string file = shown({"--workload", "resnet18", "--cluster", "hgx-h100"});
  const Args question{"--program", file, "--cluster", "hgx-h100"};
  for (const Args& form : {Args{}, Args{"--format", "csv"}, Args{"--format", "md"}}) {
    Outcome o = ddpsim(Args{"predict"} + question + form);
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_NE(o.out.find("collectives, over nccl"), std::string::npos) << o.out;
  }
  Outcome trace = ddpsim(Args{"trace"} + question);
  EXPECT_NE(trace.out.find("allreduce/bucket.0"), std::string::npos) << trace.err;
  Outcome explained = ddpsim(Args{"explain"} + question);
  EXPECT_EQ(explained.code, 0) << explained.err;
  EXPECT_NE(explained.out.find("times of computation as the program says"), std::string::npos);
  EXPECT_NE(explained.out.find("device's arithmetic decides: 10 % faster"), std::string::npos)
      << "a faster device shortens what the program says\n"
      << explained.out;
}

TEST_F(ProgramCommands, ScaleComputationAlone) {
  std::string file = shown({"--workload", "cnn-cpu", "--cluster", "ethernet-10g"});
  const Args question{"predict", "--program", file, "--cluster", "ethernet-10g"};
  Json once = summary(question);
  Json twice = summary(question + Args{"--compute-scale", "2"});
  EXPECT_EQ(2 * once["forward_ps"].get<std::int64_t>(), twice["forward_ps"].get<std::int64_t>());
  EXPECT_EQ(once["buckets"][0]["bytes"], twice["buckets"][0]["bytes"]);
}

// All-reduces and broadcasts are of any number of ranks; shards are not.
TEST_F(ProgramCommands, KnowOfHowManyRanksTheyAre) {
  std::string ddp = shown({"--workload", "resnet18", "--cluster", "hgx-h100", "--ranks", "4"});
  Json direct = summary({"predict", "--workload", "resnet18", "--cluster", "hgx-h100"});
  Json given = summary({"predict", "--program", ddp, "--cluster", "hgx-h100", "--ranks", "8"});
  EXPECT_EQ(direct["step_ps"], given["step_ps"]);
  std::string fsdp = shown(
      {"--workload", "gpt2-small", "--plan", "fsdp", "--cluster", "hgx-h100", "--ranks", "4"});
  EXPECT_EQ(summary({"predict", "--program", fsdp, "--cluster", "hgx-h100"})["buckets"].size(),
            38u);
  Outcome o = ddpsim({"predict", "--program", fsdp, "--cluster", "hgx-h100", "--ranks", "8"});
  EXPECT_EQ(o.code, 2);
  EXPECT_NE(o.err.find("the program is of 4 ranks, and bytes of its collectives depend on that"),
            std::string::npos)
      << o.err;
}

TEST_F(ProgramCommands, RunOnHostsOfThisMachine) {
  std::string file = shown({"--workload", "mlp784-50-10-cpu", "--cluster", "testbed-star", "--set",
                            "cluster.hosts=3", "--set", "backend=tcp"});
  const Args run{"run",   "--program",       file,      "--cluster", "testbed-star",
                 "--set", "cluster.hosts=3", "--steps", "3",         "--loopback"};
  Outcome o = ddpsim(run);
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("/program/n3/"), std::string::npos) << o.out;
  EXPECT_NE(o.out.find("predicted"), std::string::npos) << o.out;
  for (const Args& more : {Args{"--backend", "torch"}, Args{"--runs", at("runs")}}) {
    Outcome bad = ddpsim(run + more);
    EXPECT_EQ(bad.code, 2) << bad.out;
    EXPECT_NE(bad.err.find(more[0] + " "), std::string::npos) << bad.err;
  }
}

// ---- a program of somebody's own

// Two layers, one all-reduce for both; what a recorder writes.
Json recorded() {
  auto op = [](const char* lane, const char* name, Json more) {
    more["lane"] = lane;
    more["op"] = name;
    for (const char* list : {"tensors", "waits_for"})
      if (!more.contains(list)) more[list] = Json::array();
    return more;
  };
  Json p{{"schema", "ddpsim.program/1"},
         {"origin", {{"software", "SomeFramework 3"}}},
         {"ranks", 2},
         {"rank", 0},
         {"tensors",
          {{{"name", "a"}, {"kind", "parameter"}, {"shape", {1000}}, {"dtype", "float32"}},
           {{"name", "b"}, {"kind", "parameter"}, {"shape", {10, 10}}, {"dtype", "float32"}}}},
         {"steps", Json::array()}};
  p["steps"].push_back(
      {{"kind", "step.0"},
       {"ops",
        {op("compute", "fwd", {{"phase", "forward"}, {"duration_ps", 5'000'000'000}}),
         op("compute", "bwd/a",
            {{"phase", "backward"}, {"duration_ps", 5'000'000'000}, {"tensors", {"a"}}}),
         op("comm", "sum/0",
            {{"operation", "all_reduce"},
             {"phase", "backward"},
             {"bytes", 4400},
             {"dtype", "float32"},
             {"group", {0, 1}},
             {"tensors", {"a", "b"}},
             {"waits_for", {"bwd/a"}}}),
         op("compute", "update",
            {{"phase", "step"}, {"duration_ps", 1'000'000'000}, {"waits_for", {"sum/0"}}})}}});
  return p;
}

TEST_F(ProgramCommands, PlayARecordedOneOnWhateverDevices) {
  put(at("own.json"), recorded().dump());
  for (const char* cluster : {"testbed-star", "hgx-h100"}) {
    Outcome o = ddpsim({"predict", "--program", at("own.json"), "--cluster", cluster});
    ASSERT_EQ(o.code, 0) << o.err;
    for (const char* words : {"own on ", "sum/0",
                              "machine that recorded the program "
                              "(SomeFramework 3)"})
      EXPECT_NE(o.out.find(words), std::string::npos) << words << o.out;
    EXPECT_EQ(o.out.find("samples/s"), std::string::npos) << "its batch is not known";
    Json s = summary({"predict", "--program", at("own.json"), "--cluster", cluster, "--set",
                      "stragglers=false"});
    EXPECT_EQ(s["forward_ps"], 5'000'000'000) << cluster;
    EXPECT_EQ(s["optimizer_ps"], 1'000'000'000) << cluster;
    EXPECT_GT(s["exposed_communication_ps"].get<std::int64_t>(), 0) << cluster;
    EXPECT_TRUE(s["samples_per_s"].is_null());
    ASSERT_EQ(s["buckets"].size(), 1u);
    EXPECT_EQ(s["buckets"][0]["tensors"], Json({"a", "b"}));
  }
}

TEST_F(ProgramCommands, PlayTheExampleOfTheFormats) {
  const std::string formats = raw(source_path("docs/formats.md"));
  const std::string begin = "```json\n{\"schema\": \"ddpsim.program/1\"";
  std::size_t from = formats.find(begin);
  ASSERT_NE(from, std::string::npos);
  from += 8;
  put(at("example.json"), formats.substr(from, formats.find("```", from) - from));
  Json s = summary({"predict", "--program", at("example.json"), "--cluster", "hgx-h100", "--set",
                    "stragglers=false"});
  EXPECT_EQ(s["backward_ps"], 9'000'000'000);
  EXPECT_GT(s["step_ps"].get<std::int64_t>(), 14'300'000'000);
}

TEST_F(ProgramCommands, RefuseWhatCannotBePlayed) {
  auto with = [](auto change) {
    Json p = recorded();
    change(p, p["steps"][0]["ops"]);
    return p;
  };
  struct Unplayable {
    Json program;
    const char* words;
  };
  using J = Json&;
  const std::vector<Unplayable> cases{
      {with([](J, J o) { o[0]["lane"] = "gpu7"; }),
       "ops/0/lane: \"gpu7\" is not a lane; known are"},
      {with([](J, J o) { o[2]["operation"] = "all_redcue"; }),
       "is no collective that ddpsim plays"},
      {with([](J, J o) { o[2]["operation"] = "gather"; }), "is no collective that ddpsim plays"},
      {with([](J, J o) { o[2]["operation"] = "reduce_scatter"; }),
       "operation \"sum/0\" is of reduce_scatter, which ddpsim does not play over gloo here"},
      {with([](J, J o) { o[2]["tensors"][1] = "c"; }), "\"c\" is not in the file's \"tensors\""},
      {with([](J, J o) { o[2]["tensors"][1] = "b[90:101]"; }),
       "is no slice of \"b\", which has 100"},
      {with([](J, J o) { o[0]["waits_for"] = {"update"}; }),
       "\"update\" names no operation before it in this step"},
      {with([](J, J o) { o[2]["waits_for"] = {"sum/0"}; }),
       "\"sum/0\" names no operation before it in this step"},
      {with([](J, J o) { o[2]["bytes"] = -8; }), "expected bytes from 1 to"},
      {with([](J, J o) { o[2]["bytes"] = 4396; }),
       "its tensors are 4400 bytes in float32, and it says 4396"},
      {with([](J, J o) { o[2].erase("bytes"); }), "ops/2: \"bytes\" is missing"},
      {with([](J, J o) { o[0].erase("duration_ps"); }),
       "says neither what it does (\"does\") nor how long it takes"},
      {with([](J, J o) { o[0].erase("duration_ps"), o[0]["does"] = "compute"; }), "has no cost"},
      {with([](J, J o) { o[0]["cost"] = "luck"; }), "ops/0/cost: "},
      {with([](J, J o) { o[0]["duration_ps"] = INT64_MAX; }), "expected picoseconds from 0 to"},
      {with([](J, J o) { o[0]["duration_ps"] = 0.5; }), "ops/0/duration_ps: "},
      {with([](J, J o) {
         o[2]["group"] = {0, 2};
       }),
       "ranks are 0 to 1; the group has 2"},
      {with([](J, J o) {
         o[2]["group"] = {1, 1};
       }),
       "a rank stands twice in the group"},
      {with([](J, J o) { o[2]["group"] = {1}; }),
       "is of some ranks only, which ddpsim does not play over gloo"},
      {with([](J p, J o) {  // whose size times their distance is beyond 32 bits
         p["ranks"] = 1 << 20;
         o[2]["group"] = Json::array();
         for (std::int64_t k = 0; k < 8192; ++k)
           o[2]["group"].push_back(k == 0 ? 0 : (1 << 19) + k - 1);
       }),
       "ddpsim plays groups of equally many ranks"},
      {with([](J, J o) { o[2]["group"] = "shard"; }),
       "expected \"world\", one of the file's \"groups\" or a list of ranks"},
      {with([](J p, J) {
         p["groups"]["g"] = {{"size", 3}, {"stride", 1}};
       }),
       "groups of 3 ranks, 1 apart, do not part 2 ranks"},
      {with([](J p, J) {
         p["groups"]["world"] = {{"size", 1}, {"stride", 1}};
       }),
       "\"world\" is no name for a group"},
      {with([](J p, J) { p["groups"] = Json::array(); }), "expected an object"},
      {with([](J, J o) { o = Json::array(); }), "a step has at least one operation"},
      {with([](J p, J) { p["steps"] = Json::array(); }), "has no step"},
      {with([](J p, J) { p["steps"][0]["kind"] = "first"; }),
       "the last step is the one that is repeated"},
      {with([](J, J o) { o[1]["op"] = "fwd"; }), "stands twice in this step"},
      {with([](J, J o) { o[1]["does"] = "launch"; }), "a launch is called launch/X"},
      {with([](J, J o) { o[1]["lane"] = "worker"; }), "the workers compute nothing"},
      {with([](J, J o) { o[1]["colour"] = 1; }), "ops/1/colour: unknown key"},
      {with([](J p, J) { p["device"] = "gpu"; }), "the program is of GPUs and the cluster is of"},
      {with([](J p, J) { p["tensors"][1]["name"] = "a"; }), "stands twice"},
      {with([](J p, J) {
         p["tensors"][1]["shape"] = {1'000'000'000, 1'000'000'000};
       }),
       "more elements than any device holds"},
      {with([](J p, J o) {
         p["streams"] = {"side"};
         o[3]["duration_ps"] = 0, o[3]["lane"] = "side", o[3]["waits_for"] = Json::array();
       }),
       "its steady step takes no time"},
      {with([](J p, J) { p["ranks"] = 0; }), "#/ranks: "},
      {with([](J p, J) { p["streams"] = {"host"}; }), "is no name for a stream of its own"},
      {with([](J p, J) { p.erase("tensors"); }), "\"tensors\" is missing"},
  };
  for (const Unplayable& c : cases) refused(c.program, {}, c.words);
  refused(recorded(), {"--workload", "cnn-cpu"}, "a program is the workload and the plan");
  refused(recorded(), {"--plan", "fsdp"}, "a program is the workload and the plan");
  refused(recorded(), {"--set", "bucket_cap_mb=5"}, "changes what is lowered, and a program is");
  refused(recorded(), {"--set", "workload.batch=5"}, "changes what is lowered, and a program is");
  refused(recorded(), {"--set", "other_jobs=[{\"rank_order\":[2,3]}]"}, "predicted by itself");
  refused(recorded(), {"--ranks", "64", "--set", "cluster.hosts=4"}, "--ranks 64: ");
  refused(recorded(), {"--compute-scale", "-1"}, "--compute-scale -1: ");
  Outcome o = ddpsim(
      {"predict", "--workload", "cnn-cpu", "--cluster", "testbed-star", "--compute-scale", "2"});
  EXPECT_EQ(o.code, 2);
  EXPECT_NE(o.err.find("--compute-scale 2: is of --program"), std::string::npos) << o.err;
}

TEST_F(ProgramCommands, RefuseToRunWhatTheExecutorCannotPlay) {
  Json p = recorded();
  p["streams"] = {"side"};
  p["steps"][0]["ops"][2]["lane"] = "side";
  put(at("side.json"), p.dump());
  Outcome o =
      ddpsim({"run", "--program", at("side.json"), "--cluster", "testbed-star", "--loopback"});
  EXPECT_EQ(o.code, 2);
  EXPECT_NE(o.err.find("operation \"sum/0\" communicates on stream \"side\""), std::string::npos)
      << o.err;
}

}  // namespace
}  // namespace ddpsim::test
