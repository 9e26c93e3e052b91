#include "sim/units/release.h"

#include <cstdint>

#include "sim/units/number.h"

namespace ddpsim {

std::string to_string(Release r) {
  std::string out = std::to_string(r.major) + "." + std::to_string(r.minor);
  return r.patch == Release::kLast ? out : out + "." + std::to_string(r.patch);
}

std::optional<Release> parse_release(std::string_view text) {
  Release r(0, 0, Release::kLast);
  int* const parts[] = {&r.major, &r.minor, &r.patch};
  for (std::size_t k = 0; k < 3; ++k) {
    const auto count = leading_count(text);
    if (!count || count->value >= Release::kLast) return std::nullopt;
    *parts[k] = static_cast<int>(count->value);
    text.remove_prefix(count->length);
    if (text.empty()) return k > 0 ? std::optional(r) : std::nullopt;
    if (k == 2) break;
    if (text.front() != '.') return std::nullopt;
    text.remove_prefix(1);
  }
  return text.front() == '-' || text.front() == '+' ? std::optional(r) : std::nullopt;
}

}  // namespace ddpsim
