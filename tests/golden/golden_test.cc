// Golden: did anything change? Each scenario's prediction is compared with its golden, byte for
// byte. A mismatch writes expected/NAME.new.json; `tools/goldens --accept --line ID` makes it the
// golden (CONTRIBUTING.md).
#include "tests/golden/golden.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <stdexcept>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "sim/io/files.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

using io::OrderedJson;

std::string in_folder(const std::string& folder, const std::string& file) {
  return source_path("tests/golden/" + folder + "/" + file);
}

std::uint64_t fnv1a(std::uint64_t h, const std::string& text) {
  for (unsigned char c : text) h = (h ^ c) * 0x100000001b3ull;
  return h;
}

// Per lane, in the order in which the lanes first appear.
OrderedJson fingerprint(const OrderedJson& spans) {
  struct Lane {
    std::size_t count = 0;
    std::uint64_t hash = 0xcbf29ce484222325ull;
  };
  std::vector<std::string> order;
  std::map<std::string, Lane> lanes;
  for (const OrderedJson& span : spans) {
    std::string name = span.at("lane").get<std::string>();
    if (lanes.find(name) == lanes.end()) order.push_back(name);
    Lane& lane = lanes[name];
    ++lane.count;
    lane.hash = fnv1a(lane.hash, span.dump());
  }
  OrderedJson out = OrderedJson::array();
  for (const std::string& name : order)
    out.push_back({{"lane", name},
                   {"spans", lanes[name].count},
                   {"fnv1a", fmt::format("{:016x}", lanes[name].hash)}});
  return out;
}

std::string brief(const OrderedJson& value) {
  std::string text = value.dump();
  return text.size() <= 120 ? text : text.substr(0, 117) + "...";
}

}  // namespace

