// NCCL ring, step s, position i: message(s, i) waits for message(s-1, i-1) (its data) and
// message(s-1, i) (the wire, in order). Gloo, iteration i of rank r: waits receive(i-2) and its
// sum, send(i-2); then posts receive i and send i; the payload of send i starts when the receiver's
// go-ahead arrived and the connection is free.
#include "sim/collective/messages.h"

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
      TaskId data = s == 0 ? start[static_cast<std::size_t>(order[i])] : previous[(i + n - 1) % n];
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
    auto rank = static_cast<std::size_t>(order[i]);
    done[rank].push_back(previous[i]);
    done[rank].push_back(previous[(i + n - 1) % n]);
  }
}

std::vector<TaskId> join(TaskGraph& g, const std::vector<std::vector<TaskId>>& parts) {
  std::vector<TaskId> out;
  for (const auto& list : parts) {
    TaskId t = g.add_fixed({});
    for (std::size_t i = 0; i < list.size(); ++i)
      if (std::find(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(i), list[i]) ==
          list.begin() + static_cast<std::ptrdiff_t>(i))
        g.add_edge(list[i], t);
    out.push_back(t);
  }
  return out;
}

// Of a collective's bytes, those of ring k.
double share_of(const Communicator& c, std::size_t k) {
  return c.ring_shares.empty() ? 1 / static_cast<double>(c.rings.size()) : c.ring_shares[k];
}

int nic_of(const Communicator& c, std::size_t k) {
  return c.ring_nics.empty() ? -1 : c.ring_nics[k];
}

// `rounds` times round all rings: 2 for an all-reduce, 1 for half of it.
std::vector<TaskId> nccl_rings(TaskGraph& g, const Communicator& c, const Profile& p,
                               const Price& price, int rounds, const FlowOfHop& flow,
                               std::span<const TaskId> arrive) {
  std::vector<TaskId> start =
      launched(g, c.nccl ? price.phases[0].latency : launch_time(c, p), arrive);
  auto steps = static_cast<std::size_t>(rounds * (c.ranks() - 1));
  double chunk = price.phases[0].work / static_cast<double>(steps);
  std::vector<std::vector<TaskId>> done(arrive.size());
  for (std::size_t k = 0; k < c.rings.size(); ++k)
    add_ring(g, c.rings[k], nic_of(c, k), steps, chunk * share_of(c, k), price.hop_latency, flow,
             start, done);
  return join(g, done);
}

// One Gloo ring, phase after phase.
class GlooRing {
 public:
  GlooRing(TaskGraph& g, const Communicator& c, const Profile& p, const Price& price, Bytes size,
           const FlowOfHop& flow, const SharedCores& cores, const TakeTurn& turn)
      : g_(g),
        cores_(cores),
        turn_(turn),
        sum_ps_per_byte_(price.chunk > 0 ? static_cast<double>(price.reduce_alone.ps) /
                                               static_cast<double>(price.chunk)
                                         : 0),
        seg_(gloo_segments(size.count, c.ranks())),
        size_(size),
        n_(static_cast<std::size_t>(c.ranks())) {
    auto n = static_cast<double>(n_);
    factor_ = price.phases[0].work / (static_cast<double>(size.count) * ((n - 1) / n));
    for (std::size_t r = 0; r < n_; ++r) {
      int to = static_cast<int>((r + n_ - 1) % n_);
      latency_.push_back(step_latency(c, p, hop_between(c, static_cast<int>(r), to)));
      flows_.push_back(flow(static_cast<int>(r), to));
    }
  }

  // `first[r]`: task after which rank r enters the phase. Returns per rank the task after which it
  // leaves.
  std::vector<TaskId> phase(bool reducing, const std::vector<TaskId>& first) {
    auto count = static_cast<std::size_t>(seg_.segments - seg_.per_rank);
    std::vector<TaskId> thread = first;
    wire_.assign(n_, kNothing);
    std::vector<std::vector<TaskId>> sent(3, std::vector<TaskId>(n_, kNothing)),
        received = sent;  // by iteration mod 3
    for (std::size_t i = 0; i < count + 2; ++i) {
      std::vector<TaskId> entered(n_);
      for (std::size_t r = 0; r < n_; ++r) {
        TaskId got = i >= 2 ? received[(i - 2) % 3][r] : kNothing;
        TaskId out = i >= 2 ? sent[(i - 2) % 3][r] : kNothing;
        entered[r] =
            enter(thread[r], got, out,
                  reducing && got != kNothing ? bytes_of((r + 1) % n_, i - 2, reducing) : 0);
      }
      for (std::size_t r = 0; r < n_; ++r) {
        std::size_t to = (r + n_ - 1) % n_;
        sent[i % 3][r] = kNothing;
        received[i % 3][to] = kNothing;
        std::int64_t bytes = i < count ? bytes_of(r, i, reducing) : 0;
        if (bytes == 0) continue;
        sent[i % 3][r] = send(r, to, entered, bytes);
        received[i % 3][to] = after(g_, latency_[r], {sent[i % 3][r]});
      }
      thread = std::move(entered);
    }
    return thread;
  }

