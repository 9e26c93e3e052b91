// What a DistributedSampler deals out, by hand; python.sampler holds it against PyTorch's.
#include "sim/model/sampler.h"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "tests/support/support.h"

namespace ddpsim::test {
namespace {

using Indices = std::vector<std::int64_t>;

TEST(Sampler, TenSamplesOnThreeRanksAreFourEachWithTwoRepeated) {
  const Epoch e = epoch_of({10, 3, 4});
  EXPECT_EQ(e.per_rank, 4);
  EXPECT_EQ(e.padding, 2);
  EXPECT_EQ(e.steps, 1);
  EXPECT_EQ(samples_of({10, 3, 4}, 0, {}), (Indices{0, 3, 6, 9}));
  EXPECT_EQ(samples_of({10, 3, 4}, 2, {}), (Indices{2, 5, 8, 1}));
  Sampling drop{10, 3, 4};
  drop.drop_last = true;
  EXPECT_EQ(epoch_of(drop).per_rank, 3);
  EXPECT_EQ(epoch_of(drop).dropped, 1);
}

TEST(Sampler, MnistOnSevenRanks) {
  const Epoch e = epoch_of({60'000, 7, 64});
  EXPECT_EQ(e.per_rank, 8572);
  EXPECT_EQ(e.padding, 4);
  EXPECT_EQ(e.batches, 134);
  EXPECT_EQ(e.last_batch, 8572 - 133 * 64);
}

TEST(Sampler, FewerSamplesThanRanksRepeatUntilEveryRankHasOne) {
  EXPECT_EQ(samples_of({2, 7, 1}, 6, {}), (Indices{0}));
  EXPECT_EQ(epoch_of({2, 7, 1}).padding, 5);
  Sampling drop{2, 7, 1};
  drop.drop_last = true;
  EXPECT_EQ(epoch_of(drop).per_rank, 0);
  EXPECT_EQ(epoch_of(drop).steps, 0);
}

TEST(Sampler, AnUnfullLastStepHasFewerMicroSteps) {
  Sampling s{1000, 4, 32, 3};
  const Epoch e = epoch_of(s);
  EXPECT_EQ(e.batches, 8);  // 250 samples
  EXPECT_EQ(e.steps, 3);
  EXPECT_EQ(e.last_step, 2);
  EXPECT_EQ(e.last_batch, 26);
  s.drop_last_batch = true;
  EXPECT_EQ(epoch_of(s).batches, 7);
  EXPECT_EQ(epoch_of(s).last_batch, 32);
  EXPECT_EQ(epoch_of(s).dropped, 4 * 26);
}

// torch.randperm(10, generator=torch.Generator().manual_seed(5)) of PyTorch 1.13.
TEST(Sampler, ShufflesAsPyTorchDoes) {
  EXPECT_EQ(permutation(10, 5), (Indices{1, 4, 9, 6, 3, 5, 0, 2, 8, 7}));
}

TEST(Sampler, AllRanksTogetherSeeEverySampleAndNoneMoreThanThePaddingAllows) {
  Random r(4);
  for (int i = 0; i < 200; ++i) {
    Sampling s{1 + r.below(500), 1 + r.below(20), 1 + r.below(30), 1 + r.below(4)};
    s.drop_last = r.below(2) == 0;
    const Epoch e = epoch_of(s);
    Indices all;
    for (int rank = 0; rank < s.ranks; ++rank) {
      const Indices mine = samples_of(s, rank, std::uint64_t{7});
      EXPECT_EQ(static_cast<std::int64_t>(mine.size()), e.per_rank);
      all.insert(all.end(), mine.begin(), mine.end());
    }
    const auto distinct = static_cast<std::int64_t>(std::set(all.begin(), all.end()).size());
    EXPECT_EQ(distinct, s.drop_last ? s.samples - e.dropped : s.samples);
    EXPECT_EQ(static_cast<std::int64_t>(all.size()) - distinct, e.padding);
    if (e.steps > 0) {
      EXPECT_EQ((e.batches - 1) * s.batch + e.last_batch, e.per_rank);
    }
  }
}

}  // namespace
}  // namespace ddpsim::test
