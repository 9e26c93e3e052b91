// Quantities: exact in, exact through, readable out.
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "sim/units/convert.h"
#include "sim/units/elementary.h"

namespace ddpsim {
namespace {

std::int64_t ps(std::string_view text) {
  auto p = parse_duration(text);
  EXPECT_TRUE(p.value) << p.error;
  return p.value ? p.value->ps : -1;
}
std::int64_t bytes(std::string_view text) {
  auto p = parse_bytes(text);
  EXPECT_TRUE(p.value) << p.error;
  return p.value ? p.value->count : -1;
}
std::int64_t bits(std::string_view text) {
  auto p = parse_bandwidth(text);
  EXPECT_TRUE(p.value) << p.error;
  return p.value ? p.value->bits_per_s : -1;
}

TEST(ParseDuration, IsExactWhereADoubleIsNot) {
  EXPECT_EQ(ps("0.1us"), 100'000);
  EXPECT_EQ(ps("3.2us"), 3'200'000);
  EXPECT_EQ(ps("0.3ns"), 300);
  EXPECT_EQ(ps("9007199.254740993s"), 9'007'199'254'740'993'000);  // 2^53 + 1 before the unit
}

TEST(ParseDuration, KnowsEveryUnit) {
  EXPECT_EQ(ps("20ps"), 20);
  EXPECT_EQ(ps("150ns"), 150'000);
  EXPECT_EQ(ps("5us"), 5'000'000);
  EXPECT_EQ(ps("5µs"), 5'000'000);
  EXPECT_EQ(ps("1ms"), 1'000'000'000);
  EXPECT_EQ(ps("2s"), 2'000'000'000'000);
  EXPECT_EQ(ps("1min"), 60'000'000'000'000);
}

TEST(ParseDuration, AllowsBlanksAroundAndBeforeTheUnit) {
  EXPECT_EQ(ps(" 1 ms\t"), 1'000'000'000);
  EXPECT_EQ(ps(".5us"), 500'000);
  EXPECT_EQ(ps("5.us"), 5'000'000);
}

TEST(ParseDuration, RoundsWhatIsBelowAPicosecondHalfUp) {
  EXPECT_EQ(ps("0.4ps"), 0);
  EXPECT_EQ(ps("0.5ps"), 1);
  EXPECT_EQ(ps("1.4999ps"), 1);
}

TEST(ParseBytes, KeepsMiBAndMBApart) {
  EXPECT_EQ(bytes("1MiB"), 1'048'576);
  EXPECT_EQ(bytes("1MB"), 1'000'000);
  EXPECT_EQ(bytes("1.5GiB"), 1'610'612'736);
  EXPECT_EQ(bytes("1.5GB"), 1'500'000'000);
  EXPECT_EQ(bytes("64KiB"), 65'536);
  EXPECT_EQ(bytes("64kB"), 64'000);
  EXPECT_EQ(bytes("512B"), 512);
  EXPECT_EQ(bytes("25MiB"), 26'214'400);
}

TEST(ParseBandwidth, KeepsBitsAndBytesApart) {
  EXPECT_EQ(bits("400Gb/s"), 400'000'000'000);
  EXPECT_EQ(bits("400GB/s"), 3'200'000'000'000);
  EXPECT_EQ(bits("50GB/s"), bits("400Gb/s"));
  EXPECT_EQ(bits("200Mbit/s"), 200'000'000);
  EXPECT_EQ(bits("11GiB/s"), 11 * 8 * 1'073'741'824ll);
  EXPECT_EQ(bits("2.5kb/s"), 2'500);
}

TEST(ParseErrors, SayWhatWasExpected) {
  EXPECT_EQ(parse_duration("5").error,
            "\"5\" has no unit; expected a time such as \"5us\", \"1.5ms\" or \"300ns\"");
  EXPECT_EQ(parse_duration("-5us").error,
            "\"-5us\" is negative; expected a time such as \"5us\", \"1.5ms\" or \"300ns\"");
  EXPECT_EQ(parse_bytes("25 Mib").error,
            "\"25 Mib\" has an unknown unit \"Mib\"; expected a size such as \"64KiB\", \"25MiB\" "
            "or \"100MB\"");
  EXPECT_EQ(parse_bytes("lots").error,
            "\"lots\" is not a number with a unit; expected a size such as \"64KiB\", \"25MiB\" or "
            "\"100MB\"");
  EXPECT_EQ(parse_bandwidth("fast").error,
            "\"fast\" is not a number with a unit; expected a bandwidth such as \"100Gb/s\" or "
            "\"12.5GB/s\"");
}

TEST(ParseErrors, OfferBothReadingsOfABarePrefix) {
  EXPECT_EQ(parse_bandwidth("40G").error, "\"40G\" has no unit (did you mean 40GB/s or 40Gb/s?)");
  EXPECT_EQ(parse_bandwidth("2.5 M").error,
            "\"2.5 M\" has no unit (did you mean 2.5MB/s or 2.5Mb/s?)");
}

TEST(ParseErrors, RefuseUnitsOfAnotherQuantity) {
  EXPECT_FALSE(parse_duration("5MiB").value);
  EXPECT_FALSE(parse_bytes("5us").value);
  EXPECT_FALSE(parse_bandwidth("5GB").value);
  EXPECT_FALSE(parse_bytes("1.2.3MB").value);
  EXPECT_FALSE(parse_bytes("").value);
  EXPECT_FALSE(parse_bytes(".MB").value);
  EXPECT_FALSE(parse_duration("1e3us").value);
}

TEST(ParseErrors, RefuseWhatDoesNotFit) {
  EXPECT_EQ(parse_duration("99999999s").error, "\"99999999s\" is too large");
  EXPECT_EQ(parse_bytes("999999999999TB").error, "\"999999999999TB\" is too large");
  EXPECT_EQ(ps("9223372.03685477580s"), INT64_MAX - 7);
  EXPECT_FALSE(parse_duration("9223372.03685477581s").value);
  EXPECT_FALSE(parse_bytes("1234567890123456789B").value);  // 19 digits
}

TEST(CeilPs, IsTheSmallestWholeTimeThatDoesTheWork) {
  EXPECT_EQ(ceil_ps(10, 1), 10);
  EXPECT_EQ(ceil_ps(10, 4), 3);
  EXPECT_EQ(ceil_ps(0, 4), 0);
  EXPECT_EQ(ceil_ps(1, 1e6), 1);
  EXPECT_EQ(ceil_ps(1e19, 1), kForever);
  EXPECT_EQ(ceil_ps(1, 0), kForever);
}

TEST(Scale, RoundsHalfUp) {
  EXPECT_EQ(scale(Duration{3}, 0.5).ps, 2);
  EXPECT_EQ(scale(Duration{1'000}, 1.5).ps, 1'500);
  EXPECT_EQ(scale(Duration{1'000}, 0).ps, 0);
  EXPECT_EQ(scale(Duration{1'000'000'000'000'000'000}, 100).ps, kForever);
  EXPECT_EQ(scale(Bandwidth{3}, 0.5).bits_per_s, 2);
  EXPECT_EQ(scale(Bandwidth{1'000'000'000'000'000'000}, 100).bits_per_s, INT64_MAX);
}

TEST(Arithmetic, KeepsItsDimension) {
  EXPECT_EQ((kMicrosecond * 3 + kNanosecond - Duration{1}).ps, 3'000'999);
  EXPECT_EQ((TimePoint{10} + Duration{5} - TimePoint{3}).ps, 12);
  EXPECT_EQ((Bytes{2} * 3 + Bytes{4}).count, 10);
  EXPECT_DOUBLE_EQ(Bandwidth{8'000'000'000'000}.bytes_per_ps(), 1.0);
}

// What does not fit stays at the end of the range, in every sum and product.
TEST(Arithmetic, Saturates) {
  const Duration forever{kForever};
  const Duration never{INT64_MIN};
  EXPECT_EQ(forever + kSecond, forever);
  EXPECT_EQ(never - kSecond, never);
  EXPECT_EQ(kSecond - never, forever);
  EXPECT_EQ(kSecond * kForever, forever);
  EXPECT_EQ(kSecond * -kForever, never);
  EXPECT_EQ(TimePoint{5} + forever, TimePoint{kForever});
  EXPECT_EQ(TimePoint{-5} - TimePoint{kForever}, never);
  Duration sum = forever;
  sum += kSecond;
  EXPECT_EQ(sum, forever);
  EXPECT_EQ(Bytes{INT64_MAX} + Bytes{1}, Bytes{INT64_MAX});
  EXPECT_EQ(Bytes{INT64_MAX / 2} * 3, Bytes{INT64_MAX});
  EXPECT_EQ(to_duration(Microseconds{1e300}), forever);
  EXPECT_EQ(to_duration(Microseconds{2.5}), Duration{2'500'000});
}

TEST(Converting, GoesByPowersOfTen) {
  EXPECT_EQ(seconds(kSecond * 3), 3);
  EXPECT_EQ(milliseconds(kMillisecond * 3), 3);
  EXPECT_EQ(microseconds(Duration{2'500'000}), Microseconds{2.5});
  EXPECT_EQ(picoseconds(Microseconds{2.5}), 2.5e6);
  EXPECT_EQ(per_ps(3e12), 3);
  EXPECT_EQ(gb_per_s(Bandwidth{8'000'000'000}), GBps{1});
  EXPECT_EQ(gb_per_s(BytesPerSecond{3e9}), GBps{3});
  EXPECT_EQ(bytes_per_s(GBps{0.1}), BytesPerSecond{0.1e9});
  EXPECT_EQ(bytes_per_s(Bandwidth{8}), BytesPerSecond{1});
  EXPECT_EQ(bytes_per_us(GBps{2}), BytesPerUs{2000});
  EXPECT_EQ(bytes_per_us(GBps{2}, 3), BytesPerUs{6000});
  EXPECT_EQ(bytes_per_us(BytesPerSecond{5e6}), BytesPerUs{5});
  EXPECT_EQ(bytes_per_us(2.5), BytesPerUs{2.5e6});
  EXPECT_EQ(bytes_per_ps(BytesPerUs{3e6}), 3);
  EXPECT_EQ(3000 / GBps{3}, Microseconds{1});
  EXPECT_EQ(6 / BytesPerUs{3}, Microseconds{2});
}

TEST(Converting, AmountsOfOneUnitAreReckonedWith) {
  GBps rate{3};
  rate += {2};
  rate -= {1};
  rate *= 6;
  rate /= 4;
  EXPECT_EQ(rate, GBps{6});
  EXPECT_EQ(2 * rate + rate * 3 - rate / 2, GBps{27});
  EXPECT_EQ(rate / GBps{3}, 2);
  EXPECT_TRUE(rate < GBps{7} && rate <= rate && rate > GBps{5} && rate >= rate);
  EXPECT_FALSE(rate < rate || rate > rate || rate == GBps{7});
}

TEST(Printing, PicksTheUnitAndFourDigits) {
  EXPECT_EQ(to_string(Duration{16'450'000'000}), "16.45 ms");
  EXPECT_EQ(to_string(Duration{999}), "999 ps");
  EXPECT_EQ(to_string(Duration{1'000}), "1 ns");
  EXPECT_EQ(to_string(Duration{-2'500'000}), "-2.5 us");
  EXPECT_EQ(to_string(Duration{1'234'567'000'000}), "1.235 s");
  EXPECT_EQ(to_string(Bytes{25 * kMiB}), "25 MiB");
  EXPECT_EQ(to_string(Bytes{1'000}), "1000 B");
  EXPECT_EQ(to_string(Bytes{3 * 512 * kMiB}), "1.5 GiB");
  EXPECT_EQ(to_string(Bandwidth{400'000'000'000}), "400 Gb/s");
  EXPECT_EQ(to_string(Bandwidth{2'500'000}), "2.5 Mb/s");
}

TEST(Printing, ReadsBack) {
  for (std::int64_t v : {1ll, 999ll, 1'500ll, 25'000'000ll, 7'000'000'000'000ll})
    EXPECT_EQ(ps(to_string(Duration{v})), v);
  for (std::int64_t v : {1ll, 64 * 1024ll, 25 * 1024 * 1024ll})
    EXPECT_EQ(bytes(to_string(Bytes{v})), v);
}

TEST(Printing, PrintsKilobitsWithoutAnExponent) {
  EXPECT_EQ(to_string(Bandwidth{50'000}), "50 kb/s");
}
TEST(Printing, PrintsHoursWithoutAnExponent) {
  EXPECT_EQ(to_string(kSecond * 12'345).find('e'), std::string::npos);
}

TEST(Elementary, LogarithmAndExponentialAreThoseOfTheLibrary) {
  for (double x = 1e-12; x < 1e12; x *= 1.37)
    EXPECT_NEAR(natural_logarithm(x), std::log(x), 1e-14 * std::abs(std::log(x)) + 1e-16) << x;
  for (double x = -690; x < 690; x += 0.37)
    EXPECT_NEAR(natural_exponential(x) / std::exp(x), 1, 1e-14) << x;
  EXPECT_EQ(natural_exponential(-1000), 0);
  EXPECT_TRUE(std::isinf(natural_exponential(1000)));
}

}  // namespace
}  // namespace ddpsim
