// Parameters that require no gradient: a rank holds them in their own type, what shards gathers
// them, and nobody reduces or updates them. Schedules with them are held against oracles by
// tests/oracle/fsdp_lowered.py and fsdp2_lowered.py, and FSDP1's against what PyTorch 1.13 executes
// by record.py fsdp1; here are closed forms of every system.
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/cost/roofline.h"
#include "sim/predict/lowered.h"
#include "sim/predict/predict.h"
#include "sim/systems/fsdp/fsdp.h"
#include "sim/systems/fsdp/plan.h"
#include "sim/systems/parameter_server/plan.h"
#include "sim/systems/zero/plan.h"
#include "tests/support/support.h"
#include "tests/support/systems.h"

namespace ddpsim {
namespace {

// GPT-2 of which some parameters are frozen: what comes before the first that is not has no
// backward, and keeps nothing for one.
Workload frozen(const std::function<bool(const std::string&)>& is_frozen,
                DType type = DType::Float32) {
  Workload w = test::workload("gpt2-small");
  std::vector<Tensor> trained;
  std::vector<TensorIndex> index(w.tensors.size());
  std::vector<bool> freezes;
  for (std::size_t t = 0; t < w.tensors.size(); ++t) {
    freezes.push_back(is_frozen(w.tensors[t].name));
    std::vector<Tensor>& to = freezes[t] ? w.frozen : trained;
    index[t] = static_cast<TensorIndex>(to.size());
    to.push_back(w.tensors[t]);
    if (freezes[t]) to.back().dtype = type;
  }
  w.tensors = trained;
  w.arrival.clear();
  bool any = false;
  for (Layer& l : w.layers) {
    std::vector<TensorIndex> own;
    for (TensorIndex t : l.tensors) (freezes[t] ? l.frozen : own).push_back(index[t]);
    l.tensors = own;
    any = any || !own.empty();
    if (any) continue;
    l.backward = {0, 0, 0, 0};
    if (l.memory) l.memory->saves = l.memory->saves_fused = {};
  }
  for (std::size_t l = w.layers.size(); l-- > 0;)
    w.arrival.insert(w.arrival.end(), w.layers[l].tensors.begin(), w.layers[l].tensors.end());
  return w;
}

bool of_front(const std::string& name) {  // embeddings and four blocks of twelve
  for (const char* start : {"transformer.wte", "transformer.wpe", "transformer.h.0.",
                            "transformer.h.1.", "transformer.h.2.", "transformer.h.3."})
    if (name.starts_with(start)) return true;
  return false;
}
bool of_attention(const std::string& name) {
  return name.find(".attn.") != std::string::npos;
}

struct FrozenJob {
  Workload w;
  topology::Fabric fabric{test::cluster("dgx-h100")};
  Profile profile = test::profile("h100-sxm.datasheet");
  Scenario s;
  FrozenJob(Workload of, System system, int ranks = 8) : w(std::move(of)) {
    s.plan.system = system;
    s.ranks = ranks;
  }
  predict::Question question() const { return {w, fabric, profile, s}; }
  Program program() const {
    const Problem problem = predict::check(question());
    EXPECT_FALSE(problem) << name_of(s.plan.system) << ": " << problem.message;
    if (problem) return {};
    return predict::lowered(
        question(), predict::step_times(w, profile, Level::Mid, predict::gathered_in(s.plan)));
  }
  std::string refusal() const { return predict::check(question()).message; }
};

std::int64_t sent(const Program& p, Operation o) {
  std::int64_t sum = 0;
  for (const Op& op : p.steady.ops)
    if (is_collective(op.kind) && op.kind.operation == o) sum += op.bytes;
  return sum;
}

// The same, and nobody knows of the frozen parameters.
Workload forgotten(Workload w) {
  w.frozen.clear();
  for (Layer& l : w.layers) l.frozen.clear();
  return w;
}

constexpr System kWhole[] = {systems::kDdpSystem,      systems::kAveragingSystem,
                             systems::kHorovodSystem,  systems::kZeroRedundancySystem,
                             systems::kApexSystem,     systems::kLocalSgdSystem,
                             systems::kMegatronSystem, systems::kMirroredSystem};

Workload trainable_in(System system, Workload w) {
  if (system == systems::kMegatronSystem) w.precision = Precision::Fp32;
  return w;
}

// Systems whose ranks have whole weights: they are held, and that is all.
TEST(Frozen, AreHeldInTheirOwnTypeAndNothingElse) {
  for (System system : kWhole)
    for (DType type : {DType::Float32, DType::BFloat16}) {
      const Workload w = trainable_in(system, frozen(of_attention, type));
      const Program with = FrozenJob(w, system).program();
      const Program without = FrozenJob(forgotten(w), system).program();
      Held expected = without.resident;
      expected[Holds::Parameters] += w.frozen_bytes().count;
      EXPECT_EQ(with.resident, expected) << name_of(system);
      ASSERT_EQ(with.steady.ops.size(), without.steady.ops.size()) << name_of(system);
      for (std::size_t i = 0; i < with.steady.ops.size(); ++i)
        ASSERT_EQ(with.steady.ops[i].bytes, without.steady.ops[i].bytes) << name_of(system);
      EXPECT_EQ(with.steady.memory.size(), without.steady.memory.size()) << name_of(system);
    }
}

TEST(Frozen, Zero1And2HoldThemWhole) {
  for (int stage : {1, 2}) {
    FrozenJob job(frozen(of_attention, DType::BFloat16), systems::kZeroSystem);
    zero_of(job.s.plan).stage = stage;
    FrozenJob other = job;
    other.w = forgotten(job.w);
    Held expected = other.program().resident;
    expected[Holds::Parameters] += job.w.frozen_bytes().count;
    EXPECT_EQ(job.program().resident, expected) << stage;
    EXPECT_EQ(sent(job.program(), Operation::AllReduce),
              sent(other.program(), Operation::AllReduce));
    EXPECT_EQ(sent(job.program(), Operation::AllGather),
              sent(other.program(), Operation::AllGather));
  }
}

// TensorFlow's workers read all variables for each forward, and push gradients of the others.
TEST(Frozen, ParameterServersSendThemAndGetNothingBack) {
  for (bool after_push : {false, true}) {
    FrozenJob job(frozen(of_attention, DType::BFloat16), systems::kParameterServerSystem);
    parameter_server_of(job.s.plan).pull_after_push = after_push;
    parameter_server_of(job.s.plan).servers = 2;
    const Program p = job.program();
    std::int64_t pulled = 0;
    std::int64_t pushed = 0;
    for (const Op& op : p.steady.ops) {
      const std::string word = p.words[op.word];
      if (word.starts_with("pull/")) pulled += op.bytes;
      if (word.starts_with("push/")) pushed += op.bytes;
    }
    const std::int64_t trained = job.w.gradient_bytes().count;
    EXPECT_EQ(pulled, trained + (after_push ? 0 : job.w.frozen_bytes().count));
    EXPECT_EQ(pushed, trained);
    EXPECT_EQ(p.resident[Holds::Parameters], trained + job.w.frozen_bytes().count);
  }
}

// All of them in each forward, and zeros in place of their gradients.
TEST(Frozen, DataParallelBroadcastsThemAndReducesZeros) {
  const Workload w = frozen(of_attention);
  const Program p = FrozenJob(w, systems::kDataParallelSystem).program();
  const std::int64_t all = w.gradient_bytes().count + w.frozen_bytes().count;
  std::int64_t weights = 0;
  std::int64_t gradients = 0;
  for (const Op& op : p.steady.ops) {
    const std::string word = p.words[op.word];
    if (word.starts_with("broadcast/weights")) weights += op.bytes;
    if (word.starts_with("reduce/gradients")) gradients += op.bytes;
  }
  EXPECT_EQ(weights, all);
  EXPECT_EQ(gradients, all);
}

// Shards are padded, a unit or a parameter each.
void expect_shares(std::int64_t bytes, std::int64_t exact, const Workload& w, int ranks) {
  EXPECT_GE(bytes, exact);
  EXPECT_LE(bytes, exact + static_cast<std::int64_t>(w.parameters()) * 4 * ranks * 768);
}

std::int64_t bytes_of(const Workload& w, const std::vector<systems::Unit>& units, bool backward) {
  std::int64_t sum = 0;
  for (std::size_t u = 0; u < units.size(); ++u) {
    const bool front = units[u].tensors.empty() && u != 0;  // of of_front()
    if (backward && front) continue;
    for (TensorIndex t : units[u].parameters(w)) sum += w.parameter(t).bytes().count;
  }
  return sum;
}

// Gathered in forward, and in backward where that goes through the unit; the unit before the first
// of these is gathered ahead for nothing (FSDP2).
TEST(Frozen, Fsdp2GathersAllAndScattersTheRest) {
  for (DType type : {DType::Float32, DType::BFloat16}) {
    FrozenJob job(frozen(of_front, type), systems::kFsdp2System);
    if (type == DType::BFloat16) job.s.plan.pytorch = PytorchVersion{2, 12};
    const Program p = job.program();
    const std::vector<systems::Unit> units = systems::fsdp_units(job.w, job.s.plan);
    ASSERT_EQ(units.size(), 13u);
    ASSERT_TRUE(units[4].tensors.empty());
    std::int64_t ahead = 0;
    for (TensorIndex t : units[4].frozen) ahead += job.w.frozen[t].bytes().count;
    std::int64_t root = 0;
    for (TensorIndex t : units[0].parameters(job.w)) root += job.w.parameter(t).bytes().count;
    if (job.s.plan.pytorch.has(pytorch::Change::RootMayBeFreed))
      root = 0;  // its weights stay by default
    const std::int64_t kept = bytes_of(job.w, {units.front()}, false);
    expect_shares(sent(p, Operation::AllGather),
                  bytes_of(job.w, units, false) + bytes_of(job.w, units, true) - kept + ahead,
                  job.w, 8);
    expect_shares(sent(p, Operation::ReduceScatter), job.w.gradient_bytes().count, job.w, 8);
    const std::int64_t held = p.resident[Holds::Parameters];
    expect_shares(8 * held, job.w.gradient_bytes().count + job.w.frozen_bytes().count, job.w, 8);
    EXPECT_LT(p.resident[Holds::OptimizerState], job.w.gradient_bytes().count * 2 / 8 + 100'000);
  }
}

TEST(Frozen, Fsdp1RefusesMixedUnitsAndReducesAllOfThemWithOriginalParameters) {
  FrozenJob job(frozen(of_attention), systems::kFsdpSystem);
  EXPECT_TRUE(test::has(job.refusal(), "unit \"transformer.h.0\" holds frozen parameters"));
  EXPECT_TRUE(test::has(job.refusal(), "use_orig_params=true"));
  fsdp_of(job.s.plan).use_orig_params = true;
  const std::int64_t all = job.w.gradient_bytes().count + job.w.frozen_bytes().count;
  const Program p = job.program();
  const std::vector<systems::Unit> units = systems::fsdp_units(job.w, job.s.plan);
  const std::int64_t root = 4 * units.front().elements;
  expect_shares(sent(p, Operation::AllGather), 2 * all - root, job.w, 8);
  expect_shares(sent(p, Operation::ReduceScatter), all, job.w, 8);
  // Its backward makes gradients of frozen weights, too.
  FrozenJob apart(forgotten(job.w), systems::kFsdpSystem);
  auto backward = [](const Program& of) {
    Duration sum;
    for (const Op& op : of.steady.ops)
      if (op.kind.phase == Phase::Backward && op.cost == Cost::Measured) sum += op.duration;
    return sum;
  };
  EXPECT_GT(backward(p), backward(apart.program()));
  job.s.plan.pytorch = PytorchVersion{1, 13};
  EXPECT_TRUE(test::has(job.refusal(), "is modelled as of PyTorch 2.1"));
}

TEST(Frozen, UnitsOfSeveralTypesAreRefusedAsPytorchDoes) {
  FrozenJob one(frozen(of_attention, DType::BFloat16), systems::kFsdpSystem);
  fsdp_of(one.s.plan).use_orig_params = true;
  EXPECT_TRUE(test::has(one.refusal(), "uniform dtype"));
  FrozenJob whole(frozen(of_attention, DType::UInt8), systems::kFsdpSystem);
  EXPECT_TRUE(test::has(whole.refusal(), "integer dtype"));
  FrozenJob two(frozen(of_attention, DType::BFloat16), systems::kFsdp2System);
  EXPECT_TRUE(test::has(two.refusal(), "pytorch=2.8"));
  two.s.plan.pytorch = PytorchVersion{2, 8};
  EXPECT_EQ(two.refusal(), "");
}

// Without looking ahead: each module's parameters for forward, again for backward from the first
// trainable one on, and gradients once.
TEST(Frozen, Zero3GathersThemAndReducesTheRest) {
  for (DType type : {DType::Float32, DType::BFloat16}) {
    FrozenJob job(frozen(of_front, type), systems::kZeroSystem);
    ZeroPlan& zero = zero_of(job.s.plan);
    zero.stage = 3;
    zero.stage3_prefetch_bucket_size = zero.stage3_max_reuse_distance = 0;
    zero.stage3_param_persistence_threshold = 0;
    const Program p = job.program();
    const std::int64_t trained = job.w.gradient_bytes().count;
    const std::int64_t frozen_bytes = job.w.frozen_bytes().count;
    expect_shares(sent(p, Operation::AllGather), 2 * trained + frozen_bytes, job.w, 8);
    expect_shares(sent(p, Operation::ReduceScatter), trained, job.w, 8);
    expect_shares(8 * p.resident[Holds::Parameters], trained + frozen_bytes, job.w, 8);
    FrozenJob other = job;
    other.w = forgotten(job.w);
    const Program without = other.program();
    for (Holds h : {Holds::MasterParameters, Holds::Gradients, Holds::OptimizerState})
      EXPECT_EQ(p.resident[h], without.resident[h]) << name_of(h);
  }
}

// Everything that a step allocates is free again where the next one begins.
TEST(Frozen, MemoryComesAndGoes) {
  for (System system : {systems::kFsdpSystem, systems::kFsdp2System, systems::kZeroSystem,
                        systems::kDataParallelSystem})
    for (auto is_frozen : {of_front, of_attention})
      for (int micro_steps : {1, 3})
        for (bool no_sync : {false, true}) {
          FrozenJob job(frozen(is_frozen), system);
          Plan& plan = job.s.plan;
          plan.accumulation_steps = micro_steps;
          plan.no_sync = no_sync;
          fsdp_of(plan).use_orig_params = system == systems::kFsdpSystem;
          zero_of(plan).stage = 3;
          const Program p = job.program();
          Held held = p.resident;
          for (const MemoryChange& c : p.steady.memory) {
            held[c.holds] += c.bytes;
            EXPECT_GE(held[c.holds], 0) << name_of(system) << " " << name_of(c.holds) << " at "
                                        << name_of(p, p.steady, c.op);
          }
          for (Holds k : Held::names())
            EXPECT_EQ(held[k], p.resident[k])
                << name_of(system) << " " << name_of(k) << " " << micro_steps;
        }
}

// Nothing updates them: what an optimizer touches are the others.
TEST(Frozen, NothingUpdatesThem) {
  for (System system : {systems::kFsdpSystem, systems::kFsdp2System}) {
    FrozenJob job(frozen(of_front), system);
    fsdp_of(job.s.plan).use_orig_params = system == systems::kFsdpSystem;
    const Program p = job.program();
    EXPECT_EQ(p.tensor_names.size(), job.w.parameters());
    for (std::uint32_t i = 0; i < p.steady.ops.size(); ++i)
      if (p.steady.ops[i].kind.touches == Touches::Everything) {
        EXPECT_EQ(tensors_of(p, p.steady, i).size(), job.w.tensors.size());
      }
  }
}

TEST(Frozen, AFileSaysThem) {
  io::Json j = test::read_json("workloads/gpt2-small.json");
  j["frozen"] = {{{"name", "adapter.base"}, {"shape", {768, 768}}, {"dtype", "bfloat16"}}};
  j["layers"][0]["frozen"] = {0};
  const Workload w = io::read_workload(j, "f.json");
  ASSERT_EQ(w.frozen.size(), 1u);
  EXPECT_EQ(w.frozen_bytes().count, 2 * 768 * 768);
  EXPECT_EQ(w.parameters_of(w.layers[0]),
            (std::vector<TensorIndex>{w.layers[0].tensors[0],
                                      static_cast<TensorIndex>(w.tensors.size())}));
  auto refused = [&](auto change) {
    io::Json other = j;
    change(other);
    try {
      io::read_workload(other, "f.json");
    } catch (const InputError& e) {
      return e.where + ": " + e.what;
    }
    return std::string("accepted");
  };
  EXPECT_TRUE(test::has(refused([](io::Json& o) { o["layers"][0]["frozen"] = {1}; }),
                        "no frozen parameter has index 1; there are 1"));
  EXPECT_TRUE(test::has(refused([](io::Json& o) {
                          o["layers"][0]["frozen"] = {0, 0};
                        }),
                        "names a frozen parameter twice"));
  EXPECT_TRUE(
      test::has(refused([](io::Json& o) { o["frozen"][0]["name"] = "transformer.wte.weight"; }),
                "appears twice"));
  EXPECT_TRUE(
      test::has(refused([](io::Json& o) { o["frozen"][0]["shape"] = {0}; }), "is not positive"));
  EXPECT_TRUE(
      test::has(refused([](io::Json& o) { o["frozen"][0]["dtype"] = "int3"; }), "unknown dtype"));
  EXPECT_TRUE(test::has(refused([](io::Json& o) { o["frozen"] = 1; }), "frozen"));
}

}  // namespace
}  // namespace ddpsim
