// What a model and its optimizer hold on a device, layer by layer. Bytes that layers save for
// backward are those of a described workload's `saves` (docs/formats.md); of a capture they are not
// known.
#pragma once

#include <vector>

#include "sim/model/memory.h"
#include "sim/model/workload.h"

namespace ddpsim::systems {

inline constexpr std::int64_t kSingle = 4;  // bytes of a float, which masters and their states are

// Layers that run one after another, in one direction.
struct LayersMemory {
  std::int64_t change = 0;  // of activations: kept (forward), or no longer (backward, negative)
  std::int64_t most = 0;    // beyond what was there before, at any time: >= 0, >= change
};

class ModelMemory {
 public:
  // `halves`: weights are gathered and computed with in half precision (FSDP's param_dtype).
  // `winograd`: cuDNN computes gradients of 3x3 filters in fp32 by WINOGRAD_NONFUSED, which lays
  // out what it transforms.
  explicit ModelMemory(const Workload& w, bool halves = false, bool winograd = false);
  bool known() const { return !layers_.empty(); }
  std::size_t layers() const { return layers_.size(); }
  // Of the layers [from, to) of forward.
  LayersMemory forward(std::size_t from, std::size_t to) const;
  LayersMemory backward(std::size_t from, std::size_t to) const;
  // The layer that makes a gradient complete: the first in forward that has the tensor.
  std::size_t layer_of(TensorIndex t) const { return layer_of_[t]; }

 private:
  struct Bytes {
    std::int64_t keeps = 0;  // from forward on
    std::int64_t again =
        0;  // that its block's layers save when they run again, before its backward
    std::int64_t frees = 0;  // when its backward has run
    std::int64_t makes = 0;
    std::int64_t cached = 0;     // autocast's copies that nobody keeps are there until forward ends
    std::int64_t workspace = 0;  // of its backward, cuDNN's
    bool adds = false;           // a residual: its gradient waits for that of the branch
    bool loss = false;  // its two gradients are as large as what it keeps, whatever it read
  };
  void checkpoint(const Workload& w, bool autocast);
  std::vector<Bytes> layers_;
  std::vector<std::size_t> layer_of_;
};

// Copies of every parameter that the optimizer keeps: 2 of Adam.
std::int64_t optimizer_copies(const Optimizer& o);
// Elements beside gradients that a step of the optimizer needs for so many parameters at a time:
// what its passes over lists of tensors make (torch/optim, foreach).
std::int64_t optimizer_temporaries(const Optimizer& o, std::int64_t elements);
// Between steps, without gradients: of a rank with so many of the trainable parameters' elements,
// which are `bytes`; frozen ones are not counted.
Held resident(const Workload& w, std::int64_t elements, std::int64_t bytes);
// Of a rank that has all of them, with their gradients where these stay (`gradients`).
Held resident(const Workload& w, bool gradients);

}  // namespace ddpsim::systems
