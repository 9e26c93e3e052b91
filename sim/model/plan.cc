#include "sim/model/plan.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "sim/units/by.h"

namespace ddpsim {
namespace {

// Each is a device of the cluster, and not taken yet; then it is.
Problem check_order(const std::vector<DeviceId>& order, int devices, std::set<DeviceId>& taken,
                    const std::string& path) {
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::string at = path + "/" + std::to_string(i);
    if (!order[i].among(devices)) return {at, "no device " + to_string(order[i])};
    if (!taken.insert(order[i]).second)
      return {at, "device " + to_string(order[i]) + " already has a rank"};
  }
  return {};
}

}  // namespace

int worker_threads(const Plan& plan, Backend backend) {
  if (backend == Backend::Mpi) return 1;
  return backend == Backend::Tcp ? plan.tcp_streams : plan.gloo_threads;
}

Algorithm all_reduce_algorithm(const Plan& plan, Backend backend) {
  if (backend == Backend::Tcp) return plan.algorithm;
  return backend == Backend::Gloo ? plan.gloo_algorithm : Algorithm::Ring;
}

std::vector<DeviceId> devices_of(const Scenario& s) {
  return s.rank_order.empty() ? first_devices(s.ranks) : s.rank_order;
}

Scenario scenario_of(const OtherJob& job) {
  Scenario s;
  s.plan = job.plan;
  s.ranks = static_cast<int>(job.rank_order.size());
  s.rank_order = job.rank_order;
  return s;
}

Problem validate(const Scenario& s, int devices) {
  if (s.ranks < 1) return {"/ranks", "a job has at least one rank"};
  if (s.ranks > devices)
    return {"/ranks", std::to_string(s.ranks) + " ranks, but the cluster has " +
                          std::to_string(devices) +
                          " devices (raise cluster.hosts or lower ranks)"};
  if (s.plan.algorithm == Algorithm::Direct && s.ranks > kMaxDirectRanks)
    return {"/plan/algorithm",
            "direct sends a message from every rank to every other: at most 1,024 ranks"};
  if (!s.rank_order.empty()) {
    if (s.rank_order.size() != static_cast<std::size_t>(s.ranks))
      return {"/rank_order", "names " + std::to_string(s.rank_order.size()) + " devices for " +
                                 std::to_string(s.ranks) + " ranks"};
    std::set<DeviceId> seen;
    if (auto p = check_order(s.rank_order, devices, seen, "/rank_order")) return p;
  }
  std::vector<DeviceId> mine = devices_of(s);
  std::set<DeviceId> taken(mine.begin(), mine.end());
  if (s.other_jobs.size() > 16) return {"/other_jobs", "at most 16 other jobs"};
  for (std::size_t k = 0; k < s.other_jobs.size(); ++k) {
    const OtherJob& job = s.other_jobs[k];
    std::string path = "/other_jobs/" + std::to_string(k) + "/rank_order";
    if (job.plan.algorithm == Algorithm::Direct &&
        job.rank_order.size() > static_cast<std::size_t>(kMaxDirectRanks))
      return {"/other_jobs/" + std::to_string(k) + "/plan/algorithm",
              "direct sends a message from every rank to every other: at most 1,024 ranks"};
    if (job.rank_order.size() < 2) return {path, "names the devices of at least two ranks"};
    if (auto p = check_order(job.rank_order, devices, taken, path)) return p;
  }
  for (const auto& [rank, factor] : s.slow_ranks) {
    std::string path = "/slow_ranks/" + std::to_string(rank);
    if (rank < 0 || rank >= s.ranks)
      return {path, "no rank " + std::to_string(rank) + "; there are " + std::to_string(s.ranks)};
    if (!(factor > 0 && factor <= 1000))
      return {path, "a factor of compute time, above 0 and at most 1000"};
  }
  constexpr double kMostSamples = 1e12;
  constexpr std::int64_t kMostSampleBytes = std::int64_t{64} << 30;
  if (s.input) {
    const InputPipeline& in = *s.input;
    const bool rate = in.samples_per_s > 0 && in.samples_per_s <= kMostSamples;
    if (!rate && !(in.samples_per_s == 0 && in.bytes_per_sample > 0))
      return {"/input/samples_per_s", "samples of a rank a second, above 0 and at most 1e12"};
    if (in.bytes_per_sample < 0 || in.bytes_per_sample > kMostSampleBytes)
      return {"/input/bytes_per_sample", "0 B to 64 GiB"};
  }
  if (s.jitter) {
    if (!s.other_jobs.empty())
      return {"/jitter", "is played without the other jobs: leave out one of the two"};
    if (!(s.jitter->cv >= 0 && s.jitter->cv <= 1)) return {"/jitter/cv", "0 to 1"};
    if (s.jitter->samples < 1 || s.jitter->samples > 10'000)
      return {"/jitter/samples", "1 to 10,000 steps"};
  }
  return {};
}

}  // namespace ddpsim
