#include "sim/strategy/systems.h"

#include <algorithm>
#include <cstdio>

#include "sim/strategy/bucketing.h"
#include "sim/strategy/fsdp.h"

namespace ddpsim::strategy {
namespace {

// ---- fields. A choice's `get` is -1 where the plan leaves the knob at its default.

Field system_of_hook(Plan&) {
  return Choice{{"none", "allreduce", "fp16_compress", "bf16_compress"},
                [](const Plan& p) { return static_cast<int>(p.comm_hook); },
                [](Plan& p, int k) { p.comm_hook = static_cast<CommHook>(k); }};
}
Field granularity(Plan&) {
  return Choice{{"per_parameter", "flat"},
                [](const Plan& p) { return static_cast<int>(p.granularity); },
                [](Plan& p, int k) { p.granularity = static_cast<Granularity>(k); }};
}
Field sharding(Plan&) {
  return Choice{{"full_shard", "shard_grad_op", "no_shard"},
                [](const Plan& p) { return static_cast<int>(p.fsdp.sharding_strategy); },
                [](Plan& p, int k) { p.fsdp.sharding_strategy = static_cast<Sharding>(k); }};
}
Field backward_prefetch(Plan&) {
  return Choice{
      {"none", "backward_pre", "backward_post"},
      [](const Plan& p) {
        return p.fsdp.backward_prefetch ? static_cast<int>(*p.fsdp.backward_prefetch) : -1;
      },
      [](Plan& p, int k) { p.fsdp.backward_prefetch = static_cast<BackwardPrefetch>(k); }};
}
constexpr DType kTypes[] = {DType::Float32, DType::Float16, DType::BFloat16};
int number_of(const std::optional<DType>& d) {
  return d ? static_cast<int>(std::find(std::begin(kTypes), std::end(kTypes), *d) - kTypes) : -1;
}
Field param_dtype(Plan&) {
  return Choice{{"float32", "float16", "bfloat16"},
                [](const Plan& p) { return number_of(p.fsdp.param_dtype); },
                [](Plan& p, int k) { p.fsdp.param_dtype = kTypes[k]; }};
}
Field reduce_dtype(Plan&) {
  return Choice{{"float32", "float16", "bfloat16"},
                [](const Plan& p) { return number_of(p.fsdp.reduce_dtype); },
                [](Plan& p, int k) { p.fsdp.reduce_dtype = kTypes[k]; }};
}
Field zero_stage(Plan&) {
  return Choice{{"1", "2", "3"},
                [](const Plan& p) { return p.zero.stage - 1; },
                [](Plan& p, int k) { p.zero.stage = k + 1; }};
}
Field horovod_compression(Plan&) {
  return Choice{{"none", "fp16"},
                [](const Plan& p) { return p.horovod.fp16_compression ? 1 : 0; },
                [](Plan& p, int k) { p.horovod.fp16_compression = k == 1; }};
}
Field auto_wrap_policy(Plan&) {
  return Choice{{"block", "none"},
                [](const Plan& p) { return p.fsdp.auto_wrap_policy == "block" ? 0 : 1; },
                [](Plan& p, int k) { p.fsdp.auto_wrap_policy = k == 0 ? "block" : "none"; }};
}

// ---- knobs

const KnobRecord kDdpKnobs[] = {
    {"bucket_cap_mb", "MiB", "25", "gradients are reduced in buckets of about this size", true,
     [](Plan& p) { return Field(&p.bucket_cap_mb); }},
    {"bucket_cap_mb_list", "MiB", "none",
     "a cap for each bucket, the last repeats (pytorch #169026)", false,
     [](Plan& p) { return Field(&p.bucket_cap_mb_list); }},
    {"first_bucket_bytes", "bytes", "1048576",
     "cap of the first bucket to be full (dist._DEFAULT_FIRST_BUCKET_BYTES)", true,
     [](Plan& p) { return Field(&p.first_bucket_bytes); }},
    {"broadcast_buffers", "", "true", "rank 0's buffers are sent to all before each forward", false,
     [](Plan& p) { return Field(&p.broadcast_buffers); }},
    {"find_unused_parameters", "", "false", "parameters without a gradient are looked for", false,
     [](Plan& p) { return Field(&p.find_unused_parameters); }},
    {"static_graph", "", "false", "the set of used parameters never changes", false,
     [](Plan& p) { return Field(&p.static_graph); }},
    {"gradient_as_bucket_view", "", "false", "gradients are views of buckets: no copy out", false,
     [](Plan& p) { return Field(&p.gradient_as_bucket_view); }},
    {"comm_hook", "", "none", "what takes the place of a bucket's all-reduce", false,
     system_of_hook}};

const KnobRecord kAveragingKnobs[] = {
    {"granularity", "", "per_parameter", "one all-reduce a parameter, or one for all", true,
     granularity},
    {"async_op", "", "false", "all-reduces are issued before any is waited for", true,
     [](Plan& p) { return Field(&p.async_op); }}};

const KnobRecord kFsdpKnobs[] = {
    {"sharding_strategy", "", "full_shard",
     "full_shard gathers weights for forward and again for backward, shard_grad_op once", false,
     sharding},
    {"backward_prefetch", "", "backward_pre (1.13: none)",
     "when backward gathers the next unit's weights: before its own computation, or after", true,
     backward_prefetch},
    {"forward_prefetch", "", "false",
     "the host issues the next unit's all-gather before the computation of this one", true,
     [](Plan& p) { return Field(&p.fsdp.forward_prefetch); }},
    {"limit_all_gathers", "", "true (1.13: false)",
     "the host waits so that two units at most are gathered and not freed", true,
     [](Plan& p) { return Field(&p.fsdp.limit_all_gathers); }},
    {"param_dtype", "", "the weights' own", "MixedPrecision: weights are gathered in it", false,
     param_dtype},
    {"reduce_dtype", "", "param_dtype", "MixedPrecision: gradients are reduced in it", false,
     reduce_dtype},
    {"no_sync", "", "false",
     "micro-steps but the last keep whole gradients instead of reducing them", false,
     [](Plan& p) { return Field(&p.fsdp.no_sync); }},
    {"auto_wrap_policy", "", "block",
     "block: each repeated block is a unit; none: the model is one", false, auto_wrap_policy}};

const KnobRecord kHorovodKnobs[] = {
    {"HOROVOD_CYCLE_TIME",
     "ms",
     "1",
     "the background thread wakes no more often than this",
     true,
     [](Plan& p) { return Field(&p.horovod.cycle_time); },
     {0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50}},
    {"HOROVOD_FUSION_THRESHOLD",
     "bytes",
     "134217728",
     "what is ready in a cycle is reduced together up to this size; 0: each by itself",
     true,
     [](Plan& p) { return Field(&p.horovod.fusion_threshold); },
     {1 << 20, 2 << 20, 4 << 20, 8 << 20, 16 << 20, 32 << 20, 64 << 20, 128 << 20, 256 << 20,
      512 << 20}},
    {"HOROVOD_CACHE_CAPACITY", "tensors", "1024",
     "tensors that ranks agree on by a bit each; 0: rank 0 gathers names in every cycle", false,
     [](Plan& p) { return Field(&p.horovod.cache_capacity); }},
    {"HOROVOD_BATCH_D2D_MEMCOPIES", "", "true",
     "GPU: one kernel copies up to 160 tensors into the fusion buffer", false,
     [](Plan& p) { return Field(&p.horovod.batch_d2d_memcopies); }},
    {"HOROVOD_DISABLE_GROUP_FUSION", "", "false", "a group is not fused with others", false,
     [](Plan& p) { return Field(&p.horovod.disable_group_fusion); }},
    {"compression", "", "none", "gradients are reduced in half precision (hvd.Compression)", false,
     horovod_compression},
    {"groups", "", "0",
     "parameters in so many groups, each requested when its last gradient is there", false,
     [](Plan& p) { return Field(&p.horovod.groups); }}};

const KnobRecord kZeroKnobs[] = {
    {"stage", "", "2", "what is in shards: optimizer state; 2: gradients, too; 3: weights, too",
     false, zero_stage},
    {"overlap_comm", "", "false (stage 3: true)",
     "gradients are reduced, and weights gathered, on streams of their own", true,
     [](Plan& p) { return Field(&p.zero.overlap_comm); }},
    {"reduce_bucket_size",
     "elements",
     "500000000",
     "gradients are reduced in buckets of at most this size",
     true,
     [](Plan& p) { return Field(&p.zero.reduce_bucket_size); },
     {5e6, 1e7, 2e7, 5e7, 1e8, 2e8, 5e8}},
    {"allgather_bucket_size", "elements", "500000000",
     "without effect where all_gather_into_tensor is there, as it is over NCCL", false,
     [](Plan& p) { return Field(&p.zero.allgather_bucket_size); }},
    {"reduce_scatter", "", "true",
     "stage 3: gradients are scattered; 1 and 2: divided before their all-reduce, not after", false,
     [](Plan& p) { return Field(&p.zero.reduce_scatter); }},
    {"contiguous_gradients", "", "true", "gradients are copied into a bucket when they are there",
     false, [](Plan& p) { return Field(&p.zero.contiguous_gradients); }},
    {"use_multi_rank_bucket_allreduce", "", "true",
     "stages 1 and 2: a bucket is all-reduced; false: what each rank owns is reduced to it", false,
     [](Plan& p) { return Field(&p.zero.use_multi_rank_bucket_allreduce); }},
    {"round_robin_gradients", "", "false", "stages 1 and 2: parameters take turns between owners",
     false, [](Plan& p) { return Field(&p.zero.round_robin_gradients); }},
    {"stage3_prefetch_bucket_size",
     "elements",
     "50000000",
     "weights that are gathered ahead each time a module is entered; 0: none",
     true,
     [](Plan& p) { return Field(&p.zero.stage3_prefetch_bucket_size); },
     {0, 5e6, 1e7, 2e7, 5e7, 1e8, 2e8, 5e8}},
    {"stage3_param_persistence_threshold", "elements", "100000",
     "parameters up to this size stay whole between steps", false,
     [](Plan& p) { return Field(&p.zero.stage3_param_persistence_threshold); }},
    {"stage3_max_live_parameters", "elements", "1000000000",
     "weights that prefetching keeps whole at once", false,
     [](Plan& p) { return Field(&p.zero.stage3_max_live_parameters); }},
    {"stage3_max_reuse_distance", "elements", "1000000000",
     "weights that are used again within this many others stay whole", false,
     [](Plan& p) { return Field(&p.zero.stage3_max_reuse_distance); }},
    {"sub_group_size", "elements", "1000000000",
     "stage 3: elements of a shard that the optimizer updates at once", false,
     [](Plan& p) { return Field(&p.zero.sub_group_size); }}};

const SystemRecord kSystemRecords[] = {
    {System::PytorchDdp, "pytorch_ddp", "PyTorch DDP", "DDP", "buckets", "buckets", ddp_words(),
     kDdpKnobs, lower_ddp,
     [](const Workload& w, const Plan& p) { return steady_buckets(w, p).size(); }},
    {System::Averaging, "averaging", "plain gradient averaging", "averaging", "", "all-reduces",
     averaging_words(), kAveragingKnobs, lower_averaging,
     [](const Workload& w, const Plan& p) {
       return p.granularity == Granularity::Flat ? 1 : w.arrival.size();
     }},
    {System::Fsdp, "fsdp", "PyTorch FSDP", "FSDP", "gathered weights", "units", fsdp_words(),
     kFsdpKnobs, lower_fsdp,
     [](const Workload& w, const Plan& p) { return fsdp_units(w, p).size(); }},
    {System::Horovod, "horovod", "Horovod", "Horovod", "the fusion buffer", "fused all-reduces",
     horovod_words(), kHorovodKnobs, lower_horovod, nullptr},
    {System::Zero, "zero", "DeepSpeed ZeRO", "ZeRO", "buckets, and whole weights", "buckets",
     zero_words(), kZeroKnobs, lower_zero, nullptr}};

}  // namespace

std::span<const SystemRecord> systems() {
  return kSystemRecords;
}

const SystemRecord& record_of(System s) {
  return kSystemRecords[static_cast<std::size_t>(s)];
}

std::string setting_of(const Plan& plan, const KnobRecord& knob) {
  Plan copy = plan;
  auto number = [](double v) {
    char text[40];
    std::snprintf(text, sizeof text, "%.10g", v);
    return std::string(text);
  };
  struct Text {
    const Plan& plan;
    decltype(number)& of_number;
    std::string operator()(bool* b) const { return *b ? "true" : "false"; }
    std::string operator()(std::optional<bool>* b) const {
      return !*b ? "" : **b ? "true" : "false";
    }
    std::string operator()(std::int64_t* n) const { return std::to_string(*n); }
    std::string operator()(std::optional<double>* v) const { return *v ? of_number(**v) : ""; }
    std::string operator()(std::vector<double>* list) const {
      std::string out;
      for (double v : *list) out += (out.empty() ? "[" : ",") + of_number(v);
      return out.empty() ? out : out + "]";
    }
    std::string operator()(const Choice& c) const {
      int k = c.get(plan);
      return k < 0 ? "" : c.names[static_cast<std::size_t>(k)];
    }
  };
  return std::visit(Text{plan, number}, knob.field(copy));
}

std::string settings_text(const Plan& plan) {
  Plan initial;
  initial.system = plan.system;
  std::string out;
  for (const KnobRecord& k : record_of(plan.system).knobs) {
    std::string now = setting_of(plan, k);
    if (now != setting_of(initial, k))
      out += (out.empty() ? "" : ", ") + std::string(k.name) + "=" + now;
  }
  return out;
}

const SystemRecord* owner_of(std::string_view knob) {
  for (const SystemRecord& s : kSystemRecords)
    for (const KnobRecord& k : s.knobs)
      if (knob == k.name) return &s;
  return nullptr;
}

}  // namespace ddpsim::strategy
