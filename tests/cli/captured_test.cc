// Workloads that were captured on GPUs: listed, and named as captured/GPU/NAME.
#include <filesystem>
#include <set>
#include <sstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "sim/io/files.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

using io::Json;

const std::string kName = "captured/h200-sxm/resnet50-b64-tf32";
const std::string kFile = "workloads/" + kName + ".json.gz";

TEST(Captured, AreListedAfterTheOthers) {
  const io::Home home(DDPSIM_SOURCE_DIR, "", "");
  const std::vector<std::string> zoo = home.list("workloads");
  std::set<std::string> named;
  bool captured = false;
  for (const Json& row : json_of({"list", "workloads"})) {
    const std::string name = row["name"];
    EXPECT_EQ(name.starts_with("captured/"), captured |= named.size() == zoo.size()) << name;
    named.insert(name);
    if (name != kName) continue;
    for (const auto& [key, value] : {std::pair{"basis", "captured"},
                                     {"batch", "64"},
                                     {"precision", "tf32"},
                                     {"tensors", "161"},
                                     {"times from", "NVIDIA H200"}})
      EXPECT_EQ(row[key], value);
  }
  EXPECT_TRUE(named.contains(kName));
  EXPECT_EQ(named.size(), zoo.size() + 106);

  const std::string table = ddpsim({"list", "workloads"}).out;
  const auto block = table.find("\n\nCAPTURED ON GPUS\nname ");
  ASSERT_NE(block, std::string::npos) << table;
  EXPECT_LT(table.find("\nvit-l-16 "), block);
  std::istringstream lines(table.substr(block));
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 80u) << line;
    named.erase(line.substr(0, line.find(' ')));
  }
  EXPECT_EQ(named, std::set(zoo.begin(), zoo.end()));
  expect_answer({"list"}, {"\nand 106 captured on GPUs: ddpsim list workloads\n"});
}

TEST(Captured, AreLoadedByName) {
  const Args by_path{"--workload", source_path(kFile), "--cluster", "hgx-h200"};
  const Args by_name{"--workload", kName, "--cluster", "hgx-h200"};
  for (const char* command : {"predict", "explain"}) {
    Outcome o = ddpsim(Args{command} + by_name);
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(o.out, ddpsim(Args{command} + by_path).out);
  }
  EXPECT_EQ(json_of(Args{"show", "scenario"} + by_name),
            json_of(Args{"show", "scenario"} + by_path));
  Outcome shown = ddpsim({"show", "workload", kName});
  EXPECT_EQ(shown.out, io::read_file(source_path(kFile))) << shown.err;
  expect_answer({"show", "workload", kName, "--format", "table"}, {"captured on NVIDIA H200"});
}

// A path in a scenario is relative to its file; such a name is none.
TEST(Captured, AreNamedInScenarios) {
  const std::string file = (std::filesystem::temp_directory_path() /
                            ("ddpsim-captured-" + std::to_string(::getpid()) + ".json"))
                               .string();
  io::write_file(file,
                 ddpsim({"show", "scenario", "--workload", kName, "--cluster", "hgx-h200"}).out);
  EXPECT_EQ(io::parse_json(io::read_file(file), file)["workload"], kName);
  expect_answer({"predict", file}, {"captured from the real model on NVIDIA H200"});
  std::filesystem::remove(file);
}

TEST(Captured, AWrongNameHasANearOne) {
  auto refusal = [](const char* name) {
    return ddpsim({"predict", "--cluster", "hgx-h200", "--workload", name}).err;
  };
  for (const auto& [wrong, right] :
       {std::pair{"captured/h200-sxm/resnet50-b64-tf3", "captured/h200-sxm/resnet50-b64-tf32"},
        {"resnet50-b64-tf32", "captured/h100-sxm/resnet50-b64-tf32"},
        {"resnet-50", "resnet50"},
        {"bert-base-b", "bert-base"}})
    EXPECT_TRUE(has(refusal(wrong), "did you mean \"" + std::string(right) + "\"?"))
        << refusal(wrong);
  EXPECT_TRUE(has(refusal("captured/h200-sxm/../h200-sxm.json.gz"), "no such workload file"));
}

}  // namespace
}  // namespace ddpsim::test
