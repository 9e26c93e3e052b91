// How many messages a question has, and so whether they are played one by one.
#include <algorithm>
#include <vector>

#include "sim/collective/messages.h"
#include "sim/nccl/fabric/messages.h"
#include "sim/play/prices.h"
#include "sim/predict/given_program.h"
#include "sim/predict/predict.h"
#include "sim/predict/steady.h"
#include "sim/systems/base/record.h"

namespace ddpsim::predict {
namespace {

// Steps that a simulation plays: first, rebuild, three steady ones; of reductions that are decided
// meanwhile twenty.
double steps_played(const Program& p) {
  return p.coordination ? 20 : 5;
}

// Tasks that a step list becomes, about: latency, transfer and sum of each message; of each of its
// segments, where they queue at the links. Messages of rounds end together and are cheap; those of
// a pipeline's lanes end one by one, and each changes everybody's rates: they count ten times.
double messages_of(const Prepared& r, const Profile& profile, std::int64_t bytes) {
  const collective::Pattern& p = r.comm().pattern(Operation::AllReduce);
  if (p.pipelined) return 30.0 * p.streamed * static_cast<double>(collective::pieces_of(p, bytes));
  bool segments =
      r.comm().backend() == Backend::Tcp &&
      std::any_of(r.comm().transports.begin(), r.comm().transports.end(), [&](std::uint8_t t) {
        return profile.transports.at(r.comm().fabric->transports()[t]).send_buffer.count > 0;
      });
  double messages = 0;
  for (const auto& round : p.rounds)
    messages += round.times *
                (round.messages + (segments ? round.moved * static_cast<double>(bytes) /
                                                  static_cast<double>(collective::kSegmentBytes)
                                            : 0));
  return 3 * messages;
}

double messages_of(const Prepared& r, const Question& q, OpKind kind, int group,
                   std::int64_t bytes) {
  const double n = q.scenario.ranks;
  const collective::Communicator& comm = of_group(r.comm(), group);
  if (is_served(kind)) return n;
  if (kind.operation == Operation::AllToAll) return 1;  // played as one flow
  if (const nccl::Group* g = nccl_group(comm); g && !is_broadcast(kind)) {
    auto choice = nccl::choose(*g, kind.operation, bytes);
    if (choice && choice->algorithm != nccl::Algorithm::Ring)
      return n / comm.ranks() * 40 *
             nccl::message_count(*g, q.profile, Level::Mid, kind.operation, *choice,
                                 {bytes});  // they end one by one, too
  }
  if (is_broadcast(kind)) return n;
  if (!r.comm().pattern(Operation::AllReduce).rounds.empty())
    return messages_of(r, q.profile, bytes);
  switch (r.comm().backend()) {
    case Backend::Gloo:
      return 8 * n *
             static_cast<double>(collective::gloo_segments(bytes, q.scenario.ranks).segments);
    case Backend::Tcp:
      return 6 * n * n;
    default:
      return 2 * n * comm.ranks() * static_cast<double>(comm.rings.size());
  }
}

// Of what is decided while it is played, about: tensors in the order of their requests, as many at
// a time as the threshold allows.
std::vector<std::int64_t> decided(const Program& p) {
  std::vector<std::int64_t> out;
  for (const Op& op : p.steady.ops) {
    if (!is_request(op.kind)) continue;
    const std::int64_t bytes = p.coordination->tensors[op.subject].bytes;
    if (out.empty() || out.back() + bytes > p.coordination->threshold) out.push_back(0);
    out.back() += bytes;
  }
  return out;
}

double messages_of_step(const Prepared& r, const Question& q) {
  double total = 0;
  for (const Op& op : r.program.steady.ops)
    if (is_collective(op.kind)) total += messages_of(r, q, op.kind, op.group, op.bytes);
  if (!r.program.coordination) return total;
  for (std::int64_t bytes : decided(r.program)) total += messages_of(r, q, OpKind{}, 0, bytes);
  return total;
}

Prepared prepared(const Question& q, const Program* program, Kept& own) {
  Options options = keeping({}, own);
  options.program = program;
  return prepare(q, Level::Mid, systems::Steps::SteadyOnly, options);
}

}  // namespace

double message_count(const Question& q, const Program* program) {
  Kept own;
  const Prepared r = prepared(q, program, own);
  return steps_played(r.program) * messages_of_step(r, q);
}

Fidelity usual_fidelity(const Question& q, const Program* program) {
  constexpr int kRanks = 64;
  constexpr double kMessages = 200'000;  // of a step
  if (servers_of(q.scenario.plan)) return Fidelity::Collective;
  Backend backend = backend_of(q.scenario.plan, q.fabric.cluster().device);
  const bool emulated = q.fabric.cluster().emulated_on_cores > 0;
  bool executed = backend == Backend::Tcp ||
                  ((backend == Backend::Gloo || backend == Backend::Mpi) && emulated);
  if (program && !by_message(*program)) return Fidelity::Collective;
  if (!executed || q.scenario.ranks > kRanks) return Fidelity::Collective;
  Kept own;
  const Prepared r = prepared(q, program, own);
  return messages_of_step(r, q) <= kMessages ? Fidelity::Message : Fidelity::Collective;
}

}  // namespace ddpsim::predict
