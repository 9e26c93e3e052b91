#include "sim/systems/mirrored/record.h"

#include "sim/systems/mirrored/mirrored.h"
#include "sim/systems/mirrored/plan.h"

namespace ddpsim::systems {
namespace {

Field cross_device_ops(Plan&) {
  return choice_of<&MirroredPlan::cross_device_ops>({"collective_all_reduce", "nccl_all_reduce",
                                                     "hierarchical_copy_all_reduce",
                                                     "reduction_to_one_device"});
}
Field implementation(Plan&) {
  return choice_of<&MirroredPlan::implementation>({"AUTO", "RING", "NCCL"});
}
Field reduce_op(Plan&) {
  return choice_of<&MirroredPlan::mean>({"sum", "mean"});
}
KnobRecord bytes_per_pack() {
  return {"bytes_per_pack",
          "bytes",
          "0",
          "CommunicationOptions: a pack ends with the gradient that makes it larger; 0: one pack, "
          "after backward",
          true,
          [](Plan& p) { return Field(&mirrored_of(p).bytes_per_pack); },
          {0, 1 << 20, 2 << 20, 5 << 20, 10 << 20, 25 << 20, 50 << 20, 100 << 20}};
}
KnobRecord implementation_knob(const char* initially) {
  return {"implementation",
          "",
          initially,
          "CommunicationOptions: NCCL, or TensorFlow's own RING over gRPC, which AUTO is, too",
          false,
          implementation};
}
KnobRecord reduce_op_knob() {
  return {
      "reduce_op", "",
      "sum",       "sum, as Keras asks for (it has divided the loss), or mean: each sum is divided",
      false,       reduce_op};
}
KnobRecord eager_knob() {
  return {"eager", "",
          "false", "a loop without tf.function: gradients are reduced one by one after backward",
          false,   [](Plan& p) { return Field(&mirrored_of(p).eager); }};
}

std::span<const KnobRecord> mirrored_knobs() {
  static const KnobRecord knobs[] = {
      bytes_per_pack(),
      {"cross_device_ops", "", "collective_all_reduce",
       "tf.distribute.CrossDeviceOps: how gradients are summed (before 2.4: nccl_all_reduce)",
       false, cross_device_ops},
      {"num_packs", "packs", "1",
       "of nccl_all_reduce and hierarchical_copy_all_reduce: parts of the flat copy of all "
       "gradients; 0: each gradient by itself",
       false, [](Plan& p) { return Field(&mirrored_of(p).num_packs); }},
      implementation_knob("NCCL (CPUs: RING)"),
      reduce_op_knob(),
      eager_knob()};
  return knobs;
}

std::span<const KnobRecord> multi_worker_mirrored_knobs() {
  static const KnobRecord knobs[] = {bytes_per_pack(), implementation_knob("AUTO"),
                                     reduce_op_knob(), eager_knob()};
  return knobs;
}

constexpr const char* kFromTensorflow =
    "schedule from source reading (TensorFlow 2.x), not executed; computation takes what it takes "
    "in PyTorch";

std::size_t packs_of(const Workload& w, const Plan& p) {
  const MirroredPlan& m = mirrored_of(p);
  const bool each =
      m.cross_device_ops == CrossDeviceOps::ReductionToOneDevice || m.eager || m.num_packs == 0;
  if (each) return w.arrival.size();
  return m.cross_device_ops == CrossDeviceOps::CollectiveAllReduce
             ? tensorflow_packs(w, p).size()
             : static_cast<std::size_t>(m.num_packs);
}
std::vector<Operation> mirrored_operations(const Plan& p) {
  const CrossDeviceOps ops = mirrored_of(p).cross_device_ops;
  if (ops == CrossDeviceOps::CollectiveAllReduce || ops == CrossDeviceOps::NcclAllReduce)
    return {Operation::AllReduce};
  return {Operation::Broadcast, Operation::Reduce};
}
// TensorFlow's ring is a ring over TCP: ddpsim's own. AUTO gives no hint, and then it is that
// (collective_param_resolver_local.cc, AssignCollectiveType).
std::optional<Backend> mirrored_backend(const Plan& plan, DeviceKind device) {
  const bool one_host = plan.system == kMirroredSystem;
  const TensorflowCollective asked = mirrored_of(plan).implementation.value_or(
      one_host ? TensorflowCollective::Nccl : TensorflowCollective::Auto);
  if (device == DeviceKind::Cpu || asked != TensorflowCollective::Nccl) return Backend::Tcp;
  return std::nullopt;
}

}  // namespace

SystemRecord mirrored_record() {
  return {
      .system = kMirroredSystem,
      .aliases = {{"mirroredstrategy"}, {"tf.distribute.mirroredstrategy"}},
      .title = "TensorFlow MirroredStrategy",
      .brief = "MirroredStrategy",
      .units = "packs",
      .does =
          "tf.distribute.MirroredStrategy: gradients of one host's GPUs in packs, all-reduced "
          "after backward",
      .evidence = "schedule from source reading (TensorFlow 2.x), not executed",
      .schedule = kFromTensorflow,
      .on_several_hosts = "multi_worker_mirrored",
      .words = mirrored_words(),
      .knobs = mirrored_knobs(),
      .lower = lower_mirrored,
      .validate = validate_mirrored,
      .check = [](const Plan& p, const Workload&, DeviceKind, int ranks,
                  int per_host) { return check_mirrored_ranks(p, ranks, per_host); },
      .count = packs_of,
      .operations = mirrored_operations,
      .groups = mirrored_groups,
      .backend = mirrored_backend,
      .ranked = {{"bytes_per_pack", "26214400"}, {"cross_device_ops", "reduction_to_one_device"}}};
}

SystemRecord multi_worker_mirrored_record() {
  return {.system = kMultiWorkerMirroredSystem,
          .aliases = {{"multiworkermirroredstrategy"},
                      {"mwms"},
                      {"tf.distribute.multiworkermirroredstrategy"}},
          .title = "TensorFlow MultiWorkerMirroredStrategy",
          .brief = "MultiWorkerMirroredStrategy",
          .units = "packs",
          .does =
              "tf.distribute.MultiWorkerMirroredStrategy: the same on several hosts, over gRPC "
              "(RING) unless NCCL is asked for",
          .evidence = "schedule from source reading (TensorFlow 2.x), not executed",
          .schedule = kFromTensorflow,
          .words = mirrored_words(),
          .knobs = multi_worker_mirrored_knobs(),
          .lower = lower_mirrored,
          .validate = validate_mirrored,
          .count = packs_of,
          .backend = mirrored_backend,
          .ranked = {{"implementation", "NCCL"}, {"bytes_per_pack", "26214400"}}};
}

}  // namespace ddpsim::systems