 private:
  static constexpr TaskId kNothing = UINT32_MAX;

  // Bytes of the segment that rank r sends in iteration i (zero past the end: not sent).
  std::int64_t bytes_of(std::size_t r, std::size_t i, bool reducing) const {
    std::size_t block = reducing ? r + 1 : r;
    auto segment = static_cast<std::int64_t>((block * static_cast<std::size_t>(seg_.per_rank) + i) %
                                             static_cast<std::size_t>(seg_.segments));
    return std::clamp<std::int64_t>(size_.count - segment * seg_.segment_bytes, 0,
                                    seg_.segment_bytes);
  }

  // The worker thread goes on when what came is summed and what it sent is gone.
  TaskId enter(TaskId thread, TaskId got, TaskId out, std::int64_t summed) {
    Duration alone;
    if (summed > 0 && sum_ps_per_byte_ > 0)
      alone = {ceil_ps(static_cast<double>(summed) * sum_ps_per_byte_, 1)};
    CoreTasks sum;
    if (cores_.sum && alone.ps > 0)
      sum = cores_.sum(alone);
    else
      sum.due = sum.done = g_.add_fixed(alone);
    g_.add_edge(thread, sum.due);
    if (got != kNothing) g_.add_edge(got, sum.due);
    if (out != kNothing) g_.add_edge(out, sum.due);
    return sum.done;
  }

  // The payload goes when the receiver's go-ahead has come, and in its turn on the connection. The
  // go-ahead takes the other direction's connection: on two ranks that is the one of the receiver's
  // own payloads, and it waits behind them.
  TaskId send(std::size_t r, std::size_t to, const std::vector<TaskId>& entered,
              std::int64_t bytes) {
    TaskId called = entered[to];
    if (turn_ && n_ == 2) {
      CoreTasks call = turn_(static_cast<int>(to), static_cast<int>(r), 0);
      g_.add_edge(called, call.due);
      called = call.done;
    }
    TaskId go = after(g_, latency_[r], {called});
    double work = static_cast<double>(bytes) * factor_;
    CoreTasks payload;
    if (turn_)
      payload = turn_(static_cast<int>(r), static_cast<int>(to), work);
    else
      payload.due = payload.done = g_.add_task({}, work, flows_[r]);
    g_.add_edge(entered[r], payload.due);
    g_.add_edge(go, payload.due);
    if (!turn_ && wire_[r] != kNothing) g_.add_edge(wire_[r], payload.due);
    wire_[r] = payload.done;
    return payload.done;
  }

  TaskGraph& g_;
  const SharedCores& cores_;
  const TakeTurn& turn_;
  double sum_ps_per_byte_;
  GlooSegments seg_;
  Bytes size_;
  std::size_t n_;
  double factor_ = 1;
  std::vector<Duration> latency_;  // by sending rank
  std::vector<engine::FlowId> flows_;
  std::vector<TaskId> wire_;  // last payload on rank r's connection
};

std::vector<TaskId> gloo_all_reduce(TaskGraph& g, const Communicator& c, const Profile& p,
                                    const Price& price, Bytes size, const FlowOfHop& flow,
                                    std::span<const TaskId> arrive, const SharedCores& cores,
                                    const TakeTurn& turn) {
  GlooRing ring(g, c, p, price, size, flow, cores, turn);
  return ring.phase(false, ring.phase(true, launched(g, launch_time(c, p), arrive)));
}

std::vector<TaskId> nccl_broadcast(TaskGraph& g, const Communicator& c, const Profile& p,
                                   const Price& price, Bytes size, const FlowOfHop& flow,
                                   std::span<const TaskId> arrive) {
  std::vector<TaskId> start =
      launched(g, c.nccl ? price.phases[0].latency : launch_time(c, p), arrive);
  std::vector<std::vector<TaskId>> done(arrive.size());
  auto s = static_cast<double>(size.count);
  if (c.nccl) s = price.phases[0].work;  // with the protocol's share
  auto pieces = static_cast<int>(price.pieces);
  for (std::size_t k = 0; k < c.rings.size(); ++k) {
    const std::vector<int>& order = c.rings[k];
    std::size_t root =
        static_cast<std::size_t>(std::find(order.begin(), order.end(), 0) - order.begin());
    std::size_t hops = order.size() - 1;
    std::vector<TaskId> previous_piece(hops, UINT32_MAX);
    for (int j = 0; j < pieces; ++j) {
      TaskId data = start[0];
      for (std::size_t i = 0; i < hops; ++i) {
        int from = order[(root + i) % order.size()];
        int to = order[(root + i + 1) % order.size()];
        Duration latency =
            c.nccl ? price.hop_latency : step_latency(c, p, hop_between(c, from, to));
        TaskId ready = after(g, latency, {data});
        TaskId sent = g.add_task({}, s / pieces * share_of(c, k), flow(from, to, nic_of(c, k)));
        g.add_edge(ready, sent);
        g.add_edge(start[static_cast<std::size_t>(to)], sent);
        if (previous_piece[i] != UINT32_MAX) g.add_edge(previous_piece[i], sent);
        previous_piece[i] = sent;
        data = sent;
        if (j + 1 == pieces) {
          done[static_cast<std::size_t>(from)].push_back(sent);
          done[static_cast<std::size_t>(to)].push_back(sent);
        }
      }
    }
  }
  return join(g, done);
}

