// What each command prints, where it prints it, and what overrides what.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "sim/io/files.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

namespace fs = std::filesystem;
using io::Json;

const Args kCpu{"--workload", "mlp784-50-10-cpu", "--cluster", "ethernet-10g"};
const Args kGpu{"--workload", "mlp784-50-10", "--cluster", "hgx-h100"};
const Args kResnet{"--workload", "resnet18", "--cluster", "hgx-h100"};  // several buckets

Json answer(const Args& args) {
  Outcome o = ddpsim(args);
  EXPECT_EQ(o.code, 0) << o.err;
  return o.code == 0 ? io::parse_json(o.out, "stdout") : Json();
}
Json run_of(const Args& flags) {
  return answer(Args{"predict"} + flags + Args{"--format", "json"});
}
Json summary(const Args& flags) {
  return run_of(flags)["summary"];
}
std::int64_t step(const Args& flags) {
  return summary(flags)["step_ps"].get<std::int64_t>();
}

class Folder : public testing::Test {
 protected:
  void SetUp() override {
    path_ = fs::path(testing::TempDir()) / ("ddpsim_cli_" + std::to_string(::getpid()));
    fs::create_directories(path_);
  }
  void TearDown() override { fs::remove_all(path_); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name) << text;
  }
  fs::path path_;
};

// Rows of Markdown tables that have another number of cells than the row above; without tables at
// all, the text.
std::string ragged_rows(const std::string& text) {
  std::string bad;
  long above = 0, rows = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    long cells = line.starts_with("|") ? std::count(line.begin(), line.end(), '|') : 0;
    if (cells > 0) ++rows;
    if (cells > 0 && above > 0 && cells != above) bad += line + "\n";
    above = cells;
  }
  return rows > 3 ? bad : text;
}

struct Command {
  Args args;
  std::vector<std::string> formats;
};
const std::vector<Command> kCommands{
    {Args{"predict"} + kCpu, {"table", "csv", "json", "md"}},
    {Args{"predict"} + kGpu, {"table", "csv", "json", "md"}},
    {Args{"predict"} + kCpu + Args{"--fidelity", "message", "--ranks", "3"},
     {"table", "csv", "json"}},
    {Args{"predict"} + kCpu + Args{"--set", "jitter={\"cv\":0.05,\"samples\":5}"},
     {"table", "csv", "json"}},
    {Args{"predict"} + kCpu + Args{"--plan", "averaging"}, {"table", "csv", "json"}},
    {{"list"}, {"table"}},
    {{"list", "workloads"}, {"table", "csv", "json"}},
    {{"list", "clusters"}, {"table", "csv", "json"}},
    {{"list", "profiles"}, {"table", "csv", "json"}},
    {{"list", "plans"}, {"table", "csv", "json"}},
    {Args{"show", "program"} + kCpu, {"table", "csv", "json"}},
    {Args{"show", "program"} + kGpu, {"table", "csv", "json"}},
    {Args{"show", "buckets"} + kResnet, {"table", "csv", "json"}},
    {{"show", "workload", "mlp784-50-10"}, {"json", "table"}},
    {{"show", "cluster", "hgx-h100"}, {"table", "json"}},
    {{"show", "profile", "h100-sxm.datasheet"}, {"table", "json"}},
    {Args{"tune"} + kCpu, {"table", "json", "csv", "md"}},
    {Args{"tune"} + kGpu, {"table", "json", "csv", "md"}},
    {Args{"explain"} + kCpu, {"table", "json", "md"}},
    {Args{"explain"} + kGpu, {"table", "json", "md"}},
    {Args{"trace"} + kCpu, {"json"}},
    {Args{"trace"} + kGpu, {"json"}},
    {{"doctor"}, {"table", "csv", "json"}},
    {{"topology", "show", "dgx1-v100"}, {"table", "json"}},
    {{"topology", "check", "dgx1-v100"}, {"table", "json"}},
    {{"topology", "draw", "dgx1-v100"}, {"dot"}},
};

// Fields of the first line and of every other line; quoted commas do not count.
std::size_t csv_fields(const std::string& line) {
  bool quoted = false;
  std::size_t n = 1;
  for (char c : line) {
    if (c == '"') quoted = !quoted;
    n += c == ',' && !quoted ? 1 : 0;
  }
  return n;
}

