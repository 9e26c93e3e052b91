// --html: the page holds what --format json says, and nothing in its data ends the script element
// that holds it. How it looks: tests/page.
#include <filesystem>
#include <map>
#include <set>

#include <gtest/gtest.h>
#include <unistd.h>

#include "sim/io/files.h"
#include "sim/io/page_template.h"
#include "sim/io/write_page.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

namespace fs = std::filesystem;
using io::Json;

class Page : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(path_);
    if (!io::page_template().gzip) GTEST_SKIP() << "this build has no page";
  }
  void TearDown() override { fs::remove_all(path_); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  // The data of the page that `args --html` writes.
  Json data(Args args, int code = 0) const {
    std::string at = file("page.html");
    args.insert(args.end(), {"--html", at});
    Outcome o = ddpsim(args);
    EXPECT_EQ(o.code, code) << o.err;
    EXPECT_NE(o.err.find("wrote " + at), std::string::npos) << o.err;
    return data_of(io::read_file(at));
  }
  static Json data_of(const std::string& html) {
    const std::string open = "id=\"ddpsim-data\">";
    auto from = html.find(open) + open.size();
    auto to = html.find("</script>", from);
    std::string text = html.substr(from, to - from);
    EXPECT_EQ(text.find('<'), std::string::npos);
    EXPECT_EQ(html.find("/*DATA*/"), std::string::npos);
    return io::parse_json(text, "page");
  }
  static Json answer(Args args) {
    args.insert(args.end(), {"--format", "json"});
    Outcome o = ddpsim(args);
    EXPECT_EQ(o.code, 0) << o.err;
    return io::parse_json(o.out, "stdout");
  }
  fs::path path_ = fs::path(testing::TempDir()) / ("ddpsim_page_" + std::to_string(::getpid()));
};

const Args kGpu{"predict",  "--workload", "resnet18",       "--cluster",
                "hgx-h100", "--set",      "cluster.hosts=2"};

// Beside the interval stands what the text says of it.
TEST_F(Page, SaysTheKnownErrorBesideTheInterval) {
  const Args one{"predict", "--workload", "resnet50", "--cluster", "dgx1-v100", "--ranks", "1"};
  const std::string text = ddpsim(one).out;
  const auto from = text.find("known error: ");
  ASSERT_NE(from, std::string::npos) << text;
  const std::string known = text.substr(from, text.find('\n', from) - from);
  const std::string interval = data(one)["heading"]["interval"];
  EXPECT_NE(interval.find("; " + known), std::string::npos) << interval << "\n" << known;
}

TEST_F(Page, OfPredictHoldsTheSummaryAndEverySpan) {
  Json page = data(kGpu);
  Json json = answer(kGpu);
  EXPECT_EQ(page["summary"], json["summary"]);
  EXPECT_EQ(page["kind"], "predict");
  std::map<std::tuple<int, std::string, std::string, std::int64_t>,
           std::pair<std::int64_t, std::int64_t>>
      spans;
  std::size_t count = 0;
  for (const Json& t : page["run"]["tracks"])
    for (std::size_t i = 0; i < t["op"].size(); ++i, ++count) {
      std::int64_t begin = t["begin_ps"][i];
      spans[{t["actor"], t["lane"], page["run"]["ops"][t["op"][i].get<std::size_t>()]["name"],
             begin}] = {begin + t["length_ps"][i].get<std::int64_t>(),
                        begin - t["wait_ps"][i].get<std::int64_t>()};
    }
  EXPECT_EQ(count, json["run"]["spans"].size());
  for (const Json& s : json["run"]["spans"]) {
    auto it = spans.find({s["class"], s["lane"], s["op"], s["begin_ps"]});
    ASSERT_NE(it, spans.end()) << s.dump();
    EXPECT_EQ(it->second, (std::pair<std::int64_t, std::int64_t>{s["end_ps"], s["ready_ps"]}))
        << s.dump();
  }
}

