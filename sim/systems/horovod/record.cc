#include "sim/systems/horovod/record.h"

#include "sim/systems/base/released.h"
#include "sim/systems/horovod/horovod.h"
#include "sim/systems/horovod/plan.h"

namespace ddpsim::systems {
namespace {

Field horovod_op(Plan&) {
  return choice_of<&HorovodPlan::adasum>({"average", "adasum"});
}
Field horovod_compression(Plan&) {
  return choice_of<&HorovodPlan::fp16_compression>({"none", "fp16"});
}
horovod::Version horovod_release_of(const Plan& p) {
  return horovod_of(p).release;
}
void set_horovod_release(Plan& p, horovod::Version v) {
  set_release(horovod_of(p), v);
}
const char* horovod_schedule_of(const Plan& plan) {
  return horovod_of(plan).release == HorovodPlan{}.release
             ? ""
             : "what is fused differs from step to step: the step and its parts are the mean of "
               "16, the times of reductions those of the last; decided as in recordings of Horovod "
               "0.28 over Open MPI on CPUs, and what the plan's release does otherwise, from "
               "source reading; never executed over NCCL";
}

// The release is read first: it brings defaults of others.
std::span<const KnobRecord> horovod_knobs() {
  static const KnobRecord knobs[] = {
      {"horovod", "release", "0.28.1",
       "Horovod's release, 0.20.0 to 0.28.1; 0.20's defaults are 5 ms and 67108864 bytes", false,
       release_field<horovod_release_of, set_horovod_release>},
      {"HOROVOD_CYCLE_TIME",
       "ms",
       "1",
       "the background thread wakes no more often than this",
       true,
       [](Plan& p) { return Field(&horovod_of(p).cycle_time); },
       {0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50}},
      {"HOROVOD_FUSION_THRESHOLD",
       "bytes",
       "134217728",
       "what is ready in a cycle is reduced together up to this size; 0: each by itself",
       true,
       [](Plan& p) { return Field(&horovod_of(p).fusion_threshold); },
       {1 << 20, 2 << 20, 4 << 20, 8 << 20, 16 << 20, 32 << 20, 64 << 20, 128 << 20, 256 << 20,
        512 << 20}},
      {"HOROVOD_CACHE_CAPACITY", "tensors", "1024",
       "tensors that ranks agree on by a bit each; 0: rank 0 gathers names in every cycle", false,
       [](Plan& p) { return Field(&horovod_of(p).cache_capacity); }},
      {"HOROVOD_BATCH_D2D_MEMCOPIES", "", "true",
       "GPU: one kernel copies up to 160 tensors into the fusion buffer", false,
       [](Plan& p) { return Field(&horovod_of(p).batch_d2d_memcopies); }},
      {"HOROVOD_HIERARCHICAL_ALLREDUCE", "", "false",
       "GPU: NCCL reduces and scatters in a host, MPI all-reduces among hosts, NCCL gathers", false,
       [](Plan& p) { return Field(&horovod_of(p).hierarchical_allreduce); }},
      {"HOROVOD_TORUS_ALLREDUCE", "", "false", "GPU: the same, NCCL all-reduces among hosts, too",
       false, [](Plan& p) { return Field(&horovod_of(p).torus_allreduce); }},
      {"HOROVOD_NUM_NCCL_STREAMS", "streams", "1",
       "GPU: reductions take turns on so many streams, each with a communicator and a fusion "
       "buffer",
       false, [](Plan& p) { return Field(&horovod_of(p).num_nccl_streams); }},
      {"HOROVOD_ENABLE_ASYNC_COMPLETION", "", "false",
       "GPU: the optimizer waits on the device for what is reduced, not on the host (0.23)", false,
       [](Plan& p) { return Field(&horovod_of(p).enable_async_completion); }},
      {"HOROVOD_DISABLE_GROUP_FUSION", "", "false", "a group is not fused with others", false,
       [](Plan& p) { return Field(&horovod_of(p).disable_group_fusion); }},
      {"compression", "", "none", "gradients are reduced in half precision (hvd.Compression)",
       false, horovod_compression},
      {"groups", "", "0",
       "parameters in so many groups, each requested when its last gradient is there", false,
       [](Plan& p) { return Field(&horovod_of(p).groups); }},
      {"op", "", "average",
       "adasum: each hook updates its parameter; hosts exchange halves of the changes (hvd.Adasum)",
       false, horovod_op}};
  return knobs;
}

}  // namespace

SystemRecord horovod_record() {
  return {
      .system = kHorovodSystem,
      .aliases = {{"hvd"}},
      .title = "Horovod",
      .brief = "Horovod",
      .units = "fused all-reduces",
      .does =
          "horovod.torch.DistributedOptimizer: what is ready in a cycle is all-reduced together",
      .evidence =
          "0.28 over Open MPI on CPUs executed (calib/horovod-runs), its decisions recorded; never "
          "over NCCL",
      .schedule =
          "what is fused differs from step to step: the step and its parts are the mean of 16, the "
          "times of reductions those of the last; decided as in recordings of Horovod 0.28 over "
          "Open MPI on CPUs, which executed steps, too; over NCCL never executed",
      .copies = "copies out of the fusion buffer",
      .negotiates = true,
      .compiled_whole = true,
      .executed_by_mpi = true,
      .words = horovod_words(),
      .knobs = horovod_knobs(),
      .lower = lower_horovod,
      .validate = validate_horovod,
      .check = [](const Plan& p, const Workload&, DeviceKind, int ranks,
                  int per_host) { return check_horovod(p, ranks, per_host); },
      .operations = horovod_operations,
      .groups = horovod_groups,
      .stages_on_hosts = horovod_stages_on_hosts,
      .ranked = {{"HOROVOD_TORUS_ALLREDUCE", "true", true}},
      .schedule_of = horovod_schedule_of,
      .executed_class = [](const Plan&, int) { return "system_horovod"; }};
}

}  // namespace ddpsim::systems
