// ddpsim validate: every measured Run of a folder beside the prediction of its scenario, and the
// budget that the errors must keep; published collectives and training steps, likewise.
#include <ostream>

#include <fmt/format.h>

#include "sim/io/extends.h"
#include "sim/io/read_budget.h"
#include "sim/predict/mechanisms.h"
#include "tools/cmd/collectives.h"
#include "tools/cmd/collectives_machines.h"
#include "tools/cmd/executed.h"
#include "tools/cmd/flags.h"
#include "tools/cmd/kernels.h"
#include "tools/cmd/question.h"
#include "tools/cmd/steps.h"
#include "tools/cmd/validate_runs.h"
#include "tools/cmd/validation_text.h"

namespace ddpsim::cli {
namespace {

using namespace validation;

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
        << " (docs/formats.md, budget) or to --budget FILE\n";
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
    io::open_profile(home, path, path);
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
