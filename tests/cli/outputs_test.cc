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

}  // namespace
}  // namespace ddpsim::test
