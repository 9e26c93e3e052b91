// ddpsim export nccl-tuner for its three consumers, and under overlap. Each file is read here as
// its consumer reads it.
#include "sim/report/nccl_tuner.h"

#include <algorithm>
#include <optional>
#include <sstream>

#include <gtest/gtest.h>

#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

std::string exported(Args args) {
  args.insert(args.begin(), {"export", "nccl-tuner"});
  Outcome o = ddpsim(args);
  EXPECT_EQ(o.code, 0) << o.err;
  return o.out;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);)
    if (!line.empty() && line[0] != '#') out.push_back(line);
  return out;
}

// Commas inside brackets are part of an interval.
std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> out{{}};
  int depth = 0;
  for (char c : line) {
    depth += c == '[' || c == '(';
    depth -= c == ']' || c == ')';
    if (c == ',' && depth == 0)
      out.emplace_back();
    else
      out.back() += c;
  }
  return out;
}

// "*", "N", "[a,b]", "[a,)".
bool matches(const std::string& range, std::int64_t n) {
  if (range == "*") return true;
  if (range[0] != '[') return n == std::stoll(range);
  const auto comma = range.find(',');
  if (n < std::stoll(range.substr(1, comma - 1))) return false;
  const std::string end = range.substr(comma + 1);
  return end == ")" || n <= std::stoll(end);
}

// As NCCLX chooses: by bytes per rank, nodes and ranks of a node; the first line.
std::string by_ncclx(const std::string& file, const std::string& op, std::int64_t bytes, int nodes,
                     int local) {
  for (const std::string& line : lines_of(file)) {
    const auto f = fields_of(line);
    EXPECT_EQ(f.size(), 7u) << line;
    if (f[0] == op && matches(f[1], bytes / (nodes * local)) && matches(f[5], nodes) &&
        matches(f[6], local))
      return f[2] + "/" + f[3] + "/" + f[4];
  }
  return "";
}

// As RCCL and NVIDIA's example do: inclusive ranges, -1 is any.
std::string by_bytes(const std::string& file, const std::string& op, std::int64_t bytes, int nodes,
                     int ranks) {
  for (const std::string& line : lines_of(file)) {
    const auto f = fields_of(line);
    EXPECT_EQ(f.size(), 8u) << line;
    const int n = std::stoi(f[6]), r = std::stoi(f[7]);
    if (f[0] == op && bytes >= std::stoll(f[1]) && bytes <= std::stoll(f[2]) &&
        (n == -1 || n == nodes) && (r == -1 || r == ranks))
      return f[3] + "/" + f[4] + "/" + f[5];
  }
  return "";
}

TEST(NcclTuner, NcclxChoosesWhatTheExampleChooses) {
  const Args place{"--cluster", "dgx-h100", "--set", "cluster.hosts=4"};
  Args for_ncclx = place;
  for_ncclx.insert(for_ncclx.end(), {"--for", "ncclx"});
  const std::string example = exported(place);
  const std::string ncclx = exported(for_ncclx);
  EXPECT_TRUE(has(ncclx, "NCCLX_TUNER_CONFIG_FILE"));
  for (const char* op : {"allreduce", "allgather", "reducescatter", "broadcast", "reduce"})
    for (std::int64_t bytes = 1024; bytes <= (std::int64_t{8} << 30); bytes *= 2)
      EXPECT_EQ(by_ncclx(ncclx, op, bytes, 4, 8), by_bytes(example, op, bytes, 4, 32))
          << op << " " << bytes;
  // Another communicator has no line: NCCL's own choice.
  EXPECT_EQ(by_ncclx(ncclx, "allreduce", 1 << 20, 2, 8), "");
}

// The example plugin gives one channel to a communicator that has no line.
TEST(NcclTuner, TheExampleHasLinesForEveryCommunicatorOfTheCluster) {
  const std::string file = exported({"--cluster", "dgx-a100", "--set", "cluster.hosts=2"});
  for (const char* op : {"allreduce", "allgather", "reducescatter", "broadcast", "reduce"})
    for (int ranks = 2; ranks <= 16; ++ranks)
      for (int nodes = (ranks + 7) / 8; nodes <= 2; ++nodes)
        EXPECT_NE(by_bytes(file, op, 1 << 20, nodes, ranks), "") << op << " " << ranks << nodes;
  expect_refusal({"export", "nccl-tuner", "--cluster", "dgx-a100", "--ranks", "1024"},
                 "one channel to each communicator without a line");
  // NCCLX leaves the others to NCCL.
  EXPECT_FALSE(
      lines_of(exported({"--cluster", "dgx-a100", "--ranks", "1024", "--for", "ncclx"})).empty());
}

TEST(NcclTuner, SaysWhoseTunerItDisplaces) {
  EXPECT_TRUE(has(exported({"--cluster", "aws-p5"}), "aws-ofi-nccl"));
  EXPECT_FALSE(has(exported({"--cluster", "dgx-a100"}), "aws-ofi-nccl"));
}

