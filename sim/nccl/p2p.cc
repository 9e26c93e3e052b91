#include "sim/nccl/p2p.h"

#include <algorithm>
#include <numeric>

namespace ddpsim::nccl {
namespace {

constexpr int kMostBlocks = 64;  // MAXCHANNELS
constexpr int kMessagesOfBatch =
    8;  // NCCL_MAX_DEV_WORK_P2P_PER_BATCH, and the schedule's group (P2P_SCHEDULE_GROUP_SIZE)
constexpr int kSharedBuffers = 16;            // NCCL_SHARED_STEPS
constexpr std::int64_t kLlThreshold = 16384;  // NCCL_P2P_LL_THRESHOLD
constexpr std::int64_t kGrain = 4096;         // of a part

int power_of_two_up(int n) {
  int p = 1;
  while (p < n) p *= 2;
  return p;
}

int reversed(int value, int bits) {
  int out = 0;
  for (int i = 0; i < bits; ++i) out |= ((value >> i) & 1) << (bits - 1 - i);
  return out;
}

std::int64_t divided(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

int nvlinks_of(GBps raw, int cc) {
  GBps each{cc >= 100 ? 50 : cc == 86 ? 14.0625 : cc >= 70 ? 25 : 20};
  return std::max(1, static_cast<int>(raw / each + 1e-6));
}

P2p p2p_of(const System& s, const Settings& set, int nvlinks, bool all_nvlink) {
  P2p out;
  int channels = communicator_channels(s, Algorithm::Ring);
  if (set.max_channels > 0) channels = std::min(channels, set.max_channels);
  channels = std::max(channels, set.min_channels);
  int peer = channels;
  if (nvlinks >= 0) peer = std::min(peer, nvlinks > 0 ? 2 * nvlinks : 2);
  if (s.nodes > 1) {
    int network = 2;
    if (network * s.ranks > 4 * channels) network = 1;
    peer = std::min(peer, network);
  }
  out.blocks = std::min(kMostBlocks, power_of_two_up(channels));
  out.per_peer = std::min(out.blocks, power_of_two_up(peer));
  std::int64_t buffer = set.buffer_bytes > 0 ? set.buffer_bytes : 4 * kMiB;
  out.chunk =
      std::min(s.nodes == 1 && all_nvlink ? 512 * kKiB : 128 * kKiB, buffer / kStepsOfBuffer);
  return out;
}

P2pMessage p2p_message(const System& s, const P2p& p, Version v, bool network, std::int64_t bytes) {
  P2pMessage out;
  std::int64_t threshold = kLlThreshold * (v.has(Change::LlThresholdForEachBlock) ? p.per_peer : 1);
  bool ll = !network && bytes <= threshold;
  out.protocol = ll ? Protocol::Ll : Protocol::Simple;
  std::int64_t step = ll ? 64 * kKiB : p.chunk;
  int fewest = p.per_peer;
  while (fewest * s.ranks > p.blocks && fewest > 1) fewest /= 2;
  std::int64_t least = s.nodes > 1 ? step / 2 : step / 8;
  std::int64_t most = s.nodes > 1 ? step : step * 32;
  out.parts = static_cast<int>(std::min<std::int64_t>(fewest, divided(bytes, least)));
  std::int64_t part = std::max(least, divided(bytes, out.parts));
  while (part > most && out.parts <= p.per_peer / 2) {
    out.parts *= 2;
    part = divided(bytes, out.parts);
  }
  out.part = std::min(bytes, divided(divided(bytes, out.parts), kGrain) * kGrain);
  out.chunk = step;
  if (network) out.chunk = bytes < step ? step / 4 : bytes < 8 * step ? step / 2 : step;
  if (ll) out.chunk /= 2;  // half of it are flags
  return out;
}

int p2p_depth(bool network, int messages) {
  int depth = static_cast<int>(kStepsOfBuffer);
  return network ? std::clamp(kSharedBuffers / std::max(1, messages), 1, depth) : depth;
}

std::vector<std::vector<P2pBatch>> p2p_batches(const P2p& p, const std::vector<int>& node_sizes,
                                               int parts_inside, int parts_between) {
  std::vector<std::vector<P2pBatch>> out(p.blocks);
  std::vector<int> group_of_rounds(out.size(), -1);  // of each block's last batch
  bool one = node_sizes.size() == 1;
  int ranks = std::accumulate(node_sizes.begin(), node_sizes.end(), 0);
  int size = one ? ranks : kMessagesOfBatch;
  for (int local : node_sizes)
    if (local % size != 0) size = std::gcd(size, local);
  int groups = ranks / size;
  int turns = power_of_two_up(groups);
  int bits = 0;
  while ((1 << bits) < p.blocks) ++bits;
  int round = 0;
  int delta = 0;  // of the groups: a quadratic sequence, which names each once
  for (int turn = 0; turn < turns; delta = (delta + ++turn) & (turns - 1)) {
    if (delta >= groups) continue;
    for (int local = 0; local < size; ++local, ++round) {
      if (delta == 0 && local == 0) continue;  // itself
      bool inside = (delta * size + local) < node_sizes.front();
      int per_group = (size + kMessagesOfBatch - 1) / kMessagesOfBatch;
      int base = one ? round : round / size * per_group + round % size / kMessagesOfBatch;
      base = reversed(base & (p.blocks - 1), bits);
      for (int part = 0; part < (inside ? parts_inside : parts_between); ++part) {
        std::size_t block = (base + part) & (p.blocks - 1);
        std::vector<P2pBatch>& batches = out[block];
        int group = round / kMessagesOfBatch;
        if (batches.empty() || batches.back().all() == kMessagesOfBatch ||
            group_of_rounds[block] != group)
          batches.emplace_back();
        group_of_rounds[block] = group;
        ++(inside ? batches.back().inside : batches.back().between);
      }
    }
  }
  return out;
}

}  // namespace ddpsim::nccl
