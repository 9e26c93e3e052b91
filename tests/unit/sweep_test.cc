// Axes and their points, rows as a file has them, and files that are continued or joined.
#include <functional>

#include <gtest/gtest.h>

#include "sim/sweep/flips.h"
#include "sim/sweep/resume.h"
#include "sim/sweep/rows.h"
#include "sim/sweep/summary.h"

namespace ddpsim::test {
namespace {

using sweep::RowReader;
using sweep::Sweep;
using sweep::SweepRow;

Sweep caps_and_hosts() {
  Sweep s = sweep::sweep_over({"bucket_cap_mb=1,25"}, {"cluster.hosts=1,2", "workload.batch=64,32"},
                              false);
  s.id = sweep::id_of(0xabc, s.points);
  return s;
}

// A point's row, answered: the step is as long as the point says.
SweepRow answered_row(const Sweep& s, std::int64_t point, int ranks = 8) {
  SweepRow r = sweep::row_at(s, point);
  r.ranks = ranks;
  r.step = {1'000'000 + point};
  r.samples_per_s = 128.5;
  r.samples = 100;
  r.profile = "p";
  r.basis = "datasheet, \"never\" measured";
  return r;
}

std::string line_of_row(const Sweep& s, const SweepRow& r) {
  std::string line = sweep_line(s, r);
  line.pop_back();
  return line;
}
std::string header_of(const Sweep& s) {
  std::string line = sweep_header(s);
  line.pop_back();
  return line;
}

std::string refused(const std::function<void()>& what) {
  try {
    what();
  } catch (const InputError& e) {
    return e.where + ": " + e.what;
  }
  return "";
}
bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(SweepAxes, ZippedFieldsChangeTogetherAndTheLastAxisFastest) {
  Sweep s = caps_and_hosts();
  EXPECT_EQ(s.points, 4);
  EXPECT_EQ(fields_of(s.axes),
            (std::vector<std::string>{"bucket_cap_mb", "cluster.hosts", "workload.batch"}));
  EXPECT_EQ(values_at(s.axes, 0), (std::vector<std::string>{"1", "1", "64"}));
  EXPECT_EQ(values_at(s.axes, 1), (std::vector<std::string>{"1", "2", "32"}));
  EXPECT_EQ(values_at(s.axes, 2), (std::vector<std::string>{"25", "1", "64"}));
}

TEST(SweepAxes, AreRefusedWhereTheySayNothing) {
  auto over = [](std::vector<std::string> axes, std::vector<std::string> zips) {
    return refused([&] { sweep::sweep_over(axes, zips, false); });
  };
  EXPECT_TRUE(says(over({}, {}), "nothing to sweep"));
  EXPECT_TRUE(says(over({}, {"a=1,2", "b=1"}), "a has 2 values and b has 1"));
  EXPECT_TRUE(says(over({}, {"a=1,1", "b=2,2"}), "has the values 1, 2 twice"));
  EXPECT_TRUE(says(over({"a=1,2", "plan.a=3"}, {}), "is named twice"));
  EXPECT_EQ(over({}, {"a=1,1", "b=2,3"}), "");
  EXPECT_TRUE(says(over({"a=1,25MiB"}, {}), "mixes numbers with and without a unit"));
  EXPECT_EQ(over({"deepspeed=0.14.2,0.16,0.17.5", "pytorch=2.7,2.7.1"}, {}), "");
}

TEST(SweepRows, AreReadAsTheyWereWritten) {
  Sweep s = caps_and_hosts();
  SweepRow r = answered_row(s, 3);
  r.low = Duration{900'000};
  std::string line = line_of_row(s, r);
  SweepRow again = row_of(s, line, "f.csv");
  EXPECT_EQ(line_of_row(s, again), line);
  EXPECT_EQ(again.values, r.values);
  EXPECT_EQ(again.basis, r.basis);
  EXPECT_EQ(again.low, r.low);
  EXPECT_FALSE(again.high.has_value());
  EXPECT_EQ(sweep::points_of_id(s.id), 4);
  EXPECT_EQ(sweep::points_of_id("abc-4"), 0);
}

TEST(SweepRows, SayInWordsOfTheAxesWhyThereIsNoAnswer) {
  Sweep s = caps_and_hosts();
  SweepRow r = sweep::row_at(s, 1);
  refuse(r, s, InputError{"--set cluster.hosts=2 (c.json#/hosts)", "is too large"});
  EXPECT_EQ(r.reason, "cluster.hosts=2 (c.json#/hosts): is too large");
}

TEST(SweepResume, GoesOnBehindTheLastWholeRow) {
  Sweep s = caps_and_hosts();
  RowReader reader("f.csv", "--resume", s, {0, 4});
  reader.take(header_of(s));
  for (std::int64_t p : {0, 1}) reader.take(line_of_row(s, answered_row(s, p)));
  EXPECT_EQ(reader.found().rows, 2);
  EXPECT_EQ(reader.end("").rows, 2);
  EXPECT_EQ(reader.end("2,25").rows, 2);  // the row that a kill cut off
  EXPECT_EQ(
      reader.end("2,25").bytes,
      static_cast<std::int64_t>(sweep_header(s).size() + sweep_line(s, answered_row(s, 0)).size() +
                                sweep_line(s, answered_row(s, 1)).size()));
  EXPECT_TRUE(says(refused([&] { reader.end("3,25"); }), "not the beginning of a row"));
}

TEST(SweepResume, RefusesWhatTheSweepDidNotWrite) {
  Sweep s = caps_and_hosts();
  auto second = [&](const std::string& line) {
    RowReader reader("f.csv", "--resume", s, {0, 2});
    return refused([&] {
      reader.take(header_of(s));
      reader.take(line_of_row(s, answered_row(s, 0)));
      reader.take(line);
    });
  };
  EXPECT_EQ(second(line_of_row(s, answered_row(s, 1))), "");
  EXPECT_TRUE(says(second(line_of_row(s, answered_row(s, 2))), "is point 2 where 1 is expected"));
  EXPECT_TRUE(says(second("junk"), "f.csv:3: is no row of a sweep"));
  EXPECT_TRUE(says(second("junk"), "keep the 2 lines before it (head -n 2)"));
  SweepRow other = answered_row(s, 1);
  other.values[0] = "5";
  EXPECT_TRUE(says(second(line_of_row(s, other)), "has other values than point 1"));
  Sweep stranger = s;
  stranger.id = sweep::id_of(0xdef, 4);
  EXPECT_TRUE(says(second(line_of_row(stranger, answered_row(s, 1))), "is of another sweep"));
  RowReader part("f.csv", "--resume", s, {2, 4});
  part.take(header_of(s));
  EXPECT_TRUE(says(refused([&] { part.take(line_of_row(s, answered_row(s, 0))); }),
                   "begins with point 0; this part of the sweep is 2 to 3"));
}

TEST(SweepResume, ShardsAreJoinedOnlyIfTheyAreAllPoints) {
  Sweep s = caps_and_hosts();
  auto shard = [&](std::int64_t first, std::int64_t last) {
    RowReader reader("s" + std::to_string(first), "s" + std::to_string(first));
    reader.take(header_of(s));
    for (std::int64_t p = first; p < last; ++p) reader.take(line_of_row(s, answered_row(s, p)));
    return reader;
  };
  auto joined = [&](std::vector<RowReader> shards) { return refused([&] { join(shards); }); };
  EXPECT_EQ(joined({shard(2, 4), shard(0, 2)}), "");
  EXPECT_EQ(joined({shard(3, 4), shard(0, 2)}),
            "s3: begins at point 3; points 2 to 2 are in no file");
  EXPECT_EQ(joined({shard(1, 4), shard(0, 2)}), "s1: begins at point 1, which another file has");
  EXPECT_TRUE(says(joined({shard(0, 2)}), "points 2 to 3 are in no file"));
  EXPECT_EQ(sweep::part_of("1/3", 10).first, 3);
  EXPECT_EQ(sweep::part_of("1/3", 10).last, 6);
}

TEST(SweepSummaries, RankBySamplesWhereAStepHasDifferentOnes) {
  Sweep s = caps_and_hosts();
  sweep::SweepSummary alike;
  for (std::int64_t p : {1, 0}) alike.add(answered_row(s, p));
  ASSERT_EQ(alike.lists().size(), 1u);
  EXPECT_EQ(alike.lists()[0].second->front().point, 0);  // the shortest
  sweep::SweepSummary mixed;
  SweepRow large = answered_row(s, 2, 16);
  large.samples = 200, large.samples_per_s = 200;
  mixed.add(answered_row(s, 0));
  mixed.add(large);
  ASSERT_EQ(mixed.lists().size(), 2u);
  EXPECT_EQ(mixed.lists()[0].second->front().point, 2);  // most samples per second
  EXPECT_EQ(mixed.lists()[1].second->front().point, 0);  // of each rank
  SweepRow none = sweep::row_at(s, 3);
  none.reason = "why";
  mixed.add(none);
  EXPECT_EQ(mixed.problems(), "1 of 3 points have no prediction; the first: why\n");
}

// A faster link and a longer step: another algorithm, or the same one on other channels.
TEST(SweepFlips, SaysWhatTheFasterPointDoesInsteadOrThatItFoundOtherChannels) {
  Sweep s = sweep::sweep_over({"cluster.link.bandwidth=10Gb/s,20Gb/s"}, {}, false);
  auto said_of = [&](const std::string& faster_algorithm) {
    sweep::SweepFlips flips;
    for (std::int64_t point : {0, 1}) {
      SweepRow r = answered_row(s, point);
      r.step = {point == 0 ? 1'000'000 : 1'500'000};
      r.algorithm = point == 0 ? "ring/simple" : faster_algorithm;
      flips.add(r);
    }
    return flips.lines(s);
  };
  ASSERT_EQ(said_of("ring/simple").size(), 2u);
  EXPECT_TRUE(says(said_of("ring/simple")[1],
                   "point 1: 1.5 us with cluster.link.bandwidth=20Gb/s, and 1 us with 10Gb/s ("))
      << said_of("ring/simple")[1];
  EXPECT_TRUE(says(said_of("ring/simple")[1], "(both ring/simple, on other channels)"));
  ASSERT_EQ(said_of("tree/ll").size(), 2u);
  EXPECT_TRUE(says(said_of("tree/ll")[1], "(tree/ll instead of ring/simple)"));
}

}  // namespace
}  // namespace ddpsim::test
