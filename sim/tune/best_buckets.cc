#include "sim/tune/best_buckets.h"

#include <algorithm>

#include "sim/cost/roofline.h"
#include "sim/play/kernel_wait.h"
#include "sim/systems/base/record.h"
#include "sim/systems/ddp/bucketing.h"
#include "sim/systems/ddp/ddp_options.h"
#include "sim/systems/ddp/plan.h"
#include "sim/systems/knobs.h"
#include "sim/tune/partition.h"

namespace ddpsim::predict {
namespace {

// Gradients in the order in which they are launched, each by itself.
std::vector<TensorIndex> launch_order(const Workload& w, Plan plan) {
  ddp_of(plan).bucket_cap_mb.reset();
  ddp_of(plan).bucket_cap_mb_list = {1.0 / (1024 * 1024)};
  std::vector<TensorIndex> order;
  for (const auto& b : systems::steady_buckets(w, plan))
    order.insert(order.end(), b.begin(), b.end());
  return order;
}

// When each gradient lay in its bucket in a simulated step, and what was done with it after its
// reduction: on the rank that is last.
PartitionProblem problem_of(const SteadyStep& s, const Workload& w,
                            const std::vector<TensorIndex>& order, bool half) {
  std::vector<Duration> ready(w.tensors.size());
  std::vector<Duration> after(w.tensors.size());
  for (const Span& span : s.simulation.spans) {
    if (copies_in(span.kind))
      ready[span.tensors.front()] =
          std::max(ready[span.tensors.front()], span.end - s.simulation.spans_from);
    if (copies_out(span.kind))
      after[span.tensors.front()] = std::max(after[span.tensors.front()], span.end - span.begin);
  }
  PartitionProblem out;
  Duration latest;
  for (TensorIndex t : order) {
    latest = std::max(latest, ready[t]);
    out.ready.push_back(latest);
    out.bytes.push_back(half ? 2 * w.tensors[t].elements() : w.tensors[t].bytes().count);
    out.after.push_back(after[t]);
  }
  return out;
}

// The best with each number of buckets up to a few dozen, and the best of all; only those that the
// model expects to be near the best where simulations are dear.
std::vector<Partition> worth_a_simulation(const PartitionProblem& problem,
                                          const BucketPrices& prices, std::size_t budget) {
  constexpr std::size_t kCounts = 24;
  std::vector<Partition> list = best_partitions(problem, prices, kCounts);
  list.push_back(best_partition(problem, prices));
  std::stable_sort(list.begin(), list.end(),
                   [](const Partition& a, const Partition& b) { return a.end < b.end; });
  list.resize(std::min(list.size(), std::max<std::size_t>(4, budget / 8)));
  return list;
}

TunedPartition listed(const Partition& p, const std::vector<TensorIndex>& order,
                      const std::vector<Tensor>& tensors, const Plan& plan) {
  bool registration = !systems::rebuilds(
      plan);  // then limits are consumed in that order, the reverse of the launches
  std::vector<systems::BucketSize> sizes;
  std::size_t from = 0;
  for (std::size_t end : p.ends) {
    systems::BucketSize b;
    for (std::size_t i = from; i < end; ++i) b.bytes += tensors[order[i]].bytes().count;
    b.last_tensor = tensors[registration ? order[from] : order[end - 1]].bytes().count;
    sizes.push_back(b);
    from = end;
  }
  TunedPartition out;
  for (const auto& b : sizes) out.buckets.push_back(b.bytes);
  if (registration) std::reverse(sizes.begin(), sizes.end());
  out.list = systems::cap_list(sizes);
  out.model = p.end;
  return out;
}

}  // namespace

BestBuckets best_buckets(PlannedSteps& steps, const Plan& best_plan) {
  const Question& q = steps.question();
  const Options& options = steps.options();
  const Workload& w = q.workload;
  BestBuckets out;
  if (!systems::record_of(best_plan.system).bucketed || q.scenario.ranks < 2) return out;
  if (!systems::plain_buckets(best_plan) || !w.loop.collectives.empty()) return out;
  std::vector<TensorIndex> order = launch_order(w, best_plan);
  for (TensorIndex t : order)
    if (w.tensors[t].dtype != w.tensors[order.front()].dtype) {
      out.why_not =
          "gradients of several dtypes share one list of caps, so that not every partition can be "
          "had";
      return out;
    }
  if (order.size() > kMostGradients) {
    out.why_not = "more than 1,000 gradients have too many partitions to look through";
    return out;
  }
  bool half = ddp_of(best_plan).comm_hook == CommHook::Fp16Compress ||
              ddp_of(best_plan).comm_hook == CommHook::Bf16Compress;
  DType type = half ? DType::Float16 : w.tensors[order.front()].dtype;
  const collective::Communicator& comm =
      options.known->get(q, backend_of(best_plan, q.profile.kind));
  const bool waits = comm.backend() == Backend::Nccl;
  const Duration wait =
      waits
          ? kernel_wait(step_times(w, q.profile, Level::Mid).kernel, comm.ranks(), Level::Mid).last
          : Duration{};
  auto price = [&](std::int64_t bytes) {
    return wait + collective::all_reduce(comm, q.profile, Level::Mid, Bytes{bytes}, type).alone;
  };
  std::optional<BucketPrices> prices;
  Scenario s = q.scenario;
  s.plan = best_plan;
  // Ready times depend a little on the buckets (collectives slow computation): again from the first
  // answer's own.
  for (int round = 0; round < 2; ++round) {
    PartitionProblem problem =
        problem_of(steady_step({w, q.fabric, q.profile, s}, Level::Mid, options), w, order, half);
    if (!prices) prices.emplace(problem.bytes, price);  // which a round does not change
    for (const Partition& p : worth_a_simulation(problem, *prices, steps.budget())) {
      TunedPartition found = listed(p, order, w.tensors, best_plan);
      Plan plan = best_plan;
      ddp_of(plan).bucket_cap_mb.reset();
      ddp_of(plan).bucket_cap_mb_list = found.list;
      found.step = steps.step(plan, Level::Mid);
      if (!out.partition || found.step < out.partition->step) out.partition = std::move(found);
    }
    ddp_of(s.plan).bucket_cap_mb.reset();
    ddp_of(s.plan).bucket_cap_mb_list = out.partition->list;
  }
  return out;
}

}  // namespace ddpsim::predict
