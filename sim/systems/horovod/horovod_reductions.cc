// What Horovod's background thread does with tensors that are reduced together.
//
//   flat          copy in, NCCL's all-reduce (which averages), copy out
//   hierarchical  copy in, reduce-scatter in the host; the thread waits, copies its part to the
//                 host, all-reduces it among hosts through MPI, copies it back; all-gather in the
//                 host, a kernel that averages, copy out
//   torus         the same, but NCCL all-reduces among hosts and the copy out averages
//   adasum        as hierarchical; instead of MPI's all-reduce the ranks of two hosts, then of four
//                 and so on, exchange halves, agree on dot products, add; and collect the halves
//
// The thread waits for the gradients before Adasum; elsewhere the stream does. A single tensor
// stays where it is: what its elements leave over from equal parts is reduced to the host's last
// rank, goes with its part, and is broadcast. With several streams reductions take turns. Older
// releases wait and divide otherwise (version.h).
//
// Source: horovod 0.28.1 and master 2626dc87: ops/nccl_operations.cc, ops/gpu_operations.cc,
// ops/adasum_gpu_operations.cc, ops/adasum/adasum.h, ops/adasum/adasum_mpi.cc.
#include <algorithm>
#include <array>
#include <numeric>
#include <string>

#include "sim/systems/base/words.h"
#include "sim/systems/horovod/horovod.h"

namespace ddpsim::systems {
namespace {

constexpr OpWord fused_word(const char* name, Does does, Operation o = Operation::AllReduce) {
  const bool carries = does == Does::Communicate || does == Does::Copy;
  return {name,
          {.does = does,
           .phase = Phase::Backward,
           .of = Of::Bucket,
           .touches = carries ? Touches::Bucket : Touches::Nothing,
           .operation = o,
           .decided = true}};
}

constexpr OpWord kCoordinate{"coordinate/cycle.",
                             {.does = Does::Host, .phase = Phase::Backward, .of = Of::Number}};
constexpr OpWord kFuse = fused_word("copy_in/fused.", Does::Copy);
constexpr OpWord kReduceFused = fused_word("allreduce/fused.", Does::Communicate);
constexpr OpWord kUnfuse{"copy_out/fused.",
                         {.does = Does::Copy,
                          .phase = Phase::Reduced,
                          .of = Of::Bucket,
                          .touches = Touches::Bucket,
                          .divides = true}};
constexpr OpWord kScatterFused =
    fused_word("reduce_scatter/fused.", Does::Communicate, Operation::ReduceScatter);
constexpr OpWord kReduceRestFused =
    fused_word("reduce/fused.", Does::Communicate, Operation::Reduce);
constexpr OpWord kAcrossFused = fused_word("allreduce_across/fused.", Does::Communicate);
constexpr OpWord kGatherFused =
    fused_word("allgather/fused.", Does::Communicate, Operation::AllGather);
constexpr OpWord kBroadcastRestFused =
    fused_word("broadcast/fused.", Does::Communicate, Operation::Broadcast);
constexpr OpWord kAwaitFusedGradients = fused_word("wait/gradients.", Does::Wait);
constexpr OpWord kAwaitFusedPart = fused_word("wait/part.", Does::Wait);
constexpr OpWord kFusedToHost = fused_word("to_host/fused.", Does::Move);
constexpr OpWord kSumFusedOnHost = fused_word("sum/fused.", Does::Host);
constexpr OpWord kFusedToDevice = fused_word("to_device/fused.", Does::Move);
constexpr OpWord kScaleFused{"scale/fused.",
                             {.does = Does::Copy,
                              .phase = Phase::Reduced,
                              .of = Of::Bucket,
                              .touches = Touches::Bucket,
                              .divides = true}};
constexpr OpWord kFusedOnce[] = {
    kCoordinate,          kFuse,           kReduceFused, kUnfuse,         kScatterFused,
    kReduceRestFused,     kAcrossFused,    kGatherFused, kScaleFused,     kBroadcastRestFused,
    kAwaitFusedGradients, kAwaitFusedPart, kFusedToHost, kSumFusedOnHost, kFusedToDevice};

// Of each of Adasum's levels.
struct LevelWords {
  std::array<std::string, 5> names;
  OpWord exchange, dots, agree, add, collect;
};
const std::vector<LevelWords>& level_words() {
  static const std::vector<LevelWords> words = [] {
    std::vector<LevelWords> out(kMostAdasumLevels);
    for (std::size_t k = 0; k < out.size(); ++k) {
      constexpr const char* kNames[] = {"exchange_", "dots_", "agree_", "add_", "collect_"};
      for (std::size_t i = 0; i < out[k].names.size(); ++i)
        out[k].names[i] = kNames[i] + std::to_string(k) + "/fused.";
      auto name = [&](std::size_t i) { return out[k].names[i].c_str(); };
      out[k].exchange = fused_word(name(0), Does::Communicate, Operation::ReduceScatter);
      out[k].dots = fused_word(name(1), Does::Host);
      out[k].agree = fused_word(name(2), Does::Communicate);
      out[k].agree.kind.touches = Touches::Nothing;
      out[k].add = fused_word(name(3), Does::Host);
      out[k].collect = fused_word(name(4), Does::Communicate, Operation::AllGather);
    }
    return out;
  }();
  return words;
}

// Of Program::groups, as a collective names them.
constexpr std::uint8_t kHorovodHost = 1;
constexpr std::uint8_t kHorovodAcross = 2;
constexpr std::uint8_t pair_group(std::size_t level) {
  return static_cast<std::uint8_t>(2 + 2 * level);
}
constexpr std::uint8_t block_group(std::size_t level) {
  return static_cast<std::uint8_t>(3 + 2 * level);
}

std::int64_t padded_to(std::int64_t n, std::int64_t to) {
  return (n + to - 1) / to * to;
}

// Appends operations of the background thread.
class HorovodThread {
 public:
  HorovodThread(const Program& program, StepProgram& step)
      : program_(program), step_(step), c_(*program.coordination) {}

