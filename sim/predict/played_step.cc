#include "sim/predict/played_step.h"

namespace ddpsim::predict {

PlayedStep::PlayedStep(const Question& q, const Options& options)
    : played_(steady_step(q, Level::Mid, options)),
      ops_(static_cast<std::uint32_t>(played_.program.steady.ops.size())) {
  classes_ = played_.simulation.spans.size() / ops_;
  for (std::size_t c = 0; c < classes_; ++c)
    if (span(c, ops_ - 1).end > span(last_class_, ops_ - 1).end) last_class_ = c;
}

analysis::Summary PlayedStep::summary() const {
  Run run;
  run.steps.push_back({StepKind::Steady, period()});
  run.spans_from = from();
  const Span* first = &span(last_class_, 0);
  run.spans.assign(first, first + ops_);
  return analysis::summarize(run);
}

}  // namespace ddpsim::predict
