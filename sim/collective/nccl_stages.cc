#include "sim/collective/nccl_stages.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include "sim/collective/blocks.h"
#include "sim/collective/communicator.h"
#include "sim/collective/link_loads.h"

namespace ddpsim::collective {
namespace {

constexpr int kBalancedTree = 1;  // NCCL's pattern

using Kind = NcclStage::Kind;
using Ids = std::vector<std::uint32_t>;

class Stages {
 public:
  explicit Stages(std::size_t about = 0) { list_.reserve(about); }
  std::uint32_t add(NcclStage s) {
    std::sort(s.after.begin(), s.after.end());
    s.after.erase(std::unique(s.after.begin(), s.after.end()), s.after.end());
    for (std::uint32_t a : s.after) {
      s.level = std::max(s.level, list_[a].level + 1);
      s.crossings = std::max(s.crossings, list_[a].crossings);
    }
    if (is_between(s.kind)) ++s.crossings;
    list_.push_back(std::move(s));
    return static_cast<std::uint32_t>(list_.size() - 1);
  }
  // A hop that `from`'s thread blocks feed.
  std::uint32_t hop(Kind kind, int from, int to, int nic, int group, double share, double blocks, Ids after, bool same_pass = false) {
    return add({kind, from, to, nic, group, share, blocks, 0, 0, std::move(after), same_pass});
  }
  std::vector<NcclStage> take() { return std::move(list_); }

