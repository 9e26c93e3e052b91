#include "sim/systems/zero/record.h"

#include "sim/systems/base/released.h"
#include "sim/systems/zero/plan.h"
#include "sim/systems/zero/zero.h"

namespace ddpsim::systems {
namespace {

Field zero_stage(Plan&) {
  return Choice{{"1", "2", "3"},
                [](const Plan& p) { return zero_of(p).stage - 1; },
                [](Plan& p, int k) { zero_of(p).stage = k + 1; }};
}
Field zero_offload_optimizer(Plan&) {
  return choice_of<&ZeroPlan::offload_optimizer>({"none", "cpu"});
}
Field zero_offload_param(Plan&) {
  return choice_of<&ZeroPlan::offload_param>({"none", "cpu"});
}
deepspeed::Version zero_release_of(const Plan& p) {
  return zero_of(p).release;
}
void set_zero_release(Plan& p, deepspeed::Version v) {
  zero_of(p).release = v;
}

std::span<const KnobRecord> zero_knobs() {
  static const KnobRecord knobs[] = {
      {kZeroRelease, "release", "0.14.5", "DeepSpeed's release, 0.10.3 to 0.19.5", false,
       release_field<zero_release_of, set_zero_release>},
      {"stage", "", "2", "what is in shards: optimizer state; 2: gradients, too; 3: weights, too",
       false, zero_stage},
      {"overlap_comm", "", "false (stage 3: true)",
       "gradients are reduced, and weights gathered, on streams of their own", true,
       [](Plan& p) { return Field(&zero_of(p).overlap_comm); }},
      {"reduce_bucket_size",
       "elements",
       "500000000",
       "gradients are reduced in buckets of at most this size",
       true,
       [](Plan& p) { return Field(&zero_of(p).reduce_bucket_size); },
       {5e6, 1e7, 2e7, 5e7, 1e8, 2e8, 5e8}},
      {"allgather_bucket_size", "elements", "500000000",
       "without effect where all_gather_into_tensor is there, as it is over NCCL", false,
       [](Plan& p) { return Field(&zero_of(p).allgather_bucket_size); }},
      {"reduce_scatter", "", "true",
       "stage 3: gradients are scattered; 1 and 2: divided before their all-reduce, not after",
       false, [](Plan& p) { return Field(&zero_of(p).reduce_scatter); }},
      {"contiguous_gradients", "", "true", "gradients are copied into a bucket when they are there",
       false, [](Plan& p) { return Field(&zero_of(p).contiguous_gradients); }},
      {"use_multi_rank_bucket_allreduce", "", "true",
       "stages 1 and 2: a bucket is all-reduced; false: what each rank owns is reduced to it",
       false, [](Plan& p) { return Field(&zero_of(p).use_multi_rank_bucket_allreduce); }},
      {"round_robin_gradients", "", "false", "stages 1 and 2: parameters take turns between owners",
       false, [](Plan& p) { return Field(&zero_of(p).round_robin_gradients); }},
      {"stage3_prefetch_bucket_size",
       "elements",
       "50000000",
       "weights that are gathered ahead each time a module is entered; 0: none",
       true,
       [](Plan& p) { return Field(&zero_of(p).stage3_prefetch_bucket_size); },
       {0, 5e6, 1e7, 2e7, 5e7, 1e8, 2e8, 5e8}},
      {"stage3_param_persistence_threshold", "elements", "100000",
       "parameters up to this size stay whole between steps", false,
       [](Plan& p) { return Field(&zero_of(p).stage3_param_persistence_threshold); }},
      {"stage3_max_live_parameters", "elements", "1000000000",
       "weights that prefetching keeps whole at once", false,
       [](Plan& p) { return Field(&zero_of(p).stage3_max_live_parameters); }},
      {"stage3_max_reuse_distance", "elements", "1000000000",
       "weights that are used again within this many others stay whole", false,
       [](Plan& p) { return Field(&zero_of(p).stage3_max_reuse_distance); }},
      {"sub_group_size", "elements", "1000000000",
       "stage 3: elements of a shard that the optimizer updates at once", false,
       [](Plan& p) { return Field(&zero_of(p).sub_group_size); }},
      {"zero_hpz_partition_size", "ranks", "1",
       "stage 3: so many ranks keep the weights of a step among them; backward gathers there (hpZ)",
       false, [](Plan& p) { return Field(&zero_of(p).zero_hpz_partition_size); }},
      {"zero_quantized_weights", "", "false",
       "stage 3, fp16: weights are gathered as int8 with a scale for each group of them (qwZ)",
       false, [](Plan& p) { return Field(&zero_of(p).zero_quantized_weights); }},
      {"zero_quantized_gradients", "", "false",
       "stage 3, fp16, several hosts: gradients are exchanged as int4, first inside hosts (qgZ)",
       false, [](Plan& p) { return Field(&zero_of(p).zero_quantized_gradients); }},
      {"offload_optimizer", "", "none",
       "cpu: the optimizer and its state are the host's (ZeRO-Offload)", false,
       zero_offload_optimizer},
      {"offload_param", "", "none",
       "stage 3, with offload_optimizer: cpu: shards of weights are the host's, too", false,
       zero_offload_param},
      {"offload_pin_memory", "", "false (deepspeed 0.19.5: true)",
       "offload_optimizer's pin_memory: the host goes on while gradients are copied to it", false,
       [](Plan& p) { return Field(&zero_of(p).offload_pin_memory); }}};
  return knobs;
}

}  // namespace

SystemRecord zero_record() {
  return {
      .system = kZeroSystem,
      .aliases = {{"zero1", "stage", "1"}, {"zero2", "stage", "2"}, {"zero3", "stage", "3"}},
      .meant = Meant{"deepspeed",
                     "DeepSpeed's ZeRO is system \"zero\", with knob stage (1, 2 or 3): --plan "
                     "zero --set stage=2"},
      .title = "DeepSpeed ZeRO",
      .brief = "ZeRO",
      .title_knob = "stage",
      .units = "buckets",
      .does = "DeepSpeed ZeRO, stages 1 to 3: optimizer state, gradients and weights in shards",
      .evidence = "collectives recorded of 0.14.5 on CPUs; never executed",
      .schedule =
          "collectives equal to those that DeepSpeed 0.14.5 issued, recorded without a GPU; its "
          "times were never executed",
      .shards = true,
      .weights_in_shards = true,
      .gloo_on_gpus = GlooOnGpus::NoReduceScatter,
      .words = zero_words(),
      .knobs = zero_knobs(),
      .lower = lower_zero,
      .validate = validate_zero,
      .check =
          [](const Plan& p, const Workload& w, DeviceKind, int ranks, int per_host) {
            Problem problem = check_zero_groups(p, ranks, per_host);
            return problem ? problem : check_quantised(p, w, ranks, per_host);
          },
      .operations =
          [](const Plan& p) {
            std::vector<Operation> out = sharding_operations(p);
            const ZeroPlan& z = zero_of(p);
            if (!z.use_multi_rank_bucket_allreduce || !z.release.has(ZeroChange::SharedAllReduce))
              out.push_back(Operation::Reduce);
            return out;
          },
      .groups = zero_groups,
      .offloads = [](const Plan& p) { return zero_of(p).offload_optimizer; },
      .ranked = {{"stage", "1"}, {"stage", "3"}},
      .decisions = zero_decisions,
      .script = zero_script,
      .warnings = zero_warnings,
      .advice =
          [](const Workload& w, const Plan&) {
            const std::string name = name_of(w.precision);
            return name +
                   " is autocast here, with weights and gradients of 4 bytes; DeepSpeed's own " +
                   name + " is --set workload.casting=master_weights";
          },
      .schedule_of = zero_schedule_of};
}

}  // namespace ddpsim::systems
