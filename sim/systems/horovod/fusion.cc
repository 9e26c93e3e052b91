#include "sim/systems/horovod/fusion.h"

#include <algorithm>

namespace ddpsim::systems {
namespace {

constexpr std::int64_t kAtomicUnit = 64;  // elements; common.h FUSION_BUFFER_ATOMIC_UNIT
constexpr std::int64_t kLargestElement = 8;

std::int64_t rounded_up(std::int64_t n, std::int64_t to) {
  return (n + to - 1) / to * to;
}

}  // namespace

Fusion::Fusion(const Coordination& c, int ranks, int local_ranks)
    : c_(c),
      threshold_(rounded_up(c.threshold, local_ranks * kLargestElement * kAtomicUnit)),
      ranks_(index(ranks)),
      asked_(c.tensors.size(), 0),
      bit_(c.tensors.size(), -1) {}

void Fusion::remember(const std::vector<TensorIndex>& first_order) {
  for (TensorIndex t : first_order) put(t);
}

void Fusion::request(int rank, TensorIndex tensor) {
  ranks_[index(rank)].fresh.push_back(tensor);
}

bool Fusion::waits() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return !r.fresh.empty(); });
}

bool Fusion::begin_cycle(int rank) {
  Rank& r = ranks_[index(rank)];
  std::vector<TensorIndex> taken = std::move(r.queue);  // its bit may have been taken away
  taken.insert(taken.end(), r.fresh.begin(), r.fresh.end());
  r.queue.clear();
  r.fresh.clear();
  for (TensorIndex t : taken) (bit_[t] >= 0 ? r.queue : r.misses).push_back(t);
  r.in_cycle = true;
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& x) { return x.in_cycle; });
}

Fusion::Decision Fusion::agree() {
  Decision d;
  d.by_name = c_.cache == 0;
  std::vector<TensorIndex> all;  // of all ranks
  for (const Rank& r : ranks_) all.insert(all.end(), r.queue.begin(), r.queue.end());
  std::sort(all.begin(), all.end());
  auto all_have = [&](TensorIndex t) {
    const auto [first, last] = std::equal_range(all.begin(), all.end(), t);
    return static_cast<std::size_t>(last - first) == ranks_.size();
  };
  std::vector<TensorIndex> ready;
  for (TensorIndex t : ranks_.front().queue)
    if (all_have(t)) ready.push_back(t);
  std::sort(ready.begin(), ready.end(),
            [&](TensorIndex a, TensorIndex b) { return bit_[a] < bit_[b]; });
  for (Rank& r : ranks_) {
    std::erase_if(r.queue, all_have);
    d.by_name = d.by_name || !r.misses.empty();
  }
  if (d.by_name) {
    for (Rank& r : ranks_) {
      for (TensorIndex t : r.misses)
        if (++asked_[t] == std::ssize(ranks_)) asked_[t] = 0, ready.push_back(t);
      r.misses.clear();
    }
  } else {
    for (TensorIndex t : ready) use(t);
  }
  d.fused = c_.group_fusion ? fuse(std::move(ready)) : fuse_groups(ready);
  if (d.by_name)
    for (const auto& together : d.fused)
      for (TensorIndex t : together) put(t);
  for (Rank& r : ranks_) r.in_cycle = false;
  return d;
}

// Takes the first, and what follows as long as it fits. What has another type is passed over, until
// what is passed and taken reaches the threshold.
std::vector<std::vector<TensorIndex>> Fusion::fuse(std::vector<TensorIndex> waiting) const {
  std::vector<std::vector<TensorIndex>> out;
  auto padded = [&](TensorIndex t) { return rounded_up(c_.tensors[t].bytes, c_.padding); };
  while (!waiting.empty()) {
    std::vector<TensorIndex> taken{waiting.front()};
    std::vector<TensorIndex> left;
    std::int64_t total = padded(waiting.front());
    std::int64_t passed = 0;
    std::size_t i = 1;
    for (; i < waiting.size(); ++i) {
      TensorIndex t = waiting[i];
      bool same = c_.tensors[t].dtype == c_.tensors[taken.front()].dtype;
      if (same && total + padded(t) <= threshold_) {
        total += padded(t);
        taken.push_back(t);
        continue;
      }
      passed += padded(t);
      if (total + passed > threshold_) break;
      left.push_back(t);
    }
    left.insert(left.end(), waiting.begin() + i, waiting.end());
    waiting = std::move(left);
    out.push_back(std::move(taken));
  }
  return out;
}

// HOROVOD_DISABLE_GROUP_FUSION: each group by itself, then what belongs to none.
std::vector<std::vector<TensorIndex>> Fusion::fuse_groups(
    const std::vector<TensorIndex>& all) const {
  std::vector<std::uint32_t> groups;
  for (TensorIndex t : all) {
    std::uint32_t g = c_.tensors[t].group;
    if (g != kNoSubject && std::find(groups.begin(), groups.end(), g) == groups.end())
      groups.push_back(g);
  }
  groups.push_back(kNoSubject);
  std::vector<std::vector<TensorIndex>> out;
  for (std::uint32_t g : groups) {
    std::vector<TensorIndex> own;
    for (TensorIndex t : all)
      if (c_.tensors[t].group == g) own.push_back(t);
    for (auto& together : fuse(std::move(own))) out.push_back(std::move(together));
  }
  return out;
}

// A full cache forgets what was used longest ago; its bit goes to the new one.
void Fusion::put(TensorIndex t) {
  if (c_.cache == 0) return;
  if (bit_[t] >= 0) return use(t);
  if (std::ssize(by_use_) == c_.cache) {
    std::swap(bit_[t], bit_[by_use_.back()]);
    by_use_.pop_back();
  } else {
    bit_[t] = static_cast<int>(by_use_.size());
  }
  by_use_.insert(by_use_.begin(), t);
}

void Fusion::use(TensorIndex t) {
  auto at = std::find(by_use_.begin(), by_use_.end(), t);
  std::rotate(by_use_.begin(), at, at + 1);
}

}  // namespace ddpsim::systems
