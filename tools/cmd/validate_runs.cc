#include "tools/cmd/validate_runs.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>

#include "calib/cuda/cuda.h"
#include "sim/io/extends.h"
#include "sim/predict/baselines.h"
#include "sim/predict/mechanisms.h"
#include "sim/systems/base/settings.h"
#include "sim/systems/ddp/plan.h"
#include "sim/validation/pairing.h"
#include "tools/cmd/executed.h"
#include "tools/cmd/pool.h"

namespace ddpsim::cli {
namespace {

using namespace validation;

// The profile that the scenario's cluster names; "" = the scenario names its cluster only.
std::string profile_named(const std::string& scenario) {
  io::Json j = io::parse_json(io::read_file(scenario), scenario);
  io::Json::json_pointer at("/cluster/device/profile");
  if (!j.is_object() || !j.contains("cluster") || !j["cluster"].is_object() || !j.contains(at) ||
      !j[at].is_string())
    return {};
  return j[at].get<std::string>();
}

// The file in `folder` (--profiles) of that profile, measured before datasheet.
std::string profile_in(const std::string& folder, const std::string& scenario) {
  std::string base = profile_named(scenario);
  if (base.empty()) return {};
  const std::string suffix = ".datasheet";
  if (base.ends_with(suffix)) base.resize(base.size() - suffix.size());
  for (const std::string& name : {base, base + suffix})
    if (std::string path = folder + "/" + name + ".json"; io::exists(path)) return path;
  throw InputError{
      folder, "holds no profile \"" + base + "\", which the cluster of " + scenario + " names"};
}

// What the computation of a replay on a GPU is as long as: what a profile says of its own errors
// changes no time.
bool same_computation(const Profile& a, const Profile& b) {
  io::OrderedJson x = io::write_profile(a, {});
  io::OrderedJson y = io::write_profile(b, {});
  for (io::OrderedJson* one : {&x, &y}) (*one)["compute"].erase("described_error");
  for (const char* section : {"compute", "memory", "host"})
    if (x[section] != y[section]) return false;
  return x.value("kernels", io::OrderedJson()) == y.value("kernels", io::OrderedJson());
}

// `run`: brings a layer profile that replaces the workload's times; null or without one: the
// workload's own.
Case predict_case(const Terminal& t, const ValidateFlags& flags, const std::string& path,
                  bool replayed, const Run* run = nullptr) {
  Case c;
  try {
    if (!io::exists(path)) throw InputError{path, "no such scenario file"};
    QuestionFlags q;
    q.scenario = path;
    if (!flags.profile.empty())
      q.profiles = {flags.profile};
    else if (!flags.profiles.empty()) {
      if (std::string file = profile_in(flags.profiles, path); !file.empty()) q.profiles = {file};
    } else if (std::string own = own_profile(flags.runs, profile_named(path), replayed);
               !own.empty()) {
      q.profiles = {own};
    }
    Loaded l = load(t, q);
    c.tags = tags_of(l.workload, l.cluster, l.scenario);
    c.system_class = system_class(l.cluster, l.scenario);
    const systems::SystemRecord& system = systems::record_of(l.scenario.plan.system);
    c.sharded = system.shards || system.optimizer_in_shards;
    c.real = l.scenario.real_compute;
    if (run && run->layers) {
      if (auto why = layers_problem(l.workload, *run); !why.empty()) throw InputError{path, why};
      l.workload = as_recorded(l.workload, *run);
      if (auto problem = predict::check(l.question()))
        throw InputError{path,
                         "with the Run's layer profile: " + problem.path + ": " + problem.message};
    }
    if (!flags.without.empty()) {
      l.options.without = predict::parse_mechanism(flags.without);
      predict::remove(*l.options.without, l.workload, l.cluster, l.profile, l.scenario);
      l.fabric = std::make_shared<const topology::Fabric>(l.cluster);
      l.options.known = nullptr;
    }
    thread_local engine::TaskGraph memory;
    l.options.graph = &memory;
    c.prediction = predict::predict(l.question(), l.options);
    c.naive = predict::naive_step(l.question());
    c.queue = predict::queue_step(l.question());
    c.scenario_hash = l.scenario_hash;
    c.workload_hash = l.workload_hash;
    c.profile = l.profile;
    c.one_gpu = l.scenario.ranks > 1 && l.cluster.link.transport == calib::cuda::kLoopback;
    c.mean = steps_differ(l.scenario);
    if (system.bucketed) {
      c.cap = ddp_of(l.scenario.plan).bucket_cap_mb;
      io::Json rest = l.document;
      if (rest.contains("plan")) rest["plan"].erase("bucket_cap_mb");
      c.sweep = rest.dump();
    }
  } catch (const std::logic_error& e) {
    throw std::runtime_error(path + ": " + e.what());
  } catch (const InputError& e) {
    c.problem = "its scenario can no longer be predicted: " + e.where + ": " + e.what;
  }
  return c;
}

// A replay on a GPU computes as long as the profile that it was executed with says. Why another one
// predicts it, "" = none does.
std::string other_profile(const Terminal& t, const Run& run, const Case& c,
                          const std::string& folder) {
  const std::string& then = run.origin.profile;
  if (run.evidence != EvidenceClass::Replay || run.origin.gpu.empty() || then == c.profile.name)
    return {};
  try {
    std::vector<std::string> files;
    for (const char* in : {"/replayed/", "/profiles/"})
      if (std::string beside = folder + in + then + ".json"; io::exists(beside))
        files.push_back(beside);
    const io::Home home = home_of(t);
    if (auto shipped = home.list("calib/profiles");
        std::find(shipped.begin(), shipped.end(), then) != shipped.end())
      files.push_back(home.find("calib/profiles", then, "profile"));
    for (const std::string& file : files) {
      Profile p = io::open_profile(home, file, file);
      if (p.name == then && same_computation(p, c.profile)) return {};
    }
  } catch (const InputError&) {  // it is not here
  }
  return "its computation was as long as profile " + then + " says, and " + c.profile.name +
         " would predict it; --profile or --profiles name what it was executed with";
}

Run open_run(const std::string& file) {
  Run run = io::read_run(io::parse_json(io::read_file(file), file), file);
  if (run.kind != RunKind::Measured)
    throw InputError{file, "is a predicted run; a folder of runs to validate holds measured ones"};
  bool steady = std::any_of(run.steps.begin(), run.steps.end(),
                            [](const StepRecord& s) { return s.kind == StepKind::Steady; });
  if (!run.steps.empty() && !steady)
    throw InputError{file + "#/steps", "has no steady step, so there is nothing to compare"};
  return run;
}

// A case that several Runs share is predicted once: by the first thread that asks, while others
// wait.
class Cases {
 public:
  // REQUIRES: all outlive it.
  Cases(const Terminal& t, const ValidateFlags& flags) : t_(t), flags_(flags) {}

