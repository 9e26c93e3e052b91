#include "sim/door/question.h"

#include <algorithm>

#include <fmt/format.h>

#include "sim/door/documents.h"
#include "sim/door/loader.h"
#include "sim/io/write_page.h"
#include "sim/nccl/choose.h"
#include "sim/systems/base/record.h"
#include "sim/units/number.h"
#include "sim/units/text.h"

namespace ddpsim::door {
std::uint64_t fnv1a(std::uint64_t h, const std::string& text) {
  for (unsigned char c : text) h = (h ^ c) * 0x100000001b3ull;
  return h;
}

std::vector<std::string> sets_of(const io::Json& plan) {
  std::vector<std::string> out;
  for (const auto& [knob, value] : plan.items())
    out.push_back(knob + "=" + (value.is_string() ? value.get<std::string>() : value.dump()));
  return out;
}

Named open_document(const io::Home& home, const char* folder, const std::string& name,
                    const char* what, const std::string& place) {
  std::string path;
  try {
    path = home.find(folder, name, what);
  } catch (const InputError& e) {
    throw InputError{place, "\"" + e.where + "\": " + e.what, e.code, e.remedy};
  }
  bool shipped = path != name;
  const char* packed = path.ends_with(".gz") ? ".gz" : "";
  std::string file = shipped ? std::string(folder) + "/" + name + ".json" + packed : path;
  io::Opened opened = io::open_json(home, path, file);
  return {std::move(opened.document), file, std::move(opened.layers)};
}

std::string default_profile(const io::Home& home, const std::string& named) {
  std::string base = named;
  const std::string suffix = ".datasheet";
  if (base.ends_with(suffix)) base.resize(base.size() - suffix.size());
  auto shipped = home.list("calib/profiles");
  for (const std::string& candidate : {base, base + suffix})
    if (std::find(shipped.begin(), shipped.end(), candidate) != shipped.end()) return candidate;
  return named;
}

Json read_plan_flag(const std::string& plan) {
  bool is_path = plan.find('/') != std::string::npos || plan.ends_with(".json");
  Json j = is_path ? io::parse_json(io::read_file(plan), plan) : Json{{"system", plan}};
  if (!j.is_object())
    throw InputError{plan,
                     "a plan is an object of knobs, for example {\"system\": \"pytorch_ddp\", "
                     "\"bucket_cap_mb\": 50}"};
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

std::string known_nccl_variables() {
  return fmt::format("{}", fmt::join(nccl::known_variables(), ", "));
}
std::string nccl_variable_problem(const std::string& name) {
  if (name.starts_with("OMPI_MCA_")) return {};  // Open MPI's: checked with the plan's backend
  const auto& known = nccl::known_variables();
  if (std::find(known.begin(), known.end(), name) != known.end()) return {};
  // What the cluster says, or changes no step.
  constexpr std::pair<const char*, const char*> kElsewhere[] = {
      {"NCCL_IB_DISABLE",
       "says that NCCL takes sockets, which the cluster says here: --set "
       "cluster.link.transport=tcp"},
      {"NCCL_NET",
       "says by what NCCL reaches other hosts, which the cluster says here: --set "
       "cluster.link.transport=tcp, ib or libfabric"},
      {"NCCL_SOCKET_IFNAME",
       "names an interface, and what it carries is the cluster's link: --set "
       "cluster.link.bandwidth=100Gb/s"},
      {"NCCL_IB_HCA",
       "names NICs, and the cluster says how many there are: --set "
       "cluster.nics_per_host=4"},
      {"NCCL_DEBUG", "changes no step; leave it out"},
      {"NCCL_DEBUG_SUBSYS", "changes no step; leave it out"},
  };
  for (const auto& [variable, why] : kElsewhere)
    if (name == variable) return why;
  std::string upper = name;
  for (char& c : upper)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  std::string hint = io::nearest(upper, known);
  return "is not a variable of NCCL that ddpsim reads" +
         (hint.empty() ? "; those are " + known_nccl_variables() : " (did you mean " + hint + "?)");
}

Cluster load_cluster(const io::Home& home, const std::string& name,
                     const std::vector<std::string>& sets) {
  Settings settings(sets);
  for (const io::Setting& s : settings)
    if (s.target != io::Target::Cluster)
      throw InputError{"--set " + s.text,
                       "this command reads a cluster and nothing else; write cluster.PATH=VALUE"};
  Named c = open_document(home, "topologies", name, "cluster", "--cluster " + name);
  Cluster out = settings.read(io::Target::Cluster, c, io::read_cluster);
  out.description = settings.prose(io::Target::Cluster, out.description);
  return out;
}

Profile load_profile(const io::Home& home, const std::string& named) {
  Named p = open_document(home, "calib/profiles", default_profile(home, named), "profile",
                          "#/device/profile");
  return Settings({}).read(io::Target::Profile, p, io::read_profile);
}

int parse_gpus_per_host(const std::string& text, const Cluster& cluster) {
  const auto each = parse_integer(text);
  if (!each || *each < 1 || *each > cluster.devices_per_host)
    throw InputError{
        "--gpus-per-host " + text,
        fmt::format("a host of {} has {} devices", cluster.name, cluster.devices_per_host)};
  return static_cast<int>(*each);
}

int parse_ranks(const std::string& text) {
  auto ranks = parse_integer(text);
  if (!ranks || *ranks > INT32_MAX)
    throw InputError{"--ranks " + text, "expected a whole number of ranks, at most 1,048,576"};
  if (*ranks < 1) throw InputError{"--ranks " + text, "a job has at least one rank"};
  return static_cast<int>(*ranks);
}

double parse_positive(const char* flag, const std::string& text, double most) {
  auto v = parse_number(text);
  if (!v || !(*v > 0 && *v <= most))
    throw InputError{std::string(flag) + " " + text,
                     fmt::format("expected a positive number, at most {:g}", most)};
  return *v;
}

std::string layers_problem(const Workload& w, const Run& run) {
  if (run.tensor_names.size() != w.tensors.size())
    return fmt::format("its model has {} parameters, workload \"{}\" has {}",
                       run.tensor_names.size(), w.name, w.tensors.size());
  for (std::size_t i = 0; i < w.tensors.size(); ++i)
    if (run.tensor_names[i] != w.tensors[i].name)
      return fmt::format("its parameter {} is {}, workload \"{}\" has {} there", i,
                         run.tensor_names[i], w.name, w.tensors[i].name);
  // What a step's times may be does not depend on where they were taken; those of a GPU's host may
  // be missing.
  Workload made = as_recorded(w, run);
  made.device = DeviceKind::Cpu;
  if (auto problem = validate(made))
    return fmt::format("its layer profile is none of a step: {}: {}", problem.path,
                       problem.message);
  return {};
}

Workload as_recorded(const Workload& w, const Run& run) {
  Workload out = w;
  out.basis = Basis::Captured;
  if (!run.origin.gpu.empty()) out.device_name = run.origin.gpu;
  out.layers.clear();
  out.times = {};
  out.times.forward = run.layers->forward;
  out.times.backward = run.layers->backward;
  out.times.optimizer = run.layers->optimizer;
  out.times.ready = run.layers->ready;
  out.times.core = run.layers->core;
  out.times.at_once = run.layers->ranks;
  out.times.host = run.layers->host;
  out.arrival = run.layers->arrival;
  return out;
}

io::OrderedJson page_documents(const Loaded& l, const std::vector<std::string>& sets) {
  Settings settings(sets);
  auto page = [&](io::Target target, const Json& document) {
    io::OrderedJson out = io::page_document(document);
    for (const char* key : {"description", "source"})
      if (out.is_object() && out.contains(key) && out[key].is_string())
        out[key] = settings.prose(target, out[key].get<std::string>());
    return out;
  };
  const io::Documents& d = l.documents;
  return {{"scenario", page(io::Target::Scenario, d.scenario)},
          {"workload", page(io::Target::Workload, d.workload)},
          {"cluster", page(io::Target::Cluster, d.cluster)},
          {"profile", page(io::Target::Profile, d.profile)}};
}

Hardware load_hardware(const Context& context, const QuestionText& flags) {
  using io::Target;
  const io::Home& home = context.home;
  if (flags.cluster.empty())
    throw InputError{"--cluster", "no cluster given; name one (ddpsim list clusters)"};
  if (!flags.gpus_per_host.empty())
    throw InputError{"--gpus-per-host " + flags.gpus_per_host,
                     "places the ranks of a training step; a collective's fill host after host"};
  Settings settings(flags.sets);
  for (const io::Setting& s : settings)
    if (s.target != Target::Cluster && s.target != Target::Profile)
      throw InputError{
          "--set " + s.text,
          "is none of a cluster, a profile or NCCL's variables, and a collective has no others: "
          "--set cluster.hosts=2, --set profile.host.launch_ps=5000000, --set NCCL_ALGO=ring"};
  Hardware out;
  Named c = open_document(home, "topologies", flags.cluster, "cluster", "--cluster");
  out.cluster_file = c.file;
  out.cluster = settings.read(Target::Cluster, c, io::read_cluster);
  out.cluster.description = settings.prose(Target::Cluster, out.cluster.description);
  if (flags.profiles.size() > 1)
    throw InputError{
        "--profile",
        "one profile at a time: all devices of a cluster are of one kind; give it once"};
  Named p = !flags.profiles.empty()
                ? open_document(home, "calib/profiles", flags.profiles[0], "profile", "--profile")
                : open_document(home, "calib/profiles", default_profile(home, out.cluster.profile),
                                "profile", c.file + "#/device/profile");
  out.profile = settings.read(Target::Profile, p, io::read_profile);
  if (out.profile.kind != out.cluster.device)
    throw InputError{c.file + "#/device/kind",
                     "the cluster's devices and profile \"" + out.profile.name +
                         "\" are not of one kind; choose another --profile or --cluster"};
  return out;
}

namespace {

// "mylm-0123456789abcdef.json", of letters that every file system has.
std::string stored_name(const std::string& name, std::uint64_t hash) {
  constexpr std::size_t kMost = 60;
  std::string out = name.substr(0, kMost);
  for (char& c : out) {
    bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                 c == '-' || c == '_';
    if (!plain) c = '_';
  }
  return fmt::format("{}-{:016x}.json", out, hash);
}

}  // namespace

// What a layer computes says what its costs say in another way (validate() holds them together),
// what it holds in memory takes no time: neither is a part of a question's hash, so that questions
// of before they were said keep theirs. A sequence
// length counts by the costs at that length.
static std::string hashed_workload(const Json& of) {
  Json document = io::at_its_length(of);
  if (document.is_object() && document.contains("layers") && document["layers"].is_array())
    for (Json& layer : document["layers"])
      if (layer.is_object())
        for (const char* key : {"op", "saves", "saves_fused", "makes"}) layer.erase(key);
  return document.dump();
}

Loaded load(const Context& context, const QuestionText& flags) {
  Loader loader(context, flags);
  Asked asked = loader.ask({});
  Loaded out;
  out.workload = asked.workload->workload;
  out.cluster = asked.hardware->cluster;
  out.profile = asked.hardware->device->profile;
  out.scenario = std::move(asked.scenario);
  out.options = asked.options;
  out.program = asked.program;
  out.fabric = {asked.hardware, &*asked.hardware->fabric};  // keeps the communicators, too
  constexpr std::uint64_t kOffset = 0xcbf29ce484222325ull;
  std::uint64_t hash = kOffset;
  Json plan_and_ranks = asked.document;
  for (const char* name : {"workload", "cluster", "profile", "description"})
    plan_and_ranks.erase(name);
  plan_and_ranks["ranks"] = out.scenario.ranks;
  const Json& cluster = asked.hardware->document;
  std::string hashed = hashed_workload(asked.workload->document);
  for (const std::string& text : {hashed, cluster.dump(), plan_and_ranks.dump()})
    hash = fnv1a(hash, text);
  out.workload_file = asked.workload->file;
  out.workload_hash = fmt::format("{:016x}", fnv1a(kOffset, hashed));
  // The whole question but the profile, in one document that stands alone but for shipped
  // workloads.
  out.document = plan_and_ranks;
  out.documents = {asked.document, asked.workload->document, cluster,
                   asked.hardware->device->document};
  out.document["workload"] = asked.workload->name;
  out.document["cluster"] = cluster;
  for (const char* prose : {"description", "source"}) out.document["cluster"].erase(prose);
  out.document.erase("name");
  out.stored = out.document;
  auto store = [&](Json& place, const WorkloadPart& part, const std::string& name, bool changed) {
    bool shipped = name.find('/') == std::string::npos && !name.ends_with(".json");
    if (shipped && !changed) return;
    std::string text = part.document.dump();
    place = stored_name(part.workload.name, fnv1a(kOffset, text));
    out.beside[place.get<std::string>()] = text + "\n";
  };
  store(out.stored["workload"], *asked.workload, asked.workload->name, asked.set);
  for (std::size_t k = 0; k < asked.others.size(); ++k)
    if (asked.others[k])
      store(out.stored["other_jobs"][k]["workload"], *asked.others[k], asked.others[k]->name,
            false);
  out.scenario_hash = fmt::format("{:016x}", fnv1a(kOffset, out.stored.dump()));
  // The algorithm, where it is not the usual one.
  Algorithm algorithm =
      all_reduce_algorithm(out.scenario.plan, backend_of(out.scenario.plan, out.profile.kind));
  std::string system = out.program ? "program" : name_of(out.scenario.plan.system);
  if (algorithm != Algorithm::Ring) system += std::string("+") + name_of(algorithm);
  out.key = fmt::format("{}@{}/{}/n{}/{:016x}", out.workload.name, out.cluster.name, system,
                        out.scenario.ranks, hash);
  return out;
}

}  // namespace ddpsim::door
