// The one parser of numbers, and text that is fit for a terminal, a table and a spreadsheet.
#include "sim/units/number.h"

#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include "calib/gpu/nccl_log.h"
#include "sim/io/xml_reader.h"
#include "sim/nccl/choose.h"
#include "sim/report/text.h"
#include "sim/systems/knobs.h"
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
}

TEST(Number, IsWholeAndOfSixtyFourBits) {
  EXPECT_EQ(parse_integer("-7"), -7);
  EXPECT_EQ(parse_integer("007"), 7);
  EXPECT_EQ(parse_integer("9223372036854775807"), INT64_MAX);
  EXPECT_EQ(parse_integer("-9223372036854775808"), INT64_MIN);
  for (const char* text : {"", "-", "--7", "7.0", "1e3", "+7", "9223372036854775808",
                           "-9223372036854775809", "0x7", "7 ", " 7", "7-"})
    EXPECT_FALSE(parse_integer(text)) << text;
  EXPECT_EQ(parse_hexadecimal("7fffFFFFffffffff"), INT64_MAX);
  for (const char* text : {"", "-5", "0x5", "8000000000000000", "g", "5 "})
    EXPECT_FALSE(parse_hexadecimal(text)) << text;
}

TEST(Number, BeginsText) {
  EXPECT_EQ(leading_count("27.3+cuda13.0")->value, 27);
  EXPECT_EQ(leading_count("0027x")->length, 4u);
  EXPECT_EQ(leading_count("9223372036854775807")->value, INT64_MAX);
  for (const char* text : {"", "x1", "-1", "+1", " 1", "9223372036854775808 GPUs"})
    EXPECT_FALSE(leading_count(text)) << text;
}

// Each reader of whole numbers of others: signs, overflow and what follows the digits.
TEST(Number, OfNcclsVersion) {
  EXPECT_EQ(to_string(*nccl::parse_version("2.27")), "2.27");
  EXPECT_EQ(to_string(*nccl::parse_version("2.28.9+cuda13.0")), "2.28");
  for (const char* text :
       {"2.", "2.-0", "2.+8", "2.x", "2.2147483648", "2.9223372036854775808", "2.27.", "2.27.-1",
        "2.27.x", "2.27 ", "2.27.3x", "2.27.99999999999999999999"})
    EXPECT_FALSE(nccl::parse_version(text)) << text;
}

TEST(Number, OfNcclsVariables) {
  auto problem = [](const char* value) {
    return nccl::parse_settings({{"NCCL_BUFFSIZE", value}}, {27}).problem.message;
  };
  EXPECT_EQ(problem("4194304"), "");
  for (const char* text : {"", "-4194304", "+4194304", "4095", "4194304 ", "4M", "4e6", "0x400000",
                           "9223372036854775808"})
    EXPECT_NE(problem(text).find("is not a whole number from 4096 to"), std::string::npos) << text;
}

TEST(Number, OfNcclsXml) {
  auto read = [](const std::string& value, int base) {
    io::XmlFile xml("<system a=\"" + value + "\"/>", "f.xml", "system");
    return xml.integer(xml.root(), "a", INT64_MIN, INT64_MAX, base);
  };
  EXPECT_EQ(read("-12", 0), -12);
  EXPECT_EQ(read("0x1f", 0), 31);
  EXPECT_EQ(read("1F", 16), 31);
  EXPECT_EQ(read("", 0), std::nullopt);
  for (const char* text : {"0x", "0x-5", "0x0x5", "-0x5", "1f", "+1", "1.0", "9223372036854775808",
                           "0x8000000000000000"})
    EXPECT_THROW(read(text, 0), InputError) << text;
  EXPECT_THROW(read("-1f", 16), InputError);
}

TEST(Number, OfNcclsLog) {
  auto choices = [](const std::string& bytes, const std::string& channels) {
    return calib::gpu::parse_nccl_log("h:1:1 [0] NCCL INFO AllReduce: " + bytes +
                                      " Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={" +
                                      channels + "}\n")
        .choices;
  };
  ASSERT_EQ(choices("4096", "0..7").size(), 1u);
  EXPECT_EQ(choices("4096", "0..7")[0].bytes, 4096);
  EXPECT_EQ(choices("4096", "0..7")[0].channels, 8);
  EXPECT_TRUE(choices("9223372036854775808", "0..7").empty());
  for (const char* range : {"-2147483648..2147483647", "0..2147483647", "0..99999999999", "7..0"})
    EXPECT_EQ(choices("4096", range)[0].channels, 0) << range;
  auto ranks = [](const std::string& n) {
    return calib::gpu::parse_nccl_log("NCCL INFO comm 0x1 rank 0 nRanks " + n + " nNodes 2\n")
        .ranks;
  };
  EXPECT_EQ(ranks("8"), 8);
  for (const char* n : {"-8", "4294967304", "99999999999999999999", "x"})
    EXPECT_EQ(ranks(n), 0) << n;
}

TEST(Number, OfAKnobIsOne) {
  const systems::Knob cap{"bucket_cap_mb", "MiB"};
  EXPECT_EQ(systems::parse_value(cap, "25")->number, 25);
  for (const char* text : {"nan", "inf", "0x19", " 25", "25 ", "1e400", "-1", "0", ""})
    EXPECT_FALSE(systems::parse_value(cap, text)) << text;
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
  for (const char* mark : {"\xe2\x80\xaa", "\xe2\x80\xae", "\xe2\x81\xa6", "\xe2\x81\xa9",
                           "\xe2\x80\x8e", "\xe2\x80\x8f", "\xd8\x9c"}) {
    EXPECT_EQ(printable(std::string("a") + mark + "b"), "a b");
    EXPECT_EQ(printable_page(std::string("a\n") + mark + "\x1b[1mb"), "a\n \x1b[1mb");
  }
  EXPECT_EQ(printable_json("{\"a\":\n\"\xe2\x80\xae\xd8\x9c\xc2\x9b\x7f\xc3\xa9\"}"),
            "{\"a\":\n\"\\u202e\\u061c\\u009b\\u007f\xc3\xa9\"}");
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
