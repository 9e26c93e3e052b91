// Published training steps beside predictions: rows that others measured, judged by source, GPU,
// precision and model. Rows that a constant of the tree was taken from are never pooled with the
// others.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/units/by.h"
#include "sim/units/units.h"
#include "sim/validation/validation.h"

namespace ddpsim::validation {

// What a source printed.
enum class StepUnit : std::uint8_t { SamplesPerS, SPerIteration, MsForwardBackward };
inline constexpr std::array kStepUnits = {"samples_per_s", "s_per_iteration",
                                          "ms_forward_backward"};

struct PublishedStep {
  std::string source;  // its file's name
  std::string id;
  std::string workload;  // shipped, or a path from the folder of its file
  std::string cluster;   // shipped, or a path from the folder of its file
  std::string profile;   // shipped
  int batch = 1;
  std::string precision;
  std::vector<std::string> sets;  // "workload.memory_format=\"channels_last\"", "plan.system=..."
  int accumulation_steps = 1;
  int ranks = 1, hosts = 1;
  std::string gpu;  // as printed
  StepUnit unit = StepUnit::SamplesPerS;
  double measured = 0;
  std::string one_gpu;    // id of the row, of the same source, that it is relative to; "" = of none
  std::string fitted;     // the constant of the tree that was taken from it; "" = none
  std::string off;        // why its prediction is off, as far as found; "" = nothing is said
  std::string settles;    // which measurement would tell
  std::string set_aside;  // why its own step is not judged (what it adds is); "" = it is
};
// A step's duration, of all its micro-steps; MsForwardBackward: without the optimizer.
Duration measured_step(const PublishedStep& row);

// What was asked: a step of one GPU; one of several, from nothing measured; and of several whose
// computation is scaled to the row of one GPU, on one host and between hosts. Two constants are
// fitted to these rows: how well tensor cores are fed (predict::kFed), to those of one GPU, and how
// much ranks vary (Profile::rank_cv), to those whose computation is scaled. Each question once more
// with its constant chosen without the row's source, or without its GPU's generation.
enum class StepQuestion : std::uint8_t {
  OneGpu,
  SourceLeftOut,
  GenerationLeftOut,
  SeveralGpus,
  OneHost,
  OneHostSourceLeftOut,
  SeveralHosts,
  SeveralHostsSourceLeftOut
};
inline constexpr By<StepQuestion, const char*, 8> kStepQuestions{"one_gpu",
                                                                 "one_gpu_source_left_out",
                                                                 "one_gpu_generation_left_out",
                                                                 "several_gpus",
                                                                 "one_host",
                                                                 "one_host_source_left_out",
                                                                 "several_hosts",
                                                                 "several_hosts_source_left_out"};
bool is_relative(StepQuestion q);
// Each published row is asked one of these.
bool is_first(StepQuestion q);
struct StepResult {
  PublishedStep row;
  StepQuestion question = StepQuestion::OneGpu;
  std::string generation;  // "Volta"; "" = not known
  std::string why_not;     // not predicted: why; "" = it was
  std::string constant;    // set to another value than the profile's: "PATH=VALUE"; "" = none
  Duration measured;
  Duration predicted;
  Duration low, high;  // its 80 % interval
  double error = 0;    // predicted / measured - 1
};
// Rows as they are with each of several constants, in the same order: each with the constant that
// leaves the least mean |error| of the rows of other parts. `by`: "source" or "generation".
std::vector<StepResult> left_out(const std::vector<std::vector<StepResult>>& by_constant,
                                 const std::string& by);
bool in_interval(const StepResult& r);
// "resnet50" -> "resnet", "bert-large-squad" and "workloads/bert-base-64.json" -> "bert".
std::string family_of(const std::string& workload);
// Of an NVIDIA GPU, by its compute capability times ten; "" = not known.
std::string generation_of(int capability);

struct StepGroup {
  std::string by;    // "all", "source", "gpu", "generation", "precision", "family"
  std::string name;  // "" of "all"
  StepQuestion question = StepQuestion::OneGpu;
  std::size_t n = 0, sources = 0;
  double bias = 0;  // median error
  double median = 0, p95 = 0;
  std::size_t within = 0;          // their interval
  std::size_t set_aside = 0;       // whose own step is not judged: only what several GPUs add is
  std::optional<double> left_out;  // median |error| of all others; none: there are no others
};
// Of a question that is not asked with a constant left out: within which multiples of the predicted
// step 80 % of the steps of another source are. Logarithms of measured / predicted are taken as
// normal, with each source alike: their mean and variance are means over sources, and the quantile
// is Student's, of one degree of freedom less than there are sources.
struct StepInterval {
  StepQuestion question = StepQuestion::OneGpu;
  std::size_t rows = 0, sources = 0;
  double low = 1, high = 1;
  struct LeftOut {
    std::string source;
    std::size_t n = 0, within = 0;  // the interval of all other sources
  };
  std::vector<LeftOut> left_out;  // empty: fewer than three sources
  double coverage() const;        // of all rows, each with its source left out; 0 = no row
};
// Over sources, each by its own median |error|.
struct StepSources {
  double median = 0;
  std::string worst, worst_generation;
  double worst_median = 0, worst_generation_median = 0;
};
struct StepsReport {
  std::vector<StepResult> results;   // in the order given
  std::vector<StepGroup> groups;     // predicted rows; by question, then by and name
  std::vector<StepGroup> in_sample;  // rows that a constant was taken from, all of a question
  std::map<StepQuestion, StepSources> sources;
  std::vector<StepInterval> intervals;
  std::size_t rows = 0, predicted = 0;  // published rows; those with a prediction
  std::vector<LimitResult> limits;
};
StepsReport judge_steps(std::vector<StepResult> results);
// What a budget may limit: "rows", "predicted", and of a question "one_gpu.n", "one_gpu.median";
// of a part of one "one_gpu.source.ray.bias", "one_gpu.generation.Volta.median"; of what its
// interval is made of "one_gpu.interval.low", ".high" and ".left_out" (coverage).
std::map<std::string, double> values(const StepsReport& r);

}  // namespace ddpsim::validation
