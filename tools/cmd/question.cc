#include "tools/cmd/question.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <ostream>

#include "sim/io/write_page.h"

namespace ddpsim::cli {
namespace {

using io::Json;

struct Named {
  Json document;
  std::string file;
};

// `place`: the flag or the line of a file that names it, for errors.
Named open_document(const io::Home& home, const char* folder, const std::string& name, const char* what, const std::string& place) {
  std::string path;
  try {
    path = home.find(folder, name, what);
  } catch (const InputError& e) {
    throw InputError{place, "\"" + e.where + "\": " + e.what};
  }
  bool shipped = path != name;
  std::string file = shipped ? std::string(folder) + "/" + name + ".json" : path;
  return {io::parse_json(io::read_file(path), file), file};
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
  bool is_path = plan.find('/') != std::string::npos || plan.ends_with(".json");
  Json j = is_path ? io::parse_json(io::read_file(plan), plan) : Json{{"system", plan}};
  if (!j.is_object()) throw InputError{plan, "a plan is an object of knobs, for example {\"system\": \"pytorch_ddp\", \"bucket_cap_mb\": 50}"};
  bool bare = !j.contains("plan");
  Json knobs = bare ? j : j["plan"];
  try {
    io::read_scenario({{"schema", "ddpsim.scenario/1"}, {"plan", knobs}}, plan);
  } catch (InputError& e) {
    if (!is_path) throw InputError{"--plan " + plan, e.what + "; or give a file of knobs"};
    if (auto at = e.where.find("#/plan"); bare && at != std::string::npos) e.where.erase(at + 1, 5);
    throw e;
  }
  return knobs;
}

// --set flags, and the blame for what they broke.
class Settings {
 public:
  explicit Settings(const std::vector<std::string>& sets) {
    for (const std::string& s : sets) list_.push_back(io::parse_setting(s));
  }
  void apply(io::Target target, Json& document) const {
    for (const io::Setting& s : list_)
      if (s.target == target) io::apply(s, document);
  }
  // The flag that wrote at `pointer` ("/plan/bucket_cap_mb"), or inside or around it; null if none did.
  const io::Setting* at(io::Target target, const std::string& pointer) const {
    for (auto s = list_.rbegin(); s != list_.rend(); ++s) {
      std::string path;
      for (const std::string& key : s->path) path += "/" + key;
      if (s->target == target && !pointer.empty() && ((pointer + "/").starts_with(path + "/") || (path + "/").starts_with(pointer + "/"))) return &*s;
    }
    return nullptr;
  }
  // Applies, then reads; an error at a place that a flag wrote names the flag.
  template <class Reader>
  auto read(io::Target target, Named& named, Reader reader) const {
    apply(target, named.document);
    try {
      return reader(named.document, named.file);
    } catch (const InputError& e) {
      auto hash = e.where.find('#');
      const io::Setting* s = hash == std::string::npos ? nullptr : at(target, e.where.substr(hash + 1));
      throw s ? InputError{"--set " + s->text + " (" + e.where + ")", e.what} : e;
    }
  }
  auto begin() const { return list_.begin(); }
  auto end() const { return list_.end(); }

