// Which communicator a plan gets: a ring or a step list of Gloo's or ours, or NCCL as its version,
// environment and GPUs make it choose.
#include <algorithm>
#include <map>
#include <set>

#include "sim/collective/backend/nccl.h"
#include "sim/collective/backend/server.h"
#include "sim/play/load_demands.h"
#include "sim/predict/predict.h"
#include "sim/predict/server_places.h"
#include "sim/systems/base/own_work.h"
#include "sim/systems/base/settings.h"

namespace ddpsim::predict {
namespace {

// Of a job with more ranks, groups that share no host with the first are taken as equal to it.
constexpr std::size_t kMostRanksOfGroups = 4096;

// NCCL as the plan has it.
nccl::ParsedSettings nccl_settings(const Plan& plan) {
  auto version = nccl::parse_version(plan.nccl.empty() ? shipped_nccl(plan.pytorch) : plan.nccl);
  if (!version)
    return {
        {},
        {"/plan/nccl", "\"" + plan.nccl + "\" is not a version of NCCL such as 2.26 or 2.23.4"}};
  if (!plan.nccl.empty() && !version->is_known())
    return {{}, {"/plan/nccl", "ddpsim knows the cost models of NCCL 2.19 to 2.30"}};
  for (const auto& [name, value] : plan.environment) {
    const auto& known = nccl::known_variables();
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    std::string list;
    for (const std::string& k : known) list += (list.empty() ? "" : ", ") + k;
    return {{},
            {"/plan/environment/" + name,
             "is not a variable of NCCL that ddpsim reads; those are " + list}};
  }
  nccl::ParsedSettings parsed = nccl::parse_settings(plan.environment, *version);
  if (parsed.problem) parsed.problem.path = "/plan/environment/" + parsed.problem.path;
  return parsed;
}

// Ranks agree on tensors over MPI before they sum them.
bool polls_mpi(const Plan& plan, Backend backend) {
  return backend == Backend::Mpi && systems::record_of(plan.system).negotiates;
}

// Of keys of Communicators: variables that only say what may be chosen are left out.
template <class Key>
bool alike_but_for_the_choice(const Key& a, const Key& b) {
  auto searched = [](std::map<std::string, std::string> environment) {
    environment.erase("NCCL_ALGO");
    environment.erase("NCCL_PROTO");
    return environment;
  };
  return std::get<0>(a) == std::get<0>(b) && std::get<1>(a) == std::get<1>(b) &&
         std::get<2>(a) == std::get<2>(b) && std::get<3>(a) == std::get<3>(b) &&
         searched(std::get<4>(a)) == searched(std::get<4>(b));
}

// 0 (all ranks) or k + 1 (of Program::groups), in which ranks send all to all, ascending.
std::vector<int> exchanging(const Program& p) {
  std::set<int> out;
  for (const Op& op : p.steady.ops)
    if (is_collective(op.kind) && op.kind.operation == Operation::AllToAll) out.insert(op.group);
  return {out.begin(), out.end()};
}

void set_tuned(collective::Communicator& c, const std::vector<nccl::Tuned>& rows) {
  if (nccl::Group* group = nccl_group(c)) nccl::set_tuned(*group, rows);
  for (collective::Communicator& g : c.groups) set_tuned(g, rows);
  for (collective::Communicator& g : c.joined) set_tuned(g, rows);
}

Problem check_mpi(const Plan& plan, const Question& q, const std::vector<DeviceId>& devices) {
  if (!plan.nccl.empty())
    return {"/plan/nccl", "is about NCCL, and the plan's backend is mpi (open_mpi=4.1)"};
  collective::ParsedOpenMpi parsed = collective::parse_open_mpi(plan.open_mpi, plan.environment);
  if (parsed.problem) {
    const std::string& name = parsed.problem.path;
    parsed.problem.path = name.empty() ? "/plan/open_mpi" : "/plan/environment/" + name;
    return parsed.problem;
  }
  std::map<HostId, int> ranks_of_host;
  for (DeviceId d : devices) ++ranks_of_host[q.fabric.host_of(d)];
  const bool several = std::any_of(ranks_of_host.begin(), ranks_of_host.end(),
                                   [](const auto& h) { return h.second > 1; });
  if (parsed.mpi.han() && several && ranks_of_host.size() > 1)
    return {"/plan/open_mpi",
            "coll/han reduces inside hosts and between them here, which is not modelled: one rank "
            "a host, open_mpi=4.1, or OMPI_MCA_coll_han_priority=0"};
  return {};
}

}  // namespace

Problem check_nccl(const Plan& plan, const Question& q, const std::vector<DeviceId>& devices,
                   Communicators* known) {
  bool set = !plan.nccl.empty() || !plan.environment.empty();
  const Backend backend = backend_of(plan, q.profile.kind);
  if (!plan.open_mpi.empty() && backend != Backend::Mpi)
    return {"/plan/open_mpi", "is of backend mpi, and the plan's backend is another"};
  if (backend == Backend::Mpi) return check_mpi(plan, q, devices);
  if (backend != Backend::Nccl) {
    if (set)
      return {plan.nccl.empty() ? "/plan/environment" : "/plan/nccl",
              "is about NCCL, and the plan's backend is another"};
    return {};
  }
  nccl::ParsedSettings parsed = nccl_settings(plan);
  if (parsed.problem) return parsed.problem;
  if (q.profile.compute.capability > 0)
    for (auto p : {nccl::check_nodes(q.fabric, devices),
                   nccl::check_peers(q.fabric, devices, parsed.settings)})
      if (p) return p;
  const systems::SystemRecord& system = systems::record_of(plan.system);
  std::vector<Operation> needed{Operation::AllReduce, Operation::Broadcast};
  if (system.operations) needed = system.operations(plan);
  for (Operation o : systems::own_operations(q.workload.loop)) needed.push_back(o);
  for (Operation o : needed)
    if (o != Operation::AllReduce && o != Operation::Broadcast && devices.size() > 1 &&
        q.profile.compute.capability == 0)
      return {"/plan/system",
              "profile \"" + q.profile.name +
                  "\" names no compute capability, so what NCCL does for " +
                  (o == Operation::AllGather ? "an all-gather" : "such a collective") +
                  " is not known"};
  if (plan.environment.empty() || devices.size() < 2) return {};
  if (q.profile.compute.capability == 0)
    return {"/plan/environment",
            "profile \"" + q.profile.name +
                "\" names no compute capability, so what NCCL would choose is not known"};
  Scenario job;
  job.plan = plan;
  job.ranks = static_cast<int>(devices.size());
  job.rank_order = devices;
  Communicators own;
  Program program;
  program.backend = Backend::Nccl;
  if (system.groups)
    program.groups = system.groups(plan, job.ranks, q.fabric.cluster().devices_per_host);
  const collective::Communicator& all =
      (known ? *known : own).get({q.workload, q.fabric, q.profile, job}, program);
  for (std::size_t k = program.groups.empty() ? 0 : 1; k <= program.groups.size(); ++k) {
    const collective::Communicator& c = of_group(all, k);
    const nccl::Group* group = nccl_group(c);
    if (!group) continue;  // of one rank
    // Whether a cell is available does not depend on the size (nccl::estimate).
    constexpr std::int64_t kAnySize = 1;
    for (Operation op : needed)
      if (!nccl::choose(*group, op, kAnySize))
        return {"/plan/environment", std::string("leaves nothing that could run ") + name_of(op) +
                                         " here: NCCL 2.24 and later stop with an error, too "
                                         "(for one operation only: NCCL_ALGO=allreduce:tree)"};
  }
  return {};
}

collective::Communicator Communicators::make(const Question& q, const Key& key,
                                             std::vector<DeviceId> devices) const {
  const Backend backend = std::get<1>(key);
  if (backend == Backend::Nccl && q.profile.compute.capability > 0) {
    nccl::Settings settings = nccl_settings(q.scenario.plan).settings;
    settings.tuned = tuned_;
    return collective::make_nccl_communicator(q.fabric, std::move(devices), settings,
                                              q.profile.compute.capability, searches_);
  }
  const bool sockets = backend == Backend::Gloo && q.profile.kind == DeviceKind::Gpu;
  if (backend == Backend::Mpi) {
    const Plan& plan = q.scenario.plan;
    collective::OpenMpi settings = collective::parse_open_mpi(plan.open_mpi, plan.environment).mpi;
    settings.polls = polls_mpi(plan, backend);
    return collective::make_mpi(q.fabric, std::move(devices), settings);
  }
  return collective::make_communicator(q.fabric, std::move(devices), backend, std::get<2>(key),
                                       sockets);
}

void Communicators::tune(std::vector<nccl::Tuned> rows) {
  std::lock_guard guard(lock_);
  tuned_ = std::move(rows);
  for (auto& [key, c] : known_) set_tuned(c, tuned_);
  for (auto& [key, c] : grouped_) set_tuned(c, tuned_);
}

Communicators::Key Communicators::key_of(const Question& q, Backend backend) {
  const Plan& plan = q.scenario.plan;
  bool nccl = backend == Backend::Nccl && q.profile.compute.capability > 0;
  return {devices_of(q.scenario),
          backend,
          all_reduce_algorithm(plan, backend),
          nccl                      ? plan.nccl.empty() ? shipped_nccl(plan.pytorch) : plan.nccl
          : backend == Backend::Mpi ? plan.open_mpi
                                    : "",
          plan.environment,
          polls_mpi(plan, backend)};
}

const collective::Communicator& Communicators::get(const Question& q, Backend backend) {
  Key key = key_of(q, backend);
  std::lock_guard guard(lock_);
  return find(q, key);
}

const collective::Communicator& Communicators::find(const Question& q, const Key& key) {
  auto it = known_.find(key);
  if (it != known_.end()) return it->second;
  // The search does not ask what may be chosen: with another NCCL_ALGO or NCCL_PROTO it finds the
  // same.
  for (const auto& [other, communicator] : known_) {
    if (!nccl_group(communicator) || !alike_but_for_the_choice(key, other)) continue;
    collective::Communicator same = communicator;
    nccl::Settings settings = nccl_settings(q.scenario.plan).settings;
    settings.tuned = tuned_;
    nccl::set_choice(*nccl_group(same), settings);
    return known_.emplace(key, std::move(same)).first->second;
  }
  collective::Communicator made = make(q, key, std::get<0>(key));
  made.distinct = distinct_links(made);
  return known_.emplace(key, std::move(made)).first->second;
}

const collective::Communicator& Communicators::get(const Question& q, const Program& program) {
  const std::vector<int> exchanges = exchanging(program);
  if (program.groups.empty() && exchanges.empty()) return get(q, program.backend);
  std::pair<Key, std::vector<std::pair<int, int>>> key{key_of(q, program.backend), {}};
  std::vector<DeviceId> servers;
  if (program.servers) servers = server_devices(q.fabric, devices_of(q.scenario), *program.servers);
  auto device_of = [&](const RankGroups& g) { return servers[g.server]; };
  for (const RankGroups& g : program.groups) {
    g.server >= 0 ? key.second.emplace_back(-2, device_of(g).number)
                  : key.second.emplace_back(g.size, g.stride);
    if (g.by_hosts) key.second.emplace_back(-3, static_cast<int>(*g.by_hosts));
  }
  for (int group : exchanges) key.second.emplace_back(-1, group);
  std::lock_guard guard(lock_);
  auto it = grouped_.find(key);
  if (it != grouped_.end()) return it->second;
  collective::Communicator job = find(q, key.first);
  auto exchange = [&](int group) {
    return std::find(exchanges.begin(), exchanges.end(), group) != exchanges.end();
  };
  if (exchange(0)) add_all_to_all(job);
  for (std::size_t k = 0; k < program.groups.size(); ++k)
    if (const RankGroups& g = program.groups[k]; g.server >= 0)
      job.groups.push_back(
          collective::make_server_communicator(q.fabric, devices_of(q.scenario), device_of(g)));
    else
      job.groups.push_back(
          join(q, key.first, program.groups[k], exchange(static_cast<int>(k) + 1)));
  if (exchange(0)) job.distinct = distinct_links(job);
  for (collective::Communicator& group : job.groups) group.distinct = distinct_links(group);
  return grouped_.emplace(std::move(key), std::move(job)).first->second;
}

collective::Communicator Communicators::join(const Question& q, const Key& key,
                                             const RankGroups& groups, bool exchanges) const {
  const std::vector<DeviceId>& devices = std::get<0>(key);
  const Cluster& cluster = q.fabric.cluster();
  std::vector<std::vector<DeviceId>> of;
  for (const auto& ranks : members(groups, static_cast<int>(devices.size())))
    for (of.emplace_back(); int r : ranks) of.back().push_back(devices[r]);
  bool uniform = cluster.slow_links.empty() && cluster.degraded_links.empty();
  std::set<HostId> hosts;  // that the first group reaches, and whoever shares them
  auto meets = [&](const std::vector<DeviceId>& group) {
    return std::any_of(group.begin(), group.end(),
                       [&](DeviceId d) { return hosts.count(q.fabric.host_of(d)) > 0; });
  };
  for (DeviceId d : of.front()) hosts.insert(q.fabric.host_of(d));
  const bool all = !uniform || devices.size() <= kMostRanksOfGroups;
  std::vector<collective::Communicator> made;
  for (const std::vector<DeviceId>& group : of)
    if (all || meets(group)) {
      made.push_back(groups.by_hosts ? collective::make_communicator(q.fabric, group, Backend::Tcp,
                                                                     *groups.by_hosts)
                                     : make(q, key, group));
      if (exchanges) add_all_to_all(made.back());
    }
  return collective::make_joint(std::move(made));
}

}  // namespace ddpsim::predict
