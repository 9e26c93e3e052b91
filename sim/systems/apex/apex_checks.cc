#include <algorithm>
#include <string>
#include <tuple>

#include "sim/systems/apex/apex.h"
#include "sim/systems/apex/plan.h"

namespace ddpsim::systems {

// apex/parallel/distributed.py, __init__ and create_hooks.
Problem validate_apex(const Plan& p, const Workload& w, DeviceKind device) {
  const ApexPlan& a = apex_of(p);
  using apex::Change;
  const std::tuple<const char*, bool, Change> later[] = {
      {"num_allreduce_streams", a.num_allreduce_streams != 1, Change::SeveralStreams},
      {"disable_allreduce", a.disable_allreduce, Change::DisableAllreduce}};
  for (const auto& [name, set, change] : later)
    if (set && !a.release.has(change))
      return {std::string("/plan/") + name,
              "is of NVIDIA Apex " + apex::Version::first_with(change) +
                  " and later, and the plan's is " + a.release.name()};
  if (!on_gpus(p, device))
    return {"/plan/system",
            "apex is modelled on GPUs, over NCCL: it reduces on CUDA streams (pytorch_ddp takes "
            "CPUs and gloo)"};
  if (a.message_size < 1 || a.message_size > std::int64_t{1} << 40)
    return {"/plan/message_size", "1 to 2^40 elements (Apex counts elements, not bytes)"};
  if (a.num_allreduce_streams < 1 || a.num_allreduce_streams > kMostApexStreams)
    return {"/plan/num_allreduce_streams",
            "1 to " + std::to_string(kMostApexStreams) + " streams, each with a communicator"};
  if (a.delay_allreduce && a.num_allreduce_streams > 1)
    return {"/plan/num_allreduce_streams",
            "more than one only without delay_allreduce (Apex: \"may only be used if "
            "delay_allreduce=False\"); leave out one of the two"};
  if (a.delay_allreduce && !a.allreduce_trigger_params.empty())
    return {"/plan/allreduce_trigger_params",
            "\"is only valid if delay_allreduce=False\" (Apex); leave out one of the two"};
  if (!a.allreduce_trigger_params.empty() && a.message_size != ApexPlan{}.message_size)
    return {"/plan/message_size", "is ignored by Apex where allreduce_trigger_params is given"};
  for (std::size_t i = 0; i < a.allreduce_trigger_params.size(); ++i) {
    const std::string& name = a.allreduce_trigger_params[i];
    auto is_it = [&](const Tensor& t) { return t.name == name; };
    if (std::none_of(w.tensors.begin(), w.tensors.end(), is_it))
      return {"/plan/allreduce_trigger_params/" + std::to_string(i),
              "the workload has no parameter \"" + name + "\""};
  }
  if (a.gradient_predivide_factor &&
      !(*a.gradient_predivide_factor > 0 && *a.gradient_predivide_factor <= 1e9))
    return {"/plan/gradient_predivide_factor", "a positive number, at most 1e9"};
  if (a.disable_allreduce && p.accumulation_steps == 1)
    return {"/plan/disable_allreduce",
            "is of micro-steps before the last, and there is one (--set accumulation_steps=4)"};
  for (const Tensor& t : w.tensors)
    if (t.dtype == DType::BFloat16)
      return {"/plan/system",
              "Apex's DDP sorts gradients into half, float and double, and stops at bfloat16 (" +
                  t.name + ") with a KeyError: fp16, or autocast with weights of four bytes"};
  return {};
}

}  // namespace ddpsim::systems
