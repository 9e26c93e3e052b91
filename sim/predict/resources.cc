#include "sim/predict/resources.h"

#include <algorithm>
#include <optional>

#include "sim/predict/given_program.h"
#include "sim/units/by.h"

namespace ddpsim::predict {
namespace {

void widen(LinkSpec& l, double f) {
  l.bandwidth = scale(l.bandwidth, f);
  l.peak = scale(l.peak, f);
  l.staging = scale(l.staging, f);
}
void widen(std::optional<LinkSpec>& l, double f) {
  if (l) widen(*l, f);
}

void shorten(Duration& d, double f) {
  d = scale(d, 1 / f);
}
void shorten(std::vector<Duration>& list, double f) {
  for (Duration& d : list) shorten(d, f);
}

void speed_up_arithmetic(Hardware& h, double f) {
  for (double& peak : h.profile.compute.peak_flops) peak *= f;
  if (h.profile.costs) {
    for (ProductCost& c : h.profile.costs->products) c.flops_per_s *= f;
    for (AttentionCost& c : h.profile.costs->attention) c.flops_per_s *= f;
  }
  if (h.workload.basis != Basis::Captured) return;
  shorten(h.workload.times.forward, f);
  shorten(h.workload.times.backward, f);
  shorten(h.workload.times.ready, f);
}

void speed_up_memory(Hardware& h, double f) {
  h.profile.memory.bandwidth_bytes_per_s *= f;
  h.profile.memory.shared_bytes_per_s *= f;
  h.profile.memory.half_divide_bytes_per_s *= f;
  h.profile.memory.thin_product_bytes_per_s *= f;
  if (h.profile.costs) h.profile.costs->bandwidth_bytes_per_s *= f;
  if (h.workload.basis == Basis::Captured) shorten(h.workload.times.optimizer, f);
}

void speed_up_host(Hardware& h, double f) {
  for (Duration* d :
       {&h.profile.host.launch, &h.profile.host.hook, &h.profile.host.collective_launch,
        &h.profile.host.traverse, &h.profile.host.small_operator})
    shorten(*d, f);
  for (CallCost& c : h.profile.host.calls) shorten(c.forward, f), shorten(c.backward, f);
  if (!h.workload.times.host) return;
  HostTimes& t = *h.workload.times.host;
  for (Duration* d : {&t.forward, &t.backward, &t.optimizer}) shorten(*d, f);
  shorten(t.ready, f);
}

void speed_up_network(Cluster& c, double f) {
  for (LinkSpec* l : {&c.link, &c.uplink, &c.trunk, &c.global}) widen(*l, f);
  for (GraphLink& l : c.links) widen(l.link, f);
  for (SlowLink& l : c.slow_links) l.bandwidth = scale(l.bandwidth, f);
  for (DegradedLink& l : c.degraded_links) l.bandwidth = scale(l.bandwidth, f);
}

void speed_up_inside(Cluster& c, double f) {
  widen(c.intra, f);
  if (!c.inside) return;
  Inside& in = *c.inside;
  widen(in.link, f);
  for (auto* l : {&in.pcie, &in.c2c, &in.pcie_uplink, &in.nic_link, &in.cpu_link}) widen(*l, f);
  for (HostLink& l : in.links) widen(l.link, f);
}

void speed_up_sockets(Profile& p, double f) {
  for (auto& [name, t] : p.transports)
    if (t.thread_bytes_per_s)
      for (double* rate :
           {&t.thread_bytes_per_s->low, &t.thread_bytes_per_s->mid, &t.thread_bytes_per_s->high})
        *rate *= f;
}

void speed_up_steps(Profile& p, double f) {
  for (auto& [name, t] : p.transports) {
    for (Duration* d : {&t.launch, &t.latency, &t.message_core, &t.rendezvous}) shorten(*d, f);
    if (t.ll_latency) shorten(*t.ll_latency, f);
    if (t.occasions)
      for (DurationRange* r : {&t.occasions->latency, &t.occasions->message_core})
        for (Duration* d : {&r->low, &r->mid, &r->high}) shorten(*d, f);
    t.step_factor /= f;
  }
}

}  // namespace

const char* name_of(Resource r) {
  constexpr By<Resource, const char*, 8> kNames{
      "the device's arithmetic",    "the device's memory",     "the host thread",
      "the network between hosts",  "the copying for sockets", "the links inside hosts",
      "the latency of collectives", "the input pipeline"};
  return kNames[r];
}

bool copied_by_threads(const Question& q) {
  const auto& used = q.fabric.transports();
  return q.profile.compute.capability > 0 &&
         std::any_of(used.begin(), used.end(), [&](const std::string& name) {
           auto t = q.profile.transports.find(name);
           return t != q.profile.transports.end() && t->second.thread_bytes_per_s;
         });
}

Hardware faster(const Question& q, Resource resource, double factor) {
  Hardware h{q.workload, q.fabric.cluster(), q.profile};
  switch (resource) {
    case Resource::Arithmetic:
      speed_up_arithmetic(h, factor);
      break;
    case Resource::Memory:
      speed_up_memory(h, factor);
      break;
    case Resource::Host:
      speed_up_host(h, factor);
      break;
    case Resource::Network:
      speed_up_network(h.cluster, factor);
      break;
    case Resource::Sockets:
      speed_up_sockets(h.profile, factor);
      break;
    case Resource::Inside:
      speed_up_inside(h.cluster, factor);
      break;
    case Resource::Latency:
      speed_up_steps(h.profile, factor);
      break;
    case Resource::Input:
      break;
  }
  return h;
}

Duration step_if_faster(const Question& q, Resource resource, double factor, const Options& given,
                        std::optional<OtherFabric>* kept) {
  Hardware h = faster(q, resource, factor);
  Options options = given;
  Scenario scenario = q.scenario;
  if (resource == Resource::Input && scenario.input) scenario.input->samples_per_s *= factor;
  std::optional<Program> program;
  if (given.program) options.program = &program.emplace(faster(*given.program, resource, factor));
  if (resource != Resource::Network && resource != Resource::Inside)
    return steady_period({h.workload, q.fabric, h.profile, scenario}, Level::Mid, options);
  std::optional<OtherFabric> own;
  std::optional<OtherFabric>& other = kept ? *kept : own;
  if (!other) other.emplace(h.cluster);
  options.known = &other->known;
  return steady_period({h.workload, other->fabric, h.profile, scenario}, Level::Mid, options);
}

}  // namespace ddpsim::predict
