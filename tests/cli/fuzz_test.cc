// Random damage to shipped files: each reader gives a value or an InputError, and each question an
// answer or exit code 2; nothing else, ever.
#include <filesystem>
#include <fstream>
#include <functional>

#include <gtest/gtest.h>
#include <unistd.h>

#include "sim/io/files.h"
#include "tests/support/files.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

namespace fs = std::filesystem;
using io::Json;

std::string damage_bytes(std::string text, Random& random) {
  switch (random.below(4)) {
    case 0:
      return text.substr(0, random.below(text.size()));
    case 1:
      text[random.below(text.size())] = static_cast<char>(random.below(256));
      break;
    case 2:
      text.erase(random.below(text.size()), 1 + random.below(8));
      break;
    default:
      text.insert(random.below(text.size()), 1, "{}[],:\"-9e.\\"[random.below(12)]);
      break;
  }
  return text;
}

void damage_structure(Json& j, Random& random) {
  static const std::vector<Json> kValues{nullptr,
                                         Json::array(),
                                         Json::object(),
                                         -1,
                                         0,
                                         1,
                                         1e308,
                                         1e-308,
                                         "x",
                                         "",
                                         true,
                                         INT64_MAX,
                                         INT64_MIN,
                                         UINT64_MAX,
                                         "0B",
                                         "1ps",
                                         "9999999999999999Gb/s",
                                         0.5,
                                         1 << 20,
                                         "1000:1",
                                         "\n",
                                         "bf16",
                                         "graph",
                                         "described"};
  Json& place = somewhere(j, random);
  switch (random.below(4)) {
    case 0: {
      Json& parent = somewhere(j, random);
      if (!parent.is_object() || parent.empty()) break;
      auto victim = parent.begin();
      std::advance(victim, static_cast<std::ptrdiff_t>(random.below(parent.size())));
      parent.erase(victim);
      break;
    }
    case 1: {
      Json other = somewhere(j, random);
      place = std::move(other);
      break;
    }
    default:
      place = kValues[random.below(kValues.size())];
      break;
  }
}

struct Subject {
  std::string path;
  std::function<void(const Json&)> read;
  std::string text;
};

std::vector<Subject> subjects() {
  std::vector<Subject> out;
  auto add = [&](const std::string& path, std::function<void(const Json&)> read) {
    out.push_back({path, std::move(read), io::read_file(source_path(path))});
  };
  auto folder = [&](const std::string& name, const std::function<void(const Json&)>& read) {
    std::vector<std::string> paths;
    for (const auto& entry : fs::directory_iterator(source_path(name)))
      if (entry.path().extension() == ".json" && entry.file_size() < 6000 &&
          !has(io::read_file(entry.path().string()), "\"extends\""))  // which is not whole
        paths.push_back(name + "/" + entry.path().filename().string());
    std::sort(paths.begin(), paths.end());
    for (const std::string& p : paths) add(p, read);
  };
  folder("workloads", [](const Json& j) { (void)io::read_workload(j, "f"); });
  folder("topologies", [](const Json& j) { (void)io::read_cluster(j, "f"); });
  folder("tests/golden/clusters", [](const Json& j) { (void)io::read_cluster(j, "f"); });
  folder("calib/profiles", [](const Json& j) { (void)io::read_profile(j, "f"); });
  folder("tests/golden/scenarios", [](const Json& j) { (void)io::read_scenario(j, "f"); });
  add("tests/cli/bad/workload-good.json", [](const Json& j) { (void)io::read_workload(j, "f"); });
  return out;
}

enum class Verdict { Read, Refused };

Verdict feed(const Subject& s, const std::string& text, const Json* document) {
  try {
    s.read(document ? *document : io::parse_json(text, "f"));
    return Verdict::Read;
  } catch (const InputError& e) {
    EXPECT_TRUE(e.where.starts_with("f")) << e.where;
    EXPECT_FALSE(e.what.empty());
    return Verdict::Refused;
  } catch (const std::exception& e) {
    ADD_FAILURE() << s.path << ": " << e.what() << "\n" << text.substr(0, 2000);
    return Verdict::Refused;
  }
}

TEST(Fuzz, ReadersGiveAValueOrAnInputError) {
  Random random(20251121);
  auto all = subjects();
  ASSERT_GT(all.size(), 20u);
  std::vector<Json> documents;
  for (const Subject& s : all) documents.push_back(io::parse_json(s.text, s.path));
  int refused = 0;
  constexpr int kRounds = 2000;
  for (int i = 0; i < kRounds; ++i) {
    std::size_t k = random.below(all.size());
    Verdict v;
    if (i % 2 == 0) {
      v = feed(all[k], damage_bytes(all[k].text, random), nullptr);
    } else {
      Json j = documents[k];
      for (std::size_t n = 1 + random.below(3u); n > 0; --n) damage_structure(j, random);
      v = feed(all[k], j.dump(), &j);
    }
    refused += v == Verdict::Refused ? 1 : 0;
  }
  // Neither does damage go unseen, nor is all refused before it is looked at.
  EXPECT_GT(refused, kRounds / 3);
  EXPECT_LT(refused, kRounds);
}

// What the readers let through must also be predictable: no internal error, no time that is not
// positive.
TEST(Fuzz, QuestionsGiveAnAnswerOrExitCode2) {
  fs::path folder = fs::path(testing::TempDir()) / ("ddpsim_fuzz_" + std::to_string(::getpid()));
  fs::create_directories(folder);
  const std::vector<std::string> originals{
      "tests/cli/bad/workload-good.json", "workloads/mlp784-50-10.json",
      "tests/golden/clusters/graph-token-bucket.json", "calib/profiles/cpu-generic.datasheet.json"};
  const std::vector<std::string> flags{"--workload", "--workload", "--cluster", "--profile"};
  std::vector<Json> documents;
  for (const std::string& path : originals) documents.push_back(read_json(path));
  Random random(7);
  int answered = 0;
  for (int i = 0; i < 240; ++i) {
    std::size_t k = random.below(originals.size());
    Json j = documents[k];
    damage_structure(j, random);
    std::string file = (folder / "damaged.json").string();
    io::write_file(file, j.dump());
    std::vector<std::string> args{"predict", "--format", "json", "--ranks", "2", flags[k], file};
    if (k > 1) args.insert(args.end(), {"--workload", source_path(originals[k - 2])});
    if (k != 2) args.insert(args.end(), {"--cluster", "ethernet-10g"});
    Outcome o = ddpsim(args);
    ASSERT_TRUE(o.code == 0 || o.code == 2) << o.err << j.dump();
    if (o.code != 0) continue;
    ++answered;
    Json summary = io::parse_json(o.out, "out")["summary"];
    auto step = summary["step_ps"].get<std::int64_t>();
    ASSERT_GT(step, 0) << j.dump();
    ASSERT_LE(summary["step_low_ps"].get<std::int64_t>(), step) << j.dump();
    ASSERT_GE(summary["step_high_ps"].get<std::int64_t>(), step) << j.dump();
  }
  EXPECT_GT(answered, 30);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace ddpsim::test
