// NCCL's rings, message by message. Step s, position i: message(s, i) waits for message(s-1, i-1)
// (its data) and message(s-1, i) (the wire, in order).
#include <algorithm>

#include "sim/collective/message_tasks.h"

namespace ddpsim::collective {
namespace {

using engine::TaskGraph;
using engine::TaskId;

// One ring of NCCL: `steps` hops of `chunk` bytes from every position. All ranks step together, and
// NCCL's constants give only the sum of the latencies along the ring, so every step has the mean
// one. Returns per position the task after which it has sent and received all.
void add_ring(TaskGraph& g, const std::vector<int>& order, int nic, std::size_t steps, double chunk,
              Duration latency, const FlowOfHop& flow, const std::vector<TaskId>& start,
              std::vector<std::vector<TaskId>>& done) {
  std::size_t n = order.size();
  std::vector<engine::FlowId> flows(n);
  for (std::size_t i = 0; i < n; ++i) flows[i] = flow(order[i], order[(i + 1) % n], nic);
  std::vector<TaskId> before(n);
  std::vector<TaskId> previous(n);
  std::vector<TaskId> current(n);
  for (std::size_t s = 0; s < steps; ++s) {
    for (std::size_t i = 0; i < n; ++i) {
      TaskId data = s == 0 ? start[order[i]] : previous[(i + n - 1) % n];
      current[i] = g.add_task(latency, chunk, flows[i]);
      g.add_edge(data, current[i]);
      if (s > 0 && previous[i] != data) g.add_edge(previous[i], current[i]);
      // A connection buffers two chunks (8 slots, 4 a chunk): the receiver must have passed on what
      // came two steps ago.
      TaskId passed_on = s >= 2 ? before[(i + 1) % n] : data;
      if (passed_on != data && passed_on != previous[i]) g.add_edge(passed_on, current[i]);
    }
    std::swap(before, previous);
    std::swap(previous, current);
  }
  for (std::size_t i = 0; i < n; ++i) {
    std::size_t rank = order[i];
    done[rank].push_back(previous[i]);
    done[rank].push_back(previous[(i + n - 1) % n]);
  }
}

// The launch, or what the group's price has before its first message.
std::vector<TaskId> begun(const Communicator& c, const MessagePlay& play, bool of_group) {
  return launched(play.graph,
                  of_group ? play.price.phases[0].latency : launch_time(c, play.profile),
                  play.arrive);
}

std::vector<TaskId> rings(const Communicator& c, const MessagePlay& play, bool of_group) {
  const std::vector<TaskId> start = begun(c, play, of_group);
  const int rounds = play.operation == Operation::AllReduce ? 2 : 1;
  auto steps = static_cast<std::size_t>(rounds * (c.ranks() - 1));
  double chunk = play.price.phases[0].work / static_cast<double>(steps);
  std::vector<std::vector<TaskId>> done(play.arrive.size());
  for (const Ring& ring : c.rings)
    add_ring(play.graph, ring.order, ring.nic, steps, chunk * ring.share, play.price.hop_latency,
             play.flow, start, done);
  return join(play.graph, done);
}

std::vector<TaskId> chain(const Communicator& c, const MessagePlay& play, bool of_group) {
  TaskGraph& g = play.graph;
  const std::vector<TaskId> start = begun(c, play, of_group);
  std::vector<std::vector<TaskId>> done(play.arrive.size());
  auto s = static_cast<double>(play.size.count);
  if (of_group) s = play.price.phases[0].work;  // with the protocol's share
  auto pieces = static_cast<int>(play.price.pieces);
  for (const Ring& ring : c.rings) {
    const std::vector<int>& order = ring.order;
    std::size_t root = std::find(order.begin(), order.end(), 0) - order.begin();
    std::size_t hops = order.size() - 1;
    std::vector<TaskId> previous_piece(hops, UINT32_MAX);
    for (int j = 0; j < pieces; ++j) {
      TaskId data = start[0];
      for (std::size_t i = 0; i < hops; ++i) {
        int from = order[(root + i) % order.size()];
        int to = order[(root + i + 1) % order.size()];
        Duration latency = of_group ? play.price.hop_latency
                                    : step_latency(c, play.profile, hop_between(c, from, to));
        TaskId ready = after(g, latency, {data});
        TaskId sent = g.add_task({}, s / pieces * ring.share, play.flow(from, to, ring.nic));
        g.add_edge(ready, sent);
        g.add_edge(start[to], sent);
        if (previous_piece[i] != UINT32_MAX) g.add_edge(previous_piece[i], sent);
        previous_piece[i] = sent;
        data = sent;
        if (j + 1 == pieces) {
          done[from].push_back(sent);
          done[to].push_back(sent);
        }
      }
    }
  }
  return join(g, done);
}

}  // namespace

std::vector<TaskId> add_ring_messages(const Communicator& c, const MessagePlay& play,
                                      bool of_group) {
  return play.operation == Operation::Broadcast ? chain(c, play, of_group)
                                                : rings(c, play, of_group);
}

}  // namespace ddpsim::collective
