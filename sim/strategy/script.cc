#include "sim/strategy/script.h"

#include <cstdio>

#include "sim/strategy/knobs.h"

namespace ddpsim::strategy {
namespace {

std::string number_text(double v) {
  char text[40];
  std::snprintf(text, sizeof text, "%.10g", v);
  return text;
}

std::vector<std::string> ddp_lines(const Plan& plan, DeviceKind device) {
  std::vector<std::string> out;
  for (const auto& [name, value] : plan.environment)
    out.push_back("os.environ[\"" + name + "\"] = \"" + value + "\"  # before init_process_group");
  std::string arguments = "model, device_ids=[local_rank]";
  if (device == DeviceKind::Cpu) arguments = "model";
  if (plan.bucket_cap_mb) arguments += ", bucket_cap_mb=" + number_text(*plan.bucket_cap_mb);
  if (!plan.bucket_cap_mb_list.empty()) {
    if (!takes_cap_list(plan))
      out.push_back(std::string("# bucket_cap_mb_list: ") + kCapListWarning);
    std::string list;
    for (double cap : plan.bucket_cap_mb_list)
      list += (list.empty() ? "" : ", ") + number_text(cap);
    arguments += ", bucket_cap_mb_list=[" + list + "]";
  }
  if (plan.gradient_as_bucket_view) arguments += ", gradient_as_bucket_view=True";
  if (!plan.broadcast_buffers) arguments += ", broadcast_buffers=False";
  if (plan.find_unused_parameters) arguments += ", find_unused_parameters=True";
  if (plan.static_graph) arguments += ", static_graph=True";
  out.push_back("ddp = torch.nn.parallel.DistributedDataParallel(" + arguments + ")");
  const char* hook = plan.comm_hook == CommHook::Fp16Compress   ? "fp16_compress_hook"
                     : plan.comm_hook == CommHook::Bf16Compress ? "bf16_compress_hook"
                     : plan.comm_hook == CommHook::AllReduce    ? "allreduce_hook"
                                                                : nullptr;
  if (hook)
    out.push_back(std::string("ddp.register_comm_hook(None, "
                              "torch.distributed.algorithms.ddp_comm_hooks.default_hooks.") +
                  hook + ")");
  return out;
}

}  // namespace

std::vector<std::string> script_lines(const Plan& plan, DeviceKind device) {
  if (plan.system == System::PytorchDdp && backend_of(plan, device) != Backend::Tcp)
    return ddp_lines(plan, device);
  return {};
}

}  // namespace ddpsim::strategy
