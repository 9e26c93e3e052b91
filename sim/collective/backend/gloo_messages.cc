// Gloo, message by message. Iteration i of rank r: waits receive(i-2) and its sum, send(i-2); then
// posts receive i and send i; the payload of send i starts when the receiver's go-ahead arrived and
// the connection is free.
#include <algorithm>

#include "sim/collective/message_tasks.h"

namespace ddpsim::collective {
namespace {

using engine::TaskGraph;
using engine::TaskId;

// One Gloo ring, phase after phase.
class GlooRing {
 public:
  GlooRing(const Communicator& c, const MessagePlay& play)
      : g_(play.graph),
        cores_(play.cores),
        turn_(play.turn),
        sum_ps_per_byte_(play.price.chunk > 0 ? static_cast<double>(play.price.reduce_alone.ps) /
                                                    static_cast<double>(play.price.chunk)
                                              : 0),
        seg_(gloo_segments(play.size.count, c.ranks())),
        size_(play.size),
        n_(c.ranks()) {
    const double n = n_;
    factor_ = play.price.phases[0].work / (size_ * ((n - 1) / n));
    for (int r = 0; r < n_; ++r) {
      const int to = (r + n_ - 1) % n_;
      latency_.push_back(step_latency(c, play.profile, hop_between(c, r, to)));
      flows_.push_back(play.flow(r, to));
    }
  }

  // `first[r]`: task after which rank r enters the phase. Returns per rank the task after which it
  // leaves.
  std::vector<TaskId> phase(bool reducing, const std::vector<TaskId>& first) {
    const std::int64_t count = seg_.segments - seg_.per_rank;
    std::vector<TaskId> thread = first;
    wire_.assign(n_, kNothing);
    std::vector<std::vector<TaskId>> sent(3, std::vector<TaskId>(n_, kNothing)),
        received = sent;  // by iteration mod 3
    for (std::int64_t i = 0; i < count + 2; ++i) {
      std::vector<TaskId> entered(n_);
      for (int r = 0; r < n_; ++r) {
        TaskId got = i >= 2 ? received[(i - 2) % 3][r] : kNothing;
        TaskId out = i >= 2 ? sent[(i - 2) % 3][r] : kNothing;
        entered[r] =
            enter(thread[r], got, out,
                  reducing && got != kNothing ? bytes_of((r + 1) % n_, i - 2, reducing) : 0);
      }
      for (int r = 0; r < n_; ++r) {
        const int to = (r + n_ - 1) % n_;
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
  std::int64_t bytes_of(int r, std::int64_t i, bool reducing) const {
    const std::int64_t block = reducing ? r + 1 : r;
    const std::int64_t segment = (block * seg_.per_rank + i) % seg_.segments;
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
  TaskId send(int r, int to, const std::vector<TaskId>& entered, std::int64_t bytes) {
    TaskId called = entered[to];
    if (turn_ && n_ == 2) {
      CoreTasks call = turn_(to, r, 0);
      g_.add_edge(called, call.due);
      called = call.done;
    }
    TaskId go = after(g_, latency_[r], {called});
    double work = static_cast<double>(bytes) * factor_;
    CoreTasks payload;
    if (turn_)
      payload = turn_(r, to, work);
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
  int n_;
  double factor_ = 1;
  std::vector<Duration> latency_;  // by sending rank
  std::vector<engine::FlowId> flows_;
  std::vector<TaskId> wire_;  // last payload on rank r's connection
};

// Gloo's binomial tree. Who has the data sends it to all its children at once, each time its
// receiver's go-ahead has come; a worker goes on when it has received and what it sent is gone.
std::vector<TaskId> broadcast_messages(const Communicator& c, const MessagePlay& play) {
  TaskGraph& g = play.graph;
  const Profile& p = play.profile;
  const TakeTurn& turn = play.turn;
  const int root = play.root;
  const int n = c.ranks();
  const auto bytes = static_cast<double>(play.size.count);
  const std::vector<TaskId> start = launched(g, launch_time(c, p), play.arrive);
  std::vector<std::vector<TaskId>> ends(play.arrive.size());
  auto rank = [&](int v) { return (v + root) % n; };
  std::vector<TaskId> has(n);  // by position in the tree
  has[0] = start[root];
  ends[root].push_back(has[0]);
  for (int v = 0; v < n; ++v)
    for (int child : tree_children(n, v)) {
      const int from = rank(v);
      const int to = rank(child);
      TaskId called = start[to];
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
        payload.due = payload.done = g.add_task({}, bytes, play.flow(from, to));
      g.add_edge(has[v], payload.due);
      g.add_edge(go, payload.due);
      has[child] = after(g, step_latency(c, p, hop_between(c, from, to)), {payload.done});
      ends[from].push_back(payload.done);
      ends[to].push_back(has[child]);
    }
  return join(g, ends);
}

}  // namespace

std::vector<TaskId> Gloo::add_messages(const Communicator& c, const MessagePlay& play) const {
  if (play.operation == Operation::Broadcast) return broadcast_messages(c, play);
  const bool ring =
      play.operation == Operation::AllReduce && c.pattern(all_reduce).algorithm == Algorithm::Ring;
  if (!ring) return add_step_list(c, play);
  GlooRing messages(c, play);
  return messages.phase(
      false, messages.phase(true, launched(play.graph, launch_time(c, play.profile), play.arrive)));
}

}  // namespace ddpsim::collective
