// ddpsim export: what ddpsim found, in the files of other programs.
#include "sim/report/nccl_tuner.h"
#include "tools/cmd/collectives.h"
#include "tools/cmd/export_chakra.h"
#include "tools/cmd/flags.h"

namespace ddpsim::cli {
namespace {

struct TunerFlags {
  std::string from;
  std::string metric;
  NcclFlags nccl;
  OutputFlags output;
};

// NCCL's names in the plugin's file.
constexpr nccl::By<nccl::Algorithm, const char*> kPluginWords{
    {"tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat"}};

// What ddpsim finds cheapest of what NCCL could run, by size.
std::vector<report::TunerPoint> priced_points(const NcclQuestion& q) {
  std::vector<report::TunerPoint> out;
  const nccl::Group& g = *q.group;
  for (Operation op : nccl::kAll<Operation>) {
    for (std::int64_t bytes = 256; bytes <= (std::int64_t{4} << 30); bytes *= 2)
      for (const nccl::Candidate& c : nccl::candidates(g, op, bytes)) {
        if (!c.estimate_us) continue;
        nccl::Choice choice = nccl::complete(g, op, c.algorithm, c.protocol, bytes);
        double us =
            static_cast<double>(
                nccl::price_of(g, q.hardware.profile, Level::Mid, op, choice, {bytes}).total.ps) /
            1e6;
        out.push_back({nccl::nccl_word(op), bytes, kPluginWords[c.algorithm],
                       nccl::name_of(c.protocol), choice.channels, nccl::nodes(g), nccl::ranks(g),
                       us});
      }
  }
  return out;
}

void export_tuner(Terminal& t, const TunerFlags& f) {
  if (f.from.empty() == f.nccl.question.cluster.empty())
    throw InputError{"export nccl-tuner",
                     "needs --from FILE.csv or --cluster: --cluster for ddpsim's own prices, "
                     "--from for measurements of algorithms, protocols and channels by size"};
  if (f.from.empty()) {
    NcclQuestion q;
    load_nccl_question(t, f.nccl, q);
    std::vector<report::TunerRow> rows = report::best_rows(priced_points(q));
    if (rows.empty()) throw InputError{"--set", "leaves nothing that NCCL could run"};
    return write_answer(t, f.output,
                        report::tuner_csv(rows, "ddpsim's prices on " + q.hardware.cluster.name +
                                                    ", " + std::to_string(q.ranks) +
                                                    " ranks, profile " + q.hardware.profile.name));
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
  write_answer(t, f.output, report::tuner_csv(rows, f.from.substr(f.from.find_last_of('/') + 1)));
}

}  // namespace

void add_export(Command& app, Terminal& t) {
  Command* group =
      app.add_subcommand("export", "Write what ddpsim found as files of other programs");
  group->require_subcommand();
  auto f = std::make_shared<TunerFlags>();
  Command* c = group->add_subcommand(
      "nccl-tuner",
      "The configuration of NCCL's example tuner plugin: the best choice for each size");
  c->add_option(
      "--from", f->from,
      "CSV of measurements: collective,size_bytes,algorithm,protocol,channels,nodes,ranks and "
      "latency_us, bandwidth_gbps or cost_metric");
  c->add_option("--metric", f->metric,
                "what is compared: latency_us, bandwidth_gbps or cost_metric; default: the first "
                "of these that there is");
  add_nccl_flags(*c, f->nccl);
  add_output_flags(*c, f->output, {"csv"});
  c->callback([&t, f] { export_tuner(t, *f); });
  add_export_chakra(*group, t);
}

}  // namespace ddpsim::cli
