// predict: Workload + Plan + Cluster + Profile -> Run, and what it means. Pure: same inputs, same
// bytes, on every machine and thread count.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/analysis/summarize.h"
#include "sim/model/profile.h"
#include "sim/nccl/search.h"
#include "sim/play/beside.h"
#include "sim/play/simulate.h"
#include "sim/play/staleness.h"
#include "sim/predict/device_memory.h"
#include "sim/predict/stragglers.h"
#include "sim/systems/base/input.h"

namespace ddpsim::predict {

// REQUIRES for every predict() call: all parts valid, check() empty.
struct Question {
  const Workload& workload;
  const topology::Fabric& fabric;
  const Profile& profile;
  const Scenario& scenario;
};

enum class Mechanism : std::uint8_t;  // mechanisms.h
class KnownTimes;                     // known_times.h

// NCCL's searches of several threads. Stays where it is.
class SharedSearches {
 public:
  const nccl::Searches& view() const { return view_; }

 private:
  std::mutex lock_;
  nccl::NewestSearches newest_;
  const nccl::Searches view_{[this](const nccl::SearchQuestion& q) {
                               std::lock_guard guard(lock_);
                               return newest_.find(q);
                             },
                             [this](const nccl::SearchQuestion& q, const nccl::Graphs& found) {
                               std::lock_guard guard(lock_);
                               newest_.keep(q, found);
                             }};
};

// Communicators that questions about one fabric and profile have in common: NCCL's search for
// channels takes longer than a simulation.
class Communicators {
 public:
  // NCCL's searches are those of others, too, whose nodes are alike. They outlive this.
  void share(const nccl::Searches& searches) { searches_ = &searches; }
  // Stays where it is. May be called by several threads.
  const collective::Communicator& get(const Question& q, Backend backend);
  // With the communicators of the Program's groups.
  const collective::Communicator& get(const Question& q, const Program& program);
  // What a tuner plugin would tell NCCL, to all communicators that are here and those to come. Not
  // while others ask. Those that get() gave stay, and obey.
  void tune(std::vector<nccl::Tuned> rows);

