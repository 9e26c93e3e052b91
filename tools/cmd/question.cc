#include "tools/cmd/question.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <ostream>

namespace ddpsim::cli {
namespace {

using io::Json;

struct Named {
  Json document;
  std::string file;
};

Named open_document(const io::Home& home, const char* folder, const std::string& name, const char* what) {
  std::string path = home.find(folder, name, what);
  bool shipped = path != name;
  return {io::parse_json(io::read_file(path), path), shipped ? std::string(folder) + "/" + name + ".json" : path};
}

// The profile that the cluster names: a measured one of that hardware before the datasheet.
std::string default_profile(const io::Home& home, const std::string& named) {
  std::string base = named;
  const std::string suffix = ".datasheet";
  if (base.ends_with(suffix)) base.resize(base.size() - suffix.size());
  auto shipped = home.list("calib/profiles");
  for (const std::string& candidate : {base, base + suffix})
    if (std::find(shipped.begin(), shipped.end(), candidate) != shipped.end()) return candidate;
  return named;
}

std::uint64_t fnv1a(std::uint64_t h, const std::string& text) {
  for (unsigned char c : text) h = (h ^ c) * 0x100000001b3ull;
  return h;
}

Json read_plan_flag(const std::string& plan) {
  if (plan.find('/') != std::string::npos || plan.ends_with(".json")) {
    Json j = io::parse_json(io::read_file(plan), plan);
    if (!j.is_object()) throw InputError{plan, "a plan is an object of knobs, for example {\"system\": \"pytorch_ddp\", \"bucket_cap_mb\": 50}"};
    return j.contains("plan") ? j["plan"] : j;
  }
  return Json{{"system", plan}};
}

int parse_ranks(const std::string& text) {
  int ranks = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ranks);
  if (error != std::errc() || end != text.data() + text.size()) throw InputError{"--ranks " + text, "expected a whole number of ranks"};
  if (ranks < 1) throw InputError{"--ranks " + text, "a job has at least one rank"};
  return ranks;
}

}  // namespace

io::Home home_of(const Terminal& t) { return io::Home(t.home, t.executable, DDPSIM_BUILT_FROM); }

void add_question_flags(CLI::App& c, QuestionFlags& f) {
  c.add_option("scenario", f.scenario, "scenario file (names workload, cluster, plan, ranks); flags override it");
  c.add_option("--workload", f.workload, "workload: a file, or the name of a shipped one (ddpsim list workloads)");
  c.add_option("--cluster", f.cluster, "cluster: a file, or the name of a shipped one (ddpsim list clusters)");
  c.add_option("--plan", f.plan, "plan: a file with knobs, or the name of a system (ddpsim list plans)");
  c.add_option("--profile", f.profiles, "profile: a file, or the name of a shipped one; default: the one that the cluster's devices name");
  c.add_option("--ranks", f.ranks, "number of ranks; default: all devices of the cluster");
  c.add_option("--set", f.sets, "PATH=VALUE, repeatable: bucket_cap_mb=50, cluster.hosts=16, workload.batch=64, slow_ranks.3=1.5")->allow_extra_args(false);
  c.add_option("--fidelity", f.fidelity, "collective (default) or message (every message of every step is simulated)");
}

void add_output_flags(CLI::App& c, OutputFlags& f, const std::vector<std::string>& formats) {
  f.format = formats.front();
  std::string list;
  for (const auto& s : formats) list += (list.empty() ? "" : ", ") + s;
  c.add_option("--format", f.format, list)->check([formats, list](const std::string& s) {
    return std::find(formats.begin(), formats.end(), s) != formats.end() ? std::string() : "\"" + s + "\" is not a format of this command; known are " + list;
  });
  c.add_option("--out", f.out, "write the answer to this file instead of stdout");
}

void write_answer(Terminal& t, const OutputFlags& flags, const std::string& text) {
  if (flags.out.empty()) t.out << text << std::flush;
  else io::write_file(flags.out, text);
}