TEST(NcclTuner, RcclReadsItsOwn) {
  const Args place{"--cluster", "mi300x-8", "--set", "cluster.hosts=2"};
  Args for_rccl = place;
  for_rccl.insert(for_rccl.end(), {"--for", "rccl"});
  const std::string example = exported(place);
  const std::string rccl = exported(for_rccl);
  EXPECT_FALSE(has(rccl, "libnccl-tuner-example"));
  for (const char* op : {"allreduce", "allgather", "reducescatter"})
    for (std::int64_t bytes = 1024; bytes <= (std::int64_t{8} << 30); bytes *= 2) {
      const std::string choice = by_bytes(rccl, op, bytes, 2, 16);
      EXPECT_NE(choice, "");
      EXPECT_EQ(choice, by_bytes(example, op, bytes, 2, 16)) << op << " " << bytes;
    }
  // Longer lines are read as two.
  std::istringstream in(rccl);
  for (std::string line; std::getline(in, line);) EXPECT_LT(line.size(), 255u);
}

TEST(NcclTuner, RefusesWhatAConsumerCannotSay) {
  const Args tuner{"export", "nccl-tuner"};
  struct Bad {
    Args args;
    const char* part;
  };
  for (const Bad& b :
       {Bad{{"--cluster", "hgx-h100", "--for", "rcclx"}, "example (NVIDIA's plugin), ncclx"},
        Bad{{"--cluster", "hgx-h100", "--for", "rccl"}, "RCCL runs on AMD's GPUs"},
        Bad{{"--cluster", "mi300x-8", "--for", "ncclx"}, "NCCLX runs on NVIDIA's GPUs"},
        Bad{{"--cluster", "dgx-h100", "--set", "cluster.hosts=2", "--ranks", "13", "--for",
             "ncclx"},
            "not equally many a node"},
        Bad{{"--scenario", "lab-mnist-mlp"}, "its backend is not NCCL"},
        Bad{{"--workload", "resnet50", "--cluster", "one-gpu", "--ranks", "1"},
            "communicates with nobody"},
        Bad{{"--workload", "resnet50", "--cluster", "hgx-h100", "--nccl", "2.26"},
            "--set nccl=2.26"},
        Bad{{}, "--from FILE.csv, --cluster or --scenario"}}) {
    Args args = tuner;
    args.insert(args.end(), b.args.begin(), b.args.end());
    const Outcome o = ddpsim(args);
    EXPECT_EQ(o.code, 2) << b.part << o.out;
    EXPECT_TRUE(has(o.err, b.part)) << b.part << "\n" << o.err;
  }
  const report::TunerRow any{"allreduce", 0, report::kTunerMostBytes, "ring", "ll", 2, -1, -1};
  report::TunerRow narrow = any;
  narrow.nodes = 2;
  narrow.ranks = 16;
  narrow.min_bytes = 8;
  narrow.max_bytes = 9;
  report::TunerRow nvls = narrow;
  nvls.algorithm = "nvls_tree";
  using report::TunerConsumer;
  for (const auto& [row, consumer, words] :
       {std::tuple{any, TunerConsumer::Ncclx, "not -1"},
        std::tuple{narrow, TunerConsumer::Ncclx, "less than a byte a rank"},
        std::tuple{nvls, TunerConsumer::Rccl, "NVLink SHARP"}}) {
    const Problem p = report::cannot_say(std::vector{row}, consumer);
    EXPECT_EQ(p.path, "/0");
    EXPECT_TRUE(has(p.message, words)) << p.message;
  }
  EXPECT_FALSE(report::cannot_say(std::vector{any}, TunerConsumer::Rccl));
  EXPECT_FALSE(report::cannot_say(std::vector{any}, TunerConsumer::Example));
}

// The file names the step's own sizes, says what the step gains, and covers every other size.
TEST(NcclTuner, UnderOverlapSaysWhatTheStepGains) {
  Outcome o = ddpsim({"export", "nccl-tuner", "--workload", "resnet50", "--cluster", "dgx-h100",
                      "--set", "cluster.hosts=2"});
  ASSERT_EQ(o.code, 0) << o.err;
  for (const char* part : {"chosen under overlap", "a step of ", "with what is fastest alone",
                           "with NCCL's own choices"})
    EXPECT_TRUE(has(o.out, part)) << o.out;
  EXPECT_TRUE(has(o.err, "fastest alone")) << o.err;
  std::vector<report::TunerRow> rows = tuner_rows(o.out);
  EXPECT_EQ(report::validate(rows).message, "");
  for (const char* op : {"allreduce", "allgather", "broadcast"})
    for (std::int64_t bytes : {std::int64_t{1}, std::int64_t{25} << 20, std::int64_t{1} << 40})
      EXPECT_NE(by_bytes(o.out, op, bytes, 2, 16), "") << op << " " << bytes;
}

}  // namespace
}  // namespace ddpsim::test
