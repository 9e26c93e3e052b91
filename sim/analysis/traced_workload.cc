// The tensors and layers of an imported Workload. With a model: its own, joined by the shapes that
// the trace recorded, or else by the order in which gradients arrive. Without: one for each
// gradient, of the shape that was recorded, registered in the reverse order of arrival (which
// decides the buckets of the first step alone; steady ones are formed by arrival).
#include "sim/analysis/traced_workload.h"

#include <algorithm>

namespace ddpsim::analysis {
namespace {

std::string text_of(const std::vector<std::int64_t>& shape) {
  std::string out = "[";
  for (std::int64_t n : shape) out += (out.size() > 1 ? ", " : "") + std::to_string(n);
  return out + "]";
}

bool shaped(const Trace& trace, std::uint32_t gradient) {
  return gradient != kNothing && trace.gradients[gradient].dtype.has_value();
}

// Of each arrival, the model's tensor. Empty: the shapes are not the model's.
std::vector<TensorIndex> by_shape(const Trace& trace, const TracedStep& step, const Workload& m) {
  std::vector<bool> used(m.tensors.size());
  std::vector<TensorIndex> out;
  for (std::uint32_t g : step.gradients) {
    auto fits = [&](TensorIndex t) {
      return !used[t] && m.tensors[t].shape == trace.gradients[g].shape;
    };
    auto at = std::find_if(m.arrival.begin(), m.arrival.end(), fits);
    if (at == m.arrival.end()) return {};
    used[*at] = true;
    out.push_back(*at);
  }
  return out;
}

void check_count(const Trace& trace, const TracedStep& step, const Workload& m) {
  std::size_t seen = step.gradients.size();
  std::size_t wanted = m.arrival.size();
  if (seen == wanted) return;
  std::string say = "of this iteration " + std::to_string(seen) +
                    " gradients arrive, and the model " + m.name + " has " + std::to_string(wanted);
  if (seen > wanted && seen % wanted == 0)
    throw InputError{trace.file, say + ": it accumulates " + std::to_string(seen / wanted) +
                                     " micro-steps; record steps of one, and predict with --set "
                                     "accumulation_steps=" +
                                     std::to_string(seen / wanted)};
  throw InputError{trace.file, say +
                                   "; name the model that was trained (--model), or record "
                                   "with record_shapes=True and leave --model out"};
}

void join(const Trace& trace, const TracedStep& step, const Workload& m, ImportedWorkload& out) {
  check_count(trace, step, m);
  Workload& w = out.workload;
  w.tensors = m.tensors;
  w.frozen = m.frozen;
  w.buffers = m.buffers;
  w.model = m.model;
  bool shapes = std::all_of(step.gradients.begin(), step.gradients.end(),
                            [&](std::uint32_t g) { return shaped(trace, g); });
  if (shapes) {
    w.arrival = by_shape(trace, step, m);
    if (w.arrival.empty()) {
      for (std::size_t i = 0; i < m.arrival.size(); ++i) {
        const TracedGradient& g = trace.gradients[step.gradients[i]];
        const Tensor& t = m.tensors[m.arrival[i]];
        if (g.shape != t.shape)
          throw InputError{trace.file,
                           "gradient " + std::to_string(i) + " has shape " + text_of(g.shape) +
                               ", and " + t.name + " of the model " + m.name + " " +
                               text_of(t.shape) +
                               "; name the model that was trained, or leave --model out"};
      }
    }
    return;
  }
  w.arrival = m.arrival;
  out.notes.push_back("the trace has no shapes: its gradients are those of " + m.name +
                      " in the same order");
  std::int64_t reduced = reduced_elements(trace, step);
  if (reduced <= 0) return;
  std::int64_t elements = 0;
  for (TensorIndex t : w.arrival) elements += w.tensors[t].elements();
  if (step.wrapped && reduced != elements)
    throw InputError{trace.file, "its all-reduces carry " + std::to_string(reduced) +
                                     " elements in an iteration, and the gradients of the model " +
                                     m.name + " are " + std::to_string(elements) +
                                     "; name the model that was trained"};
  if (step.wrapped)
    out.notes.push_back("its all-reduces carry as many elements as that model has: " +
                        std::to_string(elements));
}

void by_themselves(const Trace& trace, const TracedStep& step, Workload& w) {
  std::size_t n = step.gradients.size();
  w.tensors.resize(n);
  for (std::size_t i = 0; i < n; ++i) {
    const TracedGradient& g = trace.gradients[step.gradients[i]];
    std::size_t at = n - 1 - i;
    w.tensors[at] = {"gradient." + std::to_string(i), g.shape, *g.dtype};
    w.arrival.push_back(static_cast<TensorIndex>(at));
  }
}

void read_optimizer(const TracedStep& step, const Workload* model, ImportedWorkload& out) {
  Optimizer& o = out.workload.optimizer;
  if (model) o = model->optimizer;
  std::string lower;
  for (char c : step.optimizer)
    lower += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  auto has = [&](const char* word) { return lower.find(word) != std::string::npos; };
  bool lamb = has("lamb");
  bool adamw = has("adamw");
  bool known = lamb || has("adam") || lower == "sgd" || has("fusedsgd");
  Optimizer::Kind kind = lamb          ? Optimizer::Kind::Lamb
                         : adamw       ? Optimizer::Kind::AdamW
                         : has("adam") ? Optimizer::Kind::Adam
                                       : Optimizer::Kind::Sgd;
  if (!model || (known && kind != o.kind)) o = {.kind = kind, .fused = has("fused")};
  if (!known && !step.optimizer.empty())
    out.notes.push_back("the optimizer " + step.optimizer +
                        " is none that ddpsim models: its time is the trace's, its memory that of "
                        "SGD");
}

// "h.0.attn" of "h.0.attn.weight"
std::string owner_of(const std::string& tensor) {
  std::size_t point = tensor.find_last_of('.');
  return point == std::string::npos ? tensor : tensor.substr(0, point);
}

// How much of their names two modules share, in whole parts.
std::size_t alike(const std::string& a, const std::string& b) {
  std::size_t parts = 0;
  for (std::size_t k = 0;; ++k) {
    bool end_a = k == a.size() || a[k] == '.';
    bool end_b = k == b.size() || b[k] == '.';
    if (end_a != end_b || (!end_a && a[k] != b[k])) return parts;
    if (end_a) ++parts;
    if (k == a.size() || k == b.size()) return parts;
  }
}

void find_layers(const Trace& trace, const TracedStep& step, bool named, ImportedWorkload& out) {
  const Workload& w = out.workload;
  std::vector<std::string> modules;
  for (TensorIndex t : w.arrival) modules.push_back(named ? owner_of(w.tensors[t].name) : "");
  std::vector<bool> has(w.tensors.size());
  for (TracedLayer& l : layers_of(trace, step, modules)) {
    ImportedWorkload::Layer layer;
    for (std::size_t k : l.arrivals) {
      layer.tensors.push_back(w.arrival[k]);
      has[w.arrival[k]] = true;
    }
    layer.time = std::move(l);
    out.layers.push_back(std::move(layer));
  }
  if (out.layers.empty()) {
    out.notes.push_back(
        "layers are not known: its operators have no sequence numbers of autograd, which PyTorch's "
        "Kineto and emit_nvtx record; plans that shard by layer (--plan fsdp) need them");
    return;
  }
  // Without a gradient nothing tells where it is used: beside what is named most alike.
  auto nearest = [&](const Tensor& t) {
    const std::string owner = owner_of(t.name);
    return std::max_element(out.layers.begin(), out.layers.end(),
                            [&](const auto& a, const auto& b) {
                              return alike(a.time.name, owner) < alike(b.time.name, owner);
                            });
  };
  for (TensorIndex t = 0; t < has.size(); ++t)
    if (!has[t]) nearest(w.tensors[t])->tensors.push_back(t);
  for (TensorIndex t = 0; t < w.frozen.size(); ++t) nearest(w.frozen[t])->frozen.push_back(t);
  for (ImportedWorkload::Layer& l : out.layers) std::sort(l.tensors.begin(), l.tensors.end());
}

}  // namespace

std::int64_t reduced_elements(const Trace& trace, const TracedStep& step) {
  std::int64_t sum = 0;
  for (const TraceEvent& e : trace.events) {
    if (e.what != Traced::Collective || e.begin < step.backward_begin ||
        e.begin >= step.backward_end)
      continue;
    const TracedMessage& m = trace.messages[e.detail];
    if (m.operation != Operation::AllReduce) continue;
    if (m.elements < 0) return -1;
    sum = saturating_add(sum, m.elements);
  }
  return sum;
}

ImportedWorkload workload_of(const Trace& trace, const ImportSetting& setting,
                             const std::string& remedy) {
  ImportedWorkload out;
  out.steps = traced_steps(trace);
  if (out.steps.empty())
    throw InputError{trace.file, "no iteration in it holds a backward; " + remedy};
  out.median = median_step(out.steps);
  const TracedStep& step = out.steps[out.median];
  if (step.sharded)
    throw InputError{trace.file,
                     "its model is wrapped by FSDP, which computes behind its collectives and "
                     "makes one gradient of many: import a trace of the bare model on one rank, "
                     "and predict with --set system=pytorch_fsdp"};
  if (step.gradients.empty())
    throw InputError{trace.file,
                     "no gradient is accumulated in its iterations "
                     "(torch::autograd::AccumulateGrad is nowhere); " +
                         remedy};
  Workload& w = out.workload;
  w.name = setting.name;
  w.model = setting.name;
  w.basis = Basis::Captured;
  w.device = step.times.host ? DeviceKind::Gpu : DeviceKind::Cpu;
  w.device_name = step.times.host ? trace.gpu : setting.device;
  bool shapes = std::all_of(step.gradients.begin(), step.gradients.end(),
                            [&](std::uint32_t g) { return shaped(trace, g); });
  if (!setting.model && !shapes)
    throw InputError{trace.file,
                     "nothing in it says how large the gradients are. Name the model's parameters "
                     "(--model FILE: a workload, such as ddpsim describe writes), or " +
                         remedy};
  if (setting.model)
    join(trace, step, *setting.model, out);
  else
    by_themselves(trace, step, w);
  if (!setting.model)
    out.notes.push_back(
        "no trace has parameters that require no gradient: of a model with frozen ones name it "
        "(--model)");
  w.batch = setting.batch > 0 ? setting.batch : setting.model ? setting.model->batch : 1;
  if (setting.batch == 0 && !setting.model)
    out.notes.push_back("samples per step are not known: --batch N says them (taken: 1)");
  read_optimizer(step, setting.model, out);
  DType first = w.tensors[w.arrival.front()].dtype;
  w.precision = setting.precision          ? *setting.precision
                : first == DType::Float16  ? Precision::Fp16
                : first == DType::BFloat16 ? Precision::Bf16
                : setting.model            ? setting.model->precision
                                           : Precision::Fp32;
  w.times = step.times;
  find_layers(trace, step, setting.model != nullptr, out);
  if (step.undefined > 0)
    out.notes.push_back(std::to_string(step.undefined) +
                        " parameters received no gradient, and are left out");
  if (!trace.kineto)
    out.notes.push_back(
        "the trace has whole microseconds and no arguments: its PyTorch was built "
        "without Kineto");
  if (step.wrapped)
    out.notes.push_back("of an iteration of " + to_string(step.length()) +
                        ", hooks of DistributedDataParallel (" + to_string(step.hooks) +
                        ") and waiting for communication (" + to_string(step.exposed) +
                        ") are left out: ddpsim adds them again for the ranks that it predicts");
  return out;
}

}  // namespace ddpsim::analysis
