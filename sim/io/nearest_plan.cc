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
    "parameter servers are not modelled; gradients are all-reduced (--plan pytorch_ddp)";
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
     "compiled models are not modelled; what one GPU was measured to take can be given "
     "(--measured-step 97ms), with --plan pytorch_ddp"},
    {"sync_batch_norm", "it is a knob of pytorch_ddp (--set sync_batch_norm=true)"},
    {"syncbatchnorm", "it is a knob of pytorch_ddp (--set sync_batch_norm=true)"},
    {"mirrored",
     "TensorFlow's strategies are not modelled; with bytes_per_pack=0 they all-reduce everything "
     "at once after backward, as --plan averaging --set granularity=flat does"},
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