TEST_F(Folder, EachCommandInEachFormat) {
  for (const Command& c : kCommands) {
    for (const std::string& format : c.formats) {
      Args args = c.args + Args{"--format", format};
      std::string name = c.args[0] + " " + (c.args.size() > 1 ? c.args[1] : "") + " " + format;
      SCOPED_TRACE(name);
      // The first format is the default.
      Outcome first = ddpsim(format == c.formats.front() ? c.args : args);
      ASSERT_EQ(first.code, 0) << first.err;
      EXPECT_EQ(first.err, "");
      ASSERT_FALSE(first.out.empty());
      EXPECT_EQ(first.out.back(), '\n');
      EXPECT_EQ(first.out.find('\x1b'), std::string::npos) << "colour without a terminal";
      if (format == "json") {
        EXPECT_TRUE(io::parse_json(first.out, "stdout").is_structured());
      }
      if (format == "md") {
        EXPECT_EQ(ragged_rows(first.out), "");
      }
      if (format == "csv") {
        std::size_t from = first.out.find('\n') + 1;
        std::size_t fields = csv_fields(first.out.substr(0, from - 1));
        EXPECT_GT(fields, 1u);
        EXPECT_LT(from, first.out.size()) << "a header and no row";
        while (from < first.out.size()) {
          std::size_t end = first.out.find('\n', from);
          EXPECT_EQ(csv_fields(first.out.substr(from, end - from)), fields)
              << first.out.substr(from, end - from);
          from = end + 1;
        }
      }
      // Again, into a file: the same bytes. doctor tells the load of the machine, which may have
      // changed between the two.
      Outcome to_file = ddpsim(args + Args{"--out", file("answer")});
      for (int more = 0; more < 3 && c.args[0] == "doctor"; ++more) {
        if (io::read_file(file("answer")) == first.out) break;
        first = ddpsim(args);
        to_file = ddpsim(args + Args{"--out", file("answer")});
      }
      EXPECT_EQ(to_file.code, 0) << to_file.err;
      EXPECT_EQ(to_file.out, "");
      EXPECT_EQ(io::read_file(file("answer")), first.out);
      EXPECT_EQ(std::distance(fs::directory_iterator(path_), fs::directory_iterator()), 1)
          << "a temporary is left";
    }
  }
}

