#include "sim/report/diagnosis_text.h"

#include <fmt/format.h>

#include "sim/report/text.h"

namespace ddpsim::report {

std::string decision_sentence(const predict::Diagnosis& d) {
  if (const auto& s = d.straggler)
    return fmt::format(
        "rank {} decides, which computes {:g} times as long: the others wait for it in every "
        "collective; were it as fast as they are, the step would be {:.1f} % shorter ({})",
        s->rank, s->factor, 100 * fraction(d.step - s->step, d.step), to_string(s->step));
  const auto resource = d.resource();
  if (!resource)
    return "no single resource decides: none of them, 10 % faster, shortens the step by 0.2 %";
  const Duration step = d.sensitivity.front().step;
  return fmt::format("{} decides: 10 % faster, and the step is {:.1f} % shorter ({})",
                     predict::name_of(*resource), 100 * fraction(d.step - step, d.step),
                     to_string(step));
}

std::string decider(const predict::Diagnosis& d) {
  if (d.straggler) return fmt::format("rank {}, slower than the others", d.straggler->rank);
  const auto resource = d.resource();
  return resource ? predict::name_of(*resource) : "no single resource";
}

}  // namespace ddpsim::report
