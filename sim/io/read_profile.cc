#include "sim/io/codecs.h"
#include "sim/io/kernels_json.h"
#include "sim/io/known_errors.h"
#include "sim/io/power_json.h"

namespace ddpsim::io {
namespace {

Range read_range(const Reader& r) {
  r.only({"low", "mid", "high"});
  return {r.at("low").number(), r.at("mid").number(), r.at("high").number()};
}

// In the order of Evidence.
Evidence read_basis(const Reader& r) {
  return static_cast<Evidence>(r.at("basis").choice({"measured", "datasheet", "published"}));
}

Duration read_ps(const Reader& r, const char* key) {
  Reader v = r.at(key);
  std::int64_t ps = v.integer();
  if (ps < 0) v.fail("a time is not negative");
  if (ps > kSecond.ps) v.fail("a latency or overhead is at most a second (1000000000000 ps)");
  return {ps};
}

DurationRange read_times(const Reader& r) {
  r.only({"low", "mid", "high"});
  return {read_ps(r, "low"), read_ps(r, "mid"), read_ps(r, "high")};
}

Occasions read_occasions(const Reader& r) {
  r.only({"count", "source", "latency_ps", "message_core_ps"});
  Occasions o;
  o.count = r.at("count").small(2, 1'000'000);
  o.source = r.at("source").text();
  o.latency = read_times(r.at("latency_ps"));
  if (r.has("message_core_ps")) o.message_core = read_times(r.at("message_core_ps"));
  return o;
}

TransportSection read_transport(const Reader& r) {
  r.only({"basis", "source", "launch_ps", "latency_ps", "ll_latency_ps", "rendezvous_ps",
          "step_factor", "ll_max_bytes_per_s", "message_core_ps", "send_buffer_bytes",
          "cpu_ps_per_byte", "efficiency", "host_memory", "thread_bytes_per_s", "one_way",
          "table_residual", "knots", "occasions"});
  TransportSection t;
  t.basis = read_basis(r);
  t.source = r.at("source").text();
  t.launch = read_ps(r, "launch_ps");
  t.latency = read_ps(r, "latency_ps");
  if (r.has("ll_latency_ps")) t.ll_latency = read_ps(r, "ll_latency_ps");
  if (r.has("step_factor")) t.step_factor = r.at("step_factor").number();
  if (r.has("rendezvous_ps")) t.rendezvous = read_ps(r, "rendezvous_ps");
  if (r.has("message_core_ps")) {
    t.message_core = read_ps(r, "message_core_ps");
    if (t.message_core > t.latency)
      r.at("message_core_ps").fail("is a part of latency_ps, and cannot be longer");
  }
  if (r.has("send_buffer_bytes")) {
    t.send_buffer = {r.at("send_buffer_bytes").integer()};
    if (t.send_buffer.count < 0) r.at("send_buffer_bytes").fail("expected 0 or more bytes");
  }
  if (r.has("ll_max_bytes_per_s")) {
    double rate = r.at("ll_max_bytes_per_s").number();
    if (!(rate > 0)) r.at("ll_max_bytes_per_s").fail("a positive rate; leave it out if unknown");
    if (t.ll_latency) t.ll_max_bytes_per_s = rate;
  }
  if (r.has("cpu_ps_per_byte")) {
    t.cpu_ps_per_byte = r.at("cpu_ps_per_byte").number();
    if (!(t.cpu_ps_per_byte >= 0 && t.cpu_ps_per_byte < 1e6))
      r.at("cpu_ps_per_byte").fail("0 to a million picoseconds a byte");
  }
  t.efficiency = read_range(r.at("efficiency"));
  if (r.has("host_memory")) t.host_memory = read_range(r.at("host_memory"));
  if (r.has("thread_bytes_per_s")) t.thread_bytes_per_s = read_range(r.at("thread_bytes_per_s"));
  if (r.has("one_way")) t.one_way = r.at("one_way").number();
  if (r.has("knots"))
    for (const Reader& k : r.at("knots").items()) {
      k.only({"chunk_bytes", "factor"});
      t.knots.push_back({k.at("chunk_bytes").integer(), k.at("factor").number()});
    }
  if (r.has("occasions")) t.occasions = read_occasions(r.at("occasions"));
  return t;
}

std::vector<Knot> read_stretch(const Reader& r) {
  std::vector<Knot> out;
  for (const Reader& k : r.items()) {
    k.only({"ideal_ps", "factor"});
    out.push_back({k.at("ideal_ps").integer(), k.at("factor").number()});
  }
  return out;
}

KernelResidual read_kernel(const Reader& r) {
  r.only({"kernel", "held_out", "points", "least", "most", "median_error", "p90_error"});
  return {r.at("kernel").text(),
          r.at("held_out").boolean(),
          static_cast<int>(r.at("points").integer()),
          r.at("least").number(),
          r.at("most").number(),
          r.at("median_error").number(),
          r.at("p90_error").number()};
}

void read_peaks(const Reader& r, ComputeSection& c) {
  r.only({"fp32", "tf32", "bf16", "fp16"});
  for (Precision p : kPrecisions.names())
    if (r.has(name_of(p))) {
      c.peak_flops[p] = r.at(name_of(p)).number();
      if (c.peak_flops[p] <= 0)
        r.at(name_of(p)).fail("a peak rate is positive; leave out what the device does not offer");
    }
}

ComputeSection read_compute_section(const Reader& r) {
  ComputeSection c;
  r.only({"basis", "source", "compute_capability", "sms", "clock_hz", "peak_flops", "efficiency",
          "stretch", "described_error"});
  if (r.has("compute_capability")) c.capability = r.at("compute_capability").small(10, 999);
  if (r.has("sms")) c.sms = r.at("sms").small(1, 100'000);
  if (r.has("clock_hz")) {
    c.clock_hz = r.at("clock_hz").number();
    if (!(c.clock_hz >= 1e8 && c.clock_hz <= 1e10))
      r.at("clock_hz").fail("100 MHz to 10 GHz, in Hz");
  }
  c.basis = read_basis(r);
  c.source = r.at("source").text();
  read_peaks(r.at("peak_flops"), c);
  Reader efficiency = r.at("efficiency");
  efficiency.only({"gemm", "conv", "attention"});
  c.efficiency = {read_range(efficiency.at("gemm")), read_range(efficiency.at("conv")),
                  read_range(efficiency.at("attention"))};
  if (r.has("stretch")) {
    Reader stretch = r.at("stretch");
    stretch.only({"gemm", "conv", "attention"});
    for (std::size_t i = 0; i < 3; ++i)
      if (stretch.has(kKernelClasses[i]))
        c.stretch[i] = read_stretch(stretch.at(kKernelClasses[i]));
  }
  return c;
}

MemorySection read_memory_section(const Reader& r) {
  MemorySection m;
  r.only({"basis", "source", "bandwidth_bytes_per_s", "efficiency", "kernel_ps", "stretch",
          "shared_bytes_per_s", "half_divide_bytes_per_s", "thin_product_bytes_per_s",
          "capacity_bytes"});
  m.basis = read_basis(r);
  m.source = r.at("source").text();
  m.bandwidth_bytes_per_s = r.at("bandwidth_bytes_per_s").number();
  m.efficiency = read_range(r.at("efficiency"));
  m.kernel = read_ps(r, "kernel_ps");
  if (r.has("stretch")) m.stretch = read_stretch(r.at("stretch"));
  if (r.has("shared_bytes_per_s")) {
    m.shared_bytes_per_s = r.at("shared_bytes_per_s").number();
    if (!(m.shared_bytes_per_s > 0))
      r.at("shared_bytes_per_s")
          .fail("a positive rate; leave it out where hosts have memory of their own");
  }
  if (r.has("half_divide_bytes_per_s")) {
    m.half_divide_bytes_per_s = r.at("half_divide_bytes_per_s").number();
    if (!(m.half_divide_bytes_per_s > 0))
      r.at("half_divide_bytes_per_s")
          .fail("a positive rate; leave it out where halves are divided as fast as memory allows");
  }
  if (r.has("thin_product_bytes_per_s")) {
    m.thin_product_bytes_per_s = r.at("thin_product_bytes_per_s").number();
    if (!(m.thin_product_bytes_per_s > 0))
      r.at("thin_product_bytes_per_s")
          .fail("a positive rate; leave it out where such products are as fast as memory allows");
  }
  if (r.has("capacity_bytes")) m.capacity = {r.at("capacity_bytes").integer()};
  return m;
}

HostSection read_host_section(const Reader& r) {
  HostSection h;
  r.only({"basis", "source", "launch_ps", "hook_ps", "collective_launch_ps", "traverse_ps",
          "small_operator_ps", "calls", "call_factor"});
  h.basis = read_basis(r);
  h.source = r.at("source").text();
  h.launch = read_ps(r, "launch_ps");
  h.hook = read_ps(r, "hook_ps");
  h.collective_launch = read_ps(r, "collective_launch_ps");
  h.traverse = read_ps(r, "traverse_ps");
  if (r.has("small_operator_ps")) h.small_operator = read_ps(r, "small_operator_ps");
  if (r.has("calls")) h.calls = read_calls(r.at("calls"));
  if (r.has("call_factor")) h.call_factor = read_range(r.at("call_factor"));
  return h;
}

void read_interference(const Reader& r, Profile& p) {
  r.only({"basis", "source", "sm_hold", "memory_hold", "by_blocks"});
  if (r.has("by_blocks"))
    for (const Reader& h : r.at("by_blocks").items()) {
      h.only({"blocks", "products", "memory"});
      p.hold_at.push_back(
          {h.at("blocks").small(1, 10'000), h.at("products").number(), h.at("memory").number()});
    }
  if (r.has("memory_hold")) p.memory_hold = read_range(r.at("memory_hold"));
  p.interference_basis = read_basis(r);
  Reader hold = r.at("sm_hold");
  p.sm_hold = read_range(hold);
}

void read_stragglers(const Reader& r, Profile& p) {
  r.only({"basis", "source", "cv"});
  read_basis(r);
  p.rank_cv = read_range(r.at("cv"));
}

void read_reduction(const Reader& r, Profile& p) {
  r.only({"basis", "source", "bytes_per_s", "half_bytes_per_s"});
  p.reduction_basis = read_basis(r);
  p.reduction_bytes_per_s = r.at("bytes_per_s").number();
  if (!(p.reduction_bytes_per_s > 0))
    r.at("bytes_per_s").fail("a positive rate; leave \"reduction\" out if unknown");
  if (r.has("half_bytes_per_s")) {
    p.half_reduction_bytes_per_s = r.at("half_bytes_per_s").number();
    if (!(p.half_reduction_bytes_per_s > 0 && p.half_reduction_bytes_per_s < 1e15))
      r.at("half_bytes_per_s").fail("a positive rate; leave it out if unknown");
  }
}

void read_fit(const Reader& r, Profile& p) {
  r.only({"scenarios", "step_residual", "residuals", "kernels"});
  for (const Reader& s : r.at("scenarios").items()) p.fitted_from.push_back(s.text());
  if (r.has("step_residual")) p.step_residual = r.at("step_residual").number();
  if (r.has("kernels"))
    for (const Reader& k : r.at("kernels").items()) p.kernels.push_back(read_kernel(k));
  if (!(p.step_residual >= 0 && p.step_residual < 1))
    r.at("step_residual").fail("a fraction from 0 to 1");
}

}  // namespace

Profile read_profile(const Json& j, const std::string& file) {
  Reader r(j, file);
  r.schema("ddpsim.profile/1");
  r.only({"schema", "name", "hardware", "kind", "compute", "memory", "host", "kernels",
          "transports", "interference", "stragglers", "reduction", "fit", "power", "unknown",
          "extends"});
  if (j.contains("extends"))
    r.fail_at("/extends", "only a profile's file extends another; name a --profile instead");
  Profile p;
  p.name = r.at("name").text();
  p.hardware = r.at("hardware").text();
  p.kind = r.at("kind").choice({"cpu", "gpu"}) == 0 ? DeviceKind::Cpu : DeviceKind::Gpu;
  p.compute = read_compute_section(r.at("compute"));
  p.memory = read_memory_section(r.at("memory"));
  p.host = read_host_section(r.at("host"));
  if (r.has("kernels")) {
    Reader kernels = r.at("kernels");
    if (kernels.at("basis").choice({"measured", "carried"}) == 1)
      read_carried(kernels, p);
    else
      p.costs = read_kernel_costs(kernels);
  }
  if (r.has("unknown"))
    for (const Reader& sentence : r.at("unknown").items()) p.unknown.push_back(sentence.text());
  if (r.has("power")) p.power = read_power(r.at("power"), p);
  for (const auto& [name, t] : r.at("transports").members())
    p.transports.emplace(name, read_transport(t));
  if (r.has("interference")) read_interference(r.at("interference"), p);
  if (r.has("stragglers")) read_stragglers(r.at("stragglers"), p);
  if (r.has("reduction")) read_reduction(r.at("reduction"), p);
  if (r.has("fit")) read_fit(r.at("fit"), p);
  if (auto problem = validate(p)) r.fail_at(problem.path, problem.message);
  read_known_errors(j, file);
  return p;
}

}  // namespace ddpsim::io
