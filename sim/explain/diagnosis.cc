#include "sim/explain/diagnosis.h"

#include <algorithm>

namespace ddpsim::predict {

std::vector<Sensitivity> sensitivities(const Question& q, const Options& options,
                                       OtherFabrics& kept) {
  std::vector<Sensitivity> out;
  for (Resource r : kResources) {
    if (r == Resource::Input &&
        (!q.scenario.input || q.scenario.input->samples_per_s == 0 || options.program))
      continue;
    if (r == Resource::Host && q.profile.kind == DeviceKind::Cpu) continue;  // it computes
    if (r == Resource::Sockets && !copied_by_threads(q)) continue;
    out.push_back({r, step_if_faster(q, r, kFaster, options,
                                     r == Resource::Network ? &kept.network : &kept.inside)});
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Sensitivity& a, const Sensitivity& b) { return a.step < b.step; });
  return out;
}

Diagnosis diagnose(const Question& q, Duration step, const Options& options, OtherFabrics* kept) {
  OtherFabrics own;
  Diagnosis out{step, {}, sensitivities(q, options, kept ? *kept : own)};
  if (auto slow = slowest_rank(q.scenario)) {
    Scenario even = q.scenario;
    even.slow_ranks.clear();
    const Duration without =
        steady_period({q.workload, q.fabric, q.profile, even}, Level::Mid, options);
    if (out.worth_saying(without)) out.straggler = Straggler{slow->first, slow->second, without};
  }
  return out;
}

}  // namespace ddpsim::predict
