#include "sim/systems/data_parallel/record.h"

#include "sim/systems/data_parallel/data_parallel.h"
#include "sim/systems/ddp/record.h"

namespace ddpsim::systems {
namespace {

std::span<const KnobRecord> data_parallel_knobs() {
  return {};
}

std::vector<PlanChange> data_parallel_levers(const Plan& plan, const Workload&) {
  Plan ddp = plan;
  ddp.system = kDdpSystem;
  return {{"DistributedDataParallel instead of nn.DataParallel", "--plan pytorch_ddp", ddp}};
}
Problem validate_data_parallel(const Plan& p, const Workload&, DeviceKind device) {
  if (device != DeviceKind::Gpu || backend_of(p, device) != Backend::Nccl)
    return {"/plan/system",
            "nn.DataParallel copies between the GPUs of one process, over NCCL (on CPUs, and over "
            "other backends: pytorch_ddp)"};
  return {};
}

}  // namespace

SystemRecord data_parallel_record() {
  return {
      .system = kDataParallelSystem,
      .aliases = {{"dp"}, {"dataparallel"}, {"nn.dataparallel"}},
      .title = "PyTorch nn.DataParallel",
      .brief = "nn.DataParallel",
      .versions = true,
      .units = "sums of gradients",
      .does =
          "torch.nn.DataParallel: one process, weights broadcast before forward, gradients summed "
          "on the first GPU",
      .evidence = "schedule from source reading (1.13, 2.7), not executed",
      .schedule = "schedule from source reading (PyTorch 1.13 and 2.7), not executed",
      .shards = true,
      .on_several_hosts = "pytorch_ddp",
      .words = data_parallel_words(),
      .knobs = data_parallel_knobs(),
      .lower = lower_data_parallel,
      .validate = validate_data_parallel,
      .count = [](const Workload& w, const Plan&) { return coalesced_groups(w.tensors).size(); },
      .operations =
          [](const Plan&) {
            return std::vector<Operation>{Operation::Broadcast, Operation::Reduce};
          },
      .work_of_others =
          [](const Workload& w, const StepTimes& t, int ranks) {
            Duration sum;  // the loss of the other replicas' samples, which the master computes
            if (t.layers.empty()) return sum;
            for (std::size_t l = first_loss_layer(w); l < t.layers.size(); ++l)
              sum += (t.layers[l].forward + t.layers[l].backward) * (ranks - 1);
            return sum;
          },
      .levers = data_parallel_levers};
}

}  // namespace ddpsim::systems
