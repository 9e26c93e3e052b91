#include "sim/model/workload.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <unordered_set>

#include "sim/units/by.h"

namespace ddpsim {
namespace {

constexpr By<DType, std::int64_t, kDTypes> kDTypeSizes{4, 2, 2, 8, 8, 4, 1, 1};
constexpr std::int64_t kMaxElements = std::int64_t{1} << 50;
constexpr std::size_t kMostTensors = 65'536;
constexpr Duration kMaxTime = kSecond * 86'400;  // of one forward, backward or optimizer: a day

std::string flops_text(double flops) {
  std::pair in{1e6, "MFLOP"};
  for (auto larger : {std::pair{1e9, "GFLOP"}, {1e12, "TFLOP"}, {1e15, "PFLOP"}})
    if (flops >= larger.first) in = larger;
  char text[40];
  std::snprintf(text, sizeof text, "%.3g %s", flops / in.first, in.second);
  return text;
}

// `seen`: names that are taken.
Problem check_tensors(const std::vector<Tensor>& tensors, const std::string& key,
                      std::unordered_set<std::string>& seen) {
  if (tensors.size() > kMostTensors) return {"/" + key, "more than 65,536 of them"};
  std::int64_t total = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& t = tensors[i];
    std::string path = "/" + key + "/" + std::to_string(i);
    if (t.name.empty()) return {path + "/name", "a tensor needs a name"};
    if (!seen.insert(t.name).second)
      return {path + "/name", "\"" + t.name + "\" appears twice; names are unique"};
    std::int64_t n = 1;
    for (std::int64_t d : t.shape) {
      if (d < (key == "buffers" ? 0 : 1))
        return {path + "/shape", "dimension " + std::to_string(d) + " is not positive"};
      if (d > 0 && n > kMaxElements / d) return {path + "/shape", "more than 2^50 elements"};
      n *= d;
    }
    if ((total += n) > kMaxElements) return {"/" + key, "more than 2^50 elements in all"};
  }
  return {};
}

Problem check_times(const Workload& w) {
  const StepTimes& t = w.times;
  if (t.forward.ps < 0 || t.backward.ps < 0 || t.optimizer.ps < 0)
    return {"/times", "times are not negative"};
  if (t.forward > kMaxTime || t.backward > kMaxTime || t.optimizer > kMaxTime)
    return {"/times", "forward, backward and optimizer take at most a day each"};
  if (t.forward.ps == 0 || t.backward.ps == 0)
    return {"/times", "forward_ps and backward_ps are positive in a captured workload"};
  if (t.ready.size() != w.arrival.size())
    return {"/times/ready_ps", "has " + std::to_string(t.ready.size()) + " entries; arrival has " +
                                   std::to_string(w.arrival.size())};
  for (std::size_t i = 0; i < t.ready.size(); ++i) {
    std::string path = "/times/ready_ps/" + std::to_string(i);
    if (t.ready[i].ps < 0 || (i > 0 && t.ready[i] < t.ready[i - 1]))
      return {path, "gradient-ready times start at 0 or later and never fall"};
    if (t.ready[i] > t.backward) return {path, "is later than the end of backward (backward_ps)"};
  }
  if (t.host) {
    for (Duration d : {t.host->forward, t.host->backward, t.host->optimizer})
      if (d.ps < 0 || d > kMaxTime)
        return {"/times", "host times are not negative and at most a day"};
    if (t.host->ready.size() != w.arrival.size())
      return {"/times/host_ready_ps", "has not one entry per entry of arrival"};
    for (std::size_t i = 0; i < t.host->ready.size(); ++i) {
      if (t.host->ready[i].ps < 0 || (i > 0 && t.host->ready[i] < t.host->ready[i - 1]) ||
          t.host->ready[i] > t.host->backward)
        return {"/times/host_ready_ps/" + std::to_string(i),
                "host times start at 0 or later, never fall and end by host_backward_ps"};
    }
  } else if (w.device == DeviceKind::Gpu) {
    return {"/times",
            "a workload captured on a GPU needs host_forward_ps, host_backward_ps, "
            "host_optimizer_ps and host_ready_ps"};
  }
  return {};
}

Problem check_layers(const Workload& w) {
  if (w.layers.empty()) return {"/layers", "a described workload needs layers"};
  std::vector<TensorIndex> order;
  std::int64_t kernels = 0;
  for (std::size_t i = w.layers.size(); i-- > 0;) {
    const Layer& l = w.layers[i];
    std::string path = "/layers/" + std::to_string(i);
    for (const LayerCost* c : {&l.forward, &l.backward}) {
      bool finite = c->flops_per_sample >= 0 && c->bytes_per_sample >= 0 && c->bytes_fixed >= 0 &&
                    c->flops_per_sample < 1e18 && c->bytes_per_sample < 1e15 &&
                    c->bytes_fixed < 1e15;
      if (!finite || c->kernels < 0)
        return {path, "flops, bytes and kernels are finite and not negative"};
      if ((kernels += c->kernels) > 1'000'000'000) return {path, "more than 10^9 kernels in all"};
    }
    const LayerOp& op = l.op;
    auto n = [](std::int64_t v) { return static_cast<double>(v); };
    bool conv = op.kind == "conv";
    if (conv && (op.groups < 1 || op.channels % op.groups != 0 || op.filters % op.groups != 0))
      return {path + "/op/groups", "channels and filters are multiples of groups"};
    double flops = conv ? 2 * n(op.channels / op.groups) * n(op.filters) * n(op.kernel) *
                              n(op.kernel) * n(op.out) * n(op.wide > 0 ? op.wide : op.out)
                   : op.kind == "bmm" ? 2 * n(op.count) * n(op.rows) * n(op.inputs) * n(op.outputs)
                                      : 2 * n(op.rows) * n(op.inputs) * n(op.outputs);
    bool product = conv || op.kind == "bmm" || op.kind == "linear";
    if (product && flops != l.forward.flops_per_sample)
      return {path + "/op", "says other operations than flops_per_sample of forward"};
    order.insert(order.end(), l.tensors.begin(), l.tensors.end());
  }
  if (order != w.arrival)
    return {"/layers",
            "walking the layers backwards and joining their \"tensors\" does not give \"arrival\""};
  return {};
}

}  // namespace

std::int64_t element_size(DType t) {
  return kDTypeSizes[t];
}
std::optional<DType> parse_dtype(const std::string& name) {
  return kDTypeNames.find(name);
}

std::int64_t Tensor::elements() const {
  std::int64_t n = 1;
  for (std::int64_t d : shape) n *= d;
  return n;
}

Bytes Workload::gradient_bytes() const {
  Bytes total;
  for (const Tensor& t : tensors) total += t.bytes();
  return total;
}

std::int64_t Workload::elements() const {
  std::int64_t total = 0;
  for (const Tensor& t : tensors) total += t.elements();
  return total;
}

Bytes Workload::frozen_bytes() const {
  Bytes total;
  for (const Tensor& t : frozen) total += t.bytes();
  return total;
}

std::int64_t Workload::frozen_elements() const {
  std::int64_t total = 0;
  for (const Tensor& t : frozen) total += t.elements();
  return total;
}

std::vector<TensorIndex> Workload::parameters_of(const Layer& layer) const {
  std::vector<TensorIndex> out = layer.tensors;
  for (TensorIndex t : layer.frozen) out.push_back(static_cast<TensorIndex>(tensors.size()) + t);
  return out;
}

// A described layer says so by its cost; of a capture's layers, those from the first parameter on.
std::vector<bool> differentiated(const Workload& w) {
  std::vector<bool> out;
  bool any = false;
  for (const Layer& l : w.layers) {
    any = any || !l.tensors.empty();
    const bool costs = w.basis == Basis::Captured || l.backward.kernels > 0;
    out.push_back(any && (costs || !l.tensors.empty()));
  }
  return out;
}

std::string in_words(const NotCounted& n) {
  std::string text = "not counted: " + n.what;
  if (n.flops > 0) text += ", " + flops_text(n.flops) + " a step";
  if (n.bytes > 0) text += ", " + to_string(Bytes{static_cast<std::int64_t>(n.bytes)});
  return text;
}

double optimizer_bytes_per_element(const Optimizer& o) {
  using Kind = Optimizer::Kind;
  if (o.kind == Kind::Sgd) {
    if (!o.momentum) return o.weight_decay && !o.fused ? 24 : 12;
    if (o.fused) return 20;
    return o.weight_decay ? 44 : 32;
  }
  // Norms of all gradients, of a tensor's parameters and of its updates (4 each); the first stage
  // reads gradient, parameter and states and writes update and states (28), the second reads
  // parameter and update and writes the parameter (12). Apex, csrc/multi_tensor_lamb.cu.
  if (o.kind == Kind::Lamb) return 52;
  if (o.fused) return 28;
  if (o.kind == Kind::AdamW) return 80;
  return o.weight_decay ? 84 : 72;
}

double optimizer_bytes_per_element(const Workload& w) {
  double bytes = optimizer_bytes_per_element(w.optimizer);
  if (w.casting == Casting::Pure) return bytes / 2;
  // Gradients become four bytes (read 2, write 4), the updated copy halves (read 4, write 2).
  return w.casting == Casting::MasterWeights ? bytes + 12 : bytes;
}
std::int64_t optimizer_traffic(const Optimizer& o, std::int64_t elements) {
  return static_cast<std::int64_t>(static_cast<double>(elements) * optimizer_bytes_per_element(o));
}
std::int64_t optimizer_traffic(const Workload& w, std::int64_t elements) {
  return static_cast<std::int64_t>(static_cast<double>(elements) * optimizer_bytes_per_element(w));
}

std::int64_t optimizer_passes(const Optimizer& o) {
  using Kind = Optimizer::Kind;
  if (o.kind == Kind::Lamb) return 5;
  if (o.fused) return 1;
  if (o.kind == Kind::Sgd) return 1 + (o.momentum ? 2 : 0) + (o.weight_decay ? 1 : 0);
  return 7 + (o.kind == Kind::AdamW || o.weight_decay ? 1 : 0);
}

bool is_multi_tensor(const Optimizer& o) {
  return o.foreach || o.fused || o.kind == Optimizer::Kind::Lamb;
}

// An optimizer that is fused unscales by itself and is told on the device whether to skip
// (GradScaler.step, _step_supports_amp_scaling); under master weights the scaler makes the
// gradients of four bytes (Apex), which the optimizer need not read as halves.
LoopWork loop_work(const Workload& w, std::int64_t elements, std::int64_t tensors) {
  constexpr std::int64_t kTensors = 110;            // of one list that a launch takes
  constexpr std::int64_t kElements = 320 * 65'536;  // blocks of a launch, elements of a block
  constexpr std::int32_t kOfNorms = 5;              // stack, norm, add, div, clamp
  const auto launches = static_cast<std::int32_t>(
      std::max(tensors / kTensors, elements / kElements) + (elements > 0 ? 1 : 0));
  const std::int64_t size = w.casting == Casting::Pure ? 2 : 4;
  bool half = w.basis == Basis::Described && w.precision == Precision::Fp16;
  LoopWork out;
  bool scales = w.loop.grad_scaler.value_or(half && w.casting != Casting::Pure);
  const bool fused = w.optimizer.fused && w.optimizer.kind != Optimizer::Kind::Lamb;
  if (scales && !(fused && w.casting != Casting::MasterWeights)) {
    out.unscale = 2 * size * elements;
    out.unscale_kernels = launches;
    out.waits = true;
  }
  if (w.loop.clip_grad_norm) {
    out.clip = 3 * size * elements;
    out.clip_kernels = 2 * launches + kOfNorms;
  }
  return out;
}

LoopWork loop_work(const Workload& w) {
  return loop_work(w, w.elements(), w.tensors.size());
}

// Multi-tensor kernels take at most this many tensors per launch (torch MultiTensorApply.cuh, 3 to
// 4 lists).
constexpr std::int64_t kTensorsPerLaunch = 36;

std::int64_t optimizer_kernels(const Optimizer& o, std::int64_t tensors) {
  const std::int64_t lists =
      is_multi_tensor(o) ? (tensors + kTensorsPerLaunch - 1) / kTensorsPerLaunch : tensors;
  return optimizer_passes(o) * lists;
}

std::vector<Duration> backward_by_layer(const Workload& w, const std::vector<Duration>& ready,
                                        Duration backward) {
  std::vector<std::size_t> first(w.tensors.size(), w.layers.size());
  for (std::size_t l = w.layers.size(); l-- > 0;)
    for (TensorIndex t : w.layers[l].tensors) first[t] = l;
  std::vector<Duration> end(w.layers.size());
  for (std::size_t i = 0; i < w.arrival.size() && i < ready.size(); ++i) {
    std::size_t l = first[w.arrival[i]];
    if (l < end.size()) end[l] = std::max(end[l], ready[i]);
  }
  end.front() = backward;
  Duration done;
  for (std::size_t l = end.size(); l-- > 0;) {
    Duration begin = done;
    done = std::max(done, end[l]);
    end[l] = done - begin;
  }
  return end;
}

Problem validate(const Workload& w) {
  if (w.name.empty()) return {"/name", "a workload needs a name"};
  if (w.batch < 1 || w.batch > 1'000'000)
    return {"/batch", "batch is 1 to 1,000,000 samples per rank"};
  if (w.sequence < 0 || w.sequence > 1'000'000)
    return {"/sequence", "a sequence has 1 to 1,000,000 tokens"};
  if (w.positions > 0 && w.sequence > w.positions)
    return {"/sequence", "the model has learned " + std::to_string(w.positions) +
                             " positions; a sequence has 1 to " + std::to_string(w.positions) +
                             " tokens"};
  if (w.tensors.empty())
    return {"/tensors", "a workload needs at least one parameter that requires a gradient"};
  std::unordered_set<std::string> names;
  std::unordered_set<std::string> names_of_buffers;
  if (auto p = check_tensors(w.tensors, "tensors", names)) return p;
  if (auto p = check_tensors(w.frozen, "frozen", names)) return p;
  if (auto p = check_tensors(w.buffers, "buffers", names_of_buffers)) return p;
  std::vector<bool> seen(w.tensors.size(), false);
  for (std::size_t i = 0; i < w.arrival.size(); ++i) {
    std::string path = "/arrival/" + std::to_string(i);
    if (w.arrival[i] >= w.tensors.size())
      return {path, "no tensor has index " + std::to_string(w.arrival[i])};
    if (seen[w.arrival[i]])
      return {path, "tensor " + std::to_string(w.arrival[i]) + " arrives twice"};
    seen[w.arrival[i]] = true;
  }
  if (w.arrival.empty()) return {"/arrival", "no gradient ever arrives"};
  for (std::size_t l = 0; l < w.layers.size(); ++l)
    for (TensorIndex t : w.layers[l].frozen)
      if (t >= w.frozen.size())
        return {"/layers/" + std::to_string(l) + "/frozen",
                "no frozen parameter has index " + std::to_string(t)};
  return w.basis == Basis::Captured ? check_times(w) : check_layers(w);
}

}  // namespace ddpsim
