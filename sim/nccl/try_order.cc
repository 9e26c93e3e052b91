#include "sim/nccl/try_order.h"

#include <algorithm>
#include <tuple>

namespace ddpsim::nccl {

// A tree goes out and in by its NIC: both ways have to be near enough.
bool TryOrder::near(int gpu, int nic) const {
  std::size_t at = node_.at(gpu, nic);
  return node_.nic_back_path[at] <= wanted_.limits.inter &&
         (ring() || node_.nic_path[at] <= wanted_.limits.inter);
}

std::vector<Option> TryOrder::starts(const std::vector<Channel>& channels,
                                     const Capacity& capacity) const {
  std::vector<Option> out;
  int n = node_.gpus;
  std::size_t k = channels.size();
  if (!wanted_.network) {
    // Rings go through every GPU: where one begins does not matter.
    auto gpus = static_cast<std::size_t>(n);
    for (std::size_t i = 0; i < (ring() ? 1 : gpus); ++i)
      out.push_back({static_cast<int>((k + i) % gpus), -1});
    return out;
  }
  using Key = std::tuple<double, PathType, int, std::size_t, int>;
  std::vector<Key> starts;
  for (int nic = 0; nic < node_.nics; ++nic)
    for (int g = 0; g < n; ++g)
      starts.emplace_back(-capacity.left_of_nic(nic), node_.nic_back_path[node_.at(g, nic)], nic,
                          (static_cast<std::size_t>(g + n) - k % static_cast<std::size_t>(n)) %
                              static_cast<std::size_t>(n),
                          g);
  std::sort(starts.begin(), starts.end());
  for (const Key& key : starts) {
    int nic = std::get<2>(key);
    int gpu = std::get<4>(key);
    if (!near(gpu, nic) || (wanted_.limits.same && k > 0 && gpu != channels.front().order.front()))
      continue;
    if (wanted_.limits.cross == 2 && k % 2 == 1 && nic != channels.back().nics[1]) continue;
    out.push_back({gpu, nic});
  }
  return out;
}

std::vector<Option> TryOrder::next_gpus(const Channel& c, const std::vector<Channel>& channels,
                                        const std::vector<char>& visited,
                                        const Capacity& capacity) const {
  int n = node_.gpus;
  int last = c.order.back();
  // A ring has to come back to its NIC: GPUs far from it first, the last one near it
  // (ncclTopoSearchNextGpuSort). Then near GPUs first, then where most is left, then in order of
  // number, going round from the last. A balanced tree's second GPU is to be near the NIC too. On
  // an NVSwitch a channel goes to a neighbour only, a plain tree to the next one.
  bool second = wanted_.shape == Shape::Balanced && c.order.size() == 1;
  bool comes_back = wanted_.network && ((ring() && wanted_.limits.cross == 0) || second);
  bool ends = second || static_cast<int>(c.order.size()) + 1 == n;
  std::vector<std::tuple<int, PathType, double, int, int>> next;
  for (int d = 1; d < n; d += node_.nvswitch && wanted_.shape == Shape::Plain ? n
                              : node_.nvswitch                                ? std::max(1, n - 2)
                                                                              : 1) {
    int g = (last + d) % n;
    if (nth(visited, g) || path(last, g) > wanted_.limits.intra) continue;
    if (second && !near(g, c.nics[1])) continue;
    if (wanted_.limits.same && !channels.empty() && g != channels.front().order[c.order.size()])
      continue;
    int way = comes_back ? static_cast<int>(node_.nic_path[node_.at(g, c.nics[1])]) : 0;
    next.emplace_back(ends ? way : -way, path(last, g), -capacity.left_between(last, g), d, g);
  }
  std::sort(next.begin(), next.end());
  std::vector<Option> out;
  for (const auto& key : next) out.push_back({std::get<4>(key), -1});
  return out;
}

std::vector<Option> TryOrder::crossings(const Channel& c,
                                        const std::vector<Channel>& channels) const {
  std::vector<std::pair<PathType, int>> ways;
  for (int nic = 0; nic < node_.nics; ++nic)
    if (PathType path = node_.nic_path[node_.at(c.order.back(), nic)]; path <= wanted_.limits.inter)
      ways.emplace_back(path, nic);
  std::sort(ways.begin(), ways.end());
  std::vector<Option> out;
  for (auto [type, nic] : ways)
    if (wanted_.limits.cross != 2 || channels.size() % 2 == 0 || nic == channels.back().nics[0])
      out.push_back({-1, nic});
  return out;
}

}  // namespace ddpsim::nccl
