// The knob of a release: one for all version types of units/release.h.
#pragma once

#include <string>

#include "sim/systems/base/record.h"

namespace ddpsim::systems {

// `kOf` finds the version in a plan, `kSet` puts another there.
template <auto kOf, auto kSet>
Field release_field(Plan&) {
  return Released{[](const Plan& p) { return kOf(p).name(); },
                  [](Plan& p, const std::string& text) {
                    using Version = decltype(kOf(p));
                    const auto version = Version::parse(text);
                    if (version) kSet(p, *version);
                    return version ? std::string() : Version::refusal(text);
                  }};
}

}  // namespace ddpsim::systems
