// MiCS shards the model among the ranks of a partition and keeps a copy in each: weights are
// gathered and gradients scattered inside a partition, layer by layer, and once a step the shards
// are summed among the copies.
//
// Source: Zhang et al., MiCS: Near-linear Scaling for Training Gigantic Model on Public Cloud, VLDB
// 2022, sections 3.2 (partitions) and 3.4 (two hops); without its hierarchical gathering.
#include "tests/systems/mics/record.h"

#include <algorithm>

#include "sim/systems/base/frame.h"
#include "tests/systems/mics/plan.h"

namespace ddpsim::systems {
namespace {

constexpr std::uint8_t kPartition = 1;
constexpr std::uint8_t kCopies = 2;

constexpr OpWord layer_word(const char* name, Phase phase) {
  return {name, {.phase = phase, .of = Of::Label, .in_micro_step = true}};
}
constexpr OpWord sent_word(const char* name, Phase phase, Operation o) {
  return {name,
          {.does = Does::Communicate,
           .phase = phase,
           .of = Of::Label,
           .operation = o,
           .in_micro_step = true}};
}
constexpr OpWord kLayerForward = layer_word("mics_fwd/", Phase::Forward);
constexpr OpWord kLayerBackward = layer_word("mics_bwd/", Phase::Backward);
constexpr OpWord kGather = sent_word("mics_gather/", Phase::Forward, Operation::AllGather);
constexpr OpWord kGatherAgain =
    sent_word("mics_gather/bwd.", Phase::Backward, Operation::AllGather);
constexpr OpWord kScatter = sent_word("mics_scatter/", Phase::Backward, Operation::ReduceScatter);
constexpr OpWord kSumCopies = sent_word("mics_copies/", Phase::Backward, Operation::AllReduce);
constexpr OpWord kWords[] = {kLayerForward, kLayerBackward, kGather,
                             kGatherAgain,  kScatter,       kSumCopies};

int partition_of(const Plan& plan, int ranks, int per_host) {
  const std::int64_t asked = mics_of(plan).partition_size;
  return std::min(ranks, asked > 0 ? static_cast<int>(asked) : per_host);
}

std::vector<RankGroups> groups_of(const Plan& plan, int ranks, int per_host) {
  const int size = partition_of(plan, ranks, per_host);
  return {{"partition", size, 1}, {"copies", ranks / size, size}};
}

class MicsLowering {
 public:
  MicsLowering(const TimedWorkload& timed, const Plan& plan)
      : f_(timed, plan), size_(partition_of(plan, timed.ranks, timed.per_host)) {
    const Workload& w = f_.w;
    f_.program.groups = groups_of(plan, timed.ranks, timed.per_host);
    f_.program.resident = resident(w, shard(w.elements()), shard(w.gradient_bytes().count));
    copies_ = timed.ranks / size_;
    std::vector<bool> seen(w.parameters());
    for (const Layer& layer : w.layers) {
      f_.program.labels.push_back(layer.name);
      bytes_.push_back(0);
      for (TensorIndex t : w.parameters_of(layer))
        if (!seen[t]) seen[t] = true, bytes_.back() += w.parameter(t).bytes().count;
    }
  }

  Program run(Steps steps) {
    return f_.run(steps, [&](StepKind kind) { return step(kind); });
  }

 private:
  std::int64_t shard(std::int64_t n) const { return (n + size_ - 1) / size_; }
  DType type() const { return f_.w.tensors.front().dtype; }

