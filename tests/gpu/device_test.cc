// On a real GPU; where there is none each test is skipped, with the reason. Every body runs in a
// child: this process must not have used CUDA when it forks.
#include <gtest/gtest.h>

#include "calib/cuda/cuda.h"
#include "calib/fit/kernels.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

namespace cuda = calib::cuda;

const cuda::Probe& probe() {
  static const cuda::Probe p = cuda::probe();
  return p;
}

std::string missing(const std::string& what) {
  const cuda::Probe::Item* item = probe().item(what);
  return !item ? what + " was not looked for" : item->found ? "" : what + ": " + item->detail;
}

#define NEEDS(what) \
  if (std::string why = missing(what); !why.empty()) GTEST_SKIP() << why

class Stage : public testing::TestWithParam<const char*> {};

TEST_P(Stage, MeasuresWithinItsTime) {
  NEEDS("gpu");
  std::string stage = GetParam();
  if (stage == "gemm" || stage == "interference") NEEDS("cuBLASLt");
  if (stage == "conv") NEEDS("cuDNN");
  if (stage == "nccl") NEEDS("NCCL");
  ddpsim::Run run = cuda::calibrate({stage, 15, 0, false, {}, {}}).front();
  EXPECT_FALSE(run.samples.empty());
  EXPECT_FALSE(run.origin.gpu.empty());
  for (const Sample& s : run.samples)
    for (Duration d : s.durations) EXPECT_GT(d.ps, 0) << s.op;
}
INSTANTIATE_TEST_SUITE_P(Cuda, Stage,
                         testing::Values("memory", "gemm", "host", "conv", "copies", "interference",
                                         "nccl"));

TEST(Gpu, MemoryReachesNearlyWhatItsDatasheetSays) {
  NEEDS("gpu");
  ddpsim::Run run = cuda::calibrate({"memory", 20, 0, false, {}, {}}).front();
  calib::KernelFit f = calib::fit_kernels(profile("h200-sxm.datasheet"), "here", {&run});
  EXPECT_GT(f.profile.memory.bandwidth_bytes_per_s, 1e11);
  EXPECT_LT(f.profile.memory.bandwidth_bytes_per_s, 2e13)
      << "faster than any memory: a cache was measured";
}

TEST(Gpu, PlaysAProgramOnOneRank) {
  NEEDS("gpu");
  NEEDS("cuBLASLt");
  NEEDS("NCCL");
  Workload w = workload("resnet18");
  Cluster c = cluster("hgx-h100");
  topology::Fabric fabric(c);
  Profile p = profile("h100-sxm.datasheet");
  Scenario s;
  s.ranks = 1;
  ddpsim::Run run = cuda::execute({w, fabric, p, s}, {});
  ASSERT_GE(run.steps.size(), 10u);
  EXPECT_FALSE(run.spans.empty());
}

TEST(Gpu, PlaysTwoRanksOnOneGpu) {
  NEEDS("gpu");
  NEEDS("NCCL");
  NEEDS("MPS");
  for (const ddpsim::Run& run : cuda::calibrate({"nccl", 60, 2, true, {}, {}})) {
    EXPECT_FALSE(run.samples.empty()) << run.key;
    ASSERT_TRUE(run.collectives) << run.key;
    for (const Sample& s : run.samples) EXPECT_EQ(s.op, run.collectives->op) << run.key;
  }
}

TEST(Gpu, WithoutOneTheReasonIsSaid) {
  if (missing("gpu").empty()) GTEST_SKIP() << "there is a GPU";
  EXPECT_THROW(cuda::calibrate({"memory", 5, 0, false, {}, {}}), std::runtime_error);
  try {
    cuda::calibrate({"memory", 5, 0, false, {}, {}});
  } catch (const std::runtime_error& e) {
    EXPECT_FALSE(std::string(e.what()).empty());
  }
}

}  // namespace
}  // namespace ddpsim::test
