#include "tools/cmd/explain_backend.h"

#include <algorithm>

#include <fmt/format.h>

#include "sim/door/placement.h"
#include "sim/io/json_reader.h"
#include "sim/play/alone.h"
#include "sim/topology/fabric.h"
#include "tools/cmd/question.h"

namespace ddpsim::cli {
namespace {

using collective::Communicator;
using collective::MpiAllReduce;

constexpr Algorithm kGlooAlgorithms[] = {Algorithm::Ring, Algorithm::Bcube,
                                         Algorithm::HalvingDoubling};

// The plan's words among the --set lines; the others go to cluster and profile.
struct Words {
  Plan plan;
  std::vector<std::string> others;
  std::string backend;
};

Algorithm algorithm_named(const std::string& flag, const std::string& text,
                          std::span<const Algorithm> known, const char* whose) {
  std::vector<std::string> names;
  for (Algorithm a : known) {
    if (text == name_of(a)) return a;
    names.emplace_back(name_of(a));
  }
  std::string near = io::nearest(text, names);
  throw InputError{flag, fmt::format("{} has {}{}", whose, fmt::join(names, ", "),
                                     near.empty() ? "" : " (did you mean " + near + "?)")};
}

Words words_of(const std::vector<std::string>& sets) {
  Words out;
  for (const std::string& s : sets) {
    const auto equals = s.find('=');
    std::string name = s.substr(0, equals);
    if (name.starts_with("plan.")) name.erase(0, 5);
    if (name.starts_with("environment.")) name.erase(0, 12);
    const std::string value = equals == std::string::npos ? "" : s.substr(equals + 1);
    if (name == "backend")
      out.backend = value;
    else if (name == "algorithm")
      out.plan.algorithm = algorithm_named("--set " + s, value, kTcpAlgorithms, "backend tcp");
    else if (name == "gloo_algorithm")
      out.plan.gloo_algorithm = algorithm_named("--set " + s, value, kGlooAlgorithms, "Gloo");
    else if (name == "open_mpi")
      out.plan.open_mpi = value;
    else if (io::names_variable(name))
      out.plan.environment[name] = value;
    else
      out.others.push_back(s);
  }
  return out;
}

std::string set_line(const QuestionFlags& q, const std::string& name) {
  for (const std::string& s : q.sets)
    if (s.substr(0, s.find('=')).ends_with(name)) return "--set " + s;
  return "--set " + name;
}

// A word of another backend than the one that is asked.
void check_words(const Words& w, Backend backend, const QuestionFlags& q) {
  const std::string is = std::string(", and the backend is ") + name_of(backend);
  if (w.plan.algorithm != Algorithm::Ring && backend != Backend::Tcp)
    throw InputError{set_line(q, "algorithm"),
                     "is a knob of backend tcp" + is + " (--algorithm is of any)"};
  if (w.plan.gloo_algorithm != Algorithm::Ring && backend != Backend::Gloo)
    throw InputError{set_line(q, "gloo_algorithm"), "is a knob of backend gloo" + is};
  if (!w.plan.open_mpi.empty() && backend != Backend::Mpi)
    throw InputError{set_line(q, "open_mpi"), "is of backend mpi" + is};
  if (!w.plan.environment.empty() && backend != Backend::Mpi)
    throw InputError{set_line(q, w.plan.environment.begin()->first),
                     "is a variable of NCCL or of Open MPI" + is};
}

const char* library_name(Backend b) {
  return b == Backend::Gloo ? "Gloo" : b == Backend::Mpi ? "Open MPI" : "backend tcp";
}

void check_operation(Backend backend, Operation op) {
  std::vector<Operation> has{Operation::AllReduce};
  if (backend == Backend::Tcp)
    has.insert(has.end(), {Operation::AllGather, Operation::ReduceScatter, Operation::Reduce});
  has.insert(has.end(), {Operation::Broadcast, Operation::SendRecv});
  if (std::find(has.begin(), has.end(), op) != has.end()) return;
  std::string list;
  for (Operation o : has) list += (list.empty() ? "" : ", ") + std::string(name_of(o));
  throw InputError{std::string("--op ") + name_of(op),
                   fmt::format("ddpsim has no steps of {}'s {}; it has {}. On GPUs NCCL has all of "
                               "them (--backend nccl)",
                               library_name(backend), name_of(op), list)};
}

void check_devices(Backend backend, const Hardware& h) {
  if (backend == Backend::Tcp || h.cluster.device == DeviceKind::Cpu) return;
  throw InputError{
      std::string("--backend ") + name_of(backend),
      fmt::format("{} with CUDA tensors is not modelled {}, and this cluster's devices are GPUs; "
                  "--backend nccl or tcp",
                  library_name(backend),
                  backend == Backend::Gloo
                      ? "for one collective by itself (in a step it is: ddpsim "
                        "predict --set backend=gloo)"
                      : "here")};
}

struct Place {
  topology::Fabric fabric;
  std::vector<DeviceId> devices;
};

Place place_of(const BackendAnswer& a, std::vector<DeviceId> devices, const Plan& plan) {
  const Hardware& h = a.hardware;
  Place out{topology::Fabric(h.cluster), std::move(devices)};
  if (std::string lacking = collective::missing_transport(out.fabric, h.profile); !lacking.empty())
    throw InputError{h.profile.name,
                     "has no transport \"" + lacking + "\", which the cluster uses"};
  if (auto problem = topology::check_reachable(out.fabric, out.devices))
    throw InputError{h.cluster_file, problem.message};
  Scenario scenario;
  scenario.plan = plan;
  scenario.ranks = a.ranks;
  const Workload nothing;
  if (auto problem =
          predict::check_nccl(plan, {nothing, out.fabric, h.profile, scenario}, out.devices))
    throw InputError{"--set " + problem.path.substr(problem.path.find_last_of('/') + 1),
                     problem.message};
  return out;
}

Way way_of(const Communicator& c, const Profile& p, Bytes bytes, std::string name,
           const collective::PriceOf& of) {
  Way out;
  out.algorithm = std::move(name);
  out.price = of(c, p);
  out.parts = collective::parts_of(c, p, of);
  out.work = collective::work_of(c, out.price, out.parts.total, bytes);
  return out;
}

// The operation as the communicator performs it.
Way way_of(const Communicator& c, const Profile& p, Operation op, Bytes bytes) {
  const collective::PriceOf of = [&](const Communicator& on, const Profile& with) {
    return collective::price(on, with, Level::Mid, op, bytes);
  };
  std::string name = op == Operation::SendRecv ? "send/recv" : of(c, p).algorithm;
  return way_of(c, p, bytes, name == "tree" ? "binomial_tree" : name, of);
}

void add_only_way(BackendAnswer& a, Communicator c, const std::string& asked) {
  if (a.operation == Operation::SendRecv) collective::add_send_recv(c);
  a.ways.push_back(way_of(c, a.hardware.profile, a.operation, a.bytes));
  a.ways.back().chosen = true;
  if (!asked.empty() && asked != a.ways[0].algorithm)
    throw InputError{"--algorithm " + asked,
                     fmt::format("{} has one way to do {}: {}", library_name(a.backend),
                                 name_of(a.operation), a.ways[0].algorithm)};
  a.why = fmt::format("{} has one way to do {}.", library_name(a.backend), name_of(a.operation));
  if (a.operation == Operation::SendRecv)
    a.why = "Each rank sends all bytes to the next one and receives as many from the one before.";
}

bool saves_bursts(const topology::Fabric& fabric) {
  const std::vector<topology::Link>& links = fabric.links();
  return std::any_of(links.begin(), links.end(),
                     [](const topology::Link& l) { return l.burst.count > 0; });
}

constexpr int kMostPlayed = 256;  // ranks whose messages are played, each

// REQUIRES: an all-reduce, as the communicator performs it by itself.
void add_rested(BackendAnswer& a, const Communicator& c) {
  if (c.ranks() <= kMostPlayed && saves_bursts(*c.fabric))
    a.rested =
        predict::all_reduce_alone(c, a.hardware.profile, a.bytes, predict::Fidelity::Message);
}

// All-reduces of backend tcp and Gloo: step lists that somebody names.
void add_named_ways(BackendAnswer& a, const Place& at, std::span<const Algorithm> known,
                    Algorithm chosen) {
  for (Algorithm k : known) {
    if (!collective::performs(k, a.operation, a.ranks)) continue;
    if (k == Algorithm::Direct && a.ranks > kMaxDirectRanks) continue;
    Communicator c = collective::make_communicator(at.fabric, at.devices, a.backend, k);
    a.ways.push_back(way_of(c, a.hardware.profile, a.operation, a.bytes));
    a.ways.back().algorithm = name_of(k);
    a.ways.back().chosen = k == chosen;
    if (k == chosen) add_rested(a, c);
  }
}

void ask_tcp(BackendAnswer& a, const Place& at, const Plan& plan, const std::string& asked) {
  if (a.operation != Operation::AllReduce) {
    a.chooser = "tcp";
    return add_only_way(a, collective::make_communicator(at.fabric, at.devices, Backend::Tcp),
                        asked);
  }
  Algorithm chosen = plan.algorithm;
  if (!asked.empty())
    chosen = algorithm_named("--algorithm " + asked, asked, kTcpAlgorithms, "backend tcp");
  if (chosen == Algorithm::Direct && a.ranks > kMaxDirectRanks)
    throw InputError{
        "--algorithm direct",
        fmt::format("sends n (n - 1) messages a round: at most {} ranks", kMaxDirectRanks)};
  add_named_ways(a, at, kTcpAlgorithms, chosen);
  a.chooser = "plan";
  a.why =
      fmt::format("The plan names it (algorithm={}{}): ddpsim's executor chooses nothing by size.",
                  name_of(chosen), chosen == Algorithm::Ring ? ", the default" : "");
}

void ask_gloo(BackendAnswer& a, const Place& at, const Plan& plan, const std::string& asked) {
  if (a.operation != Operation::AllReduce) {
    a.chooser = "gloo";
    return add_only_way(a, collective::make_communicator(at.fabric, at.devices, Backend::Gloo),
                        asked);
  }
  Algorithm chosen = plan.gloo_algorithm;
  if (!asked.empty())
    chosen = algorithm_named("--algorithm " + asked, asked, kGlooAlgorithms, "Gloo");
  add_named_ways(a, at, kGlooAlgorithms, chosen);
  a.chooser = chosen == Algorithm::Ring ? "gloo" : "caller";
  if (chosen == Algorithm::Ring)
    a.why =
        "Gloo takes its ring at every size where its caller names nothing, and PyTorch names "
        "nothing (gloo::AllreduceOptions: UNSPECIFIED is RING).";
  else if (chosen == Algorithm::Bcube)
    a.why =
        "Its caller chose it: gloo::AllreduceOptions::setAlgorithm(BCUBE), in a plan "
        "gloo_algorithm=bcube. PyTorch does not.";
  else
    a.why =
        "Its caller chose it: the older class gloo::AllreduceHalvingDoubling. No option of "
        "gloo::allreduce leads to it, and no plan names it.";
  if (chosen == Algorithm::HalvingDoubling && (a.ranks & (a.ranks - 1)) != 0)
    a.notes.push_back(fmt::format(
        "{} ranks are no power of two: the class then works in binary blocks; here ranks beyond {} "
        "give what they have to a neighbour first, as in MPICH.",
        a.ranks, a.ranks / 2));
}

std::string range_text(std::int64_t from, std::int64_t below) {
  if (below == collective::kMpiAnySize)
    return from == 0 ? "at every size" : "from " + to_string(Bytes{from}) + " on";
  if (from == 0) return "below " + to_string(Bytes{below});
  return "from " + to_string(Bytes{from}) + " to less than " + to_string(Bytes{below});
}
std::string ranks_text(const collective::MpiTable& t) {
  if (t.ranks_below == 0) return fmt::format("{} ranks and more", t.ranks_from);
  return t.ranks_below - 1 == t.ranks_from
             ? fmt::format("{} ranks", t.ranks_from)
             : fmt::format("{} to {} ranks", t.ranks_from, t.ranks_below - 1);
}

std::string rule_text(const collective::MpiTable& t, const collective::MpiRow& r,
                      const char* call) {
  return fmt::format("coll/tuned's fixed rules for {} on {}: {} ({}) {}", call, ranks_text(t),
                     r.name, r.number, range_text(r.from, r.below));
}

const collective::MpiRow& row_of(const collective::MpiTable& t, std::int64_t bytes) {
  return *std::find_if(t.rows.begin(), t.rows.end(),
                       [&](const collective::MpiRow& r) { return r.holds(bytes); });
}

void add_mpi_all_reduces(BackendAnswer& a, const Communicator& c) {
  constexpr int kElement = 4;
  const auto& mpi = std::get<collective::Mpi>(c.library);
  const collective::OpenMpi& settings = mpi.settings;
  const MpiAllReduce runs =
      collective::all_reduce_that_runs(settings, a.ranks, a.bytes.count, kElement);
  for (int id = 1; id <= collective::kMpiAllReduces; ++id) {
    const auto each = static_cast<MpiAllReduce>(id);
    collective::OpenMpi forced = settings;
    forced.all_reduce = id;
    const bool can =
        collective::all_reduce_that_runs(forced, a.ranks, a.bytes.count, kElement) == each;
    if (!can && each != runs) continue;
    const collective::PriceOf of = [&](const Communicator& on, const Profile& with) {
      return collective::schedule_price(
          on, mpi.pattern(each), {.profile = with, .operation = a.operation, .size = a.bytes});
    };
    a.ways.push_back(way_of(c, a.hardware.profile, a.bytes, name_of(each), of));
    a.ways.back().chosen = each == runs;
  }
  add_rested(a, c);
  std::string named;
  if (settings.all_reduce != 0) {
    a.chooser = "environment";
    named = name_of(static_cast<MpiAllReduce>(settings.all_reduce));
    a.why = fmt::format("OMPI_MCA_coll_tuned_allreduce_algorithm={} names {}.", settings.all_reduce,
                        named);
  } else {
    a.chooser = "open_mpi";
    a.table = collective::all_reduce_table(settings.version, a.ranks);
    const collective::MpiRow& row = row_of(*a.table, a.bytes.count);
    named = row.name;
    a.why = rule_text(*a.table, row, "MPI_Allreduce") + ".";
  }
  if (named != name_of(runs))
    a.why += fmt::format(" With {} elements on {} ranks it runs {} instead.",
                         a.bytes.count / kElement, a.ranks, name_of(runs));
}

void add_mpi_broadcasts(BackendAnswer& a, const Communicator& c, const std::string& asked) {
  if (!asked.empty())
    throw InputError{"--algorithm " + asked,
                     "Open MPI's broadcast goes by its fixed rules here; --algorithm is of "
                     "all_reduce"};
  const auto& mpi = std::get<collective::Mpi>(c.library);
  const Algorithm runs = collective::fixed_broadcast(a.ranks, a.bytes.count);
  for (Algorithm each : collective::kMpiBroadcasts) {
    if (!collective::performs(each, Operation::Broadcast, a.ranks)) continue;
    const collective::PriceOf of = [&](const Communicator& on, const Profile& with) {
      return collective::schedule_price(
          on, mpi.broadcast_pattern(each),
          {.profile = with, .operation = a.operation, .size = a.bytes});
    };
    a.ways.push_back(way_of(c, a.hardware.profile, a.bytes, name_of(each), of));
    a.ways.back().chosen = each == runs;
  }
  a.chooser = "open_mpi";
  a.table = collective::broadcast_table(a.ranks);
  const collective::MpiRow& row = row_of(*a.table, a.bytes.count);
  a.why = rule_text(*a.table, row, "MPI_Bcast") + ".";
  if (row.name != std::string(name_of(runs)))
    a.why += fmt::format(" It is priced as {}.", name_of(runs));
  if (mpi.settings.version == collective::OpenMpiVersion::V4_0)
    a.notes.emplace_back("The rules of 4.0's broadcast are not read: they are taken as 4.1's.");
}

void ask_mpi(BackendAnswer& a, const Place& at, Plan& plan, const std::string& asked) {
  const collective::OpenMpi settings =
      collective::parse_open_mpi(plan.open_mpi, plan.environment).mpi;
  Communicator c = collective::make_mpi(at.fabric, at.devices, settings);
  a.library = std::string("Open MPI ") + collective::name_of(settings.version);
  if (a.operation == Operation::AllReduce)
    add_mpi_all_reduces(a, c);
  else if (a.operation == Operation::Broadcast)
    add_mpi_broadcasts(a, c, asked);
  else
    add_only_way(a, std::move(c), asked);
  if (a.chooser.empty()) a.chooser = "open_mpi";
  for (const Way& w : a.ways)
    if (w.chosen && w.work.message > settings.eager)
      a.notes.push_back(fmt::format(
          "Its messages of up to {} are above the eager limit ({}): each waits for its receiver "
          "(rendezvous).",
          to_string(Bytes{w.work.message}), to_string(Bytes{settings.eager})));
}

// --algorithm of Open MPI's all-reduce is the variable that says it.
void force(Plan& plan, const std::string& asked, Operation op) {
  if (asked.empty() || op != Operation::AllReduce) return;
  const std::string prefix = "OMPI_MCA_coll_tuned_";
  if (plan.environment.count(prefix + "allreduce_algorithm") > 0)
    throw InputError{"--algorithm " + asked, "and " + prefix +
                                                 "allreduce_algorithm say the same thing; give "
                                                 "one of the two"};
  plan.environment[prefix + "use_dynamic_rules"] = "1";
  plan.environment[prefix + "allreduce_algorithm"] = asked;
  if (auto p = collective::parse_open_mpi(plan.open_mpi, plan.environment).problem;
      p && p.path == prefix + "allreduce_algorithm")
    throw InputError{"--algorithm " + asked, "Open MPI has " + p.message};
}

Backend parse_backend(const std::string& flag, const std::string& text) {
  for (Backend b : {Backend::Nccl, Backend::Gloo, Backend::Tcp, Backend::Mpi})
    if (text == name_of(b)) return b;
  throw InputError{flag, "expected nccl, gloo, tcp or mpi"};
}

}  // namespace

Backend backend_asked(const Terminal& t, const BackendFlags& flags, const QuestionFlags& question) {
  const Words w = words_of(question.sets);
  if (!flags.backend.empty() && !w.backend.empty() && flags.backend != w.backend)
    throw InputError{
        "--backend " + flags.backend,
        "and --set backend=" + w.backend + " say different things; give one of the two"};
  if (!flags.backend.empty()) return parse_backend("--backend " + flags.backend, flags.backend);
  if (!w.backend.empty()) return parse_backend("--set backend=" + w.backend, w.backend);
  if (question.cluster.empty()) return Backend::Nccl;
  // A plan over CPUs is Gloo's; with a flag that only NCCL has, NCCL's own sentence says why not.
  std::vector<std::string> of_cluster;
  for (const std::string& s : question.sets)
    if (s.starts_with("cluster.")) of_cluster.push_back(s);
  return load_cluster(t, question.cluster, of_cluster).device == DeviceKind::Gpu ? Backend::Nccl
                                                                                 : Backend::Gloo;
}

BackendAnswer ask_backend(const Terminal& t, Backend backend, const BackendFlags& flags,
                          const QuestionFlags& question, Operation op, Bytes bytes) {
  Words w = words_of(question.sets);
  check_words(w, backend, question);
  check_operation(backend, op);
  BackendAnswer a;
  a.operation = op;
  a.bytes = bytes;
  a.backend = backend;
  a.library = library_name(backend);
  w.plan.backend = backend;
  QuestionFlags hardware = question;
  hardware.sets = w.others;
  PlacedHardware placed = load_placed_hardware(context_of(t), hardware);
  a.hardware = std::move(placed.hardware);
  a.ranks = placed.ranks;
  check_devices(backend, a.hardware);
  if (backend == Backend::Mpi) force(w.plan, flags.algorithm, op);
  const Place at = place_of(a, std::move(placed.devices), w.plan);
  if (backend == Backend::Tcp)
    ask_tcp(a, at, w.plan, flags.algorithm);
  else if (backend == Backend::Gloo)
    ask_gloo(a, at, w.plan, flags.algorithm);
  else
    ask_mpi(a, at, w.plan, flags.algorithm);
  return a;
}

}  // namespace ddpsim::cli
