// Each lever is simulated by itself. What a plan can set comes first: `ddpsim predict` lists it;
// the rest takes longer and is for `ddpsim tune`.
#include <algorithm>

#include "sim/predict/given_program.h"
#include "sim/predict/predict.h"
#include "sim/predict/resources.h"
#include "sim/systems/base/record.h"
#include "sim/systems/ddp/plan.h"
#include "sim/systems/knobs.h"

namespace ddpsim::predict {
namespace {

class Attempts {
 public:
  Attempts(const Question& q, const Options& options) : q_(q), options_(options) {
    if (!options_.known) options_.known = &own_;
  }
  template <class Change>
  void plan(const std::string& change, const std::string& command, Change edit) {
    Scenario s = q_.scenario;
    edit(s);
    Question changed{q_.workload, q_.fabric, q_.profile, s};
    if (check(changed, options_.known)) return;
    // A given program has collectives that the plan does not know: of groups, of any kind.
    if (options_.program && check_program(*options_.program, changed, options_.known)) return;
    // Like is compared with like; with other flags the usual fidelity may be the other one.
    bool flags =
        command.starts_with("--") && usual_fidelity(changed, options_.program) != options_.fidelity;
    found.push_back({change,
                     flags ? command + " --fidelity " + name_of(options_.fidelity) : command,
                     steady_period(changed, Level::Mid, options_)});
  }
  std::vector<Lever> found;
  const Options& options() const { return options_; }  // with what is known of communicators

