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

OrderedJson compute_section(const ComputeSection& c) {
  OrderedJson out = section(c.basis, c.source);
  if (c.capability > 0) out["compute_capability"] = c.capability;
  if (c.sms > 0) out["sms"] = c.sms;
  if (c.clock_hz > 0) out["clock_hz"] = c.clock_hz;
  out["peak_flops"] = OrderedJson::object();
  for (Precision p : kPrecisions.names())
    if (c.peak_flops[p] > 0) out["peak_flops"][name_of(p)] = c.peak_flops[p];
  out["efficiency"] = {{"gemm", range(c.efficiency[0])},
                       {"conv", range(c.efficiency[1])},
                       {"attention", range(c.efficiency[2])}};
  for (std::size_t i = 0; i < 3; ++i)
    if (!c.stretch[i].empty()) out["stretch"][kKernelClasses[i]] = stretch(c.stretch[i]);
  return out;
}

OrderedJson memory_section(const MemorySection& m) {
  OrderedJson out = section(m.basis, m.source);
  out["bandwidth_bytes_per_s"] = m.bandwidth_bytes_per_s;
  out["efficiency"] = range(m.efficiency);
  out["kernel_ps"] = m.kernel.ps;
  if (!m.stretch.empty()) out["stretch"] = stretch(m.stretch);
  if (m.shared_bytes_per_s > 0) out["shared_bytes_per_s"] = m.shared_bytes_per_s;
  if (m.half_divide_bytes_per_s > 0) out["half_divide_bytes_per_s"] = m.half_divide_bytes_per_s;
  if (m.thin_product_bytes_per_s > 0) out["thin_product_bytes_per_s"] = m.thin_product_bytes_per_s;
  if (m.capacity.count > 0) out["capacity_bytes"] = m.capacity.count;
  return out;
}

// `carried`: the kernels are carried over, and the calls come with them.
OrderedJson host_section(const HostSection& h, bool carried) {
  OrderedJson out = section(h.basis, h.source);
  out["launch_ps"] = h.launch.ps;
  out["hook_ps"] = h.hook.ps;
  out["collective_launch_ps"] = h.collective_launch.ps;
  out["traverse_ps"] = h.traverse.ps;
  if (h.small_operator.ps > 0) out["small_operator_ps"] = h.small_operator.ps;
  if (!h.calls.empty() && !carried) out["calls"] = write_calls(h.calls);
  if (const Range& f = h.call_factor; f.low != 1 || f.mid != 1 || f.high != 1)
    out["call_factor"] = range(f);
  return out;
}

OrderedJson transport_section(const TransportSection& t) {
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
  for (const Knot& k : t.knots) s["knots"].push_back({{"chunk_bytes", k.at}, {"factor", k.factor}});
  if (t.occasions) s["occasions"] = occasions(*t.occasions);
  return s;
}

OrderedJson interference_section(const Profile& p) {
  OrderedJson s = section(*p.interference_basis,
                          *p.interference_basis == Evidence::Measured
                              ? "fitted from kernels beside a communication kernel's stand-in"
                              : "as in the base profile");
  s["sm_hold"] = range(p.sm_hold);
  if (p.memory_hold) s["memory_hold"] = range(*p.memory_hold);
  for (const Profile::HoldAt& h : p.hold_at)
    s["by_blocks"].push_back(
        {{"blocks", h.blocks}, {"products", h.products}, {"memory", h.memory}});
  return s;
}

OrderedJson reduction_section(const Profile& p) {
  OrderedJson s = section(*p.reduction_basis, *p.reduction_basis == Evidence::Measured
                                                  ? "fitted from executed collectives"
                                                  : "as in the base profile");
  s["bytes_per_s"] = p.reduction_bytes_per_s;
  if (p.half_reduction_bytes_per_s > 0) s["half_bytes_per_s"] = p.half_reduction_bytes_per_s;
  return s;
}

OrderedJson fit_section(const Profile& p, const std::vector<OrderedJson>& residuals) {
  OrderedJson fit = {
      {"scenarios", p.fitted_from}, {"step_residual", p.step_residual}, {"residuals", residuals}};
  for (const KernelResidual& k : p.kernels)
    fit["kernels"].push_back({{"kernel", k.kernel},
                              {"held_out", k.held_out},
                              {"points", k.points},
                              {"least", k.least},
                              {"most", k.most},
                              {"median_error", k.median_error},
                              {"p90_error", k.p90_error}});
  return fit;
}

}  // namespace

OrderedJson write_profile(const Profile& p, const std::vector<OrderedJson>& residuals) {
  OrderedJson j;
  j["schema"] = "ddpsim.profile/1";
  j["name"] = p.name;
  j["hardware"] = p.hardware;
  j["kind"] = p.kind == DeviceKind::Cpu ? "cpu" : "gpu";
  j["compute"] = compute_section(p.compute);
  j["memory"] = memory_section(p.memory);
  j["host"] = host_section(p.host, p.costs && !p.costs->carried_from.empty());
  if (p.costs) j["kernels"] = write_kernel_costs(*p.costs);
  if (p.power) j["power"] = write_power(*p.power);
  j["transports"] = OrderedJson::object();
  for (const auto& [name, t] : p.transports) j["transports"][name] = transport_section(t);
  if (p.interference_basis) j["interference"] = interference_section(p);
  if (!p.unknown.empty()) j["unknown"] = p.unknown;
  if (p.rank_cv) {
    j["stragglers"] = section(Evidence::Published, "as in the base profile");
    j["stragglers"]["cv"] = range(*p.rank_cv);
  }
  if (p.reduction_basis) j["reduction"] = reduction_section(p);
  j["fit"] = fit_section(p, residuals);
  return j;
}

}  // namespace ddpsim::io
