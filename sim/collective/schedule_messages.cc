// A step of a lane begins when the step before has ended (and the step of another lane that it
// waits for). Its messages go at once, each on its own connection, which carries one after the
// other; the step ends when what came is summed and what goes out is in the connections' buffers. A
// collective finds its connections as the one before it in the same slot has left them: what is
// still in a buffer goes first, and takes room there.
//
// With `path` (tcp), where messages meet on a link (all algorithms but the ring; a ring whose hops
// share a link, or that shares its links with other collectives), a message is segments that queue
// at each link, and moves whether or not the receiver has come: segments.h. Else it is one
// transfer; when its bytes begin to move:
//   tcp, ring    when its sender has the data, whether or not the receiver has come so far (ranks
//   of a ring are never more than a few steps apart) tcp, others  the same if the message fits in
//   the connection's buffer; else when its receiver has come so far too: a receiver that is busy
//   with
//                another round leaves what does not fit in its kernel with the sender
//   gloo         when the receiver's go-ahead has come
//   mpi          within the eager limit as tcp's; else when both have come, and after the
//   rendezvous
#include <algorithm>
#include <map>

#include "sim/collective/connections.h"
#include "sim/collective/message_tasks.h"
#include "sim/collective/price_terms.h"

namespace ddpsim::collective {

using engine::TaskGraph;
using engine::TaskId;

Hop hop_between(const Communicator& c, int from, int to) {
  topology::Route route;
  c.fabric->find_route(c.devices[from], c.devices[to], route);
  return {from, to, route.transport, route.latency};
}

namespace {

// A message on a connection that its sender need not see through: `accepted`, the sender may go on;
// `there`, it has arrived.
struct Sent {
  TaskId accepted;
  TaskId there;
};

constexpr TaskId kNobody = UINT32_MAX;

Connection& connection_between(Connections& all, const Communicator& c, const MessagePlay& play,
                               int from, int to, std::size_t lane) {
  auto device = [&](int rank) { return c.devices[rank]; };
  auto [it, fresh] = all.known.try_emplace({device(from), device(to), play.path.slot, lane});
  Connection& x = it->second;
  if (fresh) {
    Hop hop = hop_between(c, from, to);
    x.section = &section(c, play.profile, hop);
    x.transport = hop.transport;
    x.latency = step_latency(c, play.profile, hop);
    x.wire = hop.wire_latency;
    x.flow = play.flow(from, to);
  }
  if (x.collective != all.collectives) {
    x.collective = all.collectives;
    x.first = x.delivered.size();
  }
  return x;
}

// The end of what moves the connection's bytes up to `count`. Within a collective whole messages
// count: a sender that waits for room wakes when a third of the buffer is free (Linux:
// sk_stream_is_writeable), not at the byte.
TaskId moved(TaskGraph& g, Connection& x, std::int64_t count) {
  std::size_t message = std::lower_bound(x.ends.begin(), x.ends.end(), count) - x.ends.begin();
  Tail& tail = x.tails[message];
  // In a graph that grows it may have begun, or ended: then there is nothing to split.
  const bool begun = g.tasks()[tail.task].pending == 0;
  if (begun || message >= x.first || count <= tail.begin || count == x.ends[message])
    return x.delivered[message];
  TaskId front =
      g.front_of(tail.task, tail.edges, static_cast<double>(count - tail.begin) * tail.per_byte);
  tail.begin = count;
  tail.edges = {static_cast<std::uint32_t>(g.edge_count() - 1)};
  return front;
}

// `bytes` (times `factor` on the wire) after `at` and `latency`, and after all that the connection
// carries; what of both does not fit in its buffer holds the sender. `receiver`: they wait for it,
// and for the word that there is room.
Sent send_in_order(TaskGraph& g, Connection& x, TaskId at, Duration latency, std::int64_t bytes,
                   double factor, TaskId receiver = kNobody) {
  std::int64_t buffer = x.section->send_buffer.count;
  std::int64_t before = x.ends.empty() ? 0 : x.ends.back();
  std::int64_t waits_for = std::max<std::int64_t>(0, bytes - buffer);
  TaskId head =
      g.add_task({}, static_cast<double>(waits_for > 0 ? waits_for : bytes) * factor, x.flow);
  Tail tail{head, before, factor, {}};
  auto follow = [&](TaskId first) {
    const std::size_t known = g.edge_count();
    g.add_edge(first, head);  // none, if `first` has ended already (in a graph that grows)
    if (g.edge_count() > known) tail.edges.push_back(static_cast<std::uint32_t>(known));
  };
  follow(after(g, latency, {at}));
  if (!x.delivered.empty() && x.delivered.back() != at) follow(x.delivered.back());
  if (receiver != kNobody && receiver != at) follow(after(g, latency, {receiver}));
  Sent out{head, head};
  if (waits_for > 0 && waits_for < bytes) {
    out.there = g.add_task({}, static_cast<double>(bytes - waits_for) * factor, x.flow);
    tail = {out.there, before + waits_for, factor, {static_cast<std::uint32_t>(g.edge_count())}};
    g.add_edge(head, out.there);
  }
  x.delivered.push_back(out.there);
  x.ends.push_back(before + bytes);
  x.tails.push_back(std::move(tail));
  x.fluid = true;
  if (waits_for > 0) return out;
  // It fits; so does as much of what is before it as the buffer holds.
  out.accepted = at;
  std::int64_t left = x.ends.back() - buffer;
  if (left > 0) out.accepted = after(g, {}, {at, moved(g, x, left)});
  return out;
}

bool hops_share_a_link(const Pattern& p) {
  return std::any_of(p.load.begin(), p.load.end(),
                     [](const LinkLoad& l) { return l.per_byte > 1.001; });
}

class ScheduleMessages {
 public:
  ScheduleMessages(const Communicator& c, const MessagePlay& play)
      : g_(play.graph),
        c_(c),
        play_(play),
        ways_(step_list_ways(c)),
        connections_(play.path.connections ? *play.path.connections : own_) {
    const Price& price = play.price;
    const Pattern& pattern = c.pattern(price.pattern);
    ring_ = pattern.algorithm == Algorithm::Ring && pattern.rounds.empty();
    const double n = c.ranks();
    const int passes = pattern.operation == Operation::AllReduce ? 2 : 1;
    meets_ = !ring_ || play.path.shares_links || hops_share_a_link(pattern);
    if (ring_) factor_ = price.phases[0].work / (play.size * (passes * (n - 1) / n));
    schedule_ = schedule_of(c, price.pattern, play.size.count, 1, play.root);
    if (ways_.mpi) turns_ = turns_of(schedule_);
  }

