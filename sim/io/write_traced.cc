#include "sim/io/write_traced.h"

#include <map>

#include "sim/systems/base/words.h"

namespace ddpsim::io {
namespace {

const char* name_of_optimizer(Optimizer::Kind k) {
  switch (k) {
    case Optimizer::Kind::Sgd:
      return "sgd";
    case Optimizer::Kind::Adam:
      return "adam";
    case Optimizer::Kind::AdamW:
      return "adamw";
    default:
      return "lamb";
  }
}

OrderedJson tensors_of(const std::vector<Tensor>& tensors) {
  OrderedJson out = OrderedJson::array();
  for (const Tensor& t : tensors)
    out.push_back({{"name", t.name}, {"shape", t.shape}, {"dtype", name_of(t.dtype)}});
  return out;
}

OrderedJson numbers(const std::vector<Duration>& durations) {
  OrderedJson out = OrderedJson::array();
  for (Duration d : durations) out.push_back(d.ps);
  return out;
}

}  // namespace

OrderedJson write_workload(const analysis::ImportedWorkload& imported, const analysis::Trace& trace,
                           const OrderedJson& source) {
  const Workload& w = imported.workload;
  OrderedJson j;
  j["schema"] = "ddpsim.workload/1";
  j["name"] = w.name;
  j["model"] = w.model;
  j["basis"] = "captured";
  j["batch"] = w.batch;
  j["precision"] = name_of(w.precision);
  j["device"] = {{"kind", w.device == DeviceKind::Gpu ? "gpu" : "cpu"}, {"name", w.device_name}};
  j["source"] = source;
  j["source"]["events"] = trace.events_in_file;
  j["source"]["iterations"] = imported.steps.size();
  const analysis::TracedStep& step = imported.steps[imported.median];
  j["source"]["iteration_ps"] = step.length().ps;
  j["source"]["hooks_ps"] = step.hooks.ps;
  j["source"]["exposed_ps"] = step.exposed.ps;
  const Optimizer& o = w.optimizer;
  j["optimizer"] = {{"name", name_of_optimizer(o.kind)},
                    {"momentum", o.momentum},
                    {"weight_decay", o.weight_decay},
                    {"foreach", o.foreach},
                    {"fused", o.fused}};
  j["tensors"] = tensors_of(w.tensors);
  if (!w.frozen.empty()) j["frozen"] = tensors_of(w.frozen);
  j["buffers"] = tensors_of(w.buffers);
  j["arrival"] = w.arrival;
  for (const NotCounted& n : w.not_counted)
    j["not_counted"].push_back({{"what", n.what}, {"bytes", n.bytes}});
  OrderedJson& t = j["times"];
  t["forward_ps"] = w.times.forward.ps;
  t["backward_ps"] = w.times.backward.ps;
  t["optimizer_ps"] = w.times.optimizer.ps;
  t["ready_ps"] = numbers(w.times.ready);
  if (w.times.host) {
    t["host_forward_ps"] = w.times.host->forward.ps;
    t["host_backward_ps"] = w.times.host->backward.ps;
    t["host_optimizer_ps"] = w.times.host->optimizer.ps;
    t["host_ready_ps"] = numbers(w.times.host->ready);
  }
  if (!imported.layers.empty()) t["layers"] = OrderedJson::array();
  for (const auto& [time, tensors, frozen] : imported.layers) {
    OrderedJson layer = {{"name", time.name}, {"tensors", tensors}};
    if (!frozen.empty()) layer["frozen"] = frozen;
    layer["forward_ps"] = time.forward.ps;
    if (w.times.host) layer["host_forward_ps"] = time.host_forward.ps;
    t["layers"].push_back(std::move(layer));
  }
  std::map<std::string, std::vector<Duration>> raw;
  for (const analysis::TracedStep& s : imported.steps) {
    raw["forward"].push_back(s.times.forward);
    raw["backward"].push_back(s.times.backward);
    raw["optimizer"].push_back(s.times.optimizer);
    raw["step_plain"].push_back(s.computed());
    raw["iteration"].push_back(s.length());
  }
  for (const auto& [name, values] : raw) t["raw"][name] = numbers(values);
  t["notes"] = imported.notes;
  return j;
}

void name_kinds(Run& run, const analysis::TracedRanks& job) {
  std::map<std::string, Operation> operations;
  for (const analysis::TracedCollective& c : job.collectives)
    operations[c.name] = c.message.operation.value_or(Operation::AllReduce);
  for (Span& s : run.spans) {
    if (auto kind = systems::kind_of(s.op)) {
      s.kind = *kind;
      continue;
    }
    // A collective that is no gradient's: its kind is that of such a one.
    s.kind = *systems::kind_of("allreduce/unused");
    s.kind.operation = operations[s.op];
  }
}

OrderedJson write_traced_run(const Run& run, const analysis::TracedRanks& job) {
  std::map<std::pair<int, std::string>, const analysis::TracedMessage*> messages;
  for (const analysis::TracedCollective& c : job.collectives)
    messages[{c.step, c.name}] = &c.message;
  OrderedJson j = write_run(run);
  for (OrderedJson& span : j["spans"]) {
    auto at = messages.find({span["step"].get<int>(), span["op"].get<std::string>()});
    if (at == messages.end()) continue;
    const analysis::TracedMessage& m = *at->second;
    if (m.dtype) span["dtype"] = name_of(*m.dtype);
    std::string group = m.group_ranks.empty() ? m.group : m.group_ranks;
    if (!group.empty()) span["group"] = group;
  }
  return j;
}

}  // namespace ddpsim::io
