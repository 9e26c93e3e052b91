// DDP in a heading, in a script, and what might gain time.
#include <cstdio>

#include "sim/systems/base/settings.h"
#include "sim/systems/ddp/ddp.h"
#include "sim/systems/ddp/plan.h"
#include "sim/systems/knobs.h"

namespace ddpsim::systems {

namespace {

// With six digits, as a heading has it.
std::string rounded_number(double v) {
  char text[40];
  std::snprintf(text, sizeof text, "%g", v);
  return text;
}

std::string caps_text(const Plan& plan) {
  if (ddp_of(plan).bucket_cap_mb_list.empty())
    return ddp_of(plan).bucket_cap_mb
               ? "bucket_cap_mb=" + rounded_number(*ddp_of(plan).bucket_cap_mb)
               : "bucket_cap_mb=None (25, first bucket 1)";
  std::string list;
  for (double cap : ddp_of(plan).bucket_cap_mb_list)
    list += (list.empty() ? "" : ", ") + rounded_number(cap);
  return "bucket_cap_mb_list=[" + list + "]";
}

// With a knob set: what it says, and as --set takes it.
PlanChange with_knob(const Plan& plan, const std::string& text, const std::string& knob,
                     const std::string& setting) {
  return {text, "--set " + knob + "=" + setting, with_setting(plan, knob, setting)};
}

}  // namespace

std::string ddp_heading(const Plan& plan, DeviceKind device) {
  const DdpPlan& d = ddp_of(plan);
  std::string out = std::string("PyTorch ") + name_of(plan.pytorch) + " DDP over " +
                    name_of(backend_of(plan, device)) + ", " + caps_text(plan);
  auto add = [&](bool set, const std::string& text) {
    if (set) out += ", " + text;
  };
  add(ddp_of(plan).comm_hook != CommHook::None, name_of(ddp_of(plan).comm_hook));
  add(ddp_of(plan).gradient_as_bucket_view, "gradient_as_bucket_view");
  add(ddp_of(plan).find_unused_parameters, "find_unused_parameters");
  add(ddp_of(plan).static_graph, "static_graph");
  add(d.batched_grad_copy, "batched_grad_copy");
  add(d.optimizer_in_backward, "optimizer_in_backward");
  add(d.join, "join");
  add(d.joined_ranks > 0, std::to_string(d.joined_ranks) + " ranks without inputs");
  add(d.sync_batch_norm, "sync_batch_norm");
  add(d.skip_all_reduce_unused_params, "skip_all_reduce_unused_params");
  add(d.process_group_size > 0, "models of " + std::to_string(d.process_group_size) + " ranks, " +
                                    std::to_string(d.process_group_stride) + " apart");
  return out;
}

std::vector<PlanChange> ddp_levers(const Plan& plan, const Workload& w) {
  std::vector<PlanChange> out;
  if (plan.accumulation_steps > 1 && !uses_no_sync(plan))
    out.push_back(
        with_knob(plan, "with no_sync() around micro-steps but the last", "no_sync", "true"));
  if (!ddp_of(plan).gradient_as_bucket_view)
    out.push_back(
        with_knob(plan, "gradient_as_bucket_view=True", "gradient_as_bucket_view", "true"));
  if (ddp_of(plan).comm_hook == CommHook::None)
    out.push_back(
        with_knob(plan, "bf16_compress_hook (changes numerics)", "comm_hook", "bf16_compress"));
  if (ddp_of(plan).broadcast_buffers && !w.buffers.empty())
    out.push_back(
        with_knob(plan, "broadcast_buffers=False (each rank keeps its own BatchNorm statistics)",
                  "broadcast_buffers", "false"));
  return out;
}

std::vector<PlanChange> ddp_extremes(const Plan& plan) {
  Plan one = plan;
  ddp_of(one).bucket_cap_mb = 1e6;
  ddp_of(one).bucket_cap_mb_list.clear();
  std::vector<PlanChange> out{
      {"no overlap: one bucket for everything", "--set bucket_cap_mb=1000000", one}};
  if (ddp_of(plan).comm_hook == CommHook::None)
    out.push_back(
        with_knob(plan, "fp16_compress_hook (changes numerics)", "comm_hook", "fp16_compress"));
  return out;
}

std::vector<std::string> ddp_script(const Plan& plan, const Workload&, DeviceKind device, int,
                                    int) {
  std::vector<std::string> out;
  if (backend_of(plan, device) == Backend::Tcp) return out;
  for (const auto& [name, value] : plan.environment)
    out.push_back("os.environ[\"" + name + "\"] = \"" + value + "\"  # before init_process_group");
  std::string arguments = "model, device_ids=[local_rank]";
  if (device == DeviceKind::Cpu) arguments = "model";
  if (ddp_of(plan).bucket_cap_mb)
    arguments += ", bucket_cap_mb=" + number_text(*ddp_of(plan).bucket_cap_mb);
  if (!ddp_of(plan).bucket_cap_mb_list.empty()) {
    if (!takes_cap_list(plan))
      out.push_back(std::string("# bucket_cap_mb_list: ") + kCapListWarning);
    std::string list;
    for (double cap : ddp_of(plan).bucket_cap_mb_list)
      list += (list.empty() ? "" : ", ") + number_text(cap);
    arguments += ", bucket_cap_mb_list=[" + list + "]";
  }
  if (ddp_of(plan).gradient_as_bucket_view) arguments += ", gradient_as_bucket_view=True";
  if (!ddp_of(plan).broadcast_buffers) arguments += ", broadcast_buffers=False";
  if (ddp_of(plan).find_unused_parameters) arguments += ", find_unused_parameters=True";
  if (ddp_of(plan).static_graph) arguments += ", static_graph=True";
  out.push_back("ddp = torch.nn.parallel.DistributedDataParallel(" + arguments + ")");
  const char* hook = ddp_of(plan).comm_hook == CommHook::Fp16Compress   ? "fp16_compress_hook"
                     : ddp_of(plan).comm_hook == CommHook::Bf16Compress ? "bf16_compress_hook"
                     : ddp_of(plan).comm_hook == CommHook::AllReduce    ? "allreduce_hook"
                                                                        : nullptr;
  if (hook)
    out.push_back(std::string("ddp.register_comm_hook(None, "
                              "torch.distributed.algorithms.ddp_comm_hooks.default_hooks.") +
                  hook + ")");
  return out;
}

std::vector<std::string> ddp_warnings(const Plan& plan) {
  if (ddp_of(plan).bucket_cap_mb_list.empty() || takes_cap_list(plan)) return {};
  return {std::string("bucket_cap_mb_list is ") + kCapListWarning};
}

const char* ddp_schedule_of(const Plan& plan) {
  if (ddp_of(plan).comm_hook == CommHook::PowerSgd || ddp_of(plan).join ||
      ddp_of(plan).optimizer_in_backward)
    return "what powerSGD and join send is equal to recordings of PyTorch 1.13 over Gloo, "
           "optimizers in backward are from source reading; their times were never measured";
  return "";
}

}  // namespace ddpsim::systems
