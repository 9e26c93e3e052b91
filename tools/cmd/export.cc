// ddpsim export: what ddpsim found, in the files of other programs.
#include <CLI/CLI.hpp>

#include "sim/report/nccl_tuner.h"
#include "tools/cmd/question.h"

namespace ddpsim::cli {
namespace {

struct TunerFlags {
  std::string from;
  std::string metric;
  OutputFlags output;
};

void export_tuner(Terminal& t, const TunerFlags& f) {
  if (f.from.empty()) throw InputError{"export nccl-tuner", "needs --from FILE.csv, measurements of algorithms, protocols and channels by size"};
  if (!f.metric.empty() && f.metric != "latency_us" && f.metric != "bandwidth_gbps" && f.metric != "cost_metric")
    throw InputError{"--metric " + f.metric, "expected latency_us, bandwidth_gbps or cost_metric"};
  std::vector<report::TunerRow> rows = report::best_rows(report::parse_tuner_points(io::read_file(f.from), f.from, f.metric));
  if (Problem p = report::validate(rows)) throw InputError{f.from, p.message};
  write_answer(t, f.output, report::tuner_csv(rows, f.from.substr(f.from.find_last_of('/') + 1)));
}

}  // namespace

void add_export(CLI::App& app, Terminal& t) {
  CLI::App* group = app.add_subcommand("export", "Write what ddpsim found as files of other programs");
  group->require_subcommand(1);
  auto f = std::make_shared<TunerFlags>();
  CLI::App* c = group->add_subcommand("nccl-tuner", "The configuration of NCCL's example tuner plugin: the best choice for each size");
  c->add_option("--from", f->from, "CSV of measurements: collective,size_bytes,algorithm,protocol,channels,nodes,ranks and latency_us, bandwidth_gbps or cost_metric");
  c->add_option("--metric", f->metric, "what is compared: latency_us, bandwidth_gbps or cost_metric; default: the first of these that there is");
  add_output_flags(*c, f->output, {"csv"});
  c->callback([&t, f] { export_tuner(t, *f); });
}

}  // namespace ddpsim::cli