TEST(Cli, HelpAndVersion) {
  Outcome help = ddpsim({"--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_EQ(help.err, "");
  for (const char* command : {"predict", "list", "show", "trace", "doctor"}) {
    EXPECT_NE(help.out.find(command), std::string::npos) << command;
    Outcome o = ddpsim({command, "--help"});
    EXPECT_EQ(o.code, 0);
    EXPECT_EQ(o.err, "");
    EXPECT_NE(o.out.find("--format"), std::string::npos);
    EXPECT_NE(o.out.find("--out"), std::string::npos);
  }
  Outcome version = ddpsim({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_TRUE(version.out.starts_with("ddpsim ")) << version.out;
  EXPECT_EQ(std::count(version.out.begin(), version.out.end(), '\n'), 1);
}

// One form of a command may refuse what another takes: --help says which is which.
TEST(Cli, HelpSaysWhichFormTakesWhat) {
  auto help = [](const Args& command) {
    std::string out = ddpsim(command + Args{"--help"}).out;
    return std::regex_replace(out, std::regex("\\s+"), " ");
  };
  std::string explain = help({"explain"});
  EXPECT_NE(explain.find("table (default) or json; of a step also md"), std::string::npos)
      << explain;
  for (const char* name : {"NCCL_ALGO", "NCCL_PROTO", "NCCL_BUFFSIZE", "NCCL_LL128_NTHREADS",
                           "NCCL_CROSS_NIC (0, 1 or 2)"})
    EXPECT_NE(explain.find(name), std::string::npos) << explain;
  std::string topology = help({"topology"});
  EXPECT_NE(topology.find("show and check: table (default) or json; draw: dot (default) or svg"),
            std::string::npos)
      << topology;
  for (const Args& refused : {Args{"explain", "--cluster", "hgx-h100", "--format", "md"},
                              Args{"topology", "draw", "hgx-h100", "--format", "json"},
                              Args{"topology", "show", "hgx-h100", "--format", "dot"}})
    EXPECT_EQ(ddpsim(refused).code, 2);
}

// A shell's variable that is not set must not mean the default.
TEST(Cli, AnEmptyValueIsRefused) {
  for (const Args& args :
       {Args{"explain", "--op", "all_reduce", "--bytes", "", "--cluster", "hgx-h100"},
        Args{"explain", "--op", "", "--cluster", "hgx-h100"}, kGpu + Args{"--ranks", ""},
        kGpu + Args{"--plan", ""}, Args{"topology", "show", "hgx-h100", "--out", ""}}) {
    Args all = args.front().starts_with("--") ? Args{"predict"} + args : args;
    Outcome o = ddpsim(all);
    EXPECT_EQ(o.code, 2) << o.out;
    EXPECT_NE(o.err.find("needs a value"), std::string::npos) << o.err;
    EXPECT_EQ(o.out, "");
  }
}

// What a profile is: section by section, where they differ.
TEST(List, SaysWhatEachProfileIs) {
  Json j = io::parse_json(ddpsim({"list", "profiles", "--format", "json"}).out, "stdout");
  std::map<std::string, std::string> basis;
  for (const Json& row : j) basis[row["name"]] = row["basis"];
  EXPECT_EQ(basis["h100-sxm.datasheet"], "datasheet, never measured");
  EXPECT_EQ(basis["testbed"], "measured (tcp, reduction), the rest datasheet");
  EXPECT_EQ(basis["testbed-torch"], "measured (memory, host, tcp), the rest datasheet");
}

TEST(Cli, NoArgumentsIsAMistakeThatExplains) {
  Outcome o = ddpsim({});
  EXPECT_EQ(o.code, 2);
  EXPECT_EQ(o.out, "");
  EXPECT_NE(o.err.find("predict"), std::string::npos);
}

// design: section 6, "predict --format json".
TEST(Predict, JsonHasThePromisedKeys) {
  Json j = run_of(kResnet);
  const Json& s = j["summary"];
  for (const char* key :
       {"step_ps", "step_low_ps", "step_high_ps", "forward_ps", "backward_ps", "communication_ps",
        "exposed_communication_ps", "optimizer_ps", "peak_memory_bytes"}) {
    ASSERT_TRUE(s.contains(key)) << key;
    EXPECT_TRUE(s[key].is_number_integer()) << key;
    EXPECT_GT(s[key].get<std::int64_t>(), 0) << key;
  }
  for (const char* key : {"overlap", "samples_per_s", "scaling_efficiency"}) {
    ASSERT_TRUE(s.contains(key)) << key;
    EXPECT_TRUE(s[key].is_number()) << key;
  }
  EXPECT_TRUE(s["extrapolated"].is_array());
  ASSERT_FALSE(s["buckets"].empty());
  std::set<std::string> names;
  for (const Json& b : s["buckets"]) {
    EXPECT_GT(b["bytes"].get<std::int64_t>(), 0);
    EXPECT_LE(b["ready_ps"].get<std::int64_t>(), b["begin_ps"].get<std::int64_t>());
    EXPECT_LT(b["begin_ps"].get<std::int64_t>(), b["end_ps"].get<std::int64_t>());
    for (const Json& t : b["tensors"]) EXPECT_TRUE(names.insert(t.get<std::string>()).second) << t;
  }
  EXPECT_EQ(names.size(), workload("resnet18").tensors.size());
  EXPECT_EQ(j["run"]["schema"], "ddpsim.run/1");
  EXPECT_EQ(j["run"]["kind"], "predicted");
}

// Its steps differ: the number is their mean, and every format says of what.
TEST(Predict, SaysWhatAStepBesideAnotherJobIs) {
  const Args beside{"--workload",
                    "mlp784-50-10-cpu",
                    "--cluster",
                    "testbed-racks",
                    "--set",
                    "cluster.hosts=4",
                    "--set",
                    "backend=tcp",
                    "--set",
                    "ranks=2",
                    "--set",
                    "rank_order=[0,2]",
                    "--set",
                    "other_jobs=[{\"workload\":\"mlp-cpu\",\"plan\":{\"backend\":\"tcp\"},\"rank_"
                    "order\":[1,3]}]"};
  Json of = summary(beside);
  const Json& b = of["beside_other_jobs"];
  EXPECT_LT(b["shortest_ps"], of["step_ps"]);
  EXPECT_GT(b["longest_ps"], of["step_ps"]);
  EXPECT_GE(b["periods"], 1.9);
  EXPECT_TRUE(b["complete"].get<bool>());
  std::string mean =
      "mean of " + std::to_string(b["steps"].get<int>()) + " steps beside another job (";
  for (const char* format : {"table", "md"}) {
    Outcome o = ddpsim(Args{"predict"} + beside + Args{"--format", format});
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_NE(o.out.find(mean), std::string::npos) << o.out;
  }
  EXPECT_FALSE(summary(kCpu).contains("beside_other_jobs"));
}

TEST(Predict, EveryShippedWorkloadOnAShippedCluster) {
  io::Home home(DDPSIM_SOURCE_DIR, "", "");
  auto names = home.list("workloads");
  ASSERT_GT(names.size(), 8u);
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    Json s = summary(
        {"--workload", name, "--cluster", name.ends_with("-cpu") ? "ethernet-10g" : "hgx-h100"});
    auto at = [&](const char* key) { return s[key].get<std::int64_t>(); };
    EXPECT_GT(at("step_low_ps"), 0);
    EXPECT_LE(at("step_low_ps"), at("step_ps"));
    EXPECT_LE(at("step_ps"), at("step_high_ps"));
    EXPECT_GE(s["overlap"].get<double>(), 0);
    EXPECT_LE(s["overlap"].get<double>(), 1);
  }
}

TEST(Predict, OnEveryShippedCluster) {
  io::Home home(DDPSIM_SOURCE_DIR, "", "");
  for (const std::string& name : home.list("topologies")) {
    SCOPED_TRACE(name);
    bool cpu = cluster(name).device == DeviceKind::Cpu;
    EXPECT_GT(step({"--workload", cpu ? "mlp784-50-10-cpu" : "mlp784-50-10", "--cluster", name}),
              0);
  }
}

void check_trace(const Args& question) {
  Json trace = answer(Args{"trace"} + question);
  std::map<int, std::string> open;                     // id of an asynchronous slice -> name
  std::map<int, std::map<std::string, double>> flows;  // id -> phase -> time
  std::map<int, std::string> flow_names;
  int complete = 0;
  for (const Json& e : trace["traceEvents"]) {
    std::string phase = e["ph"];
    if (phase == "M") continue;
    EXPECT_GE(e["ts"].get<double>(), 0) << e;
    if (phase == "i") continue;
    if (phase == "X") {
      ++complete;
      EXPECT_GE(e["dur"].get<double>(), 0) << e;
    } else if (phase == "b") {
      EXPECT_TRUE(open.emplace(e["id"].get<int>(), e["name"]).second) << e;
    } else if (phase == "e") {
      EXPECT_EQ(open[e["id"].get<int>()], e["name"]) << e;
      open.erase(e["id"].get<int>());
    } else {
      EXPECT_TRUE(phase == "s" || phase == "t" || phase == "f") << e;
      EXPECT_TRUE(flows[e["id"].get<int>()].emplace(phase, e["ts"].get<double>()).second) << e;
      flow_names[e["id"].get<int>()] = e["name"];
    }
  }
  EXPECT_GT(complete, 3);
  EXPECT_TRUE(open.empty()) << open.size() << " slices never end";
  std::set<std::string> traced;
  for (const auto& [id, phases] : flows) {
    ASSERT_EQ(phases.size(), 3u) << flow_names[id];
    EXPECT_LE(phases.at("s"), phases.at("t"));
    EXPECT_LE(phases.at("t"), phases.at("f"));
    traced.insert(flow_names[id]);
  }
  Json predicted = summary(question);
  for (const Json& b : predicted["buckets"]) {
    auto name = b["name"].get<std::string>();
    EXPECT_EQ(traced.count(name) + traced.count("allreduce/" + name), 1u) << name;
  }
}

TEST(Trace, IsWellFormedOnGpus) {
  check_trace(kResnet);
}
TEST(Trace, IsWellFormedOnCpus) {
  check_trace(kCpu);
}
TEST(Trace, IsWellFormedWithASlowRank) {
  check_trace(kCpu + Args{"--set", "slow_ranks.3=1.5"});
}
TEST(Trace, IsWellFormedForAveraging) {
  check_trace(kCpu + Args{"--plan", "averaging"});
}

TEST_F(Folder, FlagsOverrideTheScenarioFile) {
  write(
      "scenario.json",
      R"({"schema": "ddpsim.scenario/1", "workload": "mlp784-50-10-cpu", "cluster": "ethernet-10g",
        "ranks": 4,
                            "plan": {"system": "averaging", "granularity": "flat"}})");
  std::string s = file("scenario.json");
  std::int64_t base = step({s});
  EXPECT_EQ(base, step(kCpu + Args{"--ranks", "4", "--set", "system=averaging", "--set",
                                   "granularity=flat"}));
  EXPECT_EQ(step({s, "--ranks", "2"}), step(kCpu + Args{"--ranks", "2", "--set", "system=averaging",
                                                        "--set", "granularity=flat"}));
  EXPECT_NE(step({s, "--ranks", "2"}), base);
  EXPECT_EQ(step({s, "--cluster", "ethernet-100g"}),
            step({"--workload", "mlp784-50-10-cpu", "--cluster", "ethernet-100g", "--ranks", "4",
                  "--set", "system=averaging", "--set", "granularity=flat"}));
  EXPECT_NE(step({s, "--cluster", "ethernet-100g"}), base);
  EXPECT_EQ(step({s, "--workload", "resnet18-cpu"}),
            step({"--workload", "resnet18-cpu", "--cluster", "ethernet-10g", "--ranks", "4",
                  "--set", "system=averaging", "--set", "granularity=flat"}));
  // A plan flag replaces the whole plan: "granularity" is no knob of DDP.
  EXPECT_EQ(step({s, "--plan", "pytorch_ddp"}), step(kCpu + Args{"--ranks", "4"}));
  // --set comes last.
  EXPECT_EQ(step({s, "--ranks", "2", "--set", "ranks=8"}), step({s, "--ranks", "8"}));
}

TEST_F(Folder, PathsInAScenarioFileAreRelativeToIt) {
  write("deep/w/tiny.json", io::read_file(source_path("tests/cli/bad/workload-good.json")));
  write("deep/pair.json", io::read_file(source_path("tests/cli/bad/cluster-good.json")));
  write("deep/p/cpu.json", io::read_file(source_path("calib/profiles/cpu-generic.datasheet.json")));
  write("deep/scenario.json",
        R"({"schema": "ddpsim.scenario/1", "workload": "w/tiny.json", "cluster": "pair.json",
        "profile": "p/cpu.json"})");
  EXPECT_EQ(step({file("deep/scenario.json")}),
            step({"--workload", file("deep/w/tiny.json"), "--cluster", file("deep/pair.json"),
                  "--profile", file("deep/p/cpu.json")}));
  // A plan file, of knobs alone or with a scenario around them.
  write("plan.json", R"({"system": "averaging"})");
  write("with_plan.json", R"({"schema": "ddpsim.scenario/1", "plan": {"system": "averaging"}})");
  EXPECT_EQ(step(kCpu + Args{"--plan", file("plan.json")}),
            step(kCpu + Args{"--plan", "averaging"}));
  EXPECT_EQ(step(kCpu + Args{"--plan", file("with_plan.json")}),
            step(kCpu + Args{"--plan", "averaging"}));
}

TEST(Set, ReachesEachDocument) {
  struct Row {
    Args question;
    const char* setting;
    bool slower;
  };
  for (const Row& row :
       {Row{kGpu, "cluster.intra.latency=1ms", true}, Row{kResnet, "bucket_cap_mb=1000", true},
        Row{kCpu, "cluster.link.bandwidth=100Mb/s", true},
        Row{kCpu, "cluster.link.latency=1ms", true}, Row{kResnet, "workload.batch=512", true},
        Row{kResnet, "profile.memory.bandwidth_bytes_per_s=100000000000", true},
        Row{kCpu, "slow_ranks.3=1.5", true}, Row{kCpu, "accumulation_steps=4", true},
        Row{kCpu, "cluster.hosts=2", false}, Row{kCpu, "ranks=2", false}}) {
    auto changed = step(row.question + Args{"--set", row.setting});
    auto base = step(row.question);
    EXPECT_TRUE(row.slower ? changed > base : changed < base)
        << row.setting << ": " << base << " -> " << changed;
  }
  // A knob may drop its "plan.", and lists and objects may be given whole.
  EXPECT_EQ(step(kResnet + Args{"--set", "plan.bucket_cap_mb=1000"}),
            step(kResnet + Args{"--set", "bucket_cap_mb=1000"}));
  EXPECT_EQ(step(kCpu + Args{"--set", "slow_ranks={\"3\": 1.5}"}),
            step(kCpu + Args{"--set", "slow_ranks.3=1.5"}));
  EXPECT_EQ(step(kCpu + Args{"--set", "pytorch=2.11"}),
            step(kCpu + Args{"--set", "pytorch=\"2.11\""}));
  EXPECT_EQ(step(kCpu + Args{"--set", "bucket_cap_mb=null"}), step(kCpu));
  // The last one wins.
  EXPECT_EQ(step(kCpu + Args{"--set", "ranks=8", "--set", "ranks=2"}),
            step(kCpu + Args{"--ranks", "2"}));
}

TEST(Profile, IsTheClustersUnlessNamed) {
  EXPECT_EQ(summary(kCpu)["profile"], "cpu-generic.datasheet");
  EXPECT_EQ(summary(kGpu)["profile"], "h100-sxm.datasheet");
  EXPECT_EQ(summary(kGpu + Args{"--profile", "h200-sxm.datasheet"})["profile"],
            "h200-sxm.datasheet");
}

// "--profile P scenario.json": the scenario is not a second profile.
TEST_F(Folder, AFlagTakesOneValue) {
  write("scenario.json",
        R"({"schema": "ddpsim.scenario/1", "workload": "mlp784-50-10-cpu",
        "cluster": "ethernet-10g"})");
  EXPECT_EQ(step({"--profile", "cpu-generic.datasheet", file("scenario.json")}), step(kCpu));
  EXPECT_EQ(step({"--set", "ranks=2", file("scenario.json")}), step(kCpu + Args{"--ranks", "2"}));
}