// Gloo's binomial tree. Who has the data sends it to all its children at once, each time its
// receiver's go-ahead has come; a worker goes on when it has received and what it sent is gone.
std::vector<TaskId> gloo_broadcast(TaskGraph& g, const Communicator& c, const Profile& p,
                                   Bytes size, const FlowOfHop& flow,
                                   std::span<const TaskId> arrive, int root, const TakeTurn& turn) {
  const int n = c.ranks();
  const auto bytes = static_cast<double>(size.count);
  const std::vector<TaskId> start = launched(g, launch_time(c, p), arrive);
  std::vector<std::vector<TaskId>> ends(arrive.size());
  auto rank = [&](int v) { return (v + root) % n; };
  auto of = [](int r) { return static_cast<std::size_t>(r); };
  std::vector<TaskId> has(of(n));  // by position in the tree
  has[0] = start[of(root)];
  ends[of(root)].push_back(has[0]);
  for (int v = 0; v < n; ++v)
    for (int child : tree_children(n, v)) {
      const int from = rank(v);
      const int to = rank(child);
      TaskId called = start[of(to)];
      if (turn) {  // behind what its giver sends on the same connection
        CoreTasks call = turn(to, from, 0);
        g.add_edge(called, call.due);
        called = call.done;
      }
      const TaskId go = after(g, step_latency(c, p, hop_between(c, to, from)), {called});
      CoreTasks payload;
      if (turn)
        payload = turn(from, to, bytes);
      else
        payload.due = payload.done = g.add_task({}, bytes, flow(from, to));
      g.add_edge(has[of(v)], payload.due);
      g.add_edge(go, payload.due);
      has[of(child)] = after(g, step_latency(c, p, hop_between(c, from, to)), {payload.done});
      ends[of(from)].push_back(payload.done);
      ends[of(to)].push_back(has[of(child)]);
    }
  return join(g, ends);
}

}  // namespace

std::vector<TaskId> add_all_reduce_messages(TaskGraph& g, const Communicator& c, const Profile& p,
                                            const Price& price, Bytes size, const FlowOfHop& flow,
                                            std::span<const TaskId> arrive,
                                            const SharedCores& cores, const TakeTurn& turn,
                                            const SegmentPath& path) {
  if (c.ranks() < 2 || size.count == 0) return launched(g, launch_time(c, p), arrive);
  if (c.backend == Backend::Nccl) return nccl_rings(g, c, p, price, 2, flow, arrive);
  const bool ring = c.patterns[kAllReduce].algorithm == Algorithm::Ring;
  if (c.backend == Backend::Gloo && ring)
    return gloo_all_reduce(g, c, p, price, size, flow, arrive, cores, turn);
  return add_schedule_messages(g, c, p, price, size, flow, arrive, cores, turn, path);
}

std::vector<TaskId> add_half_messages(TaskGraph& g, const Communicator& c, const Profile& p,
                                      const Price& price, Bytes size, const FlowOfHop& flow,
                                      std::span<const TaskId> arrive) {
  if (c.ranks() < 2 || size.count == 0) return launched(g, launch_time(c, p), arrive);
  return nccl_rings(g, c, p, price, 1, flow, arrive);
}

std::vector<TaskId> add_broadcast_messages(TaskGraph& g, const Communicator& c, const Profile& p,
                                           const Price& price, Bytes size, const FlowOfHop& flow,
                                           std::span<const TaskId> arrive, const SegmentPath& path,
                                           int root, const TakeTurn& turn) {
  if (c.ranks() < 2 || size.count == 0) return launched(g, launch_time(c, p), arrive);
  if (c.backend == Backend::Nccl) return nccl_broadcast(g, c, p, price, size, flow, arrive);
  if (c.backend == Backend::Mpi)
    return add_schedule_messages(g, c, p, price, size, flow, arrive, {}, {}, path, root);
  if (c.backend == Backend::Gloo) return gloo_broadcast(g, c, p, size, flow, arrive, root, turn);
  return tcp_broadcast(g, c, p, size, flow, arrive, path, root);
}

}  // namespace ddpsim::collective
