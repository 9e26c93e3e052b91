#include "sim/io/nearest_plan.h"

namespace ddpsim::io {
namespace {

struct Nearest {
  const char* part;  // of the name; "=": all of it
  const char* instead;
};
constexpr const char* kPostLocal =
    "it is a knob of local_sgd (--plan local_sgd --set subgroup_size=8 --set accumulation_steps=4: "
    "gradients are reduced in groups of 8 ranks, weights averaged every 4 batches)";
constexpr const char* kServers =
    "it is --plan parameter_server --set servers=4 (synchronous=true: all workers together; "
    "staleness=3: at most three steps ahead of the slowest)";
constexpr const char* kTensorflow =
    "TensorFlow's strategies are --plan mirrored (MirroredStrategy, one host) and --plan "
    "multi_worker_mirrored (MultiWorkerMirroredStrategy), and --plan parameter_server "
    "(ParameterServerStrategy)";
constexpr const char* kAccelerate =
    "it wraps the model in PyTorch's own: by default --plan pytorch_ddp, with an FSDP plugin "
    "--plan "
    "fsdp (version 2: fsdp2), with DeepSpeed --plan zero --set stage=2";
constexpr Nearest kNearest[] = {
    {"powersgd", "PowerSGD is a hook of pytorch_ddp (--plan pytorch_ddp --set comm_hook=powerSGD)"},
    {"=amp",
     "mixed precision is the workload's (--set workload.precision=bf16, "
     "workload.casting=autocast)"},
    {"autocast",
     "mixed precision is the workload's (--set workload.precision=bf16, "
     "workload.casting=autocast)"},
    {"checkpointing",
     "activation checkpointing is the workload's (--set workload.checkpointing=full)"},
    {"compile",
     "compilation is the workload's (--set workload.compile=buckets is "
     "torch.compile(DistributedDataParallel(model)); regional compiles each block, whole the "
     "model); "
     "what one GPU was measured to take can be given instead (--measured-step 97ms)"},
    {"sync_batch_norm", "it is a knob of pytorch_ddp (--set sync_batch_norm=true)"},
    {"syncbatchnorm", "it is a knob of pytorch_ddp (--set sync_batch_norm=true)"},
    {"mirrored", kTensorflow},
    {"collectiveallreduce", kTensorflow},
    {"tensorflow", kTensorflow},
    {"tf.distribute", kTensorflow},
    {"keras", kTensorflow},
    {"=tf", kTensorflow},
    {"accelerate", kAccelerate},
    {"huggingface", kAccelerate},
    {"transformers", kAccelerate},
    {"=trainer", kAccelerate},
    {"hsdp",
     "it is --plan fsdp2 --set shard_degree=8 (8 ranks shard together), or --plan fsdp --set "
     "sharding_strategy=hybrid_shard"},
    {"torchtitan", "it trains with fully_shard: --plan fsdp2"},
    {"distributed_optimizer", "it is --plan megatron --set use_distributed_optimizer=true"},
    {"zero++",
     "it is --plan zero3 --set zero_hpz_partition_size=8 (zero_quantized_weights, "
     "zero_quantized_gradients)"},
    {"lightning",
     "its strategy=\"ddp\" is --plan pytorch_ddp, \"fsdp\" is --plan fsdp, \"deepspeed_stage_2\" "
     "is "
     "--plan zero --set stage=2"},
    {"=ps", kServers},
    {"=ssp", kServers},
    {"stale", kServers},
    {"byteps", kServers},
    {"ps-lite", kServers},
    {"ps_lite", kServers},
    {"pslite", kServers},
    {"parameterserver", kServers},
    {"parameter_server", kServers},
    {"post_localsgd", kPostLocal},
    {"post_local_sgd", kPostLocal},
    {"postlocalsgd", kPostLocal}};

}  // namespace

const char* nearest_plan(const std::string& name) {
  for (const Nearest& n : kNearest) {
    const std::string part = n.part;
    if (part.front() == '=' ? name == part.substr(1) : name.find(part) != std::string::npos)
      return n.instead;
  }
  return nullptr;
}

}  // namespace ddpsim::io