  const Case& of(const std::string& path, bool replayed) {
    std::shared_future<Case> found;
    {
      std::lock_guard guard(lock_);
      std::shared_future<Case>& known = cases_[{path, replayed}];
      if (!known.valid())
        known = std::async(std::launch::deferred, [this, path, replayed] {
                  return predict_case(t_, flags_, path, replayed);
                }).share();
      found = known;
    }
    return found.get();
  }

 private:
  const Terminal& t_;
  const ValidateFlags& flags_;
  std::mutex lock_;
  std::map<std::pair<std::string, bool>, std::shared_future<Case>> cases_;
};

// A Run and what it is compared with.
struct Judged {
  std::exception_ptr failed;  // its file cannot be read
  Run run;
  std::optional<Case> own;       // of its own layer profile
  const Case* shared = nullptr;  // as captured; null: not needed
  std::string why_not;           // no pair is made of the two

  const Case& prediction() const { return own ? *own : *shared; }
};

Judged judged(const Terminal& t, const ValidateFlags& flags, Cases& cases,
              const std::string& file) {
  Judged j;
  j.run = open_run(file);
  Validation counted;
  if (!is_comparable(counted, file, j.run)) return j;
  const std::string path = flags.runs + "/scenarios/" + j.run.scenario + ".json";
  const bool replayed = j.run.evidence == EvidenceClass::Replay && !j.run.origin.gpu.empty();
  if (j.run.layers) j.own = predict_case(t, flags, path, replayed, &j.run);
  if (!j.own || j.own->real) j.shared = &cases.of(path, replayed);
  j.why_not = staleness(j.run, j.prediction());
  if (j.why_not.empty()) j.why_not = other_profile(t, j.run, j.prediction(), flags.runs);
  return j;
}

}  // namespace

Validation validate_folder(const Terminal& t, const ValidateFlags& flags,
                           const std::vector<Limit>& limits) {
  const std::vector<std::string> files = run_files(flags.runs);
  if (files.empty())
    throw InputError{flags.runs,
                     "holds no runs (*.json, *.json.gz); execute some with ddpsim run, or name "
                     "another folder with --runs"};
  Validation v;
  Cases cases(t, flags);
  std::atomic<bool> enough = false;
  auto make = [&](std::int64_t i) {
    Judged j;
    if (enough) return j;
    try {
      j = judged(t, flags, cases, files[i]);
    } catch (...) {
      j.failed = std::current_exception();
    }
    return j;
  };
  auto take = [&](std::int64_t i, const Judged& j) {
    if (enough || (flags.fail_fast && fails_already(v, limits))) {
      enough = true;
      return;
    }
    if (j.failed) std::rethrow_exception(j.failed);
    const std::string& file = files[i];
    const std::string name = file.substr(file.rfind('/') + 1);
    if (!is_comparable(v, name, j.run)) return;
    if (!j.why_not.empty()) {
      v.errors.push_back({name, j.run.key, "stale", j.why_not});
      return;
    }
    Pair& pair = add_pair(v, name, j.run, j.prediction(), tolerance_of(flags.tolerance));
    if (j.own && j.own->real)
      pair.capture_error = relative(j.shared->prediction.summary.step, pair.comparison.measured);
  };
  const int jobs = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const auto count = static_cast<std::int64_t>(files.size());
  in_order<Judged>(0, count, jobs, count, make, take, [] {});
  summarize(v);
  return v;
}

}  // namespace ddpsim::cli
