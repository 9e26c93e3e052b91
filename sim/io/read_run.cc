// What an operation is, is in its name (docs/formats.md, program listing); everything else is in
// its key.
#include <algorithm>

#include "sim/io/codecs.h"
#include "sim/systems/base/words.h"

namespace ddpsim::io {
namespace {

// Of an operation whose word no shipped system has.
OpKind read_kind(const Reader& r) {
  r.only({"does", "phase", "operation"});
  OpKind k;
  k.does = static_cast<Does>(r.at("does").choice(
      {"compute", "copy", "launch", "communicate", "wait", "host", "request", "load"}));
  k.phase = static_cast<Phase>(
      r.at("phase").choice({"between", "forward", "backward", "reduced", "update"}));
  if (!is_collective(k)) return k;
  std::optional<Operation> o = parse_operation(r.at("operation").text());
  if (!o) r.at("operation").fail("expected the name of a collective, for example all_gather");
  k.operation = *o;
  return k;
}

OpKind kind_of(const Reader& r) {
  std::string text = r.text();
  if (std::optional<OpKind> kind = systems::kind_of(text)) return *kind;
  r.fail("\"" + text.substr(0, 80) +
         "\" is no operation of a Program; names are those of `ddpsim show program`, for example "
         "allreduce/bucket.0");
}

// Eleven days: sums and differences of a few of them are in range.
constexpr std::int64_t kMost = 1'000'000'000'000'000'000;

TimePoint read_time(const Reader& r, const char* key) {
  std::int64_t ps = r.at(key).integer();
  if (ps < -kMost || ps > kMost) r.at(key).fail("is more than eleven days away");
  return {ps};
}

std::vector<std::string> read_texts(const Reader& r) {
  std::vector<std::string> out;
  for (const Reader& item : r.items()) out.push_back(item.text());
  return out;
}

std::string read_hash(const Reader& r) {
  std::string h = r.text();
  if (h.size() != 16 || h.find_first_not_of("0123456789abcdef") != std::string::npos)
    r.fail("a content hash is 16 hexadecimal digits, found \"" + h.substr(0, 40) + "\"");
  return h;
}

double read_share(const Reader& r, const char* what) {
  double x = r.number();
  constexpr double kMostShare = 1e6;
  if (!(x >= 0 && x <= kMostShare))
    r.fail(std::string(what) + " is not negative, and at most a million");
  return x;
}

std::int64_t read_count(const Reader& r, const char* what) {
  std::int64_t n = r.integer();
  if (n < 0) r.fail(std::string(what) + " is not negative");
  if (n > kMost) r.fail(std::string(what) + " is at most 10^18");
  return n;
}

Origin read_origin(const Reader& r) {
  r.only({"version", "revision", "date", "argv", "cpu", "cores", "gpu", "kernel", "backend",
          "hosts", "reason", "compute", "profile", "software"});
  Origin o;
  o.version = r.at("version").text();
  o.revision = r.at("revision").text();
  o.date = r.at("date").text();
  o.argv = read_texts(r.at("argv"));
  o.cpu = r.at("cpu").text();
  o.cores = r.at("cores").small(0, 1 << 20);
  if (r.has("gpu")) o.gpu = r.at("gpu").text();
  o.kernel = r.at("kernel").text();
  o.backend = r.at("backend").text();
  o.hosts = r.at("hosts").text();
  if (r.has("reason")) o.reason = r.at("reason").text();
  o.compute = r.at("compute").text();
  o.profile = r.at("profile").text();
  if (r.has("software")) o.software = r.at("software").text();
  return o;
}

Quality read_quality(const Reader& r) {
  r.only({"verdict", "spread", "retransmits", "load", "reasons"});
  Quality q;
  q.verdict = r.at("verdict").choice({"clean", "noisy"}) == 0 ? Verdict::Clean : Verdict::Noisy;
  q.spread = read_share(r.at("spread"), "a spread");
  q.retransmits = read_count(r.at("retransmits"), "a number of segments");
  q.load = read_share(r.at("load"), "a load");
  q.reasons = read_texts(r.at("reasons"));
  return q;
}

Sample read_sample(const Reader& r) {
  r.only({"op", "parameters", "durations_ps"});
  Sample s;
  s.op = r.at("op").text();
  for (const auto& [name, value] : r.at("parameters").members())
    s.parameters[name] = value.integer();
  for (const Reader& d : r.at("durations_ps").items())
    s.durations.push_back({read_count(d, "a duration")});
  if (s.durations.empty())
    r.at("durations_ps")
        .fail(
            "a sample has at least one duration; leave out what was not measured (see "
            "\"skipped\")");
  return s;
}

Lane read_lane(const Reader& r, const std::vector<std::string>& streams) {
  std::string name = r.text();
  for (std::size_t k = 0; k < streams.size(); ++k)
    if (streams[k] == name) return stream(k);
  return static_cast<Lane>(r.choice({"host", "compute", "comm", "worker", "callback"}));
}

std::vector<std::string> read_streams(const Reader& r) {
  std::vector<std::string> out = read_texts(r);
  if (out.size() > kMostStreams)
    r.fail("a run has at most " + std::to_string(kMostStreams) + " streams of its own");
  return out;
}

Span read_span(const Reader& r, const Run& run) {
  bool measured = run.kind == RunKind::Measured;
  if (measured)
    r.only({"step", "actor", "lane", "op", "tensors", "bytes", "algorithm", "ready_ps", "begin_ps",
            "end_ps", "kind", "dtype", "group"});
  else
    r.only({"step", "class", "count", "lane", "op", "tensors", "bytes", "algorithm", "ready_ps",
            "begin_ps", "end_ps", "kind"});
  Span s;
  s.step = r.at("step").small(0, INT32_MAX);
  if (static_cast<std::size_t>(s.step) >= run.steps.size())
    r.at("step").fail("the run has " + std::to_string(run.steps.size()) + " steps, counted from 0");
  s.actor = r.at(measured ? "actor" : "class").small(0, INT32_MAX);
  if (!measured) s.count = r.at("count").small(1, INT32_MAX);
  s.lane = read_lane(r.at("lane"), run.streams);
  s.op = r.at("op").text();
  s.kind = r.has("kind") ? read_kind(r.at("kind")) : kind_of(r.at("op"));
  if (is_collective(s.kind)) {
    for (const Reader& t : r.at("tensors").items()) {
      s.tensors.push_back(static_cast<TensorIndex>(t.small(0, INT32_MAX)));
      if (measured && s.tensors.back() >= run.tensor_names.size())
        t.fail("the run names " + std::to_string(run.tensor_names.size()) +
               " tensors, counted from 0");
    }
    s.bytes = read_count(r.at("bytes"), "a number of bytes");
    s.algorithm = r.at("algorithm").text();
    for (const char* key : {"dtype", "group"})  // of a trace, for people
      if (r.has(key)) r.at(key).text();
    if (r.has("kind") && !s.tensors.empty()) s.kind.touches = Touches::Tensor;
  }
  s.ready = read_time(r, "ready_ps");
  s.begin = read_time(r, "begin_ps");
  s.end = read_time(r, "end_ps");
  if (s.end < s.begin) r.at("end_ps").fail("ends before it begins");
  return s;
}

std::vector<std::int64_t> read_bucket_sizes(const Reader& r) {
  std::vector<std::int64_t> out;
  for (const Reader& item : r.items()) out.push_back(read_count(item, "a bucket's bytes"));
  return out;
}

LayerProfile read_layers(const Reader& r, const Run& run) {
  r.only({"forward_ps", "backward_ps", "optimizer_ps", "core_ps", "ranks", "arrival", "ready_ps",
          "host_forward_ps", "host_backward_ps", "host_optimizer_ps", "host_ready_ps"});
  LayerProfile l;
  l.forward = {read_count(r.at("forward_ps"), "a duration")};
  l.backward = {read_count(r.at("backward_ps"), "a duration")};
  l.optimizer = {read_count(r.at("optimizer_ps"), "a duration")};
  l.ranks = r.at("ranks").small(1, 1 << 20);
  l.core = {read_count(r.at("core_ps"), "a duration")};
  for (const Reader& t : r.at("arrival").items()) {
    l.arrival.push_back(static_cast<TensorIndex>(t.small(0, INT32_MAX)));
    if (l.arrival.back() >= run.tensor_names.size())
      t.fail("the run names " + std::to_string(run.tensor_names.size()) +
             " tensors, counted from 0");
  }
  for (const Reader& t : r.at("ready_ps").items()) l.ready.push_back({read_count(t, "a duration")});
  if (l.ready.size() != l.arrival.size())
    r.at("ready_ps").fail("one value per arrival is expected: " + std::to_string(l.arrival.size()));
  if (!r.has("host_forward_ps")) return l;
  HostTimes host;
  host.forward = {read_count(r.at("host_forward_ps"), "a duration")};
  host.backward = {read_count(r.at("host_backward_ps"), "a duration")};
  host.optimizer = {read_count(r.at("host_optimizer_ps"), "a duration")};
  for (const Reader& t : r.at("host_ready_ps").items())
    host.ready.push_back({read_count(t, "a duration")});
  if (host.ready.size() != l.arrival.size())
    r.at("host_ready_ps")
        .fail("one value per arrival is expected: " + std::to_string(l.arrival.size()));
  l.host = std::move(host);
  return l;
}

// "" or one of `words`.
template <std::size_t N>
std::string read_word(const Reader& r, const std::array<const char*, N>& words) {
  std::string t = r.text();
  if (t.empty() || std::find(words.begin(), words.end(), t) != words.end()) return t;
  std::vector<std::string> known(words.begin(), words.end());
  std::string list;
  for (const std::string& w : known) list += (list.empty() ? "" : ", ") + w;
  std::string hint = nearest(t, known);
  r.fail("\"" + t.substr(0, 40) + "\" is none of " + list +
         (hint.empty() ? "" : " (did you mean \"" + hint + "\"?)"));
}

CollectiveSetting read_collectives(const Reader& r) {
  r.only({"op", "ranks", "gpus_per_process", "gpu", "hosts", "nccl", "algorithm", "protocol",
          "cluster", "environment", "source", "chosen"});
  CollectiveSetting c;
  c.op = r.at("op").text();
  c.ranks = r.at("ranks").small(1, 1 << 20);
  c.gpus_per_process = r.at("gpus_per_process").small(0, 1 << 20);
  c.gpu = r.at("gpu").text();
  c.hosts = r.at("hosts").small(0, 1 << 20);
  c.nccl = r.at("nccl").text();
  c.algorithm = read_word(r.at("algorithm"), kNcclAlgorithmWords);
  c.protocol = read_word(r.at("protocol"), kNcclProtocolWords);
  c.cluster = r.at("cluster").text();
  for (const auto& [name, value] : r.at("environment").members())
    c.environment[name] = value.text();
  c.source = r.at("source").text();
  for (const Reader& item : r.at("chosen").items()) {
    item.only({"bytes", "algorithm", "protocol", "channels"});
    c.chosen.push_back({read_count(item.at("bytes"), "a number of bytes"),
                        read_word(item.at("algorithm"), kNcclAlgorithmWords),
                        read_word(item.at("protocol"), kNcclProtocolWords),
                        item.at("channels").small(0, 1024)});
  }
  return c;
}

void read_measured(const Reader& r, Run& run) {
  r.only({"schema", "kind", "evidence", "case", "origin", "clock", "steps", "layers", "buckets",
          "collectives", "samples", "streams", "spans", "tensors", "quality", "skipped"});
  run.evidence = static_cast<EvidenceClass>(
      r.at("evidence").choice({"system", "replay", "collective", "kernel", "published"}));
  run.origin = read_origin(r.at("origin"));
  if (r.has("tensors")) run.tensor_names = read_texts(r.at("tensors"));
  if (r.has("layers")) run.layers = read_layers(r.at("layers"), run);
  if (r.has("buckets")) {
    Reader b = r.at("buckets");
    b.only({"first", "steady"});
    run.first_buckets = read_bucket_sizes(b.at("first"));
    run.steady_buckets = read_bucket_sizes(b.at("steady"));
  }
  if (r.has("collectives")) run.collectives = read_collectives(r.at("collectives"));
  run.quality = read_quality(r.at("quality"));
  for (const Reader& item : r.at("skipped").items()) {
    item.only({"what", "why"});
    run.skipped.push_back({item.at("what").text(), item.at("why").text()});
  }
}

void read_predicted(const Reader& r, Run& run) {
  r.only({"schema", "kind", "case", "origin", "clock", "steps", "samples", "spans"});
  Reader origin = r.at("origin");
  origin.only({"simulator", "profile", "fidelity"});
  run.simulator_version = origin.at("simulator").text();
  run.profile = origin.at("profile").text();
  run.fidelity = origin.at("fidelity").text();
}

}  // namespace

Run read_run(const Json& j, const std::string& file) {
  Reader r(j, file);
  r.schema("ddpsim.run/1");
  Run run;
  run.kind =
      r.at("kind").choice({"measured", "predicted"}) == 0 ? RunKind::Measured : RunKind::Predicted;
  bool measured = run.kind == RunKind::Measured;
  if (measured)
    read_measured(r, run);
  else
    read_predicted(r, run);
  Reader c = r.at("case");
  c.only({"key", "scenario", "workload", "split"});
  run.key = c.at("key").text();
  if (c.has("scenario")) run.scenario = read_hash(c.at("scenario"));
  if (c.has("split")) {
    run.split = c.at("split").text();
    if (run.split != "fit" && run.split != "held_out")
      c.at("split").fail("expected \"fit\" or \"held_out\"");
  }
  if (c.has("workload")) run.workload = read_hash(c.at("workload"));
  Reader clock = r.at("clock");
  clock.only({"domain", "offset_bound_ps"});
  if (measured)
    clock.at("domain").choice({"CLOCK_MONOTONIC", "per_host"});
  else
    clock.at("domain").choice({"virtual"});
  if (clock.at("offset_bound_ps").integer() != 0)
    clock.at("offset_bound_ps")
        .fail("clocks that differ are not supported; record on one clock (0)");
  for (const Reader& item : r.at("steps").items()) {
    if (measured)
      item.only({"kind", "duration_ps", "instrumented", "page_faults"});
    else
      item.only({"kind", "duration_ps"});
    StepKind kind = static_cast<StepKind>(item.at("kind").choice({"first", "rebuild", "steady"}));
    std::int64_t ps = item.at("duration_ps").integer();
    if (ps <= 0) item.at("duration_ps").fail("a step takes time");
    if (ps > kMost) item.at("duration_ps").fail("a step takes at most eleven days");
    std::int64_t faults = item.has("page_faults") ? item.at("page_faults").integer() : 0;
    if (faults < 0) item.at("page_faults").fail("a count, 0 or more");
    run.steps.push_back(
        {kind, {ps}, item.has("instrumented") && item.at("instrumented").boolean(), faults});
  }
  if (r.has("samples"))
    for (const Reader& item : r.at("samples").items()) run.samples.push_back(read_sample(item));
  if (r.has("streams")) run.streams = read_streams(r.at("streams"));
  for (const Reader& item : r.at("spans").items()) run.spans.push_back(read_span(item, run));
  if (run.steps.empty() && run.samples.empty())
    r.fail("a run has steps or samples, this one has neither");
  return run;
}

}  // namespace ddpsim::io
