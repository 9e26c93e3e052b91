// Parameter servers. Variables, in whole or in parts (shards), are on S servers, and so are the
// optimizer's states; a worker's step:
//
//   wait/clock    the step begins; with a bound of staleness s when every worker has ended the step
//                 s + 1 before it
//   pull/shard.k  weights, from every server at once, of each in the order in which they were made;
//                 forward begins when all are there. pull=after_push: behind the push of the same
//                 shard instead, as systems do that answer a push (ps-lite, BytePS)
//   push/shard.k  a gradient, when it is there; to one server one after another
//   serve/shard.k the server's work: it updates weights and states. synchronous: it sums what all
//                 workers pushed, and updates once
//   wait/applied  the step ends when all of its gradients are applied (or pulled)
//
// One connection joins a worker and a server, each way: messages follow one another on it.
//
// Source: tensorflow/python/distribute/{parameter_server_strategy_v2,sharded_variable}.py,
// python/ops/partitioned_variables.py (2.x); Ho et al., More Effective Distributed ML via a Stale
// Synchronous Parallel Parameter Server, NIPS 2013. docs/model.md section 3.
#include "sim/systems/parameter_server/parameter_server.h"

#include <algorithm>

#include "sim/systems/base/frame.h"
#include "sim/systems/parameter_server/plan.h"

namespace ddpsim::systems {
namespace {

constexpr OpWord kAwaitClock{"wait/clock", {.does = Does::Wait}};
constexpr OpWord kPull =
    bucket_word("pull/shard.", Does::Communicate, Phase::Forward, Operation::Pull);
constexpr OpWord kAwaitPulled{"wait/pulled", {.does = Does::Wait, .phase = Phase::Forward}};
constexpr OpWord kPush =
    bucket_word("push/shard.", Does::Communicate, Phase::Backward, Operation::Push);
constexpr OpWord kServe{"serve/shard.",
                        {.does = Does::Wait, .phase = Phase::Update, .of = Of::Bucket}};
constexpr OpWord kAwaitApplied = update_word("wait/applied", Does::Wait);
constexpr OpWord kParameterServerWords[] = {kAwaitClock, kPull,  kAwaitPulled,
                                            kPush,       kServe, kAwaitApplied};

class ParameterServerLowering {
 public:
  ParameterServerLowering(const TimedWorkload& timed, const Plan& plan)
      : f_(timed, plan),
        servers_(parameter_server_of(plan)),
        ranks_(timed.ranks),
        host_memory_(timed.host_memory),
        shards_(server_shards(timed.workload, plan)) {
    // Weights are pulled into tensors of their own; states are the servers'.
    f_.program.resident = {};
    f_.program.resident[Holds::Parameters] =
        f_.w.gradient_bytes().count + f_.w.frozen_bytes().count;
    for (const Tensor& b : f_.w.buffers)
      f_.program.resident[Holds::ModelBuffers] += b.bytes().count;
    f_.program.groups = server_groups(plan, ranks_, timed.per_host);
    f_.program.servers = {static_cast<int>(servers_.servers), servers_.synchronous,
                          servers_.staleness, servers_.own_hosts};
    name_frozen(f_.program, f_.w);
    shards_of_.resize(f_.w.parameters());
    for (std::uint32_t k = 0; k < shards_.size(); ++k) shards_of_[shards_[k].tensor].push_back(k);
  }

  Program run() {
    return f_.run(Steps::SteadyOnly, [&](StepKind) { return step(); });
  }

 private:
  StepProgram step() {
    StepBuilder b(f_.program, StepKind::Steady, f_.w, f_.memory);
    b_ = &b;
    add_buckets();
    pulled_.assign(servers_.servers, kNoOp);
    pushed_ = pulled_;
    last_.clear();
    clock_ = b.wait(kAwaitClock, kNoSubject, kNoOp);
    if (!servers_.pull_after_push) pull_all();
    f_.micro_steps(b, [&](int m, bool last) { micro_step(m, last); });
    const std::uint32_t applied = b.wait(kAwaitApplied, kNoSubject, kNoOp);
    for (std::uint32_t op : last_) b.add_dep(applied, op);
    b.end_update();
    return std::move(b.step);
  }

  void add_buckets() {
    for (const ServerShard& s : shards_) {
      Bucket bucket;
      bucket.tensors = {s.tensor};
      bucket.dtype = f_.w.parameter(s.tensor).dtype;
      bucket.bytes.count = bucket.wire_bytes.count = s.bytes;
      if (s.to - s.from < f_.w.parameter(s.tensor).elements()) bucket.slices = {{s.from, s.to}};
      b_->step.buckets.push_back(std::move(bucket));
    }
  }

  // On no lane: what it waits for is all in its dependencies.
  std::uint32_t message(const OpWord& word, std::uint32_t k, std::uint32_t after,
                        std::vector<std::uint32_t>& before) {
    const ServerShard& s = shards_[k];
    const std::size_t server = s.server;
    const std::uint32_t op =
        b_->beside(word, k, s.bytes, f_.w.parameter(s.tensor).dtype, {}, after);
    b_->step.ops[op].group = static_cast<std::uint8_t>(server + 1);
    b_->add_dep(op, before[server]);
    return before[server] = op;
  }

