// A layer takes the sum of its kernels: products, casts, sums of a bias' gradient, traffic.
#include "sim/cost/layer_time.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "sim/cost/kernel_time.h"
#include "sim/cost/power.h"
#include "sim/model/compiled.h"
#include "sim/units/random.h"

namespace ddpsim::predict {
namespace {

constexpr double kBenchChannels = 256;  // of tools/python/ddpsim_ops.py's batch_norm
constexpr double kCast = 6;             // bytes an element: read four and write two, or the reverse

double at_level(double ps, const Spread& s, Level level) {
  return level == Level::Mid ? ps : ps * (level == Level::Low ? s.slow : s.quick);
}

// Picoseconds at the clock of the peaks.
struct Part {
  double memory = 0;
  double clocked = 0;  // products and attention
  double joules = 0;   // of their operations
};

// Sums kernels of one direction of one layer; !known once a kernel has no cost.
struct Sum {
  const KernelCosts& k;
  const Draw& draw;
  Level level;
  bool last;  // channels_last
  Part part;
  bool known = true;

  void memory(const std::string& op, bool backward, bool halves, double traffic,
              double kernels = 1) {
    const MemoryCost* c = find_memory(k, op, backward, halves, last);
    if (!c) {
      known = false;
      return;
    }
    part.memory += at_level(memory_ps(traffic, kernels, *c, k), c->spread, level);
  }
  void clocked(double ps, double flops, Precision p) {
    part.clocked += ps;
    part.joules += flops * draw.joules_per_flop[p];
  }
  void cast(bool to_halves, double elements) {
    memory(to_halves ? "to_bf16" : "to_fp32", false, false, kCast * elements);
  }
  void product(const Product& q, const ProductCost& c) {
    clocked(at_level(product_ps(q, c, k), c.spread, level), flops_of(q), c.precision);
  }
  void conv(const ConvShape& s, Pass pass, const ProductCost& c) {
    const double flops = flops_of(conv_product(s, pass, c.precision));
    clocked(at_level(conv_ps(s, pass, last, c, k), c.spread, level), flops, c.precision);
  }
  static double flops_of(const Product& q) { return 2 * q.rows * q.columns * q.sum * q.count; }
};

// What fused kernels reach, as a share of what large element-wise kernels of PyTorch reach. Triton,
// PyTorch 2.11: of the captured GPT-2 small on an H200 (unit.compiled checks it).
double fused_share(const std::string& kind) {
  return kind == kFusedLoss        ? kTritonLoss
         : kind == kFusedReduction ? kTritonReduction
                                   : kTritonPointwise;
}

// Kinds that are measured as a whole, however many kernels they launch.
bool whole(const std::string& kind) {
  for (const char* one : {"relu", "gelu", "dropout", "softmax", "layer_norm", "batch_norm",
                          "max_pool", "cross_entropy", "cross_entropy_single", "embedding"})
    if (kind == one) return true;
  return false;
}

// `core`: of a CPU, where what one computes of an element matters.
std::string measured_as(const std::string& kind, bool core) {
  if (kind == "fork") return "add_";
  if (core) return kind == "cross_entropy_single" ? "cross_entropy" : kind;
  if (kind == "tanh" || kind == "silu" || kind == "sigmoid") return "relu";
  if (kind == "cross_entropy_single") return "cross_entropy";
  if (kind == "copy" || kind == "avg_pool") return "mul_scalar";
  return kind;
}

struct LayerParts {
  Part forward, backward;
};

class Walk {
 public:
  Walk(const Workload& w, const KernelCosts& k, const Draw& draw, Level level)
      : w_(w), k_(k), draw_(draw), level_(level) {
    bool halves = element_bytes(w.precision) == 2;
    bool single = false;
    for (const Tensor& t : w.tensors) single |= t.dtype == DType::Float32;
    autocast_ = halves && single;
    pure_ = halves && !single;
    half_ = pure_;
    known_.reserve(64);
  }

  // Layers repeat: one that another is like takes what it took.
  std::optional<LayerParts> layer(const Layer& l) {
    const bool state[] = {half_, wide_, scores_seen_};
    const double width = channels(l);
    const std::uint64_t hash = hash_of(l, width);
    for (const Known& k : known_) {
      if (k.hash != hash || !std::equal(state, state + 3, k.before) || k.width != width ||
          !(k.like->op == l.op && k.like->forward == l.forward && k.like->backward == l.backward))
        continue;
      half_ = k.after[0], wide_ = k.after[1], scores_seen_ = k.after[2];
      return k.time;
    }
    Known k{hash, &l, width, {half_, wide_, scores_seen_}, {}, priced(l)};
    k.after[0] = half_, k.after[1] = wide_, k.after[2] = scores_seen_;
    known_.push_back(k);
    return k.time;
  }