  std::vector<TaskId> add(std::span<const TaskId> arrive) {
    ranks_.resize(schedule_.ranks.size());
    for (int r = 0; r < std::ssize(ranks_); ++r)
      ranks_[r].assign(schedule_.ranks[r].lanes.size(), {arrive[r], {}, {}, false});
    for (bool again = true; again;) {
      again = false;
      each_lane([&](int r, std::size_t l) { again = begin(r, l) || again; });
      each_lane([&](int r, std::size_t l) { again = send(r, l) || again; });
      each_lane([&](int r, std::size_t l) { again = end(r, l) || again; });
    }
    std::vector<TaskId> out;
    for (int r = 0; r < std::ssize(ranks_); ++r) {
      const auto& lanes = ranks_[r];
      const auto& steps = schedule_.ranks[r].lanes[0];
      // A sum's end belongs to who shares out the cores: whoever waits for the collective waits for
      // a task of its own.
      if (lanes.size() == 1 && (steps.empty() || !steps.back().reduce)) {
        out.push_back(lanes[0].at);
        continue;
      }
      TaskId all = g_.add_fixed({});
      for (std::size_t l = 0; l < lanes.size(); ++l)
        if (std::none_of(lanes.begin(), lanes.begin() + l,
                         [&](const LaneState& x) { return x.at == lanes[l].at; }))
          g_.add_edge(lanes[l].at, all);
      out.push_back(all);
    }
    return out;
  }

 private:
  struct LaneState {
    TaskId at = 0;             // the step begins when this ends
    std::vector<TaskId> ends;  // of the steps so far
    std::vector<TaskId> free;  // of the step's sends so far: its sender may go on
    bool begun = false;
  };
  template <class F>
  void each_lane(F f) {
    for (int r = 0; r < std::ssize(ranks_); ++r)
      for (std::size_t l = 0; l < ranks_[r].size(); ++l) f(r, l);
  }
  const Step* step_of(int r, std::size_t l) const {
    const auto& steps = schedule_.ranks[r].lanes[l];
    std::size_t s = ranks_[r][l].ends.size();
    return s < steps.size() ? &steps[s] : nullptr;
  }
  Connection& connection(int from, int to, std::size_t lane) {
    Connection& x = connection_between(connections_, c_, play_, from, to, lane);
    const bool queues = play_.path.queue && meets_ && x.section->send_buffer.count > 0;
    if (queues && !x.segments) {
      x.segments.emplace(c_, from, to, x.section->send_buffer);
      if (play_.path.plays_before * bytes_between(from, to, lane) >= kWindowGrowsFor)
        x.segments->age(play_.path.add_reader());
    }
    return x;
  }

