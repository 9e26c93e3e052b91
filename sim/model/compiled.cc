#include "sim/model/compiled.h"

#include <algorithm>
#include <string>
#include <vector>

#include "sim/model/blocks.h"

namespace ddpsim {
namespace {

constexpr double kSingle = 4;
constexpr double kMask = 1;  // bytes of a dropout's mask, an element

bool one_of(const std::string& kind, std::initializer_list<const char*> kinds) {
  return std::any_of(kinds.begin(), kinds.end(), [&](const char* k) { return kind == k; });
}

bool is_product(const LayerOp& op) {
  return op.kind == "linear" || op.kind == "conv" || op.kind == "bmm";
}
bool is_loss(const LayerOp& op) {
  return op.kind.rfind("cross_entropy", 0) == 0;
}
bool is_norm(const LayerOp& op) {
  return op.kind == "layer_norm" || op.kind == "rms_norm";
}
// Tables and pools are kernels of their own; so is what the layer does not say.
bool fuses(const LayerOp& op) {
  return is_loss(op) || is_norm(op) ||
         one_of(op.kind, {"batch_norm", "relu", "gelu", "gelu_composed", "silu", "sigmoid", "tanh",
                          "dropout", "add", "fork", "copy", "softmax"});
}
// Backward reads what it read.
bool keeps_input(const LayerOp& op) {
  return is_norm(op) ||
         one_of(op.kind, {"batch_norm", "gelu", "gelu_composed", "silu", "sigmoid", "tanh"});
}

// Elements of a sample that a layer reads and makes; of composed operators, as one kernel has it.
struct Flow {
  double in = 0;
  double out = 0;
};
Flow flow_of(const Layer& l) {
  const double moved = l.forward.bytes_per_sample / kSingle;
  const double made = l.memory ? l.memory->makes[0] / kSingle : moved / 2;
  if (l.op.kind == "fork") return {made, made};
  if (l.op.kind == "copy" && l.forward.kernels > 1) {
    const double each = moved / 2 / l.forward.kernels;
    return {each, each};
  }
  if (l.op.kind == "add" || l.op.kind == "copy") {
    const double out = std::min(made, moved / 2);
    return {moved - out, out};
  }
  return {made, made};
}

// One kernel in each direction: layers [from, to) that follow one another but for products whose
// operands come from before them.
class Kernel {
 public:
  Kernel(double half, double wide) : half_(half), wide_(wide) {}

  bool empty() const { return layers_.empty(); }
  const std::vector<std::size_t>& layers() const { return layers_; }
  double made() const { return made_; }

  void add(std::size_t index, const Layer& l) {
    const Flow f = flow_of(l);
    const LayerOp& op = l.op;
    const bool first = layers_.empty();
    layers_.push_back(index);
    if (op.kind == "fork") {
      // The gradients of all who read it; of a residual one of them is wide.
      const int readers = l.backward.kernels;
      back_ += f.in * (readers > 1 ? readers * half_ : wide_);
      if (made_ == 0) made_ = f.out;
      return;
    }
    const bool beside = op.kind == "copy" && f.in <= f.out;  // of another operand than the last
    const double inside = first || beside ? 0 : std::min(made_, f.in);
    const double read = first && op.kind != "add" ? f.in : f.in - inside;
    const double size = op.kind == "add" && !first ? wide_ : half_;
    there_ += read * size;
    back_ += op.kind == "add" && !first ? read * wide_ : read * half_;      // its gradient
    if (beside && !first) there_ += made_ * half_, back_ += made_ * half_;  // the one before ends
    if (keeps_input(op) || (op.kind == "copy" && f.in > f.out)) {
      const double kept = is_norm(op) && !first ? wide_ : half_;
      back_ += f.in * kept;
      saves_ += f.in * kept;
      if (is_norm(op) && !first) there_ += f.in * kept;  // the sum before it
    }
    if (op.kind == "relu") back_ += f.out * half_;  // its sign
    if (op.kind == "dropout")
      there_ += f.out * kMask, back_ += f.out * kMask, saves_ += f.out * kMask;
    if (op.kind == "batch_norm") {  // mean and variance first; their gradients, too
      there_ += f.in * half_, back_ += 2 * f.in * half_;
      ++kernels_there_, ++kernels_back_;
    }
    if (is_norm(op) && !l.tensors.empty()) {  // the gradients of its weights
      back_ += f.in * (half_ + wide_);
      ++kernels_back_;
    }
    reduces_ |= is_norm(op) || op.kind == "batch_norm" || op.kind == "softmax";
    loss_ |= is_loss(op);
    made_ = f.out;
  }

