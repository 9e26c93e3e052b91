// What every fit reads from a Run's samples.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "calib/fit/shapes.h"
#include "sim/analysis/compare.h"
#include "sim/model/error.h"
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

// For notes.
inline std::string number(const char* format, double v) {
  char text[64];
  std::snprintf(text, sizeof text, format, v);
  return text;
}

}  // namespace ddpsim::calib
