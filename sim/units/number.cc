#include "sim/units/number.h"

#include <charconv>
#include <cmath>

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
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out.value);
  if (error != std::errc() || !std::isfinite(out.value)) return std::nullopt;
  out.length = static_cast<std::size_t>(end - text.data());
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
