#include "sim/io/field_meant.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace ddpsim::io {

std::string field_meant(const std::string& name) {
  static const std::vector<std::pair<const char*, std::vector<const char*>>> fields{
      {"cluster.hosts",
       {"hosts", "nodes", "nnodes", "num_hosts", "num_nodes", "num_machines", "machines"}},
      {"cluster.devices_per_host",
       {"devices_per_host", "gpus_per_host", "gpus_per_node", "nproc_per_node"}},
      {"cluster.link.bandwidth", {"bandwidth", "network", "link"}},
      {"workload.batch",
       {"batch", "batch_size", "batchsize", "bs", "micro_batch_size", "micro_batch_size_per_gpu",
        "train_micro_batch_size_per_gpu", "local_batch_size", "per_device_train_batch_size"}},
      {"accumulation_steps",
       {"gradient_accumulation_steps", "gradient_accumulation", "grad_accumulation_steps",
        "grad_accum", "grad_accum_steps", "accumulate_grad_batches", "backward_passes_per_step"}},
      {"workload.sequence",
       {"sequence", "seq", "seq_len", "seqlen", "seq_length", "sequence_length", "max_seq_len",
        "max_seq_length", "max_length", "block_size", "context_length", "tokens"}},
      {"workload.precision", {"precision", "mixed_precision", "dtype", "amp", "autocast"}},
      {"workload.compile", {"compile", "torch_compile", "torchcompile", "inductor"}},
      {"workload.checkpointing",
       {"checkpointing", "activation_checkpointing", "activation_checkpoint",
        "fsdp_activation_checkpointing", "gradient_checkpointing", "recompute",
        "recompute_granularity"}},
      {"workload.attention",
       {"attention", "attn", "attn_implementation", "flash_attention", "use_flash_attn"}},
      {"workload.cuda_graphs", {"cuda_graphs", "cudagraphs"}},
      {"workload.optimizer.name", {"optimizer", "optim"}},
      {"shard_degree", {"dp_shard", "data_parallel_shard_degree"}},
      {"cpu_offload", {"enable_cpu_offload", "offload_params"}},
      {"HOROVOD_FUSION_THRESHOLD", {"fusion_threshold"}},
      {"HOROVOD_CYCLE_TIME", {"cycle_time"}},
      {"groups", {"num_groups"}},
      {"ranks",
       {"world_size", "worldsize", "gpus", "devices", "num_gpus", "num_processes", "processes",
        "n"}},
      {"workload", {"model"}}};
  std::string plain = name;
  std::replace(plain.begin(), plain.end(), '-', '_');
  for (const auto& [field, names] : fields)
    if (std::find(names.begin(), names.end(), plain) != names.end()) return field;
  return {};
}

std::string setting_for(const std::string& name) {
  static const std::vector<std::pair<const char*, std::vector<const char*>>> settings{
      {"workload.precision=bf16", {"bf16"}},
      {"workload.precision=fp16", {"fp16"}},
      {"workload.precision=tf32", {"tf32"}},
      {"workload.memory_format=channels_last", {"channels_last"}},
      {"workload.loop.clip_grad_norm=true",
       {"gradient_clipping", "max_grad_norm", "clip_grad", "grad_clip", "clip_grad_norm"}},
      {"workload.loop.grad_scaler=true", {"grad_scaler", "gradscaler"}},
      {"workload.batch and accumulation_steps: their product times the ranks is the global batch",
       {"train_batch_size", "global_batch_size", "global_batch"}},
      {"input.samples_per_s=RATE, at which the loader of one rank makes samples",
       {"num_workers", "dataloader_num_workers", "pin_memory"}},
      {"param_dtype=bfloat16 and reduce_dtype=float32 (of plan fsdp or fsdp2)", {"mp_policy"}},
      {"cpu_offload=true (of plan fsdp or fsdp2)", {"offload_policy"}},
      {"shard_degree=N: ranks that shard together; the others replicate (of plan fsdp2)",
       {"dp_replicate", "data_parallel_replicate_degree", "mesh", "device_mesh"}}};
  std::string plain = name;
  std::replace(plain.begin(), plain.end(), '-', '_');
  for (const auto& [setting, names] : settings)
    if (std::find(names.begin(), names.end(), plain) != names.end()) return setting;
  return {};
}

bool is_other_parallelism(const std::string& name) {
  std::string plain = name;
  std::replace(plain.begin(), plain.end(), '-', '_');
  for (const char* kind : {"tensor", "tensor_model", "pipeline", "pipeline_model", "expert",
                           "expert_model", "context", "sequence"})
    for (const char* end : {"_parallel", "_parallelism", "_parallel_size", "_parallel_degree"})
      if (plain == std::string(kind) + end) return true;
  for (const char* letters : {"tp", "pp", "ep", "cp", "sp", "tp_size", "pp_size", "ep_size"})
    if (plain == letters) return true;
  return false;
}

std::string flag_meant(const std::string& name) {
  std::string plain = name;
  std::replace(plain.begin(), plain.end(), '_', '-');
  for (const char* precision : {"bf16", "fp16", "tf32", "fp32"})
    if (plain == precision)
      return std::string("--set workload.precision=") + precision +
             (plain.ends_with("16") ? " (and workload.casting=autocast where torch.autocast casts)"
                                    : "");
  for (const char* stage : {"zero-stage", "zero", "zero1", "zero2", "zero3"})
    if (plain == stage) return "--plan zero1, zero2 or zero3 (DeepSpeed's stages)";
  for (const char* system : {"fsdp", "fsdp2", "ddp", "horovod"})
    if (plain == system) return std::string("--plan ") + system;
  return {};
}

std::string setting_meant(const std::string& field, bool on) {
  if (field == "workload.precision")
    return on ? "bf16 (or fp16), with workload.casting=autocast" : "fp32";
  if (field == "workload.attention")
    return on ? "fused (PyTorch's own) or flash2 (the flash-attn package)" : "eager";
  if (field == "workload.compile")
    return on ? "regional (each block by itself), buckets "
                "(torch.compile(DistributedDataParallel(model))) or whole"
              : "none";
  if (field == "workload.checkpointing")
    return on ? "full (each block again in backward) or selective" : "none";
  return {};
}

}  // namespace ddpsim::io
