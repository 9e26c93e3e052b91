// Programs from files, held against one another.
#include "sim/analysis/compare_programs.h"

#include <gtest/gtest.h>

#include "sim/io/codecs.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

using analysis::ListedProgram;
using io::Json;

Json op(const char* lane, const char* name, std::vector<const char*> waits) {
  Json j{{"lane", lane}, {"op", name}, {"tensors", Json::array()}, {"bytes", 0}};
  j["waits_for"] = Json::array();
  for (const char* w : waits) j["waits_for"].push_back(w);
  return j;
}

Json collective(const char* name, const char* operation, std::int64_t bytes,
                std::vector<const char*> tensors, std::vector<const char*> waits) {
  Json j = op("comm", name, std::move(waits));
  j["operation"] = operation;
  j["bytes"] = bytes;
  j["dtype"] = "float32";
  j["group"] = {0, 1};
  for (const char* t : tensors) j["tensors"].push_back(t);
  return j;
}

// Two gradients, a bucket each.
Json program() {
  Json steady;
  steady["kind"] = "steady";
  steady["ops"] = {op("compute", "fwd", {}), op("compute", "bwd/b", {}),
                   collective("all_reduce/0", "all_reduce", 8, {"b"}, {"bwd/b"}),
                   op("compute", "bwd/a", {}),
                   collective("all_reduce/1", "all_reduce", 16, {"a"}, {"bwd/a"})};
  return {{"schema", "ddpsim.program/1"}, {"ranks", 2}, {"steps", {steady}}};
}

ListedProgram read(const Json& j) {
  return io::read_program(j, "p.json");
}

TEST(ComparePrograms, ReadsWhatEachCollectiveWaitsFor) {
  ListedProgram p = read(program());
  ASSERT_EQ(p.steps.size(), 1u);
  EXPECT_EQ(p.steps[0].gradients, (std::vector<std::string>{"b", "a"}));
  ASSERT_EQ(p.steps[0].collectives.size(), 2u);
  EXPECT_EQ(p.steps[0].collectives[0].after, "b");
  EXPECT_EQ(p.steps[0].collectives[1].after, "a");
  EXPECT_EQ(p.steps[0].collectives[0].group, "") << "all ranks";
}

TEST(ComparePrograms, FindsEveryDifference) {
  ListedProgram a = read(program());
  EXPECT_TRUE(analysis::compare_programs(a, a).differences.empty());
  EXPECT_EQ(analysis::compare_programs(a, a).equal, 2u);
  struct Case {
    const char* what;
    void (*change)(Json& ops);
    std::size_t differences;
  };
  const Case cases[] = {
      {"only in the", [](Json& ops) { ops[2]["bytes"] = 12; }, 2},
      {"only in the first", [](Json& ops) { ops.erase(4); }, 1},
      {"only in the second",
       [](Json& ops) { ops.push_back(collective("x", "broadcast", 4, {}, {})); }, 1},
      {"only in the", [](Json& ops) { ops[2]["tensors"] = {"a"}; }, 2},
      {"dtype float32 against bfloat16", [](Json& ops) { ops[2]["dtype"] = "bfloat16"; }, 1},
      {"group all against 0", [](Json& ops) { ops[2]["group"] = {0}; }, 1},
      {"waits for the gradient b against none",
       [](Json& ops) { ops[2]["waits_for"] = Json::array(); }, 1},
  };
  for (const Case& c : cases) {
    Json changed = program();
    c.change(changed["steps"][0]["ops"]);
    auto result = analysis::compare_programs(a, read(changed));
    ASSERT_EQ(result.differences.size(), c.differences) << c.what;
    EXPECT_NE(result.differences[0].what.find(c.what), std::string::npos)
        << result.differences[0].what;
  }
}

TEST(ComparePrograms, TheLastStepStandsForLaterOnes) {
  Json longer = program();
  longer["steps"].push_back(longer["steps"][0]);
  auto same = analysis::compare_programs(read(longer), read(program()));
  EXPECT_EQ(same.steps, 2u);
  EXPECT_EQ(same.equal, 4u);
}

TEST(ComparePrograms, RefusesWhatIsNoProgram) {
  struct Case {
    const char* place;
    void (*change)(Json& j);
  };
  const Case cases[] = {
      {"/schema", [](Json& j) { j["schema"] = "ddpsim.run/1"; }},
      {"/steps", [](Json& j) { j["steps"] = Json::array(); }},
      {"/steps/0/ops/2/waits_for/0",
       [](Json& j) { j["steps"][0]["ops"][2]["waits_for"] = {"bwd/c"}; }},
      {"/steps/0/ops/3/op", [](Json& j) { j["steps"][0]["ops"][3]["op"] = "bwd/b"; }},
      {"/steps/0/ops/2/group", [](Json& j) { j["steps"][0]["ops"][2]["group"] = "some"; }},
      {"/steps/0/ops/2", [](Json& j) { j["steps"][0]["ops"][2]["colour"] = 1; }},
  };
  for (const Case& c : cases) {
    Json changed = program();
    c.change(changed);
    try {
      read(changed);
      ADD_FAILURE() << c.place;
    } catch (const InputError& e) {
      EXPECT_NE(e.where.find(c.place), std::string::npos) << e.where << " for " << c.place;
    }
  }
}

}  // namespace
}  // namespace ddpsim::test
