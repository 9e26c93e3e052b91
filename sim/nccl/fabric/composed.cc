//   stage = max over sub-communicators of (base + steps + fill) + max(their transfers alone, sum of
//     their bytes on a link / its rate)
#include "sim/nccl/fabric/composed.h"

#include <algorithm>
#include <map>

#include "sim/nccl/fabric/terms.h"
#include "sim/nccl/nth.h"
#include "sim/nccl/search.h"
#include "sim/topology/hop_routes.h"

namespace ddpsim::nccl {
namespace {

using Groups = std::vector<std::vector<DeviceId>>;

std::string label(Operation op, const Choice& c) {
  return std::string(name_of(op)) + " " + name_of(c.algorithm) + "/" + name_of(c.protocol);
}

// One call by all groups at once. false: the settings leave nothing; `why_not` says so.
bool add_stage(const Group& whole, const std::vector<Group>& groups, const Profile& p, Level level,
               Operation op, Bytes size, Composed& out) {
  ComposedStage stage;
  stage.groups = static_cast<int>(groups.size());
  stage.ranks = groups.front().ranks();
  stage.bytes = size;
  Duration latency;  // base, steps and fill
  Duration fill;     // ... of the group whose they are
  std::map<topology::LinkId, double> bytes;
  for (const Group& g : groups) {
    auto choice = choose(g, op, size.count);
    if (!choice) {
      out.why_not = std::string("NCCL_ALGO and NCCL_PROTO leave nothing for ") + name_of(op) +
                    " on " + std::to_string(g.ranks()) + " ranks";
      return false;
    }
    OperationTime price = time_of(g, p, level, op, *choice, size);
    if (stage.what.empty()) stage.what = label(op, *choice);
    if (Duration own = price.base + price.steps + price.fill; own > latency) {
      latency = own;
      fill = price.fill;
    }
    if (price.transfer > stage.transfer) {
      stage.transfer = price.transfer;
      stage.limited_by = price.limited_by;
    }
    Pipe own;
    for (const LinkLoad& l :
         price.pipeline ? pipe_of(g, *price.pipeline, op, own).every : g.every_ring)
      bytes[l.link] += l.per_byte * price.per_byte * static_cast<double>(size.count);
  }
  std::vector<LinkLoad> loads;
  for (const auto& [link, b] : bytes) loads.push_back({link, b});
  // What threads copy is in each communicator's own price.
  Bottleneck shared = bottleneck(whole, p, level, loads, 1, 1, false);
  Duration together = to_duration(shared.time);
  if (together > stage.transfer) {
    stage.transfer = together;
    stage.limited_by = whole.fabric->link_name(shared.link);
  }
  if (latency > stage.transfer)
    stage.limited_by =
        fill > latency - fill ? "filling the pipeline" : "latency";  // as OperationTime's
  stage.time = latency + stage.transfer;
  out.stages.push_back(std::move(stage));
  return true;
}

std::vector<Group> communicators(const Group& whole, const Groups& groups) {
  std::vector<Group> out;
  NewestSearches newest;
  const Searches searches = newest.view();
  for (const std::vector<DeviceId>& devices : groups)
    out.push_back(make_group(*whole.fabric, devices, whole.settings,
                             whole.system.compute_capability, nullptr, &searches));
  return out;
}

Composed two_level(const Group& g, const Groups& rows, std::string name, const Profile& p,
                   Level level, Bytes size) {
  Composed out;
  out.name = std::move(name);
  out.sub_communicators = true;
  std::size_t width = rows.front().size();
  if (std::any_of(rows.begin(), rows.end(), [&](const auto& r) { return r.size() != width; })) {
    out.why_not = "its groups have different numbers of ranks";
    return out;
  }
  Groups columns(width);
  for (const std::vector<DeviceId>& row : rows)
    for (std::size_t i = 0; i < width; ++i) columns[i].push_back(row[i]);
  std::vector<Group> inside = communicators(g, rows);
  std::vector<Group> across = communicators(g, columns);
  std::int64_t places = width;
  Bytes part{(size.count + places - 1) / places};
  bool possible = add_stage(g, inside, p, level, Operation::ReduceScatter, size, out) &&
                  add_stage(g, across, p, level, Operation::AllReduce, part, out) &&
                  add_stage(g, inside, p, level, Operation::AllGather, size, out);
  if (!possible) out.stages.clear();
  return out;
}

Composed direct(const Group& g, const Profile& p, Level level, Bytes size, Duration sum) {
  Composed out;
  out.name = "direct";
  if (g.ranks() > kMostP2pRanks) {
    out.why_not = "has more than " + std::to_string(kMostP2pRanks) +
                  " ranks, the most whose routes are added up";
    return out;
  }
  OperationTime price = p2p_time(make_p2p(g, Operation::AllToAll), p, level, size).price;
  ComposedStage exchange{"all_to_all send/recv", 1, g.ranks(), size, price.total, price.transfer,
                         price.limited_by};
  out.stages = {exchange, {"sum", g.ranks(), 1, size, sum, sum, "memory"}, exchange};
  return out;
}

Groups devices_of(const Group& g, const std::vector<std::vector<int>>& ranks) {
  Groups out;
  for (const auto& group : ranks) {
    out.emplace_back();
    for (int r : group) out.back().push_back(nth(g.devices, r));
  }
  return out;
}

}  // namespace

std::vector<Composed> composed_all_reduces(const Group& g, const Profile& p, Level level,
                                           Bytes size, Duration slice_sum) {
  std::vector<Composed> out;
  Groups hosts = devices_of(g, ranks_by_host(*g.fabric, g.devices));
  if (hosts.size() < 2 ||
      std::all_of(hosts.begin(), hosts.end(), [](const auto& h) { return h.size() < 2; }))
    return out;
  out.push_back(two_level(g, hosts, "two_level", p, level, size));
  if (g.nodes.size() > 1 && g.nodes.size() != hosts.size())
    out.push_back(
        two_level(g, devices_of(g, g.nodes), "two_level by NVLink domain", p, level, size));
  out.push_back(direct(g, p, level, size, slice_sum));
  double n = g.ranks();
  for (Composed& c : out) {
    const ComposedStage* longest = nullptr;
    for (const ComposedStage& s : c.stages) {
      c.total = c.total + s.time;
      if (longest == nullptr || s.time > longest->time) longest = &s;
    }
    if (longest == nullptr) continue;
    c.limited_by = longest->limited_by;
    c.bus_bytes_per_s = size * 2 * (n - 1) / n / seconds(c.total);
  }
  return out;
}

}  // namespace ddpsim::nccl
