// Stages as steps: what is alike, is one; and what each link and each rank's threads do in all of
// them.
#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include "sim/nccl/fabric/group.h"
#include "sim/nccl/fabric/stages.h"
#include "sim/nccl/fabric/terms.h"
#include "sim/units/random.h"

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
      std::uint64_t mixed = (std::uint64_t{l.before} << 32 | l.number) * 0x9E3779B97F4A7C15u;
      mixed = (mixed ^ mixed >> 29 ^ bits_of(l.amount)) * 0xBF58476D1CE4E5B9u;
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
        groups_(groups_of(g, p)),
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
    return static_cast<std::uint32_t>(begin_ + s.from * groups_ + s.group);
  }
  std::uint32_t copies(const Stage& s) const {
    return static_cast<std::uint32_t>(begin_ + ranks_ * groups_ + s.from);
  }
  bool sockets() const { return sockets_; }
  // What copies for a stage between nodes, at its sender and at its receiver.
  std::array<std::uint32_t, 2> copying(const Stage& s) const {
    if (begin_ == links_) return {kOfConnection, kOfConnection};
    return {static_cast<std::uint32_t>(links_ + s.from),
            static_cast<std::uint32_t>(links_ + ranks_ + s.to)};
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

// Stages of a level that are of one kind, share alike and stand behind as many hops between nodes
// are one step; it waits for all that one of them waits for.
class PipeMaker {
 public:
  PipeMaker(const Group& g, Pipeline p, Operation op)
      : g_(g),
        p_(p),
        stages_(stages_of(g, p, op)),
        movers_(g, p),
        kept_(movers_.kept()),
        last_own_(own_.end()),
        step_of_(stages_.size()),
        on_links_(stages_.size(), 0) {}

  Pipe make() {
    out_.stages = stages_.size();
    std::vector<std::vector<std::uint32_t>> levels;  // of the listed stages
    for (std::uint32_t i = 0; i < stages_.list.size(); ++i) {
      std::size_t level = stages_.list[i].level;
      if (levels.size() <= level) levels.resize(level + 1);
      levels[level].push_back(i);
    }
    out_.levels = static_cast<int>(levels.size());
    for (const auto& level : levels) {
      find_moves(level);
      make_steps(level);
    }
    add_kept_uses();
    add_own_uses();
    out_.movers = movers_.take();
    return std::move(out_);
  }

 private:
  struct Own {
    std::uint32_t id = 0;
    double bytes = 0;
  };
  using Owns = std::map<std::pair<std::uint32_t, std::uint32_t>, Own>;
  struct Move {
    std::uint32_t id;
    std::uint32_t alike;
    double bytes;
    bool counts = true;  // no, if the thread block moves them in a pass that counts
  };
  using Key =
      std::tuple<int, std::uint32_t, int,
                 std::int64_t>;  // kind, load, hops between nodes, time on links on the way here
  using Steps = std::map<Key, std::uint32_t>;

  void add_move(std::uint32_t id, double bytes, bool counts = true) {
    moves_.push_back({id, movers_.alike(id), bytes, counts});
    if (id < kept_.size() && counts) kept_[id].now += bytes;
  }

  void find_moves(const std::vector<std::uint32_t>& level) {
    moves_.clear();
    first_.clear();
    for (std::size_t channel = 0; channel < stages_.channels.size(); ++channel)
      for (std::uint32_t i : level) {
        Stage s = stages_.at(channel, i);
        first_.push_back(moves_.size());
        links_.clear();
        add_stage_load(g_, s, route_, links_);
        for (const LinkLoad& l : links_) add_move(l.link, l.per_byte * s.share);
        if (s.kind == Stage::Kind::Net && movers_.sockets())
          for (std::uint32_t id : movers_.copying(s))
            add_move(id, socket_load(g_, p_, s), id < kept_.size());
        if (s.blocks > 0) add_move(movers_.threads(s), s.blocks, !s.same_pass);
        if (s.kind == Stage::Kind::CopyIn) add_move(movers_.copies(s), s.share);
      }
    first_.push_back(moves_.size());
    for (Move& m : moves_)
      if (m.id < kept_.size()) m.bytes = kept_[m.id].now;
  }

  // REQUIRES: find_moves() of the level.
  void make_steps(const std::vector<std::uint32_t>& level) {
    Steps steps;
    auto last = steps.end();
    for (std::size_t k = 0; k + 1 < first_.size(); ++k) {
      std::uint32_t i = level[k % level.size()];
      std::size_t channel = k / level.size() * stages_.list.size();
      const Stage& s = stages_.list[i];
      double here = find_load(k);
      std::uint32_t load = 0;
      for (auto [mover, bytes] : load_) load = lists_.append(load, mover, bytes);
      int kind = (is_inside(s.kind) ? 1 : 0) + (is_between(s.kind) ? 2 : 0) +
                 (s.kind == Stage::Kind::Hop ? 4 : 0);
      std::int64_t before = 0;
      for (std::uint32_t a : stages_.waits_for(i))
        before = std::max(before, on_links_[channel + a]);
      on_links_[channel + i] = before + static_cast<std::int64_t>(here * kFsPerPs);
      Key key{kind, load, s.crossings, before};
      bool fresh = false;
      if (last == steps.end() || last->first != key)
        std::tie(last, fresh) =
            steps.try_emplace(key, static_cast<std::uint32_t>(out_.steps.size()));
      if (fresh)
        out_.steps.push_back(
            {is_inside(s.kind), is_between(s.kind), s.kind == Stage::Kind::Hop, {}, load_});
      step_of_[channel + i] = last->second;
      add_waits(channel, i, last->second);
      add_work(k, last->second);
    }
  }

  // Puts what the level's k-th stage moves into `load_`; returns its time on its slowest link.
  double find_load(std::size_t k) {
    load_.clear();
    double here = 0;
    for (std::size_t m = first_[k]; m < first_[k + 1]; ++m) {
      auto same = std::find_if(load_.begin(), load_.end(),
                               [&](const auto& l) { return l.first == moves_[m].alike; });
      if (same == load_.end())
        load_.emplace_back(moves_[m].alike, moves_[m].bytes);
      else
        same->second = std::max(same->second, moves_[m].bytes);
      if (moves_[m].id < movers_.links())
        here = std::max(here, moves_[m].bytes / movers_.bytes_per_ps(moves_[m].alike));
    }
    std::sort(load_.begin(), load_.end());
    return here;
  }

  // Stage i of the channel whose first stage is `channel` is part of the step.
  void add_waits(std::size_t channel, std::uint32_t i, std::uint32_t step) {
    std::vector<std::uint32_t>& after = out_.steps[step].after;
    for (std::uint32_t a : stages_.waits_for(i))
      if (std::find(after.begin(), after.end(), step_of_[channel + a]) == after.end())
        after.push_back(step_of_[channel + a]);
  }

  // The moves of the level's k-th stage are part of the step.
  void add_work(std::size_t k, std::uint32_t step) {
    for (std::size_t m = first_[k]; m < first_[k + 1]; ++m) {
      auto [id, alike, bytes, counts] = moves_[m];
      if (!counts) continue;
      if (id >= kept_.size()) {
        std::pair<std::uint32_t, std::uint32_t> use{alike, lists_.append(0, step, bytes)};
        if (last_own_ == own_.end() || last_own_->first != use)
          last_own_ = own_.try_emplace(use, Own{id, bytes}).first;
        last_own_->second.id = std::min(last_own_->second.id, id);
        continue;
      }
      Moved& mover = kept_[id];
      if (mover.now <= 0) continue;
      mover.work = lists_.append(mover.work, step, bytes);
      mover.total += bytes;
      mover.now = 0;
    }
  }

  void add_kept_uses() {
    std::set<std::pair<std::uint32_t, std::uint32_t>> seen;
    for (std::size_t id = 0; id < kept_.size(); ++id) {
      const Moved& m = kept_[id];
      if (m.work == 0) continue;
      if (id < movers_.links()) out_.every.push_back({static_cast<topology::LinkId>(id), m.total});
      if (seen.insert({m.alike, m.work}).second)
        out_.uses.push_back({m.alike, static_cast<topology::LinkId>(id < movers_.links() ? id : 0),
                             lists_.of(m.work), m.total});
    }
  }

  void add_own_uses() {
    std::map<std::uint32_t, PipeUse> rest;
    for (const auto& [use, first_of] : own_)
      rest[first_of.id] = {use.first, 0, lists_.of(use.second), first_of.bytes};
    for (auto& [id, use] : rest) out_.uses.push_back(std::move(use));
  }

  const Group& g_;
  Pipeline p_;
  Stages stages_;
  Movers movers_;
  std::vector<Moved>& kept_;  // of `movers_`
  Lists lists_;
  Owns own_;  // what those do of whom nothing is kept: alike and work, and the first of them
  Owns::iterator last_own_;
  std::vector<std::uint32_t> step_of_;  // by stage
  std::vector<std::int64_t> on_links_;  // by stage: its time on links, with those on the way to it
  std::vector<topology::LinkId> route_;
  std::vector<LinkLoad> links_;
  std::vector<Move> moves_;         // of this level's stages, one behind another
  std::vector<std::size_t> first_;  // of each stage's
  std::vector<std::pair<std::uint32_t, double>> load_;  // as PipeStep has it
  Pipe out_;
};

}  // namespace

Pipe make_pipe(const Group& g, Pipeline p, Operation op) {
  return PipeMaker(g, p, op).make();
}

const Pipe& pipe_of(const Group& g, Pipeline p, Operation op, Pipe& own) {
  if (p != Pipeline::Nvls || op == Operation::AllReduce) return g.pipes[p];
  return own = make_pipe(g, p, op);
}

}  // namespace ddpsim::nccl
