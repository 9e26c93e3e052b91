// Program + Communicator + Profile -> TaskGraph -> timeline of steps. Both fidelities, folded or
// not.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "sim/analysis/summarize.h"
#include "sim/collective/price.h"
#include "sim/engine/task_graph.h"
#include "sim/model/run.h"
#include "sim/play/rank_class.h"

namespace ddpsim::predict {

enum class Fidelity : std::uint8_t { Collective, Message };
const char* name_of(Fidelity f);

class Prices;

struct SimulationOptions {
  Fidelity fidelity = Fidelity::Collective;
  Level level = Level::Mid;
  bool fold_links = true;     // links that carry alike as one resource
  bool real_compute = false;  // on an emulated cluster: computation, sums and the network share the
                              // machine's cores. REQUIRES classes of one rank each
  bool spans = true;          // record the last step
  int parts = 1;              // with spans: sum up so many steps, the last ones
  bool names = true;          // ... with the names and tensors of its operations
  bool warmup = true;         // play first and rebuild
  bool common_start = false;  // no rank begins a step before all have ended the one before
  int steady_steps = 3;       // at least 2
  double plays_before = 1e9;  // backend tcp: how often its connections have carried a collective
                              // before; a job's have carried much
  engine::TaskGraph* graph = nullptr;  // as Options::graph
  Prices* prices = nullptr;  // of the job at this level, to be kept; null: its own. No other job's
};

struct SimulatedStep {
  StepKind kind = StepKind::Steady;
  TimePoint end;
  // Of ranks in steps of their own (Servers::apart): beginning and end of each class's.
  std::vector<std::pair<TimePoint, TimePoint>> of_class;
};

struct Simulation {
  std::vector<SimulatedStep> steps;
  std::vector<std::vector<SimulatedStep>> others;  // of each other job
  std::vector<Span> spans;                         // of the last step, all classes
  std::vector<analysis::Summary> parts;  // of SimulationOptions::parts steps; of ranks in steps of
                                         // their own each class's, class after class
  std::optional<StepProgram> decided;    // the last step with what was decided while it was played
  TimePoint spans_from;
  std::uint64_t completions = 0;
  bool complete = false;  // false: deadlock, a defect of the Program
};

// Another job on the same fabric, from time 0 on; its steps only load the links.
struct NeighbourJob {
  const Program* program = nullptr;
  const collective::Communicator* comm = nullptr;
  const std::vector<RankClass>* classes = nullptr;
  int steady_steps = 2;
  bool warmup = true;  // begins with its first steps, if this job does
};

// REQUIRES: program lowered with times for the profile's device; classes partition the
// communicator's ranks.
Simulation simulate(const Program& program, const collective::Communicator& comm,
                    const Profile& profile, const std::vector<RankClass>& classes,
                    const SimulationOptions& options, std::span<const NeighbourJob> others = {});

}  // namespace ddpsim::predict
