// A steady step that was simulated, with its Program: what explanations read.
#pragma once

#include <cstdint>

#include "sim/predict/predict.h"

namespace ddpsim::predict {

class PlayedStep {
 public:
  PlayedStep(const Question& q, const Options& options);

  Duration period() const { return played_.period; }
  const Program& program() const { return played_.program; }
  std::uint32_t ops() const { return ops_; }  // of a rank
  std::size_t classes() const { return classes_; }
  std::size_t last_class() const { return last_class_; }  // whose rank ends last
  const Op& op(std::size_t i) const { return played_.program.steady.ops[i]; }
  const Span& span(std::size_t rank_class, std::size_t i) const {
    return played_.simulation.spans[rank_class * ops_ + i];
  }
  TimePoint from() const { return played_.simulation.spans_from; }
  // ps after the step's start.
  std::int64_t begin(const Span& s) const { return s.begin.ps - from().ps; }
  std::int64_t end(const Span& s) const { return s.end.ps - from().ps; }
  // Of the step itself, whose spans these are: period() may be the mean of several.
  Duration length() const { return played_.simulation.steps.back().end - from(); }
  std::size_t counted() const { return played_.counted; }
  // What ddpsim predict says.
  const analysis::Summary& summary() const { return played_.summary; }

 private:
  SteadyStep played_;
  std::uint32_t ops_ = 0;
  std::size_t classes_ = 0;
  std::size_t last_class_ = 0;
};

}  // namespace ddpsim::predict
