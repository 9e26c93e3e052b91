// ddpsim fit --backend cuda on the Runs of the GPUs that were measured: what is refused, and that
// the shipped profiles are what it makes of them.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/io/files.h"
#include "sim/io/json_reader.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

Outcome fit(const std::string& machine, const std::string& base,
            const std::vector<std::string>& more) {
  std::vector<std::string> args{
      "fit",    "--backend", "cuda", "--runs", source_path("calib/gpu-runs/" + machine),
      "--base", base};
  args.insert(args.end(), more.begin(), more.end());
  return ddpsim(args);
}

TEST(FitOfGpus, NoisyRunsAreRefused) {
  Outcome o = fit("h100-sxm", "h100-sxm.datasheet", {});
  EXPECT_EQ(o.code, 2);
  EXPECT_TRUE(has(o.err, "calibrate/interference is noisy")) << o.err;
  EXPECT_TRUE(has(o.err, "--without-noisy")) << o.err;
}

TEST(FitOfGpus, RunsOfAnotherGpuAreRefused) {
  Outcome o = fit("h100-sxm", "h200-sxm.datasheet", {"--without-noisy"});
  EXPECT_EQ(o.code, 2);
  EXPECT_TRUE(has(o.err, "NVIDIA H100 80GB HBM3")) << o.err;
  EXPECT_TRUE(has(o.err, "name the base of that GPU")) << o.err;
  Outcome against = fit("h100-sxm", "h100-sxm.datasheet",
                        {"--without-noisy", "--against", source_path("calib/gpu-runs/h200-sxm"),
                         "--against-base", "h100-sxm.datasheet"});
  EXPECT_EQ(against.code, 2);
  EXPECT_TRUE(has(against.err, "--against")) << against.err;
}

TEST(FitOfGpus, TheShippedProfilesAreWhatItMakes) {
  for (std::string machine : {"h100-sxm", "h200-sxm"}) {
    Outcome o = fit(machine, machine + ".datasheet",
                    {"--without-noisy", "--name", machine + "-measured", "--format", "json"});
    EXPECT_EQ(o.code, 0) << o.err;
    std::string shipped =
        io::read_file(source_path("calib/profiles/" + machine + "-measured.json"));
    EXPECT_TRUE(o.out == shipped) << machine << ": fit again (docs/measuring.md, GPUs)";
  }
}

// What as many blocks take as its collectives have is not scaled by channels once more.
TEST(FitOfGpus, OfOneGpuHoldsWhatItsChannelsTook) {
  Outcome o = ddpsim({"fit", "--backend", "nccl", "--base", "h100-sxm.datasheet", "--name", "one",
                      "--runs", source_path("calib/gpu-runs/h100-sxm-2"), "--format", "json"});
  ASSERT_EQ(o.code, 0) << o.err;
  const io::Json held = io::parse_json(o.out, "fit")["interference"];
  EXPECT_EQ(held["basis"], "measured");
  EXPECT_FALSE(held.contains("by_blocks")) << held;
  const io::Json shipped = read_json("calib/profiles/h100-sxm.one-gpu.json")["interference"];
  EXPECT_EQ(held["sm_hold"], shipped["sm_hold"]);
}

// What the fit prints is what its words promise: shapes left out, and another GPU.
TEST(FitOfGpus, SaysHowFarItCarries) {
  Outcome o = fit("h100-sxm", "h100-sxm.datasheet",
                  {"--without-noisy", "--against", source_path("calib/gpu-runs/h200-sxm"),
                   "--against-base", "h200-sxm.datasheet"});
  EXPECT_EQ(o.code, 0) << o.err;
  for (const char* row : {"gemm bf16      held out", "conv tf32      held out",
                          "memory         held out", "of which nothing was fitted"})
    EXPECT_TRUE(has(o.out, row)) << row << "\n" << o.out;
}

}  // namespace
}  // namespace ddpsim::test
