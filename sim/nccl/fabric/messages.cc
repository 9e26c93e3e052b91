// A piece at a stage: its latency after what it waits for, then its bytes behind the piece before.
// What hands on line by line (PipeTerms::lines) begins a latency after the stage before it
// began, and ends a latency after it ended at the earliest. A connection's buffer holds `window`
// pieces: the next one waits until word of the oldest has come back.
#include "sim/nccl/fabric/messages.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "sim/engine/after.h"
#include "sim/nccl/fabric/terms.h"
#include "sim/topology/link_loads.h"

namespace ddpsim::nccl {
namespace {

using engine::after;
using engine::TaskGraph;
using engine::TaskId;
using Kind = Stage::Kind;

// The stages' flows: one unit is one byte of the operation that passes the stage.
Flows::OfStages prepare(TaskGraph& g, const Group& group, const Profile& p, Level level,
                        const PipeTerms& t, const Flows& flows) {
  Flows::OfStages out;
  out.list = stages_of(group, t.pipeline, t.operation);
  topology::LinkLoads loads(*group.fabric);
  std::vector<LinkLoad> links;
  std::vector<topology::LinkId> route;
  std::size_t groups = groups_of(group, t.pipeline);
  // Of each rank: groups of threads, and what copies into the switch's window.
  std::vector<engine::ResourceId> threads(group.devices.size() * groups, engine::kNone);
  std::vector<engine::ResourceId> copies(group.devices.size(), engine::kNone);
  std::vector<engine::ResourceId> sending(group.devices.size(), engine::kNone);
  std::vector<engine::ResourceId> receiving(group.devices.size(), engine::kNone);
  auto own = [&](engine::ResourceId& of, BytesPerUs rate) {
    if (of == engine::kNone) of = g.add_resource({bytes_per_ps(rate), 0, 0});
    return of;
  };
  for (std::size_t i = 0; i < out.list.size(); ++i) {
    Stage s = out.list.at(i);
    std::vector<engine::Demand> demands;
    Microseconds slowest;  // of a byte
    links.clear();
    add_stage_load(group, s, route, links);
    for (const LinkLoad& l : links) loads.add(l.link, l.per_byte);
    for (const LinkLoad& l : loads.take()) {
      double wire = l.per_byte * (of_network(group, l.link) ? t.between : t.inside);
      // Through the host's memory a byte takes more of a link's time.
      BytesPerUs rate = carried_by(group, p, level, l.link);
      double share = bytes_per_us(link_rate(group, p, level, l.link)) / rate;
      demands.push_back({flows.link(l.link), wire * share});
      slowest = std::max(slowest, wire / rate);
    }
    std::size_t from = s.from;
    if (s.kind == Kind::Net && t.sockets > BytesPerUs{}) {
      const double load = t.between * socket_load(group, t.pipeline, s) / s.share;
      engine::ResourceId alone = engine::kNone;  // a connection's threads serve one stage
      std::size_t to = s.to;
      const bool each = socket_threads(group) > 0;
      demands.push_back({own(each ? alone : sending[from], t.sockets), load});
      if (!each) demands.push_back({own(receiving[to], t.sockets), load});
      slowest = std::max(slowest, load / t.sockets);
    }
    double part = group_share(group, t.pipeline, s.group);
    if (s.blocks > 0 && t.blocks > BytesPerUs{}) {
      engine::ResourceId alone = engine::kNone;  // of a pass that another stage pays for
      engine::ResourceId& by =
          s.same_pass ? alone : threads[from * groups + static_cast<std::size_t>(s.group)];
      demands.push_back({own(by, t.blocks * part), s.blocks / s.share});
      slowest = std::max(slowest, s.blocks / s.share / (t.blocks * part));
    }
    if (s.kind == Kind::CopyIn && t.copies > BytesPerUs{}) {
      demands.push_back({own(copies[from], t.copies), 1});
      slowest = std::max(slowest, 1 / t.copies);
    }
    out.flows.push_back(demands.empty() ? engine::kNoFlow
                                        : g.add_flow(demands, part * static_cast<double>(groups)));
    out.of_byte.push_back(slowest);
  }
  return out;
}

double pieces_of(const PipeTerms& t, Bytes size) {
  return std::max(1.0, std::ceil(static_cast<double>(size.count) / t.piece));
}

// The tasks of all pieces at all stages.
class Pieces {
 public:
  // `start`: of each rank.
  Pieces(TaskGraph& g, const PipeTerms& t, const Flows::OfStages& of_stages, Bytes size,
         const std::vector<TaskId>& start)
      : g_(g),
        t_(t),
        of_stages_(of_stages),
        stages_(of_stages.list),
        start_(start),
        bytes_(static_cast<double>(size.count)),
        pieces_(static_cast<std::size_t>(pieces_of(t, size))),
        at_(stages_.size(), std::vector<Done>(pieces_)) {}

  void add() {
    for (std::size_t j = 0; j < pieces_; ++j) {
      double piece = std::min(t_.piece, bytes_ - static_cast<double>(j) * t_.piece);
      for (std::size_t i = 0; i < stages_.size(); ++i) add(i, j, piece);
    }
  }

