#include "sim/systems/ddp/bucketing.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "sim/systems/base/lower.h"
#include "sim/systems/ddp/plan.h"
#include "sim/units/by.h"

namespace ddpsim::systems {
namespace {

constexpr std::int64_t kDefaultCap = 25 * kMiB;
constexpr std::int64_t kBroadcastGroup = 250 * kMiB;

std::int64_t bytes_of(double mib) {
  return static_cast<std::int64_t>(mib * 1024 * 1024);
}
std::int64_t cap_bytes(const Plan& plan) {
  return ddp_of(plan).bucket_cap_mb ? bytes_of(*ddp_of(plan).bucket_cap_mb) : kDefaultCap;
}

// [first, cap]: the first bucket's limit is dist._DEFAULT_FIRST_BUCKET_BYTES unless the user gave a
// cap (and the version honours it there too), or a list.
std::vector<std::int64_t> limits_of(const Plan& plan) {
  if (!ddp_of(plan).bucket_cap_mb_list.empty()) {
    std::vector<std::int64_t> limits;
    for (double cap : ddp_of(plan).bucket_cap_mb_list) limits.push_back(bytes_of(cap));
    return limits;
  }
  if (ddp_of(plan).bucket_cap_mb && plan.pytorch.has(pytorch::Change::CapHoldsForTheFirstBucket))
    return {cap_bytes(plan)};
  return {ddp_of(plan).first_bucket_bytes, cap_bytes(plan)};
}

std::vector<TensorIndex> registration_order(std::size_t n) {
  std::vector<TensorIndex> order(n);
  std::iota(order.begin(), order.end(), 0u);
  return order;
}

}  // namespace

std::vector<std::vector<TensorIndex>> assign_buckets(std::span<const Tensor> tensors,
                                                     std::span<const TensorIndex> order,
                                                     std::span<const std::int64_t> limits,
                                                     Order kind) {
  struct Open {
    std::vector<TensorIndex> tensors;
    std::int64_t bytes = 0;
    std::size_t limit = 0;
  };
  By<DType, Open, kDTypes> open;
  std::vector<DType> first_seen;
  std::vector<std::vector<TensorIndex>> buckets;
  for (TensorIndex i : order) {
    const Tensor& t = tensors[i];
    Open& o = open[t.dtype];
    if (std::find(first_seen.begin(), first_seen.end(), t.dtype) == first_seen.end())
      first_seen.push_back(t.dtype);
    o.tensors.push_back(i);
    o.bytes += t.bytes().count;
    if (o.bytes >= limits[o.limit]) {
      buckets.push_back(std::move(o.tensors));
      o.tensors.clear();
      o.bytes = 0;
      if (o.limit + 1 < limits.size()) ++o.limit;
    }
  }
  // PyTorch walks a std::unordered_map here; libstdc++ puts a new key in front of the others.
  for (std::size_t i = first_seen.size(); i-- > 0;) {
    Open& o = open[first_seen[i]];
    if (!o.tensors.empty()) buckets.push_back(std::move(o.tensors));
  }
  if (kind == Order::Registration) {
    auto smallest = [](const std::vector<TensorIndex>& b) {
      return *std::min_element(b.begin(), b.end());
    };
    std::stable_sort(buckets.begin(), buckets.end(),
                     [&](const auto& a, const auto& b) { return smallest(a) < smallest(b); });
  }
  return buckets;
}

std::vector<std::vector<TensorIndex>> initial_buckets(const Workload& w, const Plan& plan) {
  std::vector<std::int64_t> limits{std::numeric_limits<std::int64_t>::max()};
  bool listed =
      !ddp_of(plan).bucket_cap_mb_list.empty();  // which the first iteration keeps to, too
  if (listed || (ddp_of(plan).find_unused_parameters && !ddp_of(plan).static_graph) ||
      !plan.pytorch.has(pytorch::Change::OneInitialBucket))
    limits = limits_of(plan);
  auto buckets =
      assign_buckets(w.tensors, registration_order(w.tensors.size()), limits, Order::Registration);
  std::reverse(buckets.begin(), buckets.end());
  return buckets;
}

std::vector<std::vector<TensorIndex>> rebuilt_buckets(const Workload& w, const Plan& plan,
                                                      std::span<const TensorIndex> ready_order) {
  return assign_buckets(w.tensors, ready_order, limits_of(plan), Order::Explicit);
}

std::vector<TensorIndex> ready_order(const Workload& w, const Plan& plan) {
  std::vector<bool> unused = unused_tensors(w, plan);
  std::vector<TensorIndex> order;
  if (ddp_of(plan).static_graph)
    for (TensorIndex t = 0; t < unused.size(); ++t)
      if (unused[t]) order.push_back(t);
  for (TensorIndex t : w.arrival)
    if (!unused[t]) order.push_back(t);
  return order;
}

bool rebuilds(const Plan& plan) {
  return ddp_of(plan).static_graph || !ddp_of(plan).find_unused_parameters;
}

std::vector<std::vector<TensorIndex>> steady_buckets(const Workload& w, const Plan& plan) {
  return rebuilds(plan) ? rebuilt_buckets(w, plan, ready_order(w, plan)) : initial_buckets(w, plan);
}

std::vector<std::vector<TensorIndex>> buffer_groups(const Workload& w) {
  std::int64_t limit = kBroadcastGroup;
  return assign_buckets(w.buffers, registration_order(w.buffers.size()), std::span(&limit, 1),
                        Order::Registration);
}

}  // namespace ddpsim::systems