  std::uint32_t coordinate(Duration lasts) {
    auto before = std::find_if(step_.ops.rbegin(), step_.ops.rend(),
                               [](const Op& op) { return op.kind == kCoordinate.kind; });
    const std::uint32_t cycle = before == step_.ops.rend() ? 0 : before->subject + 1;
    thread_ = push(kCoordinate, Lane::Worker, cycle, 0, {});
    step_.ops[thread_].duration = lasts;
    return thread_;
  }

  void reduce(std::uint32_t bucket) {
    bucket_ = bucket;
    const Bucket& b = step_.buckets[bucket];
    ready_ = kNoOp;
    for (TensorIndex t : b.tensors)
      if (std::uint32_t made = step_.made_by[t]; made != kNoOp)
        ready_ = ready_ == kNoOp ? made : std::max(ready_, made);
    if (program_.device == DeviceKind::Gpu)
      reduce_on_gpu(b);
    else
      reduce_on_cpu(b);
  }

 private:
  std::uint32_t push(const OpWord& word, Lane lane, std::uint32_t subject, std::int64_t bytes,
                     std::initializer_list<std::uint32_t> after) {
    Op op;
    op.kind = word.kind;
    op.word = static_cast<std::uint16_t>(
        std::find(program_.words.begin(), program_.words.end(), word.name) -
        program_.words.begin());
    op.lane = lane;
    op.subject = subject;
    op.bytes = bytes;
    op.kernels = 0;
    auto index = step_.next_op();
    std::size_t k = 0;
    for (std::uint32_t d : after) {
      if (d == kNoOp) continue;
      if (k < 2)
        op.dep[k++] = d;
      else
        step_.extra_deps.push_back({index, d});
    }
    step_.ops.push_back(op);
    return index;
  }

  void costs(std::uint32_t op, std::int64_t traffic, int kernels) {
    step_.ops[op].cost = Cost::Memory;
    step_.ops[op].traffic = traffic;
    step_.ops[op].kernels = kernels;
  }

  int kernels_of_copies(const Bucket& b) const {
    return (static_cast<int>(b.tensors.size()) + c_.batch - 1) / c_.batch;
  }

  // ---- on a GPU: the thread launches

  void launch(Cost cost, int kernels) {
    auto next = step_.next_op() + 1;
    thread_ = push(kLaunch, Lane::Worker, next, 0, {thread_});
    step_.ops[thread_].cost = cost;
    step_.ops[thread_].kernels = kernels;
  }
  // The stream that is next, and what it was given before: it reuses the fusion buffer.
  void take_stream() {
    const std::size_t k = bucket_ % c_.streams;
    copies_ = stream(k);
    comm_ = k == 0 ? Lane::Comm : stream(k);
    last_ = kNoOp;
    for (auto i = step_.next_op(); i-- > 0 && last_ == kNoOp;)
      if (const Op& op = step_.ops[i];
          of_bucket(op.kind) && (op.lane == copies_ || op.lane == comm_))
        last_ = i;
  }
  void put(const OpWord& word, Lane lane, std::int64_t bytes) {
    last_ = push(word, lane, bucket_, bytes, {thread_, ready_, last_});
    ready_ = kNoOp;
  }
  void kernel(const OpWord& word, std::int64_t bytes, std::int64_t traffic, int kernels) {
    launch(Cost::Launch, kernels);
    put(word, copies_, bytes);
    costs(last_, traffic, kernels);
  }
  void collective(const OpWord& word, std::int64_t bytes, std::uint8_t group) {
    launch(Cost::LaunchCollective, 0);
    put(word, comm_, bytes);
    describe(last_, group);
  }
  void describe(std::uint32_t op, std::uint8_t group) {
    step_.ops[op].dtype = step_.buckets[bucket_].dtype;
    step_.ops[op].group = group;
  }

