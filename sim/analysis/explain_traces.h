// Why the steps of a traced job took as long as they did: who was late to which collective, what
// the network took after that, what of it nothing covered, and what the step would be without.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/analysis/traced_ranks.h"

namespace ddpsim::analysis {

// One collective, over steps: means, and medians of what a rank's lateness is.
struct CollectiveStory {
  std::string name;
  std::string place;
  std::int64_t bytes = -1;  // -1 = not said
  int ranks = 0;
  int steps = 0;             // in which it was seen
  Duration waited;           // first arrival to last: mean
  Duration transfer;         // last arrival to last completion: mean
  Duration exposed_late;     // of what nothing covered, until the last rank came: mean over ranks
  Duration exposed_network;  // and from then on
  int late_rank = 0;         // that came last most often
  int late_steps = 0;        // how often it did
  Duration late_by;          // in these steps, behind the median of the others: mean
};

struct RankStory {
  int rank = 0;
  Duration forward;   // means over steps
  Duration backward;  // gradients, with DDP's hooks
  Duration optimizer;
  Duration computing;  // all of them
  Duration waiting;    // in no phase of computation: for late ranks, the network, copies
  int last = 0;        // collectives to which it came last
};

// The step replayed from its arrivals: each collective begins when its last rank has come and those
// before it have ended, and a rank updates when its gradients and all collectives are there.
struct WhatIf {
  Duration replayed;           // as measured
  Duration without_straggler;  // each rank's compute is the median rank's
  Duration without_network;    // collectives take no time once the last rank has come
  Duration without_both;
  Duration without_host;  // the device never waits for the host to enqueue its next kernel
};

struct TraceExplanation {
  Duration step;  // mean
  Duration step_least;
  Duration step_most;
  int steps = 0;
  Duration skew;    // slowest rank's computation less the mean over ranks: mean over steps
  int slowest = 0;  // rank that computed longest most often
  int slowest_steps = 0;
  Duration exposed_late;     // mean over ranks and steps: waited for ranks that came late
  Duration exposed_network;  // and for bytes
  Duration exposed_other;    // and what else is in no phase: copies, DDP's own work
  Duration late_host;        // the device computes nothing until the host enqueues its next kernel:
                             // mean over ranks and steps; part of the phases, and of none of these
  std::vector<RankStory> ranks;
  std::vector<CollectiveStory> collectives;
  std::optional<WhatIf> what_if;  // none: no all-reduce of gradients follows backward, and no
                                  // device waits for its host
  std::vector<std::string> notes;
};

TraceExplanation explain_traces(const TracedRanks& job);

// What decides the steps: the longest of what nothing covers, if it is a twentieth of the step.
enum class TraceDecision : std::uint8_t { Computation, Host, LateRanks, Network };
TraceDecision decision_of(const TraceExplanation& e);

}  // namespace ddpsim::analysis