  StepProgram step(StepKind kind) {
    StepBuilder b(f_.program, kind, f_.w, f_.memory);
    const std::size_t layers = bytes_.size();
    std::uint32_t sent = kNoOp;
    f_.micro_steps(b, [&](int, bool last) {
      std::uint32_t here = gather(b, kGather, 0);
      for (std::size_t l = 0; l < layers; ++l) {
        const std::uint32_t ahead = l + 1 < layers ? gather(b, kGather, l + 1) : kNoOp;
        if (here != kNoOp) b.before_next_main(here);
        Stretch s;
        s.add(f_.times.layers[l].forward, f_.times.layers[l].host_forward);
        b.forward(kLayerForward, label(l), s, l, l + 1);
        here = ahead;
      }
      here = gather(b, kGatherAgain, layers - 1);
      for (std::size_t l = layers; l-- > 0;) {
        const std::uint32_t ahead = l > 0 ? gather(b, kGatherAgain, l - 1) : kNoOp;
        if (here != kNoOp) b.before_next_main(here);
        b.host_time(f_.times.layers[l].host_backward);
        const std::uint32_t made =
            b.main(kLayerBackward, label(l), 0, {.duration = f_.times.layers[l].backward});
        b.activations(f_.memory.backward(l, l + 1));
        if (bytes_[l] > 0) sent = reduce(b, l, made, last);
        here = ahead;
      }
    });
    if (sent != kNoOp) b.before_next_main(sent);
    b.optimize(f_.times, shard(f_.w.elements()));
    b.end_update();
    return std::move(b.step);
  }

  static std::uint32_t label(std::size_t layer) { return static_cast<std::uint32_t>(layer); }

  std::uint32_t gather(StepBuilder& b, const OpWord& word, std::size_t l) const {
    if (bytes_[l] == 0 || size_ == 1) return kNoOp;
    return send(b, word, l, bytes_[l], {}, kPartition);
  }
  std::uint32_t reduce(StepBuilder& b, std::size_t l, std::uint32_t made, bool last) const {
    std::uint32_t sent = made;
    if (size_ > 1) sent = send(b, kScatter, l, bytes_[l], {&sent, 1}, kPartition);
    if (last && copies_ > 1) sent = send(b, kSumCopies, l, shard(bytes_[l]), {&sent, 1}, kCopies);
    return sent;
  }
  std::uint32_t send(StepBuilder& b, const OpWord& word, std::size_t l, std::int64_t bytes,
                     std::span<const std::uint32_t> after, std::uint8_t group) const {
    const std::uint32_t op = b.collective_after(word, label(l), bytes, type(), after);
    b.step.ops[op].group = group;
    return op;
  }

  Frame f_;
  const int size_;
  int copies_ = 1;
  std::vector<std::int64_t> bytes_;  // of each layer's own parameters
};

std::span<const KnobRecord> mics_knobs() {
  static const KnobRecord knobs[] = {{"partition_size",
                                      "ranks",
                                      "those of a host",
                                      "ranks that hold one copy of the model",
                                      true,
                                      [](Plan& p) { return Field(&mics_of(p).partition_size); },
                                      {0, 2, 4, 8, 16}}};
  return knobs;
}

Problem validate_mics(const Plan& p, const Workload& w, DeviceKind device) {
  if (!on_gpus(p, device)) return {"/plan/system", "mics is modelled on GPUs, over NCCL"};
  if (w.layers.empty())
    return {"/plan/system", "mics gathers layer by layer: a described workload"};
  return {};
}

Problem check_partition(const Plan& p, const Workload&, DeviceKind, int ranks, int per_host) {
  const std::int64_t asked = mics_of(p).partition_size;
  if (asked < 0 || ranks % partition_of(p, ranks, per_host) != 0)
    return {"/plan/partition_size",
            "partitions of " + std::to_string(asked) + " do not part " + std::to_string(ranks)};
  return {};
}

}  // namespace

SystemRecord mics_record() {
  return {.system = System("mics"),
          .aliases = {{"mics_sharding"}},
          .title = "MiCS",
          .brief = "MiCS",
          .units = "layers",
          .does = "shards in partitions of ranks, a copy of the model in each",
          .evidence = "of tests alone",
          .schedule = "schedule from the paper, of tests alone",
          .shards = true,
          .weights_in_shards = true,
          .uses_no_sync = false,
          .gloo_on_gpus = GlooOnGpus::NoReduceScatter,
          .words = kWords,
          .knobs = mics_knobs(),
          .lower = [](const TimedWorkload& w, const Plan& p,
                      Steps steps) { return MicsLowering(w, p).run(steps); },
          .validate = validate_mics,
          .check = check_partition,
          .count = [](const Workload& w, const Plan&) { return w.layers.size(); },
          .operations = sharding_operations,
          .groups = groups_of,
          .ranked = {{"partition_size", "2"}}};
}

}  // namespace ddpsim::systems
