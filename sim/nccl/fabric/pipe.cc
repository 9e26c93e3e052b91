// Stages as steps: what is alike, is one; and what each link and each rank's threads do in all of
// them.
#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include "sim/nccl/fabric/group.h"
#include "sim/nccl/fabric/stages.h"
#include "sim/nccl/fabric/terms.h"

namespace ddpsim::nccl {

namespace {

// Lists of (number, amount), by a number of their own: a list is another one and what follows it. 0
// = the empty list.
class Lists {
 public:
  std::uint32_t append(std::uint32_t list, std::uint32_t number, double amount) {
    Link link{list, number, amount};
    Recent& recent = recent_[Hash()(link) % recent_.size()];
    if (recent.list != 0 && recent.link == link) return recent.list;
    auto [it, fresh] = known_.try_emplace(link, static_cast<std::uint32_t>(known_.size() + 1));
    if (fresh) links_.push_back(link);
    recent = {link, it->second};
    return it->second;
  }
  std::vector<std::pair<std::uint32_t, double>> of(std::uint32_t list) const {
    std::vector<std::pair<std::uint32_t, double>> out;
    for (; list != 0; list = links_[list - 1].before)
      out.emplace_back(links_[list - 1].number, links_[list - 1].amount);
    std::reverse(out.begin(), out.end());
    return out;
  }

 private:
  struct Link {
    std::uint32_t before = 0;
    std::uint32_t number = 0;
    double amount = 0;
    bool operator==(const Link&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Link& l) const {
      std::size_t mixed = (std::size_t{l.before} << 32 | l.number) * 0x9E3779B97F4A7C15u;
      mixed = (mixed ^ mixed >> 29 ^ std::bit_cast<std::uint64_t>(l.amount)) * 0xBF58476D1CE4E5B9u;
      return mixed ^ mixed >> 31;
    }
  };
  std::unordered_map<Link, std::uint32_t, Hash> known_;
  std::vector<Link> links_;
  struct Recent {
    Link link;
    std::uint32_t list = 0;
  };
  std::array<Recent, 1024> recent_;  // by hash: most stages ask for what one before them asked for
};

// What one link, or one rank's threads or copies, do.
struct Moved {
  std::uint32_t alike = 0;  // those that are alike have one number
  std::uint32_t work = 0;   // steps, and bytes in the level of each: a list
  double now = 0;           // bytes in this level
  double total = 0;
};

// By number: links, then where sockets carry them what each rank sends and receives, then groups of
// threads of each rank, then each rank's copies. A group of a tree's threads makes one pass of its
// own, and there are millions of them in large jobs: nothing is kept of them. Nor of a connection's
// threads.
class Movers {
  static constexpr std::uint32_t kOfConnection = UINT32_MAX;

 public:
  Movers(const Group& g, Pipeline p)
      : links_(g.fabric->links().size()),
        ranks_(g.devices.size()),
        groups_(static_cast<std::size_t>(groups_of(g, p))),
        sockets_(has_sockets(g)),
        begin_(links_ + (sockets_ && socket_threads(g) == 0 ? 2 * ranks_ : 0)) {
    using Key = std::tuple<std::int64_t, std::uint8_t, std::int64_t, bool, bool>;
    std::map<Key, std::uint32_t> known;
    kept_.reserve(begin_ + (groups_ == 1 ? 2 * ranks_ : 0));
    for (std::size_t id = 0; id < links_; ++id) {
      const topology::Link& l = g.fabric->links()[id];
      auto [it, fresh] =
          known.try_emplace({l.bandwidth.bits_per_s, l.transport, l.staging.bits_per_s,
                             g.fabric->is_nic_link(static_cast<topology::LinkId>(id)),
                             !g.to_memory.empty() && g.to_memory[id]},
                            static_cast<std::uint32_t>(list_.size()));
      if (fresh) list_.push_back({PipeMover::What::Link, static_cast<topology::LinkId>(id), 1});
      if (fresh) bytes_per_ps_.push_back(l.bandwidth.bytes_per_ps());
      kept_.push_back({it->second});
    }
    by_socket_ = static_cast<std::uint32_t>(list_.size());
    if (sockets_) list_.push_back({PipeMover::What::Sockets, 0, 1});
    kept_.resize(begin_, {by_socket_});
    std::map<double, std::uint32_t> shares;
    for (std::size_t k = 0; k < groups_; ++k) {
      double share = group_share(g, p, static_cast<int>(k));
      auto [it, fresh] = shares.try_emplace(share, static_cast<std::uint32_t>(list_.size()));
      if (fresh) list_.push_back({PipeMover::What::Threads, 0, share});
      of_group_.push_back(it->second);
    }
    auto copies = static_cast<std::uint32_t>(list_.size());
    list_.push_back({PipeMover::What::Copies, 0, 1});
    if (groups_ > 1) return;
    kept_.resize(begin_ + ranks_, {of_group_.front()});
    kept_.resize(begin_ + 2 * ranks_, {copies});
  }
  std::size_t links() const { return links_; }
  std::uint32_t threads(const Stage& s) const {
    return static_cast<std::uint32_t>(begin_ + static_cast<std::size_t>(s.from) * groups_ +
                                      static_cast<std::size_t>(s.group));
  }
  std::uint32_t copies(const Stage& s) const {
    return static_cast<std::uint32_t>(begin_ + ranks_ * groups_ + static_cast<std::size_t>(s.from));
  }
  bool sockets() const { return sockets_; }
  // What copies for a stage between nodes, at its sender and at its receiver.
  std::array<std::uint32_t, 2> copying(const Stage& s) const {
    if (begin_ == links_) return {kOfConnection, kOfConnection};
    return {static_cast<std::uint32_t>(links_ + static_cast<std::size_t>(s.from)),
            static_cast<std::uint32_t>(links_ + ranks_ + static_cast<std::size_t>(s.to))};
  }
  std::uint32_t alike(std::uint32_t id) const {
    if (id == kOfConnection) return by_socket_;
    return id < kept_.size() ? kept_[id].alike : of_group_[(id - begin_) % groups_];
  }
  double bytes_per_ps(std::uint32_t alike) const { return bytes_per_ps_[alike]; }  // of links
  std::vector<Moved>& kept() { return kept_; }
  std::vector<PipeMover> take() { return std::move(list_); }