 private:
  struct Known {
    std::uint64_t hash;
    const Layer* like;
    double width;
    bool before[3], after[3];  // half_, wide_, scores_seen_
    std::optional<LayerParts> time;
  };
  static std::uint64_t hash_of(const Layer& l, double width) {
    std::uint64_t h = 0;
    for (double x : {l.forward.flops_per_sample, l.forward.bytes_per_sample,
                     l.backward.flops_per_sample, l.forward.bytes_fixed, width})
      h = h * 1'000'003 + bits_of(x);
    return h;
  }

  std::optional<LayerParts> priced(const Layer& l) {
    Sum forward{k_, draw_, level_, w_.channels_last, {}};
    Sum backward{k_, draw_, level_, w_.channels_last, {}};
    if (!l.op.attention) scores_seen_ = false;
    bool said = true;
    if (w_.fused_attention && l.op.attention)
      fused(l, forward, backward);
    else if (l.op.kind == "linear")
      linear(l, forward, backward);
    else if (l.op.kind == "conv" && l.op.wide > 0)
      said = false;  // measured of squares
    else if (l.op.kind == "conv")
      conv(l, forward, backward);
    else if (l.op.kind == "bmm")
      bmm(l, forward, backward);
    else if (is_fused(l.op))
      generated(l, forward, backward);
    else if (!l.op.kind.empty())
      memory(l, forward, backward);
    else
      said = l.forward.kernels + l.backward.kernels == 0;
    if (!said || !forward.known || !backward.known) return std::nullopt;
    return LayerParts{forward.part, backward.part};
  }

  double batch() const { return static_cast<double>(w_.batch); }
  bool halves() const { return autocast_ || pure_; }

  // Under autocast what is read, and the weights, are cast; the gradients on their way back.
  void casts(const Layer& l, double inputs, double weights, double bias, Sum& forward,
             Sum& backward) {
    if (!autocast_) return;
    bool first = l.backward.flops_per_sample < 1.5 * l.forward.flops_per_sample;
    if (!half_) forward.cast(true, inputs);
    if (!half_ && !first) backward.cast(false, inputs);
    for (double elements : {weights, bias})
      if (elements > 0) forward.cast(true, elements), backward.cast(false, elements);
  }

  void linear(const Layer& l, Sum& forward, Sum& backward) {
    const LayerOp& op = l.op;
    const ProductCost* c = find_product(k_, "gemm", w_.precision);
    if (!c) {
      forward.known = false;
      return;
    }
    std::int64_t rows = w_.batch * op.rows;
    auto in = static_cast<double>(op.inputs);
    auto out = static_cast<double>(op.outputs);
    bool data = l.backward.flops_per_sample > 1.5 * l.forward.flops_per_sample;
    bool bias = l.backward.kernels > (data ? 2 : 1);
    casts(l, product_of(rows, op.inputs), in * out, bias ? out : 0, forward, backward);
    const std::int64_t inputs = aligned(l, op.inputs);
    const std::int64_t outputs = aligned(l, op.outputs);
    auto product = [&](Pass pass) {
      return linear_product(rows, inputs, outputs, pass, w_.precision);
    };
    if (inputs != op.inputs || outputs != op.outputs) {  // copies of the weight, and of gradients
      const double bytes = 2 * element_bytes(w_.precision);
      forward.memory("copy", false, halves(), bytes * in * out);
      backward.memory("copy", false, halves(), bytes * (product_of(rows, op.outputs) + in * out));
    }
    forward.product(product(Pass::Forward), *c);
    if (data) backward.product(product(Pass::DataGradient), *c);
    backward.product(product(Pass::WeightGradient), *c);
    if (bias)
      backward.memory("sum", false, halves(),
                      product_of(rows, op.outputs) * element_bytes(w_.precision));
    half_ = halves();
  }

  std::int64_t aligned(const Layer& l, std::int64_t elements) const {
    return is_compiled(w_, l) ? padded(elements, w_.precision) : elements;
  }

  // By Inductor: one kernel, which reads and writes halves for products.
  void generated(const Layer& l, Sum& forward, Sum& backward) {
    for (bool back : {false, true}) {
      const LayerCost& c = back ? l.backward : l.forward;
      if (c.kernels > 0)
        (back ? backward : forward)
            .memory("copy", false, halves(), c.bytes_per_sample * batch() / fused_share(l.op.kind),
                    c.kernels);
    }
    half_ = halves();
  }

