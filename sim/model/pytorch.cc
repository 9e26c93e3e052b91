#include "sim/model/pytorch.h"

namespace ddpsim::pytorch {
namespace {

static_assert(rows_in_order(kDifferences), "a row for each Change, in its order");
static_assert(std::is_sorted(kReleases.begin(), kReleases.end(),
                             [](const Known& a, const Known& b) { return a.release <= b.release; }),
              "releases from old to new");

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
  return known(difference_of(c).since).name;
}

std::optional<Version> parse_version(std::string_view text) {
  for (const Known& k : kReleases) {
    if (!text.starts_with(k.name)) continue;
    const std::string_view rest = text.substr(std::string_view(k.name).size());
    if (rest.empty() || rest.front() == '.' || rest.front() == '+')
      return Version{k.release.major, k.release.minor};
  }
  return std::nullopt;
}

}  // namespace ddpsim::pytorch
