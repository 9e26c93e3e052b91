// What load() hands to a command beside the question.
#include <sstream>

#include <gtest/gtest.h>

#include "tests/support/support.h"
#include "tools/cmd/question.h"

namespace ddpsim::test {
namespace {

// Whether NCCL's variables leave something to choose is answered by its search; the prediction
// takes the same communicator, and its fabric lives as long.
TEST(Load, KeepsTheSearchThatTheCheckMade) {
  std::ostringstream out;
  std::ostringstream err;
  cli::QuestionFlags flags;
  flags.workload = "resnet50";
  flags.cluster = "dgx1-v100";
  flags.sets = {"NCCL_ALGO=ring"};
  cli::Loaded l = cli::load({out, err, false, DDPSIM_SOURCE_DIR, ""}, flags);
  ASSERT_NE(l.options.known, nullptr);
  EXPECT_EQ(l.options.known->get(l.question(), Backend::Nccl).fabric, l.fabric.get());
  cli::Loaded copy = l;
  l = {};
  EXPECT_EQ(copy.options.known->get(copy.question(), Backend::Nccl).fabric, copy.fabric.get());
  EXPECT_EQ(copy.fabric->devices(), 8);
}

}  // namespace
}  // namespace ddpsim::test
