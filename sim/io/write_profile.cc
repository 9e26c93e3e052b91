#include "sim/io/codecs.h"
#include "sim/io/kernels_json.h"
#include "sim/io/power_json.h"

namespace ddpsim::io {
namespace {

OrderedJson range(const Range& r) {
  return {{"low", r.low}, {"mid", r.mid}, {"high", r.high}};
}
const char* basis(Evidence e) {
  return e == Evidence::Measured    ? "measured"
         : e == Evidence::Published ? "published"
                                    : "datasheet";
}

OrderedJson section(Evidence e, const std::string& source) {
  OrderedJson j;
  j["basis"] = basis(e);
  j["source"] = source;
  return j;
}

OrderedJson stretch(const std::vector<Knot>& knots) {
  OrderedJson out = OrderedJson::array();
  for (const Knot& k : knots) out.push_back({{"ideal_ps", k.at}, {"factor", k.factor}});
  return out;
}

OrderedJson times(const DurationRange& r) {
  return {{"low", r.low.ps}, {"mid", r.mid.ps}, {"high", r.high.ps}};
}

OrderedJson occasions(const Occasions& o) {
  OrderedJson out = {{"count", o.count}, {"source", o.source}, {"latency_ps", times(o.latency)}};
  if (o.message_core.high.ps > 0) out["message_core_ps"] = times(o.message_core);
  return out;
}

}  // namespace

OrderedJson write_profile(const Profile& p, const std::vector<OrderedJson>& residuals) {
  OrderedJson j;
  j["schema"] = "ddpsim.profile/1";
  j["name"] = p.name;
  j["hardware"] = p.hardware;
  j["kind"] = p.kind == DeviceKind::Cpu ? "cpu" : "gpu";
  OrderedJson compute = section(p.compute.basis, p.compute.source);
  if (p.compute.capability > 0) compute["compute_capability"] = p.compute.capability;
  const char* precisions[] = {"fp32", "tf32", "bf16", "fp16"};
  if (p.compute.sms > 0) compute["sms"] = p.compute.sms;
  if (p.compute.clock_hz > 0) compute["clock_hz"] = p.compute.clock_hz;
  compute["peak_flops"] = OrderedJson::object();
  for (std::size_t i = 0; i < 4; ++i)
    if (p.compute.peak_flops[i] > 0) compute["peak_flops"][precisions[i]] = p.compute.peak_flops[i];
  compute["efficiency"] = {{"gemm", range(p.compute.efficiency[0])},
                           {"conv", range(p.compute.efficiency[1])},
                           {"attention", range(p.compute.efficiency[2])}};
  for (std::size_t i = 0; i < 3; ++i)
    if (!p.compute.stretch[i].empty())
      compute["stretch"][kKernelClasses[i]] = stretch(p.compute.stretch[i]);
  j["compute"] = compute;
  OrderedJson memory = section(p.memory.basis, p.memory.source);
  memory["bandwidth_bytes_per_s"] = p.memory.bandwidth_bytes_per_s;
  memory["efficiency"] = range(p.memory.efficiency);
  memory["kernel_ps"] = p.memory.kernel.ps;
  if (!p.memory.stretch.empty()) memory["stretch"] = stretch(p.memory.stretch);
  if (p.memory.shared_bytes_per_s > 0) memory["shared_bytes_per_s"] = p.memory.shared_bytes_per_s;
  if (p.memory.half_divide_bytes_per_s > 0)
    memory["half_divide_bytes_per_s"] = p.memory.half_divide_bytes_per_s;
  if (p.memory.thin_product_bytes_per_s > 0)
    memory["thin_product_bytes_per_s"] = p.memory.thin_product_bytes_per_s;
  if (p.memory.capacity.count > 0) memory["capacity_bytes"] = p.memory.capacity.count;
  j["memory"] = memory;
  OrderedJson host = section(p.host.basis, p.host.source);
  host["launch_ps"] = p.host.launch.ps;
  host["hook_ps"] = p.host.hook.ps;
  host["collective_launch_ps"] = p.host.collective_launch.ps;
  host["traverse_ps"] = p.host.traverse.ps;
  if (p.host.small_operator.ps > 0) host["small_operator_ps"] = p.host.small_operator.ps;
  bool carried = p.costs && !p.costs->carried_from.empty();
  if (!p.host.calls.empty() && !carried) host["calls"] = write_calls(p.host.calls);
  if (const Range& f = p.host.call_factor; f.low != 1 || f.mid != 1 || f.high != 1)
    host["call_factor"] = range(f);
  j["host"] = host;
  if (p.costs) j["kernels"] = write_kernel_costs(*p.costs);
  if (p.power) j["power"] = write_power(*p.power);
  j["transports"] = OrderedJson::object();
  for (const auto& [name, t] : p.transports) {
    OrderedJson s = section(t.basis, t.source);
    s["launch_ps"] = t.launch.ps;
    s["latency_ps"] = t.latency.ps;
    if (t.message_core.ps > 0) s["message_core_ps"] = t.message_core.ps;
    if (t.send_buffer.count > 0) s["send_buffer_bytes"] = t.send_buffer.count;
    if (t.ll_latency) s["ll_latency_ps"] = t.ll_latency->ps;
    if (t.step_factor != 1) s["step_factor"] = t.step_factor;
    if (t.rendezvous.ps > 0) s["rendezvous_ps"] = t.rendezvous.ps;
    if (t.ll_max_bytes_per_s > 0) s["ll_max_bytes_per_s"] = t.ll_max_bytes_per_s;
    if (t.cpu_ps_per_byte > 0) s["cpu_ps_per_byte"] = t.cpu_ps_per_byte;
    s["efficiency"] = range(t.efficiency);
    if (t.host_memory) s["host_memory"] = range(*t.host_memory);
    if (t.thread_bytes_per_s) s["thread_bytes_per_s"] = range(*t.thread_bytes_per_s);
    if (t.one_way != 1) s["one_way"] = t.one_way;
    for (const Knot& k : t.knots)
      s["knots"].push_back({{"chunk_bytes", k.at}, {"factor", k.factor}});
    if (t.occasions) s["occasions"] = occasions(*t.occasions);
    j["transports"][name] = s;
  }
  if (p.interference_basis) {
    OrderedJson s = section(*p.interference_basis,
                            *p.interference_basis == Evidence::Measured
                                ? "fitted from kernels beside a communication kernel's stand-in"
                                : "as in the base profile");
    s["sm_hold"] = range(p.sm_hold);
    if (p.memory_hold) s["memory_hold"] = range(*p.memory_hold);
    for (const Profile::HoldAt& h : p.hold_at)
      s["by_blocks"].push_back(
          {{"blocks", h.blocks}, {"products", h.products}, {"memory", h.memory}});
    j["interference"] = s;
  }
  if (!p.unknown.empty()) j["unknown"] = p.unknown;
  if (p.rank_cv) {
    j["stragglers"] = section(Evidence::Published, "as in the base profile");
    j["stragglers"]["cv"] = range(*p.rank_cv);
  }
  if (p.reduction_basis) {
    OrderedJson s = section(*p.reduction_basis, *p.reduction_basis == Evidence::Measured
                                                    ? "fitted from executed collectives"
                                                    : "as in the base profile");
    s["bytes_per_s"] = p.reduction_bytes_per_s;
    if (p.half_reduction_bytes_per_s > 0) s["half_bytes_per_s"] = p.half_reduction_bytes_per_s;
    j["reduction"] = s;
  }
  j["fit"] = {
      {"scenarios", p.fitted_from}, {"step_residual", p.step_residual}, {"residuals", residuals}};
  for (const KernelResidual& k : p.kernels)
    j["fit"]["kernels"].push_back({{"kernel", k.kernel},
                                   {"held_out", k.held_out},
                                   {"points", k.points},
                                   {"least", k.least},
                                   {"most", k.most},
                                   {"median_error", k.median_error},
                                   {"p90_error", k.p90_error}});
  return j;
}

}  // namespace ddpsim::io
