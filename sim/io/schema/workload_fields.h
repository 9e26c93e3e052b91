// Keys of a workload's file (ddpsim.workload/1).
#pragma once

#include <algorithm>

#include "sim/io/schema/cluster_fields.h"
#include "sim/model/workload.h"

namespace ddpsim::io {

inline constexpr const char* kWorkloadSchema = "ddpsim.workload/1";

// ---- spellings

// An index of a tensor: whoever knows how many there are checks it (check_indices).
template <>
struct Codec<TensorIndex> {
  static void read(const Reader& r, TensorIndex& into) {
    const std::int64_t index = r.integer();
    into = index < 0 || index > UINT32_MAX ? UINT32_MAX : static_cast<TensorIndex>(index);
  }
  static OrderedJson write(TensorIndex t) { return t; }
  static void list(FieldRecord& f) {
    f.kind = FieldKind::Whole;
    f.least = 0;
  }
};
// A list of which rows may be said once (unroll.h).
template <class T>
struct AsRepeated {
  std::vector<T>& value;
};
template <class T>
AsRepeated<T> repeated(std::vector<T>& v) {
  return {v};
}
template <class T>
struct Codec<AsRepeated<T>> {
  static void read(const Reader& r, AsRepeated<T> into) {
    Codec<std::vector<T>>::read(r, into.value);
  }
  static OrderedJson write(AsRepeated<T> v) { return Codec<std::vector<T>>::write(v.value); }
  static void list(FieldRecord& f) {
    Codec<std::vector<T>>::list(f);
    f.kind = FieldKind::Repeated;
  }
};
// A whole number that stands as any number does.
struct AsAmount {
  std::int64_t& value;
};
template <>
struct Codec<AsAmount> {
  static void read(const Reader& r, AsAmount into) {
    into.value = static_cast<std::int64_t>(std::clamp(r.number(), -1e18, 1e18));
  }
  static OrderedJson write(AsAmount v) { return v.value; }
  static void list(FieldRecord& f) { f.kind = FieldKind::Number; }
};

// ---- what depends on the sequence length

// The sequence length, and whether anything has asked for it.
struct Sequence {
  const int* length = &nothing<int>();
  bool asked = false;
  int tokens(const Reader& r);  // throws InputError if there is none
};
template <class T>
struct At {
  T* to = &nothing<T>();
  Sequence* sequence = &nothing<Sequence>();
};
// A number, or coefficients of 1, the length and its square.
template <>
struct Codec<At<double>> {
  static void read(const Reader& r, At<double> into);
  static OrderedJson write(At<double> v) { return *v.to; }
  static void list(FieldRecord& f) { f.kind = FieldKind::Count; }
};
// A whole number, or "sequence".
template <>
struct Codec<At<std::int64_t>> {
  static void read(const Reader& r, At<std::int64_t> into);
  static OrderedJson write(At<std::int64_t> v) { return *v.to; }
  static void list(FieldRecord& f) { f.kind = FieldKind::Length; }
};
// Bytes of a sample in fp32, under autocast and in halves.
template <>
struct Codec<At<std::array<double, 3>>> {
  static void read(const Reader& r, At<std::array<double, 3>> into);
  static OrderedJson write(At<std::array<double, 3>> v) { return *v.to; }
  static void list(FieldRecord& f) {
    f.kind = FieldKind::List;
    f.unit = "bytes";
    f.fields.emplace_back().kind = FieldKind::Count;
  }
};
template <class V>
void fields(V& v, At<LayerCost>& at) {
  LayerCost& c = *at.to;
  v.required("flops_per_sample", At<double>{&c.flops_per_sample, at.sequence},
             "operations; a multiply-add is two");
  v.required("bytes_per_sample", At<double>{&c.bytes_per_sample, at.sequence},
             "traffic of activations, at 4 bytes an element");
  v.required("bytes_fixed", At<double>{&c.bytes_fixed, at.sequence},
             "traffic of weights, at 4 bytes an element");
  v.required("kernels", c.kernels, "that are launched").range(0, 1e6);
}
inline constexpr const char* kPositiveSize = "a size is positive";
template <class V>
void fields(V& v, At<LayerOp>& at) {
  LayerOp& o = *at.to;
  const Where conv = where("kind", "conv");
  const Where product = where("kind", "linear", "bmm");
  constexpr double kMost = 1e12;
  v.required("kind", o.kind, "linear, conv, bmm, batch_norm, relu, ...");
  v.field("attention", o.attention, "one fused kernel can take the place of its neighbours and it",
          unless("kind", "conv"));
  v.field("causal", o.causal, "products of scores", where("kind", "bmm"));
  v.required("count", o.count, "products a sample", where("kind", "bmm"))
      .range(1, kMost, kPositiveSize);
  v.required("rows", At<std::int64_t>{&o.rows, at.sequence}, "a sample, or a product", product)
      .range(1, kMost, kPositiveSize);
  v.required("inputs", At<std::int64_t>{&o.inputs, at.sequence}, "summed over", product)
      .range(1, kMost, kPositiveSize);
  v.required("outputs", At<std::int64_t>{&o.outputs, at.sequence}, "columns", product)
      .range(1, kMost, kPositiveSize);
  v.required("channels", o.channels, "of its input", conv).range(1, kMost, kPositiveSize);
  v.required("size", o.size, "height of its input", conv).range(1, kMost, kPositiveSize);
  v.required("filters", o.filters, "channels of its output", conv).range(1, kMost, kPositiveSize);
  v.required("kernel", o.kernel, "height of a filter", conv).range(1, kMost, kPositiveSize);
  v.required("out", o.out, "height of its output", conv).range(1, kMost, kPositiveSize);
  v.field("wide", o.wide, "width of its output; as its height", conv)
      .range(1, kMost, kPositiveSize);
  v.field("dilation", o.dilation, "of its filters", conv).range(1, kMost, kPositiveSize);
  v.field("groups", o.groups, "that divide channels and filters", conv)
      .range(1, kMost, kPositiveSize);
}
// One list of LayerMemory, which is there where a layer says one.
struct AsLayerMemory {
  std::optional<LayerMemory>& memory;
  std::array<double, 3> LayerMemory::*part;
  Sequence* sequence;
};
template <>
struct Codec<AsLayerMemory> {
  static void read(const Reader& r, AsLayerMemory into) {
    LayerMemory& m = into.memory ? *into.memory : into.memory.emplace();
    Codec<At<std::array<double, 3>>>::read(r, {&(m.*into.part), into.sequence});
  }
  static OrderedJson write(AsLayerMemory v) {
    return v.memory ? OrderedJson((*v.memory).*v.part) : OrderedJson();
  }
  static void list(FieldRecord& f) { Codec<At<std::array<double, 3>>>::list(f); }
};
template <class V>
void fields(V& v, At<Layer>& at) {
  Layer& l = *at.to;
  v.required("name", l.name, "of the module; layers of repeated blocks have a number");
  v.required("class", l.kernel, "which efficiency prices it");
  v.field("op", At<LayerOp>{&l.op, at.sequence}, "what it computes: prices it by kernels");
  v.required("tensors", l.tensors, "indices of its parameters, in arrival order");
  v.field("frozen", l.frozen, "indices of the frozen parameters that it reads");
  v.required("forward", At<LayerCost>{&l.forward, at.sequence}, "cost of a direction");
  v.required("backward", At<LayerCost>{&l.backward, at.sequence}, "cost of a direction");
  v.field("saves", AsLayerMemory{l.memory, &LayerMemory::saves, at.sequence},
          "bytes kept until its backward: fp32, autocast, halves")
      .with("makes");
  v.field("saves_fused", AsLayerMemory{l.memory, &LayerMemory::saves_fused, at.sequence},
          "the same of fused attention, at the layer of its scores")
      .with("saves");
  v.field("makes", AsLayerMemory{l.memory, &LayerMemory::makes, at.sequence}, "its output")
      .with("saves");
}
template <>
struct Codec<At<std::vector<Layer>>> {
  static void read(const Reader& r, At<std::vector<Layer>> into) {
    for (const Reader& item : r.items()) {
      At<Layer> one{&into.to->emplace_back(), into.sequence};
      read_fields(item, one);
    }
  }
  static OrderedJson write(At<std::vector<Layer>>) { return {}; }
  static void list(FieldRecord& f) {
    f.kind = FieldKind::Repeated;
    Codec<At<Layer>>::list(f.fields.emplace_back());
  }
};

// ---- times of a capture

struct AsHostTime {
  std::optional<HostTimes>& host;
  Duration HostTimes::*part;
};
struct AsHostReady {
  std::optional<HostTimes>& host;
};
template <>
struct Codec<AsHostTime> {
  static void read(const Reader& r, AsHostTime into) {
    HostTimes& h = into.host ? *into.host : into.host.emplace();
    h.*into.part = {r.integer()};
  }
  static OrderedJson write(AsHostTime v) {
    return v.host ? OrderedJson(((*v.host).*v.part).ps) : OrderedJson();
  }
  static void list(FieldRecord& f) { Codec<AsTime>::list(f); }
};
template <>
struct Codec<AsHostReady> {
  static void read(const Reader& r, AsHostReady into) {
    HostTimes& h = into.host ? *into.host : into.host.emplace();
    Codec<AsTimes>::read(r, {h.ready});
  }
  static OrderedJson write(AsHostReady v) {
    return v.host ? Codec<AsTimes>::write({v.host->ready}) : OrderedJson();
  }
  static void list(FieldRecord& f) { Codec<AsTimes>::list(f); }
};
// A layer of a capture that knows them.
struct CapturedLayer {
  std::string name;
  std::vector<TensorIndex> tensors;
  std::vector<TensorIndex> frozen;
  Duration forward;
  std::optional<Duration> host_forward;
};
template <class V>
void fields(V& v, CapturedLayer& l) {
  v.required("name", l.name, "of the module");
  v.required("tensors", l.tensors, "indices of its parameters");
  v.field("frozen", l.frozen, "indices of the frozen parameters that it reads");
  v.required("forward_ps", as_time(l.forward), "until the next one begins");
  v.field("host_forward_ps", AsOptionalTime{l.host_forward}, "the same on the host (GPU)");
}
template <class V>
void fields(V& v, StepTimes& t) {
  v.required("forward_ps", as_time(t.forward), "of one forward");
  v.required("backward_ps", as_time(t.backward), "of one backward");
  v.required("optimizer_ps", as_time(t.optimizer), "of one step of the optimizer");
  v.required("ready_ps", as_times(t.ready),
             "from the start of backward, one per entry of `arrival`: its gradient is there");
  v.field("host_forward_ps", AsHostTime{t.host, &HostTimes::forward}, "on the host (GPU)")
      .with("host_ready_ps");
  v.field("host_backward_ps", AsHostTime{t.host, &HostTimes::backward}, "on the host (GPU)")
      .with("host_ready_ps");
  v.field("host_optimizer_ps", AsHostTime{t.host, &HostTimes::optimizer}, "on the host (GPU)")
      .with("host_ready_ps");
  v.field("host_ready_ps", AsHostReady{t.host}, "the same offsets on the host (GPU)")
      .with("host_forward_ps")
      .with("host_backward_ps")
      .with("host_optimizer_ps");
  v.field("core_ps", as_time(t.core), "core time of one step, all threads (CPU)")
      .at_least(0, "a time is not negative");
  v.template elsewhere<std::vector<CapturedLayer>>("layers", "in order of execution");
  v.field("instrumented_excess", t.instrumented_excess, "instrumented / plain step, less 1");
  v.other("raw", FieldKind::Any, "samples in ps; those of step_plain make the interval");
  v.other("modules", FieldKind::Any, "for people: times by module");
  v.other("notes", FieldKind::Any, "for people");
}

// ---- the workload

template <class V>
void fields(V& v, Tensor& t) {
  v.required("name", t.name, "as the model's state_dict has it");
  v.required("shape", t.shape, "elements along each dimension");
  v.required("dtype", t.dtype, "of its elements");
}
template <class V>
void fields(V& v, Optimizer& o) {
  v.required("name", o.kind, "torch.optim's; lamb: Apex FusedLAMB");
  v.field("momentum", o.momentum, "SGD keeps one").always();
  v.field("weight_decay", o.weight_decay, "it reads the weights once more").always();
  v.field("foreach", o.foreach, "a kernel takes many parameters").always();
  v.field("fused", o.fused, "one kernel is the whole update").always();
}
inline constexpr std::array<Operation, 6> kOwnOperations{
    Operation::AllReduce, Operation::ReduceScatter, Operation::AllGather,
    Operation::Broadcast, Operation::Reduce,        Operation::AllToAll};
inline constexpr std::array<const char*, 2> kOccasions{"forward", "step"};
inline constexpr const char* kAmount = "0 to 10^18";
template <class V>
void fields(V& v, OwnCollective& c) {
  v.required("operation", AsSome<kOwnOperations>{c.operation}, "all ranks take part");
  v.required("when", AsTruth<kOccasions, true>{c.in_forward},
             "in each micro-step after forward, or after the update");
  v.field("bytes_per_sample", c.bytes_per_sample, "that a rank gives").range(0, 1e18, kAmount);
  v.field("bytes_fixed", c.bytes_fixed, "that a rank gives").range(0, 1e18, kAmount);
  v.field("dtype", c.dtype, "of its elements");
  v.field("count", c.count, "one after another").range(1, 100'000);
  v.field("host", c.host, "the host waits for it, as for a barrier");
}
template <class V>
void fields(V& v, Loop& l) {
  v.field("grad_scaler", l.grad_scaler,
          "torch.amp.GradScaler, or Apex's; absent: where a described workload is in fp16");
  v.field("clip_grad_norm", l.clip_grad_norm, "torch.nn.utils.clip_grad_norm_");
  v.field("loss_item", l.loss_item, "the host reads the loss after each step");
  v.field("forward_item", l.forward_item, "the host reads what forward made");
  v.section(
      "own_update", false, "of tensors besides the parameters: an average of weights",
      [&](auto& s) {
        s.required("bytes", AsAmount{l.traffic}, "read and written").range(0, 1e18, kAmount);
        s.required("kernels", l.kernels, "that are launched").range(0, 1e6);
      },
      l.traffic > 0 || l.kernels > 0);
  v.field("collectives", l.collectives, "that the script calls itself");
}
template <class V>
void fields(V& v, NotCounted& n) {
  v.required("what", n.what, "in words");
  v.field("flops", n.flops, "operations of a step").range(0, 1e18, kAmount);
  v.field("bytes", n.bytes, "of a step").range(0, 1e18, kAmount);
}
template <class V>
void fields(V& v, DescribedWith& d) {
  v.required("pytorch", d.pytorch, "the release whose operators the layers are");
  v.field("absent", d.absent, "names that the script asked for, and it lacks");
}
// `attention`: our words, or Hugging Face's.
struct AsAttention {
  Workload& value;
};
template <>
struct Codec<AsAttention> {
  static void read(const Reader& r, AsAttention into);
  static OrderedJson write(AsAttention v) {
    return !v.value.fused_attention ? "eager" : v.value.flash2 ? "flash2" : "fused";
  }
  static void list(FieldRecord& f) {
    f.kind = FieldKind::Choice;
    f.choices = {"eager", "fused", "flash2", "sdpa", "flash_attention_2"};
  }
};
inline constexpr std::array<const char*, 2> kMemoryFormats{"contiguous", "channels_last"};
struct WorkloadFile {
  Workload w;
  Sequence sequence{&w.sequence};
  WorkloadFile() = default;
  WorkloadFile(const WorkloadFile&) = delete;
  WorkloadFile& operator=(const WorkloadFile&) = delete;
};
template <class V>
void fields(V& v, WorkloadFile& f) {
  Workload& w = f.w;
  const Where described =
      where("basis", "described").say("is of a described workload; a captured one was as it was");
  v.schema(kWorkloadSchema);
  v.required("name", w.name, "as --workload takes it");
  v.field("model", w.model, "the model's name; as `name`");
  v.required("basis", w.basis, "times were measured, or follow from layers and a profile");
  v.required("batch", w.batch, "samples of a rank in one forward and backward").range(1, 1e6);
  v.field("sequence", w.sequence, "tokens of a sample", described).range(1, 1e6);
  v.field("positions", w.positions, "rows of a table of learned positions: the longest sequence",
          described)
      .range(1, 1e6);
  v.required("precision", w.precision, "of products and convolutions");
  v.section("device", true, "that it was captured on, or is described for", [&](auto& s) {
    s.required("kind", w.device, "CPU or GPU");
    s.field("name", w.device_name, "for people").always();
  });
  v.other("source", FieldKind::Any,
          "provenance; `recipe` makes the model again, `plan` is its own");
  v.required("optimizer", w.optimizer, "of the parameters");
  v.required("tensors", repeated(w.tensors),
             "parameters that require a gradient, in registration order");
  v.field("frozen", repeated(w.frozen), "parameters that require none, in registration order");
  v.field("buffers", w.buffers, "in registration order");
  v.field("arrival", w.arrival, "indices of `tensors` in the order in which gradients come");
  v.field("cuda_graphs", w.cuda_graphs, "steady steps are replayed as a graph");
  v.field("loop", w.loop, "what the training loop does besides");
  v.field("not_counted", w.not_counted, "what the workload does not say; answers name it");
  v.field("described_with", w.described_with, "the PyTorch that described it");
  v.field("memory_format", AsTruth<kMemoryFormats, false>{w.channels_last}, "of images", described);
  v.field("casting", w.casting, "of a workload in bf16 or fp16", described);
  v.field("attention", AsAttention{w}, "by its parts, or by a fused kernel", described);
  v.field("compile", w.compile, "torch.compile", described);
  v.field("checkpointing", w.checkpointing, "activations that backward computes again", described);
  v.required("times", w.times, "of the capture",
             where("basis", "captured").say("a described workload has layers, not times"));
  v.required("layers", At<std::vector<Layer>>{&w.layers, &f.sequence},
             "in order of forward; backward runs them in reverse",
             where("basis", "described").say("a captured workload has times, not layers"));
}

}  // namespace ddpsim::io
