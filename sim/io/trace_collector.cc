#include "sim/io/trace_collector.h"

#include <algorithm>
#include <optional>

#include "sim/model/error.h"

namespace ddpsim::io {
namespace {

using analysis::Traced;

constexpr std::size_t kMostEvents = 8'000'000;  // kept, and twice while they are sorted: 640 MB
constexpr std::size_t kMostNames = 1'000'000;
constexpr std::size_t kMostKept = 128u << 20;  // bytes of names, shapes and messages

bool starts(const std::string& name, const char* with) {
  return name.starts_with(with);
}

// "nccl:all_reduce", "gloo:allreduce", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)"
std::optional<Operation> operation_in(const std::string& name) {
  std::string letters;
  for (char c : name) {
    if (c == '(') break;
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c != '_' && c != ' ') letters += c;
  }
  for (auto [word, operation] :
       {std::pair{"allreduce", Operation::AllReduce},
        std::pair{"reducescatter", Operation::ReduceScatter},
        std::pair{"allgather", Operation::AllGather}, std::pair{"alltoall", Operation::AllToAll},
        std::pair{"broadcast", Operation::Broadcast}, std::pair{"sendrecv", Operation::SendRecv},
        std::pair{":send", Operation::SendRecv}, std::pair{":recv", Operation::SendRecv},
        std::pair{"reduce", Operation::Reduce}})
    if (letters.find(word) != std::string::npos) return operation;
  return std::nullopt;
}

std::optional<DType> dtype_in(const std::string& type) {
  static const std::map<std::string, DType> known{{"float", DType::Float32},
                                                  {"float32", DType::Float32},
                                                  {"half", DType::Float16},
                                                  {"c10::half", DType::Float16},
                                                  {"float16", DType::Float16},
                                                  {"bfloat16", DType::BFloat16},
                                                  {"c10::bfloat16", DType::BFloat16},
                                                  {"double", DType::Float64},
                                                  {"long", DType::Int64},
                                                  {"long int", DType::Int64},
                                                  {"int", DType::Int32},
                                                  {"unsigned char", DType::UInt8},
                                                  {"byte", DType::UInt8},
                                                  {"char", DType::UInt8},
                                                  {"signed char", DType::UInt8},
                                                  {"bool", DType::Bool}};
  std::string lower;
  for (char c : type) lower += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  auto at = known.find(lower);
  return at == known.end() ? std::nullopt : std::optional(at->second);
}

// Categories of PyTorch 1.8 ("Operator", "Kernel") and later ("cpu_op", "kernel").
bool is_device(const std::string& c) {
  return c == "kernel" || c == "gpu_memcpy" || c == "gpu_memset" || c == "Kernel" ||
         c == "Memcpy" || c == "Memset";
}
bool is_runtime(const std::string& c) {
  return c == "Runtime" || c.ends_with("_runtime") || c.ends_with("_driver");
}

std::optional<Traced> kind_of(const KinetoEvent& e) {
  const std::string& name = e.name;
  if (is_device(e.category)) {
    bool collective = !e.collective.empty() || starts(name, "nccl") || starts(name, "rccl");
    return collective ? Traced::DeviceCollective : Traced::Device;
  }
  if (is_runtime(e.category)) {
    if (name.find("Synchronize") != std::string::npos) return Traced::Sync;
    return e.correlation >= 0 ? std::optional(Traced::Launch) : std::nullopt;
  }
  if (starts(e.category, "gpu") || e.category == "python_function") return std::nullopt;
  constexpr const char* kNode = "autograd::engine::evaluate_function: ";
  if (starts(name, kNode))
    return name.ends_with("AccumulateGrad") ? Traced::Accumulate : Traced::Node;
  if (name == "torch::autograd::AccumulateGrad") return Traced::Accumulated;
  if (starts(name, "ProfilerStep#") || starts(name, "ProfilerStep*")) return Traced::Step;
  if (starts(name, "Optimizer.step#")) return Traced::Optimizer;
  if (starts(name, "Optimizer.zero_grad#")) return Traced::ZeroGrad;
  if (starts(name, "DistributedDataParallel.forward")) return Traced::Wrapper;
  if (starts(name, "FullyShardedDataParallel") || starts(name, "FSDP::")) return Traced::Sharded;
  if (starts(name, "enumerate(DataLoader)")) return Traced::Input;
  if (name.find("reducer::copy_bucket_to_grad") != std::string::npos) return Traced::CopyToGrad;
  if ((starts(name, "nccl:") || starts(name, "gloo:") || starts(name, "mpi:") ||
       starts(name, "ucc:")) &&
      name.find("barrier") == std::string::npos && name.find(":wait") == std::string::npos)
    return Traced::Collective;
  return std::nullopt;
}

// "Optimizer.step#SGD.step" -> "SGD"
std::string optimizer_in(const std::string& name) {
  std::string of = name.substr(name.find('#') + 1);
  return of.substr(0, of.find('.'));
}

bool covers(const KinetoEvent& outer, const KinetoEvent& inner) {
  std::int64_t after = inner.begin_us - outer.begin_us;
  return after >= 0 && after <= outer.duration_ps / kMicrosecond.ps;
}

}  // namespace

void TraceCollector::count_from(std::int64_t us) {
  trace_.base_us = us;
  based_ = true;
}

