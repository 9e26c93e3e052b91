// A piece at a stage: its latency after what it waits for, then its bytes behind the piece before. What hands on line by line (NcclPipeTerms::lines) begins a
// latency after the stage before it began, and ends a latency after it ended at the earliest. A connection's buffer holds `window` pieces: the next one waits until
// word of the oldest has come back.
#include <algorithm>
#include <cmath>

#include "sim/collective/link_loads.h"
#include "sim/collective/message_tasks.h"
#include "sim/collective/nccl_terms.h"

namespace ddpsim::collective {
namespace {

using engine::TaskGraph;
using engine::TaskId;
using Kind = NcclStage::Kind;

Duration us(double t) { return {static_cast<std::int64_t>(t * 1e6 + 0.5)}; }

// The stages' flows: one unit is one byte of the operation that passes the stage.
NcclFlows::Stages prepare(TaskGraph& g, const NcclGroup& group, const Profile& p, Level level, const NcclPipeTerms& t, const NcclFlows& flows) {
  NcclFlows::Stages out;
  out.list = nccl_stages(group, t.pipeline, t.operation);
  LinkLoads loads(*group.fabric);
  std::vector<LinkLoad> links;
  topology::Route route;
  auto groups = static_cast<std::size_t>(groups_of(group, t.pipeline));
  // Of each rank: groups of threads, and what copies into the switch's window.
  std::vector<engine::ResourceId> threads(group.devices.size() * groups, engine::kNone);
  std::vector<engine::ResourceId> copies(group.devices.size(), engine::kNone);
  auto own = [&](std::vector<engine::ResourceId>& of, std::size_t i, double bytes_per_us) {
    if (of[i] == engine::kNone) of[i] = g.add_resource({bytes_per_us / 1e6, 0, 0});
    return of[i];
  };
  for (const NcclStage& s : out.list) {
    std::vector<engine::Demand> demands;
    links.clear();
    add_stage_load(group, s, route, links);
    for (const LinkLoad& l : links) loads.add(l.link, l.per_byte);
    for (const LinkLoad& l : loads.take()) {
      const topology::Link& link = group.fabric->links()[l.link];
      const TransportSection& transport = p.transports.at(group.fabric->transports()[link.transport]);
      double full = link.bandwidth.bytes_per_ps() * at(transport.efficiency, level) * 1e6;
      double wire = link.kind == topology::LinkKind::Net ? t.between : t.inside;
      demands.push_back({flows.link(l.link), l.per_byte * wire * full / link_rate_us(group, p, level, l.link)});
    }
    auto from = static_cast<std::size_t>(s.from);
    double part = group_share(group, t.pipeline, s.group);
    if (s.blocks > 0 && t.blocks > 0) demands.push_back({own(threads, from * groups + static_cast<std::size_t>(s.group), t.blocks * part), s.blocks / s.share});
    if (s.kind == Kind::CopyIn && t.copies > 0) demands.push_back({own(copies, from, t.copies), 1});
    out.flows.push_back(demands.empty() ? engine::kNoFlow : g.add_flow(demands, part * static_cast<double>(groups)));
  }
  return out;
}

}  // namespace

std::vector<TaskId> add_nccl_messages(TaskGraph& g, const Communicator& c, const Profile& p, Level level, Operation op, const nccl::Choice& choice, Bytes size, NcclFlows& flows,
                                      std::span<const TaskId> arrive) {
  const NcclGroup& group = *c.nccl;
  NcclPipeTerms t = nccl_pipe_terms(group, p, level, op, choice, size);
  std::vector<TaskId> start = launched(g, nccl_price(group, p, level, op, choice, size).base, arrive);
  auto key = std::make_tuple(choice.algorithm, choice.protocol, choice.channels, t.operation);
  auto known = flows.known.find(key);
  if (known == flows.known.end()) known = flows.known.emplace(key, prepare(g, group, p, level, t, flows)).first;
  const std::vector<NcclStage>& stages = known->second.list;

  struct Done {
    TaskId begun = 0;  // bytes begin to move
    TaskId moved = 0;
    TaskId there = 0;
  };
  auto bytes = static_cast<double>(size.count);
  auto pieces = static_cast<std::size_t>(std::max(1.0, std::ceil(bytes / t.piece)));
  std::vector<std::vector<Done>> at(stages.size(), std::vector<Done>(pieces));
  for (std::size_t j = 0; j < pieces; ++j) {
    double piece = std::min(t.piece, bytes - static_cast<double>(j) * t.piece);
    for (std::size_t i = 0; i < stages.size(); ++i) {
      const NcclStage& s = stages[i];
      Duration latency = us(is_between(s.kind) ? t.between_us : is_inside(s.kind) ? t.inside_us : 0);
      auto is_line = [&](std::uint32_t a) { return t.lines && s.kind == Kind::Hop && stages[a].kind == Kind::Hop; };
      TaskId ready = g.add_fixed(latency);
      if (s.after.empty()) g.add_edge(start[static_cast<std::size_t>(s.from)], ready);  // all pieces are there from the beginning
      if (j == 0 && s.to != s.from) g.add_edge(start[static_cast<std::size_t>(s.to)], ready);
      for (std::uint32_t a : s.after) g.add_edge(is_line(a) ? at[a][j].begun : at[a][j].there, ready);
      TaskId begun = g.add_fixed({});
      g.add_edge(ready, begun);
      if (j > 0) g.add_edge(at[i][j - 1].moved, begun);
      if (j > 0 && t.pace > 0 && s.after.empty()) g.add_edge(after(g, us(t.piece * t.pace), {at[i][j - 1].begun}), begun);
      auto window = static_cast<std::size_t>(t.window);
      if (window > 0 && j >= window && latency.ps > 0) g.add_edge(after(g, latency, {at[i][j - window].there}), ready);
      engine::FlowId flow = known->second.flows[i];
      TaskId moved = flow == engine::kNoFlow ? g.add_fixed({}) : g.add_task({}, piece * s.share, flow);
      g.add_edge(begun, moved);
      TaskId there = moved;
      for (std::uint32_t a : s.after) {
        if (!is_line(a)) continue;
        TaskId last = after(g, latency, {at[a][j].there});
        there = after(g, {}, {there, last});
      }
      at[i][j] = {begun, moved, there};
    }
  }
  std::vector<TaskId> done;
  done.reserve(arrive.size());
  for (TaskId s : start) done.push_back(after(g, {}, {s}));
  for (std::size_t i = 0; i < stages.size(); ++i) {
    g.add_edge(at[i].back().there, done[static_cast<std::size_t>(stages[i].from)]);
    if (stages[i].to != stages[i].from) g.add_edge(at[i].back().there, done[static_cast<std::size_t>(stages[i].to)]);
  }
  return done;
}

}  // namespace ddpsim::collective
