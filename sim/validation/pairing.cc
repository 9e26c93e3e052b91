#include "sim/validation/pairing.h"

#include <algorithm>
#include <limits>

#include "sim/systems/base/record.h"
#include "sim/systems/ddp/plan.h"

namespace ddpsim::validation {
namespace {

Pair make_pair(const std::string& file, const Run& run, const Case& c, double tolerance) {
  Pair p;
  p.file = file;
  p.key = run.key;
  p.scenario = run.scenario;
  p.profile = c.profile.name;
  p.evidence = name_of(run.evidence);
  if (run.evidence == EvidenceClass::Replay && run.origin.compute != "timed")
    p.evidence = "replay_real";
  if (p.evidence == "replay" && c.sharded) p.evidence = "replay_sharded";
  if (run.evidence == EvidenceClass::System) p.evidence = c.system_class;
  if (!run.origin.gpu.empty())
    p.evidence = std::string(run.evidence == EvidenceClass::System ? "system_" : "replay_") +
                 (c.one_gpu ? "one_gpu" : "gpu");
  const std::vector<std::string>& from = c.profile.fitted_from;
  // What a fit may see was looked at while the model was written, whether or not a fit used it.
  bool seen = run.split == "fit" || std::find(from.begin(), from.end(), run.scenario) != from.end();
  p.sample = seen ? "in_sample" : "held_out";
  p.noisy = run.quality.verdict == Verdict::Noisy;
  p.loopback = run.origin.hosts == "loopback";
  p.comparison = analysis::compare(c.prediction.run, run,
                                   {tolerance, c.mean, std::numeric_limits<double>::infinity()});
  p.low = c.prediction.step_low;
  p.high = c.prediction.step_high;
  p.naive_error = relative(c.naive, p.comparison.measured);
  p.queue_error = relative(c.queue, p.comparison.measured);
  p.sweep = c.sweep;
  p.cap = c.cap;
  p.tags = c.tags;
  return p;
}

// Where the real framework's steps repeat on one machine of few cores, by the network alone: a star
// of at most 4 hosts at 200 Mb/s, or 4 at more.
bool is_quiet(const Cluster& cluster, const Scenario& scenario) {
  return cluster.pattern == Pattern::Star && scenario.ranks <= 4 &&
         (cluster.link.bandwidth.bits_per_s <= 200'000'000 || scenario.ranks == 4);
}

}  // namespace

std::vector<std::string> tags_of(const Workload& workload, const Cluster& cluster,
                                 const Scenario& scenario) {
  std::vector<std::string> out;
  auto add = [&](const char* tag, bool has) {
    if (has) out.push_back(tag);
  };
  const Plan& plan = scenario.plan;
  bool racks = cluster.pattern == Pattern::Racks;
  int per_rack = racks ? (cluster.hosts + cluster.racks - 1) / cluster.racks : 1;
  int crossings = 0;
  const std::vector<DeviceId>& order = scenario.rank_order;
  for (std::size_t i = 0; racks && i < order.size(); ++i)
    crossings += order[i].number / per_rack != order[(i + 1) % order.size()].number / per_rack;
  bool ddp = systems::record_of(plan.system).bucketed;
  double cap = ddp_of(plan).bucket_cap_mb.value_or(25);
  constexpr std::int64_t kSmall = 256 * 1024;  // a step's gradients are a few bursts
  add("slow_rank", !scenario.slow_ranks.empty());
  add("slow_host", !cluster.slow_links.empty());
  add("racks", racks && scenario.other_jobs.empty());
  add("crossing", crossings > 2);
  add("two_jobs", !scenario.other_jobs.empty());
  add("in_flight", plan.tcp_streams > 1);
  add("algorithm", plan.algorithm != Algorithm::Ring);
  add("no_overlap", !ddp);
  add("accumulation", plan.accumulation_steps > 1);
  add("compression", ddp_of(plan).comm_hook == CommHook::Fp16Compress ||
                         ddp_of(plan).comm_hook == CommHook::Bf16Compress);
  add("unused", ddp_of(plan).find_unused_parameters);
  add("small_messages", workload.gradient_bytes().count < kSmall);
  add("large_buckets", ddp && cap >= 25 && workload.gradient_bytes().count > 3 * 25 * 1048576);
  add("first_bucket", !plan.pytorch.has(pytorch::Change::CapHoldsForTheFirstBucket) ||
                          (ddp && !ddp_of(plan).bucket_cap_mb));
  add("host_lane", cluster.device == DeviceKind::Gpu);
  return out;
}

std::string system_class(const Cluster& cluster, const Scenario& scenario) {
  const systems::SystemRecord& system = systems::record_of(scenario.plan.system);
  const std::string executed =
      system.executed_class ? system.executed_class(scenario.plan, scenario.ranks) : "";
  const bool repeats = system.negotiates || is_quiet(cluster, scenario);
  return executed.empty() || !repeats ? "system_other" : executed;
}

bool steps_differ(const Scenario& scenario) {
  return !scenario.other_jobs.empty() || systems::record_of(scenario.plan.system).negotiates;
}

double relative(Duration model, Duration measured) {
  return model / measured - 1;
}

bool is_comparable(Validation& v, const std::string& file, const Run& run) {
  bool stepped = run.evidence == EvidenceClass::Replay || run.evidence == EvidenceClass::System;
  if (run.steps.empty() || !stepped) {
    ++v.without_steps;
    return false;
  }
  if (!is_predicted(run)) {
    ++v.unpredicted;
    return false;
  }
  if (!run.scenario.empty()) return true;
  v.errors.push_back({file, run.key, "stale",
                      "it names no scenario, so it cannot be predicted; ddpsim import run FILE "
                      "QUESTION --runs FOLDER gives it one"});
  return false;
}

std::string staleness(const Run& run, const Case& c) {
  if (!c.problem.empty()) return c.problem;
  if (c.scenario_hash != run.scenario)
    return "the file of its scenario was changed (its hash is " + c.scenario_hash +
           " now); restore it, or execute it again";
  if (c.workload_hash != run.workload)
    return "the workload was changed since it was executed (hash " + run.workload + " then, " +
           c.workload_hash + " now); execute it again (ddpsim run)";
  return {};
}

Pair& add_pair(Validation& v, const std::string& file, const Run& run, const Case& c,
               double tolerance) {
  v.pairs.push_back(make_pair(file, run, c, tolerance));
  if (const std::string& m = v.pairs.back().comparison.mismatch; !m.empty())
    v.errors.push_back({file, run.key, "mismatch", m});
  return v.pairs.back();
}

}  // namespace ddpsim::validation
