// Run: what happened, or would happen. One schema for measured and predicted (ddpsim.run/1, shared
// by both).
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/model/program.h"
#include "sim/units/by.h"
#include "sim/units/units.h"

namespace ddpsim {

enum class RunKind : std::uint8_t { Measured, Predicted };
inline constexpr By<RunKind, const char*, 2> kRunKinds{"measured", "predicted"};
constexpr const auto& names_of(RunKind) {
  return kRunKinds;
}
// What a measurement can prove. System: the real framework ran it. Replay: our executor played our
// Program (says nothing about lower()).
enum class EvidenceClass : std::uint8_t { System, Replay, Collective, Kernel, Published };
inline constexpr By<EvidenceClass, const char*, 5> kEvidenceClasses{
    "system", "replay", "collective", "kernel", "published"};
constexpr const auto& names_of(EvidenceClass) {
  return kEvidenceClasses;
}

// One operation in one step on one actor (a class of ranks that behave alike, named by its first
// rank).
struct Span {
  int step = 0;
  int actor = 0;  // first rank of the class
  int count = 1;  // ranks in the class
  Lane lane = Lane::Host;
  OpKind kind;
  std::string op;
  std::vector<TensorIndex> tensors;
  std::int64_t bytes = 0;
  TimePoint ready;  // could have started
  TimePoint begin;  // of the transfer, for a collective: after the last rank arrived
  TimePoint end;
  std::string algorithm;  // collectives: "ring/Simple"
};

// Where a measured Run comes from. Texts, for people; nothing is computed from them but `compute`,
// and which Runs are of one occasion (calib/fit/occasions.h).
struct Origin {
  std::string version;   // of ddpsim
  std::string revision;  // git, "" = unknown
  std::string date;      // UTC, ISO 8601
  std::vector<std::string> argv;
  std::string cpu;
  int cores = 0;
  std::string kernel;
  std::string backend;  // "tcp", "torch", "nccl", "cuda"
  std::string hosts;    // "namespaces" (shaped), "loopback" (not shaped: its network times are not
                        // the cluster's), "machines" or "gpus" (of this machine)
  std::string reason;   // why loopback
  std::string
      compute;  // "timed" (computation slept, as long as `profile` and the workload say) or "real"
  std::string profile;   // that priced the timed operations
  std::string software;  // of a real framework: name, version, ranks and threads
  std::string gpu;       // name, SMs, memory, driver; "" = none was used
};

enum class Verdict : std::uint8_t { Clean, Noisy };
inline constexpr By<Verdict, const char*, 2> kVerdicts{"clean", "noisy"};
constexpr const auto& names_of(Verdict) {
  return kVerdicts;
}
struct Quality {
  Verdict verdict = Verdict::Clean;
  double spread = 0;             // median absolute deviation of the steady steps / their median
  std::int64_t retransmits = 0;  // TCP segments, all ranks
  double load = 0;               // cores that were busy in the quarter of a second before the run
  std::vector<std::string> reasons;  // of a noisy verdict
};

// What has no step: one point of a sweep of a kernel, a link or a collective, raw.
struct Sample {
  std::string op;  // "all_reduce", "stream", "ping", "ring_sum", ...
  std::map<std::string, std::int64_t> parameters;  // "ranks", "bytes", ...; units in the key
  std::vector<Duration> durations;
};

struct Skipped {
  std::string what;
  std::string why;
};

struct StepRecord {
  StepKind kind = StepKind::Steady;
  Duration duration;          // end of this step minus end of the step before
  bool instrumented = false;  // measured: spans were recorded in a way that may disturb; does not
                              // count as a step time
  std::int64_t page_faults = 0;  // measured, backend torch: pages that the ranks were given, all
                                 // together; 0 = none, or not counted
};

// Of a real framework: one step of the bare model on these ranks, all running, without
// communication. Medians over passes and ranks.
struct LayerProfile {
  Duration forward;
  Duration backward;
  Duration optimizer;
  Duration core;                     // core time of the whole step
  int ranks = 1;                     // that ran at once
  std::vector<TensorIndex> arrival;  // into Run::tensor_names
  std::vector<Duration> ready;       // one per arrival, from the start of backward
  std::optional<HostTimes> host;     // of a GPU: when the kernels were enqueued
};

// What NCCL itself said that it chose (NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=TUNING).
struct CollectiveChoice {
  std::int64_t bytes = 0;
  std::string algorithm;  // as in CollectiveSetting
  std::string protocol;
  int channels = 0;  // 0 = not said
  bool operator==(const CollectiveChoice&) const = default;
};

// Under which circumstances the collectives of `samples` ran, as far as an import knows them.
struct CollectiveSetting {
  std::string op;  // "all_reduce", ...: that of the samples
  int ranks = 0;
  int gpus_per_process = 0;  // 0 = unknown
  std::string gpu;           // as the source calls it; "" = unknown
  int hosts = 0;             // 0 = unknown
  std::string nccl;          // version, "" = unknown
  std::string algorithm;     // forced, lower case (kNcclAlgorithmWords); "" = NCCL's choice
  std::string protocol;      // forced: "ll", "ll128", "simple"; "" = NCCL's choice
  std::string cluster;       // name of a shipped cluster; "" = none was given
  std::map<std::string, std::string> environment;
  std::string source;  // where it was published or recorded
  std::vector<CollectiveChoice> chosen;
};
// Words of NCCL_ALGO and NCCL_PROTO, lower case, in NCCL's numbering.
inline constexpr std::array<const char*, 7> kNcclAlgorithmWords{
    "tree", "ring", "collnetdirect", "collnetchain", "nvls", "nvlstree", "pat"};
inline constexpr std::array<const char*, 3> kNcclProtocolWords{"ll", "ll128", "simple"};

// Times of `spans` are on the Run's clock if predicted (step begins at spans_from); of a measured
// Run, and of one read from a file, each span's times are relative to the start of its own step
// (end of the step before, on the rank that ended it last) and spans_from is 0.
struct Run {
  RunKind kind = RunKind::Predicted;
  EvidenceClass evidence = EvidenceClass::Replay;  // measured only
  std::string key;                                 // readable
  std::string scenario;  // content hash of the scenario (calib/runs/scenarios/<hash>.json), 16 hex
                         // digits; "" = none
  std::string split;  // measured: "fit" or "held_out", decided when it was executed; "" = undecided
  std::string workload;  // content hash of the workload's document
  Origin origin;         // measured only
  Quality quality;       // measured only
  std::string simulator_version;
  std::string profile;
  std::string fidelity;
  std::vector<StepRecord> steps;
  std::vector<Sample> samples;
  std::vector<Skipped> skipped;
  std::vector<Span> spans;  // predicted: of the last step; measured: of up to 5 steady steps,
                            // Span::step is the index in `steps`
  TimePoint spans_from;     // start of that step (end of the step before)
  std::vector<std::string> streams;  // as Program::streams, of the spans' lanes
  std::vector<std::string> tensor_names;
  std::vector<std::int64_t> tensor_bytes;   // predicted; empty if read from a file
  std::optional<LayerProfile> layers;       // measured, evidence System
  std::vector<std::int64_t> first_buckets;  // bytes, launch order, as the framework itself reports
                                            // them; empty = it does not
  std::vector<std::int64_t> steady_buckets;
  std::optional<CollectiveSetting> collectives;  // measured, imported
};

// False: what was recorded is nothing that ddpsim predicts (`skipped` says why).
bool is_predicted(const Run& run);

}  // namespace ddpsim
