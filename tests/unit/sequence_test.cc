// The sequence length of a workload: what C++ makes of a file at another length is what
// tools/python/describe_models.py writes at that length.
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "sim/io/codecs.h"
#include "sim/io/files.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

using io::Json;

Json shipped(const std::string& name) {
  return read_json("workloads/" + name + ".json");
}

Json at(const std::string& name, int tokens) {
  Json j = shipped(name);
  j["sequence"] = tokens;
  return j;
}

void expect_equal(const LayerCost& a, const LayerCost& b, const std::string& where) {
  EXPECT_EQ(a.flops_per_sample, b.flops_per_sample) << where;
  EXPECT_EQ(a.bytes_per_sample, b.bytes_per_sample) << where;
  EXPECT_EQ(a.bytes_fixed, b.bytes_fixed) << where;
  EXPECT_EQ(a.kernels, b.kernels) << where;
}

std::vector<std::string> with_sequence() {
  std::vector<std::string> out;
  for (const auto& f : std::filesystem::directory_iterator(source_path("workloads")))
    if (f.path().extension() == ".json" && shipped(f.path().stem()).contains("sequence"))
      out.push_back(f.path().stem());
  return out;
}

TEST(Sequence, AnotherLengthIsWhatIsWrittenAtThatLength) {
  std::vector<std::string> names = with_sequence();
  ASSERT_GE(names.size(), 5U);
  for (int tokens : {96, 500}) {
    std::string folder = testing::TempDir() + "ddpsim-sequence-" + std::to_string(::getpid()) +
                         "-" + std::to_string(tokens);
    std::string command = std::string(DDPSIM_PYTHON) + " " +
                          source_path("tools/python/describe_models.py") + " --out " + folder +
                          " --sequence " + std::to_string(tokens) + " 2> /dev/null";
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
    for (const std::string& name : names) {
      std::string file = folder + "/" + name + ".json";
      Json written = io::parse_json(io::read_file(file), file);
      ASSERT_FALSE(written.contains("sequence"));
      Json rescaled = io::at_its_length(at(name, tokens));
      for (const char* key : {"tensors", "buffers", "arrival", "layers"})
        EXPECT_TRUE(rescaled[key] == written[key]) << name << " " << key;
      Workload a = io::read_workload(at(name, tokens), name);
      Workload b = io::read_workload(written, file);
      EXPECT_EQ(a.sequence, tokens);
      ASSERT_EQ(a.layers.size(), b.layers.size());
      for (std::size_t i = 0; i < a.layers.size(); ++i) {
        const Layer& x = a.layers[i];
        const Layer& y = b.layers[i];
        std::string where = name + " " + x.name;
        expect_equal(x.forward, y.forward, where + " forward");
        expect_equal(x.backward, y.backward, where + " backward");
        EXPECT_EQ(x.op.rows, y.op.rows) << where;
        EXPECT_EQ(x.op.inputs, y.op.inputs) << where;
        EXPECT_EQ(x.op.outputs, y.op.outputs) << where;
        EXPECT_EQ(x.op.count, y.op.count) << where;
      }
    }
    std::filesystem::remove_all(folder);
  }
}

std::string refusal(const Json& j) {
  try {
    io::read_workload(j, "w.json");
  } catch (const InputError& e) {
    return e.where + ": " + e.what;
  }
  return {};
}

TEST(Sequence, LearnedPositionsAreALimit) {
  EXPECT_EQ(io::read_workload(at("bert-base", 512), "w").sequence, 512);
  EXPECT_EQ(io::read_workload(at("gpt2-small", 1), "w").sequence, 1);
  EXPECT_EQ(refusal(at("bert-base", 513)),
            "w.json#/sequence: the model has learned 512 positions; a sequence has 1 to 512 "
            "tokens");
  EXPECT_NE(refusal(at("gpt2-small", 1025)).find("1 to 1024"), std::string::npos);
  EXPECT_NE(refusal(at("gpt2-small", 0)).find("w.json#/sequence"), std::string::npos);
}

TEST(Sequence, IsRefusedWhereThereIsNone) {
  EXPECT_EQ(refusal(at("resnet18", 128)),
            "w.json#/sequence: the model has no sequence: no layer's cost depends on its length");
  EXPECT_NE(refusal(at("mlp784-50-10-cpu", 128)).find("is of a described workload"),
            std::string::npos);
  Json j = shipped("resnet18");
  j["sequence"] = nullptr;  // as --set workload.sequence=null
  EXPECT_EQ(io::read_workload(j, "w").sequence, 0);
  EXPECT_TRUE(io::at_its_length(j) == j);
  j = shipped("bert-base");
  j.erase("sequence");
  EXPECT_NE(refusal(j).find("the workload has no \"sequence\""), std::string::npos);
  j = shipped("bert-base");
  j["layers"][1]["forward"]["bytes_fixed"] = {0, -1};
  EXPECT_NE(refusal(j).find("#/layers/1/forward/bytes_fixed: coefficients"), std::string::npos);
  j["layers"][1]["forward"]["bytes_fixed"] = {1, 1, 1, 1};
  EXPECT_NE(refusal(j).find("#/layers/1/forward/bytes_fixed: coefficients"), std::string::npos);
  j["layers"][1]["forward"]["bytes_fixed"] = {1, std::int64_t{1} << 62};
  EXPECT_NE(refusal(j).find("#/layers/1/forward/bytes_fixed: coefficients"), std::string::npos);
}

}  // namespace
}  // namespace ddpsim::test