 private:
  const Question& q_;
  Options options_;
  Communicators own_;
};

void try_caps(const Plan& plan, Attempts& a) {
  for (double cap : {1.0, 5.0, 10.0, 25.0, 50.0, 100.0, 200.0}) {
    if (ddp_of(plan).bucket_cap_mb == cap) continue;
    std::string text = "bucket_cap_mb=" + std::to_string(static_cast<int>(cap));
    a.plan(text, "--set " + text, [&](Scenario& s) {
      ddp_of(s.plan).bucket_cap_mb = cap, ddp_of(s.plan).bucket_cap_mb_list.clear();
    });
  }
}

// Every other setting of the system's own knobs that are choices.
void try_choices(const Plan& plan, Attempts& a) {
  for (const systems::Knob& k : systems::knobs(plan)) {
    if (!k.unit.empty()) continue;
    for (const systems::KnobValue& v : systems::values(k, {}, plan))
      if (std::string text = k.name + "=" + v.text;
          !(systems::value_of(plan, k) && systems::value_of(plan, k)->text == v.text))
        a.plan(text, "--set " + text, [&](Scenario& s) { s.plan = systems::with(s.plan, k, v); });
  }
}

void try_changes(const std::vector<systems::PlanChange>& changes, Attempts& a) {
  for (const systems::PlanChange& c : changes)
    a.plan(c.text, c.command, [&](Scenario& s) { s.plan = c.plan; });
}

void try_plan(const Question& q, Attempts& a) {
  const Plan& plan = q.scenario.plan;
  if (!a.options().program) {  // else its schedule is what it is
    if (auto* const own = systems::record_of(plan.system).levers)
      try_changes(own(plan, q.workload), a);
    else
      try_choices(plan, a);
  }
  if (!q.scenario.slow_ranks.empty())
    a.plan("all ranks as fast as the others", "without slow_ranks",
           [](Scenario& s) { s.slow_ranks.clear(); });
}

bool is_nccl_setting(const Lever& l) {
  return l.change.find("NCCL_") != std::string::npos;
}

// What NCCL chooses for the largest all-reduce of a step, as "ring/simple". REQUIRES:
// options.known.
std::string chosen_by_nccl(const Question& q, const Options& options) {
  const Program program = steady_step(q, Level::Mid, options).program;
  std::int64_t largest = 0;
  for (const Op& op : program.steady.ops)
    if (is_collective(op.kind) && !is_broadcast(op.kind)) largest = std::max(largest, op.bytes);
  const auto& c = options.known->get(q, Backend::Nccl);
  const nccl::Group* group = nccl_group(c);
  if (largest == 0 || !group) return "";
  auto choice = nccl::choose(*group, Operation::AllReduce, largest);
  return choice ? std::string(name_of(choice->algorithm)) + "/" + name_of(choice->protocol) : "";
}

// NCCL chooses by its own estimate, and that is not always what takes least. Not of the largest
// jobs: each setting has a communicator of its own, which holds what every rank does.
void try_nccl(const Question& q, Attempts& a) {
  constexpr int kMostRanks = 16'384;
  const Plan& plan = q.scenario.plan;
  if (q.scenario.ranks > kMostRanks) return;
  if (backend_of(plan, q.profile.kind) != Backend::Nccl || q.profile.compute.capability == 0)
    return;
  auto force = [&](const std::string& name, std::initializer_list<const char*> values) {
    if (plan.environment.count(name)) {
      auto without = [&](Scenario& s) { s.plan.environment.erase(name); };
      return a.plan("NCCL's own choice, without " + name, "without --set " + name, without);
    }
    for (const char* v : values) {
      std::string text = name + "=allreduce:" + v;
      auto with = [&](Scenario& s) { s.plan.environment[name] = std::string("allreduce:") + v; };
      a.plan(text, "--set " + text, with);
    }
  };
  force("NCCL_ALGO", {"ring", "tree", "nvls", "nvlstree"});
  force("NCCL_PROTO", {"ll", "ll128", "simple"});
  constexpr const char* kThreads = "NCCL_SOCKET_NTHREADS";
  if (copied_by_threads(q) && plan.environment.count(kThreads) == 0)
    a.plan("four threads for each connection of a socket", std::string("--set ") + kThreads + "=4",
           [&](Scenario& s) { s.plan.environment[kThreads] = "4"; });
}

// Says of settings that beat `step` what NCCL would do without them.
void say_what_nccl_chooses(const Question& q, const Options& options, Duration step,
                           std::vector<Lever>& list) {
  std::string choice;
  for (Lever& l : list) {
    if (!l.change.starts_with("NCCL_") || l.step >= step) continue;
    if (choice.empty()) choice = chosen_by_nccl(q, options);
    if (choice.empty()) return;
    l.change += " (NCCL's own estimate prefers " + choice + ")";
  }
}

void try_algorithms(const Question& q, Attempts& a) {
  const Plan& plan = q.scenario.plan;
  Backend backend = backend_of(plan, q.profile.kind);
  if (backend == Backend::Tcp)
    for (Algorithm algorithm : kTcpAlgorithms)
      if (algorithm != plan.algorithm) {
        std::string text = std::string("algorithm=") + name_of(algorithm);
        a.plan(text, "--set " + text, [&](Scenario& s) { s.plan.algorithm = algorithm; });
      }
  if (backend == Backend::Gloo && plan.gloo_algorithm == Algorithm::Ring)
    a.plan("Gloo's bcube", "--set gloo_algorithm=bcube",
           [](Scenario& s) { s.plan.gloo_algorithm = Algorithm::Bcube; });
  if (backend == Backend::Mpi)
    for (const char* name : {"recursive_doubling", "ring", "rabenseifner"}) {
      const std::string dynamic = "OMPI_MCA_coll_tuned_use_dynamic_rules";
      const std::string forced = "OMPI_MCA_coll_tuned_allreduce_algorithm";
      a.plan(std::string("Open MPI's ") + name,
             "--set " + dynamic + "=1 --set " + forced + "=" + name, [&](Scenario& s) {
               s.plan.environment[dynamic] = "1";
               s.plan.environment[forced] = name;
             });
    }
}

void try_nccl_for_gloo(const Question& q, Attempts& a) {
  if (stages_collectives(q.scenario.plan, q.profile.kind))
    a.plan("NCCL, which reduces on the GPUs", "--set backend=nccl",
           [](Scenario& s) { s.plan.backend = Backend::Nccl; });
}

// The first half of the ranks; what names ranks goes with them.
void halve(Scenario& s) {
  s.ranks /= 2;
  if (!s.rank_order.empty()) s.rank_order.resize(s.ranks);
  s.slow_ranks.erase(s.slow_ranks.lower_bound(s.ranks), s.slow_ranks.end());
}

void sort(std::vector<Lever>& list) {
  std::stable_sort(list.begin(), list.end(),
                   [](const Lever& a, const Lever& b) { return per_samples(a) < per_samples(b); });
}

}  // namespace

Duration per_samples(const Lever& l) {
  return l.samples == 1 ? l.step : scale(l.step, 1 / l.samples);
}

std::vector<Lever> levers(const Question& q, Duration step, const Options& options,
                          double threshold) {
  Attempts a(q, options);
  if (systems::record_of(q.scenario.plan.system).bucketed && !options.program)
    try_caps(q.scenario.plan, a);
  try_plan(q, a);
  if (q.scenario.ranks > 1) try_nccl(q, a);
  try_nccl_for_gloo(q, a);
  // Of several bucket caps only the best is worth a line, and of NCCL's settings, too.
  sort(a.found);
  bool cap_listed = false;
  bool nccl_listed = false;
  std::vector<Lever> kept;
  for (const Lever& l : a.found) {
    bool cap = l.change.starts_with("bucket_cap_mb");
    bool nccl = is_nccl_setting(l);
    if (static_cast<double>(step.ps - l.step.ps) < threshold * static_cast<double>(step.ps) ||
        (cap && cap_listed) || (nccl && nccl_listed))
      continue;
    cap_listed = cap_listed || cap;
    nccl_listed = nccl_listed || nccl;
    kept.push_back(l);
  }
  say_what_nccl_chooses(q, a.options(), step, kept);
  return kept;
}

std::vector<Lever> all_levers(const Question& q, const Options& options) {
  Attempts a(q, options);
  const Plan& plan = q.scenario.plan;
  try_plan(q, a);
  if (q.scenario.ranks > 1) {
    if (auto* const extremes = systems::record_of(plan.system).extremes)
      try_changes(extremes(plan), a);
    try_nccl(q, a);
    try_nccl_for_gloo(q, a);
    say_what_nccl_chooses(q, a.options(), steady_period(q, Level::Mid, a.options()), a.found);
    try_algorithms(q, a);
    Scenario half = q.scenario;
    halve(half);
    std::size_t before = a.found.size();
    a.plan("half the ranks (half the samples a step)", "--ranks " + std::to_string(half.ranks),
           halve);
    if (a.found.size() > before) a.found.back().samples = 1.0 * half.ranks / q.scenario.ranks;
    bool hosts = !topology::on_one_host(q.fabric, devices_of(q.scenario));
    a.found.push_back(
        {hosts ? "a network between hosts twice as fast" : "links inside the host twice as fast",
         "", step_if_faster(q, hosts ? Resource::Network : Resource::Inside, 2, options)});
  }
  sort(a.found);
  return a.found;
}

}  // namespace ddpsim::predict
