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
// The whole text is a whole number in digits, with no point and no exponent.
std::optional<std::int64_t> parse_integer(std::string_view text);

}  // namespace ddpsim