// The scenario's key tells questions apart and does not depend on how they were asked.
TEST_F(Folder, TheKeyNamesTheQuestion) {
  write("scenario.json",
        R"({"schema": "ddpsim.scenario/1", "description": "any", "workload": "mlp784-50-10-cpu",
        "cluster": "ethernet-10g", "ranks": 4})");
  auto key = [](const Args& question) {
    return run_of(question)["run"]["case"]["key"].get<std::string>();
  };
  EXPECT_EQ(key({file("scenario.json")}), key(kCpu + Args{"--ranks", "4"}));
  EXPECT_EQ(key(kCpu), key(kCpu + Args{"--ranks", "8"}));
  EXPECT_NE(key(kCpu), key(kCpu + Args{"--ranks", "4"}));
  EXPECT_NE(key(kCpu), key(kCpu + Args{"--set", "cluster.link.latency=6us"}));
}

// A file is what its schema says, whichever flag it would have had.
TEST_F(Folder, AFileIsWhatItsSchemaSays) {
  const Args on{"--cluster", "ethernet-10g"};
  auto same = [](const Args& by_file, const Args& by_flag) {
    const Outcome o = ddpsim(by_file);
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(o.out, ddpsim(by_flag).out);
  };
  const std::string program = source_path("scenarios/ten-all-reduces.json");
  const std::string workload = source_path("workloads/mlp784-50-10-cpu.json");
  same(Args{"predict", program} + on, Args{"predict", "--program", program} + on);
  same(Args{"predict", workload} + on, Args{"predict", "--workload", workload} + on);
  same({"predict", source_path("topologies/ethernet-10g.json"), "--workload", workload},
       Args{"predict", "--workload", workload} + on);
  expect_refusal(Args{"predict", workload, "--workload", "resnet50"} + on,
                 "is what --workload names, and so is resnet50");
}

