// diagnosis: says which cause decides a step, by what the step gains where that cause alone is
// less. The one answer for predict, explain, rank-plans and the page.
#pragma once

#include <optional>
#include <vector>

#include "sim/predict/resources.h"

namespace ddpsim::predict {

inline constexpr double kFaster = 1.1;
// A gain below this share of a step decides nothing.
inline constexpr double kWorthSaying = 0.002;

struct Sensitivity {
  Resource resource = Resource::Arithmetic;
  Duration step;  // with this resource 10 % faster
};

// A rank that computes longer than the fastest, and the step without any such rank.
struct Straggler {
  int rank = 0;
  double factor = 1;
  Duration step;
};

struct Diagnosis {
  Duration step;                         // as it is
  std::optional<Straggler> straggler;    // the slowest, if the step is measurably shorter without
                                         // it: then it decides
  std::vector<Sensitivity> sensitivity;  // shortest step first

  bool worth_saying(Duration shorter) const {
    return static_cast<double>((step - shorter).ps) >= kWorthSaying * static_cast<double>(step.ps);
  }
  // The resource that gains most; none: a straggler decides, or none gains enough.
  std::optional<Resource> resource() const {
    if (straggler || !worth_saying(sensitivity.front().step)) return std::nullopt;
    return sensitivity.front().resource;
  }
};

// The question's fabric with a faster network, and with faster hosts: one search for channels each.
struct OtherFabrics {
  std::optional<OtherFabric> network;
  std::optional<OtherFabric> inside;
};
// Each resource that the question has, 10 % faster: one simulation each. Shortest step first.
// `kept`: of questions about the same fabric before this one.
std::vector<Sensitivity> sensitivities(const Question& q, const Options& options,
                                       OtherFabrics& kept);

// `step`: the question's own, with these options. `kept`: as above; null = none.
// REQUIRES: check(q) found nothing.
Diagnosis diagnose(const Question& q, Duration step, const Options& options = {},
                   OtherFabrics* kept = nullptr);

}  // namespace ddpsim::predict