  double bytes_between(int from, int to, std::size_t lane) const {
    double bytes = 0;
    for (const Step& s : schedule_.ranks[from].lanes[lane])
      for (const Message& m : s.sends) bytes += m.peer == to ? static_cast<double>(m.count) : 0;
    return bytes;
  }

  bool begin(int r, std::size_t l) {
    LaneState& lane = ranks_[r][l];
    const Step* step = step_of(r, l);
    if (lane.begun || !step) return false;
    if (step->after_lane >= 0) {
      const auto& other = ranks_[r][step->after_lane].ends;
      if (other.size() <= static_cast<std::size_t>(step->after_step)) return false;
      TaskId awaited = other[step->after_step];
      if (awaited != lane.at) lane.at = after(g_, {}, {lane.at, awaited});
    }
    lane.begun = true;
    for (const Message& m : step->receives) {
      Connection& x = connection(m.peer, r, l);
      x.expected.push_back(lane.at);
      if (x.segments) x.segments->read(play_.path, lane.at);
    }
    return true;
  }

  // The step's sends that can be placed by now, in order.
  bool send(int r, std::size_t l) {
    LaneState& lane = ranks_[r][l];
    const Step* step = step_of(r, l);
    if (!lane.begun || !step) return false;
    bool any = false;
    while (lane.free.size() < step->sends.size()) {
      const Message& m = step->sends[lane.free.size()];
      Connection& x = connection(r, m.peer, l);
      TaskId receiver = kNobody;
      if (waits_for_receiver(x, m)) {
        if (x.expected.size() <= x.delivered.size()) return any;
        receiver = x.expected[x.delivered.size()];
      }
      lane.free.push_back(ways_.go_ahead
                              ? send_when_told(r, m, x, lane.at, receiver)
                              : send_at_once(x, m, lane.at, receiver, exchange(r, l, m, x)));
      any = true;
    }
    return any;
  }

  bool waits_for_receiver(const Connection& x, const Message& m) const {
    if (ways_.go_ahead) return true;
    if (ways_.mpi) return m.count > ways_.mpi->eager;
    return !ring_ && !x.segments && m.count > x.section->send_buffer.count;
  }
  double factor_of(const Connection& x, std::int64_t bytes) const {
    return ring_ ? factor_ : correction(x.section->knots, static_cast<double>(bytes));
  }

  // Open MPI: what a message takes as a multiple, if its exchange takes turns.
  double exchange(int r, std::size_t l, const Message& m, const Connection& x) const {
    if (!ways_.mpi || play_.price.turns == Turns::Never) return 1;
    const std::vector<Message>& receives = step_of(r, l)->receives;
    const bool both = std::any_of(receives.begin(), receives.end(),
                                  [&](const Message& other) { return other.peer == m.peer; });
    if (!both) return 1;
    const double share = turns_share(play_.price.turns, turns_[r][ranks_[r][l].ends.size()]);
    return 1 + share * (in_turns(c_, x.transport, static_cast<double>(m.count)) - 1);
  }

  TaskId send_at_once(Connection& x, const Message& m, TaskId at, TaskId receiver,
                      double exchange) {
    Duration latency = x.latency;
    if (ways_.mpi && m.count > ways_.mpi->eager) latency += x.section->rendezvous;
    if (play_.cores.message && x.section->message_core.ps > 0) {
      CoreTasks core = play_.cores.message(x.section->message_core);
      g_.add_edge(at, core.due);
      at = core.done;
      latency += x.section->latency + x.wire - x.section->message_core - x.latency;
    }
    if (x.segments) {
      TaskId start = after(g_, latency, {at});
      if (x.fluid) g_.add_edge(x.delivered.back(), start);
      x.fluid = false;
      SegmentStream::Sent sent =
          x.segments->send(g_, play_.path, at, start, m.count, exchange * factor_of(x, m.count));
      x.delivered.push_back(sent.there);
      x.ends.push_back((x.ends.empty() ? 0 : x.ends.back()) + m.count);
      x.tails.push_back({sent.there, x.ends.back(), 1, {}});
      return sent.accepted;
    }
    return send_in_order(g_, x, at, latency, m.count, exchange * factor_of(x, m.count), receiver)
        .accepted;
  }

  // Gloo: the payload goes after the receiver's go-ahead; where collectives share a connection, in
  // its turn.
  TaskId send_when_told(int r, const Message& m, Connection& x, TaskId at, TaskId receiver) {
    TaskId go = after(g_, x.latency, {receiver});
    double work = static_cast<double>(m.count) * factor_of(x, m.count);
    CoreTasks payload;
    if (play_.turn)
      payload = play_.turn(r, m.peer, work);
    else
      payload.due = payload.done = g_.add_task({}, work, x.flow);
    g_.add_edge(at, payload.due);
    g_.add_edge(go, payload.due);
    x.delivered.push_back(after(g_, x.latency, {payload.done}));
    return payload.done;
  }

