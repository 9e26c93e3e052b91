// What an answer is written to is never what it was made from, and never two answers at once.
#include <filesystem>

#include <gtest/gtest.h>
#include <unistd.h>

#include "sim/io/files.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

namespace fs = std::filesystem;

class Outputs : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("ddpsim_outputs_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
    copy("workloads/mlp784-50-10-cpu.json", "w.json");
    copy("topologies/ethernet-10g.json", "c.json");
    copy("calib/profiles/cpu-generic.datasheet.json", "p.json");
    write("plan.json", R"({"system": "pytorch_ddp", "bucket_cap_mb": 5})");
    write("s.json",
          R"({"schema": "ddpsim.scenario/1", "workload": "./w.json", "cluster": "./c.json",
                        "profile": "./p.json", "plan": {"system": "pytorch_ddp"}})");
    fs::create_hard_link(at("w.json"), at("hard.json"));
    fs::create_symlink(at("c.json"), at("link.json"));
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string at(const std::string& name) const { return (folder_ / name).string(); }
  void write(const std::string& name, const std::string& text) const {
    io::write_file(at(name), text);
  }
  void copy(const std::string& from, const std::string& name) const {
    write(name, io::read_file(source_path(from)));
  }
  // The command is refused, and the file is what it was.
  void expect_kept(const Args& args, const std::string& name) const {
    std::string before = io::read_file(at(name));
    Outcome o = ddpsim(args);
    std::string said = args[0] + " over " + name + ": " + o.err;
    EXPECT_EQ(o.code, 2) << said;
    EXPECT_EQ(o.out, "") << said;
    EXPECT_NE(o.err.find("name another"), std::string::npos) << said;
    EXPECT_EQ(io::read_file(at(name)), before) << said;
  }
  fs::path folder_;
};

TEST_F(Outputs, AreNoInputsOfTheSameCommand) {
  const Args named{"--workload", at("w.json"), "--cluster", at("c.json"),
                   "--profile",  at("p.json"), "--plan",    at("plan.json")};
  for (const char* command : {"predict", "trace", "tune", "explain"})
    for (const char* name : {"w.json", "c.json", "p.json", "plan.json", "hard.json", "link.json"})
      expect_kept(Args{command} + named + Args{"--out", at(name)}, name);
  for (const char* command : {"predict", "tune"})
    expect_kept(Args{command} + named + Args{"--html", at("w.json")}, "w.json");
  // What the scenario names, no flag does.
  for (const char* command : {"predict", "trace", "explain"})
    for (const char* name : {"s.json", "w.json", "c.json", "p.json", "link.json"})
      expect_kept({command, at("s.json"), "--out", at(name)}, name);
  expect_kept({"show", "run", at("w.json"), "--out", at("w.json")}, "w.json");
  expect_kept({"import", "nccl-tests", at("s.json"), "--out", at("s.json")}, "s.json");
}

TEST_F(Outputs, AreNoInputsThatACommandFindsByItself) {
  fs::create_directories(folder_ / "runs");
  Outcome made =
      ddpsim({"import", "nccl-tests", source_path("tests/data/nccl/all_reduce_modern.txt"), "--out",
              at("runs/table.json")});
  ASSERT_EQ(made.code, 0) << made.err;
  write("budget.json", R"({"schema": "ddpsim.budget/1", "limits": []})");
  std::string budget = io::read_file(at("budget.json"));
  ddpsim({"validate", "--runs", at("runs"), "--budget", at("budget.json"), "--out",
          at("runs/table.json")});
  EXPECT_EQ(io::parse_json(io::read_file(at("runs/table.json")), "run")["schema"], "ddpsim.run/1");
  expect_kept(
      {"validate", "--runs", at("runs"), "--budget", at("budget.json"), "--out", at("budget.json")},
      "budget.json");
}

