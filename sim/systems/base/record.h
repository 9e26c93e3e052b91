// SystemRecord says everything that the rest of ddpsim knows of one data-parallel system. A new
// system is a folder with a record, a lowering, checks and tests, and a line in systems.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "sim/model/plan.h"
#include "sim/systems/base/decisions.h"
#include "sim/systems/base/lower.h"
#include "sim/systems/base/words.h"

namespace ddpsim::systems {

// A knob with a few named settings; `get` and `set` count them. `get` is -1 where it is left at its
// default.
struct Choice {
  std::vector<const char*> names;
  int (*get)(const Plan&) = nullptr;
  void (*set)(Plan&, int) = nullptr;
};
template <class T>
int choice_number(T v) {
  return static_cast<int>(v);
}
template <class T>
int choice_number(std::optional<T> v) {
  return v ? choice_number(*v) : -1;
}
template <class T>
void set_choice(T& v, int k) {
  v = static_cast<T>(k);
}
template <class T>
void set_choice(std::optional<T>& v, int k) {
  set_choice(v.emplace(), k);
}
template <class Part, class T>
const Part& part_with(T Part::*, const Parts& parts) {
  return parts.get<Part>();
}
template <class Part, class T>
Part& part_with(T Part::*, Parts& parts) {
  return parts.edit<Part>();
}
// A knob that is one member of its system's part: false and true, or an enumeration, by name in
// order; of an optional none is the default.
template <auto kMember>
Choice choice_of(std::vector<const char*> names) {
  return {std::move(names),
          [](const Plan& p) { return choice_number(part_with(kMember, p.parts).*kMember); },
          [](Plan& p, int k) { set_choice(part_with(kMember, p.parts).*kMember, k); }};
}
// reshard_after_forward of fully_shard: false, true, or the ranks of a smaller group that weights
// are kept in between forward and backward. none = true, but of the root by version.
struct Reshard {
  std::optional<std::int64_t> ranks;  // 0 = false, 1 = true
};
// A release of the software that the plan runs, as text; `set` returns why there is none; "" =
// it is set.
struct Released {
  std::string (*get)(const Plan&) = nullptr;
  std::string (*set)(Plan&, const std::string&) = nullptr;
};
// Where a plan keeps a knob.
using Field = std::variant<bool*, std::optional<bool>*, std::int64_t*, std::optional<double>*,
                           std::vector<double>*, std::vector<std::int64_t>*,
                           std::vector<std::string>*, Choice, Reshard*, Released>;

struct KnobRecord {
  const char* name;       // upstream
  const char* unit;       // "MiB", "bytes"; "" = none
  const char* initially;  // its default, with the versions that differ
  const char* help;       // one line
  bool searched;          // a search may turn it: what is computed stays the same
  Field (*field)(Plan&);
  std::vector<double> tried = {};  // of a number: what a search tries; empty: it finds them itself
};

// A setting besides the default that a comparison of plans tries.
struct Ranked {
  const char* knob;
  const char* setting;         // as --set takes it; "" = the ranks of a host
  bool several_hosts = false;  // only of a job on several
};

// Another name that plans may say, without regard to case, "-" and "_"; with a setting if it names
// one ("zero3").
struct Alias {
  const char* name;
  const char* knob = "";
  const char* setting = "";
};
// A word in names of no system, and the sentence that says which system is meant.
struct Meant {
  const char* word;
  const char* sentence;
};

// A plan with something changed, in words and as a person does it.
struct PlanChange {
  std::string text;
  std::string command;
  Plan plan;
};

// Gloo with CUDA tensors: whether the system is modelled over it.
enum class GlooOnGpus : std::uint8_t { NotModelled, NoReduceScatter, Modelled };

struct SystemRecord {
  // ---- names
  System system;
  std::vector<Alias> aliases = {};
  std::optional<Meant> meant = {};
  const char* title;            // in sentences: "PyTorch DDP"
  const char* brief;            // "DDP"
  bool versions = false;        // PyTorch's own: its title says which PyTorch
  const char* title_knob = "";  // a knob that its title says, too: "DeepSpeed ZeRO-3"
  const char* units;            // what it communicates, in its own word: "buckets"
  const char* does;             // one line: "gradients in buckets, ..."
  const char* evidence;         // what its schedule was held against, for `ddpsim list plans`
  const char* schedule = "";    // the same as a sentence beside an answer; "" = it was executed
  const char* copies = "averages of what was reduced";  // after a reduction, in explanations
  // ---- kinds
  bool bucketed = false;  // gradients in buckets of bucket_cap_mb, and no other reductions
  bool shards = false;    // gathers and scatters: needs to know what NCCL chooses for these
  bool optimizer_in_shards = false;  // and nothing else
  bool weights_in_shards = false;    // published steps are judged together with FSDP's
  bool wraps = false;                // modules are wrapped into units (knob "units")
  bool negotiates = false;      // what is reduced together is decided as it runs: it differs from
                                // step to step (Program::coordination)
  bool replayed = false;        // a step can be a CUDA graph
  bool compiled_whole = false;  // keeps gradients whole: one graph may hold the model
  bool compiled_in_buckets = false;  // graphs that end with DDP's buckets
  bool uses_no_sync = true;      // micro-steps but the last reduce nothing unless no_sync is false
  bool executed_by_mpi = false;  // `ddpsim run --backend mpi`
  GlooOnGpus gloo_on_gpus = GlooOnGpus::NotModelled;
  // All of its ranks are devices of one host in one process; then who trains on several.
  const char* on_several_hosts = nullptr;
  // ---- schedule
  std::span<const OpWord> words;
  std::span<const KnobRecord> knobs;
  Program (*lower)(const TimedWorkload&, const Plan&, Steps);
  // Why there is no such plan of this workload (null: there is).
  Problem (*validate)(const Plan&, const Workload&, DeviceKind) = nullptr;
  // The same of a job of so many ranks on hosts of so many devices.
  Problem (*check)(const Plan&, const Workload&, DeviceKind, int ranks, int per_host) = nullptr;
  // Reductions of a step, how many; null: a step decides.
  std::size_t (*count)(const Workload&, const Plan&) = nullptr;
  // Its collectives (null: all-reduce and broadcast), and its Program::groups (null: none).
  std::vector<Operation> (*operations)(const Plan&) = nullptr;
  std::vector<RankGroups> (*groups)(const Plan&, int ranks, int per_host) = nullptr;
  // Where the plan names no backend; null: nccl on GPUs, gloo on CPUs.
  std::optional<Backend> (*backend)(const Plan&, DeviceKind) = nullptr;
  std::optional<Servers> (*servers)(const Plan&) = nullptr;    // that are no ranks
  bool (*offloads)(const Plan&) = nullptr;                     // keeps something in hosts' memory
  std::optional<DType> (*gathered_in)(const Plan&) = nullptr;  // weights; none: as they are
  std::int64_t (*without_inputs)(const Plan&) = nullptr;       // ranks, the last ones
  // Reductions go through hosts' memory.
  bool (*stages_on_hosts)(const Plan&, int ranks, int per_host) = nullptr;
  int (*updates)(const Plan&) = nullptr;  // of a step that is a round
  // Computation that one rank alone would have besides.
  Duration (*work_of_others)(const Workload&, const StepTimes&, int ranks) = nullptr;
  // ---- settings and words
  std::vector<Ranked> ranked = {};
  std::vector<Decision> (*decisions)(const Plan&, const DecidedFor&) = nullptr;
  // A setting of a knob in one word with another's: "hybrid_shard:8".
  std::optional<Setting> (*setting_with)(std::string_view knob, const std::string& text) = nullptr;
  // Settings that might gain time (null: each of its choices is tried), and those that cost or gain
  // much, to show what matters.
  std::vector<PlanChange> (*levers)(const Plan&, const Workload&) = nullptr;
  std::vector<PlanChange> (*extremes)(const Plan&) = nullptr;
  // Settings that take less memory; and this system in place of another's plan, where that does
  // not fit.
  std::vector<PlanChange> (*smaller)(const Plan&, const Workload&) = nullptr;
  std::optional<PlanChange> (*instead_of)(const Plan& other) = nullptr;
  // The plan in a heading (null: title, reductions and settings), and what a script says to get it.
  std::string (*heading)(const Plan&, DeviceKind) = nullptr;
  std::vector<std::string> (*script)(const Plan&, const Workload&, DeviceKind, int ranks,
                                     int per_host) = nullptr;
  // Beside an answer: of settings that no release takes; of precision that may not be meant; of a
  // setting whose schedule was not executed.
  std::vector<std::string> (*warnings)(const Plan&) = nullptr;
  std::string (*advice)(const Workload&, const Plan&) = nullptr;
  std::string (*memory_note)(const Workload&, const Plan&) = nullptr;
  const char* (*schedule_of)(const Plan&) = nullptr;
  // Among executed Runs on a quiet network: the class of its errors; "": its steps do not repeat.
  const char* (*executed_class)(const Plan&, int ranks) = nullptr;

