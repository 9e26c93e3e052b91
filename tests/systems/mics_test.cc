// A system that ddpsim's other files do not know: a folder with a record is all that it takes to
// predict, explain, tune, draw and rank it.
#include <gtest/gtest.h>

#include "sim/io/files.h"
#include "tests/support/files.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

class MadeUpSystem : public InFolder {
 protected:
  static Args args(const std::string& command, const Args& more) {
    Args all{command,    "--workload", "gpt2-small",     "--cluster",
             "hgx-h100", "--set",      "cluster.hosts=2"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  static std::string ask(const std::string& command, const Args& more) {
    const Outcome o = ddpsim(args(command, more));
    EXPECT_EQ(o.code, 0) << command << ": " << o.err;
    return o.out;
  }
  static std::int64_t step(const std::string& partition) {
    const io::Json answer =
        io::parse_json(ask("predict", {"--plan", "mics", "--set", "cluster.link.bandwidth=50Gb/s",
                                       "--set", "partition_size=" + partition, "--format", "json"}),
                       "stdout");
    return answer["summary"]["step_ps"].get<std::int64_t>();
  }
};

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(MadeUpSystem, IsPredictedExplainedTunedDrawnAndRanked) {
  EXPECT_TRUE(holds(ask("predict", {"--plan", "MiCS-Sharding"}), "MiCS over nccl, "));
  EXPECT_TRUE(holds(ask("explain", {"--plan", "mics"}), "mics"));
  EXPECT_TRUE(holds(ask("tune", {"--plan", "mics"}), "partition_size"));
  EXPECT_TRUE(holds(ask("rank-plans", {}), "mics"));
  ask("trace", {"--plan", "mics", "--out", at("step.json")});
  EXPECT_TRUE(holds(raw(at("step.json")), "mics_gather/"));
  EXPECT_TRUE(holds(ddpsim({"list", "plans"}).out, "mics"));
  EXPECT_TRUE(holds(ddpsim({"show", "plan", "mics"}).out, "partition_size"));
}

// The paper's point: one copy a host keeps all gathers off the network between hosts.
TEST_F(MadeUpSystem, IsFasterWithOneCopyAHost) {
  EXPECT_LT(step("0"), step("16"));
}

TEST_F(MadeUpSystem, RefusesWhatItsRecordRefuses) {
  const Outcome parts = ddpsim(args("predict", {"--plan", "mics", "--set", "partition_size=5"}));
  EXPECT_EQ(parts.code, 2);
  EXPECT_TRUE(holds(parts.err, "do not part 16")) << parts.err;
  const Outcome other = ddpsim(args("predict", {"--plan", "fsdp2", "--set", "partition_size=4"}));
  EXPECT_TRUE(holds(other.err, "is a knob of mics")) << other.err;
}

}  // namespace
}  // namespace ddpsim::test
