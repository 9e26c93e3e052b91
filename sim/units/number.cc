#include "sim/units/number.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string>

namespace ddpsim {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// from_chars reads "nan" and "inf", too: what follows a sign must be a digit, or a point with a
// digit behind it.
bool begins_as_number(std::string_view s) {
  if (!s.empty() && s.front() == '-') s.remove_prefix(1);
  if (!s.empty() && s.front() == '.') s.remove_prefix(1);
  return !s.empty() && is_digit(s.front());
}

// Characters that are the number; 0 = none, or it is beyond all doubles.
std::size_t read_double(std::string_view text, double& value) {
#ifdef __cpp_lib_to_chars
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? end - text.data() : 0;
#else
  // libc++ up to 19 reads whole numbers alone (Emscripten). Its strtod knows no locale but "C", and
  // reads hexadecimals, too, which from_chars ends behind the 0.
  const std::string copy(text.substr(0, text.find_first_of("xX")));
  char* end = nullptr;
  value = std::strtod(copy.c_str(), &end);
  return end - copy.c_str();
#endif
}

std::optional<std::int64_t> whole(std::string_view text, int base) {
  std::int64_t v = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return v;
}

}  // namespace

std::optional<LeadingNumber> leading_number(std::string_view text) {
  if (!begins_as_number(text)) return std::nullopt;
  LeadingNumber out;
  out.length = read_double(text, out.value);
  if (out.length == 0 || !std::isfinite(out.value)) return std::nullopt;
  return out;
}

std::optional<double> parse_number(std::string_view text) {
  auto n = leading_number(text);
  return n && n->length == text.size() ? std::optional(n->value) : std::nullopt;
}

std::optional<std::int64_t> parse_integer(std::string_view text) {
  return whole(text, 10);
}

std::optional<std::int64_t> parse_hexadecimal(std::string_view digits) {
  return digits.starts_with('-') ? std::nullopt : whole(digits, 16);
}

std::optional<LeadingCount> leading_count(std::string_view text) {
  LeadingCount out;
  while (out.length < text.size() && is_digit(text[out.length])) ++out.length;
  auto value = parse_integer(text.substr(0, out.length));
  if (!value) return std::nullopt;
  out.value = *value;
  return out;
}

}  // namespace ddpsim
