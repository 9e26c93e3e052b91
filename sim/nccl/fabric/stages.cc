#include "sim/nccl/fabric/stages.h"

#include <algorithm>

#include "sim/nccl/double_tree.h"
#include "sim/nccl/fabric/group.h"
#include "sim/nccl/fabric/peers.h"
#include "sim/nccl/nth.h"
#include "sim/topology/hop_routes.h"

namespace ddpsim::nccl {
namespace {

constexpr int kGroupsOfChannel = 4;  // each tree, up and down

using Kind = Stage::Kind;
using Ids = std::vector<std::uint32_t>;

class StageList {
 public:
  explicit StageList(std::size_t about = 0) { out_.list.reserve(about); }
  std::uint32_t add(Stage s, const Ids& after) {
    std::vector<std::uint32_t>& all = out_.after;
    s.after_begin = static_cast<std::uint32_t>(all.size());
    all.insert(all.end(), after.begin(), after.end());
    auto own = all.begin() + s.after_begin;
    std::sort(own, all.end());
    all.erase(std::unique(own, all.end()), all.end());
    s.after_end = static_cast<std::uint32_t>(all.size());
    for (std::uint32_t i = s.after_begin; i < s.after_end; ++i) {
      s.level = std::max(s.level, out_.list[all[i]].level + 1);
      s.crossings = std::max(s.crossings, out_.list[all[i]].crossings);
    }
    if (is_between(s.kind)) ++s.crossings;
    out_.list.push_back(s);
    return static_cast<std::uint32_t>(out_.list.size() - 1);
  }
  // A hop that `from`'s thread blocks feed.
  std::uint32_t hop(Kind kind, int from, int to, int group, double share, double blocks,
                    const Ids& after, bool same_pass = false) {
    return add({kind, from, to, -1, group, share, blocks, 0, 0, same_pass}, after);
  }
  Stages take() {
    out_.channels.emplace_back();
    return std::move(out_);
  }
  // What is listed is the first channel of the group's trees; the others go the same way, by other
  // GPUs.
  Stages take_for_all(const Group& g) {
    for (const AlikeChannels& c : g.trees) {
      Stages::Channel channel{std::vector<int>(g.devices.size()), c.nic, c.share};
      for (std::size_t i = 0; i < c.order.size(); ++i)
        for (std::size_t k = 0; k < c.order[i].size(); ++k)
          nth(channel.ranks, g.trees.front().order[i][k]) = c.order[i][k];
      out_.channels.push_back(std::move(channel));
    }
    return std::move(out_);
  }

