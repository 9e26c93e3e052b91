// Traces of several ranks of one job, beside one another: which step is which, whose clock is how
// late, and who came when to each collective.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/analysis/trace.h"
#include "sim/model/run.h"
#include "sim/model/workload.h"

namespace ddpsim::analysis {

struct RankTrace {
  int rank = 0;
  Trace trace;
  std::vector<TracedStep> steps;  // the same of every rank, in order
  Duration offset;                // to be added: this rank's times on the first rank's clock
};

// One collective of one step.
struct TracedCollective {
  struct Arrival {
    std::size_t of = 0;  // index into TracedRanks::ranks
    TimePoint at;        // on the first rank's clock
    TimePoint end;
  };
  int step = 0;       // index into RankTrace::steps
  int number = 0;     // of its name, within the step
  std::string name;   // "allreduce/bucket.0", "broadcast/buffers.1", "all_gather/traced.0"
  std::string place;  // "forward", "backward" or "update": where the first rank began it
  TracedMessage message;
  std::vector<Arrival> arrivals;  // ranks in order
  TimePoint first() const;
  TimePoint last() const;  // the last rank came: from here on bytes can move
  TimePoint end() const;   // the last rank was done
  // Index into arrivals of who came last.
  std::size_t latest() const;
};

struct TracedRanks {
  std::vector<RankTrace> ranks;               // by rank
  std::vector<TracedCollective> collectives;  // by step, then in the order of the first rank
  Duration offset_bound;  // how far the clocks may still be apart: half of what 80 % of the ends of
                          // collectives differ by
  std::vector<std::string> notes;
  std::size_t steps() const { return ranks.front().steps.size(); }
  // On the first rank's clock, over all ranks: when the last one began and ended a step.
  TimePoint begin(std::size_t step) const;
  TimePoint end(std::size_t step) const;
};

// `numbers`: of each trace, its rank. Throws InputError: two have one rank, or one has no step.
TracedRanks beside_one_another(std::vector<Trace> traces);

// Collectives of a rank's median step that no data-parallel plan issues: all but the all-reduces of
// gradients in backward, and DistributedDataParallel's broadcasts of buffers in forward. One of
// each operation. A workload of that step does not have them. `of`: index into TracedRanks::ranks.
std::vector<NotCounted> not_counted(const TracedRanks& job, std::size_t of);

// The steps as a measured Run, with spans of the last five: forward, the gradients as they arrive,
// the optimizer, and collectives, which begin when the last rank has come. `names`: of the
// gradients, in order of arrival; may be empty. Span::kind is left to who knows the words of
// systems (io/write_traced.h).
Run run_of(const TracedRanks& job, const std::vector<std::string>& names);

}  // namespace ddpsim::analysis
