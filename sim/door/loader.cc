#include "sim/door/loader.h"

#include <fmt/format.h>

#include "sim/cost/roofline.h"
#include "sim/door/given_program.h"
#include "sim/door/horizon.h"
#include "sim/door/placement.h"
#include "sim/predict/measured_step.h"
#include "sim/systems/base/record.h"
#include "sim/units/convert.h"
#include "sim/units/number.h"
#include "sim/units/text.h"

namespace ddpsim::door {
namespace {

constexpr double kMostBytes = kBytesPerGB;
// What a simulation keeps of one message that message_count() counts, as measured with 64 to 256
// ranks; NCCL's are few.
double bytes_of_message(const Asked& l) {
  switch (backend_of(l.scenario.plan, l.hardware->device->profile.kind)) {
    case Backend::Tcp:
      return 460;
    case Backend::Gloo:
      return 130;
    default:
      return 0;
  }
}

// The text of --measured-step, which it must be able to be.
std::string parse_measured(const QuestionText& flags) {
  const std::string& text = flags.measured_step;
  std::string blame = "--measured-step " + text;
  if (!flags.samples_per_s.empty())
    throw InputError{blame, "and --samples-per-s say the same number; give one of the two"};
  Parsed<Duration> d = parse_duration(text);
  if (!d.value) throw InputError{blame, d.error};
  if (d.value->ps <= 0) throw InputError{blame, "a step takes some time"};
  return text;
}

}  // namespace

std::string shipped_scenario(const io::Home& home, const std::string& name) {
  if (name.empty() || io::exists(name) || name.find('/') != std::string::npos) return name;
  const std::vector<std::string> shipped = home.list("scenarios");
  if (std::find(shipped.begin(), shipped.end(), name) == shipped.end()) return name;
  return home.find("scenarios", name, "scenario");
}

Loader::Loader(Context context, const QuestionText& flags)
    : context_(std::move(context)),
      parts_(context_.home),
      flags_(flags),
      scenario_({{"schema", "ddpsim.scenario/1"}}),
      scenario_file_("command line") {
  if (flags.profiles.size() > 1)
    throw InputError{
        "--profile",
        "one profile at a time: all devices of a cluster are of one kind; give it once"};
  const Settings given(flags.sets);  // a bad one is blamed before a word that was its value
  names_system_ = given.at(io::Target::Scenario, "/plan/system") != nullptr;
  flags_.program = shipped_scenario(context_.home, flags.program);
  if (flags.scenario.empty()) return;
  scenario_file_ = shipped_scenario(context_.home, flags.scenario);
  if (flags.scenario.ends_with(".py"))
    throw InputError{
        flags.scenario,
        "is a script and no scenario; ddpsim predict --script predicts it, and ddpsim describe "
        "--script FILE -o FILE.json writes its workload, which --workload names"};
  if (flags.scenario.ends_with(".yaml") || flags.scenario.ends_with(".yml") ||
      flags.scenario.ends_with(".toml"))
    throw InputError{flags.scenario,
                     "a scenario is written in JSON (ddpsim show scenario prints one)"};
  if (parse_number(flags.scenario))
    throw InputError{flags.scenario,
                     "is no scenario file; a list of values is written with commas: 1,5,25"};
  if (!io::exists(scenario_file_) && flags.scenario.find('/') == std::string::npos &&
      !flags.scenario.ends_with(".json"))
    throw InputError{flags.scenario,
                     "no such scenario file (a shipped workload is named by --workload, a cluster "
                     "by --cluster; ddpsim list scenarios)"};
  scenario_ = io::parse_json(io::read_file(scenario_file_), scenario_file_);
  if (takes_as_named()) return;
  if (auto slash = scenario_file_.rfind('/'); slash != std::string::npos)
    folder_ = scenario_file_.substr(0, slash + 1);
  io::read_scenario(scenario_, scenario_file_);
}

// A file that is no scenario stands for the flag that its schema names. False: it is one.
bool Loader::takes_as_named() {
  const std::string schema =
      scenario_.is_object() && scenario_.contains("schema") && scenario_["schema"].is_string()
          ? scenario_["schema"].get<std::string>()
          : "";
  for (auto [flag, named, value] : {std::tuple{"--program", "ddpsim.program/1", &flags_.program},
                                    {"--workload", "ddpsim.workload/1", &flags_.workload},
                                    {"--cluster", "ddpsim.cluster/1", &flags_.cluster}}) {
    if (schema != named) continue;
    if (!value->empty())
      throw InputError{flags_.scenario, std::string("is what ") + flag + " names, and so is " +
                                            *value + "; give one of them"};
    *value = scenario_file_;
    flags_.scenario.clear();
    scenario_ = {{"schema", "ddpsim.scenario/1"}};
    scenario_file_ = "command line";
    return true;
  }
  return false;
}

// What the scenario says with the flags and a choice in it.
struct Loader::Read {
  QuestionText flags;
  Settings settings;
  Named scenario;
  io::ScenarioFile parsed;
  PartSources sources(const std::string& folder) const {
    return {settings, flags, parsed, scenario.file, folder};
  }
};

// What the script behind a described workload gave its wrapper, as values of --set: it is part of
// the question where no plan is named. Told once, taken or not.
std::vector<std::string> Loader::own_knobs(const QuestionText& flags) {
  if (flags.workload.empty() || !flags.scenario.empty()) return {};
  const bool taken = flags.plan.empty() && !names_system_;
  const auto [named, fresh] = parts_.opened(flags);
  const Json& document = named.document;
  const Json::json_pointer plan("/source/plan");
  if (!document.is_object() || !document.contains(plan) || !document.at(plan).is_object())
    return {};
  std::vector<std::string> knobs = sets_of(document.at(plan));
  if (fresh && !knobs.empty())
    context_.note(fmt::format("{}: knobs of its script's plan are {}{}{}",
                              printable(flags.workload),
                              taken ? "taken: " : "left out, since another plan is named: ",
                              printable(fmt::format("{}", fmt::join(knobs, ", "))),
                              taken ? " (--set changes them)" : ""));
  return taken ? knobs : std::vector<std::string>{};
}

Loader::Read Loader::read(const Choice& choice) {
  Read out{flags_, Settings({}), {scenario_, scenario_file_}, {}};
  QuestionText& flags = out.flags;
  if (!choice.workload.empty()) flags.workload = choice.workload;
  if (!choice.cluster.empty()) flags.cluster = choice.cluster;
  if (!choice.plan.empty()) flags.plan = choice.plan;
  if (!choice.profile.empty()) flags.profiles = {choice.profile};
  if (!choice.ranks.empty()) flags.ranks = choice.ranks;
  std::vector<std::string> sets = own_knobs(flags);
  sets.insert(sets.end(), flags.sets.begin(), flags.sets.end());
  out.settings = Settings(sets);
  Json& document = out.scenario.document;
  if (!flags.plan.empty()) document["plan"] = read_plan_flag(flags.plan);
  if (!flags.ranks.empty()) document["ranks"] = parse_ranks(flags.ranks);
  if (!flags.measured_step.empty()) document["measured_step"] = parse_measured(flags);
  for (const io::Setting& s : choice.settings) out.settings.add(s);
  refuse_beside_program(flags, {out.settings.begin(), out.settings.end()});
  out.parsed = out.settings.read(io::Target::Scenario, out.scenario, io::read_scenario);
  return out;
}

bool Loader::measured() {
  return !flags_.samples_per_s.empty() || read({}).parsed.measured_step;
}

// What was measured: the question without a choice, as far as one rank by itself needs it.
std::shared_ptr<const Asked> Loader::measured_work() {
  {
    std::lock_guard guard(lock_);
    if (measured_work_) return measured_work_;
  }
  const Read read = this->read({});
  const PartSources from = read.sources(folder_);
  auto out = std::make_shared<Asked>();
  out->workload = parts_.workload(from);
  out->hardware = parts_.hardware(from);
  out->scenario.plan = read.parsed.scenario.plan;
  out->scenario.ranks = 1;
  const Workload& w = out->workload->workload;
  const Profile& p = out->hardware->device->profile;
  if (auto why = predict::roofline_problem(w, p, predict::gathered_in(out->scenario.plan));
      !why.empty())
    throw InputError{out->workload->file, why};
  if (auto problem = validate(out->scenario.plan, w, p.kind))
    throw InputError{scenario_file_ + "#" + problem.path, problem.message};
  check_horizon(*out, scenario_file_);
  std::lock_guard guard(lock_);
  return measured_work_ = std::move(out);
}

void Loader::scale_to_measured(Read& read, Asked& out) {
  const QuestionText& flags = read.flags;
  std::optional<Duration> measured = read.parsed.measured_step;
  if (!measured && flags.samples_per_s.empty()) return;
  std::string blame = !flags.samples_per_s.empty()   ? "--samples-per-s " + flags.samples_per_s
                      : !flags.measured_step.empty() ? "--measured-step " + flags.measured_step
                                                     : scenario_file_ + "#/measured_step";
  std::shared_ptr<const Asked> of = measured_work();
  const Profile& profile = out.hardware->device->profile;
  if (profile.name != of->hardware->device->profile.name)
    throw InputError{blame, "was measured on a device of profile \"" +
                                of->hardware->device->profile.name + "\", and this is one of \"" +
                                profile.name + "\""};
  predict::MeasuredWork work{of->workload->workload, of->scenario.plan.accumulation_steps};
  if (!flags.samples_per_s.empty()) {
    constexpr double kMostRate = 1e12;
    double rate = parse_positive("--samples-per-s", flags.samples_per_s, kMostRate);
    double samples = static_cast<double>(work.workload.batch) * work.micro_steps;
    measured = Duration{std::max<std::int64_t>(ceil_ps(samples, per_ps(rate)), 1)};
    read.scenario.document["measured_step"] = std::to_string(measured->ps) + "ps";
  }
  if (predict::one_rank_step(predict::step_times(work.workload, profile, Level::Mid), 1).ps == 0)
    throw InputError{blame, "the workload computes nothing that could be scaled to it"};
  auto part = std::make_shared<WorkloadPart>(*out.workload);
  part->workload = predict::scaled_to(
      *measured, work, {part->workload, out.scenario.plan.accumulation_steps}, profile);
  check_horizon(out, blame, std::max(part->workload.measured_step->factor, 1.0));
  for (std::size_t k = 0; k < out.others.size(); ++k)
    if (!out.others[k]) out.scenario.other_jobs[k].workload = part->workload;
  out.workload = std::move(part);
  out.times = nullptr;
}

void Loader::place_on_hosts(Read& read, Asked& out) {
  const Cluster& c = out.hardware->cluster;
  Scenario& s = out.scenario;
  const std::string& each = read.flags.gpus_per_host;
  if (!s.rank_order.empty()) {
    if (!each.empty())
      throw InputError{"--gpus-per-host " + each,
                       "and rank_order both say where ranks are; give one of them"};
    return;
  }
  const Placing p = place_ranks(c, s.ranks, each, read.settings.sizes_cluster());
  if (!p.says.empty() && (!p.set.empty() || s.other_jobs.empty())) {
    std::lock_guard guard(lock_);
    if (!std::exchange(placed_, true)) context_.note(printable(c.name) + ": " + p.says);
  }
  if (!p.set.empty()) {
    read.settings.add(io::parse_setting(p.set));
    out.hardware = parts_.hardware(read.sources(folder_));
  }
  if (p.each == c.devices_per_host || p.each <= 0) return;
  s.ranks = p.ranks;
  s.rank_order = devices_of(p, c);
  read.scenario.document["ranks"] = s.ranks;
  auto& order = read.scenario.document["rank_order"] = io::Json::array();
  for (DeviceId d : s.rank_order) order.push_back(d.number);
}

Asked Loader::ask(const Choice& choice) {
  using io::Target;
  Read read = this->read(choice);
  const QuestionText& flags = read.flags;
  const Settings& settings = read.settings;
  const io::ScenarioFile& parsed = read.parsed;
  const PartSources from = read.sources(folder_);
  Asked out;
  if (flags.program.empty()) out.workload = parts_.workload(from);
  out.hardware = parts_.hardware(from);
  out.scenario = parsed.scenario;
  if (!flags.program.empty()) give_program(flags, out);
  out.set = !settings.of(Target::Workload).empty();
  for (OtherJob& job : out.scenario.other_jobs) {
    out.others.push_back(
        job.workload_name.empty() ? nullptr : parts_.workload_of_job(from, job.workload_name));
    job.workload = out.others.back() ? out.others.back()->workload : out.workload->workload;
  }
  place_on_hosts(read, out);
  const Cluster& cluster = out.hardware->cluster;
  if (out.scenario.ranks == 0) out.scenario.ranks = cluster.devices();

  auto fail = [&](const Problem& problem) {
    const std::string& path = problem.path;
    std::string where = scenario_file_ + "#" + path;
    const io::Setting* said = settings.at(Target::Scenario, path);
    for (const char* of_units :
         {"/plan/auto_wrap_policy", "/plan/blocks_per_unit", "/plan/ends_apart"})
      if (!said && path.starts_with(of_units)) said = settings.at(Target::Scenario, "/plan/units");
    if (said)
      where = "--set " + said->text;
    else if (path == "/workload")
      where = out.workload->file;
    else if (path == "/cluster")
      where = out.hardware->file;
    else if (path.starts_with("/links") || path.starts_with("/inside") ||
             path.starts_with("/failed_links"))
      where = out.hardware->file + "#" + path;
    else if (path == "/ranks" && !flags.ranks.empty())
      where = "--ranks " + flags.ranks;
    else if (path.starts_with("/plan") && !flags.plan.empty())
      where = "--plan " + flags.plan;
    throw InputError{where, problem.message};
  };
  if (auto problem = validate(out.scenario, cluster.devices())) fail(problem);
  for (const auto& [name, value] : out.scenario.plan.environment)
    if (std::string problem = nccl_variable_problem(name); !problem.empty())
      fail({"/plan/environment/" + name, problem});
  if (flags.fidelity == "message")
    out.options.fidelity = predict::Fidelity::Message;
  else if (!flags.fidelity.empty() && flags.fidelity != "collective")
    throw InputError{"--fidelity " + flags.fidelity, "expected collective or message"};
  if (out.options.fidelity == predict::Fidelity::Message && out.scenario.ranks > 1024)
    throw InputError{"--fidelity message",
                     "simulates every message of every rank and is meant for up to 1,024 ranks; "
                     "use --fidelity collective"};
  out.options.known = &out.hardware->communicators;
  if (!out.program) out.times = parts_.times(out.workload, out.hardware->device);
  if (auto problem = predict::check(out.question(), out.options.known)) fail(problem);
  if (out.program) check_given_program(flags, out);
  if (flags.fidelity.empty()) {
    out.options.fidelity = predict::usual_fidelity(out.question(), out.options.program);
  } else if (out.options.fidelity == predict::Fidelity::Message) {
    constexpr double kMost = 40e6;
    if (double messages = predict::message_count(out.question(), out.options.program);
        messages > kMost)
      throw InputError{"--fidelity message",
                       fmt::format("about {:.0f} million messages to simulate, more than {:.0f}; "
                                   "use fewer ranks, or --fidelity collective",
                                   messages / kMillion, kMost / kMillion)};
    else if (double bytes = messages * bytes_of_message(out); bytes > kMostBytes)
      throw InputError{"--fidelity message",
                       fmt::format("its messages take about {:.1f} GB, more than {:.0f}; use fewer "
                                   "ranks, or --fidelity collective",
                                   bytes / kBytesPerGB, kMostBytes / kBytesPerGB)};
  }
  // Horovod's negotiation keeps 22 KB a tensor, as measured with 40,000 and 60,000.
  constexpr std::size_t kMostNegotiated = 44'000;
  if (!out.program && systems::record_of(out.scenario.plan.system).negotiates &&
      out.workload->workload.tensors.size() > kMostNegotiated)
    throw InputError{out.workload->file,
                     fmt::format("has {} tensors, and what Horovod's negotiation of more than {} "
                                 "takes is above {:.0f} GB; another --plan has no such limit",
                                 out.workload->workload.tensors.size(), kMostNegotiated,
                                 kMostBytes / kBytesPerGB)};
  check_horizon(out, scenario_file_);
  if (!out.program) scale_to_measured(read, out);
  if (out.program) check_period(out);
  out.document = std::move(read.scenario.document);
  return out;
}

}  // namespace ddpsim::door
