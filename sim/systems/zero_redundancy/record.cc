#include "sim/systems/zero_redundancy/record.h"

#include <vector>

#include "sim/systems/ddp/bucketing.h"
#include "sim/systems/ddp/ddp.h"
#include "sim/systems/ddp/ddp_options.h"
#include "sim/systems/ddp/power_sgd.h"
#include "sim/systems/zero_redundancy/plan.h"
#include "sim/systems/zero_redundancy/zero_redundancy.h"

namespace ddpsim::systems {
namespace {

// DDP's, and its own.
std::span<const KnobRecord> zero_redundancy_knobs() {
  static const std::vector<KnobRecord> knobs = [] {
    std::vector<KnobRecord> all = {
        {"parameters_as_bucket_view", "", "false",
         "one broadcast a rank, of all that it updated, instead of one a parameter", true,
         [](Plan& p) { return Field(&zero_redundancy_of(p).parameters_as_bucket_view); }},
        {"overlap_with_ddp", "", "false",
         "parameters are updated inside DDP's communication hook: not modelled, and refused", false,
         [](Plan& p) { return Field(&zero_redundancy_of(p).overlap_with_ddp); }}};
    for (const KnobRecord& k : ddp_knobs()) all.push_back(k);
    return all;
  }();
  return knobs;
}

constexpr const char* kExecuted =
    "PyTorch 1.13 over Gloo executed (calib/runs); other versions, and NCCL, from source reading";

}  // namespace

SystemRecord zero_redundancy_record() {
  return {.system = kZeroRedundancySystem,
          .aliases = {{"zeroredundancyoptimizer"}},
          .title = "PyTorch DDP with ZeroRedundancyOptimizer",
          .brief = "DDP with ZeroRedundancyOptimizer",
          .versions = true,
          .units = "buckets",
          .does =
              "torch.distributed.optim.ZeroRedundancyOptimizer on DDP: each rank updates its "
              "parameters and broadcasts them",
          .evidence = kExecuted,
          .optimizer_in_shards = true,
          .compiled_whole = true,
          .compiled_in_buckets = true,
          .words = zero_redundancy_words(),
          .knobs = zero_redundancy_knobs(),
          .lower = lower_zero_redundancy,
          .validate = validate_zero_redundancy,
          .check = check_ddp_job,
          .count = [](const Workload& w, const Plan& p) { return steady_buckets(w, p).size(); },
          .operations = ddp_operations,
          .without_inputs = [](const Plan& p) { return ddp_of(p).joined_ranks; },
          .ranked = {{"parameters_as_bucket_view", "true"}},
          .schedule_of = ddp_schedule_of,
          .executed_class = [](const Plan&,
                               int ranks) { return ranks == 4 ? "system_zero_redundancy" : ""; }};
}

}  // namespace ddpsim::systems
