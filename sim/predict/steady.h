// steady: decides which steps of a simulation an answer is of, their mean and its parts. Every
// answer's step is found here, whoever asks: predict, sweep, explain, tune, rank_plans.
//
// The steps that count:
// - alone, at collective fidelity: the last of three steady steps, if it takes as long as the one
//   before. The first steps of the job are not played: nobody's answer depends on whether they are
//   asked for.
// - otherwise, and message by message: after the job's first steps, the last of three that are
//   alike, else of eight; of steps that come round in twos or threes the last round.
// - reduced together as cycles decide (Horovod): after the first steps, the last 16 of 20.
// - beside other jobs: those of beside.h.
// - of workers at their own pace: all steps in a window of time (staleness.h).
// The step is their mean, and so are its parts; spans are of the last of them.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "sim/play/prices.h"
#include "sim/predict/predict.h"
#include "sim/systems/base/lower.h"

namespace ddpsim::predict {

// Operations that are simulated together; more steps than that are played in stretches, or not.
inline constexpr std::size_t kMostAtOnce = 4'000'000;

// What a simulation is made of. Times and prices at one level.
struct Prepared {
  StepTimes times;
  Program program;
  std::optional<StepProgram> undecided;  // the steady step as lowered, once `program` has what one
                                         // that was played decided
  const collective::Communicator* communicator = nullptr;
  std::unique_ptr<Prices> prices;
  const collective::Communicator& comm() const { return *communicator; }
};
// REQUIRES: options.known
Prepared prepare(const Question& q, Level level, systems::Steps steps, const Options& options);

// What simulations of one answer have in common, if the question does not bring it.
struct Kept {
  Communicators known;
  engine::TaskGraph graph;
};
Options keeping(const Options& options, Kept& own);

// Ranks that share cores are simulated one by one.
SimulationOptions simulation_options(const Question& q, Level level, const Options& options);
// REQUIRES: `s` is complete. A Program that cannot end is a defect of ours: throws logic_error.
Simulation ended(Simulation s);

// The answer to a question at one level.
struct Played {
  Prepared prepared;
  Simulation simulation;
  Duration step;                  // mean of the steps that count
  analysis::Summary summary;      // of the same steps; nothing without spans
  std::size_t counted = 1;        // how many, the last of the simulation's
  std::vector<StepRecord> steps;  // the job's first steps (Options::warmup), one before those that
                                  // count, and these: what a Run says; without spans none
  std::optional<Beside> beside;
  std::optional<Paces> paces;
};
// `spans`: the summary, and the last step's spans, too. REQUIRES: options.known and graph.
Played play(const Question& q, Level level, const Options& options, bool spans);

}  // namespace ddpsim::predict
