// A measured Run and what the model says of its scenario become a Pair, or the reason why not.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/predict/predict.h"
#include "sim/validation/validation.h"

namespace ddpsim::validation {

// What the model says of a scenario, for all Runs of it.
struct Case {
  std::string problem;  // why there is no prediction; "" = there is
  predict::Prediction prediction;
  Duration naive;  // the steps of sim/predict/baselines.h
  Duration queue;
  std::string scenario_hash;
  std::string workload_hash;
  Profile profile;
  bool one_gpu = false;  // several ranks on it, over loopback
  bool mean = false;     // of steps_differ(): a Run stands for the mean of its steps
  std::string sweep;     // as Pair::sweep
  std::optional<double> cap;
  std::vector<std::string> tags;
  std::string system_class = "system_other";  // of system_class(), where the real framework ran
  bool sharded = false;  // weights, gradients or the optimizer's state are shared out
  bool real = false;     // computation is real
};

// Where its Runs by the real framework count: "system" (DDP) or a class of its own in cells that
// repeat, else "system_other". Horovod's steps never repeat: a class of its own, whatever the cell.
std::string system_class(const Cluster& cluster, const Scenario& scenario);

// Of tag_names(), what the scenario has.
std::vector<std::string> tags_of(const Workload& workload, const Cluster& cluster,
                                 const Scenario& scenario);

// Its steps are not alike, however quiet the machine is: beside another job, or where what is
// reduced together is decided while a step runs.
bool steps_differ(const Scenario& scenario);

double relative(Duration model, Duration measured);  // model / measured - 1

// Whether the Run is one to compare; counts it in `v` where it is not.
bool is_comparable(Validation& v, const std::string& file, const Run& run);
// Why this Run is not of the scenario that would be predicted, "" = it is.
std::string staleness(const Run& run, const Case& c);
// Adds the pair, and an error where the two do not join. `tolerance`: of a step, for the verdict.
// REQUIRES: staleness(run, c) is empty.
Pair& add_pair(Validation& v, const std::string& file, const Run& run, const Case& c,
               double tolerance);

}  // namespace ddpsim::validation
