// What every fit reads from a Run's samples.
#pragma once

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "calib/fit/shapes.h"
#include "sim/analysis/compare.h"
#include "sim/model/error.h"
#include "sim/model/profile.h"
#include "sim/model/run.h"

namespace ddpsim::calib {

inline double median_ps(const Sample& s) {
  std::vector<double> v;
  for (Duration d : s.durations) v.push_back(static_cast<double>(d.ps));
  return analysis::median(v);
}

inline std::int64_t parameter(const Sample& s, const char* name) {
  auto it = s.parameters.find(name);
  if (it == s.parameters.end())
    throw InputError{"sample " + s.op, std::string("lacks the parameter \"") + name + "\""};
  return it->second;
}

// A convolution as PyTorch computes it unless it is told to try: what is fitted.
inline bool by_heuristics(const Sample& s) {
  auto mode = s.parameters.find("mode");
  if (mode == s.parameters.end()) return true;
  if (mode->second != static_cast<std::int64_t>(ConvMode::Heuristics) &&
      mode->second != static_cast<std::int64_t>(ConvMode::Benchmark))
    throw InputError{"sample " + s.op, "mode is 0 or 1"};
  return mode->second == static_cast<std::int64_t>(ConvMode::Heuristics);
}

// What products (0) and what memory decides (1) lose beside a communication kernel's stand-in, by
// its blocks: shares of their time.
using Losses = std::map<std::int64_t, std::array<std::vector<double>, 2>>;
inline Losses losses_beside(const std::vector<const Run*>& runs) {
  std::map<std::int64_t, double> alone;  // by victim
  Losses lost;
  for (bool beside : {false, true})
    for (const Run* run : runs)
      for (const Sample& s : run->samples) {
        if (s.op != "interference" || s.durations.empty()) continue;
        const std::int64_t victim = parameter(s, "victim");
        const std::int64_t blocks = parameter(s, "blocks");
        if (!beside && blocks == 0) alone[victim] = median_ps(s);
        if (beside && blocks > 0 && alone.count(victim))
          lost[blocks][victim == 2].push_back(std::max(0.0, 1 - alone[victim] / median_ps(s)));
      }
  return lost;
}
// low = takes most.
inline Range hold_of(const std::vector<double>& lost) {
  return {analysis::percentile(lost, 90), analysis::median(lost), analysis::percentile(lost, 10)};
}

// For notes.
inline std::string number(const char* format, double v) {
  char text[64];
  std::snprintf(text, sizeof text, format, v);
  return text;
}

}  // namespace ddpsim::calib