 private:
  std::vector<NcclStage> list_;
};

std::vector<std::vector<int>> children_of(const std::vector<int>& parents) {
  std::vector<std::vector<int>> out(parents.size());
  for (std::size_t i = 0; i < parents.size(); ++i)
    if (parents[i] >= 0) out[static_cast<std::size_t>(parents[i])].push_back(static_cast<int>(i));
  return out;
}
// Nodes with parents before their children.
std::vector<int> from_root(const std::vector<std::vector<int>>& children, int root) {
  std::vector<int> out{root};
  for (std::size_t i = 0; i < out.size(); ++i)
    for (int c : children[static_cast<std::size_t>(out[i])]) out.push_back(c);
  return out;
}

// One tree over NVLS's heads (a rank of each node): what `ready[i]` names goes up from node i, and the sum down. Returns per node what it waits for to have the sum.
std::vector<Ids> head_tree(Stages& s, const std::vector<int>& heads, int which, double share, std::vector<Ids> ready) {
  std::vector<int> parents = double_tree_parents(static_cast<int>(heads.size()), which);
  auto children = children_of(parents);
  int root = static_cast<int>(std::find(parents.begin(), parents.end(), -1) - parents.begin());
  std::vector<int> order = from_root(children, root);
  auto head = [&](int i) { return heads[static_cast<std::size_t>(i)]; };
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    int up = parents[static_cast<std::size_t>(*it)];
    if (up < 0) continue;
    ready[static_cast<std::size_t>(up)].push_back(s.hop(Kind::Net, head(*it), head(up), -1, 0, share, 0, ready[static_cast<std::size_t>(*it)]));
  }
  std::vector<Ids> has(heads.size());
  has[static_cast<std::size_t>(root)] = ready[static_cast<std::size_t>(root)];
  for (int i : order)
    for (int c : children[static_cast<std::size_t>(i)])
      has[static_cast<std::size_t>(c)] = {s.hop(Kind::Net, head(i), head(c), -1, 0, share, 0, has[static_cast<std::size_t>(i)])};
  return has;
}

// One tree of a channel: each node's chain with the edges between nodes, up and down. Of a parent, its second child meets the chain's first GPU; the first child the
// second one in a balanced tree.
void chain_tree(Stages& s, const NcclChannels& c, int which, bool balanced, int group, double share) {
  auto nodes = static_cast<int>(c.order.size());
  std::vector<int> parents = double_tree_parents(nodes, which);
  std::vector<int> child = double_tree_children(nodes, which);
  auto children = children_of(parents);
  int root = static_cast<int>(std::find(parents.begin(), parents.end(), -1) - parents.begin());
  std::vector<int> from = from_root(children, root);
  auto order = [&](int i) -> const std::vector<int>& { return c.order[static_cast<std::size_t>(i)]; };
  // Where in its parent's chain a child enters.
  auto place = [&](int i) -> std::size_t {
    return balanced && child[static_cast<std::size_t>(i)] == 0 && order(parents[static_cast<std::size_t>(i)]).size() > 1 ? 1 : 0;
  };
  std::vector<Ids> ready(c.order.size());  // of each node's first GPU
  for (auto it = from.rbegin(); it != from.rend(); ++it) {
    Ids last;
    for (std::size_t i = order(*it).size(); i-- > 0;) {
      for (int k : children[static_cast<std::size_t>(*it)])
        if (place(k) == i) last.push_back(s.hop(Kind::Net, order(k).front(), order(*it)[i], c.nic, group, share, share, ready[static_cast<std::size_t>(k)]));
      if (i > 0) last = {s.hop(Kind::Hop, order(*it)[i], order(*it)[i - 1], -1, group, share, share, last)};
    }
    ready[static_cast<std::size_t>(*it)] = std::move(last);
  }
  std::vector<Ids> has(c.order.size());
  has[static_cast<std::size_t>(root)] = ready[static_cast<std::size_t>(root)];
  for (int i : from) {
    Ids last = has[static_cast<std::size_t>(i)];
    for (std::size_t k = 0; k < order(i).size(); ++k) {
      // The thread block reads a chunk once and writes it to all.
      bool same_pass = false;
      auto give = [&](Kind kind, int to, int nic) {
        std::uint32_t id = s.hop(kind, order(i)[k], to, nic, group + 1, share, share, last, same_pass);
        same_pass = true;
        return id;
      };
      for (int below : children[static_cast<std::size_t>(i)])
        if (place(below) == k) has[static_cast<std::size_t>(below)] = {give(Kind::Net, order(below).front(), c.nic)};
      if (k + 1 < order(i).size()) last = {give(Kind::Hop, order(i)[k + 1], -1)};
    }
  }
}

// Along a node's chain to its head. Returns what the head waits for.
Ids chain_up(Stages& s, const std::vector<int>& order, int group, double share) {
  Ids last;
  for (std::size_t i = order.size() - 1; i > 0; --i) last = {s.hop(Kind::Hop, order[i], order[i - 1], -1, group, share, share, last)};
  return last;
}
void chain_down(Stages& s, const std::vector<int>& order, int group, double share, Ids last) {
  for (std::size_t i = 0; i + 1 < order.size(); ++i) last = {s.hop(Kind::Hop, order[i], order[i + 1], -1, group, share, share, last)};
}

std::vector<NcclStage> trees(const NcclGroup& g) {
  Stages s(g.trees.size() * 4 * g.devices.size());
  bool balanced = g.system.graphs.by_algorithm[1].pattern == kBalancedTree;
  for (std::size_t k = 0; k < g.trees.size(); ++k) {
    const NcclChannels& c = g.trees[k];
    int group = 4 * static_cast<int>(k);
    if (g.nodes.size() > 1) {
      for (int which : {0, 1}) chain_tree(s, c, which, balanced, group + 2 * which, c.share / 2);
    } else {
      chain_down(s, c.order.front(), group + 1, c.share, chain_up(s, c.order.front(), group, c.share));
    }
  }
  return s.take();
}

Ids copy_all(Stages& s, Kind kind, const std::vector<int>& ranks, double share, const Ids& after) {
  Ids out;
  for (int r : ranks) out.push_back(s.add({kind, r, r, -1, 0, share, kind == Kind::CopyOut ? share : 0, 0, 0, after}));
  return out;
}

// Ranks of a node that NVLS makes heads: by the search, as many on every node.
std::vector<std::vector<int>> nvls_heads(const NcclGroup& g) {
  std::size_t least = g.nodes.front().size();
  for (const auto& node : g.nodes) least = std::min(least, node.size());
  std::vector<std::size_t> places;
  for (const auto& order : g.system.graphs.by_algorithm[3].order)
    if (!order.empty() && static_cast<std::size_t>(order.front()) < least && std::find(places.begin(), places.end(), static_cast<std::size_t>(order.front())) == places.end())
      places.push_back(static_cast<std::size_t>(order.front()));
  if (places.empty())
    for (std::size_t i = 0; i < least; ++i) places.push_back(i);
  std::vector<std::vector<int>> out;
  for (const auto& node : g.nodes) {
    out.emplace_back();
    for (std::size_t place : places) out.back().push_back(node[place]);
  }
  return out;
}

std::vector<NcclStage> nvls(const NcclGroup& g, Operation op) {
  Stages s;
  std::vector<std::vector<int>> heads_of = nvls_heads(g);
  for (std::size_t k = 0; k < g.nodes.size(); ++k) {
    const std::vector<int>& node = g.nodes[k];
    auto heads = static_cast<double>(heads_of[k].size());
    double own = 1 / static_cast<double>(node.size());
    Ids in = copy_all(s, Kind::CopyIn, node, op == Operation::AllGather ? own : 1, {});
    Kind kind = op == Operation::AllReduce ? Kind::Switch : op == Operation::AllGather ? Kind::Multicast : Kind::Reduce;
    Ids given;
    if (g.nodes.size() == 1) {
      for (int head : heads_of[k]) given.push_back(s.add({kind, head, head, -1, 0, 1 / heads, op == Operation::AllReduce ? 1 / heads : 0, 0, 0, in}));
    } else {
      for (int head : heads_of[k]) {
        Ids last = in;
        if (op != Operation::AllGather) last = {s.add({Kind::Reduce, head, head, -1, 0, 1 / heads, 0, 0, 0, last})};
        last = {s.add({Kind::Sharp, head, head, -1, 0, 1 / heads, 0, 0, 0, last})};
        if (op != Operation::ReduceScatter) last = {s.add({Kind::Multicast, head, head, -1, 0, 1 / heads, 0, 0, 0, last})};
        given.push_back(last.front());
      }
    }
    copy_all(s, Kind::CopyOut, node, op == Operation::ReduceScatter ? own : 1, given);
  }
  return s.take();
}

std::vector<NcclStage> nvls_tree(const NcclGroup& g) {
  Stages s;
  std::vector<std::vector<int>> heads_of = nvls_heads(g);
  std::size_t heads = heads_of.front().size();
  double part = 1 / static_cast<double>(heads);
  std::vector<std::vector<Ids>> ready(heads, std::vector<Ids>(g.nodes.size()));  // by head and node
  for (std::size_t i = 0; i < g.nodes.size(); ++i) {
    Ids in = copy_all(s, Kind::CopyIn, g.nodes[i], 1, {});
    for (std::size_t h = 0; h < heads; ++h) ready[h][i] = {s.add({Kind::Reduce, heads_of[i][h], heads_of[i][h], -1, 0, part, part, 0, 0, in})};
  }
  std::vector<Ids> given(g.nodes.size());
  for (std::size_t h = 0; h < heads; ++h) {
    std::vector<int> ranks;
    for (const auto& node : heads_of) ranks.push_back(node[h]);
    std::vector<Ids> both(g.nodes.size());
    for (int which : {0, 1}) {
      std::vector<Ids> has = head_tree(s, ranks, which, part / 2, ready[h]);
      for (std::size_t i = 0; i < has.size(); ++i) both[i].insert(both[i].end(), has[i].begin(), has[i].end());
    }
    for (std::size_t i = 0; i < ranks.size(); ++i) given[i].push_back(s.add({Kind::Multicast, ranks[i], ranks[i], -1, 0, part, 0, 0, 0, both[i]}));
  }
  for (std::size_t i = 0; i < g.nodes.size(); ++i) copy_all(s, Kind::CopyOut, g.nodes[i], 1, given[i]);
  return s.take();
}

std::vector<NcclStage> collnet_chain(const NcclGroup& g) {
  Stages s;
  for (std::size_t k = 0; k < g.trees.size(); ++k) {
    const NcclChannels& c = g.trees[k];
    int up = 4 * static_cast<int>(k);
    Ids all;
    for (const auto& order : c.order)
      for (std::uint32_t id : chain_up(s, order, up, c.share)) all.push_back(id);
    for (const auto& order : c.order) chain_down(s, order, up + 1, c.share, {s.hop(Kind::Sharp, order.front(), order.front(), c.nic, up, c.share, 0, all)});
  }
  return s.take();
}

std::vector<NcclStage> collnet_direct(const NcclGroup& g) {
  Stages s;
  Ids all;  // parts at their heads
  for (const auto& node : g.nodes)
    for (int head : node)
      for (int r : node)
        if (r != head) all.push_back(s.hop(Kind::Hop, r, head, -1, 0, 1 / static_cast<double>(node.size()), 0, {}));
  for (const auto& node : g.nodes) {
    double part = 1 / static_cast<double>(node.size());
    for (int head : node) {
      std::uint32_t sum = s.hop(Kind::Sharp, head, head, -1, 0, part, 0, all);
      for (int r : node)
        if (r != head) s.hop(Kind::Hop, head, r, -1, 0, part, 0, {sum});
    }
  }
  return s.take();
}

// All-gather: in each round every rank hands what it has of the blocks that others still lack to the rank a power of two farther, the farthest first; a block is d
// places from its owner after rounds whose distances add up to d < n. Reduce-scatter is the same backwards.
std::vector<NcclStage> pat(const NcclGroup& g, Operation op) {
  int n = g.ranks();
  int far = 1;
  while (far * 2 < n) far *= 2;
  struct Turn {
    int distance;
    int blocks;
  };
  std::vector<Turn> turns;
  std::vector<int> reached{0};
  for (int d = far; d > 0; d /= 2) {
    std::vector<int> more;
    for (int at : reached)
      if (at + d < n) more.push_back(at + d);
    turns.push_back({d, static_cast<int>(more.size())});
    reached.insert(reached.end(), more.begin(), more.end());
  }
  if (op == Operation::ReduceScatter) std::reverse(turns.begin(), turns.end());
  Stages s;
  std::vector<Ids> has(static_cast<std::size_t>(n));
  for (const Turn& t : turns) {
    std::vector<Ids> now = has;
    for (int r = 0; r < n; ++r) {
      int to = op == Operation::ReduceScatter ? (r - t.distance + n) % n : (r + t.distance) % n;
      std::uint32_t id = s.hop(Kind::Net, r, to, -1, 0, static_cast<double>(t.blocks) / n, 0, has[static_cast<std::size_t>(r)]);
      now[static_cast<std::size_t>(to)].push_back(id);
      now[static_cast<std::size_t>(r)].push_back(id);
    }
    // Only the last round's count: it waited for the ones before.
    for (int r = 0; r < n; ++r) {
      Ids& list = now[static_cast<std::size_t>(r)];
      list.erase(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(has[static_cast<std::size_t>(r)].size()));
    }
    has = std::move(now);
  }
  return s.take();
}

}  // namespace

