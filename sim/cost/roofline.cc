#include "sim/cost/roofline.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "sim/cost/layer_time.h"
#include "sim/model/blocks.h"
#include "sim/model/compiled.h"
#include "sim/systems/base/record.h"
#include "sim/units/convert.h"

namespace ddpsim::predict {
namespace {

// Bytes of an activation relative to fp32.
double element_scale(Precision p) {
  return is_half(p) ? 0.5 : 1.0;
}

// What `kernels` alike take that would ideally take this long together.
Duration stretched(const std::vector<Knot>& knots, Duration ideal, int kernels = 1) {
  return knots.empty() ? ideal
                       : scale(ideal, correction(knots, static_cast<double>(ideal.ps) / kernels));
}

// `products`: matrix products or convolutions that the flops are of (backward: gradients of data
// and of weights).
Duration layer_time(const Workload& w, const Profile& p, Level level, const Layer& l,
                    const LayerCost& c, int products) {
  const KernelClass kernel = l.kernel;
  double batch = w.batch;
  const double scale = is_fused(l.op) ? 1 : element_scale(w.precision);
  double bytes = c.bytes_per_sample * batch * scale + c.bytes_fixed;
  Duration time = stretched(p.memory.stretch, {ceil_ps(bytes, memory_rate(p, level))});
  double flops = c.flops_per_sample * batch;
  if (flops > 0 && kernel != KernelClass::Memory) {
    std::size_t index = kernel == KernelClass::Gemm ? 0 : kernel == KernelClass::Conv ? 1 : 2;
    Precision precision = w.precision;
    // torch.backends.cudnn.allow_tf32 is True by default: fp32 convolutions run in TF32 where the
    // device has it; matrix products do not (since 1.12).
    bool tf32 = p.compute.peak_flops[Precision::Tf32] > 0;
    if (precision == Precision::Fp32 && kernel == KernelClass::Conv && tf32)
      precision = Precision::Tf32;
    double peak = p.compute.peak_flops[precision];
    time = std::max(
        time, stretched(p.compute.stretch[index],
                        {ceil_ps(flops, per_ps(peak * at(p.compute.efficiency[index], level)))},
                        products));
  }
  Duration floor = p.memory.kernel * c.kernels;
  return std::max(floor, time);
}

// A datasheet's host times are typical values, not measurements: between 0.7 and 1.6 times as long.
Duration host_time(const Profile& p, Level level, Duration d) {
  if (p.host.basis == Evidence::Measured || level == Level::Mid) return d;
  return scale(d, level == Level::Low ? 1.6 : 0.7);
}

// What the host pays for a layer: a call that was measured, or a launch a kernel.
class CallTimes {
 public:
  CallTimes(const Workload& w, const Profile& p, Level level) : w_(w), p_(p), level_(level) {}
  Duration of(const Layer& l, bool backward) {
    const LayerCost& c = backward ? l.backward : l.forward;
    // Compiled, a kernel is launched by generated code, without modules or nodes of autograd.
    const bool calls = c.kernels > 0 && !is_compiled(w_, l);
    const CallCost* call = calls ? measured(l.op.kind) : nullptr;
    if (!call) return host_time(p_, level_, p_.host.launch * c.kernels);
    Duration d = scale(backward ? call->backward : call->forward, at(p_.host.call_factor, level_));
    bool ranged = p_.host.call_factor.low != p_.host.call_factor.high;
    return ranged ? d : host_time(p_, level_, d);
  }

