// ddpsim export: what ddpsim found, in the files of other programs.
#include <algorithm>
#include <ostream>
#include <set>

#include <fmt/format.h>

#include "sim/report/nccl_tuner.h"
#include "sim/tune/tune_nccl.h"
#include "tools/cmd/collectives.h"
#include "tools/cmd/export_chakra.h"
#include "tools/cmd/flags.h"

namespace ddpsim::cli {
namespace {

constexpr std::int64_t kMostCommunicators = 300;

struct TunerFlags {
  std::string from;
  std::string metric;
  std::string consumer;
  NcclFlags nccl;
  OutputFlags output;
};

// NCCL's names in the plugin's file.
constexpr nccl::By<nccl::Algorithm, const char*> kPluginWords{
    {"tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat"}};

// What each way takes that NCCL could run, by size.
void add_priced_points(std::vector<report::TunerPoint>& out, const nccl::Group& g,
                       const Profile& profile) {
  for (Operation op : nccl::kAll<Operation>)
    for (std::int64_t bytes = 256; bytes <= (std::int64_t{4} << 30); bytes *= 2)
      for (const nccl::Candidate& c : nccl::candidates(g, op, bytes)) {
        if (!c.estimate) continue;
        nccl::Choice choice = nccl::complete(g, op, c.algorithm, c.protocol, bytes);
        double us = static_cast<double>(
                        nccl::time_of(g, profile, Level::Mid, op, choice, {bytes}).total.ps) /
                    1e6;
        out.push_back({nccl::nccl_word(op), bytes, kPluginWords[c.algorithm],
                       nccl::name_of(c.protocol), choice.channels, nccl::nodes(g), nccl::ranks(g),
                       us});
      }
}

// The example plugin gives one channel to a communicator without a line: so all have some that a
// job on these hosts may make, each number of ranks on each number of hosts.
void add_smaller_communicators(std::vector<report::TunerPoint>& out, const NcclQuestion& n) {
  const Cluster& c = n.hardware.cluster;
  const int hosts = static_cast<int>(topology::ranks_by_host(*n.fabric, n.devices).size());
  const int each = nccl::most_of_a_host(*n.group);
  const auto least = [](int k) { return std::max(2, k); };
  std::int64_t count = 0;
  for (int k = 1; k <= hosts; ++k) count += std::max(0, k * each - least(k) + 1);
  if (count > kMostCommunicators)
    throw InputError{
        "export nccl-tuner",
        fmt::format("the example plugin gives one channel to each communicator without a line, and "
                    "{} hosts of {} GPUs make {} kinds of them, more than {}; --workload or "
                    "--scenario writes those of one plan, --for ncclx and rccl leave the others to "
                    "the library",
                    hosts, each, count, kMostCommunicators)};
  std::set<std::pair<int, int>> known{{nccl::nodes(*n.group), nccl::ranks(*n.group)}};
  for (int k = 1; k <= hosts; ++k)
    for (int ranks = least(k); ranks <= k * each; ++ranks) {
      const auto group = nccl::build(*n.fabric, spread(c, ranks, k), n.settings,
                                     nccl::compute_capability(*n.group));
      if (known.emplace(nccl::nodes(*group), ranks).second)
        add_priced_points(out, *group, n.hardware.profile);
    }
}

// Whose tuner the file would take the place of.
std::string displaced(const Cluster& c) {
  return c.link.transport == "libfabric"
             ? "; aws-ofi-nccl, by which NCCL reaches this network, brings a tuner of its own (on "
               "EFA it is loaded), and NCCL_TUNER_PLUGIN takes its place"
             : "";
}

report::TunerConsumer consumer_of(const TunerFlags& f) {
  for (auto c :
       {report::TunerConsumer::Example, report::TunerConsumer::Ncclx, report::TunerConsumer::Rccl})
    if (f.consumer.empty() || f.consumer == report::kTunerConsumers[static_cast<std::size_t>(c)])
      return c;
  throw InputError{"--for " + f.consumer,
                   "expected example (NVIDIA's plugin), ncclx (torchcomms) or rccl"};
}

// A library of another maker's GPUs would read the file.
void check_consumer(report::TunerConsumer c, const Profile& p) {
  const bool amd = p.hardware.starts_with("AMD");
  if (c == report::TunerConsumer::Rccl && !amd)
    throw InputError{"--for rccl", "RCCL runs on AMD's GPUs, and profile \"" + p.name +
                                       "\" is of " + p.hardware + "; --for example or ncclx"};
  if (c == report::TunerConsumer::Ncclx && amd)
    throw InputError{"--for ncclx", "NCCLX runs on NVIDIA's GPUs, and profile \"" + p.name +
                                        "\" is of " + p.hardware + "; --for rccl"};
}

void write_rows(Terminal& t, const TunerFlags& f, const std::vector<report::TunerRow>& rows,
                const std::string& made_of) {
  const report::TunerConsumer c = consumer_of(f);
  if (Problem p = report::cannot_say(rows, c)) {
    const report::TunerRow& row = rows[std::stoul(p.path.substr(1))];
    throw InputError{"--for " + f.consumer, fmt::format("{} from {} bytes on: {}", row.collective,
                                                        row.min_bytes, p.message)};
  }
  write_answer(t, f.output, report::tuner_csv(rows, made_of, c));
}

// The same words as the file's, for the tuner inside the simulation.
std::vector<nccl::Tuned> as_simulated(const std::vector<report::TunerRow>& rows) {
  std::vector<nccl::Tuned> out;
  for (const report::TunerRow& r : rows) {
    nccl::Tuned t;
    for (Operation op : nccl::kAll<Operation>)
      if (r.collective == nccl::nccl_word(op)) t.op = op;
    for (nccl::Algorithm a : nccl::kAll<nccl::Algorithm>)
      if (r.algorithm == kPluginWords[a]) t.algorithm = a;
    for (nccl::Protocol p : nccl::kAll<nccl::Protocol>)
      if (r.protocol == nccl::name_of(p)) t.protocol = p;
    t.from = r.min_bytes;
    t.to = r.max_bytes;
    t.channels = r.channels;
    t.nodes = std::max(0, r.nodes);
    t.ranks = std::max(0, r.ranks);
    out.push_back(t);
  }
  return out;
}

std::string choice_text(const nccl::Choice& c) {
  return fmt::format("{}/{} on {}", nccl::name_of(c.algorithm), nccl::name_of(c.protocol),
                     c.channels);
}

// What was found, to stderr: the file is the answer.
std::string tuning_text(const predict::NcclTuning& n) {
  std::string out = fmt::format("{:<14} {:>11} {:>5}  {:<24} {:<24} {}\n", "collective", "bytes",
                                "times", "NCCL's own", "fastest alone", "under overlap");
  for (const predict::TunedSize& s : n.sizes)
    out += fmt::format("{:<14} {:>11} {:>5}  {:<24} {:<24} {}\n", ddpsim::name_of(s.op), s.bytes,
                       s.times, choice_text(s.own), choice_text(s.alone), choice_text(s.overlap));
  if (n.left_out > 0)
    out += fmt::format("{} more sizes are left to what is fastest alone.\n", n.left_out);
  return out;
}

// What makes the step of a scenario shortest, and elsewhere what is fastest alone.
void export_under_overlap(Terminal& t, const TunerFlags& f) {
  if (!f.nccl.version.empty())
    throw InputError{"--nccl " + f.nccl.version,
                     "is of a communicator by itself; a scenario's: --set nccl=" + f.nccl.version};
  const Loaded l = load(t, f.nccl.question);
  if (std::string why = predict::nothing_to_tune(l.question()); !why.empty())
    throw InputError{"export nccl-tuner", "has nothing to choose for this scenario: " + why};
  check_consumer(consumer_of(f), l.profile);
  const predict::NcclTuning found = predict::tune_nccl(l.question(), l.options);
  if (found.sizes.empty())
    throw InputError{"export nccl-tuner", "finds no collective of NCCL's in a step of it"};
  predict::Communicators known;
  predict::Options options = l.options;
  options.known = &known;
  const predict::SteadyStep step = predict::steady_step(l.question(), Level::Mid, options);
  const collective::Communicator& job = known.get(l.question(), step.program);
  std::vector<report::TunerPoint> points;
  for (std::size_t k = 0; k <= job.groups.size(); ++k)
    if (const nccl::Group* group = nccl_group(collective::of_group(job, static_cast<int>(k))))
      add_priced_points(points, *group, l.profile);
  for (const predict::TunedSize& s : found.sizes)
    points.push_back({nccl::nccl_word(s.op), s.bytes, kPluginWords[s.overlap.algorithm],
                      nccl::name_of(s.overlap.protocol), s.overlap.channels, s.nodes, s.ranks, 0});
  const std::vector<report::TunerRow> rows = report::best_rows(points);
  known.tune(as_simulated(rows));
  const Duration with_file = predict::steady_period(l.question(), Level::Mid, options);
  const std::string steps = fmt::format(
      "a step of {} with these lines, {} with what is fastest alone, {} with NCCL's own choices",
      to_string(with_file), to_string(found.alone), to_string(found.own));
  write_rows(t, f, rows,
             fmt::format("{} on {}, {} ranks, profile {}, chosen under overlap; simulated: {}{}",
                         l.workload.name, l.cluster.name, l.scenario.ranks, l.profile.name, steps,
                         displaced(l.cluster)));
  t.err << tuning_text(found) << steps << " (" << found.simulations << " simulations)\n";
}

void export_tuner(Terminal& t, const TunerFlags& f) {
  const QuestionFlags& q = f.nccl.question;
  const bool step = !q.scenario.empty() || !q.workload.empty() || !q.program.empty();
  consumer_of(f);
  if (!f.from.empty() && (step || !q.cluster.empty()))
    throw InputError{"--from " + f.from,
                     "has the measurements to choose from; without --cluster, --scenario and "
                     "--workload"};
  if (step) return export_under_overlap(t, f);
  if (f.from.empty() && q.cluster.empty())
    throw InputError{"export nccl-tuner",
                     "needs --from FILE.csv, --cluster or --scenario: --cluster for ddpsim's own "
                     "prices, --scenario for what makes its step shortest, --from for "
                     "measurements of algorithms, protocols and channels by size"};
  if (f.from.empty()) {
    NcclQuestion n;
    load_nccl_question(t, f.nccl, n);
    check_consumer(consumer_of(f), n.hardware.profile);
    std::vector<report::TunerPoint> points;
    add_priced_points(points, *n.group, n.hardware.profile);
    if (consumer_of(f) == report::TunerConsumer::Example) add_smaller_communicators(points, n);
    const std::vector<report::TunerRow> rows = report::best_rows(points);
    if (rows.empty()) throw InputError{"--set", "leaves nothing that NCCL could run"};
    return write_rows(t, f, rows,
                      "ddpsim's prices on " + n.hardware.cluster.name + ", " +
                          std::to_string(n.ranks) + " ranks, profile " + n.hardware.profile.name +
                          displaced(n.hardware.cluster));
  }
  if (!f.metric.empty() && f.metric != "latency_us" && f.metric != "bandwidth_gbps" &&
      f.metric != "cost_metric")
    throw InputError{"--metric " + f.metric, "expected latency_us, bandwidth_gbps or cost_metric"};
  if (f.from.ends_with(".json") || f.from.ends_with(".json.gz"))
    throw InputError{"--from " + f.from,
                     "is no CSV; a Run of one table has one choice a size, and nothing to choose "
                     "among: make a profile of it (ddpsim fit --backend nccl-tests) and give that "
                     "with --cluster and --profile"};
  std::vector<report::TunerRow> rows =
      report::best_rows(report::parse_tuner_points(io::read_file(f.from), f.from, f.metric));
  if (Problem p = report::validate(rows)) throw InputError{f.from, p.message};
  write_rows(t, f, rows, f.from.substr(f.from.find_last_of('/') + 1));
}

}  // namespace

void add_export(Command& app, Terminal& t) {
  Command* group =
      app.add_subcommand("export", "Write what ddpsim found as files of other programs");
  group->require_subcommand();
  auto f = std::make_shared<TunerFlags>();
  Command* c = group->add_subcommand(
      "nccl-tuner",
      "The configuration of NCCL's example tuner plugin, NCCLX or RCCL: the best choice for each "
      "size, by itself or (--scenario) for a step");
  c->add_option(
      "--from", f->from,
      "CSV of measurements: collective,size_bytes,algorithm,protocol,channels,nodes,ranks and "
      "latency_us, bandwidth_gbps or cost_metric");
  c->add_option("--metric", f->metric,
                "what is compared: latency_us, bandwidth_gbps or cost_metric; default: the first "
                "of these that there is");
  c->add_option("--for", f->consumer,
                "who reads the file: example (NVIDIA's plugin; default), ncclx (torchcomms' "
                "NCCLX_TUNER_CONFIG_FILE) or rccl (RCCL's own tuner)");
  add_nccl_flags(*c, f->nccl);
  c->add_option("--scenario", f->nccl.question.scenario,
                "scenario file: what makes its step shortest, each collective beside computation, "
                "not alone");
  c->add_option("--workload", f->nccl.question.workload,
                "the same of a workload on --cluster: a file, or the name of a shipped one");
  c->add_option("--plan", f->nccl.question.plan, "the plan of --workload");
  add_output_flags(*c, f->output, {"csv"});
  c->callback([&t, f] { export_tuner(t, *f); });
  add_export_chakra(*group, t);
}

}  // namespace ddpsim::cli
