// What the rest of ddpsim knows of each data-parallel system: one record. A new system is a record,
// a lowering and its tests.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "sim/model/plan.h"
#include "sim/strategy/lower.h"
#include "sim/strategy/words.h"

namespace ddpsim::strategy {

// A knob with a few named settings; `get` and `set` count them. `get` is -1 where it is left at its
// default.
struct Choice {
  std::vector<const char*> names;
  int (*get)(const Plan&) = nullptr;
  void (*set)(Plan&, int) = nullptr;
};
// Where a plan keeps a knob.
using Field = std::variant<bool*, std::optional<bool>*, std::int64_t*, std::optional<double>*,
                           std::vector<double>*, std::vector<std::int64_t>*,
                           std::vector<std::string>*, Choice, Reshard*>;

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

struct SystemRecord {
  System system;
  const char* name;                       // in plans: "pytorch_ddp"
  std::vector<const char*> aliases = {};  // that plans may say, too, in lower case
  const char* title;                      // in sentences: "PyTorch DDP"
  const char* brief;                      // "DDP"
  bool versions = false;                  // PyTorch's own: its title says which PyTorch
  const char* units;                      // what it communicates, in its own word: "buckets"
  const char* does;                       // one line: "gradients in buckets, ..."
  const char* evidence;       // what its schedule was held against, for `ddpsim list plans`
  const char* schedule = "";  // the same as a sentence beside an answer; "" = it was executed
  bool shards = false;  // gathers and scatters: needs to know what NCCL chooses for these, too
  std::span<const OpWord> words;
  std::span<const KnobRecord> knobs;
  Program (*lower)(const TimedWorkload&, const Plan&, Steps);
  // Those of a step, how many; null: a step decides.
  std::size_t (*count)(const Workload&, const Plan&) = nullptr;
  std::vector<Ranked> ranked = {};
  // Of a job of so many ranks on hosts of so many devices: what its collectives are (null:
  // all-reduce and broadcast), its Program::groups (null: none), and why there is no such job
  // (null: there is).
  std::vector<Operation> (*operations)(const Plan&) = nullptr;
  std::vector<RankGroups> (*groups)(const Plan&, int ranks, int per_host) = nullptr;
  Problem (*check)(const Plan&, int ranks, int per_host) = nullptr;
  bool one_process = false;  // all of its devices are of one host
};

std::span<const SystemRecord> systems();
const SystemRecord& record_of(System s);
// With what of the plan decides most: "PyTorch 2.7 FSDP2", "DeepSpeed ZeRO-3".
std::string title_of(const Plan& plan);
// The knobs that are not at their default, as --set takes them: "sharding_strategy=shard_grad_op,
// no_sync=true".
std::string settings_text(const Plan& plan);
// A knob's setting as --set takes it; "" = left at its default.
std::string setting_of(const Plan& plan, const KnobRecord& knob);
// The plan with a knob of its system set. REQUIRES: as --set takes it.
Plan with_setting(const Plan& plan, std::string_view knob, const std::string& setting);
// None: no system has this knob.
const SystemRecord* owner_of(std::string_view knob);

}  // namespace ddpsim::strategy
