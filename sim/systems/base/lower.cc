#include "sim/systems/base/lower.h"

#include <algorithm>

#include "sim/systems/base/own_work.h"
#include "sim/systems/base/record.h"

namespace ddpsim::systems {

Program lower(const TimedWorkload& workload, const Plan& plan, Steps steps) {
  Program p = record_of(plan.system).lower(workload, plan, steps);
  add_own_work(p, workload, plan);
  return p;
}

Program empty_program(const TimedWorkload& timed, const Plan& plan) {
  const Workload& w = timed.workload;
  Program p;
  p.device = timed.device;
  p.backend = backend_of(plan, timed.device);
  p.worker_threads = worker_threads(plan, p.backend);
  if (stages_collectives(plan, timed.device)) p.streams = {"to_host", "to_device"};
  p.micro_steps = plan.accumulation_steps;
  Duration step = timed.times.forward + timed.times.backward + timed.times.optimizer;
  if (timed.times.core.ps > 0 && step.ps > 0) p.core_share = std::min(1.0, timed.times.core / step);
  p.at_once = timed.times.at_once;
  p.products = timed.times.products;
  p.kernel = timed.times.kernel;
  p.tensor_names.reserve(w.tensors.size());
  p.tensor_bytes.reserve(w.tensors.size());
  for (const Tensor& t : w.tensors) {
    p.tensor_names.push_back(t.name);
    p.tensor_bytes.push_back(t.bytes().count);
  }
  return p;
}

void name_frozen(Program& p, const Workload& w) {
  for (const Tensor& t : w.frozen) {
    p.tensor_names.push_back(t.name);
    p.tensor_bytes.push_back(t.bytes().count);
  }
  p.frozen = w.frozen.size();
}

std::vector<bool> unused_tensors(const Workload& w, const Plan& plan) {
  std::vector<bool> unused(w.tensors.size(), true);
  for (TensorIndex i : w.arrival) unused[i] = false;
  for (const std::string& name : plan.unused_parameters)
    for (std::size_t i = 0; i < w.tensors.size(); ++i)
      if (w.tensors[i].name == name) unused[i] = true;
  return unused;
}

BackwardTimeline backward_timeline(const TimedWorkload& timed, const std::vector<bool>& unused) {
  const Workload& w = timed.workload;
  const StepTimes& times = timed.times;
  BackwardTimeline t;
  Duration device;
  Duration host;
  t.segments.reserve(w.arrival.size());
  for (std::size_t i = 0; i < w.arrival.size(); ++i) {
    if (unused[w.arrival[i]]) continue;
    Duration d = times.ready[i];
    Duration h = times.host ? times.host->ready[i] : Duration{};
    t.segments.push_back({w.arrival[i], d - device, h - host});
    device = d;
    host = h;
  }
  t.tail_device = times.backward - device;
  if (times.host) t.tail_host = times.host->backward - host;
  return t;
}

}  // namespace ddpsim::systems
