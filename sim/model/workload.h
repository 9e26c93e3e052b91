// Workload: what one training step computes on one rank. File format: docs/formats.md.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/model/algorithm.h"
#include "sim/model/error.h"
#include "sim/units/by.h"
#include "sim/units/units.h"

namespace ddpsim {

enum class DType : std::uint8_t { Float32, Float16, BFloat16, Float64, Int64, Int32, UInt8, Bool };
inline constexpr std::size_t kDTypes = 8;
std::int64_t element_size(DType t);  // bytes
inline constexpr By<DType, const char*, 8> kDTypeNames{"float32", "float16", "bfloat16", "float64",
                                                       "int64",   "int32",   "uint8",    "bool"};
constexpr const auto& names_of(DType) {
  return kDTypeNames;
}
std::optional<DType> parse_dtype(const std::string& name);

enum class DeviceKind : std::uint8_t { Cpu, Gpu };
inline constexpr By<DeviceKind, const char*, 2> kDeviceKinds{"cpu", "gpu"};
constexpr const auto& names_of(DeviceKind) {
  return kDeviceKinds;
}
enum class Basis : std::uint8_t { Captured, Described };
inline constexpr By<Basis, const char*, 2> kBases{"captured", "described"};
constexpr const auto& names_of(Basis) {
  return kBases;
}
enum class Precision : std::uint8_t { Fp32, Tf32, Bf16, Fp16 };
inline constexpr By<Precision, const char*, 4> kPrecisions{"fp32", "tf32", "bf16", "fp16"};
using ByPrecision = By<Precision, double, 4>;
constexpr const auto& names_of(Precision) {
  return kPrecisions;
}
constexpr bool is_half(Precision p) {
  return p == Precision::Bf16 || p == Precision::Fp16;
}
enum class KernelClass : std::uint8_t { Conv, Gemm, Attention, Memory };
inline constexpr By<KernelClass, const char*, 4> kClassesOfKernels{"conv", "gemm", "attention",
                                                                   "memory"};
constexpr const auto& names_of(KernelClass) {
  return kClassesOfKernels;
}

// How a model trains in half precision. Autocast: parameters of four bytes, cast in every step
// (torch.autocast, Apex O1). Pure: parameters, gradients and optimizer state are halves
// (model.half()). MasterWeights: parameters and gradients are halves, the optimizer updates a copy
// of four bytes (Apex O2).
enum class Casting : std::uint8_t { Autocast, Pure, MasterWeights };
inline constexpr By<Casting, const char*, 3> kCastings{"autocast", "pure", "master_weights"};
constexpr const auto& names_of(Casting) {
  return kCastings;
}
// Activations that backward computes again: of a block all (Full), or all but what is dear
// (blocks.h).
enum class Checkpointing : std::uint8_t { None, Full, Selective };
inline constexpr By<Checkpointing, const char*, 3> kCheckpointings{"none", "full", "selective"};
constexpr const auto& names_of(Checkpointing) {
  return kCheckpointings;
}
// torch.compile (Inductor). Regional: each repeated block by itself, what is around them eagerly.
// Buckets: torch.compile(DistributedDataParallel(model)), whose graph is cut where buckets end
// (DDPOptimizer). Whole: DistributedDataParallel(torch.compile(model)): one graph, which gives all
// gradients at its end.
enum class Compile : std::uint8_t { None, Regional, Buckets, Whole };
inline constexpr By<Compile, const char*, 4> kCompiles{"none", "regional", "buckets", "whole"};
constexpr const auto& names_of(Compile) {
  return kCompiles;
}

using TensorIndex = std::uint32_t;

struct Tensor {
  std::string name;
  std::vector<std::int64_t> shape;
  DType dtype = DType::Float32;
  std::int64_t elements() const;
  Bytes bytes() const { return {elements() * element_size(dtype)}; }
};

// Cost of one layer in one direction; see `layers` in docs/formats.md for what the bytes assume.
struct LayerCost {
  double flops_per_sample = 0;
  double bytes_per_sample = 0;
  double bytes_fixed = 0;
  int kernels = 1;
  bool operator==(const LayerCost&) const = default;
};

// What a layer computes, beside what that costs: with it a measured Profile's `kernels` price the
// layer. Numbers that a kind does not have are 0; the keys of each kind are in docs/formats.md.
struct LayerOp {
  std::string kind;  // "linear", "conv", "bmm", "batch_norm", "relu", ...; "" = not said
  std::int64_t rows = 0, inputs = 0, outputs = 0;  // linear, bmm; rows per sample, or per product
  std::int64_t count = 0;                          // bmm: products per sample
  std::int64_t channels = 0, size = 0, filters = 0, kernel = 0, out = 0;  // conv; size: its height
  std::int64_t wide = 0;      // conv: the width of what it makes; 0: as its height, `out`
  std::int64_t dilation = 1;  // conv
  std::int64_t groups = 1;    // conv: divides channels and filters; = channels: depthwise
  bool attention = false;     // of attention: one fused kernel takes the place of all of them
  bool causal = false;        // bmm of scores
  bool operator==(const LayerOp&) const = default;
};

// What a layer needs of the device's memory: bytes per sample in fp32, under autocast, and all in
// halves.
struct LayerMemory {
  std::array<double, 3> saves{};        // kept until its backward, less what layers before it keep
  std::array<double, 3> saves_fused{};  // the same of fused attention, at the layer of its scores
  std::array<double, 3> makes{};        // its output
};

struct Layer {
  std::string name;
  LayerOp op;
  KernelClass kernel = KernelClass::Memory;
  std::vector<TensorIndex> tensors;  // in arrival order
  std::vector<TensorIndex> frozen;   // of Workload::frozen, that it reads; others may, too
  LayerCost forward;
  LayerCost backward;
  std::optional<LayerMemory> memory;  // none: not said
};

// Host-thread times of a GPU step: when the kernels were enqueued, not when they ran.
struct HostTimes {
  Duration forward;
  Duration backward;
  Duration optimizer;
  std::vector<Duration> ready;  // offset from the start of backward, one per arrival
};

// Of one layer; `host`: until its kernels are enqueued (GPU).
struct LayerDurations {
  Duration forward;
  Duration backward;
  Duration host_forward;
  Duration host_backward;
};

struct StepTimes {
  Duration forward;
  Duration backward;
  Duration optimizer;
  Duration loop;                     // on the device: what Workload::loop adds to a step
  bool waits_before_update = false;  // the host, until the device is done (Workload::loop)
  bool waits_after_update = false;
  std::vector<Duration> ready;  // one per arrival, non-decreasing, <= backward
  std::optional<HostTimes> host;
  double products = 1;  // of the device's time, what products, convolutions and attention take; 1 =
                        // not known
  // Half of forward and backward is spent in kernels that last at least so long; a layer's kernels
  // of a direction are taken as alike. 0 = not known (captured).
  Duration kernel;
  double clock = 1;  // share of the device's clock that its power limit leaves (predict/power.h)
  std::vector<LayerDurations> layers;  // of Workload::layers; empty: only the whole is known
  Duration core;    // core time of the whole step; 0 = unknown. Less than its duration where layers
                    // are slept, or wait for a core
  int at_once = 0;  // a layer profile: ranks that ran on the same machine while these times were
                    // taken; 0 = a capture of the model by itself
  double instrumented_excess = 0;  // capture only: instrumented / plain step - 1
  // Capture only: 80 % of its passes took between `quick` and `slow` times their median; 1 = alike,
  // or not said. 0 < quick <= 1 <= slow
  double quick = 1;
  double slow = 1;
};

// What one device took for a step by itself: forward, backward and optimizer of all micro-steps,
// without communication; and what that makes of computation (predict::scaled_to).
struct MeasuredStep {
  Duration measured;
  Duration predicted;  // of the work that was measured, without the measurement
  double factor = 1;   // measured / predicted: of the device's and of the host's times
  DeviceKind device = DeviceKind::Gpu;
  bool carried = false;  // to a workload whose own predicted step is another one
};

struct Optimizer {
  enum class Kind : std::uint8_t { Sgd, Adam, AdamW, Lamb } kind = Kind::Sgd;
  bool momentum = false;
  bool weight_decay = false;
  bool foreach = true;
  bool fused = false;  // Lamb: always (Apex FusedLAMB)
};
inline constexpr By<Optimizer::Kind, const char*, 4> kOptimizers{"sgd", "adam", "adamw", "lamb"};
constexpr const auto& names_of(Optimizer::Kind) {
  return kOptimizers;
}
// Bytes of memory traffic per fp32 parameter in one optimizer step, all passes. Source: facts of
// torch/optim/{sgd,adam}.py; docs/model.md.
double optimizer_bytes_per_element(const Optimizer& o);
std::int64_t optimizer_traffic(const Optimizer& o, std::int64_t elements);  // bytes
// A collective that a training script calls itself, beside its data-parallel system; of all ranks.
struct OwnCollective {
  Operation operation = Operation::AllReduce;
  bool in_forward = false;  // in each micro-step, between forward and backward; false: once a step,
                            // after its update
  double bytes_per_sample = 0;  // what a rank gives; of a reduce-scatter, what it gets
  double bytes_fixed = 0;
  DType dtype = DType::Float32;
  int count = 1;      // one after another
  bool host = false;  // the host waits for it
};
// What a training loop does besides forward, backward and the optimizer.
// Source: torch/amp/grad_scaler.py, torch/nn/utils/clip_grad.py.
struct Loop {
  std::optional<bool> grad_scaler;  // torch.amp.GradScaler, or Apex's loss scaling; absent: where a
                                    // described workload computes in fp16, except pure
  bool clip_grad_norm = false;      // torch.nn.utils.clip_grad_norm_
  bool loss_item = false;           // the host reads the loss after each step
  bool forward_item = false;        // the host reads what forward made, before each backward
  std::int64_t traffic = 0;  // bytes that it reads and writes after the update (an average of
                             // weights), in so many kernels
  int kernels = 0;
  std::vector<OwnCollective> collectives;
};

// What a script or a trace does that the rest of a workload does not say.
struct NotCounted {
  std::string what;  // "forward of a second network (ResNet)"
  double flops = 0;  // of a step; 0 = none, or not known
  double bytes = 0;
};
// "not counted: forward of a second network (ResNet), 341 GFLOP a step".
std::string in_words(const NotCounted& n);
// Which PyTorch described a workload, and what the script asked for that this one lacks.
struct DescribedWith {
  std::string pytorch;  // "1.13.1"; "" = not said
  std::vector<std::string> absent;
};

// Passes over parameters that an optimizer step makes, and whether a kernel takes many parameters.
std::int64_t optimizer_passes(const Optimizer& o);
bool is_multi_tensor(const Optimizer& o);
// Kernels of one optimizer step over so many parameters.
std::int64_t optimizer_kernels(const Optimizer& o, std::int64_t parameters);

struct Workload {
  std::string name;
  std::string model;
  Basis basis = Basis::Captured;
  int batch = 1;      // samples per rank in one forward/backward
  int sequence = 0;   // described: tokens per sample; 0 = the model has no sequence
  int positions = 0;  // rows of its table of learned positions: the longest sequence; 0 = no table
  Precision precision = Precision::Fp32;
  DeviceKind device = DeviceKind::Gpu;
  std::string device_name;
  Optimizer optimizer;
  std::vector<Tensor> tensors;  // parameters that require a gradient, in registration order
  std::vector<Tensor> frozen;   // parameters that require none, in registration order: held, and
                                // gathered where weights are, but never reduced nor updated
  std::vector<Tensor> buffers;  // registration order
  std::vector<TensorIndex> arrival;
  Loop loop;
  bool cuda_graphs = false;   // steady steps are replayed as a graph: the host launches nothing
  StepTimes times;            // captured, or filled by predict's roofline
  std::vector<Layer> layers;  // described; of a capture that knows them: name and tensors alone
  Casting casting = Casting::Autocast;  // described, of half precision
  bool channels_last = false;           // described: memory format of images; otherwise NCHW
  Checkpointing checkpointing = Checkpointing::None;  // described: of each repeated block
  bool fused_attention = false;     // described: scaled_dot_product_attention instead of its parts
  bool flash2 = false;              // by FlashAttention-2. REQUIRES: fused_attention
  Compile compile = Compile::None;  // described; compiled.h
  std::vector<NotCounted> not_counted;
  DescribedWith described_with;
  std::optional<MeasuredStep> measured_step;  // its factor is not in `times`
  Bytes gradient_bytes() const;
  std::int64_t elements() const;  // of `tensors`
  Bytes frozen_bytes() const;
  std::int64_t frozen_elements() const;
  TensorIndex tensor_count() const { return static_cast<TensorIndex>(tensors.size()); }
  // All parameters under one index: `tensors`, then `frozen`.
  std::size_t parameters() const { return tensors.size() + frozen.size(); }
  const Tensor& parameter(TensorIndex t) const {
    return t < tensors.size() ? tensors[t] : frozen[t - tensors.size()];
  }
  bool is_frozen(TensorIndex t) const { return t >= tensors.size(); }
  // Those of a layer: its gradients', then the frozen ones.
  std::vector<TensorIndex> parameters_of(const Layer& layer) const;
};
// Of each layer, whether backward goes through it: it makes the gradient of a parameter, or of what
// the layer read. A frozen layer that no trainable one comes before has no backward.
std::vector<bool> differentiated(const Workload& w);
// The same by how this workload trains: halves (Pure), or a copy of four bytes beside them.
double optimizer_bytes_per_element(const Workload& w);
std::int64_t optimizer_traffic(const Workload& w, std::int64_t elements);

// The passes over gradients that a loop makes, in bytes of traffic and kernels; 0 bytes: it makes
// none.
struct LoopWork {
  std::int64_t unscale = 0;
  std::int32_t unscale_kernels = 0;
  std::int64_t clip = 0;
  std::int32_t clip_kernels = 0;
  bool waits = false;  // the host, for whether a gradient is infinite, before it updates
};
// `elements` gradients in so many tensors, of one rank.
LoopWork loop_work(const Workload& w, std::int64_t elements, std::int64_t tensors);
LoopWork loop_work(const Workload& w);  // of all of them

// Of a capture, backward by layer: a layer's ends with the last gradient that no layer before it in
// forward shares, the first one's with backward; what has no parameters belongs to the layer that
// ends next. `ready`: of w.arrival, as StepTimes::ready. REQUIRES: w.layers.
std::vector<Duration> backward_by_layer(const Workload& w, const std::vector<Duration>& ready,
                                        Duration backward);

Problem validate(const Workload& w);

}  // namespace ddpsim
