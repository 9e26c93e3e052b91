#include "sim/predict/given_program.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>

#include "sim/collective/backend/nccl.h"
#include "sim/collective/price.h"
#include "sim/predict/server_places.h"

namespace ddpsim::predict {
namespace {

template <class Change>
void each_op(Program& p, Change change) {
  for (StepProgram& s : p.warmup)
    for (Op& op : s.ops) change(op);
  for (Op& op : p.steady.ops) change(op);
}

// Of every step, first to last.
template <class Ask>
std::string first_problem(const Program& p, Ask ask) {
  auto in_step = [&](const StepProgram& s) {
    for (std::uint32_t i = 0; i < s.ops.size(); ++i)
      if (std::string problem = ask(s, i); !problem.empty())
        return "operation \"" + name_of(p, s, i) + "\" " + problem;
    return std::string();
  };
  for (const StepProgram& s : p.warmup)
    if (std::string problem = in_step(s); !problem.empty()) return problem;
  return in_step(p.steady);
}

bool reduces_or_broadcasts(const Op& op) {
  return !is_collective(op.kind) || is_broadcast(op.kind) ||
         op.kind.operation == Operation::AllReduce;
}

bool half_of_a_ring(Operation o) {
  return o == Operation::AllGather || o == Operation::ReduceScatter || o == Operation::Reduce;
}

}  // namespace

Workload stand_in(const Program& p, const std::string& name, std::vector<Tensor> tensors,
                  int batch) {
  Workload w;
  w.name = name;
  w.basis = Basis::Captured;
  w.batch = batch;
  w.device = p.device;
  w.tensors = std::move(tensors);
  if (w.tensors.empty()) w.tensors.push_back({"nothing", {0}, DType::Float32});
  // Plans want to know; the Program says which gradients there are, and when.
  w.arrival.resize(w.tensors.size());
  std::iota(w.arrival.begin(), w.arrival.end(), TensorIndex{0});
  HostTimes host;
  for (const Op& op : p.steady.ops) {
    if (is_forward(op.kind)) w.times.forward += op.duration;
    if (is_backward(op.kind)) w.times.backward += op.duration;
    if (is_update(op.kind)) w.times.optimizer += op.duration;
    if (is_launch(op.kind)) host.optimizer += op.duration;
  }
  w.times.forward.ps /= p.micro_steps;
  w.times.backward.ps /= p.micro_steps;
  w.times.ready.assign(w.arrival.size(), w.times.backward);
  host.ready.assign(w.arrival.size(), {});
  if (host.optimizer.ps > 0) w.times.host = host;
  return w;
}

bool by_message(const Program& p) {
  return first_problem(p,
                       [&](const StepProgram& s, std::uint32_t i) {
                         const Op& op = s.ops[i];
                         const bool plays =
                             reduces_or_broadcasts(op) ||
                             (p.backend == Backend::Tcp && half_of_a_ring(op.kind.operation));
                         return std::string(plays ? "" : "is another");
                       })
      .empty();
}

Problem check_program(const Program& p, const Question& q, Communicators* known) {
  if (p.servers)
    if (Problem problem = check_server_places(q.fabric, devices_of(q.scenario), *p.servers))
      return {"/servers", problem.message};
  Communicators own;
  const collective::Communicator& job = (known ? *known : own).get(q, p);
  std::set<std::tuple<Operation, std::int64_t, std::uint8_t>> seen;
  std::string problem = first_problem(p, [&](const StepProgram& s, std::uint32_t i) {
    const Op& op = s.ops[i];
    if (!is_collective(op.kind) || !seen.insert({op.kind.operation, op.bytes, op.group}).second)
      return std::string();
    if (op.group > 0 && p.backend == Backend::Gloo)
      return std::string("is of some ranks only, which ddpsim does not play over gloo");
    const collective::Communicator& c = of_group(job, op.group);
    std::string what = name_of(op.kind.operation);
    if (!collective::performs(c, op.kind.operation))
      return "is of " + what + ", which ddpsim does not play over " + name_of(p.backend) + " here";
    if (op.kind.operation == Operation::AllToAll) return std::string();
    if (const nccl::Group* g = nccl_group(c); g && !nccl::choose(*g, op.kind.operation, op.bytes))
      return "is of " + what + ", for which what is set of NCCL leaves nothing";
    return std::string();
  });
  return problem.empty() ? Problem{} : Problem{"/steps", problem};
}

std::string unplayable(const Program& p) {
  return first_problem(p, [&](const StepProgram& s, std::uint32_t i) -> std::string {
    const Op& op = s.ops[i];
    if (is_collective(op.kind) && p.device == DeviceKind::Cpu && number_of(op.lane) >= kLanes)
      return "communicates on stream \"" + name_of(op.lane, p.streams) +
             "\"; on CPUs ddpsim's executor has workers for that";
    if (!reduces_or_broadcasts(op) && !half_of_a_ring(op.kind.operation))
      return std::string("is of ") + name_of(op.kind.operation) +
             ", which ddpsim's executor does not play";
    if (is_collective(op.kind) && op.bytes % element_size(op.dtype) != 0)
      return "has " + std::to_string(op.bytes) + " bytes, which are no whole number of " +
             name_of(op.dtype);
    if (i + 1 == s.ops.size() && op.lane == Lane::Worker)
      return "ends its step on a worker, where ddpsim's executor sees no end; end it on the host";
    return {};
  });
}

void scale_computation(Program& p, double factor) {
  each_op(p, [&](Op& op) {
    if (is_compute(op.kind)) op.duration = scale(op.duration, factor);
  });
}

Program faster(const Program& given, Resource resource, double factor) {
  Program p = given;
  each_op(p, [&](Op& op) {
    bool shorter = resource == Resource::Arithmetic ? is_forward(op.kind) || is_backward(op.kind)
                   : resource == Resource::Memory
                       ? is_update(op.kind)
                       : resource == Resource::Host && is_host_work(op.kind);
    if (shorter) op.duration = scale(op.duration, 1 / factor);
  });
  return p;
}

}  // namespace ddpsim::predict