  void reduce_on_gpu(const Bucket& b) {
    const bool several = b.tensors.size() > 1;
    const std::int64_t bytes = b.wire_bytes.count;
    if (c_.reduces == Coordination::Reduces::Adasum || c_.waits_for_gradients) {
      thread_ = push(kAwaitFusedGradients, Lane::Worker, bucket_, 0, {thread_, ready_});
      ready_ = kNoOp;
    }
    take_stream();
    if (several) kernel(kFuse, bytes, 2 * bytes, kernels_of_copies(b));
    bool scales = false;  // a kernel of its own
    if (c_.reduces == Coordination::Reduces::Flat) {
      collective(kReduceFused, bytes, 0);
      scales = c_.divides == Coordination::Divides::AKernel ||
               (c_.divides == Coordination::Divides::TheCopy && !several);
      if (scales) kernel(kScaleFused, bytes, 2 * bytes, 1);
    } else {
      const std::int64_t size = element_size(b.dtype);
      std::int64_t elements = bytes / size;
      if (several) {
        std::int64_t padded = 0;
        for (TensorIndex t : b.tensors) padded += padded_to(c_.tensors[t].bytes, c_.padding);
        elements = padded_to(padded / size, c_.local_ranks * c_.unit);
      }
      reduce_in_parts(elements, size);
      scales = c_.reduces == Coordination::Reduces::Hierarchical ||
               (c_.reduces == Coordination::Reduces::Torus && !several);
      if (scales) kernel(kScaleFused, elements * size, 2 * elements * size, 1);
    }
    if (several) kernel(kUnfuse, bytes, 2 * bytes, kernels_of_copies(b));
  }

  void reduce_in_parts(std::int64_t elements, std::int64_t size) {
    const std::int64_t each = elements / c_.local_ranks;
    const std::int64_t rest = elements % c_.local_ranks;
    const std::int64_t whole = each * c_.local_ranks * size;
    if (each > 0) collective(kScatterFused, whole, kHorovodHost);
    if (rest > 0) collective(kReduceRestFused, rest * size, kHorovodHost);
    const std::int64_t own = each + rest;
    if (c_.reduces == Coordination::Reduces::Torus)
      collective(kAcrossFused, own * size, kHorovodAcross);
    else
      through_hosts(own, size);
    if (each > 0) collective(kGatherFused, whole, kHorovodHost);
    if (rest > 0) collective(kBroadcastRestFused, rest * size, kHorovodHost);
  }

  // ---- the thread itself

  std::uint32_t on_thread(const OpWord& word, std::int64_t bytes, Duration lasts) {
    thread_ = push(word, Lane::Worker, bucket_, bytes, {thread_});
    step_.ops[thread_].duration = lasts;
    return thread_;
  }
  void by_hosts(const OpWord& word, std::int64_t bytes, std::uint8_t group) {
    describe(on_thread(word, bytes, {}), group);
  }
  Duration copied(std::int64_t bytes) const {
    return c_.copy_latency + time_of(Bytes{bytes}, c_.copied);
  }
  Duration touched(std::int64_t bytes) const { return time_of(Bytes{bytes}, c_.touched); }

  void through_hosts(std::int64_t elements, std::int64_t size) {
    thread_ = push(kAwaitFusedPart, Lane::Worker, bucket_, 0, {thread_, last_});
    const std::int64_t bytes = elements * size;
    on_thread(kFusedToHost, bytes, copied(bytes));
    if (c_.reduces == Coordination::Reduces::Adasum) {
      exchange_halves(elements, size);
    } else {
      const std::int64_t hosts = program_.groups[kHorovodAcross - 1].size;
      by_hosts(kAcrossFused, bytes, kHorovodAcross);
      // Each sum reads two and writes one; of ranks beside a power of two, all once more.
      const bool folds = (hosts & (hosts - 1)) != 0;
      const std::int64_t summed = bytes - bytes / hosts + (folds ? bytes : 0);
      on_thread(kSumFusedOnHost, bytes, touched(3 * summed));
    }
    on_thread(kFusedToDevice, bytes, copied(bytes));
  }

