// Links of any speed on the command line: a prediction wherever NCCL would have a graph, and a word
// where its choice makes a faster link slower.
#include <gtest/gtest.h>

#include "sim/io/json_reader.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

TEST(SlowLinks, HaveAPrediction) {
  struct Case {
    const char* cluster;
    const char* link;
  };
  for (const Case& c : {Case{"pcie-box", "inside.pcie.bandwidth=4GB/s"},
                        {"gpu-ethernet-10g", "link.bandwidth=0.8Gb/s"},
                        {"fat-tree-h100", "link.bandwidth=0.8Gb/s"},
                        {"dgx-h100", "inside.link.bandwidth=3GB/s"},
                        {"dgx1-v100", "inside.link.bandwidth=10MB/s"},
                        {"gb200-nvl72", "inside.c2c.bandwidth=10MB/s"}}) {
    std::string set = std::string("cluster.") + c.link;
    Outcome o = ddpsim({"predict", "--workload", "resnet50", "--cluster", c.cluster, "--set", set});
    EXPECT_EQ(o.code, 0) << c.cluster << " " << set << ": " << o.err;
    EXPECT_TRUE(has(o.out, "step ")) << o.out;
    o = ddpsim({"explain", "--op", "all_reduce", "--cluster", c.cluster, "--set", set});
    EXPECT_EQ(o.code, 0) << c.cluster << " " << set << ": " << o.err;
  }
}

// A step of weeks: a few of them do not fit into the clock.
TEST(SlowLinks, WithWhichAStepTakesWeeksAreRefused) {
  Outcome o = ddpsim({"predict", "--workload", "vgg16", "--cluster", "gpu-ethernet-10g", "--set",
                      "cluster.link.bandwidth=1kb/s"});
  EXPECT_EQ(o.code, 2) << o.out << o.err;
  EXPECT_TRUE(has(o.err, "the simulated steps may last")) << o.err;
}

TEST(HugeOperations, HaveAPrice) {
  for (const char* op : {"all_reduce", "all_gather", "broadcast", "all_to_all", "send_recv"}) {
    Outcome o = ddpsim({"explain", "--op", op, "--bytes", "9000000TB", "--cluster", "hgx-h100"});
    EXPECT_EQ(o.code, 0) << op << ": " << o.err;
  }
}

// At 12 Gb/s NCCL chooses NVLSTree, and a tree takes 24 ms of 60 less.
TEST(NcclsChoice, IsAmongTheLevers) {
  Args question{"--workload",    "resnet50", "--cluster",
                "fat-tree-h100", "--set",    "cluster.link.bandwidth=12Gb/s"};
  // tune's levers are about the buckets that it recommends.
  struct Case {
    const char* command;
    const char* forced;
    const char* choice;
  };
  for (auto [command, forced, choice] :
       {Case{"predict", "NCCL_ALGO=allreduce:tree", "nvlstree/simple"},
        Case{"tune", "NCCL_ALGO=allreduce:tree", "nvlstree/simple"}}) {
    Args args = question;
    args.insert(args.begin(), command);
    Outcome o = ddpsim(args);
    ASSERT_EQ(o.code, 0) << o.err;
    std::string lever = std::string(forced) + " (NCCL's own estimate prefers " + choice;
    EXPECT_TRUE(has(o.out, lever)) << o.out;
    EXPECT_TRUE(has(o.out, "[--set " + std::string(forced) + "]")) << o.out;
  }
  // What is forced is not forced again; leaving it out is a lever.
  question.insert(question.begin(), "tune");
  question.insert(question.end(), {"--set", "NCCL_ALGO=allreduce:tree"});
  Outcome o = ddpsim(question);
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_FALSE(has(o.out, "NCCL_ALGO=allreduce:ring")) << o.out;
  EXPECT_TRUE(has(o.out, "NCCL's own choice, without")) << o.out;
  EXPECT_TRUE(has(o.out, "NCCL_PROTO=allreduce:simple")) << o.out;
}

TEST(NcclsChoice, IsSaidOfASweepWhereAFasterLinkIsSlower) {
  Args sweep{"sweep",
             "--workload",
             "resnet50",
             "--cluster",
             "fat-tree-h100",
             "--axis",
             "cluster.link.bandwidth=10Gb/s,9.54Gb/s,100Gb/s",
             "--format"};
  auto with = [&](const char* format) {
    Args args = sweep;
    args.push_back(format);
    return ddpsim(args);
  };
  Outcome table = with("table");
  ASSERT_EQ(table.code, 0) << table.err;
  EXPECT_TRUE(has(table.out, "1 point is slower than the neighbour with a slower link"))
      << table.out;
  EXPECT_TRUE(has(table.out, "cluster.link.bandwidth=10Gb/s")) << table.out;
  EXPECT_TRUE(has(table.out, "nvlstree/simple instead of ")) << table.out;
  io::Json j = io::parse_json(with("json").out, "stdout");
  ASSERT_EQ(j["notes"].size(), 2u);
  EXPECT_TRUE(has(j["notes"][1], "point 0: ")) << j["notes"][1];
}

}  // namespace
}  // namespace ddpsim::test
