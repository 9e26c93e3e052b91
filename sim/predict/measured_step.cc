#include "sim/predict/measured_step.h"

#include <algorithm>
#include <cstdio>

#include "sim/cost/roofline.h"
#include "sim/systems/base/builder.h"

namespace ddpsim::predict {
namespace {

Duration predicted_step(const MeasuredWork& of, const Profile& p) {
  Workload plain = of.workload;
  plain.measured_step.reset();
  return one_rank_step(step_times(plain, p, Level::Mid), of.micro_steps);
}

std::string factor_text(const MeasuredStep& m) {
  char text[32];
  std::snprintf(text, sizeof text, "x%.3g", m.factor);
  return text;
}

}  // namespace

Duration one_rank_step(const StepTimes& t, int micro_steps, double slow) {
  const Duration passes = scale((t.forward + t.backward) * micro_steps, slow);
  const Duration update = scale(t.optimizer, slow);
  const Duration loop = scale(t.loop, slow);
  if (!t.host) return passes + loop + update;
  const Duration launches = (t.host->forward + t.host->backward) * micro_steps;
  if (!t.waits_before_update && !t.waits_after_update)
    return std::max(passes + loop + update, launches + t.host->optimizer);
  // Where the host has waited, the device waits for what it launches next.
  const Duration head = systems::forward_of(t).head;
  if (t.waits_after_update)
    return std::max(head + passes, launches) + loop + update +
           (t.waits_before_update ? t.host->optimizer : Duration{});
  return t.host->optimizer + loop + std::max(std::max(update, head) + passes, launches);
}

Workload scaled_to(Duration measured, const MeasuredWork& of, const MeasuredWork& now,
                   const Profile& p) {
  MeasuredStep m;
  m.measured = measured;
  m.predicted = predicted_step(of, p);
  m.factor = measured / m.predicted;
  m.device = p.kind;
  m.carried = predicted_step(now, p) != m.predicted;
  Workload out = now.workload;
  out.measured_step = m;
  return out;
}

std::string sentence(const MeasuredStep& m) {
  return "computation " + factor_text(m) + ": measured " + to_string(m.measured) + " on one " +
         (m.device == DeviceKind::Gpu ? "GPU" : "CPU") + ", predicted " + to_string(m.predicted) +
         (m.carried ? "; the factor of that work, carried over to this" : "");
}

std::string doubt(const MeasuredStep& m) {
  constexpr double kMost = 4;
  if (m.factor <= kMost && m.factor >= 1 / kMost) return {};
  return "the measured step is " + factor_text(m) +
         " the predicted one, more than 4 times as long or as short: it is probably of another "
         "batch, precision, number of micro-steps or device";
}

}  // namespace ddpsim::predict
