#include "sim/nccl/version.h"

#include "sim/units/number.h"

namespace ddpsim::nccl {
namespace {

constexpr bool in_order_of_changes() {
  for (std::size_t i = 0; i < kDifferences.size(); ++i)
    if (kDifferences[i].change != static_cast<Change>(i) ||
        (i > 0 && kDifferences[i].since < kDifferences[i - 1].since))
      return false;
  return true;
}
static_assert(in_order_of_changes(), "a row for each Change, in its order, older ones first");

}  // namespace

std::optional<Version> parse_version(const std::string& text) {
  std::string_view rest = text;
  if (!rest.starts_with("2.")) return std::nullopt;
  rest.remove_prefix(2);
  auto minor = leading_count(rest);
  if (!minor || minor->value > INT32_MAX) return std::nullopt;
  Version version{static_cast<int>(minor->value)};
  rest.remove_prefix(minor->length);
  if (rest.empty()) return version;
  if (!rest.starts_with('.')) return std::nullopt;
  rest.remove_prefix(1);
  auto patch = leading_count(rest);
  if (!patch || patch->value > INT32_MAX) return std::nullopt;
  version = {static_cast<int>(minor->value), static_cast<int>(patch->value)};
  rest.remove_prefix(patch->length);
  // "+cuda13.0" and the like may follow.
  if (!rest.empty() && rest.front() != '-' && rest.front() != '+') return std::nullopt;
  return version;
}

std::string to_string(Version v) {
  return "2." + std::to_string(v.release_.minor);
}

}  // namespace ddpsim::nccl