void TraceCollector::operator()(const KinetoEvent& e) {
  ++trace_.events_in_file;
  if (e.begin_us < 0 || (!e.phase.empty() && e.phase != "X")) return;
  if (!based_) trace_.base_us = e.begin_us;
  based_ = true;
  trace_.kineto = trace_.kineto || !e.category.empty();
  if (e.category.starts_with("mtia"))
    throw InputError{trace_.file, "is of an accelerator whose events ddpsim does not read (" +
                                      e.category.substr(0, 40) + "); CPU, CUDA and ROCm it does"};
  if (e.name == "record_param_comms") remember(e);
  std::optional<Traced> what = kind_of(e);
  bool numbered = e.sequence >= 0 && (e.category == "cpu_op" || e.category == "Operator");
  if (!what && numbered && !marks_alone_) what = Traced::Operator;
  if (!what || e.duration_ps < 0) return;
  bool mark = *what == Traced::Step || *what == Traced::Optimizer;
  if (marks_alone_ && !mark) return;
  constexpr std::int64_t kMostUs = 9'000'000'000'000;  // 104 days
  std::int64_t us = e.begin_us - trace_.base_us;
  if (us > kMostUs || us < -kMostUs) return;  // another clock: nothing of the iterations
  analysis::TraceEvent event;
  event.begin = {us * kMicrosecond.ps + e.begin_ps};
  event.end = event.begin + Duration{e.duration_ps};
  if (event.begin >= to_ || event.end < from_) return;
  event.what = *what;
  event.thread = number(threads_, e.process + "/" + e.thread);
  bool of_autograd = *what == Traced::Operator || *what == Traced::Node;
  event.correlation = of_autograd ? e.sequence : e.correlation;
  if (*what == Traced::Optimizer) event.detail = named(optimizer_in(e.name));
  if (*what == Traced::Accumulated && e.typed) event.detail = gradient(e);
  if (*what == Traced::Collective || *what == Traced::DeviceCollective) event.detail = message(e);
  if (trace_.events.size() == kMostEvents)
    throw InputError{trace_.file,
                     "its iterations hold more than 8 million events; record fewer "
                     "(schedule(active=3)), or read fewer (--iterations 1)"};
  trace_.events.push_back(event);
}

void TraceCollector::keep(std::size_t bytes) {
  kept_ += bytes;
  if (kept_ > kMostKept)
    throw InputError{trace_.file,
                     "the names, shapes and messages of its iterations take more than 128 MiB; "
                     "record fewer (schedule(active=3)), or read fewer (--iterations 1)"};
}

void TraceCollector::finish() {
  std::stable_sort(trace_.events.begin(), trace_.events.end(),
                   [](const analysis::TraceEvent& a, const analysis::TraceEvent& b) {
                     return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
                   });
}

std::uint32_t TraceCollector::number(std::map<std::string, std::uint32_t>& of,
                                     const std::string& name) {
  if (of.size() >= kMostNames) return 0;
  auto [at, fresh] = of.try_emplace(name, static_cast<std::uint32_t>(of.size()));
  if (fresh) keep(2 * name.size());
  return at->second;
}

std::uint32_t TraceCollector::named(const std::string& name) {
  std::uint32_t n = number(names_, name);
  if (n == trace_.names.size()) trace_.names.push_back(name);
  return std::min(n, static_cast<std::uint32_t>(trace_.names.size() - 1));
}

std::uint32_t TraceCollector::gradient(const KinetoEvent& e) {
  keep(sizeof trace_.gradients.front() + e.shape.size() * sizeof e.shape.front());
  trace_.gradients.push_back({e.shape, dtype_in(e.input_type), e.input_type.empty()});
  return static_cast<std::uint32_t>(trace_.gradients.size() - 1);
}

// The arguments of the record around a backend's annotation, which has none.
void TraceCollector::remember(const KinetoEvent& e) {
  if (e.collective.empty() || e.collective == "wait") return;
  KinetoEvent& here = around_[e.process + "/" + e.thread];
  if (here.name.empty()) keep(sizeof e);
  keep(e.group_ranks.size() > here.group_ranks.size()
           ? e.group_ranks.size() - here.group_ranks.size()
           : 0);
  here = e;
}

std::uint32_t TraceCollector::message(const KinetoEvent& e) {
  analysis::TracedMessage m;
  m.operation = operation_in(e.collective.empty() ? e.name : e.collective);
  const KinetoEvent* from = &e;
  if (e.collective.empty()) {
    auto around = around_.find(e.process + "/" + e.thread);
    if (around != around_.end() && covers(around->second, e)) from = &around->second;
  }
  m.elements = std::max(from->in_elements, from->out_elements);
  m.dtype = dtype_in(from->dtype);
  m.sequence = from->collective_sequence;
  m.group = from->group;
  m.group_ranks = from->group_ranks;
  m.group_size =
      from->group_size > 0 && from->group_size < (1 << 24) ? static_cast<int>(from->group_size) : 0;
  if (m.elements < 0 && e.typed && !e.shape.empty()) {
    m.elements = 1;
    for (std::int64_t n : e.shape) m.elements = saturating_multiply(m.elements, n);
    m.dtype = dtype_in(e.input_type);
  }
  keep(sizeof m + m.group.size() + m.group_ranks.size());
  trace_.messages.push_back(std::move(m));
  return static_cast<std::uint32_t>(trace_.messages.size() - 1);
}

TimeSpan last_of(const std::vector<analysis::Iteration>& marks, int iterations) {
  std::size_t kept = std::min(marks.size(), static_cast<std::size_t>(iterations) + 1);
  // Kernels of the last iteration may run after its end: as long again is enough.
  const analysis::Iteration& last = marks.back();
  return {marks[marks.size() - kept].begin, last.end + (last.end - last.begin)};
}

}  // namespace ddpsim::io