// What other programs call it leads to what it is called here.
TEST(Naming, LeadsToWhatWorks) {
  const Args on{"predict", "--workload", "resnet50", "--cluster", "hgx-h100"};
  for (const auto& [asked, words] : std::vector<std::pair<Args, const char*>>{
           {{"--set", "gradient_accumulation_steps=4"}, "write accumulation_steps=4"},
           {{"--set", "train_micro_batch_size_per_gpu=4"}, "write workload.batch=4"},
           {{"--gradient-accumulation-steps", "4"}, "write --set accumulation_steps=VALUE"},
           {{"--bf16"}, "write --set workload.precision=bf16"},
           {{"--fp16"}, "write --set workload.precision=fp16"},
           {{"--zero-stage", "3"}, "write --plan zero1, zero2 or zero3"},
           {{"--set", "bf16=true"}, "write workload.precision=bf16"},
           {{"--set", "mixed_precision=bf16"}, "write workload.precision=bf16"},
           {{"--set", "max_grad_norm=1"}, "write workload.loop.clip_grad_norm=true"},
           {{"--set", "attn_implementation=sdpa"}, "write workload.attention=sdpa"},
           {{"--set", "flash_attention=true"}, "write workload.attention=fused"},
           {{"--set", "workload.optimizer=adamw"}, "write workload.optimizer.name=adamw"},
           {{"--set", "num_workers=8"}, "write input.samples_per_s=RATE"},
           {{"--set", "global_batch_size=64"}, "write workload.batch and accumulation_steps"},
           {{"--set", "dp_shard=4"}, "write shard_degree=4"},
           {{"--set", "cp=2"}, "ddpsim models data parallelism only"},
           {{"--set", "tensor_model_parallel_size=2"}, "ddpsim models data parallelism only"},
           {{"--tensor-model-parallel-size", "2"}, "ddpsim models data parallelism only"},
           {{"--bucket-cap-mb", "50"}, "write --set bucket_cap_mb=VALUE"},
           {{"--ddp-bucket-size", "4e7"}, "write --set bucket_size=VALUE"},
           {{"--use-distributed-optimizer"}, "write --set use_distributed_optimizer=VALUE"},
           {{"--num_processes", "16"}, "write --ranks VALUE"},
           {{"--plan", "hsdp"}, "--plan fsdp2 --set shard_degree=8"},
           {{"--plan", "torchtitan"}, "--plan fsdp2"},
           {{"--set", "NCCL_IB_DISABLE=1"}, "cluster.link.transport=tcp"},
           {{"--set", "NCCL_SOCKET_IFNAME=eth0"}, "cluster.link.bandwidth"},
           {{"--set", "NCCL_DEBUG=INFO"}, "leave it out"}})
    expect_refusal(on + asked, words);
  const Args asks{"show", "program", "--workload", "gpt2-small", "--cluster", "hgx-h100", "--plan"};
  for (const auto& [theirs, ours] : std::vector<std::pair<const char*, const char*>>{
           {"FSDP", "fsdp"}, {"ZeRO-3", "zero3"}, {"ZERO2", "zero2"}, {"Horovod", "horovod"}})
    EXPECT_EQ(ddpsim(asks + Args{theirs}).out, ddpsim(asks + Args{ours}).out) << theirs;
  // Not to what the command does not have.
  expect_refusal({"list", "--bf16"}, "--bf16 is not a flag of this command; see --help");
  expect_refusal({"predict", "--workload", "resnet50", "--cluster", "8xH100"}, "\"hgx-h100\"");
  expect_refusal({"predict", "--workload", "resnet50", "--cluster", "A100"}, "\"dgx-a100\"");
  const Args link{"predict", "--workload", "resnet50", "--cluster", "gpu-ethernet-10g", "--set"};
  EXPECT_EQ(ddpsim(link + Args{"cluster.link.bandwidth=100Gbps"}).out,
            ddpsim(link + Args{"cluster.link.bandwidth=100Gb/s"}).out);
  for (const Args& arguments : {Args{"plain"}, Args{"--learning-rate", "3"}, Args{"-x"}})
    expect_refusal(Args{"describe", "--script", source_path("tests/cli/describe.py")} + arguments,
                   "arguments of the script follow after --");
}

}  // namespace
}  // namespace ddpsim::test