 private:
  std::vector<io::Setting> list_;
};

// Seconds of all the steps that a prediction plays, each part at its slowest and nothing overlapped.
double longest_seconds(const Loaded& l) {
  const Workload& w = l.workload;
  const Profile& p = l.profile;
  const Plan& plan = l.scenario.plan;
  double micro_steps = plan.accumulation_steps;
  double bandwidth = p.memory.bandwidth_bytes_per_s * p.memory.efficiency.low;
  double compute = 0;
  auto add = [&](const LayerCost& c) {
    double peak = p.compute.peak_flops[static_cast<std::size_t>(w.precision)] * p.compute.efficiency[0].low;
    for (const Range& r : p.compute.efficiency) peak = std::min(peak, p.compute.peak_flops[static_cast<std::size_t>(w.precision)] * r.low);
    compute += (c.bytes_per_sample * w.batch + c.bytes_fixed) / bandwidth + static_cast<double>(c.kernels) * static_cast<double>((p.memory.kernel + p.host.launch).ps) / 1e12;
    if (c.flops_per_sample > 0) compute += c.flops_per_sample * w.batch / peak;
  };
  for (const Layer& layer : w.layers) add(layer.forward), add(layer.backward);
  compute += static_cast<double>((w.times.forward + w.times.backward).ps) / 1e12;
  if (w.times.host) compute += static_cast<double>((w.times.host->forward + w.times.host->backward).ps) / 1e12;
  auto tensors = static_cast<double>(w.tensors.size());
  auto gradients = static_cast<double>(w.gradient_bytes().count);
  double buffers = 0;
  for (const Tensor& b : w.buffers) buffers += static_cast<double>(b.bytes().count);
  // Optimizer and copies: at most 100 passes over the gradients.
  double once = static_cast<double>(w.times.optimizer.ps) / 1e12 + 100 * gradients / bandwidth;
  double overhead = static_cast<double>((p.host.launch + p.host.hook + p.host.traverse + p.memory.kernel).ps) / 1e12 * 10 * tensors;
  double slow = 1;
  for (const auto& [rank, factor] : l.scenario.slow_ranks) slow = std::max(slow, factor);
  if (l.scenario.jitter) slow *= 1 + 6 * l.scenario.jitter->cv;
  if (p.sm_hold.low < 1) slow /= 1 - p.sm_hold.low;
  double network = 0;
  if (l.scenario.ranks > 1) {
    double slowest = 1e18;
    double latency = 0;
    for (const topology::Link& link : l.fabric->links()) {
      slowest = std::min(slowest, static_cast<double>(link.bandwidth.bits_per_s) / 8);
      latency = std::max(latency, static_cast<double>(link.latency.ps) / 1e12 * 4);
    }
    double efficiency = 1;
    double start = 0;
    double correction = 1;
    for (const auto& [name, t] : p.transports) {
      efficiency = std::min(efficiency, t.efficiency.low);
      latency = std::max(latency, static_cast<double>(t.latency.ps) / 1e12);
      start = std::max(start, static_cast<double>((t.launch + p.host.collective_launch).ps) / 1e12);
      for (const Knot& k : t.knots) correction = std::max({correction, k.factor, 1 / k.factor});
    }
    if (p.reduction_bytes_per_s > 0) slowest = std::min(slowest, p.reduction_bytes_per_s);
    double bucket = plan.bucket_cap_mb.value_or(25) * 1048576;
    double collectives = plan.system == System::PytorchDdp ? std::min(tensors, gradients / bucket + 8) + 4 * micro_steps : tensors;
    network = 2 * (gradients + buffers * micro_steps) / (slowest * efficiency) * correction + collectives * (start + 4 * l.scenario.ranks * latency);
  }
  double steps = std::max(12, l.scenario.jitter ? l.scenario.jitter->samples + 1 : 0);
  return steps * (((compute + overhead) * micro_steps + once) * slow + network);
}
constexpr double kHorizonSeconds = 1e6;

}  // namespace

io::Home home_of(const Terminal& t) { return io::Home(t.home, t.executable, DDPSIM_BUILT_FROM); }

Cluster load_cluster(const Terminal& t, const std::string& name, const std::vector<std::string>& sets) {
  Settings settings(sets);
  for (const io::Setting& s : settings)
    if (s.target != io::Target::Cluster) throw InputError{"--set " + s.text, "this command reads a cluster and nothing else; write cluster.PATH=VALUE"};
  Named c = open_document(home_of(t), "topologies", name, "cluster", "--cluster " + name);
  return settings.read(io::Target::Cluster, c, io::read_cluster);
}

Profile load_profile(const io::Home& home, const std::string& named) {
  Named p = open_document(home, "calib/profiles", default_profile(home, named), "profile", "#/device/profile");
  return io::read_profile(p.document, p.file);
}

int parse_ranks(const std::string& text) {
  int ranks = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ranks);
  if (error != std::errc() || end != text.data() + text.size())
    throw InputError{"--ranks " + text, "expected a whole number of ranks, at most 1,048,576"};
  if (ranks < 1) throw InputError{"--ranks " + text, "a job has at least one rank"};
  return ranks;
}

