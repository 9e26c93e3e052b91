// Numbers as nccl-tests prints them, its bandwidth factors, and NCCL's tuner configuration.
#include <gtest/gtest.h>

#include "sim/io/nccl_tests.h"
#include "sim/report/nccl_tuner.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

using report::TunerRow;

TEST(NcclTests, APrintedNumberKnowsWhatItRounds) {
  struct Case {
    const char* text;
    double value, half;
  };
  for (const Case& c : {Case{"12.30", 12.3, 0.005}, Case{"183.5", 183.5, 0.05},
                        Case{"35175", 35175, 0.5}, Case{"1.2e+07", 1.2e7, 5e5},
                        Case{"0e+00", 0, 0.5}, Case{"-1", -1, 0.5}, Case{".5", 0.5, 0.05}}) {
    auto p = io::parse_printed(c.text);
    ASSERT_TRUE(p) << c.text;
    EXPECT_DOUBLE_EQ(p->value, c.value) << c.text;
    EXPECT_NEAR(p->half, c.half, 1e-9 * c.half) << c.text;
  }
  for (const char* bad :
       {"", "N/A", "nan", "inf", "1e999", "0e999999999", "12x", "+1", "0x10", "1,5", "-"})
    EXPECT_FALSE(io::parse_printed(bad)) << bad;
}

TEST(NcclTests, NamesOfOperations) {
  EXPECT_EQ(io::nccl_tests_op("./build/all_reduce_perf"), "all_reduce");
  EXPECT_EQ(io::nccl_tests_op("all_reduce_perf_mpi"), "all_reduce");
  EXPECT_EQ(io::nccl_tests_op("AllReduce"), "all_reduce");
  EXPECT_EQ(io::nccl_tests_op("alltoall_perf"), "all_to_all");
  EXPECT_EQ(io::nccl_tests_op("sendrecv_perf"), "send_receive");
  EXPECT_EQ(io::nccl_tests_op("reduce_scatter"), "reduce_scatter");
  EXPECT_EQ(io::nccl_tests_op("perf"), "");
  EXPECT_EQ(io::nccl_tests_op(""), "");
  for (const std::string& op : io::nccl_tests_ops()) EXPECT_EQ(io::nccl_tests_op(op), op);
}

TEST(NcclTests, BusBandwidthOfAnOperation) {
  EXPECT_DOUBLE_EQ(io::nccl_tests_bus_factor("all_reduce", 8), 1.75);
  EXPECT_DOUBLE_EQ(io::nccl_tests_bus_factor("all_gather", 4), 0.75);
  EXPECT_DOUBLE_EQ(io::nccl_tests_bus_factor("broadcast", 4), 1);
  EXPECT_EQ(io::nccl_tests_element_bytes("bfloat16"), 2);
  EXPECT_EQ(io::nccl_tests_element_bytes("sum"), 0);
}

TEST(NcclTests, RepeatedSizesAreReadingsOfOneSample) {
  std::string twice =
      "1024 256 float sum -1 9.50 0.11 0.11 0 9.40 0.11 0.11 0\n1024 256 float sum -1 9.70 0.11 "
      "0.11 0 9.60 0.11 0.11 0\n";
  io::NcclTestsSetting s;
  s.ranks = 2;
  s.file = "f";
  ddpsim::Run run = io::run_of(io::read_nccl_tests(twice, "f"), s).run;
  ASSERT_EQ(run.samples.size(), 2u);
  EXPECT_EQ(run.samples[0].durations, (std::vector<Duration>{{9'500'000}, {9'700'000}}));
}

TEST(NcclTests, ARowThatContradictsTheOthersIsDropped) {
  std::string rows =
      "1048576 262144 float sum -1 40.00 26.21 26.21 0 40.00 26.21 26.21 0\n"
      "2097152 524288 float sum -1 60.00 34.95 34.95 0 60.00 34.95 34.95 0\n"
      "4194304 1048576 float sum -1 100.0 41.94 62.91 0 100.0 41.94 62.91 0\n";
  io::NcclTestsSetting s;
  s.ranks = 2;
  s.file = "f";
  io::NcclTestsRun made = io::run_of(io::read_nccl_tests(rows, "f"), s);
  EXPECT_EQ(made.run.samples.size(), 4u);
  ASSERT_GE(made.notes.size(), 1u);
  EXPECT_EQ(made.notes[0], "line 3 is dropped: busbw 62.91 is not that of algbw 41.94 on 2 ranks");
}

