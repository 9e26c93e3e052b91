#include "sim/systems/local_sgd/record.h"

#include <vector>

#include "sim/systems/ddp/ddp.h"
#include "sim/systems/local_sgd/local_sgd.h"
#include "sim/systems/local_sgd/plan.h"

namespace ddpsim::systems {
namespace {

// Of subgroups.
KnobRecord ddp_knob(std::string_view name) {
  for (const KnobRecord& k : ddp_knobs())
    if (name == k.name) {
      KnobRecord mine = k;
      mine.searched = false;
      return mine;
    }
  return ddp_knobs().front();  // REQUIRES: one of them
}

std::span<const KnobRecord> local_sgd_knobs() {
  static const std::vector<KnobRecord> knobs = {
      {"outer_optimizer", "", "none",
       "none: parameters are averaged after each round; nesterov: DiLoCo's outer step", false,
       [](Plan&) {
         return Field(choice_of<&LocalSgdPlan::outer_optimizer>({"none", "nesterov"}));
       }},
      {"subgroup_size", "ranks", "0",
       "post-local SGD: each batch is a step of DDP, whose gradients are reduced in groups of so "
       "many ranks that follow one another; 0: without DDP",
       false, [](Plan& p) { return Field(&local_sgd_of(p).subgroup_size); }},
      {"start_localSGD_iter", "steps", "100",
       "of subgroups: steps before, which are reduced over all ranks; a prediction is of a round "
       "after them",
       false, [](Plan& p) { return Field(&local_sgd_of(p).start_localSGD_iter); }},
      {"post_local_gradient_allreduce", "", "true",
       "of subgroups: false: gradients are copied into DDP's buckets and stay on their rank", false,
       [](Plan& p) { return Field(&local_sgd_of(p).post_local_gradient_allreduce); }},
      {"averaging_periods", "steps", "none",
       "HierarchicalModelAverager: batches after which groups average, from the smallest; the last "
       "is accumulation_steps",
       false, [](Plan& p) { return Field(&local_sgd_of(p).averaging_periods); }},
      {"averaging_group_sizes", "ranks", "none",
       "ranks of the groups that average after each of averaging_periods; the last is all", false,
       [](Plan& p) { return Field(&local_sgd_of(p).averaging_group_sizes); }},
      ddp_knob("bucket_cap_mb"),
      ddp_knob("first_bucket_bytes"),
      ddp_knob("broadcast_buffers"),
      ddp_knob("gradient_as_bucket_view")};
  return knobs;
}

}  // namespace

SystemRecord local_sgd_record() {
  return {.system = kLocalSgdSystem,
          .aliases = {{"localsgd"}, {"diloco", "outer_optimizer", "nesterov"}},
          .title = "local SGD",
          .brief = "local SGD",
          .units = "all-reduces",
          .does =
              "ranks train alone for accumulation_steps batches, then average weights, or take "
              "DiLoCo's outer step",
          .evidence =
              "averaging and post-local SGD of PyTorch 1.13 over Gloo executed (calib/runs); "
              "DiLoCo from source reading (torchft, 2025), never executed",
          .schedule =
              "averaging and post-local SGD executed of PyTorch 1.13 over Gloo, DiLoCo from source "
              "reading (torchft, 2025), never executed. A step is a round",
          .words = local_sgd_words(),
          .knobs = local_sgd_knobs(),
          .lower = lower_local_sgd,
          .validate = validate_local_sgd,
          .check = [](const Plan& p, const Workload&, DeviceKind, int ranks,
                      int per_host) { return check_local_sgd_ranks(p, ranks, per_host); },
          .operations =
              [](const Plan& p) {
                std::vector<Operation> out{Operation::AllReduce};
                if (local_sgd_of(p).subgroup_size > 0) out.push_back(Operation::Broadcast);
                return out;
              },
          .groups = local_sgd_groups,
          .updates = [](const Plan& p) { return p.accumulation_steps; },
          .ranked = {{"outer_optimizer", "nesterov"}},
          .executed_class = [](const Plan&, int) { return "system_local_sgd"; }};
}

}  // namespace ddpsim::systems
