#include <algorithm>

#include "sim/io/codecs.h"
#include "sim/io/sequence.h"
#include "sim/io/unroll.h"
#include "sim/model/blocks.h"

namespace ddpsim::io {
namespace {

Tensor read_tensor(const Reader& r) {
  r.only({"name", "shape", "dtype"});
  Tensor t;
  t.name = r.at("name").text();
  t.shape = r.at("shape").integers();
  auto dtype = parse_dtype(r.at("dtype").text());
  if (!dtype)
    r.at("dtype").fail(
        "unknown dtype; known are float32, float16, bfloat16, float64, int64, int32, uint8, bool");
  t.dtype = *dtype;
  return t;
}

// The sequence length, and whether anything has asked for it.
class Sequence {
 public:
  explicit Sequence(int tokens) : tokens_(tokens) {}
  int tokens(const Reader& r) {
    if (tokens_ == 0)
      r.fail("depends on the sequence length, and the workload has no \"sequence\"");
    asked_ = true;
    return tokens_;
  }
  bool asked() const { return asked_; }

 private:
  int tokens_;
  bool asked_ = false;
};

// A number, or coefficients of 1, the sequence length and its square.
double read_count(const Reader& r, Sequence& sequence) {
  if (!r.json().is_array()) return r.number();
  constexpr double kMost = 1e18;
  std::vector<std::int64_t> c = r.integers();
  int tokens = sequence.tokens(r);
  double n = 0;
  for (std::size_t i = c.size(); i-- > 0;) {
    n = n * tokens + static_cast<double>(c[i]);
    if (c.size() > 3 || c[i] < 0 || n >= kMost)
      r.fail(
          "coefficients of 1, the sequence length and its square are not negative, and what "
          "they give is below 10^18");
  }
  return static_cast<double>(at_length(c, tokens));
}

LayerCost read_cost(const Reader& r, Sequence& sequence) {
  r.only({"flops_per_sample", "bytes_per_sample", "bytes_fixed", "kernels"});
  LayerCost c;
  c.flops_per_sample = read_count(r.at("flops_per_sample"), sequence);
  c.bytes_per_sample = read_count(r.at("bytes_per_sample"), sequence);
  c.bytes_fixed = read_count(r.at("bytes_fixed"), sequence);
  c.kernels = r.at("kernels").small(0, 1'000'000);
  return c;
}

// By precision: fp32, autocast, halves.
std::array<double, 3> read_bytes(const Reader& r, Sequence& sequence) {
  std::vector<Reader> modes = r.items();
  if (modes.size() != 3) r.fail("expected three: in fp32, under autocast, in halves");
  std::array<double, 3> out{};
  for (std::size_t k = 0; k < 3; ++k) {
    out[k] = read_count(modes[k], sequence);
    if (!(out[k] >= 0 && out[k] <= 1e15)) modes[k].fail("0 to 10^15 bytes of a sample");
  }
  return out;
}

LayerOp read_op(const Reader& r, Sequence& sequence) {
  LayerOp op;
  op.kind = r.at("kind").text();
  auto number = [&](const char* key) -> std::int64_t {
    Reader v = r.at(key);
    std::int64_t n = v.integer();
    if (n < 1 || n > 1'000'000'000'000) v.fail("a size is positive");
    return n;
  };
  auto length = [&](const char* key) -> std::int64_t {
    Reader v = r.at(key);
    return v.json().is_string() && v.text() == "sequence" ? sequence.tokens(v) : number(key);
  };
  if (r.has("attention")) op.attention = r.at("attention").boolean();
  if (op.kind == "linear") {
    r.only({"kind", "attention", "rows", "inputs", "outputs"});
  } else if (op.kind == "bmm") {
    r.only({"kind", "attention", "causal", "count", "rows", "inputs", "outputs"});
    op.count = number("count");
    if (r.has("causal")) op.causal = r.at("causal").boolean();
  } else if (op.kind == "conv") {
    r.only({"kind", "channels", "size", "filters", "kernel", "out", "wide", "dilation", "groups"});
    op.channels = number("channels");
    op.size = number("size");
    op.filters = number("filters");
    op.kernel = number("kernel");
    op.out = number("out");
    if (r.has("wide")) op.wide = number("wide");
    if (r.has("dilation")) op.dilation = number("dilation");
    if (r.has("groups")) op.groups = number("groups");
    return op;
  } else {
    r.only({"kind", "attention"});
    return op;
  }
  op.rows = length("rows");
  op.inputs = length("inputs");
  op.outputs = length("outputs");
  return op;
}

std::vector<TensorIndex> read_indices(const Reader& r, std::size_t tensors,
                                      const char* what = "tensor") {
  std::vector<TensorIndex> out;
  for (const Reader& i : r.items()) {
    std::int64_t index = i.integer();
    if (index < 0 || index >= static_cast<std::int64_t>(tensors))
      i.fail("no " + std::string(what) + " has index " + std::to_string(index) + "; there are " +
             std::to_string(tensors));
    out.push_back(static_cast<TensorIndex>(index));
  }
  return out;
}

// What of Workload::frozen a layer reads; each of them once.
std::vector<TensorIndex> read_frozen(const Reader& layer, const Workload& w) {
  if (!layer.has("frozen")) return {};
  Reader r = layer.at("frozen");
  std::vector<TensorIndex> out = read_indices(r, w.frozen.size(), "frozen parameter");
  std::vector<TensorIndex> sorted = out;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
    r.fail("names a frozen parameter twice");
  return out;
}

std::vector<Duration> read_durations(const Reader& r) {
  std::vector<Duration> out;
  for (std::int64_t v : r.integers()) out.push_back({v});
  return out;
}

// How passes of the bare step varied: their 10th and 90th percentile over their median.
void read_spread(const Reader& raw, StepTimes& t) {
  if (!raw.has("step_plain")) return;
  std::vector<std::int64_t> steps = raw.at("step_plain").integers();
  if (steps.empty()) return;
  for (std::int64_t v : steps)
    if (v <= 0) raw.at("step_plain").fail("a step takes more than no time");
  std::sort(steps.begin(), steps.end());
  std::size_t n = steps.size();
  auto middle = static_cast<double>(steps[(n - 1) / 2]) / 2 + static_cast<double>(steps[n / 2]) / 2;
  auto ranked = [&](std::size_t rank) { return static_cast<double>(steps[rank]) / middle; };
  t.quick = std::min(1.0, ranked((n + 9) / 10 - 1));
  t.slow = std::max(1.0, ranked((9 * n + 9) / 10 - 1));
}

StepTimes read_times(const Reader& r) {
  r.only({"forward_ps", "backward_ps", "optimizer_ps", "ready_ps", "host_forward_ps",
          "host_backward_ps", "host_optimizer_ps", "host_ready_ps", "core_ps", "modules", "raw",
          "instrumented_excess", "notes", "layers"});
  StepTimes t;
  t.forward = {r.at("forward_ps").integer()};
  t.backward = {r.at("backward_ps").integer()};
  t.optimizer = {r.at("optimizer_ps").integer()};
  t.ready = read_durations(r.at("ready_ps"));
  if (r.has("core_ps")) t.core = {r.at("core_ps").integer()};
  if (t.core.ps < 0) r.at("core_ps").fail("a time is not negative");
  if (r.has("instrumented_excess")) t.instrumented_excess = r.at("instrumented_excess").number();
  if (r.has("raw")) read_spread(r.at("raw"), t);
  if (r.has("host_ready_ps")) {
    HostTimes h;
    h.forward = {r.at("host_forward_ps").integer()};
    h.backward = {r.at("host_backward_ps").integer()};
    h.optimizer = {r.at("host_optimizer_ps").integer()};
    h.ready = read_durations(r.at("host_ready_ps"));
    t.host = std::move(h);
  }
  return t;
}

// Of a capture: forward layer by layer, in order of execution. What comes before the first one is
// its. REQUIRES: the rest of w but its layers.
void read_captured_layers(const Reader& r, Workload& w) {
  StepTimes& t = w.times;
  Duration left = t.forward;
  Duration host_left = t.host ? t.host->forward : Duration{};
  auto share = [](const Reader& value, Duration& of) {
    Duration d{value.integer()};
    if (d.ps < 0 || d > of)
      value.fail("a layer's time is not negative, and all of them are within forward");
    of -= d;
    return d;
  };
  std::vector<bool> seen(w.tensors.size());
  for (const Reader& l : r.items()) {
    l.only({"name", "tensors", "frozen", "forward_ps", "host_forward_ps"});
    Layer layer;
    layer.name = l.at("name").text();
    layer.tensors = read_indices(l.at("tensors"), w.tensors.size());
    for (TensorIndex i : layer.tensors) seen[i] = true;
    layer.frozen = read_frozen(l, w);
    LayerDurations d;
    d.forward = share(l.at("forward_ps"), left);
    if (t.host) d.host_forward = share(l.at("host_forward_ps"), host_left);
    w.layers.push_back(std::move(layer));
    t.layers.push_back(d);
  }
  if (w.layers.empty()) r.fail("a capture that knows its layers has one at least");
  for (std::size_t i = 0; i < seen.size(); ++i)
    if (!seen[i]) r.fail("no layer has tensor \"" + w.tensors[i].name + "\"");
  t.layers.front().forward += left;
  t.layers.front().host_forward += host_left;
  std::vector<Duration> backward = backward_by_layer(w, t.ready, t.backward);
  std::vector<Duration> host(backward.size());
  if (t.host) host = backward_by_layer(w, t.host->ready, t.host->backward);
  for (std::size_t l = 0; l < backward.size(); ++l) {
    t.layers[l].backward = backward[l];
    t.layers[l].host_backward = host[l];
  }
}

Optimizer read_optimizer(const Reader& r) {
  r.only({"name", "momentum", "weight_decay", "foreach", "fused"});
  Optimizer o;
  o.kind = static_cast<Optimizer::Kind>(r.at("name").choice({"sgd", "adam", "adamw", "lamb"}));
  auto flag = [&](const char* key, bool& value) {
    if (r.has(key)) value = r.at(key).boolean();
  };
  flag("momentum", o.momentum);
  flag("weight_decay", o.weight_decay);
  flag("foreach", o.foreach);
  flag("fused", o.fused);
  return o;
}

double read_amount(const Reader& r) {
  const double n = r.number();
  if (!(n >= 0 && n <= 1e18)) r.fail("0 to 10^18");
  return n;
}

OwnCollective read_own_collective(const Reader& r) {
  r.only({"operation", "when", "bytes_per_sample", "bytes_fixed", "dtype", "count", "host"});
  constexpr std::array kKnown{Operation::AllReduce, Operation::ReduceScatter, Operation::AllGather,
                              Operation::Broadcast, Operation::Reduce,        Operation::AllToAll};
  OwnCollective c;
  c.operation = kKnown[r.at("operation")
                           .choice({"all_reduce", "reduce_scatter", "all_gather", "broadcast",
                                    "reduce", "all_to_all"})];
  c.in_forward = r.at("when").choice({"forward", "step"}) == 0;
  if (r.has("bytes_per_sample")) c.bytes_per_sample = read_amount(r.at("bytes_per_sample"));
  if (r.has("bytes_fixed")) c.bytes_fixed = read_amount(r.at("bytes_fixed"));
  if (r.has("dtype")) {
    const auto dtype = parse_dtype(r.at("dtype").text());
    if (!dtype) r.at("dtype").fail("unknown dtype, such as float32");
    c.dtype = *dtype;
  }
  if (r.has("count")) c.count = r.at("count").small(1, 100'000);
  if (r.has("host")) c.host = r.at("host").boolean();
  return c;
}

Loop read_loop(const Reader& r) {
  r.only(
      {"grad_scaler", "clip_grad_norm", "loss_item", "forward_item", "own_update", "collectives"});
  Loop loop;
  if (r.has("grad_scaler")) loop.grad_scaler = r.at("grad_scaler").boolean();
  if (r.has("clip_grad_norm")) loop.clip_grad_norm = r.at("clip_grad_norm").boolean();
  if (r.has("loss_item")) loop.loss_item = r.at("loss_item").boolean();
  if (r.has("forward_item")) loop.forward_item = r.at("forward_item").boolean();
  if (r.has("own_update")) {
    Reader own = r.at("own_update");
    own.only({"bytes", "kernels"});
    loop.traffic = static_cast<std::int64_t>(read_amount(own.at("bytes")));
    loop.kernels = own.at("kernels").small(0, 1'000'000);
  }
  if (r.has("collectives"))
    for (const Reader& c : r.at("collectives").items())
      loop.collectives.push_back(read_own_collective(c));
  return loop;
}

NotCounted read_left_out(const Reader& r) {
  r.only({"what", "flops", "bytes"});
  NotCounted n;
  n.what = r.at("what").text();
  if (r.has("flops")) n.flops = read_amount(r.at("flops"));
  if (r.has("bytes")) n.bytes = read_amount(r.at("bytes"));
  return n;
}

void read_casting(const Reader& r, Workload& w) {
  w.casting = static_cast<Casting>(r.choice({"autocast", "pure", "master_weights"}));
  if (w.casting == Casting::Autocast) return;
  if (w.precision != Precision::Bf16 && w.precision != Precision::Fp16)
    r.fail("is of precision bf16 or fp16; this workload's is " + std::string(name_of(w.precision)));
  DType half = w.precision == Precision::Bf16 ? DType::BFloat16 : DType::Float16;
  for (std::vector<Tensor>* parameters : {&w.tensors, &w.frozen})
    for (Tensor& t : *parameters)
      if (t.dtype == DType::Float32) t.dtype = half;
}

void read_described_with(const Reader& r, Workload& w) {
  r.only({"pytorch", "absent"});
  w.described_with.pytorch = r.at("pytorch").text();
  if (r.has("absent"))
    for (const Reader& a : r.at("absent").items()) w.described_with.absent.push_back(a.text());
}

void read_captured(const Reader& r, Workload& w) {
  for (const char* key : {"memory_format", "attention", "sequence", "positions", "casting",
                          "checkpointing", "compile"})
    if (r.has(key)) r.at(key).fail("is of a described workload; a captured one was as it was");
  if (r.has("layers")) r.at("layers").fail("a captured workload has times, not layers");
  w.times = read_times(r.at("times"));
  if (r.at("times").has("layers")) read_captured_layers(r.at("times").at("layers"), w);
}

void read_attention_kind(const Reader& word, Workload& w) {
  // Hugging Face's words for the same are read, too.
  const auto which = word.text() == "sdpa" ? 1
                     : word.text() == "flash_attention_2"
                         ? 2
                         : word.choice({"eager", "fused", "flash2"});
  w.fused_attention = which > 0;
  w.flash2 = which == 2;
}

Layer read_layer(const Reader& l, const Workload& w, Sequence& sequence) {
  l.only({"name", "class", "op", "tensors", "frozen", "forward", "backward", "saves", "saves_fused",
          "makes"});
  Layer layer;
  layer.name = l.at("name").text();
  layer.kernel =
      static_cast<KernelClass>(l.at("class").choice({"conv", "gemm", "attention", "memory"}));
  if (l.has("op")) layer.op = read_op(l.at("op"), sequence);
  layer.tensors = read_indices(l.at("tensors"), w.tensors.size());
  layer.frozen = read_frozen(l, w);
  layer.forward = read_cost(l.at("forward"), sequence);
  layer.backward = read_cost(l.at("backward"), sequence);
  if (l.has("saves")) {
    layer.memory = {read_bytes(l.at("saves"), sequence), {}, {}};
    if (l.has("saves_fused")) layer.memory->saves_fused = read_bytes(l.at("saves_fused"), sequence);
    layer.memory->makes = read_bytes(l.at("makes"), sequence);
  }
  return layer;
}

// REQUIRES: the layers are read.
void read_checkpointing(const Reader& r, Workload& w) {
  w.checkpointing = static_cast<Checkpointing>(r.choice({"none", "full", "selective"}));
  if (w.checkpointing != Checkpointing::None && blocks_of(w).empty())
    r.fail("is of repeated blocks; no layer's name has a number");
}

void read_described(const Reader& r, Workload& w) {
  if (r.has("memory_format"))
    w.channels_last = r.at("memory_format").choice({"contiguous", "channels_last"}) == 1;
  if (r.has("casting")) read_casting(r.at("casting"), w);
  if (r.has("attention")) read_attention_kind(r.at("attention"), w);
  if (r.has("compile"))
    w.compile =
        static_cast<Compile>(r.at("compile").choice({"none", "regional", "buckets", "whole"}));
  if (r.has("times")) r.at("times").fail("a described workload has layers, not times");
  if (r.has("sequence")) w.sequence = r.at("sequence").small(1, 1'000'000);
  if (r.has("positions")) w.positions = r.at("positions").small(1, 1'000'000);
  Sequence sequence(w.sequence);
  for (const Reader& l : r.at("layers").items()) w.layers.push_back(read_layer(l, w, sequence));
  if (r.has("checkpointing")) read_checkpointing(r.at("checkpointing"), w);
  for (const char* key : {"sequence", "positions"})
    if (r.has(key) && !sequence.asked())
      r.at(key).fail("the model has no sequence: no layer's cost depends on its length");
}

}  // namespace

Workload read_workload(const Json& j, const std::string& file) {
  if (repeats(j)) return read_workload(unrolled(j, file), file);
  Reader r(j, file);
  r.schema("ddpsim.workload/1");
  r.only({"schema",      "name",          "model",     "basis",       "batch",
          "sequence",    "positions",     "precision", "device",      "source",
          "optimizer",   "tensors",       "buffers",   "arrival",     "times",
          "layers",      "memory_format", "attention", "casting",     "loop",
          "cuda_graphs", "checkpointing", "compile",   "not_counted", "described_with",
          "frozen"});
  Workload w;
  w.name = r.at("name").text();
  w.model = r.has("model") ? r.at("model").text() : w.name;
  w.basis =
      r.at("basis").choice({"captured", "described"}) == 0 ? Basis::Captured : Basis::Described;
  w.batch = r.at("batch").small(1, 1'000'000);
  w.precision = static_cast<Precision>(r.at("precision").choice({"fp32", "tf32", "bf16", "fp16"}));
  Reader device = r.at("device");
  device.only({"kind", "name"});
  w.device = device.at("kind").choice({"cpu", "gpu"}) == 0 ? DeviceKind::Cpu : DeviceKind::Gpu;
  if (device.has("name")) w.device_name = device.at("name").text();
  w.optimizer = read_optimizer(r.at("optimizer"));
  for (const Reader& t : r.at("tensors").items()) w.tensors.push_back(read_tensor(t));
  if (r.has("frozen"))
    for (const Reader& t : r.at("frozen").items()) w.frozen.push_back(read_tensor(t));
  if (r.has("buffers"))
    for (const Reader& t : r.at("buffers").items()) w.buffers.push_back(read_tensor(t));
  if (r.has("cuda_graphs")) w.cuda_graphs = r.at("cuda_graphs").boolean();
  if (r.has("loop")) w.loop = read_loop(r.at("loop"));
  if (r.has("not_counted"))
    for (const Reader& n : r.at("not_counted").items()) w.not_counted.push_back(read_left_out(n));
  if (r.has("described_with")) read_described_with(r.at("described_with"), w);
  w.arrival = read_indices(r.at("arrival"), w.tensors.size());
  if (w.basis == Basis::Captured)
    read_captured(r, w);
  else
    read_described(r, w);
  if (auto p = validate(w)) r.fail_at(p.path, p.message);
  return w;
}

}  // namespace ddpsim::io
