// Keys of a scenario's file (ddpsim.scenario/1), and of a plan in it.
#pragma once

#include "sim/io/schema/cluster_fields.h"
#include "sim/model/plan.h"

namespace ddpsim::io {

inline constexpr const char* kScenarioSchema = "ddpsim.scenario/1";

// ---- plan: what every system has; the knobs of each are in its record (sim/systems)

template <>
struct Codec<System> {
  static void read(const Reader& r, System& into);  // read_plan.cc
  static OrderedJson write(System s) { return s.name(); }
  static void list(FieldRecord& f);
};
template <>
struct Codec<PytorchVersion> {
  static void read(const Reader& r, PytorchVersion& into);  // read_plan.cc
  static OrderedJson write(PytorchVersion v) { return name_of(v); }
  static void list(FieldRecord& f) { f.kind = FieldKind::Release; }
};
// A release of other software; `such`: for example.
struct AsRelease {
  std::string& value;
  const char* such;
};
template <>
struct Codec<AsRelease> {
  static void read(const Reader& r, AsRelease into);  // read_plan.cc
  static OrderedJson write(AsRelease v) { return v.value; }
  static void list(FieldRecord& f) { f.kind = FieldKind::Release; }
};
// Variables by name: text, or whole numbers.
struct AsEnvironment {
  std::map<std::string, std::string>& value;
};
template <>
struct Codec<AsEnvironment> {
  static void read(const Reader& r, AsEnvironment into);  // read_plan.cc
  static OrderedJson write(AsEnvironment v) { return v.value; }
  static void list(FieldRecord& f) {
    f.kind = FieldKind::Named;
    FieldRecord& one = f.fields.emplace_back();
    one.kind = FieldKind::OneOf;
    one.fields.resize(2);
    one.fields[1].kind = FieldKind::Whole;
  }
};
inline constexpr std::array<Algorithm, 2> kGlooAlgorithms{Algorithm::Ring, Algorithm::Bcube};

template <class V>
void fields(V& v, Plan& p) {
  v.field("system", p.system, "the data-parallel system; ddpsim list plans");
  v.field("backend", p.backend, "of collectives; nccl on GPUs, gloo on CPUs");
  v.field("accumulation_steps", p.accumulation_steps, "micro-steps of an optimizer's step");
  v.field("gloo_threads", p.gloo_threads, "c10d's threads of Gloo");
  v.field("tcp_streams", p.tcp_streams, "backend tcp: collectives in flight together");
  v.field("algorithm", AsSome<kTcpAlgorithms>{p.algorithm}, "backend tcp: of an all-reduce");
  v.field("gloo_algorithm", AsSome<kGlooAlgorithms>{p.gloo_algorithm}, "gloo: of an all-reduce");
  v.field("pytorch", p.pytorch, "release of PyTorch; it has its NCCL");
  v.field("nccl", AsRelease{p.nccl, "2.26"}, "release of NCCL; as PyTorch has it");
  v.field("open_mpi", AsRelease{p.open_mpi, "4.1"}, "release of Open MPI");
  v.field("environment", AsEnvironment{p.environment}, "variables of NCCL or of Open MPI");
  v.field("set_to_none", p.set_to_none, "of zero_grad; by release");
  v.field("unused_parameters", p.unused_parameters, "names of parameters without a gradient");
}
// All of them: the shared ones, `units`, and each system's knobs.
const std::vector<FieldRecord>& plan_fields();

// ---- scenario

// A plan: the shared keys, and the knobs of its system.
struct AsPlan {
  Plan& value;
};
template <>
struct Codec<AsPlan> {
  static void read(const Reader& r, AsPlan into);  // read_plan.cc
  static OrderedJson write(AsPlan) { return {}; }
  static void list(FieldRecord& f) {
    f.kind = FieldKind::Section;
    f.fields = plan_fields();
  }
};
// A file's name, or the document itself.
struct AsClusterOrName {
  ScenarioFile& value;
};
template <>
struct Codec<AsClusterOrName> {
  static void read(const Reader& r, AsClusterOrName into) {
    if (r.json().is_object())
      into.value.cluster_document = r.json();
    else
      into.value.cluster = r.text();
  }
  static OrderedJson write(AsClusterOrName) { return {}; }
  static void list(FieldRecord& f) {
    f.kind = FieldKind::OneOf;
    f.fields.resize(2);
    f.fields[0].help = "by name or file";
    Codec<Cluster>::list(f.fields[1]);
    f.fields[1].help = "as a cluster's file has it";
  }
};
// Factors by the rank's number.
struct AsSlowRanks {
  std::map<int, double>& value;
};
template <>
struct Codec<AsSlowRanks> {
  static void read(const Reader& r, AsSlowRanks into);  // read_scenario.cc
  static OrderedJson write(AsSlowRanks v) {
    OrderedJson j = OrderedJson::object();
    for (const auto& [rank, factor] : v.value) j[std::to_string(rank)] = factor;
    return j;
  }
  static void list(FieldRecord& f) {
    f.kind = FieldKind::Named;
    f.fields.emplace_back().kind = FieldKind::Number;
  }
};
template <>
struct Codec<std::uint64_t> {
  static void read(const Reader& r, std::uint64_t& into) {
    into = static_cast<std::uint64_t>(r.integer());
  }
  static OrderedJson write(std::uint64_t v) { return v; }
  static void list(FieldRecord& f) { f.kind = FieldKind::Whole; }
};
struct AsByteCount {
  std::int64_t& value;
};
template <>
struct Codec<AsByteCount> {
  static void read(const Reader& r, AsByteCount into) { into.value = r.bytes().count; }
  static OrderedJson write(AsByteCount v) { return to_string(Bytes{v.value}); }
  static void list(FieldRecord& f) { f.kind = FieldKind::Size; }
};

template <class V>
void fields(V& v, Jitter& j) {
  v.required("cv", j.cv, "coefficient of variation of a rank's compute time");
  v.field("seed", j.seed, "of the generator");
  v.field("samples", j.samples, "steps that are drawn");
}
inline constexpr std::array<const char*, 2> kInputCopies{"in_step", "ahead"};
template <class V>
void fields(V& v, InputPipeline& i) {
  v.field("samples_per_s", i.samples_per_s, "that a rank's loader makes; any number")
      .positive("samples of a rank a second, above 0 and at most 1e12");
  v.field("bytes_per_sample", AsByteCount{i.bytes_per_sample}, "that are copied to the device");
  v.field("copy", AsTruth<kInputCopies, false>{i.ahead}, "in the loop, or on a stream of its own");
}
template <class V>
void fields(V& v, OtherJob& o) {
  v.field("workload", o.workload_name, "by name or file; as the scenario's");
  v.field("plan", AsPlan{o.plan}, "as the scenario's");
  v.required("rank_order", o.rank_order, "the device of each of its ranks");
}
// Jobs whose plan is the scenario's where they have none.
struct AsOtherJobs {
  Scenario& value;
};
template <>
struct Codec<AsOtherJobs> {
  static void read(const Reader& r, AsOtherJobs into) {
    for (const Reader& item : r.items()) {
      OtherJob& job = into.value.other_jobs.emplace_back();
      job.plan = into.value.plan;
      read_fields(item, job);
    }
  }
  static OrderedJson write(AsOtherJobs) { return {}; }
  static void list(FieldRecord& f) { Codec<std::vector<OtherJob>>::list(f); }
};
inline constexpr std::array<const char*, 2> kComputes{"timed", "real"};
template <class V>
void fields(V& v, ScenarioFile& f) {
  Scenario& s = f.scenario;
  v.schema(kScenarioSchema);
  v.other("name", FieldKind::Any, "for people");
  v.other("description", FieldKind::Any, "for people");
  v.field("workload", f.workload, "by name or file");
  v.field("cluster", AsClusterOrName{f}, "by name or file, or the cluster itself");
  v.field("profile", f.profile, "by name or file; that of the cluster's devices");
  v.field("plan", AsPlan{s.plan}, "the data-parallel system and its knobs");
  v.field("ranks", s.ranks, "of the job; all devices of the cluster")
      .at_least(1, "a job has at least one rank")
      .range(1, kMaxDevices);
  v.field("rank_order", s.rank_order, "the device of each rank; 0, 1, 2, ...");
  v.field("slow_ranks", AsSlowRanks{s.slow_ranks}, "factors of compute time, by rank");
  v.field("jitter", s.jitter, "how ranks vary from step to step");
  v.field("stragglers", s.stragglers, "ranks vary as the profile says");
  v.field("other_jobs", AsOtherJobs{s}, "other jobs at the same time, on devices of their own");
  v.field("compute", AsTruth<kComputes, false>{s.real_compute},
          "on an emulated cluster: slept, or it keeps a core busy");
  v.field("measured_step", f.measured_step, "a step of one device by itself, as it was measured")
      .must(!f.measured_step || f.measured_step->ps > 0, "a step takes some time");
  v.field("input", s.input, "what makes batches, and how they reach the device");
}

}  // namespace ddpsim::io