bool is_inside(Kind k) { return k == Kind::Hop || k == Kind::Reduce || k == Kind::Multicast || k == Kind::Switch; }
bool is_between(Kind k) { return k == Kind::Net || k == Kind::Sharp; }

int groups_of(const NcclGroup& g, NcclPipeline p) { return p == NcclPipeline::Tree || p == NcclPipeline::CollnetChain ? 4 * static_cast<int>(g.trees.size()) : 1; }
double group_share(const NcclGroup& g, NcclPipeline p, int group) {
  if (p != NcclPipeline::Tree && p != NcclPipeline::CollnetChain) return 1;
  double halves = p == NcclPipeline::Tree && g.nodes.size() > 1 ? 4 : 2;
  return g.trees[static_cast<std::size_t>(group / 4)].share / halves;
}

std::vector<NcclStage> nccl_stages(const NcclGroup& g, NcclPipeline p, Operation op) {
  switch (p) {
    case NcclPipeline::Tree: return trees(g);
    case NcclPipeline::Nvls: return nvls(g, op);
    case NcclPipeline::NvlsTree: return nvls_tree(g);
    case NcclPipeline::CollnetDirect: return collnet_direct(g);
    case NcclPipeline::CollnetChain: return collnet_chain(g);
    case NcclPipeline::Pat: return pat(g, op);
  }
  return {};
}

