// Which kernels need not be made to wait for their launch.
#include "sim/play/implied.h"

#include <gtest/gtest.h>

namespace ddpsim::predict {
namespace {

struct Step {
  StepProgram program;
  std::vector<Duration> durations;
  std::uint32_t add(Lane lane, std::int64_t ps, std::uint32_t dep = kNoOp, OpKind kind = {}) {
    Op op{};
    op.kind = kind;
    op.lane = lane;
    op.dep[0] = dep;
    program.ops.push_back(op);
    durations.push_back({ps});
    return static_cast<std::uint32_t>(program.ops.size() - 1);
  }
  std::vector<std::uint32_t> implied() const {
    return implied_launches(program, durations, by_operation(program), kLanes);
  }
};

TEST(ImpliedLaunches, AreThoseBehindKernelsThatLastLonger) {
  Step s;
  auto a = s.add(Lane::Host, 5);
  auto b = s.add(Lane::Host, 5);
  auto c = s.add(Lane::Host, 5);
  auto first = s.add(Lane::Compute, 9, a);
  auto second = s.add(Lane::Compute, 1, b);  // launched 5 after the first, which lasts 9
  auto third = s.add(Lane::Compute, 1, c);   // 10 after the first; both before it last 10
  auto d = s.add(Lane::Host, 1);
  auto fourth = s.add(Lane::Compute, 1, d);  // 11 after the first, as long as all three
  auto e = s.add(Lane::Host, 1);
  auto f = s.add(Lane::Host, 1);
  auto fifth = s.add(Lane::Compute, 4, f);  // two later, one longer: not before it
  auto sixth = s.add(Lane::Compute, 4, e);  // of the host's past
  const auto implied = s.implied();
  EXPECT_EQ(implied[first], kNoOp) << "nothing is known of what runs before the step";
  EXPECT_EQ(implied[second], b);
  EXPECT_EQ(implied[third], c);
  EXPECT_EQ(implied[fourth], d);
  EXPECT_EQ(implied[fifth], kNoOp);
  EXPECT_EQ(implied[sixth], e);
}

TEST(ImpliedLaunches, AreNotAcrossAWaitOfTheHost) {
  for (bool waits : {false, true}) {
    Step s;
    auto a = s.add(Lane::Host, 1);
    auto first = s.add(Lane::Compute, 100, a);
    auto b = s.add(Lane::Host, 1, waits ? first : kNoOp);
    auto second = s.add(Lane::Compute, 100, b);
    EXPECT_EQ(s.implied()[second], waits ? kNoOp : b);
  }
  Step s;
  auto a = s.add(Lane::Host, 1);
  auto first = s.add(Lane::Compute, 100, a);
  auto b = s.add(Lane::Host, 1);
  auto second = s.add(Lane::Compute, 100, b);
  s.program.extra_deps.push_back({b, first});
  EXPECT_EQ(s.implied()[second], kNoOp) << "a wait that is listed apart";
}

TEST(ImpliedLaunches, AreOfOneStream) {
  Step s;
  auto a = s.add(Lane::Host, 1);
  s.add(Lane::Compute, 100, a);
  auto b = s.add(Lane::Host, 1);
  auto other = s.add(stream(0), 100, b);
  EXPECT_EQ(implied_launches(s.program, s.durations, {}, kLanes + 1)[other], kNoOp);
}

}  // namespace
}  // namespace ddpsim::predict
