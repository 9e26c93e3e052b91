#include "sim/io/codecs.h"
#include "sim/systems/base/words.h"

namespace ddpsim::io {
namespace {

OrderedJson measured_origin(const Origin& o) {
  OrderedJson j{{"version", o.version}, {"revision", o.revision}, {"date", o.date},
                {"argv", o.argv},       {"cpu", o.cpu},           {"cores", o.cores},
                {"kernel", o.kernel},   {"backend", o.backend},   {"hosts", o.hosts}};
  if (!o.gpu.empty()) j["gpu"] = o.gpu;
  if (!o.reason.empty()) j["reason"] = o.reason;
  j["compute"] = o.compute;
  j["profile"] = o.profile;
  if (!o.software.empty()) j["software"] = o.software;
  return j;
}

OrderedJson write_span(const Run& run, const Span& s) {
  bool measured = run.kind == RunKind::Measured;
  OrderedJson span;
  span["step"] = s.step;
  span[measured ? "actor" : "class"] = s.actor;
  if (!measured) span["count"] = s.count;
  span["lane"] = name_of(s.lane, run.streams);
  span["op"] = s.op;
  if (!systems::kind_of(s.op)) {
    span["kind"] = {{"does", name_of(s.kind.does)}, {"phase", name_of(s.kind.phase)}};
    if (is_collective(s.kind)) span["kind"]["operation"] = name_of(s.kind.operation);
  }
  if (measured ? is_collective(s.kind) : is_communication(s.kind) && !s.algorithm.empty()) {
    span["tensors"] = s.tensors;
    span["bytes"] = s.bytes;
    span["algorithm"] = s.algorithm;
  }
  span["ready_ps"] = (s.ready - run.spans_from).ps;
  span["begin_ps"] = (s.begin - run.spans_from).ps;
  span["end_ps"] = (s.end - run.spans_from).ps;
  return span;
}

OrderedJson write_collectives(const CollectiveSetting& c) {
  OrderedJson j{{"op", c.op},
                {"ranks", c.ranks},
                {"gpus_per_process", c.gpus_per_process},
                {"gpu", c.gpu},
                {"hosts", c.hosts},
                {"nccl", c.nccl},
                {"algorithm", c.algorithm},
                {"protocol", c.protocol},
                {"cluster", c.cluster},
                {"environment", c.environment},
                {"source", c.source},
                {"chosen", OrderedJson::array()}};
  for (const CollectiveChoice& x : c.chosen)
    j["chosen"].push_back({{"bytes", x.bytes},
                           {"algorithm", x.algorithm},
                           {"protocol", x.protocol},
                           {"channels", x.channels}});
  return j;
}

// What only a measured Run has, after its spans.
void write_measured(const Run& run, OrderedJson& j) {
  const Quality& q = run.quality;
  if (!run.tensor_names.empty()) j["tensors"] = run.tensor_names;
  j["quality"] = {{"verdict", q.verdict == Verdict::Clean ? "clean" : "noisy"},
                  {"spread", q.spread},
                  {"retransmits", q.retransmits},
                  {"load", q.load},
                  {"reasons", q.reasons}};
  j["skipped"] = OrderedJson::array();
  for (const Skipped& s : run.skipped) j["skipped"].push_back({{"what", s.what}, {"why", s.why}});
}

}  // namespace

OrderedJson write_run(const Run& run) {
  bool measured = run.kind == RunKind::Measured;
  OrderedJson j;
  j["schema"] = "ddpsim.run/1";
  j["kind"] = measured ? "measured" : "predicted";
  if (measured) j["evidence"] = name_of(run.evidence);
  j["case"] = {{"key", run.key}};
  if (!run.scenario.empty()) j["case"]["scenario"] = run.scenario;
  if (!run.split.empty()) j["case"]["split"] = run.split;
  if (!run.workload.empty()) j["case"]["workload"] = run.workload;
  if (measured)
    j["origin"] = measured_origin(run.origin);
  else
    j["origin"] = {
        {"simulator", run.simulator_version}, {"profile", run.profile}, {"fidelity", run.fidelity}};
  j["clock"] = {{"domain", !measured                        ? "virtual"
                           : run.origin.hosts == "machines" ? "per_host"
                                                            : "CLOCK_MONOTONIC"},
                {"offset_bound_ps", 0}};
  j["steps"] = OrderedJson::array();
  for (const StepRecord& s : run.steps) {
    j["steps"].push_back({{"kind", name_of(s.kind)}, {"duration_ps", s.duration.ps}});
    if (s.instrumented) j["steps"].back()["instrumented"] = true;
    if (s.page_faults > 0) j["steps"].back()["page_faults"] = s.page_faults;
  }
  if (run.layers) {
    const LayerProfile& l = *run.layers;
    j["layers"] = {{"forward_ps", l.forward.ps},
                   {"backward_ps", l.backward.ps},
                   {"optimizer_ps", l.optimizer.ps},
                   {"core_ps", l.core.ps},
                   {"ranks", l.ranks},
                   {"arrival", l.arrival}};
    j["layers"]["ready_ps"] = OrderedJson::array();
    for (Duration d : l.ready) j["layers"]["ready_ps"].push_back(d.ps);
    if (l.host) {
      OrderedJson& layers = j["layers"];
      layers["host_forward_ps"] = l.host->forward.ps;
      layers["host_backward_ps"] = l.host->backward.ps;
      layers["host_optimizer_ps"] = l.host->optimizer.ps;
      layers["host_ready_ps"] = OrderedJson::array();
      for (Duration d : l.host->ready) layers["host_ready_ps"].push_back(d.ps);
    }
  }
  if (!run.steady_buckets.empty())
    j["buckets"] = {{"first", run.first_buckets}, {"steady", run.steady_buckets}};
  if (run.collectives) j["collectives"] = write_collectives(*run.collectives);
  if (!run.samples.empty()) {
    j["samples"] = OrderedJson::array();
    for (const Sample& s : run.samples) {
      OrderedJson sample{{"op", s.op},
                         {"parameters", OrderedJson::object()},
                         {"durations_ps", OrderedJson::array()}};
      for (const auto& [name, value] : s.parameters) sample["parameters"][name] = value;
      for (Duration d : s.durations) sample["durations_ps"].push_back(d.ps);
      j["samples"].push_back(std::move(sample));
    }
  }
  if (!run.streams.empty()) j["streams"] = run.streams;
  j["spans"] = OrderedJson::array();
  for (const Span& s : run.spans) j["spans"].push_back(write_span(run, s));
  if (measured) write_measured(run, j);
  return j;
}

}  // namespace ddpsim::io
