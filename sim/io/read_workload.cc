#include <algorithm>

#include "sim/io/schema/workload_fields.h"
#include "sim/io/sequence.h"
#include "sim/io/unroll.h"
#include "sim/model/blocks.h"

namespace ddpsim::io {

void Codec<DType>::read(const Reader& r, DType& into) {
  if (const auto dtype = parse_dtype(r.text())) {
    into = *dtype;
    return;
  }
  std::string known;
  for (const char* name : kDTypeNames) known += (known.empty() ? "" : ", ") + std::string(name);
  r.fail("unknown dtype; known are " + known);
}

int Sequence::tokens(const Reader& r) {
  if (*length == 0) r.fail("depends on the sequence length, and the workload has no \"sequence\"");
  asked = true;
  return *length;
}

void Codec<At<double>>::read(const Reader& r, At<double> into) {
  if (!r.json().is_array()) {
    *into.to = r.number();
    return;
  }
  constexpr double kMost = 1e18;
  const std::vector<std::int64_t> c = r.integers();
  const int tokens = into.sequence->tokens(r);
  double n = 0;
  for (std::size_t i = c.size(); i-- > 0;) {
    n = n * tokens + static_cast<double>(c[i]);
    if (c.size() > 3 || c[i] < 0 || n >= kMost)
      r.fail(
          "coefficients of 1, the sequence length and its square are not negative, and what "
          "they give is below 10^18");
  }
  *into.to = static_cast<double>(at_length(c, tokens));
}

void Codec<At<std::int64_t>>::read(const Reader& r, At<std::int64_t> into) {
  const bool sequence = r.json().is_string() && r.text() == "sequence";
  *into.to = sequence ? into.sequence->tokens(r) : r.integer();
}

void Codec<At<std::array<double, 3>>>::read(const Reader& r, At<std::array<double, 3>> into) {
  const std::vector<Reader> modes = r.items();
  if (modes.size() != 3) r.fail("expected three: in fp32, under autocast, in halves");
  for (std::size_t k = 0; k < 3; ++k) {
    double& bytes = (*into.to)[k];
    Codec<At<double>>::read(modes[k], {&bytes, into.sequence});
    if (!(bytes >= 0 && bytes <= 1e15)) modes[k].fail("0 to 10^15 bytes of a sample");
  }
}

void Codec<AsAttention>::read(const Reader& r, AsAttention into) {
  // Hugging Face has other words for the same.
  const auto which = r.text() == "sdpa"                ? 1
                     : r.text() == "flash_attention_2" ? 2
                                                       : r.choice({"eager", "fused", "flash2"});
  into.value.fused_attention = which > 0;
  into.value.flash2 = which == 2;
}

namespace {

// `found`: what was read of the key. There are `count` of what it numbers.
void check_indices(const Reader& r, const char* key, const std::vector<TensorIndex>& found,
                   std::size_t count, const char* what = "tensor") {
  for (std::size_t k = 0; k < found.size(); ++k)
    if (found[k] >= count) {
      const Reader index = r.at(key).items()[k];
      index.fail("no " + std::string(what) + " has index " + index.json().dump() + "; there are " +
                 std::to_string(count));
    }
}
// A layer's parameters, and the frozen ones that it reads, each of them once.
void check_layer(const Reader& r, const std::vector<TensorIndex>& tensors,
                 const std::vector<TensorIndex>& frozen, const Workload& w) {
  check_indices(r, "tensors", tensors, w.tensors.size());
  check_indices(r, "frozen", frozen, w.frozen.size(), "frozen parameter");
  std::vector<TensorIndex> sorted = frozen;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
    r.at("frozen").fail("names a frozen parameter twice");
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

// Forward of a capture layer by layer, in order of execution; the first layer has the time before
// it. REQUIRES: the rest of w but its layers.
void read_captured_layers(const Reader& r, Workload& w) {
  StepTimes& t = w.times;
  Duration left = t.forward;
  Duration host_left = t.host ? t.host->forward : Duration{};
  auto share = [](const Reader& l, const char* key, Duration d, Duration& of) {
    if (d.ps < 0 || d > of)
      l.at(key).fail("a layer's time is not negative, and all of them are within forward");
    of -= d;
    return d;
  };
  std::vector<bool> seen(w.tensors.size());
  for (const Reader& l : r.items()) {
    CapturedLayer c;
    read_fields(l, c);
    check_layer(l, c.tensors, c.frozen, w);
    for (TensorIndex i : c.tensors) seen[i] = true;
    LayerDurations d;
    d.forward = share(l, "forward_ps", c.forward, left);
    if (t.host && !c.host_forward) l.at("host_forward_ps");
    if (t.host) d.host_forward = share(l, "host_forward_ps", *c.host_forward, host_left);
    Layer& layer = w.layers.emplace_back();
    layer.name = std::move(c.name);
    layer.tensors = std::move(c.tensors);
    layer.frozen = std::move(c.frozen);
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

void apply_casting(const Reader& r, Workload& w) {
  if (w.casting == Casting::Autocast) return;
  if (w.precision != Precision::Bf16 && w.precision != Precision::Fp16)
    r.fail("is of precision bf16 or fp16; this workload's is " + std::string(name_of(w.precision)));
  DType half = w.precision == Precision::Bf16 ? DType::BFloat16 : DType::Float16;
  for (std::vector<Tensor>* parameters : {&w.tensors, &w.frozen})
    for (Tensor& t : *parameters)
      if (t.dtype == DType::Float32) t.dtype = half;
}

void complete_captured(const Reader& r, Workload& w) {
  const Reader times = r.at("times");
  if (times.has("raw")) read_spread(times.at("raw"), w.times);
  if (times.has("layers")) read_captured_layers(times.at("layers"), w);
}

void complete_described(const Reader& r, Workload& w, bool sequence_asked) {
  if (r.has("casting")) apply_casting(r.at("casting"), w);
  const std::vector<Reader> layers = r.at("layers").items();
  for (std::size_t l = 0; l < layers.size(); ++l)
    check_layer(layers[l], w.layers[l].tensors, w.layers[l].frozen, w);
  if (w.checkpointing != Checkpointing::None && blocks_of(w).empty())
    r.at("checkpointing").fail("is of repeated blocks; no layer's name has a number");
  for (const char* key : {"sequence", "positions"})
    if (r.has(key) && !sequence_asked)
      r.at(key).fail("the model has no sequence: no layer's cost depends on its length");
}

}  // namespace

Workload read_workload(const Json& j, const std::string& file) {
  if (repeats(j)) return read_workload(unrolled(j, file), file);
  Reader r(j, file);
  WorkloadFile f;
  read_file_fields(r, f, kWorkloadSchema);
  Workload& w = f.w;
  if (!r.has("model")) w.model = w.name;
  (void)r.at("arrival");
  check_indices(r, "arrival", w.arrival, w.tensors.size());
  if (w.basis == Basis::Captured)
    complete_captured(r, w);
  else
    complete_described(r, w, f.sequence.asked);
  if (auto p = validate(w)) r.fail_at(p.path, p.message);
  return std::move(w);
}

}  // namespace ddpsim::io
