#include "sim/io/write_prediction.h"

#include "sim/predict/memory.h"

namespace ddpsim::io {
namespace {

OrderedJson write_memory(const predict::Memory& m) {
  OrderedJson j;
  j["fits"] = m.capacity > 0 ? OrderedJson(m.fits()) : OrderedJson(nullptr);
  j["device_bytes"] = m.device;
  j["device_bytes_low"] = m.device_low;
  j["device_bytes_high"] = m.device_high;
  j["capacity_bytes"] = m.capacity > 0 ? OrderedJson(m.capacity) : OrderedJson(nullptr);
  j["allocated_bytes"] = m.allocated;
  j["phase"] = m.phase;
  j["during"] = m.during;
  for (Holds h : Held::names()) j["at_peak_bytes"][name_of(h)] = m.peak[h];
  j["communicators_bytes"] = m.communicators;
  j["context_bytes"] = m.context;
  return j;
}

// A workload that computes nothing has none.
OrderedJson efficiency(const predict::Prediction& p, double v) {
  return p.scaling_efficiency > 0 ? OrderedJson(v) : OrderedJson(nullptr);
}

void add_times(const predict::Prediction& p, OrderedJson& j) {
  const analysis::Summary& s = p.summary;
  j["step_ps"] = s.step.ps;
  if (p.counted > 1) j["mean_of_steps"] = p.counted;
  j["step_low_ps"] = p.step_low.ps;
  j["step_high_ps"] = p.step_high.ps;
  j["forward_ps"] = s.forward.ps;
  j["backward_ps"] = s.backward.ps;
  j["communication_ps"] = s.communication.ps;
  j["exposed_communication_ps"] = s.exposed_communication.ps;
  if (s.copies.ps > 0) {
    j["copies_ps"] = s.copies.ps;
    j["exposed_copies_ps"] = s.exposed_copies.ps;
  }
  j["optimizer_ps"] = s.optimizer.ps;
  j["ddp_ps"] = s.ddp.ps;
  j["compute_ps"] = s.compute.ps;
  j["idle_ps"] = s.idle.ps;
  if (s.input) j["input_ps"] = s.input->ps;
  j["slowed_ps"] = p.slowed.ps;
  if (p.clock < 1) j["clock"] = p.clock;
  if (const auto& v = p.stragglers)
    j["stragglers"] = {
        {"ranks", v->ranks}, {"cv", v->cv}, {"factor", v->factor}, {"time_ps", v->time.ps}};
  if (const auto& v = p.paces)
    j["workers"] = {{"steps_per_s", v->steps_per_s},
                    {"staleness_mean", v->staleness_mean},
                    {"staleness_most", v->staleness_most},
                    {"staleness_share", v->staleness_share}};
}

void add_rates_and_memory(const predict::Prediction& p, OrderedJson& j) {
  j["overlap"] = p.summary.overlap;
  // A program whose batch is not known has none.
  j["samples_per_s"] = p.samples_per_s > 0 ? OrderedJson(p.samples_per_s) : OrderedJson(nullptr);
  j["single_rank_step_ps"] = p.single_rank_step.ps;
  j["scaling_efficiency"] = efficiency(p, p.scaling_efficiency);
  j["peak_memory_bytes"] = p.memory ? OrderedJson(p.memory->device) : OrderedJson(nullptr);
  j["peak_memory_covers"] =
      !p.memory ? "nothing: a program does not say what is held"
      : p.memory->activations
          ? "all that is on the device"
          : "parameters, gradients, optimizer state, buffers and communication; not activations";
  if (p.memory) j["memory"] = write_memory(*p.memory);
  if (p.memory && p.memory->frozen > 0)
    j["frozen"] = {{"parameters", p.memory->frozen}, {"bytes", p.memory->frozen_bytes}};
}

// The grounds of the prediction, and what it was asked besides.
void add_grounds(const predict::Prediction& p, OrderedJson& j) {
  j["basis"] = p.measured ? "measured" : "datasheet";
  j["profile"] = p.run.profile;
  j["scaling_efficiency_low"] = efficiency(p, p.efficiency_low);
  j["scaling_efficiency_high"] = efficiency(p, p.efficiency_high);
  if (!p.busiest_link.name.empty())
    j["busiest_link"] = {{"name", p.busiest_link.name},
                         {"bandwidth_bits_per_s", p.busiest_link.bandwidth.bits_per_s},
                         {"busy", p.busiest_link.busy}};
  if (const auto& m = p.measured_step)
    j["measured_step"] = {{"measured_ps", m->measured.ps},
                          {"predicted_ps", m->predicted.ps},
                          {"factor", m->factor},
                          {"carried", m->carried}};
  if (p.common_start) j["step"] = "common-start";
  j["extrapolated"] = p.extrapolated;
  if (p.beside) {
    const predict::Beside& b = *p.beside;
    j["beside_other_jobs"] = {{"steps", b.steps},           {"shortest_ps", b.shortest.ps},
                              {"longest_ps", b.longest.ps}, {"last_ps", b.last.ps},
                              {"periods", b.periods},       {"complete", b.complete}};
  }
  if (!p.jitter_steps.empty()) {
    j["jitter_steps_ps"] = OrderedJson::array();
    for (Duration d : p.jitter_steps) j["jitter_steps_ps"].push_back(d.ps);
  }
}

void add_communication(const predict::Prediction& p, OrderedJson& j) {
  const analysis::Summary& s = p.summary;
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
    bucket["exposed_ps"] = b.exposed.ps;
    bucket["algorithm"] = b.algorithm;
    j["buckets"].push_back(std::move(bucket));
  }
  j["other_communication"] = OrderedJson::array();
  for (const analysis::OtherCommunication& o : s.others)
    if (o.exposed.ps > 0)
      j["other_communication"].push_back({{"name", o.name}, {"exposed_ps", o.exposed.ps}});
}

}  // namespace

OrderedJson write_summary(const predict::Prediction& p) {
  OrderedJson j;
  add_times(p, j);
  add_rates_and_memory(p, j);
  add_grounds(p, j);
  add_communication(p, j);
  return j;
}

OrderedJson write_prediction(const predict::Prediction& p) {
  OrderedJson out;
  out["summary"] = write_summary(p);
  out["run"] = write_run(p.run);
  return out;
}

}  // namespace ddpsim::io