const std::vector<TunerRow> kRows{
    {"allreduce", 0, 65536, "tree", "ll", 2, 1, 8},
    {"allreduce", 65537, report::kTunerMostBytes, "nvls", "simple", 16, 1, 8},
    {"allgather", 0, report::kTunerMostBytes, "ring", "simple", 12, -1, -1}};

TEST(NcclTuner, ComesBack) {
  EXPECT_FALSE(report::validate(kRows));
  EXPECT_EQ(tuner_rows(report::tuner_csv(kRows)), kRows);
}

TEST(NcclTuner, AnyLineForWhatNoOtherMatchesIsLast) {
  std::string text = report::tuner_csv(kRows, "here\nthere");
  EXPECT_TRUE(text.starts_with("# NCCL tuner configuration, made by ddpsim "));
  EXPECT_NE(text.find(" of here there\n"), std::string::npos);
  EXPECT_TRUE(
      text.ends_with("\n# What no line above "
                     "matches.\nallreduce,0,9223372036854775807,nvls,simple,16,1,8\nallgather,0,"
                     "9223372036854775807,ring,simple,12,-1,-1\n"))
      << text;
}

TEST(NcclTuner, RangesAreContiguousAndChannelsAreSaid) {
  auto broken = [](auto change) {
    std::vector<TunerRow> rows = kRows;
    change(rows);
    Problem p = report::validate(rows);
    return p.path + " " + p.message;
  };
  EXPECT_EQ(broken([](auto& r) { r[1].min_bytes = 65538; }),
            "/1 leaves a gap: 65537 to 65537 bytes are covered by no row");
  EXPECT_EQ(broken([](auto& r) { r[1].min_bytes = 65536; }),
            "/1 overlaps the range before it, which covers 65536 bytes");
  EXPECT_EQ(broken([](auto& r) { r.push_back(r[2]); }),
            "/3 overlaps the range before it, which covers 0 bytes");
  EXPECT_EQ(broken([](auto& r) { r[0].min_bytes = 8; }),
            "/0 leaves a gap: 0 to 7 bytes are covered by no row");
  EXPECT_EQ(broken([](auto& r) { r.erase(r.begin() + 1); }),
            " allreduce on 1 nodes and 8 ranks: sizes from 65537 bytes are covered by no row");
  EXPECT_NE(broken([](auto& r) { r[0].channels = -1; }).find("makes the plugin force one"),
            std::string::npos);
  EXPECT_NE(broken([](auto& r) { r[0].algorithm = "Tree"; }).find("is no algorithm"),
            std::string::npos);
  EXPECT_NE(broken([](auto& r) { r[0].nodes = 0; }).find("positive"), std::string::npos);
  EXPECT_NE(broken([](auto& r) { r[0].max_bytes = -1; }).find("is no range"), std::string::npos);
}

TEST(NcclTuner, TheBordersLieBetweenTheSizes) {
  std::vector<report::TunerPoint> points{{"allreduce", 1024, "ring", "ll", 1, 1, 8, 5},
                                         {"allreduce", 1024, "tree", "ll", 1, 1, 8, 5},
                                         {"allreduce", 4096, "tree", "ll", 1, 1, 8, 5},
                                         {"allreduce", 4097, "ring", "ll", 1, 1, 8, 5}};
  auto rows = report::best_rows(points);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].algorithm, "ring");  // the first of equals
  EXPECT_EQ(rows[0].max_bytes, 2048);    // sqrt(1024 * 4096)
  EXPECT_EQ(rows[1].max_bytes, 4096);
  EXPECT_FALSE(report::validate(rows));
  EXPECT_TRUE(report::best_rows({}).empty());
}

}  // namespace
}  // namespace ddpsim::test
