#include "sim/systems/megatron/megatron.h"
#include "sim/systems/megatron/plan.h"

namespace ddpsim::systems {

// What Megatron-LM refuses (training/arguments.py, param_and_grad_buffer.py), and what is not
// modelled.
Problem validate_megatron(const Plan& p, const Workload& w, DeviceKind device) {
  const MegatronPlan& m = megatron_of(p);
  if (!on_gpus(p, device)) return {"/plan/system", "megatron is modelled on GPUs, over NCCL"};
  if (m.overlap_param_gather && !m.use_distributed_optimizer)
    return {"/plan/overlap_param_gather",
            "only with the distributed optimizer (--set use_distributed_optimizer=true)"};
  if (m.overlap_param_gather && !m.overlap_grad_reduce)
    return {"/plan/overlap_param_gather",
            "needs overlap_grad_reduce, too (--set overlap_grad_reduce=true)"};
  if (m.overlap_param_gather && w.layers.empty())
    return {"/plan/overlap_param_gather",
            "gathers weights before the layers that need them, and this capture knows forward only "
            "as a whole: capture it again (tools/python/ddpsim_capture.py notes when each layer "
            "begins, and ddpsim import kineto, of a trace with sequence numbers), or use a "
            "described workload (ddpsim list workloads)"};
  if (m.bucket_size < 0 || m.bucket_size > std::int64_t{1} << 40)
    return {"/plan/bucket_size", "elements, at most 2^40; 0 = max(40e6, 1e6 a rank)"};
  if (m.num_buckets < 0 || m.num_buckets > w.elements())
    return {"/plan/num_buckets", "1 to the elements of the model; 0 = as bucket_size says"};
  if (m.num_buckets > 0 && m.bucket_size > 0)
    return {"/plan/num_buckets", "takes the place of bucket_size; give one of the two"};
  if (!p.unused_parameters.empty() || w.arrival.size() != w.tensors.size())
    return {"/plan/system",
            "a parameter never gets a gradient: Megatron-LM's buckets wait for all of theirs, and "
            "stop with an error (megatron is modelled for models that use every parameter)"};
  for (const Tensor& t : w.tensors)
    if (t.dtype != w.tensors.front().dtype)
      return {"/plan/system",
              "parameters of several types, which Megatron-LM puts into several "
              "buffers, are not modelled"};
  if (is_half(w.precision) && w.casting != Casting::MasterWeights)
    return {"/workload/casting",
            "Megatron-LM trains weights of two bytes with a copy of four: "
            "--set workload.casting=master_weights"};
  if (w.loop.grad_scaler.value_or(false))
    return {"/workload/loop/grad_scaler",
            "Megatron-LM takes no GradScaler: it scales the loss itself where weights are fp16"};
  return {};
}

}  // namespace ddpsim::systems