void add_stage_load(const NcclGroup& g, const NcclStage& s, topology::Route& route, std::vector<LinkLoad>& out) {
  const topology::Fabric& f = *g.fabric;
  auto device = [&](int rank) { return g.devices[static_cast<std::size_t>(rank)]; };
  switch (s.kind) {
    case Kind::CopyIn:
    case Kind::CopyOut: return;
    case Kind::Hop:
    case Kind::Net:
      find_hop_route(f, g.devices, s.from, s.to, s.nic, route);
      for (topology::LinkId l : route.links) out.push_back({l, 1});
      return;
    case Kind::Sharp: {
      // As far as the first switch; where the plugin's trees lie beyond it is not known.
      int other = g.nodes.front().front();
      if (g.node_of[static_cast<std::size_t>(s.from)] == 0) other = g.nodes.back().front();
      for (bool away : {true, false}) {
        find_hop_route(f, g.devices, away ? s.from : other, away ? other : s.from, s.nic, route);
        bool cable = false;
        for (std::size_t i = 0; i < route.links.size() && !cable; ++i) {
          topology::LinkId l = route.links[away ? i : route.links.size() - 1 - i];
          out.push_back({l, 1});
          cable = f.links()[l].kind == topology::LinkKind::Net;
        }
      }
      return;
    }
    case Kind::Reduce:
    case Kind::Multicast:
    case Kind::Switch: {
      const std::vector<int>& node = g.nodes[static_cast<std::size_t>(g.node_of[static_cast<std::size_t>(s.from)])];
      if (node.size() < 2) return;
      for (std::size_t i = 0; i < node.size(); ++i) {
        int next = node[(i + 1) % node.size()];
        bool head = node[i] == s.from;
        double gives = (s.kind != Kind::Multicast ? 1 : 0) + (s.kind != Kind::Reduce && head ? 1 : 0);
        double takes = (s.kind != Kind::Reduce ? 1 : 0) + (s.kind != Kind::Multicast && head ? 1 : 0);
        f.find_route(device(node[i]), device(next), route);
        if (gives > 0) out.push_back({route.links.front(), gives});
        f.find_route(device(next), device(node[i]), route);
        if (takes > 0) out.push_back({route.links.back(), takes});
      }
      return;
    }
  }
}

