// ddpsim.program/1, with all that playing it needs: what read_playable() reads back is the same
// Program.
#include "sim/io/codecs.h"

namespace ddpsim::io {
namespace {

void write_cost(const Op& op, const StepProgram& s, OrderedJson& out) {
  if (is_wait(op.kind) && !is_server_work(op.kind)) return;
  if (op.cost != Cost::Measured) out["cost"] = name_of(op.cost);
  if (op.cost == Cost::Measured || op.duration.ps > 0) out["duration_ps"] = op.duration.ps;
  if (op.traffic > 0) out["traffic_bytes"] = op.traffic;
  if (op.kernels > 0) out["kernels"] = op.kernels;
  if (op.hooks > 0) out["hooks"] = op.hooks;
  if (op.cost == Cost::HalfDivision) out["divided_bytes"] = s.buckets[op.subject].wire_bytes.count;
}

// "P[from:to]", in elements, where a bucket holds a part of P.
void write_slices(const Program& p, const Bucket& bucket, OrderedJson& tensors) {
  for (std::size_t k = 0; k < bucket.slices.size(); ++k) {
    const auto [from, to] = bucket.slices[k];
    if ((to - from) * element_size(bucket.dtype) == p.tensor_bytes[bucket.tensors[k]]) continue;
    tensors[k] =
        tensors[k].get<std::string>() + "[" + std::to_string(from) + ":" + std::to_string(to) + "]";
  }
}

OrderedJson write_op(const Program& p, const StepProgram& s, std::uint32_t i) {
  const Op& op = s.ops[i];
  OrderedJson out;
  out["lane"] = name_of(op.lane, p.streams);
  out["op"] = name_of(p, s, i);
  out["does"] = name_of(op.kind.does);
  out["phase"] = name_of(op.kind.phase);
  out["tensors"] = OrderedJson::array();
  for (TensorIndex t : tensors_of(p, s, i)) out["tensors"].push_back(p.tensor_names[t]);
  if (carries_bucket(op.kind)) write_slices(p, s.buckets[op.subject], out["tensors"]);
  out["bytes"] = op.bytes;
  if (op.kind.divides) out["divides"] = true;
  if (is_collective(op.kind)) {
    out["operation"] = name_of(op.kind.operation);
    out["group"] = op.group == 0 ? "world" : p.groups[op.group - 1].name;
    if (op.root > 0) out["root"] = op.root;
    // Of buffers a Program keeps the bytes only.
    if (!is_broadcast(op.kind) || carries_tensors(op.kind)) out["dtype"] = name_of(op.dtype);
  } else {
    write_cost(op, s, out);
  }
  std::vector<std::string> waits;
  for (std::uint32_t d : deps_of(s, i)) waits.push_back(name_of(p, s, d));
  std::sort(waits.begin(), waits.end());
  out["waits_for"] = waits;
  return out;
}

// In the order in which the host makes them.
void write_memory(const StepProgram& s, OrderedJson& ops) {
  for (const MemoryChange& c : s.memory) {
    OrderedJson change = {{"holds", name_of(c.holds)}, {"bytes", c.bytes}};
    if (c.at_end) change["at_end"] = true;
    ops[c.op]["memory"].push_back(std::move(change));
  }
}

}  // namespace

OrderedJson write_program(const Program& p, const Workload& w, int ranks) {
  OrderedJson j;
  j["schema"] = "ddpsim.program/1";
  j["name"] = w.name;
  j["device"] = p.device == DeviceKind::Cpu ? "cpu" : "gpu";
  j["backend"] = name_of(p.backend);
  j["ranks"] = ranks;
  if (w.batch > 0) j["batch"] = w.batch;  // of a program that was given: where it says one
  j["micro_steps"] = p.micro_steps;
  j["worker_threads"] = p.worker_threads;
  if (!p.streams.empty()) j["streams"] = p.streams;
  for (const RankGroups& g : p.groups) {
    if (g.server >= 0) {
      j["groups"][g.name] = {{"server", g.server}};
      continue;
    }
    j["groups"][g.name] = {{"size", g.size}, {"stride", g.stride}};
    if (g.by_hosts) j["groups"][g.name]["by_hosts"] = name_of(*g.by_hosts);
  }
  if (p.servers)
    j["servers"] = {{"count", p.servers->count},
                    {"synchronous", p.servers->synchronous},
                    {"staleness", p.servers->staleness},
                    {"own_hosts", p.servers->own_hosts}};
  if (p.core_share >= 0) j["core_share"] = p.core_share;
  if (p.at_once > 0) j["at_once"] = p.at_once;
  if (p.products < 1) j["products"] = p.products;
  if (p.kernel.ps > 0) j["kernel_ps"] = p.kernel.ps;
  j["tensors"] = OrderedJson::array();
  for (const Tensor& t : w.tensors)
    j["tensors"].push_back(
        {{"name", t.name}, {"kind", "parameter"}, {"shape", t.shape}, {"dtype", name_of(t.dtype)}});
  j["steps"] = OrderedJson::array();
  auto add = [&](const StepProgram& s) {
    OrderedJson step;
    step["kind"] = name_of(s.kind);
    step["ops"] = OrderedJson::array();
    for (std::uint32_t i = 0; i < s.ops.size(); ++i) step["ops"].push_back(write_op(p, s, i));
    write_memory(s, step["ops"]);
    j["steps"].push_back(std::move(step));
  };
  for (const StepProgram& s : p.warmup) add(s);
  add(p.steady);
  return j;
}

}  // namespace ddpsim::io
