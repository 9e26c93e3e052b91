#include "sim/model/pytorch.h"

#include <concepts>

#include <gtest/gtest.h>

#include "sim/nccl/version.h"

namespace ddpsim::pytorch {
namespace {

// Who wants to know what a version does asks has(): nobody compares.
template <class V>
concept Ordered = requires(V a, V b) {
  a < b;
};
static_assert(!Ordered<Version> && !Ordered<nccl::Version>);
static_assert(Ordered<Release>, "the concept sees an order");

TEST(PytorchVersion, IsOneOfTheReleasesThatWereRead) {
  for (const Known& k : kReleases) {
    const auto version = parse_version(k.name);
    ASSERT_TRUE(version) << k.name;
    EXPECT_STREQ(name_of(*version), k.name);
    EXPECT_STREQ(shipped_nccl(*version), k.nccl);
    EXPECT_EQ(parse_version(std::string(k.name) + ".1+cu126"), version) << k.name;
  }
  for (const char* text : {"", "2", "2.", "2.x", "1.10", "2.15", "2.71", "2.7x", "2.7,1", "12.7",
                           "2.-7", "2.99999999999999999999", "v2.7", "2.7a0", "2.07"})
    EXPECT_FALSE(parse_version(text)) << text;
}

TEST(PytorchVersion, HasAChangeFromItsReleaseOn) {
  for (const Difference& d : kDifferences) {
    bool had = false;
    for (const Known& k : kReleases) {
      const Version version = *parse_version(k.name);
      EXPECT_EQ(version.has(d.change), k.release >= d.since) << d.before_and_now << ", " << k.name;
      EXPECT_TRUE(version.with(d.change).has(d.change)) << d.before_and_now;
      if (!version.has(d.change)) continue;
      EXPECT_EQ(version.with(d.change), version);
      if (!had) {
        EXPECT_STREQ(first_with(d.change), k.name);
      }
      had = true;
    }
    EXPECT_TRUE(had) << d.before_and_now << ": no release has it";
    EXPECT_FALSE(d.source.empty()) << d.before_and_now;
  }
}

}  // namespace
}  // namespace ddpsim::pytorch
