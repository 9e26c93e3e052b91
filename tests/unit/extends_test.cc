// A profile over what it extends: whole, refused with the file and the key to blame, and a GPU that
// nobody has heard of in two short files.
#include "sim/io/extends.h"

#include <algorithm>
#include <filesystem>

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

namespace fs = std::filesystem;
using io::Json;

class Extends : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("ddpsim_extends_" + std::to_string(::getpid()));
    fs::create_directories(folder_ / "below");
  }
  void TearDown() override { fs::remove_all(folder_); }

  // A file that extends another, with more keys; its path.
  std::string file(const std::string& name, const Json& extends, Json more = Json::object()) {
    more["schema"] = "ddpsim.profile/1";
    more["extends"] = extends;
    io::write_file((folder_ / name).string(), more.dump());
    return (folder_ / name).string();
  }
  static Json whole(const std::string& path) {
    return io::open_json(io::Home(source_path(""), "", ""), path, path).document;
  }
  // ddpsim ends with 2 and names the place.
  static void refused(const std::string& path, const std::string& where, const char* what) {
    const Outcome o =
        ddpsim({"predict", "--workload", "resnet50", "--cluster", "hgx-b200", "--profile", path});
    EXPECT_EQ(o.code, 2);
    EXPECT_TRUE(has(o.err, "ddpsim: " + where + ": ")) << o.err;
    EXPECT_TRUE(has(o.err, what)) << o.err;
  }
  fs::path folder_;
};

TEST_F(Extends, IsWhatTheBaseSaysButForItsOwn) {
  Json expected = read_json("calib/profiles/b200.datasheet.json");
  EXPECT_EQ(whole(file("same.json", "b200.datasheet")), expected);
  const Json own = Json::parse(
      R"({"name": "mine", "compute": {"sms": 100, "peak_flops": {"fp32": 70000000000000}},
          "power": null, "unknown": ["nothing"]})");
  expected["name"] = "mine";
  expected["compute"]["sms"] = 100;
  expected["compute"]["peak_flops"]["fp32"] = 70000000000000;
  expected["unknown"] = {"nothing"};
  expected.erase("power");
  const std::string path = file("own.json", "b200.datasheet", own);
  EXPECT_EQ(whole(path), expected);
  const Profile p = io::open_profile(io::Home(source_path(""), "", ""), path, path);
  EXPECT_EQ(p.name, "mine");
  EXPECT_FALSE(p.power);
  // Beside the file, whatever folder one stands in; a base of a base.
  EXPECT_EQ(whole(file("below/third.json", "../own.json")), expected);
  EXPECT_EQ(whole(file("fourth.json", "below/third.json")), expected);
  EXPECT_EQ(whole(file("fifth.json", "fourth.json", {{"name", "it"}}))["name"], "it");
  expected["name"] = "it";
  EXPECT_EQ(Json::parse(ddpsim({"show", "profile", (folder_ / "fifth.json").string()}).out),
            expected);
}

TEST_F(Extends, RefusesABaseThatIsNone) {
  std::string path = file("x.json", "nvidia-hoper");
  refused(path, path + "#/extends",
          "no base or profile of that name is shipped (did you mean "
          "\"nvidia-hopper\"?)");
  path = file("x.json", "gone.json");
  refused(path, path + "#/extends", "\"gone.json\": no such file beside this one");
  path = file("x.json", 7);
  refused(path, path + "#/extends", "expected text in quotes, found 7");
  path = file("x.json", nullptr);
  refused(path, path + "#/extends", "expected text in quotes, found null");
  path = file("x.json", "x.json");
  refused(path, path + "#/extends", "extends this file in turn");
  const std::string second = file("second.json", "below/../x.json");
  path = file("x.json", "second.json");
  refused(path, second + "#/extends", "extends this file in turn");
  path = file("x.json", source_path("topologies/hgx-b200.json"));
  refused(path, source_path("topologies/hgx-b200.json") + "#/schema",
          "is \"ddpsim.cluster/1\", but a profile");
}

TEST_F(Extends, BlamesTheFileThatSaysIt) {
  const std::string base =
      file("base.json", "b200.datasheet", {{"compute", {{"sms", "many"}}}, {"colour", "green"}});
  std::string path = file("x.json", "base.json");
  refused(path, base + "#/colour", "unknown key");
  path = file("x.json", "base.json", {{"colour", nullptr}});
  refused(path, base + "#/compute/sms", "expected a whole number, found \"many\"");
  path = file("x.json", "base.json", {{"colour", nullptr}, {"compute", {{"sms", "few"}}}});
  refused(path, path + "#/compute/sms", "expected a whole number, found \"few\"");
  path = file("x.json", "b200.datasheet", {{"compute", {{"extends", "x"}}}});
  refused(path, path + "#/compute/extends", "unknown key");
  // A key that no file has is missing in the one that was named.
  path = file("x.json", "nvidia-blackwell");
  refused(path, path + "#", "\"name\" is missing");
  // Neither is a profile's file.
  const Outcome o = ddpsim({"predict", "--workload", "resnet50", "--cluster", "hgx-b200", "--set",
                            "profile.extends=gpu"});
  EXPECT_EQ(o.code, 2);
  EXPECT_TRUE(has(o.err, "--set profile.extends=gpu ")) << o.err;
  path = (folder_ / "cluster.json").string();
  Json cluster = read_json("topologies/hgx-b200.json");
  cluster["extends"] = "hgx-b200";
  io::write_file(path, cluster.dump());
  expect_refusal({"predict", "--workload", "resnet50", "--cluster", path},
                 "#/extends: unknown key");
}

TEST_F(Extends, BasesAreNoProfiles) {
  EXPECT_FALSE(has(ddpsim({"list", "profiles"}).out, "nvidia-hopper"));
  expect_refusal(
      {"predict", "--workload", "resnet50", "--cluster", "hgx-h100", "--profile", "nvidia-hopper"},
      "no profile of that name is shipped");
}

// What an answer is made from is not written over.
TEST_F(Extends, AnOutputIsNeitherTheFileNorItsBase) {
  const std::string base = file("base.json", "b200.datasheet");
  const std::string path = file("x.json", "base.json");
  for (auto [out, why] : {std::pair{path, "is a file that is read (--profile)"},
                          {base, "the answer is made from this file"}})
    expect_refusal({"predict", "--workload", "resnet50", "--cluster", "hgx-b200", "--profile", path,
                    "--format", "json", "--out", out},
                   why);
}

// A new GPU is one short file, and a cluster of it another.
TEST_F(Extends, ANewGpuAndTwoHostsOfItAreTwoShortFiles) {
  const std::string gpu = source_path("tests/data/extends/b300.json");
  const std::string cluster = source_path("tests/data/extends/two-b300-hosts.json");
  for (const std::string& path : {gpu, cluster}) {
    const std::string text = io::read_file(path);
    EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 40) << path;
  }
  const Json j = json_of({"predict", "--workload", "gpt2-small", "--cluster", cluster, "--profile",
                          gpu, "--ranks", "16"});
  const Json before = json_of({"predict", "--workload", "gpt2-small", "--cluster", cluster,
                               "--profile", "b200.datasheet", "--ranks", "16"});
  EXPECT_GT(j["summary"]["step_ps"], 0);
  EXPECT_LT(j["summary"]["step_ps"], before["summary"]["step_ps"]) << "a B200's";
}

}  // namespace
}  // namespace ddpsim::test
