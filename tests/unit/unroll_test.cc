// Files that say a repeated block once, against the same written out by hand; that the shipped ones
// are what describe_models.py writes in full is unit/sequence_test.cc's.
#include "sim/io/unroll.h"

#include <string>

#include <gtest/gtest.h>

#include "sim/io/codecs.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

using io::Json;

Json cost() {
  return {{"flops_per_sample", 0}, {"bytes_per_sample", 8}, {"bytes_fixed", 0}, {"kernels", 1}};
}
Json tensor(const std::string& name) {
  return {{"name", name}, {"shape", {4}}, {"dtype", "float32"}};
}
Json layer(const std::string& name, const Json& tensors) {
  return {{"name", name},
          {"class", "memory"},
          {"tensors", tensors},
          {"forward", cost()},
          {"backward", cost()}};
}
// A word, blocks 1 to 3 of two tensors, a last norm.
Json folded() {
  Json j = read_json("workloads/mlp784-50-10.json");
  j["tensors"] = {tensor("word"),
                  {{"repeat", 3}, {"from", 1}, {"of", {tensor("h.{}.a"), tensor("h.{}.b")}}},
                  tensor("norm")};
  j["layers"] = {layer("word", {0}),
                 {{"repeat", 3},
                  {"from", 1},
                  {"of", {layer("h.{}.x", {2, 1}), layer("h.{}.y", Json::array())}}},
                 layer("norm", {7})};
  j.erase("arrival");
  return j;
}

TEST(Unrolled, NumbersNamesAndMovesTensors) {
  EXPECT_TRUE(io::repeats(folded()));
  EXPECT_FALSE(io::repeats(read_json("workloads/mlp784-50-10.json")));
  Json j = io::unrolled(folded(), "f");
  ASSERT_EQ(j["tensors"].size(), 8U);
  EXPECT_EQ(j["tensors"][1]["name"], "h.1.a");
  EXPECT_EQ(j["tensors"][6]["name"], "h.3.b");
  ASSERT_EQ(j["layers"].size(), 8U);
  EXPECT_EQ(j["layers"][1]["name"], "h.1.x");
  EXPECT_EQ(j["layers"][1]["tensors"], Json({2, 1}));
  EXPECT_EQ(j["layers"][5]["name"], "h.3.x");
  EXPECT_EQ(j["layers"][5]["tensors"], Json({6, 5}));
  EXPECT_EQ(j["arrival"], Json({7, 6, 5, 4, 3, 2, 1, 0}));
  EXPECT_FALSE(io::repeats(j));
  Workload w = io::read_workload(folded(), "f");
  EXPECT_EQ(w.layers.size(), 8U);
  EXPECT_EQ(w.arrival, (std::vector<TensorIndex>{7, 6, 5, 4, 3, 2, 1, 0}));
}

TEST(Unrolled, CountsFromNoughtAndKeepsAnArrivalThatIsSaid) {
  Json j = folded();
  j["tensors"][1].erase("from");
  j["arrival"] = {7, 6, 5, 4, 3, 2, 1};
  Json out = io::unrolled(j, "f");
  EXPECT_EQ(out["tensors"][1]["name"], "h.0.a");
  EXPECT_EQ(out["arrival"], j["arrival"]);
}

void expect_refused(const Json& j, const std::string& where, const std::string& what) {
  try {
    io::read_workload(j, "f");
    ADD_FAILURE() << "read: " << what;
  } catch (const InputError& e) {
    EXPECT_EQ(e.where, "f#" + where);
    EXPECT_NE(e.what.find(what), std::string::npos) << e.what;
  }
}

TEST(Unrolled, RefusesWhatIsNoRepetition) {
  Json j = folded();
  j["tensors"][1]["repeat"] = 2;
  expect_refused(j, "/layers/1/of/0/tensors/0", "tensors repeat 2 times");
  j = folded();
  j["layers"][1]["of"][0]["tensors"][0] = 7;
  expect_refused(j, "/layers/1/of/0/tensors/0", "has tensors that repeat");
  j = folded();
  j["layers"][1]["of"] = Json::array();
  expect_refused(j, "/layers/1/of", "one row at least");
  j = folded();
  j["layers"][1]["of"][1] = j["layers"][1];
  expect_refused(j, "/layers/1/of/1", "no other block");
  j = folded();
  j["layers"][1]["repeat"] = 0;
  expect_refused(j, "/layers/1/repeat", "");
  j = folded();
  j["layers"][1]["times"] = 1;
  expect_refused(j, "/layers/1/times", "");
  j = folded();
  Json many = Json::array();
  for (int i = 0; i < 200; ++i) many.push_back(tensor("h.{}." + std::to_string(i)));
  ASSERT_GT(10'000 * many.dump().size(), 64U << 20);
  j["tensors"][1] = {{"repeat", 10'000}, {"of", many}};
  expect_refused(j, "/tensors/1", "larger than 64 MiB");
}

TEST(Unrolled, ShippedModelsAreWhatTheyAreSaidToBe) {
  Workload w = workload("gpt3-175b");
  EXPECT_EQ(w.elements(), 174'604'259'328);
  EXPECT_EQ(w.tensors.back().name, "transformer.ln_f.bias");
  EXPECT_EQ(workload("llama-3.1-70b").elements(), 70'553'706'496);
}

}  // namespace
}  // namespace ddpsim::test
