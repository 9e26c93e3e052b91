#include "calib/fit/points.h"

#include <algorithm>
#include <array>

#include "calib/fit/samples.h"
#include "calib/fit/shapes.h"

namespace ddpsim::calib {
namespace {

Precision precision_of(const Sample& s) {
  std::int64_t p = parameter(s, "precision");
  if (p < 0 || p > 3) throw InputError{"sample " + s.op, "precision is 0 to 3"};
  return static_cast<Precision>(p);
}

Pass pass_of(const Sample& s) {
  auto it = s.parameters.find("pass");
  std::int64_t pass = it == s.parameters.end() ? 0 : it->second;
  if (pass < 0 || pass > 2) throw InputError{"sample " + s.op, "pass is 0 to 2"};
  return static_cast<Pass>(pass);
}

std::int64_t optional_parameter(const Sample& s, const char* name, std::int64_t otherwise) {
  auto it = s.parameters.find(name);
  return it == s.parameters.end() ? otherwise : it->second;
}

ProductPoint of_linear(int sms, const Sample& s) {
  ProductPoint q;
  q.kernel = "gemm";
  q.precision = precision_of(s);
  Gemm g{parameter(s, "m"), parameter(s, "n"), parameter(s, "k")};
  q.product = predict::linear_product(g.m, g.k, g.n, pass_of(s), q.precision);
  q.cuts = predict::cuts_of(q.product, sms);
  q.flops = flops(g);
  return q;
}

// `count` products of the same shape by one call.
ProductPoint of_bmm(int sms, const Sample& s) {
  ProductPoint q = of_linear(sms, s);
  const auto count = static_cast<double>(parameter(s, "count"));
  q.product.count = count;
  q.product.bytes *= count;
  q.cuts = predict::cuts_of(q.product, sms);
  q.flops *= count;
  return q;
}

std::optional<ProductPoint> of_conv(int sms, const Sample& s) {
  if (optional_parameter(s, "groups", 1) != 1 || !by_heuristics(s)) return {};
  // The gradient of a picture: no training step computes it.
  if (pass_of(s) == Pass::DataGradient && parameter(s, "channels") <= 4) return {};
  ProductPoint q;
  q.kernel = "conv";
  q.precision = precision_of(s);
  Conv c{parameter(s, "batch"),   parameter(s, "channels"), parameter(s, "size"),
         parameter(s, "filters"), parameter(s, "kernel"),   parameter(s, "stride")};
  predict::ConvShape shape{c.batch, c.channels, c.size, c.filters, c.kernel, c.out_size()};
  q.product = predict::conv_product(shape, pass_of(s), q.precision);
  if (sms == 1 && predict::is_by_samples(shape)) {
    q.kernel = "conv_1x1";
    q.product = predict::by_samples_product(shape, pass_of(s), q.precision);
  }
  q.cuts = predict::cuts_of(q.product, sms);
  q.contiguous = sms > 1 && optional_parameter(s, "channels_last", 0) == 0;
  q.converted = predict::conv_bytes(shape, q.precision);
  if (c.kernel == 1 && c.stride == 1 && sms > 1)
    q.as_product = predict::alignment(c.out_size() * c.out_size(), q.precision);
  q.flops = flops(c);
  return q;
}

// Elements that an operator reads and writes for each of its input, as a described layer counts
// them (tools/python/describe_models.py), forward and backward.
struct Traffic {
  const char* op;
  double forward;
  double backward;
};
constexpr std::array<Traffic, 23> kTraffic{{{"relu", 2, 3},
                                            {"gelu", 2, 3},
                                            {"silu", 2, 3},
                                            {"dropout", 2.25, 2.25},
                                            {"add", 3, 0},
                                            {"add_", 3, 0},
                                            {"layer_norm", 2, 5},
                                            {"softmax", 2, 3},
                                            {"batch_norm", 3, 5},
                                            {"cross_entropy", 3, 5},
                                            {"max_pool", 1.75, 1.75},
                                            {"zero_", 1, 0},
                                            {"mul_scalar", 2, 0},
                                            {"sum", 1, 0},
                                            {"cat", 4, 0},
                                            {"rms_norm", 2, 5},
                                            {"sigmoid", 2, 3},
                                            {"tanh", 2, 3},
                                            {"copy", 2, 2},
                                            {"avg_pool", 1.25, 1.25},
                                            {"gelu_composed", 18, 22},
                                            {"depthwise", 2, 4},
                                            {"depthwise_wide", 2, 4}}};
constexpr double kCast = 6;                   // bytes: read four, write two, or the reverse
constexpr double kTable = 30522.0 * 768 * 4;  // bytes of the embedding that is measured

std::optional<MemoryPoint> of_pointwise(const std::string& op, const Sample& s) {
  MemoryPoint q;
  q.op = op;
  q.backward = pass_of(s) != Pass::Forward;
  q.halves = predict::element_bytes(precision_of(s)) == 2;
  q.channels_last = optional_parameter(s, "channels_last", 0) != 0;
  auto elements = static_cast<double>(parameter(s, "elements"));
  if (op == "to_bf16" || op == "to_fp32") {
    q.traffic = kCast * elements;
    return q;
  }
  if (op == "embedding") {
    q.traffic = q.backward ? 12 * elements + kTable : 8 * elements;
    return q;
  }
  for (const Traffic& t : kTraffic)
    if (op == t.op) {
      q.traffic = (q.backward ? t.backward : t.forward) * elements * (q.halves ? 2 : 4);
      return q;
    }
  return {};
}

// What an optimizer moves for each parameter of four bytes, and its passes (docs/model.md).
std::optional<MemoryPoint> of_optimizer(const std::string& name, const Sample& s) {
  std::int64_t style = parameter(s, "style");
  if (style == 0) return {};  // a loop over parameters: the host decides
  Optimizer o;
  o.kind = name == "adamw"  ? Optimizer::Kind::AdamW
           : name == "adam" ? Optimizer::Kind::Adam
                            : Optimizer::Kind::Sgd;
  o.momentum = name == "sgd_momentum";
  o.fused = style == 2;
  MemoryPoint q;
  q.op = name + (style == 2 ? "_fused" : "_foreach");
  auto elements = static_cast<double>(parameter(s, "elements"));
  q.traffic = optimizer_bytes_per_element(o) * elements;
  q.kernels =
      predict::optimizer_launches(o, static_cast<double>(parameter(s, "tensors")), elements);
  return q;
}

std::optional<AttentionPoint> of_attention(const Sample& s) {
  constexpr std::int64_t kFlash = 0;
  constexpr std::int64_t kEfficient = 1;
  constexpr std::int64_t kCudnn = 3;  // what PyTorch takes on these GPUs
  AttentionPoint q;
  q.halves = predict::element_bytes(precision_of(s)) == 2;
  q.flash2 = q.halves && parameter(s, "kind") == kFlash;
  if (!q.flash2 && parameter(s, "kind") != (q.halves ? kCudnn : kEfficient)) return {};
  q.backward = pass_of(s) != Pass::Forward;
  q.shape = {parameter(s, "batch"), parameter(s, "heads"), parameter(s, "sequence"),
             parameter(s, "dim"), parameter(s, "causal") != 0};
  return q;
}

bool starts(const std::string& text, const char* with) {
  return text.rfind(with, 0) == 0;
}

}  // namespace

Points points_of(int sms, const std::vector<const Run*>& runs) {
  Points out;
  bool linear = false;
  bool conv = false;
  bool add = false;
  for (const Run* run : runs)
    for (const Sample& s : run->samples) {
      linear |= s.op == "torch/linear";
      conv |= s.op == "torch/conv";
      add |= s.op == "torch/pointwise/add";
    }
  for (const Run* run : runs)
    for (const Sample& s : run->samples) {
      if (s.durations.empty()) continue;
      auto keep = [&](auto& list, auto point) {
        if (!point) return;
        point->ps = median_ps(s);
        point->held_out = held_out(s.op, s.parameters);
        list.push_back(std::move(*point));
      };
      if (s.op == (linear ? "torch/linear" : "gemm"))
        keep(out.products, std::optional(of_linear(sms, s)));
      else if (s.op == "torch/bmm")
        keep(out.products, std::optional(of_bmm(sms, s)));
      else if (s.op == (conv ? "torch/conv" : "conv"))
        keep(out.products, of_conv(sms, s));
      else if (s.op == "torch/attention")
        keep(out.attention, of_attention(s));
      else if (starts(s.op, "torch/pointwise/"))
        keep(out.memory, of_pointwise(s.op.substr(16), s));
      else if (starts(s.op, "torch/optimizer/"))
        keep(out.memory, of_optimizer(s.op.substr(16), s));
      else if (s.op == "move" && !add)
        keep(out.memory,
             std::optional(MemoryPoint{"add", false, false, false,
                                       static_cast<double>(parameter(s, "traffic")), 1, 0, false}));
    }
  return out;
}

double time_of(const ProductPoint& q, const ProductCost& c, const KernelCosts& k) {
  double ps = predict::product_ps(q.product, q.cuts, c, k);
  if (!q.contiguous || c.conversion <= 0) return ps;
  ps += predict::conversion_ps(q.converted, c, k);
  if (!q.as_product) return ps;
  predict::Product direct = q.product;
  direct.aligned = *q.as_product;
  return std::min(ps, predict::product_ps(direct, q.cuts, c, k));
}

}  // namespace ddpsim::calib
