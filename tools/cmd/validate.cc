// ddpsim validate: every measured Run of a folder beside the prediction of its scenario, and the
// budget that the errors must keep; published collectives and training steps, likewise.
#include <limits>
#include <ostream>
#include <stdexcept>

#include <fmt/format.h>

#include "calib/cuda/cuda.h"
#include "sim/io/read_budget.h"
#include "sim/predict/baselines.h"
#include "sim/predict/mechanisms.h"
#include "sim/strategy/systems.h"
#include "sim/validation/pairing.h"
#include "tools/cmd/collectives.h"
#include "tools/cmd/collectives_machines.h"
#include "tools/cmd/executed.h"
#include "tools/cmd/flags.h"
#include "tools/cmd/kernels.h"
#include "tools/cmd/question.h"
#include "tools/cmd/steps.h"
#include "tools/cmd/validation_text.h"

namespace ddpsim::cli {
namespace {

using namespace validation;

struct ValidateFlags {
  std::string runs;
  std::string profile;
  std::string profiles;
  std::string budget;
  std::string tolerance;
  std::string without;
  bool fail_fast = false;
  bool collectives = false;
  bool steps = false;
  bool kernels = false;
  std::string published;
  OutputFlags output;
};

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
    c.sharded = l.scenario.plan.system == System::ZeroRedundancy ||
                strategy::record_of(l.scenario.plan.system).shards ||
                l.scenario.plan.system == System::Megatron;
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
    c.prediction = predict::predict(l.question(), l.options);
    c.naive = predict::naive_step(l.question());
    c.queue = predict::queue_step(l.question());
    c.scenario_hash = l.scenario_hash;
    c.workload_hash = l.workload_hash;
    c.profile = l.profile;
    c.one_gpu = l.scenario.ranks > 1 && l.cluster.link.transport == calib::cuda::kLoopback;
    c.mean = steps_differ(l.scenario);
    if (l.scenario.plan.system == System::PytorchDdp) {
      c.cap = l.scenario.plan.bucket_cap_mb;
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
    if (auto shipped = home_of(t).list("calib/profiles");
        std::find(shipped.begin(), shipped.end(), then) != shipped.end())
      files.push_back(home_of(t).find("calib/profiles", then, "profile"));
    for (const std::string& file : files) {
      Profile p = io::read_profile(io::parse_json(io::read_file(file), file), file);
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

Validation validate_folder(const Terminal& t, const ValidateFlags& flags,
                           const std::vector<Limit>& limits) {
  std::vector<std::string> files = run_files(flags.runs);
  if (files.empty())
    throw InputError{flags.runs,
                     "holds no runs (*.json, *.json.gz); execute some with ddpsim run, or name "
                     "another folder with --runs"};
  Validation v;
  std::map<std::pair<std::string, bool>, Case> cases;
  for (const std::string& file : files) {
    if (flags.fail_fast && fails_already(v, limits)) break;
    Run run = open_run(file);
    std::string name = file.substr(file.rfind('/') + 1);
    if (!is_comparable(v, name, run)) continue;
    std::string path = flags.runs + "/scenarios/" + run.scenario + ".json";
    const bool replayed = run.evidence == EvidenceClass::Replay && !run.origin.gpu.empty();
    auto as_captured = [&]() -> const Case& {
      const std::pair key{run.scenario, replayed};
      auto found = cases.find(key);
      if (found == cases.end())
        found = cases.emplace(key, predict_case(t, flags, path, replayed)).first;
      return found->second;
    };
    const Case c = run.layers ? predict_case(t, flags, path, replayed, &run) : as_captured();
    std::string why = staleness(run, c);
    if (why.empty()) why = other_profile(t, run, c, flags.runs);
    if (!why.empty()) {
      v.errors.push_back({name, run.key, "stale", why});
      continue;
    }
    Pair& pair = add_pair(v, name, run, c, tolerance_of(flags.tolerance));
    if (run.layers && c.real)
      pair.capture_error =
          relative(as_captured().prediction.summary.step, pair.comparison.measured);
  }
  summarize(v);
  return v;
}

// Published tables of collectives beside the mechanism, which was fitted on other machines' tables.
void validate_collectives(Terminal& t, const ValidateFlags& flags) {
  for (auto [flag, value] :
       {std::pair{"--budget", &flags.budget}, std::pair{"--profile", &flags.profile},
        std::pair{"--profiles", &flags.profiles}, std::pair{"--without", &flags.without}})
    if (!value->empty())
      throw InputError{
          std::string(flag) + " " + *value,
          "is not of validate --collectives (its limits: tests/validation/collectives.py)"};
  std::string folder =
      flags.published.empty() ? home_of(t).path() + "/calib/published" : flags.published;
  Tables tables = load_tables(t, folder);
  if (tables.tables.empty())
    throw InputError{folder, "holds no table of collectives (ddpsim import nccl-tests makes them)"};
  for (const std::string& why : tables.left_out) t.err << "ddpsim: left out: " << why << "\n";
  calib::CollectiveReport report = calib::judge_collectives(tables.tables);
  ExecutedReport executed = judge_executed(
      t, flags.runs.empty()
             ? std::vector{home_of(t).path() + "/calib/runs", home_of(t).path() + "/calib/mpi-runs"}
             : std::vector{flags.runs});
  const std::string& format = flags.output.format;
  if (format == "junit")
    throw InputError{"--format junit",
                     "is of validate without --collectives; here: table, json, md"};
  const calib::MachineReport machines = calib::by_machine(tables.tables, report);
  auto json = [&] {
    io::OrderedJson j = collectives_json(report, executed);
    j.update(machines_json(machines));
    return j.dump(1) + "\n";
  };
  write_answer(t, flags.output,
               format == "json" ? json()
               : format == "md" ? collectives_markdown(report, machines, executed)
                                : collectives_table(report, executed) + machines_table(machines));
}

// The shipped budget is of the shipped Runs or rows; another folder has its own, or none.
std::string budget_of(Terminal& t, const ValidateFlags& flags, const std::string& folder,
                      const char* shipped, const char* budget) {
  if (!flags.budget.empty()) return flags.budget;
  const std::string home = home_of(t).path() + "/";
  if (io::same_place(folder, home + shipped)) return home + budget;
  std::string own = folder + kOwnBudget;
  if (io::exists(own)) return own;
  t.err << "ddpsim: " << folder
        << ": no budget, so no error is too large; limits of these runs go to " << own
        << " (sim/FORMATS.md, budget) or to --budget FILE\n";
  return {};
}

void check_mechanism(const std::string& name) {
  if (name.empty() || predict::parse_mechanism(name)) return;
  std::vector<std::string> known;
  for (int m = 0; m < predict::kMechanisms; ++m)
    known.push_back(predict::name_of(static_cast<predict::Mechanism>(m)));
  std::string hint = io::nearest(name, known);
  throw InputError{"--without " + name,
                   hint.empty()
                       ? fmt::format("is not a mechanism; known are {}", fmt::join(known, ", "))
                       : "is not a mechanism (did you mean \"" + hint + "\"?)"};
}

void tell_broken(Terminal& t, const std::vector<LimitResult>& limits) {
  for (const LimitResult& r : limits)
    if (r.broken) t.err << "ddpsim: budget: " << r.sentence << "\n";
}

// Published training steps beside predictions of them.
void validate_steps(Terminal& t, const ValidateFlags& flags) {
  for (auto [flag, value] :
       {std::pair{"--runs", &flags.runs}, std::pair{"--profile", &flags.profile},
        std::pair{"--profiles", &flags.profiles}, std::pair{"--tolerance", &flags.tolerance}})
    if (!value->empty())
      throw InputError{std::string(flag) + " " + *value,
                       "is not of validate --steps: each row names what it is predicted with, and "
                       "its error counts as it is"};
  const std::string& format = flags.output.format;
  if (format == "junit")
    throw InputError{"--format junit", "is of validate without --steps; here: table, json, md"};
  check_mechanism(flags.without);
  const char* const shipped = "calib/published/steps";
  const std::string folder =
      flags.published.empty() ? home_of(t).path() + "/" + shipped : flags.published;
  const std::string budget = budget_of(t, flags, folder, shipped, "tests/validation/steps.json");
  std::vector<Limit> limits;
  if (!budget.empty())
    limits = io::read_budget(io::parse_json(io::read_file(budget), budget), budget, {});
  auto drop = [](std::vector<Limit>& of, const char* words) {
    std::erase_if(of, [&](const Limit& l) { return l.what.find(words) != std::string::npos; });
  };
  if (!flags.without.empty())  // constants are not chosen again: what that would give is not there
    drop(limits, "_left_out.");
  const auto rows = load_steps(folder);
  auto judged = [&](const std::vector<Limit>& by, bool intervals) {
    StepsReport out = judge_steps(predict_steps(t, folder, rows, flags.without, intervals));
    out.limits = apply_limits(values(out), by);
    return out;
  };
  auto broken = [](const StepsReport& r) {
    return std::any_of(r.limits.begin(), r.limits.end(), [](auto& l) { return l.broken; });
  };
  std::optional<StepsReport> of_errors;
  if (flags.fail_fast) {  // an interval takes twice as long as the rest
    std::vector<Limit> quick = limits;
    drop(quick, "_left_out.");
    drop(quick, ".coverage");
    of_errors = judged(quick, false);
  }
  StepsReport report =
      of_errors && broken(*of_errors) ? std::move(*of_errors) : judged(limits, true);
  write_answer(t, flags.output,
               format == "json" ? steps_json(report).dump(1) + "\n"
               : format == "md" ? steps_markdown(report)
                                : steps_table(report));
  tell_broken(t, report.limits);
  if (broken(report)) throw GateFailed{};
}

// Published kernels beside what shipped profiles say of them.
void validate_published_kernels(Terminal& t, const ValidateFlags& flags) {
  for (auto [flag, value] :
       {std::pair{"--runs", &flags.runs}, std::pair{"--profile", &flags.profile},
        std::pair{"--profiles", &flags.profiles}, std::pair{"--tolerance", &flags.tolerance},
        std::pair{"--without", &flags.without}})
    if (!value->empty())
      throw InputError{std::string(flag) + " " + *value,
                       "is not of validate --kernels: each file names the profiles of its GPUs"};
  if (flags.output.format == "junit")
    throw InputError{"--format junit", "is of validate without --kernels; here: table, json, md"};
  const char* const shipped = "calib/published/kernels";
  const std::string folder =
      flags.published.empty() ? home_of(t).path() + "/" + shipped : flags.published;
  validate_kernels(t, flags.output, folder,
                   budget_of(t, flags, folder, shipped, "tests/validation/kernels.json"));
}

void validate_command(Terminal& t, ValidateFlags flags) {
  for (auto [flag, on] :
       {std::pair{"--collectives", flags.collectives}, std::pair{"--steps", flags.steps},
        std::pair{"--kernels", flags.kernels}}) {
    if (on && !flags.output.html.empty())
      throw InputError{
          "--html", std::string("is of validate without ") + flag + "; that one has --format md"};
    if (on && flags.fail_fast && !flags.steps)
      throw InputError{"--fail-fast", std::string("is of validate without ") + flag};
  }
  if (flags.collectives) return validate_collectives(t, flags);
  if (flags.steps) return validate_steps(t, flags);
  if (flags.kernels) return validate_published_kernels(t, flags);
  if (!flags.published.empty())
    throw InputError{"--published " + flags.published,
                     "is of validate --collectives, --steps or --kernels"};
  check_html(flags.output);
  tolerance_of(flags.tolerance);
  io::Home home = home_of(t);
  if (flags.runs.empty()) flags.runs = home.path() + "/calib/runs";
  flags.budget = budget_of(t, flags, flags.runs, "calib/runs", "tests/validation/budget.json");
  if (!flags.profile.empty()) {  // once, rather than for every Run
    std::string path = home.find("calib/profiles", flags.profile, "profile");
    io::read_profile(io::parse_json(io::read_file(path), path), path);
  }
  if (!flags.profiles.empty()) io::list_files(flags.profiles, {".json"});
  check_mechanism(flags.without);
  std::vector<Limit> limits;
  if (!flags.budget.empty())
    limits =
        io::read_budget(io::parse_json(io::read_file(flags.budget), flags.budget), flags.budget);
  Validation v = validate_folder(t, flags, limits);
  if (!flags.fail_fast || !v.failed()) apply_budget(v, limits);
  write_html(t, flags.output, [&] {
    return io::OrderedJson{{"kind", "validate"},
                           {"title", "ddpsim validate"},
                           {"without", flags.without},
                           {"tolerance", tolerance_of(flags.tolerance)},
                           {"validation", validation_json(v)}};
  });
  const std::string& format = flags.output.format;
  write_answer(t, flags.output,
               format == "json"    ? validation_json(v).dump(1) + "\n"
               : format == "junit" ? validation_junit(v)
               : format == "md"    ? validation_markdown(v)
                                   : validation_table(v));
  for (const RunError& e : v.errors)
    t.err << "ddpsim: " << e.what << ": " << e.file << ": " << e.sentence << "\n";
  tell_broken(t, v.limits);
  if (v.failed()) throw GateFailed{};
}

}  // namespace

void add_validate(Command& app, Terminal& t) {
  auto flags = std::make_shared<ValidateFlags>();
  Command* c = app.add_subcommand("validate",
                                  "Compare every measured run of a folder with its prediction, and "
                                  "hold the errors to a budget");
  c->add_option("--runs", flags->runs,
                "folder of measured runs, with their scenarios in scenarios/; default: the shipped "
                "calib/runs");
  c->add_option("--profile", flags->profile,
                "profile for all of them: a file, or the name of a shipped one; default: the one "
                "that each run's cluster names");
  c->add_option("--profiles", flags->profiles,
                "folder in which to look for the profiles that clusters name; default: profiles/ "
                "beside the runs, then the shipped ones")
      ->excludes("--profile");
  c->add_option("--budget", flags->budget,
                "limits that must be kept; default: budget.json of that folder if there is one, "
                "and for what is shipped tests/validation/budget.json, or steps.json");
  c->add_option("--tolerance", flags->tolerance,
                "of a step's relative error, for the verdict of a pair; default 0.02");
  c->add_option("--without", flags->without,
                "predict with one mechanism of the model taken out (copy_in, burst, workers, ...): "
                "a gate that then passes guards nothing");
  c->add_flag("--fail-fast", flags->fail_fast,
              "end as soon as the gate fails whatever the Runs to come are: the answer is of those "
              "until then; with --steps, of errors, before any interval is predicted");
  c->add_flag("--collectives", flags->collectives,
              "judge the prices of NCCL's collectives instead: published tables, each predicted "
              "with what other machines' tables say");
  c->add_flag("--steps", flags->steps,
              "judge published training steps instead: each predicted, absolute and with its "
              "computation scaled to what one GPU measured")
      ->excludes("--collectives");
  c->add_flag("--kernels", flags->kernels,
              "judge published times of single kernels instead: products of linear layers, each "
              "beside what the profile of its GPU says")
      ->excludes("--collectives")
      ->excludes("--steps");
  c->add_option(
      "--published", flags->published,
      "folder of those tables, steps or kernels; default: the shipped calib/published, or its "
      "steps or kernels");
  add_output_flags(
      *c, flags->output, {"table", "json", "junit", "md"},
      "table (default), json, md; without --collectives, --steps and --kernels also junit");
  add_html_flag(*c, flags->output);
  c->callback([&t, flags] { validate_command(t, *flags); });
}

}  // namespace ddpsim::cli
