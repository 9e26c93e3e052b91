// Keys of a Run's file (ddpsim.run/1).
#pragma once

#include "sim/io/schema/run_spellings.h"
#include "sim/systems/base/words.h"

namespace ddpsim::io {

inline constexpr const char* kRunSchema = "ddpsim.run/1";

template <class V, RunKind kKind>
void fields(V& v, OfKind<Run, kKind>& of) {
  if constexpr (kKind == RunKind::Predicted) {
    v.required("simulator", of.run.simulator_version, "version of ddpsim that predicted");
    v.required("profile", of.run.profile, "name of the profile that priced computation");
    v.required("fidelity", of.run.fidelity, "how finely messages were played");
  } else {
    Origin& o = of.run.origin;
    v.required("version", o.version, "version of ddpsim");
    v.required("revision", o.revision, "git's, of the sources; empty: not known");
    v.required("date", o.date, "UTC, ISO 8601");
    v.required("argv", o.argv, "the command, word by word");
    v.required("cpu", o.cpu, "its model");
    v.required("cores", o.cores, "processors of the machine").range(0, 1 << 20);
    v.required("kernel", o.kernel, "version of the operating system's");
    v.required("backend", o.backend, "\"tcp\", \"torch\", \"nccl\", \"cuda\", ...");
    v.required("hosts", o.hosts,
               "\"namespaces\", \"loopback\" (not shaped), \"machines\", \"gpus\" or \"cpu\"");
    v.field("gpu", o.gpu, "name, SMs, memory and driver; left out where none was used");
    v.field("reason", o.reason, "why loopback; left out if none");
    v.required("compute", o.compute, "computation is \"timed\" (slept) or \"real\"");
    v.required("profile", o.profile, "name of the profile that priced timed operations");
    v.field("software", o.software, "a real framework: name, version, backend, ranks, threads");
  }
}

template <class V, RunKind kKind>
void fields(V& v, OfKind<StepRecord, kKind>& of) {
  StepRecord& s = of.value;
  v.required("kind", s.kind, "\"first\", \"rebuild\" (which forms the buckets) or \"steady\"");
  v.required("duration_ps", as_time(s.duration), "from the end of the step before to its own end")
      .positive("a step takes time")
      .must(s.duration.ps <= kMostOfRun, "a step takes at most eleven days");
  if constexpr (kKind == RunKind::Measured) {
    v.field("instrumented", s.instrumented,
            "spans were recorded in a way that may disturb: no step time");
    v.field("page_faults", s.page_faults,
            "pages that all ranks together were given (backend torch)")
        .at_least(0, "a count, 0 or more");
  }
}

template <class V>
void fields(V& v, LayerProfile& l) {
  // Kept together or not at all, so the reader looks for them itself.
  const auto host = [&](const char* key, Duration HostTimes::*part, const char* help) {
    v.elsewhere(
         key, [&] { return l.host ? std::optional(((*l.host).*part).ps) : std::nullopt; }, help)
        .unit("ps")
        .at_least(0);
  };
  v.required("forward_ps", lasting(l.forward), "slowest rank, median over passes");
  v.required("backward_ps", lasting(l.backward), "the same");
  v.required("optimizer_ps", lasting(l.optimizer), "the same");
  v.required("core_ps", lasting(l.core), "core time of a step");
  v.required("ranks", l.ranks, "ranks that ran at once").range(1, 1 << 20);
  v.required("arrival", AsTensorIndices{l.arrival},
             "indices into \"tensors\", as gradients arrive");
  v.required("ready_ps", lasting(l.ready), "one per arrival, from the start of backward");
  host("host_forward_ps", &HostTimes::forward, "GPU: when the host had issued forward");
  host("host_backward_ps", &HostTimes::backward, "the same of backward");
  host("host_optimizer_ps", &HostTimes::optimizer, "the same of the optimizer");
  v.elsewhere(
      "host_ready_ps",
      [&] { return l.host ? std::optional(lasting(l.host->ready)) : std::nullopt; },
      "the same of each arrival");
}

template <class V>
void fields(V& v, CollectiveChoice& c) {
  v.required("bytes", Counted<kANumberOfBytes, std::int64_t>{c.bytes}, "as nccl-tests counts")
      .unit("bytes");
  v.required("algorithm", AsWordIfAny<kNcclAlgorithmWords>{c.algorithm}, "NCCL's choice");
  v.required("protocol", AsWordIfAny<kNcclProtocolWords>{c.protocol}, "NCCL's choice");
  v.required("channels", c.channels, "0: not said").range(0, 1024);
}
template <class V>
void fields(V& v, CollectiveSetting& c) {
  v.required("op", c.op, "operation of the samples: \"all_reduce\", ...");
  v.required("ranks", c.ranks, "ranks of the samples").range(1, 1 << 20);
  v.required("gpus_per_process", c.gpus_per_process, "1: a process for each GPU; 0: not known")
      .range(0, 1 << 20);
  v.required("gpu", c.gpu, "as the source calls it; empty: not known");
  v.required("hosts", c.hosts, "number of different hosts; 0: not known").range(0, 1 << 20);
  v.required("nccl", c.nccl, "version; empty: not known");
  v.required("algorithm", AsWordIfAny<kNcclAlgorithmWords>{c.algorithm},
             "forced; empty: NCCL's choice");
  v.required("protocol", AsWordIfAny<kNcclProtocolWords>{c.protocol},
             "forced; empty: NCCL's choice");
  v.required("cluster", c.cluster, "name of a shipped cluster; empty: none was given");
  v.required("environment", c.environment, "variables of NCCL that the file or --set names");
  v.required("source", c.source, "where it is from, for people");
  v.required("chosen", c.chosen, "NCCL's choices, where its lines are in the log");
}

template <class V>
void fields(V& v, Sample& s) {
  v.required("op", s.op, "\"all_reduce\", \"gemm\", \"copy\", ...");
  v.required("parameters", s.parameters, "whole numbers by name: \"ranks\", \"bytes\", ...");
  v.required("durations_ps", lasting(s.durations), "raw readings")
      .must(!s.durations.empty(),
            "a sample has at least one duration; leave out what was not measured (see "
            "\"skipped\")");
}
template <class V>
void fields(V& v, Skipped& s) {
  v.required("what", s.what, "not recorded; the beginning of an operation's name: such operations");
  v.required("why", s.why, "the reason, for people");
}
template <class V>
void fields(V& v, Quality& q) {
  const char* spread = "a spread is not negative, and at most a million";
  const char* load = "a load is not negative, and at most a million";
  v.required("verdict", q.verdict, "noisy Runs are not judged");
  v.required("spread", q.spread, "median absolute deviation of the steady steps / their median")
      .range(0, 1e6, spread);
  v.required("retransmits", Counted<kANumberOfSegments, std::int64_t>{q.retransmits},
             "TCP segments, all ranks");
  v.required("load", q.load, "cores that were busy in the quarter of a second before the start")
      .range(0, 1e6, load);
  v.required("reasons", q.reasons, "why it is noisy, for people");
}

// The kind of an operation whose word no shipped system has.
template <class V>
void fields(V& v, OpKind& k) {
  v.required("does", k.does, "as in a Program");
  v.required("phase", k.phase, "where in the step it counts");
  v.elsewhere(
       "operation", [&] { return is_collective(k) ? std::optional(k.operation) : std::nullopt; },
       "a collective's name: \"all_gather\", ...")
      .needed(where("does", "communicate"));
}
// Kind, tensors, bytes and algorithm follow from what the operation is: the reader finds that out.
template <class V, RunKind kKind>
void fields(V& v, OfKind<Span, kKind>& of) {
  constexpr bool kMeasured = kKind == RunKind::Measured;
  Span& s = of.value;
  const bool carries =
      kMeasured ? is_collective(s.kind) : is_communication(s.kind) && !s.algorithm.empty();
  const auto of_collective = [&](auto value) {
    return carries ? std::optional(value) : std::nullopt;
  };
  v.required("step", s.step, "index in \"steps\"").range(0, INT32_MAX);
  if constexpr (kMeasured) {
    v.required("actor", s.actor, "rank").range(0, INT32_MAX);
  } else {
    v.required("class", s.actor, "first rank of ranks that behave alike").range(0, INT32_MAX);
    v.required("count", s.count, "how many ranks those are").range(1, INT32_MAX);
  }
  v.required("lane", AsLane{s.lane, of.run.streams},
             "host, compute, comm, worker, callback or a stream");
  v.required("op", s.op, "name, as in the program listing");
  v.elsewhere(
      "kind", [&] { return systems::kind_of(s.op) ? std::nullopt : std::optional(s.kind); },
      "only where no shipped system has the op's word");
  v.elsewhere(
      "tensors", [&] { return of_collective(AsTensorIndices{s.tensors}); },
      "collectives: indices into \"tensors\" of the Run");
  v.elsewhere(
       "bytes", [&] { return of_collective(s.bytes); }, "collectives: bytes on the wire")
      .unit("bytes")
      .at_least(0);
  v.elsewhere(
      "algorithm", [&] { return of_collective(s.algorithm); }, "collectives: \"ring/Simple\", ...");
  v.required("ready_ps", AsMoment{s.ready, of.run.spans_from},
             "it could have started; from its step's start");
  v.required("begin_ps", AsMoment{s.begin, of.run.spans_from},
             "a collective: after the last rank arrived");
  v.required("end_ps", AsMoment{s.end, of.run.spans_from}, "not before it begins");
  if constexpr (kMeasured) {
    v.other("dtype", FieldKind::Text, "collectives of a trace: as it names it, for people");
    v.other("group", FieldKind::Text, "collectives of a trace: its ranks, for people");
  }
}

inline constexpr std::array<const char*, 2> kSplits{"fit", "held_out"};
inline constexpr std::array<const char*, 3> kClockDomains{"CLOCK_MONOTONIC", "per_host", "virtual"};

static_assert(kMostStreams == 8, "a refusal says so");

template <class V>
void fields(V& v, Run& run) {
  const Where measured = where("kind", "measured");
  v.schema(kRunSchema);
  v.required("kind", run.kind, "it ran, or would run");
  const bool ran = run.kind == RunKind::Measured;
  v.required("evidence", run.evidence,
             "the real framework ran (system), ddpsim's executor (replay), ...", measured);
  v.section("case", true, "the question that it answers", [&](auto& s) {
    s.required("key", run.key, "readable");
    s.field("scenario", AsHash{run.scenario},
            "content hash of scenarios/<hash>.json beside the Run");
    s.field("split", AsWord<kSplits>{run.split}, "decided when it was executed");
    s.field("workload", AsHash{run.workload}, "content hash of the workload's file");
  });
  v.required("origin", ByKind<Run>{run, run}, "software, machine and command");
  v.section("clock", true, "how times of different ranks compare", [&](auto& s) {
    std::string domain = !ran                             ? "virtual"
                         : run.origin.hosts == "machines" ? "per_host"
                                                          : "CLOCK_MONOTONIC";
    Duration bound;
    s.required("domain", AsWord<kClockDomains>{domain},
               "one clock, one per host, or a predicted Run's")
        .must(ran != (domain == "virtual"),
              "is \"CLOCK_MONOTONIC\" or \"per_host\" if measured, \"virtual\" if predicted");
    s.required("offset_bound_ps", as_time(bound), "0: all ranks read one clock")
        .range(0, 0, "clocks that differ are not supported; record on one clock (0)");
  });
  v.required("steps", AllByKind<StepRecord>{run, run.steps}, "raw, in order");
  v.field("layers", run.layers, "the bare model's step on these ranks, without communication",
          measured);
  v.section(
      "buckets", false, "bytes in launch order, as the framework itself reports them",
      [&](auto& s) {
        s.required("first", Counted<kABucketsBytes, std::vector<std::int64_t>>{run.first_buckets},
                   "in the first step");
        s.required("steady", Counted<kABucketsBytes, std::vector<std::int64_t>>{run.steady_buckets},
                   "in steady steps");
      },
      !run.steady_buckets.empty(), measured);
  v.field("collectives", run.collectives, "circumstances of the samples, all of one operation",
          measured);
  v.field("samples", run.samples, "raw: points of a sweep, which have no step");
  v.field("streams", run.streams, "lanes of the spans besides the five")
      .must(run.streams.size() <= kMostStreams, "a run has at most 8 streams of its own")
      .must(ran, "belongs to kind \"measured\"");
  v.required("spans", AllByKind<Span>{run, run.spans},
             "operations: up to 5 steady steps, or the last step");
  v.field("tensors", run.tensor_names, "names, to which indices refer", measured);
  v.required("quality", run.quality, "whether the machine was quiet", measured);
  v.required("skipped", run.skipped, "not recorded, and why", measured);
}

}  // namespace ddpsim::io
