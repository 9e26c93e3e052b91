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
  std::int64_t v = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return v;
}

}  // namespace ddpsim