  void conv(const Layer& l, Sum& forward, Sum& backward) {
    const LayerOp& op = l.op;
    bool depthwise = op.groups > 1 && op.groups == op.channels;
    // torch.backends.cudnn.allow_tf32 is True by default: convolutions of fp32 run in TF32.
    const ProductCost* tf32 = find_product(k_, "conv", Precision::Tf32);
    const ProductCost* c =
        w_.precision == Precision::Fp32 && tf32 ? tf32 : find_product(k_, "conv", w_.precision);
    ConvShape s{w_.batch, op.channels, op.size, op.filters, op.kernel, op.out, op.groups};
    if (const ProductCost* own = find_product(k_, "conv_1x1", w_.precision))
      if (is_core(k_) && is_by_samples(s)) c = own;
    if (!c) {
      forward.known = false;
      return;
    }
    bool data = l.backward.flops_per_sample > 1.5 * l.forward.flops_per_sample;
    bool bias = l.backward.kernels > (data ? 2 : 1);
    const double image = product_of(w_.batch, op.channels, op.size, op.size);
    const double result = product_of(w_.batch, op.filters, op.out, op.out);
    casts(l, image, product_of(op.channels / op.groups, op.filters, op.kernel, op.kernel),
          bias ? static_cast<double>(op.filters) : 0, forward, backward);
    // Depthwise: a few operations an element, by kernels of their own in the layout that they find.
    auto pass = [&](Sum& sum, Pass which) {
      if (depthwise && is_core(k_))
        sum.memory(s.kernel > 3 ? "depthwise_wide" : "depthwise", which != Pass::Forward, halves(),
                   conv_bytes(s, w_.precision));
      else if (depthwise)
        sum.memory("add", false, halves(), conv_bytes(s, w_.precision));
      else
        sum.conv(s, which, *c);
    };
    pass(forward, Pass::Forward);
    if (data) pass(backward, Pass::DataGradient);
    pass(backward, Pass::WeightGradient);
    double bytes = result * element_bytes(w_.precision);
    if (bias &&
        !is_core(k_)) {  // a kernel of its own adds it; its gradient is a sum over all pixels
      forward.memory("add_", false, halves(), 2 * bytes);
      backward.memory("sum", false, halves(), bytes);
    }
    half_ = halves();
  }

  void bmm(const Layer& l, Sum& forward, Sum& backward) {
    const LayerOp& op = l.op;
    const ProductCost* c = find_product(k_, "gemm", w_.precision);
    if (!c) {
      forward.known = false;
      return;
    }
    double products = product_of(w_.batch, op.count);
    if (autocast_ && !half_) {
      double inputs = product_of(w_.batch, op.count, op.rows, op.inputs);
      forward.cast(true, inputs), backward.cast(false, inputs);
    }
    for (Pass pass : {Pass::Forward, Pass::DataGradient, Pass::WeightGradient}) {
      Product q = linear_product(op.rows, op.inputs, op.outputs, pass, w_.precision);
      q.count = products;
      q.bytes *= products;
      (pass == Pass::Forward ? forward : backward).product(q, *c);
    }
    half_ = halves();
  }

  // One kernel in each direction, where the first product of the group stands.
  void fused(const Layer& l, Sum& forward, Sum& backward) {
    if (l.op.kind != "bmm" || scores_seen_) return;
    scores_seen_ = true;
    AttentionShape shape{w_.batch, l.op.count, l.op.rows, l.op.inputs, l.op.causal};
    for (bool back : {false, true}) {
      Sum& sum = back ? backward : forward;
      if (const AttentionCost* c = find_attention(k_, back, halves(), w_.flash2))
        sum.clocked(at_level(attention_ps(shape, *c, k_), c->spread, level_),
                    attention_flops(shape, back), w_.precision);
      else
        sum.known = false;
    }
    half_ = halves();
  }

  // Elements of what a layer reads, by the traffic that is counted for each.
  double elements(const Layer& l) const {
    const std::string& kind = l.op.kind;
    double bytes = kind == "add" ? 12 : kind == "gelu_composed" ? 72 : kind == "rms_norm" ? 28 : 8;
    return l.forward.bytes_per_sample * batch() / bytes;
  }

  // Batch normalisation in NCHW gives each channel to one block (cuDNN's 1C11, PyTorch's
  // batch_norm_collect_statistics): 64 channels keep 64 SMs busy. How much longer than with the
  // channels of the bench.
  double few_channels(const Layer& l) const {
    double width = channels(l);
    if (width == 0) return 1;
    auto idle = [&](double n) { return std::ceil(n / k_.sms) * k_.sms / n; };
    return idle(width) / idle(kBenchChannels);
  }
  double channels(const Layer& l) const {  // 0: they do not matter
    if (w_.channels_last || l.op.kind != "batch_norm") return 0;
    const std::vector<TensorIndex> own = w_.parameters_of(l);
    return own.empty() ? 0 : static_cast<double>(w_.parameter(own.front()).elements());
  }