Loaded load(const Terminal& t, const QuestionFlags& flags) {
  io::Home home = home_of(t);
  Json scenario = {{"schema", "ddpsim.scenario/1"}};
  std::string scenario_file = "command line";
  std::string folder;
  if (!flags.scenario.empty()) {
    scenario_file = flags.scenario;
    scenario = io::parse_json(io::read_file(scenario_file), scenario_file);
    if (auto slash = scenario_file.rfind('/'); slash != std::string::npos) folder = scenario_file.substr(0, slash + 1);
    io::read_scenario(scenario, scenario_file);
  }
  if (!flags.plan.empty()) scenario["plan"] = read_plan_flag(flags.plan);
  if (!flags.ranks.empty()) scenario["ranks"] = parse_ranks(flags.ranks);
  std::vector<io::Setting> settings;
  for (const std::string& s : flags.sets) settings.push_back(io::parse_setting(s));
  auto apply_to = [&](io::Target target, Json& document) {
    for (const io::Setting& s : settings)
      if (s.target == target) io::apply(s, document);
  };
  apply_to(io::Target::Scenario, scenario);
  io::ScenarioFile parsed = io::read_scenario(scenario, scenario_file);
  // A path inside a scenario file is relative to that file.
  auto located = [&](const std::string& flag, const std::string& in_file, const char* what, const char* flag_name) {
    if (!flag.empty()) return flag;
    if (in_file.empty())
      throw InputError{std::string("--") + flag_name, std::string("no ") + what + " given; name one (ddpsim list " + flag_name + "s) or give a scenario file"};
    bool relative = (in_file.find('/') != std::string::npos || in_file.ends_with(".json")) && in_file.front() != '/';
    return relative ? folder + in_file : in_file;
  };
  Loaded out;
  Named w = open_document(home, "workloads", located(flags.workload, parsed.workload, "workload", "workload"), "workload");
  bool captured = w.document.is_object() && w.document.value("basis", Json()) == "captured";
  for (const io::Setting& s : settings)
    if (s.target == io::Target::Workload && captured && (s.path[0] == "batch" || s.path[0] == "precision"))
      throw InputError{"--set " + s.text, "the workload's times were captured at one batch and precision; capture it again, or use a described workload"};
  apply_to(io::Target::Workload, w.document);
  out.workload = io::read_workload(w.document, w.file);
  Named c = open_document(home, "topologies", located(flags.cluster, parsed.cluster, "cluster", "cluster"), "cluster");
  apply_to(io::Target::Cluster, c.document);
  out.cluster = io::read_cluster(c.document, c.file);
  if (flags.profiles.size() > 1) throw InputError{"--profile", "one profile at a time: all devices of a cluster are of one kind"};
  std::string profile = !flags.profiles.empty() ? flags.profiles[0] : !parsed.profile.empty() ? located("", parsed.profile, "profile", "profile") : default_profile(home, out.cluster.profile);
  Named p = open_document(home, "calib/profiles", profile, "profile");
  apply_to(io::Target::Profile, p.document);
  out.profile = io::read_profile(p.document, p.file);
  if (out.profile.kind != out.cluster.device)
    throw InputError{c.file + "#/device", "the cluster's devices are " + std::string(out.cluster.device == DeviceKind::Cpu ? "CPUs" : "GPUs") + ", but profile \"" +
                                              out.profile.name + "\" is of the other kind"};
  out.scenario = std::move(parsed.scenario);
  if (!scenario.contains("ranks")) out.scenario.ranks = out.cluster.devices();
  if (auto problem = validate(out.scenario, out.cluster.devices())) {
    std::string where = problem.path == "/ranks" && !flags.ranks.empty() ? "--ranks " + flags.ranks : scenario_file + "#" + problem.path;
    throw InputError{where, problem.message};
  }
  out.fabric.emplace(out.cluster);
  if (flags.fidelity == "message") out.options.fidelity = predict::Fidelity::Message;
  else if (flags.fidelity != "collective") throw InputError{"--fidelity " + flags.fidelity, "expected collective or message"};
  if (out.options.fidelity == predict::Fidelity::Message && out.scenario.ranks > 1024)
    throw InputError{"--fidelity message", "simulates every message of every rank and is meant for up to 1,024 ranks; use --fidelity collective"};
  if (auto problem = predict::check(out.question())) throw InputError{scenario_file + "#" + problem.path, problem.message};
  std::uint64_t hash = 0xcbf29ce484222325ull;
  Json plan_and_ranks = scenario;
  for (const char* name : {"workload", "cluster", "profile", "description"}) plan_and_ranks.erase(name);
  plan_and_ranks["ranks"] = out.scenario.ranks;
  for (const Json* j : {&w.document, &c.document, &plan_and_ranks}) hash = fnv1a(hash, j->dump());
  out.key = fmt::format("{}@{}/{}/n{}/{:016x}", out.workload.name, out.cluster.name, name_of(out.scenario.plan.system), out.scenario.ranks, hash);
  return out;
}

}  // namespace ddpsim::cli