 private:
  using Key = std::tuple<std::vector<DeviceId>, Backend, Algorithm, std::string,
                         std::map<std::string, std::string>, bool>;
  static Key key_of(const Question& q, Backend backend);
  collective::Communicator make(const Question& q, const Key& key,
                                std::vector<DeviceId> devices) const;
  const collective::Communicator& find(const Question& q, const Key& key);  // REQUIRES: lock_
  collective::Communicator join(const Question& q, const Key& key, const RankGroups& groups,
                                bool exchanges) const;
  std::mutex lock_;
  const nccl::Searches* searches_ = nullptr;
  std::vector<nccl::Tuned> tuned_;
  std::map<Key, collective::Communicator> known_;
  std::map<std::pair<Key, std::vector<std::pair<int, int>>>, collective::Communicator> grouped_;
};

struct Options {
  Fidelity fidelity = Fidelity::Collective;
  bool fold = true;
  bool warmup = true;   // the Run has the first steps, too, which differ from steady ones; false:
                        // only if the answer depends on them. It is the same
  bool names = true;    // of operations and tensors in the Run
  bool jitter = false;  // steady_period: the mean of the scenario's steps with jitter, where it has
                        // some; false: the step without it
  bool interval = true;  // also predict at both ends of the Profile's ranges; false: step_low =
                         // step_high = the step, unless the Profile is fitted
  bool common_start = false;  // all ranks begin each step together; false: each when its own last
                              // one has ended, so that they drift
  std::optional<Mechanism>
      without;  // a mechanism to take out of the Program: for tests of the tests
  const Program* program = nullptr;  // played in place of what the plan lowers to; the workload is
                                     // its stand_in() (given_program.h) or what it was lowered from
  Communicators* known =
      nullptr;  // of this fabric and profile, from questions before this one; null = none
  KnownTimes* times = nullptr;  // the same of a workload and a profile
  engine::TaskGraph* graph =
      nullptr;  // whose memory simulations use, one at a time; what it held is gone. null = none
};

struct LinkUse {
  std::string name;
  Bandwidth bandwidth;
  double busy = 0;  // share of the step in which it would carry its bytes at its full rate
};

struct Prediction {
  Run run;
  analysis::Summary summary;  // the step and its parts: a mean where several steps count (steady.h)
  std::size_t counted = 1;    // steps that it is the mean of; the Run's last ones
  Duration step_low;          // optimistic end of the 80 % interval
  Duration step_high;         // pessimistic end
  double samples_per_s = 0;   // 0 = a Program from a file that does not say its batch
  double scaling_efficiency = 1;  // one rank's step without communication / this step; 0 = a
                                  // workload that computes nothing has none
  double efficiency_low = 1;      // with the same ranges as the step's interval; without one
                                  // (Options::interval): as scaling_efficiency
  double efficiency_high = 1;
  Duration single_rank_step;
  Duration slowed;   // computation's extra time beside collectives that hold SMs
  double clock = 1;  // share of the clock of its peaks that a power limit leaves the device
  std::optional<Paces> paces;            // workers go at their own pace: the step is their mean
  std::optional<Stragglers> stragglers;  // ranks vary, and the slowest decides
  std::optional<Memory> memory;  // of a device; none = of a Program that was given, nothing is
                                 // known
  bool measured = false;         // the Profile is measured in every section
  bool fitted =
      false;  // the profile was held to executed steps: the interval is from their residuals
  bool common_start = false;  // the step is one that all ranks begin together
  LinkUse busiest_link;
  std::optional<MeasuredStep> measured_step;  // that computation is scaled to
  std::vector<std::string> extrapolated;
  std::optional<Beside> beside;        // other jobs: the step is a mean
  std::vector<Duration> jitter_steps;  // one per sample, if the scenario has jitter
};

// Of the batch of a micro-step. REQUIRES: the scenario has an input pipeline.
systems::BatchTimes batch_times(const Question& q, Level level = Level::Mid);

// What keeps the question from having an answer: missing transport, wrong device, unreachable host.
// Empty message = nothing. `known`: as Options::known; NCCL's search for channels, which variables
// of NCCL make it ask for, is then kept for the prediction.
Problem check(const Question& q, Communicators* known = nullptr);

Prediction predict(const Question& q, const Options& options = {});

// Only the steady period, at one level: what levers and tuning call. At Level::Mid predict()'s
// step. The slowest rank and its factor, if it computes more than 2 % longer than the fastest does.
std::optional<std::pair<int, double>> slowest_rank(const Scenario& s);

// Of Prediction's interval: whether it takes the steps at both ends of the ranges. False where a
// profile that was held to executed steps says all of it.
bool interval_from_levels(const Question& q);

Duration steady_period(const Question& q, Level level = Level::Mid, const Options& options = {});

// The last of the steps that the answer is of: its Program, and when each of its operations ran.
// Spans are those of the Program's operations in their order, class after class.
struct SteadyStep {
  Program program;
  Simulation simulation;
  Duration period;            // mean of the steps that count (steady.h)
  analysis::Summary summary;  // and its parts
  std::size_t counted = 1;    // steps that count
};
SteadyStep steady_step(const Question& q, Level level = Level::Mid, const Options& options = {});

// The same of one plan's NCCL: version and variables, and whether they leave something to choose.
// `devices`: of the plan's ranks. check() asks it.
Problem check_nccl(const Plan& plan, const Question& q, const std::vector<DeviceId>& devices,
                   Communicators* known = nullptr);

// Messages that one prediction at message fidelity would simulate, roughly. `program`: as
// Options::program.
double message_count(const Question& q, const Program* program = nullptr);

// Message for backend tcp with up to 64 ranks and 200,000 messages a step (few ranks leave a ring
// one after another, and start their next step so: only messages show it), else collective. What a
// prediction is made with if nobody asks for another.
Fidelity usual_fidelity(const Question& q, const Program* program = nullptr);

// What another setting would buy.
struct Lever {
  std::string change;   // "bucket_cap_mb=50"
  std::string command;  // flags that try it, at the fidelity of `step`
  Duration step;
  double samples =
      1;  // of a step, over the question's: with other ranks a shorter step is no gain by itself
};
// What the question's samples take with it: a lever's step where both have as many.
Duration per_samples(const Lever& l);
// Levers sorted by gain, those that help by at least `threshold` of the step first; the others left
// out. `step`: the question's own, predicted with these options.
std::vector<Lever> levers(const Question& q, Duration step, const Options& options = {},
                          double threshold = 0.005);
// Every lever that applies, sorted by per_samples(), also what a plan cannot set: other algorithms,
// a faster network, fewer ranks, no overlap. No bucket caps.
std::vector<Lever> all_levers(const Question& q, const Options& options = {});

}  // namespace ddpsim::predict