 private:
  const CallCost* measured(const std::string& kind) {
    for (const auto& [one, call] : known_)
      if (*one == kind) return call;
    return known_.emplace_back(&kind, find(kind)).second;
  }
  const CallCost* find(std::string_view kind) const {
    if (kind.empty()) return nullptr;
    for (const char* one : {"gelu", "tanh", "silu", "sigmoid"})
      if (kind == one) kind = "relu";
    bool casts = element_scale(w_.precision) < 1 && w_.casting == Casting::Autocast;
    if (casts && (kind == "linear" || kind == "conv")) kind = "linear_autocast";
    for (const CallCost& call : p_.host.calls)
      if (call.op == kind) return &call;
    return nullptr;
  }
  const Workload& w_;
  const Profile& p_;
  Level level_;
  std::vector<std::pair<const std::string*, const CallCost*>> known_;  // kinds of layers
};

StepTimes scaled(StepTimes t, double factor) {
  if (factor == 1) return t;
  auto all = [factor](Duration& a, Duration& b, Duration& c, std::vector<Duration>& ready) {
    for (Duration* d : {&a, &b, &c}) *d = scale(*d, factor);
    for (Duration& d : ready) d = std::min(scale(d, factor), b);
  };
  all(t.forward, t.backward, t.optimizer, t.ready);
  t.core = scale(t.core, factor);
  t.kernel = scale(t.kernel, factor);
  if (t.host) all(t.host->forward, t.host->backward, t.host->optimizer, t.host->ready);
  for (LayerDurations& l : t.layers)
    for (Duration* d : {&l.forward, &l.backward, &l.host_forward, &l.host_backward})
      *d = scale(*d, factor);
  return t;
}

// 80 % of a capture's passes lie between these ends.
double captured_factor(const StepTimes& t, Level level) {
  return level == Level::Mid ? 1 : level == Level::Low ? t.slow : t.quick;
}

}  // namespace

double memory_rate(const Profile& p, Level level) {
  return per_ps(p.memory.bandwidth_bytes_per_s * at(p.memory.efficiency, level));
}

std::string roofline_problem(const Workload& w, const Profile& p, std::optional<DType> weights) {
  if (w.basis == Basis::Captured) {
    if (w.device != p.kind)
      return std::string("workload \"") + w.name + "\" was captured on a " +
             (w.device == DeviceKind::Cpu ? "CPU" : "GPU") + ", but profile \"" + p.name +
             "\" is of a " + (p.kind == DeviceKind::Cpu ? "CPU" : "GPU") +
             "; its times cannot be carried over (use a described workload, which ddpsim describe "
             "writes, "
             "or another cluster)";
    return {};
  }
  Precision precision = w.precision;
  if (weights == DType::BFloat16) precision = Precision::Bf16;
  if (weights == DType::Float16) precision = Precision::Fp16;
  if (p.compute.peak_flops[precision] <= 0)
    return "profile \"" + p.name + "\" has no peak_flops for precision " + name_of(precision);
  return {};
}

namespace {

// Of kernels that only move bytes.
Duration memory_time(const Profile& p, Level level, std::int64_t traffic, std::int32_t kernels) {
  if (p.costs)
    if (std::optional<Duration> d = copies_time(p, level, traffic, kernels)) return *d;
  return std::max(
      p.memory.kernel * kernels,
      stretched(p.memory.stretch, {ceil_ps(static_cast<double>(traffic), memory_rate(p, level))}));
}

// Forward of a block whose activations are checkpointed, at its last layer: before its backward.
// Empty: none are.
std::vector<LayerDurations> computed_again(const Workload& w,
                                           const std::vector<LayerDurations>& layers) {
  if (w.checkpointing == Checkpointing::None) return {};
  std::vector<LayerDurations> out(layers.size());
  const std::vector<bool> kept = kept_outputs(w);
  for (const Block& b : blocks_of(w))
    for (std::size_t l = b.from; l < b.to; ++l) {
      if (kept[l]) continue;
      out[b.to - 1].forward += layers[l].forward;
      out[b.to - 1].host_forward += layers[l].host_forward;
    }
  return out;
}

// The optimizer's.
void update_times(const Workload& w, const Profile& p, Level level, StepTimes& t) {
  auto elements = static_cast<double>(w.elements());
  std::int64_t kernels = optimizer_kernels(w.optimizer, w.tensors.size());
  t.optimizer =
      std::max(p.memory.kernel * kernels,
               Duration{ceil_ps(elements * optimizer_bytes_per_element(w), memory_rate(p, level))});
  if (p.costs)
    if (std::optional<Duration> d = optimizer_time(w, p, level)) t.optimizer = *d;
  if (t.host) t.host->optimizer = host_time(p, level, p.host.launch * kernels);
}

// StepTimes::kernel.
class RunningKernel {
 public:
  void add(Duration lasts, const LayerCost& cost) {
    const int kernels = std::max(1, cost.kernels);
    each_.push_back({lasts.ps / kernels, lasts.ps});
    all_ += lasts.ps;
  }
  Duration median() {
    std::sort(each_.begin(), each_.end());
    std::int64_t so_far = 0;
    for (const auto& [kernel, lasts] : each_)
      if ((so_far += lasts) * 2 >= all_) return {kernel};
    return {};
  }