std::vector<LinkLoad> fold(const topology::Fabric& f, const std::vector<LinkLoad>& all) {
  using Key = std::tuple<std::int64_t, std::uint8_t, std::int64_t, double>;
  std::set<Key> seen;
  std::vector<LinkLoad> out;
  for (const LinkLoad& l : all) {
    const topology::Link& link = f.links()[l.link];
    if (seen.insert({link.bandwidth.bits_per_s, link.transport, link.staging.bits_per_s, l.per_byte}).second) out.push_back(l);
  }
  return out;
}

namespace {

// Lists of (number, amount), by a number of their own: a list is another one and what follows it. 0 = the empty list.
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
    for (; list != 0; list = links_[list - 1].before) out.emplace_back(links_[list - 1].number, links_[list - 1].amount);
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

// Links, then groups of threads of each rank, then each rank's copies; and which of them are alike.
class Movers {
 public:
  Movers(const NcclGroup& g, NcclPipeline p) : links_(g.fabric->links().size()), ranks_(g.devices.size()), groups_(static_cast<std::size_t>(groups_of(g, p))) {
    using Key = std::tuple<std::int64_t, std::uint8_t, std::int64_t>;
    std::map<Key, std::uint32_t> known;
    alike_.reserve(count());
    for (std::size_t id = 0; id < links_; ++id) {
      const topology::Link& l = g.fabric->links()[id];
      auto [it, fresh] = known.try_emplace({l.bandwidth.bits_per_s, l.transport, l.staging.bits_per_s}, static_cast<std::uint32_t>(list_.size()));
      if (fresh) list_.push_back({NcclMover::What::Link, static_cast<topology::LinkId>(id), 1});
      alike_.push_back(it->second);
    }
    std::map<double, std::uint32_t> shares;
    std::vector<std::uint32_t> of_group;
    for (std::size_t k = 0; k < groups_; ++k) {
      double share = group_share(g, p, static_cast<int>(k));
      auto [it, fresh] = shares.try_emplace(share, static_cast<std::uint32_t>(list_.size()));
      if (fresh) list_.push_back({NcclMover::What::Threads, 0, share});
      of_group.push_back(it->second);
    }
    for (std::size_t r = 0; r < ranks_; ++r) alike_.insert(alike_.end(), of_group.begin(), of_group.end());
    alike_.resize(count(), static_cast<std::uint32_t>(list_.size()));
    list_.push_back({NcclMover::What::Copies, 0, 1});
  }
  std::size_t count() const { return links_ + ranks_ * (groups_ + 1); }
  std::size_t links() const { return links_; }
  std::size_t threads(const NcclStage& s) const { return links_ + static_cast<std::size_t>(s.from) * groups_ + static_cast<std::size_t>(s.group); }
  std::size_t copies(const NcclStage& s) const { return links_ + ranks_ * groups_ + static_cast<std::size_t>(s.from); }
  std::uint32_t alike(std::size_t id) const { return alike_[id]; }
  std::vector<NcclMover> take() { return std::move(list_); }