 private:
  std::size_t links_;
  std::size_t ranks_;
  std::size_t groups_;
  bool sockets_;
  std::size_t begin_;            // of groups of threads
  std::uint32_t by_socket_ = 0;  // what is alike
  std::vector<std::uint32_t> of_group_;
  std::vector<double> bytes_per_ps_;
  std::vector<Moved> kept_;
  std::vector<PipeMover> list_;
};

}  // namespace

// Stages of a level that are of one kind, share alike and stand behind as many hops between nodes
// are one step; it waits for all that one of them waits for.
Pipe make_pipe(const Group& g, Pipeline p, Operation op) {
  Stages stages = stages_of(g, p, op);
  Pipe out;
  out.stages = stages.size();
  Movers movers(g, p);
  std::vector<Moved>& kept = movers.kept();
  std::vector<std::vector<std::uint32_t>> levels;  // of the listed stages
  for (std::uint32_t i = 0; i < stages.list.size(); ++i) {
    auto level = static_cast<std::size_t>(stages.list[i].level);
    if (levels.size() <= level) levels.resize(level + 1);
    levels[level].push_back(i);
  }
  out.levels = static_cast<int>(levels.size());
  Lists lists;
  struct Own {
    std::uint32_t id = 0;
    double bytes = 0;
  };
  std::map<std::pair<std::uint32_t, std::uint32_t>, Own>
      own;  // what those do of whom nothing is kept: alike and work, and the first of them
  auto last_own = own.end();
  std::vector<std::uint32_t> step_of(stages.size());
  std::vector<std::int64_t> on_links(stages.size(), 0);
  std::vector<topology::LinkId> route;
  std::vector<LinkLoad> links;
  struct Move {
    std::uint32_t id;
    std::uint32_t alike;
    double bytes;
    bool counts = true;  // no, if the thread block moves them in a pass that counts
  };
  std::vector<Move> moves;         // of this level's stages, one behind another
  std::vector<std::size_t> first;  // of each stage's
  PipeStep step;
  for (const auto& level : levels) {
    moves.clear();
    first.clear();
    auto add = [&](std::uint32_t id, double bytes, bool counts = true) {
      moves.push_back({id, movers.alike(id), bytes, counts});
      if (id < kept.size() && counts) kept[id].now += bytes;
    };
    for (std::size_t channel = 0; channel < stages.channels.size(); ++channel)
      for (std::uint32_t i : level) {
        Stage s = stages.at(channel, i);
        first.push_back(moves.size());
        links.clear();
        add_stage_load(g, s, route, links);
        for (const LinkLoad& l : links) add(l.link, l.per_byte * s.share);
        if (s.kind == Stage::Kind::Net && movers.sockets())
          for (std::uint32_t id : movers.copying(s))
            add(id, socket_load(g, p, s), id < kept.size());
        if (s.blocks > 0) add(movers.threads(s), s.blocks, !s.same_pass);
        if (s.kind == Stage::Kind::CopyIn) add(movers.copies(s), s.share);
      }
    first.push_back(moves.size());
    for (Move& m : moves)
      if (m.id < kept.size()) m.bytes = kept[m.id].now;
    using Key =
        std::tuple<int, std::uint32_t, int,
                   std::int64_t>;  // kind, load, hops between nodes, time on links on the way here
    std::map<Key, std::uint32_t> steps;
    auto last = steps.end();
    for (std::size_t k = 0; k + 1 < first.size(); ++k) {
      std::uint32_t i = level[k % level.size()];
      std::size_t channel = k / level.size() * stages.list.size();
      const Stage& s = stages.list[i];
      step.load.clear();
      double here = 0;
      for (std::size_t m = first[k]; m < first[k + 1]; ++m) {
        auto same = std::find_if(step.load.begin(), step.load.end(),
                                 [&](const auto& l) { return l.first == moves[m].alike; });
        if (same == step.load.end())
          step.load.emplace_back(moves[m].alike, moves[m].bytes);
        else
          same->second = std::max(same->second, moves[m].bytes);
        if (moves[m].id < movers.links())
          here = std::max(here, moves[m].bytes / movers.bytes_per_ps(moves[m].alike));
      }
      std::sort(step.load.begin(), step.load.end());
      std::uint32_t load = 0;
      for (auto [mover, bytes] : step.load) load = lists.append(load, mover, bytes);
      int kind = (is_inside(s.kind) ? 1 : 0) + (is_between(s.kind) ? 2 : 0) +
                 (s.kind == Stage::Kind::Hop ? 4 : 0);
      std::int64_t before = 0;
      for (std::uint32_t a : stages.waits_for(i)) before = std::max(before, on_links[channel + a]);
      on_links[channel + i] = before + static_cast<std::int64_t>(here * 1e3);
      Key key{kind, load, s.crossings, before};
      bool fresh = false;
      if (last == steps.end() || last->first != key)
        std::tie(last, fresh) =
            steps.try_emplace(key, static_cast<std::uint32_t>(out.steps.size()));
      if (fresh)
        out.steps.push_back(
            {is_inside(s.kind), is_between(s.kind), s.kind == Stage::Kind::Hop, {}, step.load});
      step_of[channel + i] = last->second;
      std::vector<std::uint32_t>& after = out.steps[last->second].after;
      for (std::uint32_t a : stages.waits_for(i))
        if (std::find(after.begin(), after.end(), step_of[channel + a]) == after.end())
          after.push_back(step_of[channel + a]);
      for (std::size_t m = first[k]; m < first[k + 1]; ++m) {
        auto [id, alike, bytes, counts] = moves[m];
        if (!counts) continue;
        if (id >= kept.size()) {
          std::pair<std::uint32_t, std::uint32_t> use{alike, lists.append(0, last->second, bytes)};
          if (last_own == own.end() || last_own->first != use)
            last_own = own.try_emplace(use, Own{id, bytes}).first;
          last_own->second.id = std::min(last_own->second.id, id);
          continue;
        }
        Moved& mover = kept[id];
        if (mover.now <= 0) continue;
        mover.work = lists.append(mover.work, last->second, bytes);
        mover.total += bytes;
        mover.now = 0;
      }
    }
  }
  std::set<std::pair<std::uint32_t, std::uint32_t>> seen;
  for (std::size_t id = 0; id < kept.size(); ++id) {
    const Moved& m = kept[id];
    if (m.work == 0) continue;
    if (id < movers.links()) out.every.push_back({static_cast<topology::LinkId>(id), m.total});
    if (seen.insert({m.alike, m.work}).second)
      out.uses.push_back({m.alike, static_cast<topology::LinkId>(id < movers.links() ? id : 0),
                          lists.of(m.work), m.total});
  }
  std::map<std::uint32_t, PipeUse> rest;
  for (const auto& [use, first_of] : own)
    rest[first_of.id] = {use.first, 0, lists.of(use.second), first_of.bytes};
  for (auto& [id, use] : rest) out.uses.push_back(std::move(use));
  out.movers = movers.take();
  return out;
}

const Pipe& pipe_of(const Group& g, Pipeline p, Operation op, Pipe& own) {
  if (p != Pipeline::Nvls || op == Operation::AllReduce) return g.pipes[p];
  return own = make_pipe(g, p, op);
}

}  // namespace ddpsim::nccl
