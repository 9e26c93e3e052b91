// What NCCL chooses: whether it can does not depend on the size; a tuner's rows take the place of
// its choice, alone and in a step.
#include <gtest/gtest.h>

#include "calib/fit/price_interval.h"
#include "sim/collective/backend/nccl.h"
#include "sim/tune/tune_nccl.h"
#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

struct Asked {
  Workload w = workload("resnet50");
  topology::Fabric fabric;
  Profile p = profile("h100-sxm.datasheet");
  Scenario s;
  predict::Communicators known;
  predict::Options options;

  explicit Asked(Cluster c) : fabric(std::move(c)) {
    s.ranks = fabric.cluster().devices();
    options.known = &known;
  }
  predict::Question question() const { return {w, fabric, p, s}; }
};

Cluster four_hosts() {
  Cluster c = cluster("dgx-h100");
  c.hosts = 4;
  return c;
}

// Whether NCCL could run an operation is the same at every size: check() asks for one.
TEST(NcclChoices, AreAvailableAtEverySizeOrAtNone) {
  Asked a(four_hosts());
  for (const char* list : {"allreduce:tree", "allreduce:nvls", "ring", "allreduce:^ring,tree",
                           "broadcast:ring;allreduce:nvlstree", "allreduce:pat"}) {
    a.s.plan.environment["NCCL_ALGO"] = list;
    const auto& c = a.known.get(a.question(), Backend::Nccl);
    for (Operation op : {Operation::AllReduce, Operation::Broadcast, Operation::AllGather}) {
      const bool any = nccl::choose(*nccl_group(c), op, 1).has_value();
      for (std::int64_t bytes = 2; bytes < (std::int64_t{1} << 40); bytes *= 2)
        EXPECT_EQ(nccl::choose(*nccl_group(c), op, bytes).has_value(), any) << list << " " << bytes;
    }
  }
}

TEST(NcclChoices, AreATunersWhereItsRowsFit) {
  Asked a(four_hosts());
  const auto& c = a.known.get(a.question(), Backend::Nccl);
  const std::int64_t bytes = 25 << 20;
  const auto own = *nccl::choose(*nccl_group(c), Operation::AllReduce, bytes);
  nccl::Tuned row;
  row.from = row.to = bytes;
  row.algorithm = nccl::Algorithm::Ring;
  row.protocol = nccl::Protocol::Ll;
  row.channels = 3;
  a.known.tune({row});
  const auto tuned = *nccl::choose(*nccl_group(c), Operation::AllReduce, bytes);
  EXPECT_EQ(tuned.algorithm, nccl::Algorithm::Ring);
  EXPECT_EQ(tuned.protocol, nccl::Protocol::Ll);
  EXPECT_EQ(tuned.channels, 3);
  // A byte more, another operation, another number of ranks: NCCL's own.
  EXPECT_NE(nccl::choose(*nccl_group(c), Operation::AllReduce, bytes + 1)->channels, 3);
  row.ranks = 8;
  a.known.tune({row});
  EXPECT_EQ(nccl::choose(*nccl_group(c), Operation::AllReduce, bytes)->channels, own.channels);
  // What cannot run is passed over, and more channels than there are is all of them.
  row.ranks = 0;
  row.algorithm = nccl::Algorithm::Pat;
  nccl::Tuned next = row;
  next.algorithm = nccl::Algorithm::Tree;
  next.protocol = nccl::Protocol::Simple;
  next.channels = 64;
  a.known.tune({row, next});
  const auto passed = *nccl::choose(*nccl_group(c), Operation::AllReduce, bytes);
  EXPECT_EQ(passed.algorithm, nccl::Algorithm::Tree);
  EXPECT_EQ(passed.channels, nccl::most_channels(*nccl_group(c), nccl::Algorithm::Tree));
  a.known.tune({});
  EXPECT_EQ(nccl::choose(*nccl_group(c), Operation::AllReduce, bytes)->algorithm, own.algorithm);
}

// The step with what was found is what was said, and never longer than with NCCL's own choices.
TEST(NcclChoices, UnderOverlapMakeTheStepNoLonger) {
  Asked a(four_hosts());
  const predict::NcclTuning n = predict::tune_nccl(a.question());
  EXPECT_LE(n.overlap, n.own);
  EXPECT_LE(n.overlap, n.alone);
  EXPECT_EQ(n.own, predict::steady_period(a.question(), Level::Mid, a.options));
  a.known.tune(predict::rows_of(n.sizes, &predict::TunedSize::alone));
  EXPECT_EQ(n.alone, predict::steady_period(a.question(), Level::Mid, a.options));
  a.known.tune(predict::rows_of(n.sizes, &predict::TunedSize::overlap));
  EXPECT_EQ(n.overlap, predict::steady_period(a.question(), Level::Mid, a.options));
  for (const predict::TunedSize& s : n.sizes) EXPECT_LE(s.alone_alone, s.own_alone);
}

// A machine counts once, with ten rows as with one; what a machine left out took says nothing of
// its own interval.
TEST(PriceIntervals, AreWhatOtherMachinesSay) {
  std::map<std::string, std::vector<double>> of;
  for (int i = 0; i < 10; ++i) of["machine " + std::to_string(i)] = {1 + 0.1 * i};
  of["with many rows"] = std::vector<double>(100, 5.0);
  const calib::PriceInterval p = calib::interval_of(of);
  EXPECT_EQ(p.machines, 11u);
  EXPECT_DOUBLE_EQ(p.low, 1.1);
  EXPECT_DOUBLE_EQ(p.high, 1.9);  // the ninth tenth of eleven machines is the tenth machine
  EXPECT_EQ(p.rows, 110u);
  // Left out, the ends are outside of the rest: 1.0 is, 1.9 is inside (5.0 is above it), 5.0 is
  // not.
  EXPECT_EQ(p.inside, 8u);
  const nccl::PriceRange r = nccl::range_of(Duration{1'000'000}, Bytes{4 << 20});
  EXPECT_LT(r.low.ps, 1'000'000);
  EXPECT_GT(r.high.ps, 1'000'000);
}

// Two channels are fastest alone, and take twice as many SMs from backward as one, which is 0.2 %
// slower: the step is shorter with one.
TEST(NcclChoices, UnderOverlapAreOthersThanAlone) {
  Cluster c = cluster("gpu-ethernet-25g");
  c.hosts = 8;
  Asked a(c);
  a.w = workload("gpt2-small");
  a.p = profile(c.profile);
  const predict::NcclTuning n = predict::tune_nccl(a.question());
  ASSERT_FALSE(n.sizes.empty());
  const predict::TunedSize& s = n.sizes.front();
  EXPECT_EQ(s.op, Operation::AllReduce);
  EXPECT_EQ(s.alone.channels, 2);
  EXPECT_EQ(s.overlap.channels, 1);
  EXPECT_GT(s.overlap_alone, s.alone_alone);
  EXPECT_LT(static_cast<double>(n.overlap.ps), 0.99 * static_cast<double>(n.alone.ps));
}

}  // namespace
}  // namespace ddpsim::test