  std::vector<TaskId> done() {
    std::vector<TaskId> done;
    done.reserve(start_.size());
    for (TaskId s : start_) done.push_back(after(g_, {}, {s}));
    for (std::size_t i = 0; i < stages_.size(); ++i) {
      Stage s = stages_.at(i);
      when_there(at_[i].back(), done[s.from]);
      if (s.to != s.from) when_there(at_[i].back(), done[s.to]);
    }
    return done;
  }

 private:
  struct Done {
    TaskId begun = 0;  // bytes begin to move; where the next stage, or the next piece, asks
    TaskId moved = 0;
    std::optional<TaskId> last;  // of lines: a latency after the stage before ended
  };

  void when_there(const Done& d, TaskId next) {
    g_.add_edge(d.moved, next);
    if (d.last) g_.add_edge(*d.last, next);
  }

  // Piece j, of so many bytes, at stage i.
  void add(std::size_t i, std::size_t j, double piece) {
    std::size_t in_channel = i % stages_.list.size();
    Stage s = stages_.at(i);
    bool first = stages_.waits_for(in_channel).empty();
    Microseconds wait = is_between(s.kind)  ? t_.between_latency
                        : is_inside(s.kind) ? t_.inside_latency
                                            : Microseconds{};
    Duration latency = to_duration(wait);
    add_moving(i, j, s, first, piece);
    Microseconds alone = t_.piece * s.share * of_stages_.of_byte[i];
    std::size_t window = t_.window;
    bool full = window > 0 && j >= window &&
                2 * wait + alone >
                    t_.window * alone;  // the buffer: word of an earlier piece has to come back
    if (first && j > 0 && !full) return;
    TaskId ready = at_[i][j].begun;
    if (latency.ps > 0) {
      ready = g_.add_fixed(latency);
      g_.add_edge(ready, at_[i][j].begun);
    }
    if (j == 0) {
      if (first) g_.add_edge(start_[s.from], ready);
      if (s.to != s.from) g_.add_edge(start_[s.to], ready);
    }
    if (full) {
      TaskId word = g_.add_fixed(latency);
      when_there(at_[i][j - window], word);
      g_.add_edge(word, ready);
    }
    add_stages_before(i, j, s, latency, ready);
  }

  // `first`: the stage waits for none.
  void add_moving(std::size_t i, std::size_t j, const Stage& s, bool first, double piece) {
    Done& now = at_[i][j];
    engine::FlowId flow = of_stages_.flows[i];
    now.moved = flow == engine::kNoFlow ? g_.add_fixed({}) : g_.add_task({}, piece * s.share, flow);
    now.begun = now.moved;
    if ((t_.lines && s.kind == Kind::Hop) || (t_.pace > Microseconds{} && first)) {
      now.begun = g_.add_fixed({});
      g_.add_edge(now.begun, now.moved);
    }
    if (j > 0) g_.add_edge(at_[i][j - 1].moved, now.begun);
    if (j > 0 && t_.pace > Microseconds{} && first)
      g_.add_edge(after(g_, to_duration(t_.piece * t_.pace), {at_[i][j - 1].begun}), now.begun);
  }

  // `ready`: a latency before the piece may move.
  void add_stages_before(std::size_t i, std::size_t j, const Stage& s, Duration latency,
                         TaskId ready) {
    std::size_t in_channel = i % stages_.list.size();
    Done& now = at_[i][j];
    auto is_line = [&](std::uint32_t a) {
      return t_.lines && s.kind == Kind::Hop && stages_.list[a].kind == Kind::Hop;
    };
    for (std::uint32_t a : stages_.waits_for(in_channel)) {
      const Done& before = at_[i - in_channel + a][j];
      if (!is_line(a)) {
        when_there(before, ready);
        continue;
      }
      g_.add_edge(before.begun, ready);
      TaskId last = g_.add_fixed(latency);
      when_there(before, last);
      now.last = now.last ? after(g_, {}, {*now.last, last}) : last;
    }
  }

  TaskGraph& g_;
  const PipeTerms& t_;
  const Flows::OfStages& of_stages_;
  const Stages& stages_;
  const std::vector<TaskId>& start_;
  double bytes_;
  std::size_t pieces_;
  std::vector<std::vector<Done>> at_;  // by stage and piece
};

}  // namespace

double message_count(const Group& g, const Profile& p, Level level, Operation op,
                     const Choice& choice, Bytes size) {
  PipeTerms t = pipe_terms(g, p, level, op, choice, size);
  return static_cast<double>(g.pipes[t.pipeline].stages) * pieces_of(t, size);
}

std::vector<TaskId> add_messages(TaskGraph& g, const Group& group, const Profile& p, Level level,
                                 Operation op, const Choice& choice, Bytes size, Flows& flows,
                                 std::span<const TaskId> arrive) {
  PipeTerms t = pipe_terms(group, p, level, op, choice, size);
  std::vector<TaskId> start = engine::launched(
      g, to_duration(base_latency(kMeasured, choice.algorithm, choice.protocol)), arrive);
  auto key = std::make_tuple(choice.algorithm, choice.protocol, choice.channels, t.operation);
  auto known = flows.known.find(key);
  if (known == flows.known.end())
    known = flows.known.emplace(key, prepare(g, group, p, level, t, flows)).first;
  Pieces pieces(g, t, known->second, size, start);
  pieces.add();
  return pieces.done();
}

}  // namespace ddpsim::nccl
