// validate() finds why a plan cannot run: its system refuses it, or it is not modelled. Settings of
// every system are checked here, the rest by the system's record.
#include <algorithm>
#include <set>
#include <string>

#include "sim/systems/base/record.h"

namespace ddpsim {
namespace {

using systems::GlooOnGpus;
using systems::SystemRecord;

// Gradients times micro-steps of a step that accumulates: its prediction takes some 10 microseconds
// and 4 KB for each, spans and their JSON counted.
constexpr std::int64_t kMostAccumulated = 200'000;

Problem check_compiled(const SystemRecord& s, const Workload& w, DeviceKind device) {
  if (w.cuda_graphs && device != DeviceKind::Gpu) return {"/workload", "CUDA graphs are of a GPU"};
  if (w.cuda_graphs && !s.replayed)
    return {"/workload", std::string("a step of ") + s.title +
                             " is not replayed as a CUDA graph: its host decides while it runs "
                             "(cuda_graphs=false)"};
  if (w.compile == Compile::Whole && !s.compiled_whole)
    return {"/workload/compile",
            "one graph of the whole model is of systems that keep gradients whole (PyTorch DDP, "
            "averaging, Horovod); here units are compiled one by one: "
            "--set workload.compile=regional"};
  if (w.compile == Compile::Buckets && !s.compiled_in_buckets)
    return {"/workload/compile",
            "graphs that end with DDP's buckets (torch.compile(DistributedDataParallel(model))) "
            "are of PyTorch DDP; elsewhere: --set workload.compile=regional, or none"};
  return {};
}

Problem check_numbers(const Plan& p, const Workload& w) {
  if (p.accumulation_steps < 1 || p.accumulation_steps > 10'000)
    return {"/plan/accumulation_steps", "1 to 10,000 micro-steps"};
  const std::int64_t gradients = w.arrival.size();
  if (p.accumulation_steps > 1 && p.accumulation_steps * gradients > kMostAccumulated)
    return {"/plan/accumulation_steps",
            "micro-steps times gradients (" + std::to_string(gradients) +
                " of this workload) is at most " + std::to_string(kMostAccumulated) + ": at most " +
                std::to_string(std::max<std::int64_t>(1, kMostAccumulated / gradients)) +
                " micro-steps"};
  if (p.gloo_threads < 1 || p.gloo_threads > 1024)
    return {"/plan/gloo_threads", "1 to 1,024 threads"};
  if (p.tcp_streams < 1 || p.tcp_streams > 16)
    return {"/plan/tcp_streams", "1 to 16 collectives in flight"};
  return {};
}

Problem check_gloo_on_gpus(const SystemRecord& s, const Workload& w) {
  const std::string gloo = "gloo with CUDA tensors (copies through the hosts' memory) ";
  if (s.gloo_on_gpus == GlooOnGpus::NoReduceScatter)
    return {"/plan/backend",
            gloo + "has no reduce-scatter for " + s.name() +
                " (PyTorch 2.7 and earlier stop with an error); use nccl, or pytorch_ddp"};
  if (s.gloo_on_gpus == GlooOnGpus::NotModelled)
    return {"/plan/backend",
            gloo + "is modelled of pytorch_ddp and averaging, not of " + s.name() + "; use nccl"};
  if (w.cuda_graphs)
    return {"/workload/cuda_graphs",
            "the host waits for gloo in every step, which a CUDA graph cannot hold "
            "(cuda_graphs=false, or backend=nccl)"};
  return {};
}

Problem check_backend(const SystemRecord& s, const Plan& p, const Workload& w, DeviceKind device) {
  const Backend b = backend_of(p, device);
  if (b == Backend::Mpi && device == DeviceKind::Gpu)
    return {"/plan/backend",
            "mpi with CUDA tensors (a CUDA-aware Open MPI copies them through its own buffers) is "
            "not modelled; use nccl"};
  if (b == Backend::Nccl && device == DeviceKind::Cpu)
    return {"/plan/backend",
            "nccl needs a workload on GPUs, and this one was captured on a CPU; use gloo"};
  if (stages_collectives(p, device))
    if (Problem problem = check_gloo_on_gpus(s, w)) return problem;
  if (p.algorithm != Algorithm::Ring && b != Backend::Tcp)
    return {"/plan/algorithm",
            std::string("is a knob of backend tcp, and the plan's backend is ") + name_of(b)};
  if (p.gloo_algorithm != Algorithm::Ring && b != Backend::Gloo)
    return {"/plan/gloo_algorithm",
            std::string("is a knob of backend gloo, and the plan's backend is ") + name_of(b)};
  return {};
}

Problem check_unused(const Plan& p, const Workload& w) {
  std::set<std::string_view> names;
  if (!p.unused_parameters.empty())
    for (const Tensor& t : w.tensors) names.insert(t.name);
  for (std::size_t i = 0; i < p.unused_parameters.size(); ++i)
    if (!names.count(p.unused_parameters[i]))
      return {"/plan/unused_parameters/" + std::to_string(i),
              "the workload has no parameter \"" + p.unused_parameters[i] + "\""};
  const std::vector<bool> unused = systems::unused_tensors(w, p);
  if (std::find(unused.begin(), unused.end(), false) == unused.end())
    return {"/plan/unused_parameters", "no parameter is left that gets a gradient"};
  return {};
}

}  // namespace

Problem validate(const Plan& p, const Workload& w, DeviceKind device) {
  const SystemRecord& s = systems::record_of(p.system);
  if (Problem problem = check_compiled(s, w, device)) return problem;
  if (Problem problem = check_numbers(p, w)) return problem;
  if (Problem problem = check_backend(s, p, w, device)) return problem;
  if (s.validate)
    if (Problem problem = s.validate(p, w, device)) return problem;
  return check_unused(p, w);
}

}  // namespace ddpsim
