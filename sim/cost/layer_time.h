// Device time of a described workload's layers by a Profile's `kernels` (sim/model/kernels.h).
//
// Half precision is autocast's, as people train: parameters of four bytes are cast in every step,
// and so is what an operator of half precision reads from one of single precision, and the gradient
// on its way back. Products, convolutions and attention are halves; layer_norm, softmax and pow are
// single (torch/amp/autocast_mode, CUDA op lists); the others take the type of what they read
// (cross_entropy's kernels too, in the captures of PyTorch 2.11, unless the model casts its logits:
// cross_entropy_single), and a sum of both is single.
#pragma once

#include <optional>
#include <vector>

#include "sim/model/profile.h"
#include "sim/model/workload.h"

namespace ddpsim::predict {

// Bandwidth of Inductor's kernels, as a share of what large element-wise kernels of PyTorch reach:
// those of GPT-2 small, compiled by PyTorch 2.11, on an H200 (tests/unit/compiled_test.cc).
inline constexpr double kTritonPointwise = 0.84;
inline constexpr double kTritonReduction = 0.67;
inline constexpr double kTritonLoss = 0.40;

struct LayerTime {
  Duration forward;
  Duration backward;
};

struct LayerTimes {
  // One entry a layer, in order; nullopt where the layer does not say what it computes, or nothing
  // of that kind was measured.
  std::vector<std::optional<LayerTime>> layers;
  double clock = 1;     // share of the clock that the power limit leaves in such a step
  double products = 1;  // share of the device's time, as StepTimes::products
};
// REQUIRES: p.costs, w described.
LayerTimes layer_times(const Workload& w, const Profile& p, Level level);

// Of kernels that read and write `traffic` bytes between them and compute next to nothing (copies
// into buckets and out of them): as a tensor times a number. nullopt: not measured.
// REQUIRES: p.costs.
std::optional<Duration> copies_time(const Profile& p, Level level, std::int64_t traffic,
                                    std::int64_t kernels);

// nullopt: not measured. REQUIRES: p.costs.
std::optional<Duration> optimizer_time(const Workload& w, const Profile& p, Level level);

}  // namespace ddpsim::predict
