#include "sim/io/write_prediction.h"

#include <map>

namespace ddpsim::io {
namespace {

// Picoseconds as microseconds, six decimals at most, exactly.
OrderedJson us(std::int64_t ps) { return OrderedJson(static_cast<double>(ps) / 1e6); }

OrderedJson event(const char* phase, int pid, int tid, const std::string& name, std::int64_t ps) {
  return {{"ph", phase}, {"pid", pid}, {"tid", tid}, {"name", name}, {"ts", us(ps)}};
}

const char* category(OpKind k) { return is_communication(k) ? "communication" : k == OpKind::Launch ? "host" : "compute"; }

}  // namespace

OrderedJson write_summary(const predict::Prediction& p) {
  const analysis::Summary& s = p.summary;
  OrderedJson j;
  j["step_ps"] = s.step.ps;
  j["step_low_ps"] = p.step_low.ps;
  j["step_high_ps"] = p.step_high.ps;
  j["forward_ps"] = s.forward.ps;
  j["backward_ps"] = s.backward.ps;
  j["communication_ps"] = s.communication.ps;
  j["exposed_communication_ps"] = s.exposed_communication.ps;
  j["optimizer_ps"] = s.optimizer.ps;
  j["ddp_ps"] = s.ddp.ps;
  j["compute_ps"] = s.compute.ps;
  j["idle_ps"] = s.idle.ps;
  j["slowed_ps"] = p.slowed.ps;
  j["overlap"] = s.overlap;
  j["samples_per_s"] = p.samples_per_s;
  j["single_rank_step_ps"] = p.single_rank_step.ps;
  j["scaling_efficiency"] = p.scaling_efficiency;
  j["peak_memory_bytes"] = p.state_bytes.count;
  j["peak_memory_covers"] = "parameters, gradients, buckets, optimizer state, buffers; not activations";
  j["basis"] = p.measured ? "measured" : "datasheet";
  j["profile"] = p.run.profile;
  if (!p.busiest_link.name.empty())
    j["busiest_link"] = {{"name", p.busiest_link.name}, {"bandwidth_bits_per_s", p.busiest_link.bandwidth.bits_per_s}, {"busy", p.busiest_link.busy}};
  if (p.common_start) j["step"] = "common-start";
  j["extrapolated"] = p.extrapolated;
  if (p.beside) {
    const predict::Beside& b = *p.beside;
    j["beside_other_jobs"] = {{"steps", b.steps},           {"shortest_ps", b.shortest.ps}, {"longest_ps", b.longest.ps},
                              {"last_ps", b.last.ps},       {"periods", b.periods},         {"complete", b.complete}};
  }
  if (!p.jitter_steps.empty()) {
    j["jitter_steps_ps"] = OrderedJson::array();
    for (Duration d : p.jitter_steps) j["jitter_steps_ps"].push_back(d.ps);
  }
  j["buckets"] = OrderedJson::array();
  for (const analysis::BucketTimes& b : s.buckets) {
    OrderedJson bucket;
    bucket["name"] = b.name;
    bucket["tensors"] = OrderedJson::array();
    for (TensorIndex t : b.tensors) bucket["tensors"].push_back(p.run.tensor_names[t]);
    bucket["bytes"] = b.bytes;
    bucket["ready_ps"] = b.ready.ps;
    bucket["begin_ps"] = b.begin.ps;
    bucket["end_ps"] = b.end.ps;
    bucket["algorithm"] = b.algorithm;
    j["buckets"].push_back(std::move(bucket));
  }
  return j;
}

OrderedJson write_prediction(const predict::Prediction& p) {
  OrderedJson out;
  out["summary"] = write_summary(p);
  out["run"] = write_run(p.run);
  return out;
}

std::string write_trace(const Run& run) {
  OrderedJson events = OrderedJson::array();
  std::map<int, bool> seen;
  int flow = 0;
  for (const Span& s : run.spans) {
    if (!seen[s.actor]) {
      seen[s.actor] = true;
      std::string name = s.count > 1 ? "rank " + std::to_string(s.actor) + " (and " + std::to_string(s.count - 1) + " alike)" : "rank " + std::to_string(s.actor);
      events.push_back({{"ph", "M"}, {"pid", s.actor}, {"name", "process_name"}, {"args", {{"name", name}}}});
      for (Lane l : {Lane::Host, Lane::Compute, Lane::Comm, Lane::Worker, Lane::Callback}) {
        events.push_back({{"ph", "M"}, {"pid", s.actor}, {"tid", static_cast<int>(l)}, {"name", "thread_name"}, {"args", {{"name", name_of(l)}}}});
      }
    }
    int tid = static_cast<int>(s.lane);
    std::int64_t begin = (s.begin - run.spans_from).ps;
    std::int64_t end = (s.end - run.spans_from).ps;
    std::int64_t ready = (s.ready - run.spans_from).ps;
    // Two of Gloo's workers may be busy at once: complete events of one thread must nest, so collectives are drawn as asynchronous slices.
    if (s.lane == Lane::Worker || s.lane == Lane::Callback) {
      OrderedJson b = event("b", s.actor, tid, s.op, begin);
      OrderedJson e = event("e", s.actor, tid, s.op, end);
      b["cat"] = e["cat"] = category(s.kind);
      b["id"] = e["id"] = ++flow;
      b["args"] = {{"bytes", s.bytes}, {"algorithm", s.algorithm}, {"waited_us", us(begin - ready)}};
      events.push_back(std::move(b));
      events.push_back(std::move(e));
    } else {
      OrderedJson x = event("X", s.actor, tid, s.op, begin);
      x["dur"] = us(end - begin);
      x["cat"] = category(s.kind);
      x["args"] = {{"bytes", s.bytes}};
      if (!s.algorithm.empty()) x["args"]["algorithm"] = s.algorithm, x["args"]["waited_us"] = us(begin - ready);
      events.push_back(std::move(x));
    }
    if (s.kind == OpKind::AllReduce || s.kind == OpKind::GradAllReduce) {
      int id = ++flow;
      for (auto [phase, at] : {std::pair{"s", ready}, std::pair{"t", begin}, std::pair{"f", end}}) {
        OrderedJson f = event(phase, s.actor, tid, s.op, at);
        f["cat"] = "bucket";
        f["id"] = id;
        if (*phase == 'f') f["bp"] = "e";
        if (*phase == 's' && s.lane == Lane::Comm) f["tid"] = static_cast<int>(Lane::Compute);
        if (*phase == 's' && s.lane == Lane::Worker) f["tid"] = static_cast<int>(Lane::Host);
        events.push_back(std::move(f));
      }
    }
  }
  OrderedJson out;
  out["displayTimeUnit"] = "ms";
  out["otherData"] = {{"key", run.key}, {"profile", run.profile}, {"simulator", run.simulator_version}};
  out["traceEvents"] = std::move(events);
  return out.dump() + "\n";
}

}  // namespace ddpsim::io
