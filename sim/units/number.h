// Numbers in text that people and other programs wrote: the one parser. Decimal digits, at most one
// point, an exponent; finite. It knows no nan, no infinity, no hexadecimal digits, no leading + and
// no space.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ddpsim {

struct LeadingNumber {
  double value = 0;
  std::size_t length = 0;  // characters of the text that are the number
};
// The number that a text begins with: "25MiB" is 25 and two characters. nullopt: it begins with
// none, or with one that no double holds.
std::optional<LeadingNumber> leading_number(std::string_view text);
// The whole text is a number.
std::optional<double> parse_number(std::string_view text);
// The whole text is a whole number in digits, with no point and no exponent; "-7" is one.
// nullopt: it is none, or one that 64 bits do not hold.
std::optional<std::int64_t> parse_integer(std::string_view text);
// The whole text is a whole number in hexadecimal digits, without a sign and without 0x.
std::optional<std::int64_t> parse_hexadecimal(std::string_view digits);

struct LeadingCount {
  std::int64_t value = 0;
  std::size_t length = 0;  // characters of the text that are its digits
};
// The digits that a text begins with, without a sign: "27.3" is 27 and two characters. nullopt: it
// begins with none, or with a number that 64 bits do not hold.
std::optional<LeadingCount> leading_count(std::string_view text);

}  // namespace ddpsim
