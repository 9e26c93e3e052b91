// Every way of training the same model on the same cluster, in one order: what a person asks who
// has a model and GPUs and no plan yet.
#pragma once

#include <string>
#include <vector>

#include "sim/explain/diagnosis.h"

namespace ddpsim::predict {

struct RankedPlan {
  Plan plan;
  std::string settings;  // besides the system, as --set takes them: "sharding_strategy=no_shard"
  bool asked = false;    // the question's own plan
  std::optional<Prediction> prediction;  // none: refused
  std::optional<Diagnosis> diagnosis;    // what decides its step; none: it does not fit
  std::string refused;                   // why, as check() says it
};
// Each system of systems::all_systems() as it is by default, and in the settings that its record
// names (SystemRecord::ranked); the question's own plan besides, where it is another. What is of no
// system (accumulation, versions, NCCL's environment) is the question's. None is asked yet.
std::vector<RankedPlan> plans_to_rank(const Question& q);
// The plan with its answer, without an interval. Several threads may ask, each its own plan.
// REQUIRES: options.known; no options.graph.
RankedPlan ask_plan(RankedPlan plan, const Question& q, Options options);
// Those that fit first, by step; then those that do not, by memory; refused ones last.
void put_in_order(std::vector<RankedPlan>& plans);
// All three.
std::vector<RankedPlan> rank_plans(const Question& q, const Options& options = {});

}  // namespace ddpsim::predict
