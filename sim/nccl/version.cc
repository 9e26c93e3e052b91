#include "sim/nccl/version.h"

namespace ddpsim::nccl {

static_assert(rows_in_order_of_time(kDifferences),
              "a row for each Change, in its order, older ones first");

std::optional<Version> parse_version(const std::string& text) {
  const auto release = parse_release(text);
  if (!release || !text.starts_with("2.")) return std::nullopt;
  return Version(release->minor, release->patch);
}

std::string to_string(Version v) {
  return "2." + std::to_string(v.release_.minor);
}

}  // namespace ddpsim::nccl