// What a file says, and what it is named, changes the direction of writing nowhere.
TEST_F(Outputs, HoldNoCharacterThatActsOnATerminal) {
  const std::string name =
      "a\xe2\x80\xae\xe2\x80\x8f\xd8\x9c\xc2\x9b"
      "b";
  io::Json cluster = read_json("topologies/ethernet-10g.json");
  cluster["name"] = name;
  write("named.json", cluster.dump());
  write(name + ".json", cluster.dump());
  auto clean = [](const std::string& text) {
    for (const char* mark : {"\xe2\x80\xae", "\xe2\x80\x8f", "\xd8\x9c", "\xc2\x9b"})
      if (has(text, mark)) return false;
    return true;
  };
  for (const std::string& file : {at("named.json"), at(name + ".json")})
    for (const char* format : {"table", "json", "csv", "md"}) {
      Outcome o = ddpsim({"predict", "--workload", "mlp784-50-10-cpu", "--cluster", file, "--set",
                          "cluster.hosts=16", "--ranks", "16", "--format", format});
      EXPECT_EQ(o.code, 0) << o.err;
      EXPECT_TRUE(clean(o.out)) << format << o.out;
      EXPECT_TRUE(clean(o.err)) << format << o.err;
    }
  Outcome shown = ddpsim({"show", "cluster", at("named.json")});
  EXPECT_TRUE(clean(shown.out));
  EXPECT_EQ(io::parse_json(shown.out, "shown")["name"], name) << "the same value";
  write(name + ".log", "x");
  EXPECT_TRUE(clean(ddpsim({"import", "nccl-tests", at(name + ".log")}).err));
  std::string log = io::read_file(source_path("tests/data/nccl/broadcast_truncated.txt"));
  write(name + ".log", log);
  Outcome told =
      ddpsim({"import", "nccl-tests", at(name + ".log"), "--op", "broadcast", "--out", at(name)});
  EXPECT_EQ(told.code, 0) << told.err;
  EXPECT_TRUE(clean(told.err)) << told.err;
}

TEST_F(Outputs, AreTwoFiles) {
  const Args question{"predict", "--workload", "mlp784-50-10-cpu", "--cluster", "ethernet-10g"};
  for (const Args& twice :
       {Args{"--out", at("x"), "--html", at("x")}, Args{"--out", at("x"), "--html", at("./x")},
        Args{"--out", at("../" + folder_.filename().string() + "/x"), "--html", at("x")}}) {
    Outcome o = ddpsim(question + twice);
    EXPECT_EQ(o.code, 2);
    EXPECT_NE(o.err.find("name another"), std::string::npos) << o.err;
    EXPECT_FALSE(fs::exists(at("x")));
  }
  // An answer of yesterday is no input.
  for (int k = 0; k < 2; ++k) EXPECT_EQ(ddpsim(question + Args{"--out", at("answer")}).code, 0);
}

// A command that fails leaves all its files as they were, whichever of them could not be written.
TEST_F(Outputs, AreAllWrittenOrNone) {
  const std::string trace = source_path("tests/data/kineto/cnn-0-0.json.gz");
  const std::string full = "/dev/full";
  const Args question{"--workload", "mlp784-50-10-cpu", "--cluster", "ethernet-10g"};
  for (const Args& args :
       {Args{"import", "kineto", trace, "--workload", at("old"), "--run", full},
        Args{"import", "kineto", trace, "--workload", at("old"), "--out", full},
        Args{"import", "kineto", trace, "--workload", at("new"), "--run", at("old"), "--out", full},
        Args{"import", "kineto", trace, "--workload", full, "--run", at("old")},
        Args{"import", "kineto", trace, "--workload", at("old"), "--run", at("old")},
        Args{"predict"} + question + Args{"--html", at("old"), "--out", full},
        Args{"predict"} + question + Args{"--html", full, "--out", at("old")},
        Args{"tune"} + question + Args{"--html", at("old"), "--out", full}}) {
    write("old", "of yesterday");
    Outcome o = ddpsim(args);
    EXPECT_EQ(o.code, 2) << args[0] << o.err;
    EXPECT_EQ(o.err.find("wrote"), std::string::npos) << o.err;
    EXPECT_EQ(io::read_file(at("old")), "of yesterday") << args[0] << " " << args.back();
    EXPECT_FALSE(fs::exists(at("new")));
    for (const auto& entry : fs::directory_iterator(folder_))
      EXPECT_EQ(entry.path().string().find(".ddpsim-"), std::string::npos) << entry.path();
  }
}

TEST_F(Outputs, OfARunInAFolderAreAllWrittenOrNone) {
  const std::string folder = at("chakra");
  fs::create_directories(folder + "/x.1.et");
  Outcome o = ddpsim({"export", "chakra", "--workload", "mlp784-50-10-cpu", "--cluster",
                      "ethernet-10g", "--ranks", "2", "--name", "x", "--out", folder});
  EXPECT_EQ(o.code, 2) << o.err;
  EXPECT_FALSE(fs::exists(folder + "/x.0.et"));
}

}  // namespace
}  // namespace ddpsim::test
