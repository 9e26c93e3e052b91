#include "sim/strategy/lower.h"

#include <algorithm>

namespace ddpsim::strategy {

Program lower(const Workload& workload, const Plan& plan) {
  return plan.system == System::PytorchDdp ? lower_ddp(workload, plan) : lower_averaging(workload, plan);
}

Program empty_program(const Workload& w, const Plan& plan) {
  Program p;
  p.device = w.device;
  p.backend = backend_of(plan, w.device);
  p.worker_threads = plan.gloo_threads;
  p.micro_steps = plan.accumulation_steps;
  p.tensor_names.reserve(w.tensors.size());
  p.tensor_bytes.reserve(w.tensors.size());
  for (const Tensor& t : w.tensors) {
    p.tensor_names.push_back(t.name);
    p.tensor_bytes.push_back(t.bytes().count);
  }
  return p;
}

std::vector<bool> unused_tensors(const Workload& w, const Plan& plan) {
  std::vector<bool> unused(w.tensors.size(), true);
  for (TensorIndex i : w.arrival) unused[i] = false;
  for (const std::string& name : plan.unused_parameters)
    for (std::size_t i = 0; i < w.tensors.size(); ++i)
      if (w.tensors[i].name == name) unused[i] = true;
  return unused;
}

BackwardTimeline backward_timeline(const Workload& w, const std::vector<bool>& unused) {
  BackwardTimeline t;
  Duration device;
  Duration host;
  t.segments.reserve(w.arrival.size());
  for (std::size_t i = 0; i < w.arrival.size(); ++i) {
    if (unused[w.arrival[i]]) continue;
    Duration d = w.times.ready[i];
    Duration h = w.times.host ? w.times.host->ready[i] : Duration{};
    t.segments.push_back({w.arrival[i], d - device, h - host});
    device = d;
    host = h;
  }
  t.tail_device = w.times.backward - device;
  if (w.times.host) t.tail_host = w.times.host->backward - host;
  return t;
}

}  // namespace ddpsim::strategy