  // Into the layer where it runs. `copied`: a loss's gradient is, for the product before it.
  void end(Layer& last, bool copied) const {
    const bool forks = there_ == 0;  // sums of gradients alone
    last.op = {};
    last.op.kind = loss_ ? kFusedLoss : reduces_ ? kFusedReduction : kFusedPointwise;
    last.forward = {0, loss_ || forks ? there_ : there_ + made_ * half_, 0,
                    forks ? 0 : kernels_there_};
    // A loss's gradient begins here.
    last.backward = {0, loss_ ? 2 * there_ : back_ + made_ * half_, 0, kernels_back_};
    if (!last.memory) return;
    last.memory->saves.fill(loss_ ? there_ : saves_);
    // A loss's backward holds its gradient alone; systems::ModelMemory counts twice what it makes.
    last.memory->makes.fill(!loss_ ? made_ * half_ : copied ? there_ : there_ / 2);
  }

 private:
  double half_;
  double wide_;  // of sums that reach past products
  std::vector<std::size_t> layers_;
  double there_ = 0;
  double back_ = 0;
  double saves_ = 0;
  double made_ = 0;
  int kernels_there_ = 1;
  int kernels_back_ = 1;
  bool reduces_ = false;
  bool loss_ = false;
};

bool images_last(const Workload& w) {
  bool any = false;
  bool wide = false;
  for (const Layer& l : w.layers) {
    if (l.op.kind != "conv") continue;
    if (l.op.groups > 1 || (2 * l.op.filters <= l.op.channels && l.op.kernel > 1)) return false;
    any = true;
    wide |= l.op.filters > 64 || l.op.channels > 64;
  }
  return any && wide;
}

class Compiler {
 public:
  explicit Compiler(const Workload& w) : out_(w) {
    const bool halves = is_half(w.precision);
    half_ = halves ? kSingle / 2 : kSingle;
    casts_ = halves && w.casting == Casting::Autocast;
    wide_ = half_;
    kernel_ = Kernel(half_, wide_);
    if (images_last(w)) out_.channels_last = true;
  }

  Workload run() {
    const bool regional = out_.compile == Compile::Regional;
    const bool borders = regional || out_.checkpointing != Checkpointing::None;
    std::string block;
    for (std::size_t i = 0; i < out_.layers.size(); ++i) {
      Layer& l = out_.layers[i];
      if (std::string now = block_of(l.name); borders && now != block) {
        end();
        block = std::move(now);
      }
      if (regional && block.empty()) continue;
      if (l.memory && l.op.kind == "linear" && casts_) l.memory->saves[1] = l.memory->saves[2];
      if (l.op.attention && out_.fused_attention) {
        end();
      } else if (fuses(l.op)) {
        if (is_loss(l.op)) end();
        kernel_.add(i, l);
      } else {
        // Of an operand that this product does not read the kernel goes on after it.
        if (!is_product(l.op) || reads(l)) end();
        unaligned_ = l.op.kind == "linear" && padded(l.op.outputs, out_.precision) != l.op.outputs;
        const bool table = l.op.kind == "embedding" || l.op.kind == "position_embedding";
        if (table && casts_) wide_ = kSingle;
      }
    }
    end();
    return std::move(out_);
  }

 private:
  bool reads(const Layer& l) const {
    const LayerOp& op = l.op;
    if (op.kind == "conv")
      return kernel_.made() == static_cast<double>(op.channels * op.size * op.size);
    if (op.kind == "linear") return kernel_.made() == static_cast<double>(op.rows * op.inputs);
    return true;
  }
  void end() {
    if (!kernel_.empty()) {
      for (std::size_t i : kernel_.layers()) {
        Layer& l = out_.layers[i];
        l.op = {};
        l.op.kind = kFused;
        l.forward = l.backward = {0, 0, 0, 0};
        if (l.memory) l.memory->saves.fill(0), l.memory->makes.fill(0);
      }
      kernel_.end(out_.layers[kernel_.layers().back()], unaligned_);
    }
    kernel_ = Kernel(half_, wide_);
  }

  Workload out_;
  double half_ = kSingle;
  double wide_ = kSingle;
  bool casts_ = false;
  bool unaligned_ = false;  // what the last product made
  Kernel kernel_{kSingle, kSingle};
};

}  // namespace

bool is_fused(const LayerOp& op) {
  return op.kind.rfind("fused", 0) == 0;
}

bool is_compiled(const Workload& w, const Layer& l) {
  return w.compile != Compile::None &&
         (w.compile != Compile::Regional || !block_of(l.name).empty());
}

Workload compiled(const Workload& w) {
  return Compiler(w).run();
}

std::int64_t padded(std::int64_t elements, Precision p) {
  const std::int64_t to = is_half(p) ? 8 : 4;
  return (elements + to - 1) / to * to;
}

}  // namespace ddpsim
