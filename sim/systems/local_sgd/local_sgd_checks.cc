#include "sim/systems/ddp/ddp.h"
#include "sim/systems/ddp/plan.h"
#include "sim/systems/local_sgd/local_sgd.h"
#include "sim/systems/local_sgd/plan.h"

namespace ddpsim::systems {

namespace {

Problem check_averaging(const LocalSgdPlan& l, std::int64_t steps) {
  const auto& periods = l.averaging_periods;
  if (periods.empty() && l.averaging_group_sizes.empty()) return {};
  if (periods.size() != l.averaging_group_sizes.size())
    return {"/plan/averaging_group_sizes",
            "one for each of averaging_periods: " + std::to_string(periods.size()) + ", not " +
                std::to_string(l.averaging_group_sizes.size())};
  if (periods.size() > 6) return {"/plan/averaging_periods", "at most 6 levels"};
  if (periods.back() != steps)
    return {"/plan/averaging_periods",
            "the last is the round's, of accumulation_steps=" + std::to_string(steps) + " batches"};
  for (std::size_t i = 0; i < periods.size(); ++i) {
    const std::string at = "/" + std::to_string(i);
    if (periods[i] < 1 || steps % periods[i] != 0)
      return {"/plan/averaging_periods" + at,
              "divides the last, so that every round is alike (" + std::to_string(steps) + ")"};
    if (l.averaging_group_sizes[i] < 2)
      return {"/plan/averaging_group_sizes" + at, "at least 2 ranks"};
    if (i > 0 && (periods[i] <= periods[i - 1] ||
                  l.averaging_group_sizes[i] <= l.averaging_group_sizes[i - 1]))
      return {
          "/plan/averaging_periods" + at,
          "periods and groups grow from level to level, as in PyTorch's example (4: 8, 16: 16)"};
  }
  return {};
}

}  // namespace

Problem validate_local_sgd(const Plan& p, const Workload& w, DeviceKind) {
  if (Problem problem = check_buckets(p)) return problem;
  const LocalSgdPlan& l = local_sgd_of(p);
  const LocalSgdPlan plain;
  const bool diloco = local_sgd_of(p).outer_optimizer != OuterOptimizer::None;
  if (l.subgroup_size < 0 || l.subgroup_size == 1 || l.subgroup_size > 1'000'000)
    return {"/plan/subgroup_size", "0 (gradients stay on their rank, without DDP) or 2 and more"};
  if (l.subgroup_size == 0)
    for (auto [knob, set] :
         {std::pair{"start_localSGD_iter", l.start_localSGD_iter != plain.start_localSGD_iter},
          std::pair{"post_local_gradient_allreduce", !l.post_local_gradient_allreduce},
          std::pair{"bucket_cap_mb", ddp_of(p).bucket_cap_mb.has_value()},
          std::pair{"first_bucket_bytes",
                    ddp_of(p).first_bucket_bytes != DdpPlan{}.first_bucket_bytes},
          std::pair{"broadcast_buffers", !ddp_of(p).broadcast_buffers},
          std::pair{"gradient_as_bucket_view", ddp_of(p).gradient_as_bucket_view}})
      if (set)
        return {std::string("/plan/") + knob,
                "is DDP's, with PostLocalSGDState's subgroup (--set subgroup_size=RANKS)"};
  if (diloco && (l.subgroup_size > 0 || !l.averaging_periods.empty()))
    return {"/plan/outer_optimizer",
            "DiLoCo's takes the place of subgroups and averaging; leave out one of the two"};
  if (l.start_localSGD_iter < 2 || l.start_localSGD_iter > 1'000'000'000)
    return {
        "/plan/start_localSGD_iter",
        "2 to 1e9 steps that are reduced over all ranks: a round is of steps after DDP has made "
        "its buckets"};
  if (Problem problem = check_averaging(l, p.accumulation_steps)) return problem;
  if (l.subgroup_size > 0 && w.arrival.size() != w.tensors.size())
    return {"/plan/subgroup_size", "parameters without a gradient are modelled without subgroups"};
  if (loop_work(w).clip > 0 || loop_work(w).unscale > 0)
    return {"/workload/loop",
            "is modelled once a step, and a round of local SGD has several: without clipping and "
            "without a GradScaler (--set workload.loop={}, workload.precision=bf16)"};
  for (const Tensor& t : w.tensors)
    if (t.dtype != w.tensors.front().dtype)
      return {"/plan/system",
              "parameters of several types, whose flat copy is cast, are not "
              "modelled for local_sgd"};
  return {};
}

}  // namespace ddpsim::systems
