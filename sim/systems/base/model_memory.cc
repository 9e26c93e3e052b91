#include "sim/systems/base/model_memory.h"

#include <algorithm>

#include "sim/model/blocks.h"
#include "sim/model/compiled.h"

namespace ddpsim::systems {
namespace {

constexpr std::int64_t kHalf = 2;

bool computes_in_halves(const Workload& w) {
  return w.precision == Precision::Fp16 || w.precision == Precision::Bf16;
}

// Index into Layer::saves.
std::size_t mode_of(const Workload& w, bool halves) {
  if (halves) return 2;
  if (!computes_in_halves(w)) return 0;
  return w.casting == Casting::Autocast ? 1 : 2;
}

// Of a product's weight.
std::int64_t weight_elements(const LayerOp& op) {
  if (op.kind == "linear") return op.inputs * op.outputs;
  if (op.kind == "conv") return op.channels * op.filters / op.groups * op.kernel * op.kernel;
  return 0;
}

// Elements of a product's weight that autocast casts, and keeps the cast until backward: a weight
// in halves is not cast, and of a layer without backward nobody keeps it.
std::int64_t cast_elements(const Workload& w, const Layer& l, bool backward) {
  const std::int64_t all = weight_elements(l.op);
  for (TensorIndex t : l.frozen)
    if (w.frozen[t].elements() == all && (!backward || element_size(w.frozen[t].dtype) == kHalf))
      return 0;
  return all;
}

// The gradient of a convolution's filters from 4x4 of the result's at a time, 6x6 values each: of
// all images and channels that were read and made, and of the filters. A capture of VGG-16 in fp32
// without TF32 has the kernels (winogradWgradData4x4, Delta4x4, Output4x4: calib/gpu-runs,
// profile-vgg16-b32-fp32); the arithmetic is Lavin and Gray's (2016). 47 published peaks on V100s
// are within 5 % with it, and were up to 12.5 % too low without (reports/memory.md).
std::int64_t winograd_bytes(const LayerOp& op, std::int64_t batch) {
  const bool does = op.kind == "conv" && op.kernel == 3 && op.groups == 1 && op.dilation == 1 &&
                    op.size == op.out;
  if (!does) return 0;
  constexpr std::int64_t kTile = 4;
  constexpr std::int64_t kValues = 36;
  auto tiles = [](std::int64_t side) { return (side + kTile - 1) / kTile; };
  const std::int64_t of_image = tiles(op.out) * tiles(op.wide > 0 ? op.wide : op.out);
  return kSingle * kValues *
         (batch * of_image * (op.channels + op.filters) + op.channels * op.filters);
}

// Layers from an attention's first product to its last: what a fused attention never has whole. The
// copies before and after them are of what it reads and makes.
std::vector<bool> inside_attention(const std::vector<Layer>& layers) {
  std::vector<bool> out(layers.size(), false);
  for (std::size_t l = 0; l < layers.size();) {
    std::size_t end = l;
    std::size_t first = layers.size();
    std::size_t last = 0;
    for (; end < layers.size() && layers[end].op.attention; ++end)
      if (layers[end].op.kind == "bmm") {
        first = std::min(first, end);
        last = end;
      }
    for (std::size_t k = first; k < end && k <= last; ++k) out[k] = true;
    l = std::max(end, l + 1);
  }
  return out;
}

}  // namespace

ModelMemory::ModelMemory(const Workload& w, bool halves, bool winograd)
    : layer_of_(w.tensors.size(), w.layers.size()) {
  for (std::size_t l = w.layers.size(); l-- > 0;)
    for (TensorIndex t : w.layers[l].tensors) layer_of_[t] = l;
  const std::size_t mode = mode_of(w, halves);
  const bool told = std::any_of(w.layers.begin(), w.layers.end(),
                                [](const Layer& l) { return l.memory.has_value(); });
  if (!told) return;
  const std::vector<bool> inside =
      w.fused_attention ? inside_attention(w.layers) : std::vector<bool>(w.layers.size(), false);
  std::optional<Workload> generated;
  if (w.compile != Compile::None) {
    Workload own = w;
    if (halves) own.precision = Precision::Bf16, own.casting = Casting::Pure;
    generated = compiled(own);
  }
  const std::vector<bool> backward = differentiated(w);
  for (std::size_t k = 0; k < w.layers.size(); ++k) {
    const Layer& l = w.layers[k];
    const std::optional<LayerMemory>& memory = (generated ? *generated : w).layers[k].memory;
    Bytes b;
    if (memory) {
      const bool fused = w.fused_attention && l.op.attention;
      b.keeps =
          static_cast<std::int64_t>((fused ? memory->saves_fused : memory->saves)[mode] * w.batch);
      b.makes = inside[k] ? 0 : static_cast<std::int64_t>(memory->makes[mode] * w.batch);
    }
    if (winograd && mode == 0 && w.precision == Precision::Fp32)
      b.workspace = winograd_bytes(l.op, w.batch);
    // Autocast keeps its copies of weights until backward has used them.
    if (mode == 1) b.keeps += kHalf * cast_elements(w, l, backward[k]);
    b.frees = b.keeps;
    b.adds = l.op.kind == "add";
    b.loss = l.op.kind.rfind("cross_entropy", 0) == 0;
    layers_.push_back(b);
  }
  if (w.checkpointing != Checkpointing::None) checkpoint(w, mode == 1);
}

// A block keeps what it read, and what is dear; the rest comes back while its backward runs.
void ModelMemory::checkpoint(const Workload& w, bool autocast) {
  const std::vector<bool> kept = kept_outputs(w);
  for (const Block& block : blocks_of(w)) {
    std::int64_t again = 0;
    for (std::size_t l = block.from; l < block.to; ++l) {
      Bytes& b = layers_[l];
      const bool next = l + 1 < block.to;
      // Of a fused attention its last layer makes what is kept.
      const bool attention = w.layers[l].op.attention;
      const bool holds = kept[l] && !(attention && next && w.layers[l + 1].op.attention);
      const std::int64_t held = holds ? b.makes : 0;
      // The next layer may save the very tensor.
      const std::int64_t same = next ? std::min(held, layers_[l + 1].keeps) : 0;
      again += b.keeps - same;
      b.frees = b.keeps + held - same;
      if (autocast) b.cached = kHalf * cast_elements(w, w.layers[l], true);
      b.keeps = held;
    }
    const std::int64_t input = block.from > 0 ? layers_[block.from - 1].makes : 0;
    layers_[block.from].keeps += input;
    layers_[block.from].frees += input;
    layers_[block.to - 1].again = again;
  }
}

LayersMemory ModelMemory::forward(std::size_t from, std::size_t to) const {
  LayersMemory out;
  if (!known()) return out;
  std::int64_t cached = 0;
  for (std::size_t l = from; l < to; ++l) {
    out.change += layers_[l].keeps;
    cached += layers_[l].cached;
    out.most = std::max(out.most, out.change + cached + layers_[l].makes);
  }
  return out;
}

LayersMemory ModelMemory::backward(std::size_t from, std::size_t to) const {
  LayersMemory out;
  if (!known()) return out;
  std::int64_t waiting = 0;
  for (std::size_t l = to; l-- > from;) {
    if (layers_[l].adds) waiting = layers_[l].makes;
    out.change += layers_[l].again;
    // The gradient of what it made, and of what it read.
    const std::int64_t read = layers_[l].loss ? layers_[l].makes : l > 0 ? layers_[l - 1].makes : 0;
    out.most =
        std::max(out.most, out.change + layers_[l].makes + read + waiting + layers_[l].workspace);
    out.change -= layers_[l].frees;
  }
  return out;
}

std::int64_t optimizer_copies(const Optimizer& o) {
  return o.kind == Optimizer::Kind::Sgd ? (o.momentum ? 1 : 0) : 2;
}

std::int64_t optimizer_temporaries(const Optimizer& o, std::int64_t elements) {
  if (o.fused || !o.foreach || !is_multi_tensor(o)) return 0;
  // Adam's denominator; SGD's gradients with weight decay added.
  if (o.kind != Optimizer::Kind::Sgd) return elements;
  return o.weight_decay ? elements : 0;
}

Held resident(const Workload& w, std::int64_t elements, std::int64_t bytes) {
  Held held{};
  held[Holds::Parameters] = bytes;
  const bool master = w.casting == Casting::MasterWeights && computes_in_halves(w);
  if (master) held[Holds::MasterParameters] = elements * kSingle;
  held[Holds::OptimizerState] =
      optimizer_copies(w.optimizer) * (master ? elements * kSingle : bytes);
  for (const Tensor& b : w.buffers) held[Holds::ModelBuffers] += b.bytes().count;
  return held;
}

Held resident(const Workload& w, bool gradients) {
  const std::int64_t bytes = w.gradient_bytes().count;
  Held held = resident(w, w.elements(), bytes);
  held[Holds::Parameters] += w.frozen_bytes().count;
  if (gradients) held[Holds::Gradients] = bytes;
  return held;
}

}  // namespace ddpsim::systems