 private:
  Stages out_;
};

// One of the two trees over nodes.
struct NodeTree {
  std::vector<int> parents;
  std::vector<std::vector<int>> children;
  std::vector<int> from_root;  // parents before their children
};
NodeTree node_tree(std::size_t nodes, int which) {
  NodeTree t{double_tree_parents(static_cast<int>(nodes), which), {}, {}};
  t.children = children_of(t.parents);
  t.from_root.push_back(
      static_cast<int>(std::find(t.parents.begin(), t.parents.end(), -1) - t.parents.begin()));
  for (std::size_t i = 0; i < t.from_root.size(); ++i)
    for (int c : nth(t.children, t.from_root[i])) t.from_root.push_back(c);
  return t;
}

// One tree over NVLS's heads (a rank of each node): what `ready[i]` names goes up from node i, and
// the sum down. Returns per node what it waits for to have the sum.
std::vector<Ids> head_tree(StageList& s, const std::vector<int>& heads, int which, double share,
                           std::vector<Ids> ready) {
  NodeTree t = node_tree(heads.size(), which);
  auto head = [&](int i) { return nth(heads, i); };
  for (auto it = t.from_root.rbegin(); it != t.from_root.rend(); ++it) {
    int up = nth(t.parents, *it);
    if (up < 0) continue;
    nth(ready, up).push_back(s.hop(Kind::Net, head(*it), head(up), 0, share, 0, nth(ready, *it)));
  }
  std::vector<Ids> has(heads.size());
  std::size_t root = t.from_root.front();
  has[root] = ready[root];
  for (int i : t.from_root)
    for (int c : nth(t.children, i))
      nth(has, c) = {s.hop(Kind::Net, head(i), head(c), 0, share, 0, nth(has, i))};
  return has;
}

// One tree of a channel: each node's chain with the edges between nodes, up and down. Of a parent,
// its second child meets the chain's first GPU; the first child the second one in a balanced tree.
void chain_tree(StageList& s, const AlikeChannels& c, int which, bool balanced, int group,
                double share) {
  NodeTree t = node_tree(c.order.size(), which);
  std::vector<int> child = double_tree_children(static_cast<int>(c.order.size()), which);
  auto order = [&](int i) -> const std::vector<int>& { return nth(c.order, i); };
  // Where in its parent's chain a child enters.
  auto place = [&](int i) -> std::size_t {
    return balanced && nth(child, i) == 0 && order(nth(t.parents, i)).size() > 1 ? 1 : 0;
  };
  std::vector<Ids> ready(c.order.size());  // of each node's first GPU
  for (auto it = t.from_root.rbegin(); it != t.from_root.rend(); ++it) {
    Ids last;
    for (std::size_t i = order(*it).size(); i-- > 0;) {
      for (int k : nth(t.children, *it))
        if (place(k) == i)
          last.push_back(s.hop(Kind::Net, order(k).front(), order(*it)[i], group, share, share,
                               nth(ready, k)));
      if (i > 0)
        last = {s.hop(Kind::Hop, order(*it)[i], order(*it)[i - 1], group, share, share, last)};
    }
    nth(ready, *it) = std::move(last);
  }
  std::vector<Ids> has(c.order.size());
  std::size_t root = t.from_root.front();
  has[root] = ready[root];
  for (int i : t.from_root) {
    Ids last = nth(has, i);
    for (std::size_t k = 0; k < order(i).size(); ++k) {
      // The thread block reads a chunk once and writes it to all.
      bool same_pass = false;
      auto give = [&](Kind kind, int to) {
        std::uint32_t id = s.hop(kind, order(i)[k], to, group + 1, share, share, last, same_pass);
        same_pass = true;
        return id;
      };
      for (int below : nth(t.children, i))
        if (place(below) == k) nth(has, below) = {give(Kind::Net, order(below).front())};
      if (k + 1 < order(i).size()) last = {give(Kind::Hop, order(i)[k + 1])};
    }
  }
}

// Along a node's chain to its head. Returns what the head waits for.
Ids chain_up(StageList& s, const std::vector<int>& order, int group, double share) {
  Ids last;
  for (std::size_t i = order.size() - 1; i > 0; --i)
    last = {s.hop(Kind::Hop, order[i], order[i - 1], group, share, share, last)};
  return last;
}
void chain_down(StageList& s, const std::vector<int>& order, int group, double share, Ids last) {
  for (std::size_t i = 0; i + 1 < order.size(); ++i)
    last = {s.hop(Kind::Hop, order[i], order[i + 1], group, share, share, last)};
}

Stages trees(const Group& g) {
  StageList s(4 * g.devices.size());
  bool balanced = g.system.graphs[GraphId::Tree].pattern == Pattern::BalancedTree;
  const AlikeChannels& c = g.trees.front();
  if (g.nodes.size() > 1) {
    for (int which : {0, 1}) chain_tree(s, c, which, balanced, 2 * which, 0.5);
  } else {
    chain_down(s, c.order.front(), 1, 1, chain_up(s, c.order.front(), 0, 1));
  }
  return s.take_for_all(g);
}

Ids copy_all(StageList& s, Kind kind, const std::vector<int>& ranks, double share,
             const Ids& after) {
  Ids out;
  for (int r : ranks)
    out.push_back(s.add({kind, r, r, -1, 0, share, kind == Kind::CopyOut ? share : 0}, after));
  return out;
}

// Ranks of a node that NVLS makes heads: by the search, as many on every node.
std::vector<std::vector<int>> nvls_heads(const Group& g) {
  std::size_t least = g.nodes.front().size();
  for (const auto& node : g.nodes) least = std::min(least, node.size());
  std::vector<std::size_t> places;
  for (const auto& order : g.system.graphs[GraphId::Nvls].order)
    if (!order.empty() && static_cast<std::size_t>(order.front()) < least &&
        std::find(places.begin(), places.end(), order.front()) == places.end())
      places.push_back(order.front());
  if (places.empty())
    for (std::size_t i = 0; i < least; ++i) places.push_back(i);
  std::vector<std::vector<int>> out;
  for (const auto& node : g.nodes) {
    out.emplace_back();
    for (std::size_t place : places) out.back().push_back(node[place]);
  }
  return out;
}

Stages nvls(const Group& g, Operation op) {
  StageList s;
  std::vector<std::vector<int>> heads_of = nvls_heads(g);
  for (std::size_t k = 0; k < g.nodes.size(); ++k) {
    const std::vector<int>& node = g.nodes[k];
    auto heads = static_cast<double>(heads_of[k].size());
    double own = 1 / static_cast<double>(node.size());
    Ids in = copy_all(s, Kind::CopyIn, node, op == Operation::AllGather ? own : 1, {});
    Kind kind = op == Operation::AllReduce   ? Kind::Switch
                : op == Operation::AllGather ? Kind::Multicast
                                             : Kind::Reduce;
    Ids given;
    if (g.nodes.size() == 1) {
      for (int head : heads_of[k])
        given.push_back(s.add(
            {kind, head, head, -1, 0, 1 / heads, op == Operation::AllReduce ? 1 / heads : 0}, in));
    } else {
      for (int head : heads_of[k]) {
        Ids last = in;
        if (op != Operation::AllGather)
          last = {s.add({Kind::Reduce, head, head, -1, 0, 1 / heads, 0}, last)};
        last = {s.add({Kind::Sharp, head, head, -1, 0, 1 / heads, 0}, last)};
        if (op != Operation::ReduceScatter)
          last = {s.add({Kind::Multicast, head, head, -1, 0, 1 / heads, 0}, last)};
        given.push_back(last.front());
      }
    }
    copy_all(s, Kind::CopyOut, node, op == Operation::ReduceScatter ? own : 1, given);
  }
  return s.take();
}

Stages nvls_tree(const Group& g) {
  StageList s(8 * g.devices.size());
  std::vector<std::vector<int>> heads_of = nvls_heads(g);
  std::size_t heads = heads_of.front().size();
  double part = 1 / static_cast<double>(heads);
  std::vector<std::vector<Ids>> ready(heads, std::vector<Ids>(g.nodes.size()));  // by head and node
  for (std::size_t i = 0; i < g.nodes.size(); ++i) {
    Ids in = copy_all(s, Kind::CopyIn, g.nodes[i], 1, {});
    for (std::size_t h = 0; h < heads; ++h)
      ready[h][i] = {s.add({Kind::Reduce, heads_of[i][h], heads_of[i][h], -1, 0, part, part}, in)};
  }
  std::vector<Ids> given(g.nodes.size());
  for (std::size_t h = 0; h < heads; ++h) {
    std::vector<int> ranks;
    for (const auto& node : heads_of) ranks.push_back(node[h]);
    std::vector<Ids> both(g.nodes.size());
    for (int which : {0, 1}) {
      std::vector<Ids> has = head_tree(s, ranks, which, part / 2, ready[h]);
      for (std::size_t i = 0; i < has.size(); ++i)
        both[i].insert(both[i].end(), has[i].begin(), has[i].end());
    }
    for (std::size_t i = 0; i < ranks.size(); ++i)
      given[i].push_back(s.add({Kind::Multicast, ranks[i], ranks[i], -1, 0, part, 0}, both[i]));
  }
  for (std::size_t i = 0; i < g.nodes.size(); ++i)
    copy_all(s, Kind::CopyOut, g.nodes[i], 1, given[i]);
  return s.take();
}

Stages collnet_chain(const Group& g) {
  StageList s;
  const AlikeChannels& c = g.trees.front();
  Ids all;
  for (const auto& order : c.order)
    for (std::uint32_t id : chain_up(s, order, 0, 1)) all.push_back(id);
  for (const auto& order : c.order)
    chain_down(s, order, 1, 1, {s.hop(Kind::Sharp, order.front(), order.front(), 0, 1, 0, all)});
  return s.take_for_all(g);
}

Stages collnet_direct(const Group& g) {
  StageList s;
  Ids all;  // parts at their heads
  for (const auto& node : g.nodes)
    for (int head : node)
      for (int r : node)
        if (r != head)
          all.push_back(s.hop(Kind::Hop, r, head, 0, 1 / static_cast<double>(node.size()), 0, {}));
  for (const auto& node : g.nodes) {
    double part = 1 / static_cast<double>(node.size());
    for (int head : node) {
      std::uint32_t sum = s.hop(Kind::Sharp, head, head, 0, part, 0, all);
      for (int r : node)
        if (r != head) s.hop(Kind::Hop, head, r, 0, part, 0, {sum});
    }
  }
  return s.take();
}

// All-gather: in each round every rank hands what it has of the blocks that others still lack to
// the rank a power of two farther, the farthest first; a block is d places from its owner after
// rounds whose distances add up to d < n. Reduce-scatter is the same backwards.
Stages pat(const Group& g, Operation op) {
  int n = g.ranks();
  int far = 1;
  while (far * 2 < n) far *= 2;
  struct Round {
    int distance;
    int blocks;
  };
  std::vector<Round> rounds;
  std::vector<int> reached{0};
  for (int d = far; d > 0; d /= 2) {
    std::vector<int> more;
    for (int at : reached)
      if (at + d < n) more.push_back(at + d);
    rounds.push_back({d, static_cast<int>(more.size())});
    reached.insert(reached.end(), more.begin(), more.end());
  }
  if (op == Operation::ReduceScatter) std::reverse(rounds.begin(), rounds.end());
  StageList s;
  std::vector<Ids> has(n);
  for (const Round& t : rounds) {
    std::vector<Ids> now = has;
    for (int r = 0; r < n; ++r) {
      int to = op == Operation::ReduceScatter ? (r - t.distance + n) % n : (r + t.distance) % n;
      std::uint32_t id =
          s.hop(Kind::Net, r, to, 0, static_cast<double>(t.blocks) / n, 0, nth(has, r));
      nth(now, to).push_back(id);
      nth(now, r).push_back(id);
    }
    // Only the last round's count: it waited for the ones before.
    for (int r = 0; r < n; ++r) {
      Ids& list = nth(now, r);
      list.erase(list.begin(), list.begin() + nth(has, r).size());
    }
    has = std::move(now);
  }
  return s.take();
}

}  // namespace

bool is_inside(Kind k) {
  return k == Kind::Hop || k == Kind::Reduce || k == Kind::Multicast || k == Kind::Switch;
}
bool is_between(Kind k) {
  return k == Kind::Net || k == Kind::Sharp;
}

int groups_of(const Group& g, Pipeline p) {
  return p == Pipeline::Tree || p == Pipeline::CollnetChain
             ? kGroupsOfChannel * static_cast<int>(g.trees.size())
             : 1;
}
double group_share(const Group& g, Pipeline p, int group) {
  if (p != Pipeline::Tree && p != Pipeline::CollnetChain) return 1;
  double halves = p == Pipeline::Tree && g.nodes.size() > 1 ? 4 : 2;
  return nth(g.trees, group / kGroupsOfChannel).share / halves;
}

Stages stages_of(const Group& g, Pipeline p, Operation op) {
  switch (p) {
    case Pipeline::Tree:
      return trees(g);
    case Pipeline::Nvls:
      return nvls(g, op);
    case Pipeline::NvlsTree:
      return nvls_tree(g);
    case Pipeline::CollnetDirect:
      return collnet_direct(g);
    case Pipeline::CollnetChain:
      return collnet_chain(g);
    case Pipeline::Pat:
      return pat(g, op);
  }
  return {};
}

Stage Stages::at(std::size_t channel, std::size_t i) const {
  Stage s = list[i];
  const Channel& c = channels[channel];
  if (!c.ranks.empty()) {
    s.from = nth(c.ranks, s.from);
    s.to = nth(c.ranks, s.to);
  }
  if (is_between(s.kind)) s.nic = c.nic;
  s.group += kGroupsOfChannel * static_cast<int>(channel);
  s.share *= c.share;
  s.blocks *= c.share;
  return s;
}

void add_stage_load(const Group& g, const Stage& s, std::vector<topology::LinkId>& route,
                    std::vector<LinkLoad>& out) {
  const topology::Fabric& f = *g.fabric;
  auto device = [&](int rank) { return nth(g.devices, rank); };
  switch (s.kind) {
    case Kind::CopyIn:
    case Kind::CopyOut:
      return;
    case Kind::Hop:
    case Kind::Net:
      find_hop_links(g, s.from, s.to, s.nic, route);
      for (topology::LinkId l : route) out.push_back({l, 1});
      return;
    case Kind::Sharp: {
      // As far as the first switch; where the plugin's trees lie beyond it is not known.
      int other = g.nodes.front().front();
      if (nth(g.node_of, s.from) == 0) other = g.nodes.back().front();
      for (bool away : {true, false}) {
        find_hop_links(f, g.devices, away ? s.from : other, away ? other : s.from, s.nic, route);
        bool cable = false;
        for (std::size_t i = 0; i < route.size() && !cable; ++i) {
          topology::LinkId l = route[away ? i : route.size() - 1 - i];
          out.push_back({l, 1});
          cable = f.links()[l].kind == topology::LinkKind::Net;
        }
      }
      return;
    }
    case Kind::Reduce:
    case Kind::Multicast:
    case Kind::Switch: {
      const std::vector<int>& node = nth(g.nodes, nth(g.node_of, s.from));
      if (node.size() < 2) return;
      for (std::size_t i = 0; i < node.size(); ++i) {
        int next = node[(i + 1) % node.size()];
        bool head = node[i] == s.from;
        double gives =
            (s.kind != Kind::Multicast ? 1 : 0) + (s.kind != Kind::Reduce && head ? 1 : 0);
        double takes =
            (s.kind != Kind::Reduce ? 1 : 0) + (s.kind != Kind::Multicast && head ? 1 : 0);
        f.find_links(device(node[i]), device(next), route);
        if (gives > 0) out.push_back({route.front(), gives});
        f.find_links(device(next), device(node[i]), route);
        if (takes > 0) out.push_back({route.back(), takes});
      }
      return;
    }
  }
}

}  // namespace ddpsim::nccl