  void memory(const Layer& l, Sum& forward, Sum& backward) {
    const std::string& kind = l.op.kind;
    bool table = kind == "embedding" || kind == "position_embedding";
    bool single = table || kind == "layer_norm" || kind == "softmax" ||
                  kind == "cross_entropy_single" || kind == "gelu_composed" || kind == "rms_norm";
    bool half = half_;
    if (autocast_ && kind == "add") half = half_ && !wide_;
    if (autocast_ && single) half = false;
    if (autocast_ && half_ && !half && !table) {
      // A sum casts in its own kernel; the gradient is cast in another.
      if (kind != "add") forward.cast(false, elements(l));
      backward.cast(true, elements(l));
    }
    traffic(l, l.forward, false, half, forward);
    traffic(l, l.backward, true, half, backward);
    half_ = half;
    wide_ |= table || kind == "layer_norm" || kind == "rms_norm";
  }

  void traffic(const Layer& l, const LayerCost& c, bool back, bool half, Sum& sum) const {
    if (c.kernels == 0) return;
    double bytes = c.bytes_per_sample * batch() * (half ? 0.5 : 1.0) + c.bytes_fixed;
    sum.memory(measured_as(l.op.kind, is_core(k_)), back, half, bytes * few_channels(l),
               whole(l.op.kind) ? 1.0 : static_cast<double>(c.kernels));
  }

  const Workload& w_;
  const KernelCosts& k_;
  const Draw& draw_;
  std::vector<Known> known_;
  Level level_;
  bool autocast_ = false;
  bool pure_ = false;
  bool half_ = false;  // what the next layer reads has two bytes an element
  bool wide_ = false;  // the sums of residuals have four
  bool scores_seen_ = false;
};

}  // namespace

LayerTimes layer_times(const Workload& w, const Profile& p, Level level) {
  const Draw none;
  Walk walk(w, *p.costs, p.power ? p.power->draw : none, level);
  std::vector<std::optional<LayerParts>> parts;
  parts.reserve(w.layers.size());
  StepDraw step;
  for (const Layer& l : w.layers) {
    parts.push_back(walk.layer(l));
    if (!parts.back()) continue;
    for (const Part* x : {&parts.back()->forward, &parts.back()->backward}) {
      step.clocked_ps += x->clocked;
      step.joules += x->joules;
      step.memory_ps += x->memory;
    }
  }
  LayerTimes out;
  if (p.power) out.clock = clock_share(*p.power, step);
  if (const double clocked = step.clocked_ps / out.clock; clocked + step.memory_ps > 0)
    out.products = clocked / (clocked + step.memory_ps);
  auto time = [&](const Part& x) {
    const double ps = x.memory + x.clocked / out.clock;
    return Duration{static_cast<std::int64_t>(std::ceil(at_level(ps, p.costs->common, level)))};
  };
  out.layers.reserve(parts.size());
  for (const auto& x : parts)
    out.layers.push_back(x ? std::optional(LayerTime{time(x->forward), time(x->backward)})
                           : std::nullopt);
  return out;
}

std::optional<Duration> copies_time(const Profile& p, Level level, std::int64_t traffic,
                                    std::int64_t kernels) {
  if (is_core(*p.costs)) return std::nullopt;
  const MemoryCost* c = find_memory(*p.costs, "mul_scalar", false, false, false);
  if (!c) return std::nullopt;
  const double ps =
      memory_ps(static_cast<double>(traffic), static_cast<double>(kernels), *c, *p.costs);
  return Duration{static_cast<std::int64_t>(std::ceil(at_level(ps, c->spread, level)))};
}

std::optional<Duration> optimizer_time(const Workload& w, const Profile& p, Level level) {
  const Optimizer& o = w.optimizer;
  if (o.kind == Optimizer::Kind::Lamb) return std::nullopt;
  std::string name = o.kind == Optimizer::Kind::AdamW  ? "adamw"
                     : o.kind == Optimizer::Kind::Adam ? "adam"
                     : o.momentum                      ? "sgd_momentum"
                                                       : "sgd";
  name += o.fused ? "_fused" : "_foreach";
  const MemoryCost* c = find_memory(*p.costs, name, false, false, false);
  if (!c || c->op != name) return std::nullopt;
  auto elements = static_cast<double>(w.elements());
  double launches = optimizer_launches(o, static_cast<double>(w.tensors.size()), elements);
  double ps = memory_ps(elements * optimizer_bytes_per_element(w), launches, *c, *p.costs);
  ps = at_level(at_level(ps, c->spread, level), p.costs->common, level);
  return Duration{static_cast<std::int64_t>(std::ceil(ps))};
}

}  // namespace ddpsim::predict