  void pull_all() {
    std::vector<std::uint32_t> pulls;
    for (std::uint32_t k = 0; k < shards_.size(); ++k)
      pulls.push_back(message(kPull, k, clock_, pulled_));
    if (b_->gpu())
      for (std::uint32_t p : pulls) b_->before_next_main(p);
    else {
      const std::uint32_t all = b_->wait(kAwaitPulled, kNoSubject, kNoOp);
      for (std::uint32_t p : pulls) b_->add_dep(all, p);
    }
  }

  void micro_step(int m, bool last) {
    StepBuilder& b = *b_;
    b.forward(f_.times);
    for (const Segment& s : f_.timeline.segments) {
      b.host_time(s.host);
      if (s.device.ps > 0 || at_ == kNoOp) at_ = b.main(kBackward, s.tensor, 0, device(s));
      b.gradient(s.tensor, m == 0);
      if (m > 0) at_ = f_.accumulate(b, s.tensor);
      if (!last) continue;
      for (std::uint32_t k : shards_of_[s.tensor]) push(k);
    }
    f_.backward_tail(b);
    at_ = kNoOp;
  }
  static Work device(const Segment& s) { return {.duration = s.device}; }

  void push(std::uint32_t k) {
    const std::uint32_t pushed = message(kPush, k, at_, pushed_);
    const std::int64_t bytes = shards_[k].bytes;
    std::int64_t touched = updated_bytes(f_.w.optimizer, bytes);
    if (servers_.synchronous) touched += ranks_ * summed_bytes(bytes);
    const Duration takes = host_memory_ ? host_memory_->touch(touched) : Duration{};
    const std::uint32_t served =
        b_->beside(kServe, k, 0, f_.w.tensors[shards_[k].tensor].dtype, takes, pushed);
    last_.push_back(servers_.pull_after_push ? message(kPull, k, served, pulled_) : served);
  }

  Frame f_;
  const ParameterServerPlan& servers_;
  const int ranks_;
  const std::optional<HostMemory> host_memory_;
  const std::vector<ServerShard> shards_;
  std::vector<std::vector<std::uint32_t>> shards_of_;  // by tensor
  // of the step being built
  StepBuilder* b_ = nullptr;
  std::uint32_t clock_ = kNoOp;
  std::uint32_t at_ = kNoOp;           // what made the last gradient
  std::vector<std::uint32_t> pulled_;  // by server: the last message on its connection
  std::vector<std::uint32_t> pushed_;
  std::vector<std::uint32_t> last_;  // of each shard
};

std::int64_t parts_of(const Tensor& t, std::int64_t rows, const ParameterServerPlan& p) {
  const std::int64_t most = p.max_shards > 0 ? p.max_shards : p.servers;
  const std::int64_t bytes = t.bytes().count;
  switch (p.variable_partitioner) {
    case VariablePartitioner::None:
      return 1;
    case VariablePartitioner::FixedShards:
      return std::min(most, rows);
    case VariablePartitioner::MinSize:
      return std::max<std::int64_t>(
          1, std::min({rows, most, (bytes + p.shard_bytes - 1) / p.shard_bytes}));
    case VariablePartitioner::MaxSize: {
      const std::int64_t held = std::max<std::int64_t>(1, p.shard_bytes * rows / bytes);
      const std::int64_t parts = (rows + held - 1) / held;
      return p.max_shards > 0 ? std::min(p.max_shards, parts) : parts;
    }
  }
  return 1;
}

}  // namespace

std::vector<ServerShard> server_shards(const Workload& w, const Plan& plan) {
  const ParameterServerPlan& p = parameter_server_of(plan);
  std::vector<std::int64_t> held(p.servers, 0);
  std::vector<ServerShard> out;
  const std::size_t variables = p.pull_after_push ? w.tensors.size() : w.parameters();
  for (TensorIndex t = 0; t < variables; ++t) {
    const Tensor& tensor = w.parameter(t);
    const std::int64_t rows = tensor.shape.empty() ? 1 : tensor.shape.front();
    const std::int64_t row = tensor.elements() / rows;
    const std::int64_t parts = parts_of(tensor, rows, p);
    std::int64_t begin = 0;
    for (std::int64_t k = 0; k < parts; ++k) {
      const std::int64_t end = begin + rows / parts + (k < rows % parts ? 1 : 0);
      std::ptrdiff_t server = out.size() % held.size();
      if (p.placement == ServerPlacement::BySize)
        server = std::min_element(held.begin(), held.end()) - held.begin();
      const std::int64_t bytes = (end - begin) * row * element_size(tensor.dtype);
      held[server] += bytes;
      out.push_back({t, begin * row, end * row, bytes, static_cast<int>(server)});
      begin = end;
    }
  }
  return out;
}

std::int64_t summed_bytes(std::int64_t gradient) {
  return 3 * gradient;
}

std::int64_t updated_bytes(const Optimizer& o, std::int64_t gradient) {
  return (3 + 2 * optimizer_copies(o)) * gradient;
}

std::vector<RankGroups> server_groups(const Plan& plan, int ranks, int) {
  std::vector<RankGroups> out;
  for (int s = 0; s < parameter_server_of(plan).servers; ++s)
    out.push_back({"server" + std::to_string(s), ranks, 1, s});
  return out;
}

std::span<const OpWord> parameter_server_words() {
  return kParameterServerWords;
}

Program lower_parameter_server(const TimedWorkload& workload, const Plan& plan, Steps) {
  return ParameterServerLowering(workload, plan).run();
}

}  // namespace ddpsim::systems