 private:
  std::size_t links_;
  std::size_t ranks_;
  std::size_t groups_;
  std::vector<std::uint32_t> alike_;
  std::vector<NcclMover> list_;
};

}  // namespace

// Stages of a level that are of one kind, share alike and stand behind as many hops between nodes are one step; it waits for all that one of them waits for.
NcclPipe make_pipe(const NcclGroup& g, NcclPipeline p, Operation op) {
  std::vector<NcclStage> stages = nccl_stages(g, p, op);
  NcclPipe out;
  out.stages = stages.size();
  Movers movers(g, p);
  std::vector<std::vector<std::uint32_t>> levels;
  for (std::uint32_t i = 0; i < stages.size(); ++i) {
    auto level = static_cast<std::size_t>(stages[i].level);
    if (levels.size() <= level) levels.resize(level + 1);
    levels[level].push_back(i);
  }
  out.levels = static_cast<int>(levels.size());
  Lists lists;
  std::vector<std::uint32_t> work(movers.count(), 0);  // of each: steps, and bytes in the level of each
  std::vector<double> total(movers.count(), 0);
  std::vector<double> now(movers.count(), 0);  // in this level
  std::vector<std::uint32_t> step_of(stages.size());
  std::vector<std::int64_t> on_links(stages.size(), 0);
  topology::Route route;
  std::vector<LinkLoad> links;
  struct Move {
    std::size_t id;
    double bytes;
    bool counts = true;
  };
  std::vector<Move> moves;         // of this level's stages, one behind another
  std::vector<std::size_t> first;  // of each stage's
  NcclStep step;
  for (const auto& level : levels) {
    moves.clear();
    first.clear();
    for (std::uint32_t i : level) {
      const NcclStage& s = stages[i];
      first.push_back(moves.size());
      links.clear();
      add_stage_load(g, s, route, links);
      for (const LinkLoad& l : links) moves.push_back({l.link, l.per_byte * s.share});
      if (s.blocks > 0) moves.push_back({movers.threads(s), s.blocks, !s.same_pass});
      if (s.kind == Kind::CopyIn) moves.push_back({movers.copies(s), s.share});
    }
    first.push_back(moves.size());
    for (const Move& m : moves) now[m.id] += m.counts ? m.bytes : 0;
    using Key = std::tuple<int, std::uint32_t, int, std::int64_t>;  // kind, load, hops between nodes, time on links on the way here
    std::map<Key, std::uint32_t> steps;
    auto last = steps.end();
    for (std::size_t k = 0; k < level.size(); ++k) {
      const NcclStage& s = stages[level[k]];
      step.load.clear();
      for (std::size_t m = first[k]; m < first[k + 1]; ++m) {
        std::uint32_t alike = movers.alike(moves[m].id);
        auto same = std::find_if(step.load.begin(), step.load.end(), [&](const auto& l) { return l.first == alike; });
        if (same == step.load.end()) step.load.emplace_back(alike, now[moves[m].id]);
        else same->second = std::max(same->second, now[moves[m].id]);
      }
      std::sort(step.load.begin(), step.load.end());
      std::uint32_t load = 0;
      for (auto [mover, bytes] : step.load) load = lists.append(load, mover, bytes);
      int kind = (is_inside(s.kind) ? 1 : 0) + (is_between(s.kind) ? 2 : 0) + (s.kind == Kind::Hop ? 4 : 0);
      bool fresh = false;
      double here = 0;
      for (std::size_t m = first[k]; m < first[k + 1]; ++m)
        if (moves[m].id < movers.links()) here = std::max(here, now[moves[m].id] / g.fabric->links()[moves[m].id].bandwidth.bytes_per_ps());
      std::int64_t before = 0;
      for (std::uint32_t a : s.after) before = std::max(before, on_links[a]);
      on_links[level[k]] = before + static_cast<std::int64_t>(here * 1e3);
      Key key{kind, load, s.crossings, before};
      if (last == steps.end() || last->first != key) std::tie(last, fresh) = steps.try_emplace(key, static_cast<std::uint32_t>(out.steps.size()));
      if (fresh) out.steps.push_back({is_inside(s.kind), is_between(s.kind), s.kind == Kind::Hop, {}, step.load});
      step_of[level[k]] = last->second;
      std::vector<std::uint32_t>& after = out.steps[last->second].after;
      for (std::uint32_t a : s.after)
        if (std::find(after.begin(), after.end(), step_of[a]) == after.end()) after.push_back(step_of[a]);
    }
    for (std::size_t k = 0; k < level.size(); ++k)
      for (std::size_t m = first[k]; m < first[k + 1]; ++m) {
        std::size_t id = moves[m].id;
        if (now[id] <= 0) continue;
        work[id] = lists.append(work[id], step_of[level[k]], now[id]);
        total[id] += now[id];
        now[id] = 0;
      }
  }
  std::set<std::pair<std::uint32_t, std::uint32_t>> seen;
  for (std::size_t id = 0; id < movers.count(); ++id) {
    if (work[id] == 0) continue;
    if (id < movers.links()) out.every.push_back({static_cast<topology::LinkId>(id), total[id]});
    if (seen.insert({movers.alike(id), work[id]}).second) out.uses.push_back({movers.alike(id), static_cast<topology::LinkId>(id < movers.links() ? id : 0), lists.of(work[id]), total[id]});
  }
  out.movers = movers.take();
  return out;
}

const NcclPipe& pipe_of(const NcclGroup& g, NcclPipeline p, Operation op, NcclPipe& own) {
  if (p != NcclPipeline::Nvls || op == Operation::AllReduce) return g.pipe(p);
  return own = make_pipe(g, p, op);
}

}  // namespace ddpsim::collective