  void exchange_halves(std::int64_t elements, std::int64_t size) {
    const std::int64_t tensors = step_.buckets[bucket_].tensors.size();
    std::vector<std::int64_t> held{elements};
    const std::size_t levels = (program_.groups.size() - 1) / 2;
    for (std::size_t k = 0; k < levels; ++k) {
      const LevelWords& w = level_words()[k];
      by_hosts(w.exchange, held.back() * size, pair_group(k));
      held.push_back(held.back() - held.back() / 2);
      const std::int64_t kept = held.back() * size;
      on_thread(w.dots, 2 * kept, touched(2 * kept));
      by_hosts(w.agree, 3 * 8 * tensors, block_group(k));  // three doubles a tensor
      step_.ops[thread_].dtype = DType::Float64;
      on_thread(w.add, 3 * kept, touched(3 * kept));
    }
    for (std::size_t k = levels; k-- > 0;)
      by_hosts(level_words()[k].collect, held[k] * size, pair_group(k));
  }

  void reduce_on_cpu(const Bucket& b) {
    const std::int64_t bytes = b.wire_bytes.count;
    const bool several = b.tensors.size() > 1;
    if (several) {
      thread_ = push(kFuse, Lane::Worker, bucket_, bytes, {thread_, ready_});
      costs(thread_, 2 * bytes, kernels_of_copies(b));
      ready_ = thread_;
    }
    thread_ = push(kReduceFused, Lane::Worker, bucket_, bytes, {thread_, ready_});
    describe(thread_, 0);
    thread_ = push(kUnfuse, Lane::Worker, bucket_, bytes, {thread_, thread_});
    costs(thread_, 2 * bytes + (several ? 2 * bytes : 0), kernels_of_copies(b));
  }

  const Program& program_;
  StepProgram& step_;
  const Coordination& c_;
  std::uint32_t bucket_ = 0;
  std::uint32_t thread_ = kNoOp;  // its last operation
  std::uint32_t ready_ = kNoOp;   // what makes the gradients, until somebody has waited for it
  std::uint32_t last_ = kNoOp;    // on the stream
  Lane copies_ = Lane::Comm;
  Lane comm_ = Lane::Comm;
};

std::uint32_t wait_for_requests_of(const StepProgram& step) {
  for (std::uint32_t i = 0; i < step.ops.size(); ++i)
    if (waits_for_requests(step.ops[i].kind)) return i;
  return kNoOp;
}

std::vector<OpWord> horovod_thread_words() {
  std::vector<OpWord> out(std::begin(kFusedOnce), std::end(kFusedOnce));
  for (const LevelWords& w : level_words())
    for (const OpWord& word : {w.exchange, w.dots, w.agree, w.add, w.collect}) out.push_back(word);
  return out;
}

}  // namespace

std::span<const OpWord> horovod_reduction_words() {
  static const std::vector<OpWord> words = horovod_thread_words();
  return words;
}

std::uint32_t add_reductions(const Program& program, StepProgram& step, Duration coordination,
                             const std::vector<std::vector<TensorIndex>>& fused) {
  HorovodThread thread(program, step);
  std::uint32_t first = thread.coordinate(coordination);
  for (const std::vector<TensorIndex>& together : fused) {
    Bucket b;
    b.tensors = together;
    for (TensorIndex t : together) {
      b.bytes += Bytes{program.tensor_bytes[t]};
      b.wire_bytes += Bytes{program.coordination->tensors[t].bytes};
    }
    b.dtype = program.coordination->tensors[together.front()].dtype;
    step.buckets.push_back(std::move(b));
    thread.reduce(step.next_bucket() - 1);
  }
  return first;
}

StepProgram in_order(const StepProgram& played, std::vector<std::uint32_t>& order) {
  std::uint32_t wait = wait_for_requests_of(played);
  std::uint32_t made = kNoOp;
  for (std::uint32_t i = 0; i < played.ops.size() && made == kNoOp; ++i)
    if (played.ops[i].kind == kCoordinate.kind) made = i;
  order.resize(played.ops.size());
  std::iota(order.begin(), order.end(), 0u);
  if (made == kNoOp) return played;
  std::rotate(order.begin() + wait, order.begin() + made, order.end());
  std::vector<std::uint32_t> now(order.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) now[order[i]] = i;
  StepProgram out = played;
  for (std::uint32_t i = 0; i < order.size(); ++i) {
    Op& op = out.ops[i] = played.ops[order[i]];
    for (std::uint32_t& d : op.dep)
      if (d != kNoOp) d = now[d];
    if (op.kind.of == Of::Operation) op.subject = now[op.subject];
  }
  for (auto& e : out.extra_deps) e = {now[e.op], now[e.dep]};
  for (std::uint32_t& op : out.made_by)
    if (op != kNoOp) op = now[op];
  return out;
}

}  // namespace ddpsim::systems
