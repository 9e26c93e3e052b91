// Releases as text, and the tables of what differs between them. What a difference does is told by
// zero_versions_test.cc and horovod_versions_test.cc.
#include "sim/units/release.h"

#include <string>

#include <gtest/gtest.h>

#include "sim/systems/apex/version.h"
#include "sim/systems/horovod/version.h"
#include "sim/systems/zero/version.h"

namespace ddpsim {
namespace {

// Who wants to know what a version does asks has(): nobody compares.
template <class V>
concept InOrder = requires(V a, V b) {
  a < b;
};
static_assert(!InOrder<deepspeed::Version> && !InOrder<horovod::Version> &&
              !InOrder<apex::Version>);
static_assert(InOrder<Release>, "the concept sees an order");

TEST(Release, IsTwoPartsOrThreeAndWhatABuildSays) {
  EXPECT_EQ(parse_release("0.14.5"), Release(0, 14, 5));
  EXPECT_EQ(parse_release("0.14.5+cu126"), Release(0, 14, 5));
  EXPECT_EQ(parse_release("2.28.9-1"), Release(2, 28, 9));
  EXPECT_EQ(parse_release("0.14"), Release(0, 14, Release::kLast)) << "the last of them";
  for (const char* text : {"0.14.5", "0.14", "2.28.9", "25.5"})
    EXPECT_EQ(to_string(*parse_release(text)), text);
  for (const char* text :
       {"", "2", "2.", ".2", "2.x", "2.1.", "2.1.x", "2.1.3x", "2.1.3.4", "2.1+a", "-2.1", "2.-1",
        "2.1 ", " 2.1", "v2.1", "2.2147483647", "2.99999999999999999999", "master"})
    EXPECT_FALSE(parse_release(text)) << text;
}

// The release before one, as a text: another patch, or the last of the minor release before.
std::string text_before(Release r, bool months) {
  if (!months && r.patch > 0) return to_string({r.major, r.minor, r.patch - 1});
  return to_string({r.major, r.minor - 1, Release::kLast});
}

template <class Table>
void expect_rows_on_both_sides() {
  using Version = VersionOf<Table>;
  for (const auto& row : Table::kRows) {
    const auto before = Version::parse(text_before(row.since, Table::kMonths));
    const auto since = Version::parse(Version::first_with(row.change));
    ASSERT_TRUE(before && since) << row.before_and_now;
    EXPECT_FALSE(before->has(row.change)) << row.before_and_now;
    EXPECT_TRUE(since->has(row.change)) << row.before_and_now;
    EXPECT_NE(row.before_and_now.find(" | "), std::string_view::npos) << row.before_and_now;
    EXPECT_NE(row.source.find(".py", 0) != std::string_view::npos ||
                  row.source.find(".cc", 0) != std::string_view::npos,
              false)
        << row.source;
  }
}
TEST(Versions, HaveWhatCameWithThemOrBefore) {
  expect_rows_on_both_sides<deepspeed::Table>();
  expect_rows_on_both_sides<horovod::Table>();
  expect_rows_on_both_sides<apex::Table>();
}

template <class Table>
void expect_texts(std::initializer_list<const char*> read,
                  std::initializer_list<const char*> not_read) {
  using Version = VersionOf<Table>;
  for (const char* text : read) {
    const auto version = Version::parse(text);
    ASSERT_TRUE(version) << text;
    EXPECT_EQ(version->name(), text);
    EXPECT_EQ(Version::parse(version->name()), version) << text;
  }
  for (const char* text : not_read) EXPECT_FALSE(Version::parse(text)) << text;
}
TEST(Versions, AreThoseThatWereRead) {
  expect_texts<deepspeed::Table>({"0.10.3", "0.10", "0.14.5", "0.16", "0.19.5"},
                                 {"0.9.5", "0.10.2", "0.19.6", "0.20", "0.20.0", "1.0", "14.5"});
  expect_texts<horovod::Table>({"0.20.0", "0.20", "0.21.3", "0.28.1"},
                               {"0.19.5", "0.28.2", "0.29", "28.1"});
  expect_texts<apex::Table>({"19.02", "22.03", "24.12", "25.05"},
                            {"19.01", "25.06", "25.07", "22.13", "22.00", "0.1"});
  EXPECT_EQ(deepspeed::Version::parse("0.19")->name(), "0.19.5") << "the last that was read";
  EXPECT_EQ(deepspeed::Version::parse("0.14.5+torch"), deepspeed::Version()) << "a plan's own";
  EXPECT_EQ(horovod::Version().name(), "0.28.1");
  EXPECT_EQ(apex::Version::parse("25.5"), apex::Version());
  EXPECT_EQ(apex::Version::parse("24.04.01")->name(), "24.04") << "a tag of its own";
}

TEST(Versions, OthersAreRefusedWithTheNearest) {
  EXPECT_EQ(
      deepspeed::Version::refusal("0.8.3"),
      "\"0.8.3\" is no release of DeepSpeed that was read; those are 0.10.3 to 0.19.5, and the "
      "nearest is 0.10.3");
  EXPECT_EQ(
      deepspeed::Version::refusal("0.20"),
      "\"0.20\" is no release of DeepSpeed that was read; those are 0.10.3 to 0.19.5, and the "
      "nearest is 0.19.5");
  EXPECT_EQ(horovod::Version::refusal("latest"),
            "\"latest\" is no release of Horovod that was read; those are 0.20.0 to 0.28.1");
  EXPECT_EQ(
      apex::Version::refusal("25.09"),
      "\"25.09\" is no release of NVIDIA Apex that was read; those are 19.02 to 25.05, and the "
      "nearest is 25.05 (later ones have no DistributedDataParallel: commit cb65b8ed removed "
      "it)");
  EXPECT_EQ(apex::Version::refusal("22.13").find("nearest"), std::string::npos) << "no month";
}

}  // namespace
}  // namespace ddpsim
