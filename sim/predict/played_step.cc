#include "sim/predict/played_step.h"

#include <string_view>

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

std::string PlayedStep::name_of_carried(std::uint32_t i) const {
  std::int64_t bytes = op(i).bytes;
  if (carries_bucket(op(i).kind))
    return "bucket " + std::to_string(op(i).subject) + " (" + to_string(Bytes{bytes}) + ")";
  std::string name = name_of(program(), program().steady, i);
  if (op(i).kind.of == Of::Label)
    return program().labels[op(i).subject] + " (" + to_string(Bytes{bytes}) + ")";
  constexpr std::string_view kPrefix = "allreduce/";
  return name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
}

}  // namespace ddpsim::predict
