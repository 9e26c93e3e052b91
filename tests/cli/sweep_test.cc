// ddpsim sweep and merge: the same bytes whatever the threads and shards, invalid points as rows,
// bad axes before any work.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <regex>
#include <sstream>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

#include "sim/io/files.h"
#include "sim/io/json_reader.h"
#include "tests/support/support.h"
#include "tools/cmd/crash.h"

namespace ddpsim::test {
namespace {

const Args kSweep{"sweep",
                  "--workload",
                  "resnet50",
                  "--cluster",
                  "hgx-h100",
                  "--axis",
                  "bucket_cap_mb=1,5,25,100",
                  "--axis",
                  "cluster.hosts=1:8:x2",
                  "--axis",
                  "plan.system=pytorch_ddp,averaging"};

struct Folder {
  std::string path;
  Folder()
      : path((std::filesystem::temp_directory_path() /
              ("ddpsim-sweep-" + std::to_string(::getpid()) + "-" + std::to_string(counter++)))
                 .string()) {
    std::filesystem::create_directories(path);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string file(const std::string& name) const { return path + "/" + name; }
  static inline int counter = 0;
};
std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

TEST(Sweep, HasARowForEveryPointAndTheLastAxisChangesFastest) {
  Outcome o = ddpsim(kSweep);
  ASSERT_EQ(o.code, 0) << o.err;
  std::vector<std::string> rows = lines(o.out);
  ASSERT_EQ(rows.size(), 1u + 4 * 4 * 2);
  EXPECT_TRUE(
      rows[0].starts_with("point,bucket_cap_mb,cluster.hosts,plan.system,world_size,step_ps,"))
      << rows[0];
  EXPECT_TRUE(rows[1].starts_with("0,1,1,pytorch_ddp,8,")) << rows[1];
  // A knob of DDP is not one of plain averaging: a row all the same, with its reason.
  EXPECT_TRUE(rows[2].starts_with("1,1,1,averaging,,")) << rows[2];
  EXPECT_TRUE(has(rows[2], "is a knob of pytorch_ddp")) << rows[2];
  EXPECT_TRUE(rows[31].starts_with("30,100,8,pytorch_ddp,64,")) << rows[31];
}

// What predict says to be beyond the model, a sweep says of the point: in the CSV, in the JSON and
// below the table.
TEST(Sweep, SaysWhatIsBeyondTheModel) {
  const Args question{"--workload", "resnet50", "--cluster", "testbed-gpu"};
  Outcome p = ddpsim(Args{"predict"} + question + Args{"--format", "json"});
  ASSERT_EQ(p.code, 0) << p.err;
  io::Json notes = io::parse_json(p.out, "stdout")["summary"]["extrapolated"];
  ASSERT_EQ(notes.size(), 1u);
  std::string note = notes[0];
  Args sweep = Args{"sweep"} + question + Args{"--axis", "bucket_cap_mb=5,25"};
  std::vector<std::string> rows = lines(ddpsim(sweep).out);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_TRUE(has(rows[0], ",memory_bytes,fits,would_fit,profile,basis,beyond_model,reason,sweep"))
      << rows[0];
  for (std::size_t k : {1, 2}) EXPECT_TRUE(has(rows[k], ",\"" + note + "\",,")) << rows[k];
  EXPECT_TRUE(has(ddpsim(sweep + Args{"--format", "table"}).out,
                  "2 of 2 points beyond the model; the first: " + note.substr(0, 40)));
  io::Json j = io::parse_json(ddpsim(sweep + Args{"--format", "json"}).out, "stdout");
  bool found = false;
  for (std::size_t k = 0; k < j["columns"].size(); ++k)
    if (j["columns"][k]["name"] == "beyond_model")
      found = j["data"][k] == io::Json::array({note, note});
  EXPECT_TRUE(found) << j;
  // Elsewhere the column is empty, and nothing is said.
  Outcome whole = ddpsim(kSweep + Args{"--format", "table"});
  EXPECT_FALSE(has(whole.out, "beyond the model")) << whole.out;
  auto fields = [](const std::string& row) {
    std::string plain = std::regex_replace(row, std::regex("\"[^\"]*\""), "");
    return std::count(plain.begin(), plain.end(), ',');
  };
  for (const std::string& row : lines(ddpsim(kSweep).out))
    EXPECT_EQ(fields(row), fields(rows[0]) + 2) << row;
}

// What predict says of memory: in the row of each format, with what would make it fit; and what
// does not fit comes last where rows are put in order.
TEST(Sweep, SaysWhatDoesNotFitAndWhatWould) {
  const Args question{"--workload", "bert-large", "--cluster", "dgx-a100"};
  Outcome p =
      ddpsim(Args{"predict"} + question + Args{"--set", "workload.batch=512", "--format", "json"});
  ASSERT_EQ(p.code, 0) << p.err;
  io::Json summary = io::parse_json(p.out, "stdout")["summary"];
  ASSERT_EQ(summary["memory"]["fits"], false);
  const std::string note = summary["extrapolated"][0];
  const std::string would = note.substr(note.find("it would with ") + 14);
  EXPECT_TRUE(has(would, "(--set workload.batch=")) << note;
  const Args sweep = Args{"sweep"} + question + Args{"--axis", "workload.batch=512,8"};
  std::vector<std::string> rows = lines(ddpsim(sweep).out);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_TRUE(has(rows[1], ",does not fit," + would + ",")) << rows[1];
  EXPECT_TRUE(has(rows[2], ",yes,,")) << rows[2];
  const std::string table = ddpsim(sweep + Args{"--format", "table"}).out;
  EXPECT_TRUE(has(table, " GiB does not fit\n    it would fit with ")) << table;
  EXPECT_TRUE(has(table, "--set workload.batch=")) << table;
  EXPECT_TRUE(has(ddpsim(sweep + Args{"--format", "md"}).out, "does not fit; it would fit with"));
  io::Json j = io::parse_json(ddpsim(sweep + Args{"--format", "json"}).out, "stdout");
  int found = 0;
  for (std::size_t k = 0; k < j["columns"].size(); ++k) {
    if (j["columns"][k]["name"] == "fits")
      found += j["data"][k] == io::Json::array({"does not fit", "yes"});
    if (j["columns"][k]["name"] == "would_fit")
      found += j["data"][k] == io::Json::array({would, ""});
  }
  EXPECT_EQ(found, 2) << j;
  // The largest batch has the most samples per second, and is not the best.
  Folder f;
  Outcome o = ddpsim(sweep + Args{"--out", f.file("rows.csv")});
  const std::string& said = o.out.empty() ? o.err : o.out;
  const std::size_t best = said.find("most samples per second\n");
  ASSERT_NE(best, std::string::npos) << said;
  EXPECT_LT(said.find("\n8 ", best), said.find("\n512 ", best)) << said;
  EXPECT_TRUE(has(said, "1 of 2 points do not fit")) << said;
  // Rows of a file are read back.
  EXPECT_EQ(ddpsim({"merge", f.file("rows.csv")}).out, ddpsim(sweep).out);
  // Where everything fits, there is nothing to say.
  EXPECT_FALSE(has(ddpsim(kSweep + Args{"--format", "json"}).out, "would_fit"));
}

TEST(Sweep, SaysOfAPointWhatPredictSays) {
  Outcome o =
      ddpsim({"sweep", "--workload", "resnet50", "--cluster", "hgx-h100", "--axis",
              "cluster.hosts=4", "--axis", "bucket_cap_mb=50", "--interval", "--format", "json"});
  ASSERT_EQ(o.code, 0) << o.err;
  io::Json j = io::parse_json(o.out, "stdout");
  Outcome p = ddpsim({"predict", "--workload", "resnet50", "--cluster", "hgx-h100", "--set",
                      "cluster.hosts=4", "--set", "bucket_cap_mb=50", "--format", "json"});
  io::Json summary = io::parse_json(p.out, "stdout")["summary"];
  for (std::size_t k = 0; k < j["columns"].size(); ++k) {
    std::string name = j["columns"][k]["name"];
    if (summary.contains(name) && summary[name].is_number_integer()) {
      EXPECT_EQ(j["data"][k][0], summary[name]) << name;
    }
  }
  EXPECT_EQ(j["data"][1][0], 50);
  EXPECT_EQ(j["columns"][2]["name"], "step_ps");
}

TEST(Sweep, IsTheSameWhateverTheThreadsAndShards) {
  Folder f;
  Outcome one = ddpsim(kSweep + Args{"--jobs", "1"});
  ASSERT_EQ(one.code, 0) << one.err;
  EXPECT_EQ(ddpsim(kSweep + Args{"--jobs", "4"}).out, one.out);
  Args merge{"merge"};
  for (const char* k : {"2", "0", "1"}) {
    ASSERT_EQ(ddpsim(kSweep + Args{"--shard", std::string(k) + "/3", "--out", f.file(k)}).code, 0);
    merge.push_back(f.file(k));
  }
  EXPECT_EQ(ddpsim(merge).out, one.out);
  ASSERT_EQ(ddpsim(merge + Args{"--out", f.file("all")}).code, 0);
  EXPECT_EQ(io::read_file(f.file("all")), one.out);
}

TEST(Sweep, GoesOnWhereAKilledOneStopped) {
  Folder f;
  std::string whole = ddpsim(kSweep).out;
  for (std::size_t cut : {std::size_t{0}, std::size_t{40}, lines(whole)[0].size() + 1,
                          std::size_t{900}, whole.size() / 2, whole.size() - 1, whole.size()}) {
    std::ofstream(f.file("cut"), std::ios::binary) << whole.substr(0, cut);
    Outcome o = ddpsim(kSweep + Args{"--resume", "--out", f.file("cut")});
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(io::read_file(f.file("cut")), whole) << cut;
  }
}

TEST(Sweep, DoesNotGoOnWithAnotherSweepsFile) {
  Folder f;
  std::string file = f.file("x.csv");
  ASSERT_EQ(ddpsim(kSweep + Args{"--out", file}).code, 0);
  std::string before = io::read_file(file);
  struct Bad {
    Args args;
    const char* part;
  };
  for (const Bad& b : {Bad{kSweep + Args{"--out", file}, "exists"},
                       Bad{kSweep + Args{"--out", file, "--resume", "--set", "workload.batch=64"},
                           "another sweep"},
                       Bad{kSweep + Args{"--out", file, "--resume", "--axis", "workload.batch=64"},
                           "other columns"},
                       Bad{kSweep + Args{"--out", file, "--resume", "--shard", "1/2"}, "this part"},
                       Bad{kSweep + Args{"--resume"}, "--out"}}) {
    Outcome o = ddpsim(b.args);
    EXPECT_EQ(o.code, 2);
    EXPECT_TRUE(has(o.err, b.part)) << o.err;
    EXPECT_EQ(io::read_file(file), before);
  }
}

// A file that is not empty is somebody's, whatever it holds.
TEST(Sweep, WritesOverNothing) {
  Folder f;
  for (const char* text :
       {"{\"one\": \"line of JSON, without its end\"}", "precious", "a\nb\n", "\n", "point"}) {
    io::write_file(f.file("mine"), text);
    for (const Args& more : {Args{}, Args{"--resume"}}) {
      if (more.size() == 1 && std::string(text) == "point") continue;  // how a header begins
      Outcome o = ddpsim(kSweep + Args{"--out", f.file("mine")} + more);
      EXPECT_EQ(o.code, 2) << text;
      EXPECT_EQ(io::read_file(f.file("mine")), text);
    }
  }
  io::write_file(f.file("empty"), "");
  EXPECT_EQ(ddpsim(kSweep + Args{"--out", f.file("empty")}).code, 0);
}

// Where one row is damaged, --resume and merge say which, and touch nothing.
TEST(Sweep, EveryRowIsVerified) {
  Folder f;
  const std::string whole = ddpsim(kSweep).out;
  const std::vector<std::string> rows = lines(whole);
  auto join = [](const std::vector<std::string>& all) {
    std::string out;
    for (const std::string& row : all) out += row + "\n";
    return out;
  };
  struct Damage {
    const char* name;
    std::function<void(std::vector<std::string>&)> make;
  };
  const std::string id = rows[1].substr(rows[1].rfind(','));
  for (const Damage& d :
       {Damage{"a row doubled and one missing", [](auto& r) { r[7] = r[6]; }},
        Damage{"two rows in the other order", [](auto& r) { std::swap(r[7], r[8]); }},
        Damage{"a row of another sweep",
               [&](auto& r) { r[7] = r[7].substr(0, r[7].rfind(',')) + ",0123456789abcdef-32"; }},
        Damage{"no step",
               [](auto& r) {
                 r[7] = std::regex_replace(
                     r[7], std::regex("^([^,]*,[^,]*,[^,]*,[^,]*,[^,]*),[0-9]+"), "$1,");
               }},
        Damage{"half a row", [](auto& r) { r[7].resize(r[7].size() / 2); }},
        Damage{"an empty line", [](auto& r) { r[7].clear(); }},
        Damage{"a word", [](auto& r) { r[7] = "hello"; }}}) {
    std::vector<std::string> damaged = rows;
    d.make(damaged);
    ASSERT_NE(damaged, rows) << d.name;
    const std::string text = join(damaged);
    io::write_file(f.file("bad.csv"), text);
    Outcome o = ddpsim(kSweep + Args{"--resume", "--out", f.file("bad.csv")});
    EXPECT_EQ(o.code, 2) << d.name;
    EXPECT_TRUE(has(o.err, "bad.csv")) << o.err;
    EXPECT_EQ(io::read_file(f.file("bad.csv")), text);
    o = ddpsim({"merge", f.file("bad.csv")});
    EXPECT_EQ(o.code, 2) << d.name;
    EXPECT_EQ(o.out, "") << d.name;
  }
  std::vector<std::string> other = rows;
  other[7] = std::regex_replace(other[7], std::regex("^6,[^,]*"), "6,77");
  ASSERT_NE(other, rows);
  io::write_file(f.file("other.csv"), join(other));
  Outcome o = ddpsim(kSweep + Args{"--resume", "--out", f.file("other.csv")});
  EXPECT_EQ(o.code, 2);
  EXPECT_TRUE(has(o.err, "other.csv:8: has other values than point 6")) << o.err;
  EXPECT_TRUE(has(o.err, "head -n 7")) << o.err;
  for (const char* behind : {"appended", "99,", "\"x"}) {
    io::write_file(f.file("behind.csv"), whole + behind);
    EXPECT_EQ(ddpsim(kSweep + Args{"--resume", "--out", f.file("behind.csv")}).code, 2) << behind;
    EXPECT_EQ(ddpsim({"merge", f.file("behind.csv")}).code, 2) << behind;
  }
}

// A point that crashes is left out, so that the others can be had.
TEST(Sweep, APointCanBeSkipped) {
  Folder f;
  std::vector<std::string> whole = lines(ddpsim(kSweep).out);
  Outcome o = ddpsim(kSweep + Args{"--skip", "4", "--skip", "6"});
  ASSERT_EQ(o.code, 0) << o.err;
  std::vector<std::string> rows = lines(o.out);
  ASSERT_EQ(rows.size(), whole.size());
  for (std::size_t k = 0; k < rows.size(); ++k) {
    bool skipped = k == 5 || k == 7;
    EXPECT_EQ(rows[k] != whole[k], skipped) << rows[k];
    EXPECT_EQ(has(rows[k], "not asked (--skip)"), skipped) << rows[k];
  }
  // The rows before the crash stay, and the file can be gone on with.
  io::write_file(f.file("x.csv"), whole[0] + "\n" + whole[1] + "\n" + whole[2] + "\n");
  ASSERT_EQ(ddpsim(kSweep + Args{"--skip", "4", "--resume", "--out", f.file("x.csv")}).code, 0);
  ASSERT_EQ(ddpsim(kSweep + Args{"--resume", "--out", f.file("x.csv")}).code, 0);
  EXPECT_EQ(ddpsim({"merge", f.file("x.csv")}).code, 0);
  EXPECT_EQ(ddpsim(kSweep + Args{"--skip", "32"}).code, 2);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(Sweep, ACrashSaysAtWhichPoint) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  auto crash = [](int signal) {
    cli::CrashReport report;
    std::thread([&] {
      cli::at_point(1047);
      std::raise(signal);
    }).join();
  };
  EXPECT_EXIT(crash(SIGSEGV), testing::KilledBySignal(SIGSEGV),
              "crashed at point 1047 of the sweep.*--skip 1047");
  EXPECT_EXIT(crash(SIGABRT), testing::KilledBySignal(SIGABRT), "crashed at point 1047");
}
#endif

TEST(Sweep, KnowsNoNanAndNoInfinity) {
  Folder f;
  const Args question{"sweep",    "--workload", "resnet50",         "--cluster",
                      "hgx-h100", "--out",      f.file("never.csv")};
  for (const Args& axes :
       {Args{"--axis", "cluster.hosts=1:nan"}, Args{"--axis", "cluster.hosts=nan:nan"},
        Args{"--axis", "cluster.hosts=1:8:+nan"}, Args{"--axis", "cluster.hosts=1:8:xnan"},
        Args{"--axis", "cluster.hosts=1:inf:x2"}, Args{"--axis", "cluster.hosts=1:8:+inf"},
        Args{"--axis", "bucket_cap_mb=-nan:5"}, Args{"--axis", "bucket_cap_mb=nan"},
        Args{"--axis", "bucket_cap_mb=inf,5"}, Args{"--axis", "bucket_cap_mb=1e400:2e400"},
        Args{"--axis", "bucket_cap_mb=1:1e400:x2"}, Args{"--zip", "ranks=nan:nan"},
        Args{"--axis", "ranks=nan"}, Args{"--axis", "plan=null"},
        Args{"--set", "plan=null", "--axis", "bucket_cap_mb=5"}}) {
    Outcome o = ddpsim(question + axes);
    EXPECT_EQ(o.code, 2) << axes.back() << o.out;
    EXPECT_EQ(lines(o.err).size(), 1u) << axes.back() << "\n" << o.err;
    EXPECT_FALSE(std::filesystem::exists(f.file("never.csv"))) << axes.back();
  }
}

TEST(Sweep, RefusesBadAxesBeforeAnyWork) {
  struct Bad {
    Args axes;
    const char* part;
  };
  Folder f;
  for (const Bad& b :
       {Bad{{}, "nothing to sweep"},
        Bad{{"--axis", "bucket_cap=1,2"}, "bucket_cap_mb"},
        Bad{{"--axis", "cluster.linc.bandwidth=1Gb/s"}, "link"},
        Bad{{"--axis", "bucket_cap_mb"}, "FIELD=VALUES"},
        Bad{{"--axis", "bucket_cap_mb="}, "empty value"},
        Bad{{"--axis", "bucket_cap_mb=5:1"}, "empty"},
        Bad{{"--axis", "bucket_cap_mb=1:64:x1"}, "factor"},
        Bad{{"--axis", "bucket_cap_mb=1:64:+0"}, "step"},
        Bad{{"--axis", "bucket_cap_mb=1:64:2"}, ":+STEP"},
        Bad{{"--axis", "bucket_cap_mb=0:64:x2"}, "starts at or below 0"},
        Bad{{"--axis", "cluster.link.bandwidth=10Gb/s:100Mb/s:x2"}, "mixes units"},
        Bad{{"--axis", "cluster.link.bandwidth=10Gb/s,100"}, "unit"},
        Bad{{"--axis", "bucket_cap_mb=1:1e9"}, "more than"},
        Bad{{"--axis", "bucket_cap_mb=1:40000", "--axis", "first_bucket_bytes=1:25000"}, "points"},
        Bad{{"--axis", "bucket_cap_mb=1,2,1"}, "twice"},
        Bad{{"--axis", "bucket_cap_mb=1", "--axis", "plan.bucket_cap_mb=2"}, "twice"},
        Bad{{"--axis", "workload=resnet5"}, "resnet50"},
        Bad{{"--axis", "cluster.link.bandwidth=10,20"},
            "\"10\" has no unit; expected a bandwidth such as \"100Gb/s\" or \"12.5GB/s\"\n"},
        Bad{{"--axis", "cluster.link.bandwidth=10Gbaud"}, "unknown unit"},
        Bad{{"--axis", "gradient_as_bucket_view=yes,no"}, "expected true or false"},
        Bad{{"--zip", "cluster.hosts=1,2,1", "--zip", "workload.batch=8,8,8"}, "1, 8 twice"},
        Bad{{"--zip", "cluster.hosts=1,2", "--zip", "workload.batch=1"}, "2 values"},
        Bad{{"--axis", "cluster.hosts=1", "--shard", "1/1"}, "0 to 0"},
        Bad{{"--axis", "cluster.hosts=1", "--shard", "1"}, "K/N"},
        Bad{{"--axis", "cluster.hosts=1", "--jobs", "-1"}, "threads"}}) {
    Outcome o = ddpsim(Args{"sweep", "--workload", "resnet50", "--cluster", "hgx-h100", "--out",
                            f.file("never.csv")} +
                       b.axes);
    EXPECT_EQ(o.code, 2) << o.out;
    EXPECT_TRUE(has(o.err, b.part)) << b.part << "\n" << o.err;
    EXPECT_EQ(lines(o.err).size(), 1u) << o.err;
    EXPECT_FALSE(std::filesystem::exists(f.file("never.csv")));
  }
}

TEST(Sweep, AWrongQuestionIsNotASweep) {
  struct Bad {
    Args args;
    const char* part;
  };
  for (const Bad& b : {Bad{{"--axis", "bucket_cap_mb=1,2"}, "no workload given"},
                       Bad{{"--workload", "resnet50", "--cluster", "hgx-h100", "--ranks", "99",
                            "--set", "cluster.hosts=1", "--axis", "bucket_cap_mb=1,2"},
                           "8 devices"},
                       Bad{{"--workload", "resnet50", "--cluster", "hgx-h100", "--axis",
                            "bucket_cap_mb=1,2", "--html", "/nowhere/x.html"},
                           "no folder"}}) {
    Outcome o = ddpsim(Args{"sweep"} + b.args);
    EXPECT_EQ(o.code, 2);
    EXPECT_EQ(o.out, "");
    EXPECT_TRUE(has(o.err, b.part)) << o.err;
  }
}

TEST(Sweep, ZippedFieldsChangeTogether) {
  Outcome o =
      ddpsim({"sweep", "--workload", "resnet50", "--cluster", "hgx-h100", "--zip",
              "cluster.hosts=1,2,4", "--zip", "workload.batch=64,32,32", "--format", "table"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(lines(o.out).size(), 5u);  // the last: whose the numbers are
  EXPECT_TRUE(has(o.out, "2              32")) << o.out;
}

// Who wrote an axis reads of the axis, not of --set, and needs no quotes.
TEST(Sweep, ReasonsNameTheAxis) {
  Outcome o = ddpsim({"sweep", "--workload", "resnet50", "--cluster", "hgx-h100", "--set",
                      "cluster.hosts=1", "--zip", "workload.precision=bf16,16,bf16", "--zip",
                      "ranks=4,4,99", "--zip", "bucket_cap_mb=5,5,-1", "--format", "json"});
  ASSERT_EQ(o.code, 0) << o.err;
  io::Json j = io::parse_json(o.out, "stdout");
  const io::Json& reasons = j["data"].back();
  EXPECT_EQ(reasons[1],
            "workload.precision=16 (workloads/resnet50.json#/precision): expected text, found 16");
  EXPECT_EQ(reasons[2].get<std::string>().rfind("ranks=99: 99 ranks", 0), 0u) << reasons[2];
}

TEST(Sweep, SaysWhatHoldsForAllPoints) {
  const Args question{"sweep",
                      "--workload",
                      "resnet50",
                      "--cluster",
                      "hgx-h100",
                      "--set",
                      "NCCL_ALGO=allreduce:tree",
                      "--set",
                      "NCCL_PROTO=simple",
                      "--set",
                      "jitter={\"cv\":0.03,\"seed\":1,\"samples\":3}"};
  Outcome o = ddpsim(
      question + Args{"--axis", "NCCL_ALGO=allreduce:ring,allreduce:tree", "--format", "table"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.out.rfind("with NCCL_PROTO=simple\n", 0), 0u) << o.out;
  EXPECT_TRUE(has(o.out, "jitter is in samples/s")) << o.out;
  o = ddpsim(question + Args{"--axis", "bucket_cap_mb=5", "--format", "json"});
  io::Json j = io::parse_json(o.out, "stdout");
  EXPECT_EQ(j["nccl"], "NCCL_ALGO=allreduce:tree, NCCL_PROTO=simple");
  EXPECT_EQ(j["notes"].size(), 1u);
}

TEST(Sweep, AFullDiskIsASentence) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP();
  Outcome o = ddpsim(kSweep + Args{"--out", "/dev/full"});
  EXPECT_EQ(o.code, 2);
  EXPECT_TRUE(has(o.err, "No space left")) << o.err;
}

TEST(Merge, SaysWhatToGive) {
  Outcome o = ddpsim({"merge"});
  EXPECT_EQ(o.code, 2);
  EXPECT_TRUE(has(o.err, "name the CSV files that ddpsim sweep --shard")) << o.err;
}

TEST(Merge, SaysWhatIsMissing) {
  Folder f;
  for (const char* k : {"0", "1", "2"})
    ASSERT_EQ(ddpsim(kSweep + Args{"--shard", std::string(k) + "/3", "--out", f.file(k)}).code, 0);
  ASSERT_EQ(
      ddpsim(kSweep + Args{"--set", "workload.batch=8", "--shard", "2/3", "--out", f.file("other")})
          .code,
      0);
  std::ofstream(f.file("text")) << "hello\nworld\n";
  struct Bad {
    Args files;
    const char* part;
  };
  for (const Bad& b :
       {Bad{{"0", "2"}, "in no file"}, Bad{{"0", "1"}, "unfinished"},
        Bad{{"0", "1", "1", "2"}, "another file has"}, Bad{{"0", "1", "other"}, "another sweep"},
        Bad{{"text"}, "not what ddpsim sweep writes"}, Bad{{"nothing"}, "no such file"}}) {
    Args a{"merge"};
    for (const std::string& name : b.files) a.push_back(f.file(name));
    Outcome o = ddpsim(a);
    EXPECT_EQ(o.code, 2);
    EXPECT_TRUE(has(o.err, b.part)) << o.err;
    EXPECT_EQ(o.out, "");
  }
}

}  // namespace
}  // namespace ddpsim::test