  const char* name() const { return system.name(); }  // in plans: "pytorch_ddp"
};

const std::vector<SystemRecord>& all_systems();
// Systems of a program that links folders of its own: it defines this function. None here.
std::vector<SystemRecord> more_systems();
const SystemRecord& record_of(System s);
// SystemRecord::operations for systems that shard.
std::vector<Operation> sharding_operations(const Plan&);

}  // namespace ddpsim::systems

namespace ddpsim {

Backend backend_of(const Plan& plan, DeviceKind device);
// Whether micro-steps but the last reduce nothing.
bool uses_no_sync(const Plan& plan);
// Whether the plan keeps something in the memory of its hosts.
bool offloads(const Plan& plan);
// Gloo with CUDA tensors: each collective is a copy to the host, Gloo's own, and a copy back.
bool stages_collectives(const Plan& plan, DeviceKind device);
// The job computes on GPUs, over NCCL or ddpsim's own executor, which executes what NCCL does
// there.
bool on_gpus(const Plan& plan, DeviceKind device);
// Reductions go through hosts' memory.
bool stages_on_hosts(const Plan& plan, int ranks, int per_host);
// Ranks are in steps of their own.
bool goes_apart(const Plan& plan);
// Ranks that have no inputs left, the last ones.
std::int64_t ranks_without_inputs(const Plan& plan);
// Servers that are no ranks.
std::optional<Servers> servers_of(const Plan& plan);
// Also checks the plan against the workload that it runs and the kind of device that runs it.
Problem validate(const Plan& plan, const Workload& workload, DeviceKind device);

}  // namespace ddpsim