std::vector<std::string> golden_names(const std::string& folder) {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(in_folder(folder, ""))) {
    std::string file = entry.path().filename().string();
    if (file.ends_with(".json") && !file.ends_with(".new.json"))
      out.push_back(file.substr(0, file.size() - 5));
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::string scenario_path(const std::string& name) {
  return in_folder("scenarios", name + ".json");
}
std::string expected_path(const std::string& name) {
  return in_folder("expected", name + ".json");
}
std::string new_path(const std::string& name) {
  return in_folder("expected", name + ".new.json");
}

std::string prediction_of(const std::string& name) {
  std::vector<std::string> args = {"predict", scenario_path(name), "--format", "json"};
  if (name.ends_with(".message")) args.insert(args.end(), {"--fidelity", "message"});
  Outcome o = ddpsim(args);
  if (o.code != 0 || !o.err.empty())
    throw std::runtime_error(fmt::format("{}: exit code {}, {}", name, o.code, o.err));
  return o.out;
}

std::string condense(const std::string& prediction) {
  OrderedJson all = OrderedJson::parse(prediction);
  const OrderedJson& run = all.at("run");
  const OrderedJson& spans = run.at("spans");
  OrderedJson out;
  out["summary"] = all.at("summary");
  out["steps"] = run.at("steps");
  if (spans.size() <= kMaxSpans)
    out["spans"] = spans;
  else
    out["lanes"] = fingerprint(spans);
  return out.dump(1) + "\n";
}

std::string first_difference(const OrderedJson& golden, const OrderedJson& now,
                             const std::string& at) {
  if (golden == now && golden.dump() == now.dump()) return {};
  if (golden.is_object() && now.is_object()) {
    for (const auto& [key, value] : golden.items()) {
      if (!now.contains(key))
        return at + "/" + key + ": " + brief(value) + " in the golden, absent now";
      if (auto found = first_difference(value, now.at(key), at + "/" + key); !found.empty())
        return found;
    }
    for (const auto& [key, value] : now.items())
      if (!golden.contains(key))
        return at + "/" + key + ": absent in the golden, " + brief(value) + " now";
  }
  if (golden.is_array() && now.is_array()) {
    for (std::size_t i = 0; i < std::min(golden.size(), now.size()); ++i)
      if (auto found = first_difference(golden[i], now[i], at + "/" + std::to_string(i));
          !found.empty())
        return found;
    return fmt::format("{}: {} entries in the golden, {} now", at, golden.size(), now.size());
  }
  return at + ": " + brief(golden) + " in the golden, " + brief(now) + " now";
}

namespace {

// "" if the prediction is the golden's, byte for byte; otherwise where it differs, with the new
// text written beside it.
std::string compare(const std::string& name) {
  std::string now = condense(prediction_of(name));
  std::string golden = io::exists(expected_path(name)) ? io::read_file(expected_path(name)) : "";
  if (golden == now) {
    std::filesystem::remove(new_path(name));
    return {};
  }
  io::write_file(new_path(name), now);
  std::string where = "there is no golden yet";
  if (!golden.empty()) {
    OrderedJson parsed = OrderedJson::parse(golden, nullptr, false);
    where = parsed.is_discarded() ? "the golden is not JSON"
                                  : first_difference(parsed, OrderedJson::parse(now));
    if (where.empty()) where = "only the layout of the text differs";
  }
  return where + "\n  tests/golden/expected/" + name +
         ".new.json holds what is predicted now; see CONTRIBUTING.md, \"Goldens\"";
}

// Once for all scenarios, so that a new file in the folder is compared without a build.
TEST(Golden, PredictionsAreTheGoldensByteForByte) {
  std::vector<std::string> names = golden_names("scenarios");
  ASSERT_FALSE(names.empty());
  for (const std::string& name : names) {
    try {
      if (std::string difference = compare(name); !difference.empty())
        ADD_FAILURE() << name << ": " << difference;
    } catch (const std::exception& e) {
      ADD_FAILURE() << name << ": " << e.what();
    }
  }
}

// The reverse, a scenario without a golden, fails above.
TEST(Golden, EveryGoldenHasAScenario) {
  std::vector<std::string> scenarios = golden_names("scenarios");
  for (const std::string& name : golden_names("expected"))
    EXPECT_TRUE(std::binary_search(scenarios.begin(), scenarios.end(), name))
        << "tests/golden/expected/" << name << ".json has no scenario: remove it";
}

TEST(Golden, FilesAreSmall) {
  for (const std::string& name : golden_names("expected"))
    EXPECT_LT(std::filesystem::file_size(expected_path(name)), 44u * 1024) << name;
}

TEST(Golden, TheFirstDifferenceIsNamedWithBothValues) {
  OrderedJson golden = OrderedJson::parse(
      R"({"summary": {"step_ps": 12, "buckets": [{"bytes": 1}, {"bytes": 2}]}, "x": 1.5})");
  EXPECT_EQ(first_difference(golden, golden), "");
  OrderedJson now = golden;
  now["x"] = 2.5;
  EXPECT_EQ(first_difference(golden, now), "/x: 1.5 in the golden, 2.5 now");
  now["summary"]["buckets"][1]["bytes"] = 3;
  EXPECT_EQ(first_difference(golden, now), "/summary/buckets/1/bytes: 2 in the golden, 3 now");
  now["summary"]["buckets"].erase(1);
  EXPECT_EQ(first_difference(golden, now), "/summary/buckets: 2 entries in the golden, 1 now");
  now["summary"].erase("step_ps");
  EXPECT_EQ(first_difference(golden, now), "/summary/step_ps: 12 in the golden, absent now");
  now = golden;
  now["x"] = 1;
  golden["x"] = 1.0;
  EXPECT_EQ(first_difference(golden, now), "/x: 1.0 in the golden, 1 now");
}

// A digit anywhere in any span must move the golden, also of a long run.
TEST(Golden, AChangeOfOneSpanChangesTheGolden) {
  OrderedJson all = OrderedJson::parse(prediction_of("resnet50-hgx"));
  ASSERT_GT(all["run"]["spans"].size(), kMaxSpans);
  std::string before = condense(all.dump());
  for (const char* key : {"begin_ps", "end_ps", "ready_ps"}) {
    OrderedJson moved = all;
    OrderedJson& value = moved["run"]["spans"].back()[key];
    value = value.get<std::int64_t>() + 1;
    EXPECT_NE(condense(moved.dump()), before) << key;
  }
}

}  // namespace
}  // namespace ddpsim::test
