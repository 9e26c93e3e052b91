#include "sim/systems/averaging/record.h"

#include "sim/systems/averaging/averaging.h"
#include "sim/systems/averaging/plan.h"
#include "sim/systems/ddp/record.h"

namespace ddpsim::systems {
namespace {

Field granularity(Plan&) {
  return choice_of<&AveragingPlan::granularity>({"per_parameter", "flat"});
}

std::span<const KnobRecord> averaging_knobs() {
  static const KnobRecord knobs[] = {
      {"granularity", "", "per_parameter", "one all-reduce a parameter, or one for all", true,
       granularity},
      {"async_op", "", "false", "all-reduces are issued before any is waited for", true,
       [](Plan& p) { return Field(&averaging_of(p).async_op); }}};
  return knobs;
}

constexpr const char* kExecutedByMpiToo =
    "PyTorch 1.13 over Gloo executed (calib/runs), mpi4py over Open MPI 4.1.4 too "
    "(calib/mpi-runs); other versions, and NCCL, from source reading";

std::vector<PlanChange> averaging_levers(const Plan& plan, const Workload&) {
  Plan ddp = plan;
  ddp.system = kDdpSystem;
  return {{"DistributedDataParallel instead of plain averaging",
           "--plan pytorch_ddp, without averaging's flags", ddp}};
}
std::string averaging_heading(const Plan& plan, DeviceKind device) {
  return std::string("plain gradient averaging over ") + name_of(backend_of(plan, device)) +
         (averaging_of(plan).granularity == Granularity::Flat ? ", one flat all-reduce"
                                                              : ", one all-reduce per parameter") +
         (averaging_of(plan).async_op ? ", asynchronous" : ", blocking");
}

}  // namespace

SystemRecord averaging_record() {
  return {.system = kAveragingSystem,
          .title = "plain gradient averaging",
          .brief = "averaging",
          .units = "all-reduces",
          .does = "all_reduce of each gradient (or of one flat copy) after backward",
          .evidence = kExecutedByMpiToo,
          .replayed = true,
          .compiled_whole = true,
          .executed_by_mpi = true,
          .gloo_on_gpus = GlooOnGpus::Modelled,
          .words = averaging_words(),
          .knobs = averaging_knobs(),
          .lower = lower_averaging,
          .count =
              [](const Workload& w, const Plan& p) {
                return averaging_of(p).granularity == Granularity::Flat ? 1 : w.arrival.size();
              },
          .levers = averaging_levers,
          .heading = averaging_heading};
}

}  // namespace ddpsim::systems
