#include "sim/explain/played_step.h"

namespace ddpsim::predict {

PlayedStep::PlayedStep(const Question& q, const Options& options)
    : played_(steady_step(q, Level::Mid, options)),
      ops_(static_cast<std::uint32_t>(played_.program.steady.ops.size())) {
  classes_ = played_.simulation.spans.size() / ops_;
  for (std::size_t c = 0; c < classes_; ++c)
    if (span(c, ops_ - 1).end > span(last_class_, ops_ - 1).end) last_class_ = c;
}

}  // namespace ddpsim::predict