 private:
  std::vector<std::pair<std::int64_t, std::int64_t>> each_;  // a kernel; all of its layer's
  std::int64_t all_ = 0;
};

StepTimes described_times(const Workload& as_written, const Profile& p, Level level) {
  std::optional<Workload> generated;
  if (as_written.compile != Compile::None) generated = compiled(as_written);
  const Workload& w = generated ? *generated : as_written;
  StepTimes t;
  HostTimes h;
  CallTimes calls(w, p, level);
  std::vector<std::optional<LayerTime>> measured(w.layers.size());
  if (p.costs) {
    LayerTimes times = layer_times(w, p, level);
    measured = std::move(times.layers);
    t.clock = times.clock;
    t.products = times.products;
  }
  t.layers.resize(w.layers.size());
  RunningKernel running;
  for (std::size_t i = 0; i < w.layers.size(); ++i) {
    const Layer& l = w.layers[i];
    LayerDurations& d = t.layers[i];
    d.forward = measured[i] ? measured[i]->forward : layer_time(w, p, level, l, l.forward, 1);
    d.host_forward = calls.of(l, false);
    for (int pass = w.checkpointing == Checkpointing::None ? 1 : 2; pass > 0; --pass)
      running.add(d.forward, l.forward);
    t.forward += d.forward;
    h.forward += d.host_forward;
  }
  const std::vector<LayerDurations> again = computed_again(w, t.layers);
  t.ready.reserve(w.arrival.size());
  h.ready.reserve(w.arrival.size());
  for (std::size_t i = w.layers.size(); i-- > 0;) {
    const Layer& l = w.layers[i];
    LayerDurations& d = t.layers[i];
    d.backward = measured[i] ? measured[i]->backward : layer_time(w, p, level, l, l.backward, 2);
    d.host_backward = calls.of(l, true);
    running.add(d.backward, l.backward);
    if (!again.empty()) {
      d.backward += again[i].forward;
      d.host_backward += again[i].host_forward;
    }
    t.backward += d.backward;
    h.backward += d.host_backward;
    t.ready.insert(t.ready.end(), l.tensors.size(), t.backward);
    h.ready.insert(h.ready.end(), l.tensors.size(), h.backward);
  }
  if (w.compile == Compile::Whole) {  // gradients are what the graph returns
    std::fill(t.ready.begin(), t.ready.end(), t.backward);
    std::fill(h.ready.begin(), h.ready.end(), h.backward);
  }
  if (p.kind == DeviceKind::Gpu) {
    t.host = std::move(h);
    t.kernel = running.median();
  }
  update_times(w, p, level, t);
  return t;
}

// All in the halves that its weights are gathered in; w itself where they are no halves.
const Workload& computed(const Workload& w, std::optional<DType> weights,
                         std::optional<Workload>& own) {
  const bool half = weights == DType::BFloat16 || weights == DType::Float16;
  if (!half || w.basis == Basis::Captured) return w;
  own = w;
  own->precision = computed_in(w, weights);
  own->casting = Casting::Pure;
  for (std::vector<Tensor>* parameters : {&own->tensors, &own->frozen})
    for (Tensor& t : *parameters)
      if (t.dtype == DType::Float32) t.dtype = *weights;
  return *own;
}

// What the loop adds, for one rank by itself.
void add_loop(const Workload& w, const Profile& p, Level level, StepTimes& t) {
  const LoopWork loop = loop_work(w);
  if (loop.unscale > 0) t.loop += memory_time(p, level, loop.unscale, loop.unscale_kernels);
  if (loop.clip > 0) t.loop += memory_time(p, level, loop.clip, loop.clip_kernels);
  if (w.loop.traffic > 0) t.loop += memory_time(p, level, w.loop.traffic, w.loop.kernels);
  t.waits_before_update = loop.waits;
  t.waits_after_update = w.loop.loss_item;
}

}  // namespace

std::optional<DType> gathered_in(const Plan& plan) {
  auto* const own = systems::record_of(plan.system).gathered_in;
  return own ? own(plan) : std::nullopt;
}

Precision computed_in(const Workload& w, std::optional<DType> weights) {
  if (w.basis == Basis::Captured) return w.precision;
  return weights == DType::BFloat16  ? Precision::Bf16
         : weights == DType::Float16 ? Precision::Fp16
                                     : w.precision;
}

StepTimes step_times(const Workload& w, const Profile& p, Level level,
                     std::optional<DType> weights) {
  if (w.measured_step) level = Level::Mid;
  std::optional<Workload> halves;
  StepTimes t = w.basis == Basis::Captured
                    ? scaled(w.times, captured_factor(w.times, level))
                    : described_times(computed(w, weights, halves), p, level);
  if (halves) update_times(w, p, level, t);
  if (w.measured_step) t = scaled(std::move(t), w.measured_step->factor);
  if (w.cuda_graphs && t.host) {
    t.host = HostTimes{{}, {}, {}, std::vector<Duration>(t.host->ready.size())};
    for (LayerDurations& l : t.layers) l.host_forward = l.host_backward = {};
  }
  add_loop(w, p, level, t);
  return t;
}

Duration core_time(const Op& op, const StepProgram& step, const Profile& p) {
  if (op.cost == Cost::HalfDivision && p.memory.half_divide_bytes_per_s > 0)
    return {ceil_ps(static_cast<double>(step.buckets[op.subject].wire_bytes.count),
                    per_ps(p.memory.half_divide_bytes_per_s))};
  if (op.cost != Cost::ThinProduct) return {};
  Duration out;
  if (p.host.small_operator > p.memory.kernel)
    out = (p.host.small_operator - p.memory.kernel) * op.kernels;
  const double rate = p.memory.thin_product_bytes_per_s;
  if (rate <= 0 || rate >= p.memory.bandwidth_bytes_per_s) return out;
  const double beyond = 1 / rate - 1 / p.memory.bandwidth_bytes_per_s;
  return out + Duration{ceil_ps(static_cast<double>(op.traffic) * beyond, kSecondsPerPs)};
}

Duration price(const Op& op, const StepProgram& step, const Program& program, const Profile& p,
               Level level) {
  Duration hooks = host_time(p, level, p.host.hook * op.hooks);
  switch (op.cost) {
    case Cost::Measured:
      return op.duration;
    case Cost::Launch:
      return op.duration + hooks + host_time(p, level, p.host.launch * op.kernels);
    case Cost::LaunchCollective:
      return op.duration + hooks +
             host_time(p, level, p.host.launch * op.kernels + p.host.collective_launch);
    case Cost::Traverse:
      return p.host.traverse * std::ssize(program.tensor_names);
    case Cost::Memory:
    case Cost::HalfDivision:
    case Cost::ThinProduct:
      break;
  }
  return hooks + core_time(op, step, p) + memory_time(p, level, op.traffic, op.kernels);
}

}  // namespace ddpsim::predict