TEST_F(Page, SaysOfTheBusiestLinkWhatTheAnswerSays) {
  // Without broadcasts, so that one pattern is all that a link carries.
  for (const Args& more :
       {Args{}, Args{"--cluster", "gpu-ethernet-25g", "--set", "cluster.hosts=3"},
        Args{"--cluster", "dgx1-v100"}}) {
    Args args = kGpu;
    args.insert(args.end(), {"--set", "broadcast_buffers=false"});
    if (!more.empty()) args[4] = more[1], args[6] = more.size() > 3 ? more[3] : args[6];
    Json page = data(args);
    double most = 0;
    std::string name;
    for (const Json& g : page["topology"]["groups"])
      if (g.contains("busy_max") && g["busy_max"].get<double>() > most)
        most = g["busy_max"], name = g["busiest"];
    EXPECT_NEAR(most, page["summary"]["busiest_link"]["busy"].get<double>(), 1e-9) << args[4];
    EXPECT_EQ(name, page["summary"]["busiest_link"]["name"]) << args[4];
    std::set<double> drawn;
    for (const Json& c : page["topology"]["cables"])
      for (const Json& busy : c["busy"]) drawn.insert(busy.get<double>());
    EXPECT_NEAR(*drawn.rbegin(), most, 1e-9) << args[4];
  }
}

TEST_F(Page, CountsExposedTimeByBucket) {
  Json page = data(kGpu);
  ASSERT_EQ(page["exposed_ps"].size(), page["summary"]["buckets"].size());
  for (std::size_t i = 0; i < page["exposed_ps"].size(); ++i) {
    std::int64_t exposed = page["exposed_ps"][i];
    const Json& b = page["summary"]["buckets"][i];
    EXPECT_GE(exposed, 0);
    EXPECT_LE(exposed, b["end_ps"].get<std::int64_t>() - b["ready_ps"].get<std::int64_t>());
  }
  // Averaging after backward hides nothing: what is exposed is all of it.
  Json plain = data({"predict", "--workload", "mlp784-50-10-cpu", "--cluster", "ethernet-10g",
                     "--plan", "averaging", "--set", "granularity=flat"});
  EXPECT_EQ(plain["exposed_ps"][0], plain["summary"]["exposed_communication_ps"]);
  EXPECT_GT(plain["exposed_ps"][0].get<std::int64_t>(), 0);
}

TEST_F(Page, OfValidateAndCompareHoldsTheirJson) {
  const std::string some = source_path("calib/occasions");
  EXPECT_EQ(data({"validate", "--runs", some})["validation"], answer({"validate", "--runs", some}));
  std::string predicted = file("predicted.json");
  std::string run = source_path("calib/runs/torch-fe8e143dc25d9acb-20261121T185539Z.json.gz");
  ASSERT_EQ(ddpsim({"predict", source_path("calib/runs/scenarios/fe8e143dc25d9acb.json"),
                    "--layers", run, "--format", "json", "--out", predicted})
                .code,
            0);
  Json page = data({"compare", predicted, run});
  EXPECT_EQ(page["comparison"], answer({"compare", predicted, run}));
  EXPECT_GT(page["measured"]["tracks"].size(), 0u);
  EXPECT_GT(page["predicted"]["tracks"].size(), 0u);
}

TEST_F(Page, KeepsTextFromEndingItsScript) {
  std::string html = io::write_page(
      {{"kind", "tune"}, {"title", "a <b> & c"}, {"verdict", "</script><!--<script>"}});
  EXPECT_EQ(data_of(html)["verdict"], "</script><!--<script>");
  EXPECT_NE(html.find("<title>a &lt;b&gt; &amp; c - ddpsim</title>"), std::string::npos);
}

TEST_F(Page, AsksForNothing) {
  std::string html = io::write_page({{"kind", "tune"}});
  for (const char* reference :
       {" src=", "@import", "url(http", "<link rel=\"stylesheet\"", "<link rel=\"preload\""})
    EXPECT_EQ(html.find(reference), std::string::npos) << reference;
}

TEST_F(Page, ThatCannotBeWrittenIsBadInput) {
  Args args = kGpu;
  args.insert(args.end(), {"--html", "no/such/folder/page.html"});
  Outcome o = ddpsim(args);
  EXPECT_EQ(o.code, 2);
  EXPECT_NE(o.err.find("no/such/folder/page.html"), std::string::npos);
}

TEST(NoPage, IsASentenceAndExitCodeTwo) {
  if (io::page_template().gzip) GTEST_SKIP() << "this build has a page";
  Args args = kGpu;
  args.insert(args.end(), {"--html", "page.html"});
  Outcome o = ddpsim(args);
  EXPECT_EQ(o.code, 2);
  EXPECT_EQ(o.out, "");
  EXPECT_NE(o.err.find("--html: this build of ddpsim has no page"), std::string::npos) << o.err;
}

}  // namespace
}  // namespace ddpsim::test
