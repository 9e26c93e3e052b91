#include "sim/predict/mechanisms.h"

#include <algorithm>
#include <array>

#include "sim/systems/base/record.h"
#include "sim/systems/ddp/plan.h"
#include "sim/units/by.h"

namespace ddpsim::predict {
namespace {

constexpr By<Mechanism, const char*, kMechanisms> kNames{
    "copy_in",       "in_order_launch", "burst",        "host_lane",      "workers",
    "reverse_order", "uplink_sharing",  "late_arrival", "reduction_time", "first_bucket",
    "connection",    "shared_memory",   "shared_cores", "stragglers",     "kernels",
    "conversions",   "calls",           "loop",         "host_memory",    "kernel_wait",
    "power"};

// Moves each bucket's all-reduce (with the operations of its comm hook) to directly behind the copy
// that completes it.
void launch_when_full(StepProgram& s) {
  std::vector<std::uint32_t> last_copy(s.buckets.size(), kNoOp);
  std::vector<std::uint32_t> bucket_of;
  for (std::uint32_t k = 0; k < s.buckets.size(); ++k)
    for (TensorIndex t : s.buckets[k].tensors) {
      if (bucket_of.size() <= t) bucket_of.resize(t + 1, kNoOp);
      bucket_of[t] = k;
    }
  for (std::uint32_t i = 0; i < s.ops.size(); ++i)
    if (copies_in(s.ops[i].kind) && bucket_of[s.ops[i].subject] != kNoOp)
      last_copy[bucket_of[s.ops[i].subject]] = i;
  // Sort key: what stays keeps its place; what moves comes just behind the copy.
  std::vector<std::pair<std::uint64_t, std::uint32_t>> order;
  for (std::uint32_t i = 0; i < s.ops.size(); ++i) {
    const Op& op = s.ops[i];
    const Op& done = is_launch(op.kind) ? s.ops[op.subject] : op;
    std::uint32_t subject = done.subject;
    bool moves = of_bucket(done.kind) && !is_wait(done.kind);
    std::uint32_t place = moves && last_copy[subject] != kNoOp ? last_copy[subject] : i;
    order.push_back({std::uint64_t{place} << 32 | i, i});
  }
  std::sort(order.begin(), order.end());
  std::vector<std::uint32_t> now(s.ops.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) now[order[i].second] = i;
  std::vector<Op> ops;
  for (const auto& [key, i] : order) ops.push_back(s.ops[i]);
  for (Op& op : ops) {
    for (std::uint32_t& d : op.dep)
      if (d != kNoOp) d = now[d];
    if (is_launch(op.kind)) op.subject = now[op.subject];
  }
  for (auto& e : s.extra_deps) e = {now[e.op], now[e.dep]};
  // On a CPU it is issued by what the host did last.
  for (std::uint32_t i = 0; i < ops.size(); ++i)
    if (carries_bucket(ops[i].kind) && ops[i].lane == Lane::Worker)
      for (std::uint32_t j = i; j-- > 0;)
        if (ops[j].lane == Lane::Host) {
          ops[i].dep[0] = j;
          break;
        }
  s.ops = std::move(ops);
}

void alter(Mechanism m, StepProgram& s) {
  if (m == Mechanism::InOrderLaunch) return launch_when_full(s);
  for (Op& op : s.ops) {
    OpKind launched = is_launch(op.kind) ? s.ops[op.subject].kind : op.kind;
    if ((m == Mechanism::CopyIn && copies_in(launched)) ||
        (m == Mechanism::HostLane && is_launch(op.kind)))
      op.duration = {}, op.cost = Cost::Measured, op.traffic = 0;
  }
}

}  // namespace

const char* name_of(Mechanism m) {
  return kNames[m];
}

std::optional<Mechanism> parse_mechanism(const std::string& name) {
  return kNames.find(name);
}

void remove(Mechanism m, Workload& w, Cluster& c, Profile& p, Scenario& s) {
  constexpr std::int64_t kFree = 1000;
  switch (m) {
    case Mechanism::Burst:
      c.link.burst = c.uplink.burst = {};
      c.link.peak = c.uplink.peak = {};
      for (GraphLink& l : c.links) l.link.burst = {}, l.link.peak = {};
      break;
    case Mechanism::ReverseOrder:
      std::sort(w.arrival.begin(), w.arrival.end());
      break;
    case Mechanism::UplinkSharing:
      c.uplink.bandwidth.bits_per_s *= kFree;
      c.uplink.peak.bits_per_s *= kFree;
      break;
    case Mechanism::LateArrival:
      s.slow_ranks.clear();
      break;
    case Mechanism::ReductionTime:
      p.reduction_bytes_per_s = 0;
      break;
    case Mechanism::FirstBucket:
      ddp_of(s.plan).first_bucket_bytes =
          static_cast<std::int64_t>(ddp_of(s.plan).bucket_cap_mb.value_or(25) * 1048576);
      break;
    case Mechanism::SharedMemory:
      p.memory.shared_bytes_per_s = 0;
      break;
    case Mechanism::SharedCores:
      for (auto& [name, t] : p.transports) t.cpu_ps_per_byte = 0;
      break;
    case Mechanism::Stragglers:
      p.rank_cv.reset();
      break;
    case Mechanism::Kernels:
      p.costs.reset();
      break;
    case Mechanism::Conversions:
      if (p.costs)
        for (ProductCost& product : p.costs->products) product.conversion = 0;
      break;
    case Mechanism::Calls:
      p.host.calls.clear();
      break;
    case Mechanism::Loop:
      w.loop = {.grad_scaler = false};
      break;
    case Mechanism::HostMemory:
      for (auto& [name, t] : p.transports) t.host_memory.reset();
      break;
    case Mechanism::Power:
      p.power.reset();
      break;
    case Mechanism::KernelWait:
    case Mechanism::Connection:
    case Mechanism::CopyIn:
    case Mechanism::InOrderLaunch:
    case Mechanism::HostLane:
    case Mechanism::Workers:
      break;
  }
}

void alter(Mechanism m, Program& program, System system) {
  // A bucket that is full waits for those before it.
  if (m == Mechanism::InOrderLaunch && !systems::record_of(system).bucketed) return;
  if (m == Mechanism::Workers) program.worker_threads = 1;
  if (m == Mechanism::KernelWait) program.kernel = {};
  if (m == Mechanism::Connection) program.one_connection = false;
  for (StepProgram& s : program.warmup) alter(m, s);
  alter(m, program.steady);
}

}  // namespace ddpsim::predict