void add_question_flags(CLI::App& c, QuestionFlags& f) {
  c.add_option("scenario", f.scenario, "scenario file (names workload, cluster, plan, ranks); flags override it");
  c.add_option("--workload", f.workload, "workload: a file, or the name of a shipped one (ddpsim list workloads)");
  c.add_option("--cluster", f.cluster, "cluster: a file, or the name of a shipped one (ddpsim list clusters)");
  c.add_option("--plan", f.plan, "plan: a file with knobs, or the name of a system (ddpsim list plans)");
  c.add_option("--profile", f.profiles, "profile: a file, or the name of a shipped one; default: the one that the cluster's devices name")->allow_extra_args(false);
  c.add_option("--ranks", f.ranks, "number of ranks; default: all devices of the cluster");
  c.add_option("--set", f.sets, "PATH=VALUE, repeatable: bucket_cap_mb=50, cluster.hosts=16, workload.batch=64, slow_ranks.3=1.5")->allow_extra_args(false);
  c.add_option("--layers", f.layers, "measured Run of the real framework: its layer profile (times without communication, all ranks running) replaces the workload's times");
  c.add_option("--fidelity", f.fidelity, "collective or message (every message of every step is simulated); default: message for backend tcp up to a million messages, else collective");
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

void add_html_flag(CLI::App& c, OutputFlags& f) {
  c.add_option("--html", f.html, "also write the answer as a page: one HTML file that needs no network");
}

void check_html(const OutputFlags& flags) {
  if (!flags.html.empty()) io::require_page();
}

void write_html(Terminal& t, const OutputFlags& flags, const std::function<io::OrderedJson()>& data) {
  if (flags.html.empty()) return;
  io::write_file(flags.html, io::write_page(data()));
  t.err << "ddpsim: wrote " << flags.html << "\n";
}

void write_answer(Terminal& t, const OutputFlags& flags, const std::string& text) {
  if (!flags.out.empty()) return io::write_file(flags.out, text);
  t.out << text << std::flush;
  if (!t.out) throw InputError{"stdout", "cannot be written (is the disk full?)"};
}

std::string layers_problem(const Workload& w, const Run& run) {
  if (run.tensor_names.size() != w.tensors.size())
    return fmt::format("its model has {} parameters, workload \"{}\" has {}", run.tensor_names.size(), w.name, w.tensors.size());
  for (std::size_t i = 0; i < w.tensors.size(); ++i)
    if (run.tensor_names[i] != w.tensors[i].name) return fmt::format("its parameter {} is {}, workload \"{}\" has {} there", i, run.tensor_names[i], w.name, w.tensors[i].name);
  return {};
}

Workload as_recorded(const Workload& w, const Run& run) {
  Workload out = w;
  out.basis = Basis::Captured;
  out.layers.clear();
  out.times = {};
  out.times.forward = run.layers->forward;
  out.times.backward = run.layers->backward;
  out.times.optimizer = run.layers->optimizer;
  out.times.ready = run.layers->ready;
  out.times.core = run.layers->core;
  out.times.at_once = run.layers->ranks;
  out.arrival = run.layers->arrival;
  return out;
}

Hardware load_hardware(const Terminal& t, const QuestionFlags& flags) {
  using io::Target;
  io::Home home = home_of(t);
  if (flags.cluster.empty()) throw InputError{"--cluster", "no cluster given; name one (ddpsim list clusters)"};
  Settings settings(flags.sets);
  for (const io::Setting& s : settings)
    if (s.target != Target::Cluster && s.target != Target::Profile)
      throw InputError{"--set " + s.text, "this command knows a cluster and a profile only: --set cluster.hosts=2, --set profile.host.launch_ps=5000000"};
  Hardware out;
  Named c = open_document(home, "topologies", flags.cluster, "cluster", "--cluster");
  out.cluster_file = c.file;
  out.cluster = settings.read(Target::Cluster, c, io::read_cluster);
  if (flags.profiles.size() > 1) throw InputError{"--profile", "one profile at a time: all devices of a cluster are of one kind; give it once"};
  Named p = !flags.profiles.empty() ? open_document(home, "calib/profiles", flags.profiles[0], "profile", "--profile")
                                    : open_document(home, "calib/profiles", default_profile(home, out.cluster.profile), "profile", c.file + "#/device/profile");
  out.profile = settings.read(Target::Profile, p, io::read_profile);
  if (out.profile.kind != out.cluster.device)
    throw InputError{c.file + "#/device/kind", "the cluster's devices and profile \"" + out.profile.name + "\" are not of one kind; choose another --profile or --cluster"};
  return out;
}

Loaded load(const Terminal& t, const QuestionFlags& flags) {
  using io::Target;
  io::Home home = home_of(t);
  Named scenario{{{"schema", "ddpsim.scenario/1"}}, "command line"};
  std::string folder;
  bool from_file = !flags.scenario.empty();
  if (from_file) {
    scenario.file = flags.scenario;
    if (!io::exists(flags.scenario) && flags.scenario.find('/') == std::string::npos && !flags.scenario.ends_with(".json"))
      throw InputError{flags.scenario, "no such scenario file (a shipped workload is named by --workload, a cluster by --cluster)"};
    scenario.document = io::parse_json(io::read_file(scenario.file), scenario.file);
    if (auto slash = scenario.file.rfind('/'); slash != std::string::npos) folder = scenario.file.substr(0, slash + 1);
    io::read_scenario(scenario.document, scenario.file);
  }
  if (!flags.plan.empty()) scenario.document["plan"] = read_plan_flag(flags.plan);
  if (!flags.ranks.empty()) scenario.document["ranks"] = parse_ranks(flags.ranks);
  Settings settings(flags.sets);
  io::ScenarioFile parsed = settings.read(Target::Scenario, scenario, io::read_scenario);

  // A path inside a scenario file is relative to that file.
  auto open = [&](const char* noun, const char* home_folder, const std::string& flag, const std::string& in_file) {
    std::string name = flag;
    std::string place = std::string("--") + noun;
    if (flag.empty()) {
      if (in_file.empty()) throw InputError{place, std::string("no ") + noun + " given; name one (ddpsim list " + noun + "s) or give a scenario file"};
      bool relative = (in_file.find('/') != std::string::npos || in_file.ends_with(".json")) && in_file.front() != '/';
      name = relative ? folder + in_file : in_file;
      place = scenario.file + "#/" + noun;
    }
    return open_document(home, home_folder, name, noun, place);
  };
  Loaded out;
  Named w = open("workload", "workloads", flags.workload, parsed.workload);
  bool captured = w.document.is_object() && w.document.value("basis", Json()) == "captured";
  for (const io::Setting& s : settings)
    if (s.target == Target::Workload && captured && (s.path[0] == "batch" || s.path[0] == "precision"))
      throw InputError{"--set " + s.text, "the workload's times were captured at one batch and precision; capture it again, or use a described workload"};
  out.workload = settings.read(Target::Workload, w, io::read_workload);
  if (!flags.layers.empty()) {
    Run run = io::read_run(io::parse_json(io::read_file(flags.layers), flags.layers), flags.layers);
    if (!run.layers) throw InputError{flags.layers, "holds no layer profile; Runs of ddpsim run --backend torch do"};
    if (auto why = layers_problem(out.workload, run); !why.empty()) throw InputError{flags.layers, why};
    out.workload = as_recorded(out.workload, run);
  }
  bool inline_cluster = flags.cluster.empty() && parsed.cluster_document.is_object();
  Named c = inline_cluster ? Named{parsed.cluster_document, scenario.file + "#/cluster"} : open("cluster", "topologies", flags.cluster, parsed.cluster);
  out.cluster = settings.read(Target::Cluster, c, io::read_cluster);
  if (flags.profiles.size() > 1) throw InputError{"--profile", "one profile at a time: all devices of a cluster are of one kind; give it once"};
  bool named = !flags.profiles.empty() || !parsed.profile.empty();
  Named p = named ? open("profile", "calib/profiles", flags.profiles.empty() ? "" : flags.profiles[0], parsed.profile)
                  : open_document(home, "calib/profiles", default_profile(home, out.cluster.profile), "profile", c.file + "#/device/profile");
  out.profile = settings.read(Target::Profile, p, io::read_profile);
  if (out.profile.kind != out.cluster.device) {
    bool cpu = out.cluster.device == DeviceKind::Cpu;
    throw InputError{c.file + "#/device/kind", std::string("the cluster's devices are ") + (cpu ? "CPUs" : "GPUs") + ", but profile \"" + out.profile.name + "\" is of a " +
                                                   (cpu ? "GPU" : "CPU") + "; choose another --profile or --cluster"};
  }
  out.scenario = std::move(parsed.scenario);
  for (OtherJob& job : out.scenario.other_jobs) {
    if (job.workload_name.empty()) {
      job.workload = out.workload;
      continue;
    }
    Named other = open("workload", "workloads", "", job.workload_name);
    job.workload = io::read_workload(other.document, other.file);
  }
  if (out.scenario.ranks == 0) out.scenario.ranks = out.cluster.devices();

  auto fail = [&](const Problem& problem) {
    const std::string& path = problem.path;
    std::string where = scenario.file + "#" + path;
    if (const io::Setting* s = settings.at(Target::Scenario, path)) where = "--set " + s->text;
    else if (path == "/workload") where = w.file;
    else if (path == "/cluster") where = c.file;
    else if (path.starts_with("/links") || path.starts_with("/inside") || path.starts_with("/failed_links")) where = c.file + "#" + path;
    else if (path == "/ranks" && !flags.ranks.empty()) where = "--ranks " + flags.ranks;
    else if (path.starts_with("/plan") && !flags.plan.empty()) where = "--plan " + flags.plan;
    throw InputError{where, problem.message};
  };
  if (auto problem = validate(out.scenario, out.cluster.devices())) fail(problem);
  out.fabric.emplace(out.cluster);
  if (flags.fidelity == "message") out.options.fidelity = predict::Fidelity::Message;
  else if (!flags.fidelity.empty() && flags.fidelity != "collective") throw InputError{"--fidelity " + flags.fidelity, "expected collective or message"};
  if (out.options.fidelity == predict::Fidelity::Message && out.scenario.ranks > 1024)
    throw InputError{"--fidelity message", "simulates every message of every rank and is meant for up to 1,024 ranks; use --fidelity collective"};
  if (auto problem = predict::check(out.question())) fail(problem);
  if (flags.fidelity.empty()) {
    out.options.fidelity = predict::usual_fidelity(out.question());
  } else if (out.options.fidelity == predict::Fidelity::Message) {
    constexpr double kMost = 40e6;
    if (double messages = predict::message_count(out.question()); messages > kMost)
      throw InputError{"--fidelity message", fmt::format("about {:.0f} million messages to simulate, more than {:.0f}; use fewer ranks, or --fidelity collective", messages / 1e6, kMost / 1e6)};
  }
  if (double seconds = longest_seconds(out); !(seconds <= kHorizonSeconds))
    throw InputError{scenario.file, fmt::format("the simulated steps may last {:.2g} seconds; ddpsim counts up to {:.0g} (is a rate too small, a latency too long, "
                                                "or are there too many accumulation steps or jitter samples?)",
                                                seconds, kHorizonSeconds)};
  constexpr std::uint64_t kOffset = 0xcbf29ce484222325ull;
  std::uint64_t hash = kOffset;
  Json plan_and_ranks = scenario.document;
  for (const char* name : {"workload", "cluster", "profile", "description"}) plan_and_ranks.erase(name);
  plan_and_ranks["ranks"] = out.scenario.ranks;
  std::string workload_text = w.document.dump();
  for (const std::string& text : {workload_text, c.document.dump(), plan_and_ranks.dump()}) hash = fnv1a(hash, text);
  out.workload_text = workload_text;
  out.workload_hash = fmt::format("{:016x}", fnv1a(kOffset, workload_text));
  // The whole question but the profile, in one document that stands alone but for shipped workloads.
  out.document = plan_and_ranks;
  out.documents = {scenario.document, w.document, c.document, p.document};
  out.document["workload"] = flags.workload.empty() ? parsed.workload : flags.workload;
  out.document["cluster"] = c.document;
  for (const char* prose : {"description", "source"}) out.document["cluster"].erase(prose);
  out.document.erase("name");
  out.scenario_hash = fmt::format("{:016x}", fnv1a(kOffset, out.document.dump()));
  // The algorithm, where it is not the usual one.
  Algorithm algorithm = all_reduce_algorithm(out.scenario.plan, backend_of(out.scenario.plan, out.profile.kind));
  std::string system = name_of(out.scenario.plan.system);
  if (algorithm != Algorithm::Ring) system += std::string("+") + name_of(algorithm);
  out.key = fmt::format("{}@{}/{}/n{}/{:016x}", out.workload.name, out.cluster.name, system, out.scenario.ranks, hash);
  return out;
}

}  // namespace ddpsim::cli
