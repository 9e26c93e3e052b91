// A step as a picture: what is drawn is what the Run has.
#include "sim/report/timeline_svg.h"

#include <gtest/gtest.h>
#include <pugixml.hpp>

namespace ddpsim {
namespace {

constexpr std::int64_t kMs = 1'000'000'000;

Span span(Lane lane, OpKind kind, const char* op, std::int64_t begin, std::int64_t end) {
  Span s;
  s.lane = lane;
  s.kind = kind;
  s.op = op;
  s.begin = TimePoint{begin * kMs};
  s.end = TimePoint{end * kMs};
  return s;
}

constexpr OpKind kForward{Does::Compute, Phase::Forward};
constexpr OpKind kBackward{Does::Compute, Phase::Backward};
constexpr OpKind kReduce{Does::Communicate, Phase::Between, Of::Bucket, Touches::Bucket};
constexpr OpKind kLaunch{Does::Launch};

// Two ranks; the second ends last.
Run run() {
  Run out;
  out.spans_from = TimePoint{100 * kMs};
  out.spans = {span(Lane::Host, kLaunch, "launch", 60, 70),
               span(Lane::Compute, kForward, "fwd", 100, 110),
               span(Lane::Compute, kBackward, "bwd/<a>", 110, 130),
               span(Lane::Comm, kReduce, "allreduce/bucket.0", 120, 140)};
  Span other = out.spans[1];
  other.actor = 7;
  other.end = TimePoint{120 * kMs};
  out.spans.insert(out.spans.begin(), other);
  return out;
}

double width(const pugi::xml_document& d, const char* fill) {
  double sum = 0;
  for (const auto& r : d.child("svg").children("rect"))
    if (std::string(r.attribute("fill").value()) == fill && r.child("title"))
      sum += r.attribute("width").as_double();
  return sum;
}

TEST(TimelineSvg, LengthsAreThoseOfTheRankThatEndsLast) {
  pugi::xml_document d;
  ASSERT_TRUE(d.load_string(report::timeline_svg(run(), "a & b").c_str()));
  double forward = width(d, "#86b6dc");
  EXPECT_NEAR(width(d, "#3f7cb5"), 2 * forward, 0.02);
  EXPECT_NEAR(width(d, "#e2a154"), 2 * forward, 0.02);
  EXPECT_NEAR(width(d, "#b3311f"), forward, 0.02);  // 130 to 140: nothing computes
  EXPECT_STREQ(d.child("svg").child("title").text().get(), "a & b");
}

TEST(TimelineSvg, WhatRanAheadIsASentenceAndNotAnEmptyAxis) {
  std::string svg = report::timeline_svg(run(), "");
  EXPECT_NE(svg.find("ran ahead: began 40 ms before the step"), std::string::npos);
  EXPECT_EQ(svg.find(">-"), std::string::npos);  // no negative tick
  EXPECT_NE(svg.find("bwd/&lt;a>"), std::string::npos);
}

// Where the host is busy in the step, too, the sentence is below the axis, and the picture higher.
TEST(TimelineSvg, WhatRanAheadIsSaidOfABusyHostToo) {
  ddpsim::Run busy = run();
  busy.spans.push_back(span(Lane::Host, kLaunch, "launch", 105, 106));
  std::string svg = report::timeline_svg(busy, "");
  EXPECT_NE(svg.find("host ran ahead: began 40 ms before the step"), std::string::npos);
  pugi::xml_document idle;
  pugi::xml_document d;
  ASSERT_TRUE(d.load_string(svg.c_str()));
  ASSERT_TRUE(idle.load_string(report::timeline_svg(run(), "").c_str()));
  auto height = [](const pugi::xml_document& x) {
    return x.child("svg").attribute("height").as_double();
  };
  EXPECT_GT(height(d), height(idle));
}

TEST(TimelineSvg, ARunWithoutSpansIsAnEmptyPicture) {
  pugi::xml_document d;
  EXPECT_TRUE(d.load_string(report::timeline_svg(ddpsim::Run(), "nothing").c_str()));
  EXPECT_EQ(report::timeline_svg(ddpsim::Run(), "nothing").find("nan"), std::string::npos);
}

}  // namespace
}  // namespace ddpsim
