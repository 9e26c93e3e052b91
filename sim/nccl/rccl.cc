// The rings are not RCCL's own lists but others with the same property, which is all that a price
// depends on: each link, each way, in the same number of rings. Of eight GPUs one stands still, the
// others are the hours of a clock of seven: ring i goes i, i+1, i-1, i+2, ... to i-3 and back by
// the one that stands. Its six steps on the clock are of every length once each way, so seven
// such rings cross every pair twice.
#include "sim/nccl/rccl.h"

namespace ddpsim::nccl {
namespace {

constexpr int kGpus = 8;

bool all_joined(const Node& node) {
  if (node.gpus != kGpus) return false;
  std::size_t n = kGpus;
  for (std::size_t a = 0; a < n; ++a)
    for (std::size_t b = 0; b < n; ++b)
      if (a != b &&
          (node.gpu_path[a * n + b] != PathType::Nvl || node.gpu_route[a * n + b].size() != 1))
        return false;
  return true;
}

std::vector<std::vector<int>> seven_rings_and_their_ways_back() {
  constexpr int kHours = kGpus - 1;
  std::vector<std::vector<int>> out;
  for (int i = 0; i < kHours; ++i) {
    std::vector<int> ring{kHours, i};
    for (int k = 1; k <= kHours / 2; ++k) {
      ring.push_back((i + k) % kHours);
      ring.push_back((i - k + kHours) % kHours);
    }
    out.push_back(ring);
    out.emplace_back(ring.rbegin(), ring.rend());
  }
  return out;
}

}  // namespace

std::optional<Graphs> rccl_graphs(const Node& node, int nodes) {
  if (nodes > 1 || !all_joined(node)) return std::nullopt;
  ChannelGraph ring;
  for (int twice = 0; twice < 2; ++twice)
    for (const std::vector<int>& order : seven_rings_and_their_ways_back())
      ring.order.push_back(order);
  ring.channels = static_cast<int>(ring.order.size());
  const GBps link = node.links[node.gpu_route[1].front()];
  ring.bw_intra = ring.bw_inter = bytes_per_s((kGpus - 1) * link) / ring.channels;
  ring.type_intra = PathType::Nvl;
  ring.pattern = Pattern::Ring;
  ring.same_channels = false;
  Graphs out;
  out[GraphId::Ring] = ring;
  out[GraphId::Tree] = ring;
  out[GraphId::Tree].pattern = Pattern::BalancedTree;
  return out;
}

bool rccl_offers(Algorithm a, Protocol p, int nodes) {
  return p != Protocol::Ll128 && !(a == Algorithm::Tree && p == Protocol::Simple && nodes == 1);
}

}  // namespace ddpsim::nccl
