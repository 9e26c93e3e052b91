// The one parser of numbers, and text that is fit for a terminal, a table and a spreadsheet.
#include "sim/units/number.h"

#include <string>

#include <gtest/gtest.h>

#include "sim/report/text.h"
#include "sim/strategy/knobs.h"
#include "sim/units/text.h"

namespace ddpsim::test {
namespace {

TEST(Number, IsDecimalAndFinite) {
  struct Case {
    const char* text;
    double value;
  };
  for (const Case& c : {Case{"0", 0},
                        {"25", 25},
                        {"-1.5", -1.5},
                        {".5", 0.5},
                        {"-.5", -0.5},
                        {"1e3", 1000},
                        {"1E+3", 1000},
                        {"2.5e-3", 0.0025},
                        {"1.", 1}})
    EXPECT_EQ(parse_number(c.text), c.value) << c.text;
  for (const char* text :
       {"",    "-",    ".",        "-.",    "e5",     "nan",   "NaN",     "-nan", "nan(1)",
        "inf", "-inf", "infinity", "1e400", "-1e400", "1e",    "0x10",    "1 ",   " 1",
        "+1",  "1,5",  "1_000",    "1:2",   "--1",    "1e5e5", "\xc2\xbd"})
    EXPECT_FALSE(parse_number(text)) << text;
  EXPECT_EQ(leading_number("25MiB")->length, 2u);
  EXPECT_FALSE(leading_number("nanMiB"));
  EXPECT_FALSE(leading_number("infinite"));
  EXPECT_EQ(parse_integer("-7"), -7);
  for (const char* text : {"", "7.0", "1e3", "+7", "9223372036854775808", "0x7", "7 "})
    EXPECT_FALSE(parse_integer(text)) << text;
}

TEST(Number, OfAKnobIsOne) {
  const strategy::Knob cap{"bucket_cap_mb", "MiB"};
  EXPECT_EQ(strategy::parse_value(cap, "25")->number, 25);
  for (const char* text : {"nan", "inf", "0x19", " 25", "25 ", "1e400", "-1", "0", ""})
    EXPECT_FALSE(strategy::parse_value(cap, text)) << text;
}

TEST(Text, MovesNoCursor) {
  EXPECT_EQ(printable("a\x1b[31mb\x07"
                      "c\x7f"),
            "a [31mb c ");
  EXPECT_EQ(printable(std::string("a\0b", 3)), "a b");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            " 31m")
      << "C1's CSI";
  EXPECT_EQ(printable("\xe2\x80\xae"
                      "txt"),
            " txt")
      << "right to left";
  EXPECT_EQ(printable("caf\xc3\xa9 \xf0\x9f\x9a\x80"), "caf\xc3\xa9 \xf0\x9f\x9a\x80");
  for (const char* bad : {"\xff", "\xc3", "\xc0\xaf", "\xed\xa0\x80", "\xf5\x80\x80\x80", "\x80"}) {
    EXPECT_FALSE(is_utf8(bad));
    EXPECT_TRUE(is_utf8(valid_utf8(bad)));
    EXPECT_TRUE(printable(bad).starts_with("\xef\xbf\xbd"));
  }
}

TEST(Text, IsNoFormula) {
  EXPECT_EQ(report::csv_field("=1+1"), "'=1+1");
  EXPECT_EQ(report::csv_field("@SUM(1,2)"), "\"'@SUM(1,2)\"");
  EXPECT_EQ(report::csv_field("-cmd|' /C calc'!A0"), "'-cmd|' /C calc'!A0");
  EXPECT_EQ(report::csv_field("-2.5"), "-2.5");
  EXPECT_EQ(report::csv_field("a\nb\x1b"), "a b ");
  EXPECT_EQ(report::csv_field("a\"b,c"), "\"a\"\"b,c\"");
  EXPECT_EQ(report::markdown_cell("a|b\n<i>"), "a\\|b \\<i>");
}

}  // namespace
}  // namespace ddpsim::test
