// The libraries that are opened at run time, where they are installed: no GPU is needed to ask for
// their version. In a child, which then gives their memory back.
#include "calib/cuda/libraries.h"

#include <functional>

#include <gtest/gtest.h>

#include "calib/cuda/ranks.h"

namespace ddpsim::test {
namespace {

using calib::cuda::in_child;

// A missing library is a reason to skip; a symbol that it lacks is not.
void expect_opened(const std::string& name, const std::function<std::string()>& version) {
  std::string said;
  try {
    said = in_child(version);
  } catch (const std::runtime_error& e) {
    std::string why = e.what();
    if (why.find("was not found") != std::string::npos) GTEST_SKIP() << why;
    FAIL() << name << ": " << why;
  }
  EXPECT_FALSE(said.empty());
  testing::Test::RecordProperty("version", said);
}

TEST(Libraries, CublasLtHasWhatIsCalled) {
  expect_opened("cuBLASLt",
                [] { return std::to_string(calib::cuda::cublaslt().cublasLtGetVersion()); });
}
TEST(Libraries, CudnnHasWhatIsCalled) {
  expect_opened("cuDNN", [] { return std::to_string(calib::cuda::cudnn().cudnnGetVersion()); });
}
TEST(Libraries, NcclHasWhatIsCalled) {
  expect_opened("NCCL", [] { return calib::cuda::nccl().version(); });
}

}  // namespace
}  // namespace ddpsim::test