  Duration sum_of(const Step& step) const {
    if (!step.reduce) return {};
    if (ring_) return play_.price.reduce_alone;  // chunks differ by at most one element
    std::int64_t bytes = 0;
    for (const Message& m : step.receives) bytes += m.count;
    if (bytes == 0 || play_.price.sum_rate == 0) return {};
    return time_of(Bytes{bytes}, play_.price.sum_rate);
  }

  bool end(int r, std::size_t l) {
    LaneState& lane = ranks_[r][l];
    const Step* step = step_of(r, l);
    if (!step || !lane.begun || lane.free.size() < step->sends.size()) return false;
    std::map<Connection*, std::size_t> more;
    for (const Message& m : step->receives) {
      Connection& x = connection(m.peer, r, l);
      if (x.delivered.size() <= x.taken + more[&x]++) return false;
    }
    Duration alone = sum_of(*step);
    CoreTasks sum;
    if (play_.cores.sum && alone.ps > 0)
      sum = play_.cores.sum(alone);
    else
      sum.due = sum.done = g_.add_fixed(alone);
    std::vector<TaskId> awaited = lane.free;
    if (step->sends.empty()) awaited.push_back(lane.at);
    for (const Message& m : step->receives) {
      Connection& x = connection(m.peer, r, l);
      awaited.push_back(x.delivered[x.taken++]);
    }
    for (std::size_t i = 0; i < awaited.size(); ++i)
      if (std::find(awaited.begin(), awaited.begin() + i, awaited[i]) == awaited.begin() + i)
        g_.add_edge(awaited[i], sum.due);
    lane.ends.push_back(sum.done);
    lane.at = sum.done;
    lane.free.clear();
    lane.begun = false;
    return true;
  }

  TaskGraph& g_;
  const Communicator& c_;
  const MessagePlay& play_;
  StepListWays ways_;
  bool ring_ = false;
  bool meets_ = false;  // several messages may be on a link at once
  double factor_ = 1;
  Schedule schedule_;
  std::vector<std::vector<bool>> turns_;       // Open MPI: of each rank's steps
  std::vector<std::vector<LaneState>> ranks_;  // by rank and lane
  Connections own_;
  Connections& connections_;
};

}  // namespace

std::vector<TaskId> tcp_broadcast(const Communicator& c, const MessagePlay& play) {
  TaskGraph& g = play.graph;
  std::vector<TaskId> has(play.arrive.begin(), play.arrive.end());
  Connections own;
  Connections& all = play.path.connections ? *play.path.connections : own;
  auto rank = [&](int position) { return (position + play.root) % c.ranks(); };
  const std::size_t rounds = c.pattern(Operation::Broadcast).rounds.size();
  for (std::size_t round = 0; round < rounds; ++round) {
    for (auto [giver, taker] : tree_round(c.ranks(), static_cast<int>(round))) {
      const int from = rank(giver);
      const int to = rank(taker);
      std::size_t f = from;
      std::size_t t = to;
      Connection& x = connection_between(all, c, play, from, to, 0);
      x.expected.push_back(has[t]);
      Sent sent = send_in_order(g, x, has[f], x.section->latency + x.wire, play.size.count, 1);
      ++x.taken;
      has[f] = sent.accepted;
      has[t] = after(g, {}, {has[t], sent.there});
    }
  }
  return has;
}

Schedule schedule_of(const Communicator& c, PatternId id, std::int64_t elements,
                     std::int64_t element_size, int root) {
  const Pattern& pattern = c.pattern(id);
  std::int64_t lane = (elements + pattern.lanes - 1) / pattern.lanes;
  std::int64_t pieces = std::max<std::int64_t>(1, pieces_of(pattern, elements * element_size));
  ScheduleOptions options;
  options.chunk = pattern.pipelined ? (lane + pieces - 1) / pieces : 0;
  if (root == 0)
    return make_schedule(pattern.algorithm, pattern.operation, c.layout, elements, options);
  Layout layout = c.layout;
  for (int p = 0; p < c.ranks(); ++p) layout.order.push_back((p + root) % c.ranks());
  return make_schedule(pattern.algorithm, pattern.operation, layout, elements, options);
}

std::vector<TaskId> add_step_list(const Communicator& c, const MessagePlay& play) {
  ScheduleMessages messages(c, play);
  if (!step_list_ways(c).launch_inside) return messages.add(play.arrive);
  return messages.add(launched(play.graph, launch_time(c, play.profile), play.arrive));
}

}  // namespace ddpsim::collective
