#include "sim/io/field_meant.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace ddpsim::io {

std::string field_meant(const std::string& name) {
  static const std::vector<std::pair<const char*, std::vector<const char*>>> fields{
      {"cluster.hosts", {"hosts", "nodes", "nnodes", "num_hosts", "num_nodes", "machines"}},
      {"cluster.devices_per_host",
       {"devices_per_host", "gpus_per_host", "gpus_per_node", "nproc_per_node"}},
      {"cluster.link.bandwidth", {"bandwidth", "network", "link"}},
      {"workload.batch",
       {"batch", "batch_size", "batchsize", "bs", "micro_batch_size",
        "train_micro_batch_size_per_gpu", "per_device_train_batch_size"}},
      {"accumulation_steps",
       {"gradient_accumulation_steps", "gradient_accumulation", "grad_accumulation_steps",
        "grad_accum", "grad_accum_steps", "accumulate_grad_batches"}},
      {"workload.sequence",
       {"sequence", "seq", "seq_len", "seqlen", "seq_length", "sequence_length", "max_seq_len",
        "max_seq_length", "max_length", "block_size", "context_length", "tokens"}},
      {"workload.precision", {"precision", "dtype", "amp", "autocast"}},
      {"workload.compile", {"compile", "torch_compile", "torchcompile", "inductor"}},
      {"workload.checkpointing",
       {"checkpointing", "activation_checkpointing", "gradient_checkpointing", "recompute"}},
      {"ranks", {"world_size", "worldsize", "gpus", "devices", "num_gpus", "processes", "n"}},
      {"workload", {"model"}}};
  std::string plain = name;
  std::replace(plain.begin(), plain.end(), '-', '_');
  for (const auto& [field, names] : fields)
    if (std::find(names.begin(), names.end(), plain) != names.end()) return field;
  return {};
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
  if (field == "workload.compile")
    return on ? "regional (each block by itself), buckets "
                "(torch.compile(DistributedDataParallel(model))) or whole"
              : "none";
  if (field == "workload.checkpointing")
    return on ? "full (each block again in backward) or selective" : "none";
  return {};
}

}  // namespace ddpsim::io
