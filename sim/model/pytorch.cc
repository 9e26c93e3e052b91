#include "sim/model/pytorch.h"

#include "sim/units/number.h"

namespace ddpsim::pytorch {
namespace {

constexpr bool in_order() {
  for (std::size_t i = 0; i < kDifferences.size(); ++i)
    if (kDifferences[i].change != static_cast<Change>(i)) return false;
  for (std::size_t i = 1; i < kReleases.size(); ++i)
    if (kReleases[i].release <= kReleases[i - 1].release) return false;
  return true;
}
static_assert(in_order(), "a row for each Change, in its order; releases from old to new");

constexpr const Known& known(Release release) {
  for (const Known& k : kReleases)
    if (k.release == release) return k;
  return kReleases.back();
}

}  // namespace

const char* name_of(Version v) {
  return known(v.release_).name;
}

const char* shipped_nccl(Version v) {
  return known(v.release_).nccl;
}

const char* first_with(Change c) {
  return known(kDifferences[static_cast<std::size_t>(c)].since).name;
}

std::optional<Version> parse_version(std::string_view text) {
  const auto major = leading_count(text);
  if (!major || major->value > 9) return std::nullopt;
  text.remove_prefix(major->length);
  if (!text.starts_with('.')) return std::nullopt;
  text.remove_prefix(1);
  const auto minor = leading_count(text);
  if (!minor || minor->value > 999) return std::nullopt;
  text.remove_prefix(minor->length);
  const Release release{static_cast<int>(major->value), static_cast<int>(minor->value)};
  const bool ends = text.empty() || std::string_view(".+ab").find(text.front()) != text.npos;
  if (!ends || known(release).release != release) return std::nullopt;
  return Version{release.major, release.minor};
}

}  // namespace ddpsim::pytorch
