#include "tools/cmd/collectives.h"

#include <algorithm>

#include <fmt/format.h>

#include "sim/collective/price.h"
#include "sim/door/placement.h"
#include "tools/cmd/executed.h"
#include "tools/cmd/explain_op.h"
#include "tools/cmd/flags.h"
#include "tools/cmd/question.h"

namespace ddpsim::cli {
namespace {

std::string stem(const std::string& file) {
  auto slash = file.rfind('/');
  std::string name = slash == std::string::npos ? file : file.substr(slash + 1);
  return name.substr(0, name.find(".json"));
}

}  // namespace

void add_nccl_flags(Command& c, NcclFlags& f) {
  c.add_option("--cluster", f.question.cluster,
               "cluster: a file, or the name of a shipped one (ddpsim list clusters)");
  c.add_option("--profile", f.question.profiles, "profile: a file, or the name of a shipped one")
      ->allow_extra_args(false);
  c.add_option("--ranks", f.question.ranks, "number of ranks; default: all devices of the cluster");
  c.add_option("--gpus-per-host", f.question.gpus_per_host,
               "ranks of each host, which may have more GPUs; default: all of them");
  c.add_option("--nccl", f.version, "NCCL's version, 2.19 to 2.30 (default 2.28)");
  c.add_option("--set", f.question.sets,
               "cluster.hosts=4, profile.host.launch_ps=5000000, or one of NCCL's variables: " +
                   known_nccl_variables())
      ->allow_extra_args(false);
}

void load_nccl_question(const Terminal& t, const NcclFlags& flags, NcclQuestion& out) {
  // NCCL's variables go to NCCL, the rest to cluster and profile.
  std::map<std::string, std::string> environment;
  QuestionFlags q = flags.question;
  q.sets.clear();
  for (const std::string& s : flags.question.sets) {
    auto equals = s.find('=');
    std::string name = s.substr(0, equals);
    for (const char* place : {"plan.", "environment."})  // as a plan has it
      if (name.starts_with(place) && s.find("environment.") < equals)
        name.erase(0, std::string(place).size());
    if (!io::names_variable(name)) {
      q.sets.push_back(s);
      continue;
    }
    if (equals == std::string::npos)
      throw InputError{"--set " + s, "expected NAME=VALUE, for example --set NCCL_ALGO=ring"};
    if (std::string problem = nccl_variable_problem(name); !problem.empty())
      throw InputError{"--set " + s, problem};
    environment[name] = s.substr(equals + 1);
  }
  nccl::Version version;
  if (!flags.version.empty()) {
    auto parsed = nccl::parse_version(flags.version);
    if (!parsed)
      throw InputError{"--nccl " + flags.version,
                       "is not a version of NCCL such as 2.28 or 2.23.4"};
    if (!parsed->is_known())
      throw InputError{"--nccl " + flags.version, "ddpsim knows the cost models of 2.19 to 2.30"};
    version = *parsed;
  }
  nccl::ParsedSettings parsed = nccl::parse_settings(environment, version);
  if (parsed.problem)
    throw InputError{"--set " + parsed.problem.path + "=" + environment[parsed.problem.path],
                     parsed.problem.message};
  PlacedHardware placed = load_placed_hardware(context_of(t), q);
  out.hardware = std::move(placed.hardware);
  out.ranks = placed.ranks;
  out.devices = std::move(placed.devices);
  const std::vector<DeviceId>& devices = out.devices;
  const Hardware& h = out.hardware;
  if (h.cluster.device != DeviceKind::Gpu)
    throw InputError{h.cluster_file, "NCCL runs on GPUs, and this cluster's devices are CPUs"};
  out.fabric.emplace(h.cluster);
  if (std::string lacking = collective::missing_transport(*out.fabric, h.profile); !lacking.empty())
    throw InputError{h.profile.name,
                     "has no transport \"" + lacking + "\", which the cluster uses"};
  if (auto problem = topology::check_reachable(*out.fabric, devices))
    throw InputError{h.cluster_file, problem.message};
  if (auto problem = nccl::check_nodes(*out.fabric, devices))
    throw InputError{h.cluster_file, problem.message};
  if (auto problem = nccl::check_peers(*out.fabric, devices, parsed.settings))
    throw InputError{h.cluster_file, problem.message};
  int capability = h.profile.compute.capability > 0 ? h.profile.compute.capability : 80;
  std::optional<nccl::Graphs> found;
  if (!flags.graph.empty())
    found = load_graphs(flags.graph, *out.fabric, nccl::nodes_of(*out.fabric, devices));
  out.settings = parsed.settings;
  out.group =
      nccl::build(*out.fabric, devices, parsed.settings, capability, found ? &*found : nullptr);
}

std::vector<DeviceId> spread(const Cluster& c, int ranks, int hosts) {
  std::vector<DeviceId> out;
  for (int r = 0; r < ranks; ++r) {
    int host = static_cast<int>(static_cast<std::int64_t>(r) * hosts / ranks);
    int first = static_cast<int>((static_cast<std::int64_t>(host) * ranks + hosts - 1) / hosts);
    out.push_back(DeviceId::at(host * c.devices_per_host + (r - first)));
  }
  return out;
}

nccl::Settings settings_of(const CollectiveSetting& s) {
  nccl::Version version = nccl::parse_version(s.nccl).value_or(nccl::Version{});
  std::map<std::string, std::string> environment;
  for (const auto& [name, value] : s.environment)
    if (std::find(nccl::known_variables().begin(), nccl::known_variables().end(), name) !=
        nccl::known_variables().end())
      environment[name] = value;
  // Before 2.5: trees up to so many bytes, and above them the ring. Neither was there with 0.
  if (auto none = s.environment.find("NCCL_TREE_THRESHOLD");
      none != s.environment.end() && none->second == "0")
    environment["NCCL_ALGO"] = "Ring";
  if (!s.algorithm.empty()) environment["NCCL_ALGO"] = s.algorithm;
  if (!s.protocol.empty()) environment["NCCL_PROTO"] = s.protocol;
  nccl::ParsedSettings parsed = nccl::parse_settings(environment, version);
  if (parsed.problem) throw InputError{parsed.problem.path, parsed.problem.message};
  if (!version.has(nccl::Change::Ll128))
    for (auto& op : parsed.settings.allowed)
      for (auto& a : op) a[nccl::Protocol::Ll128] = false;
  return parsed.settings;
}

Tables load_tables(const Terminal& t, const std::string& folder, const Profile* instead) {
  Tables out;
  for (const std::string& file : one_or_all(folder)) {
    Run run = io::read_run(io::parse_json(io::read_file(file), file), file);
    if (!run.collectives || run.samples.empty()) continue;
    const CollectiveSetting& s = *run.collectives;
    auto op = parse_operation(s.op);
    if (!op || !nccl::is_chosen_for(*op)) {
      out.left_out.push_back(stem(file) + ": ddpsim has no price of " + s.op);
      continue;
    }
    if (s.cluster.empty()) {
      out.left_out.push_back(stem(file) +
                             ": names no cluster (ddpsim import nccl-tests --cluster)");
      continue;
    }
    QuestionFlags q;
    q.cluster = s.cluster;
    int hosts = std::max(1, s.hosts);
    q.sets.push_back("cluster.hosts=" + std::to_string(hosts));
    Hardware hardware;
    if (instead)
      hardware = {load_cluster(t, s.cluster, q.sets), *instead, {}};
    else {
      std::string own = own_profile(folder, load_cluster(t, s.cluster, q.sets).profile);
      if (!own.empty()) q.profiles = {own};
      hardware = load_hardware(t, q);
    }
    if (s.ranks > hosts * hardware.cluster.devices_per_host)
      throw InputError{file, fmt::format("has {} ranks, and {} hosts of {} have {} devices",
                                         s.ranks, hosts, s.cluster, hardware.cluster.devices())};
    out.runs.push_back(std::move(run));
    out.fabrics.emplace_back(hardware.cluster);
    calib::CollectiveTable table;
    table.name = stem(file);
    table.run = &out.runs.back();
    const CollectiveSetting& setting = *table.run->collectives;
    table.machine = calib::machine_of(setting);
    table.profile = hardware.profile;
    table.op = *op;
    table.gpus_per_process = std::max(1, setting.gpus_per_process);
    nccl::Settings settings = settings_of(setting);
    if (std::string lacking = collective::missing_transport(out.fabrics.back(), table.profile);
        !lacking.empty())
      throw InputError{table.profile.name, "has no transport \"" + lacking +
                                               "\", which cluster \"" + s.cluster + "\" uses"};
    table.group = nccl::build(out.fabrics.back(), spread(hardware.cluster, setting.ranks, hosts),
                              std::move(settings), table.profile.compute.capability);
    calib::read_rows(table);
    out.tables.push_back(std::move(table));
  }
  return out;
}

}  // namespace ddpsim::cli
