// ddpsim import kineto TRACES, ddpsim import nsys FILES: what PyTorch's profiler or Nsight Systems
// recorded, as a captured workload and a measured Run.
#include "tools/cmd/import_traces.h"

#include <ostream>

#include <fmt/format.h>

#include "sim/io/byte_stream.h"
#include "sim/io/kineto.h"
#include "sim/io/nsys.h"
#include "sim/io/write_traced.h"
#include "sim/model/version.h"
#include "sim/report/text.h"
#include "sim/units/text.h"
#include "tools/cmd/flags.h"
#include "tools/cmd/question.h"
#include "tools/cmd/traces.h"

namespace ddpsim::cli {
namespace {

// Whose traces.
struct Profiler {
  const char* name;  // of the command
  const char* recorded;
  std::string (*remedy)();
};
constexpr Profiler kKineto{"kineto", "PyTorch, recorded by its profiler, which disturbs",
                           io::kineto_remedy};
constexpr Profiler kNsys{"nsys", "PyTorch, recorded by Nsight Systems, which disturbs",
                         io::nsys_remedy};

struct ImportTracesFlags {
  Profiler profiler = kKineto;
  std::vector<std::string> files;
  std::string workload;
  std::string run;
  std::string model;
  std::string name;
  std::string precision;
  std::string rank;
  std::string device;
  int batch = 0;
  int iterations = kDefaultIterations;
  OutputFlags output;
};

// The file whose step becomes the workload.
const analysis::RankTrace& chosen(const analysis::TracedRanks& job, const std::string& rank) {
  if (rank.empty()) return job.ranks.front();
  for (const analysis::RankTrace& r : job.ranks)
    if (std::to_string(r.rank) == rank) return r;
  std::string known;
  for (const analysis::RankTrace& r : job.ranks)
    known += (known.empty() ? "" : ", ") + std::to_string(r.rank);
  throw InputError{"--rank " + rank, "no trace is of that rank; there are traces of " + known};
}

std::size_t index_of(const analysis::TracedRanks& job, const analysis::RankTrace& rank) {
  return static_cast<std::size_t>(&rank - job.ranks.data());
}

std::string percent(Duration part, Duration whole) {
  return fmt::format("{:.2f} %", 100 * static_cast<double>(part.ps) /
                                     static_cast<double>(std::max<std::int64_t>(whole.ps, 1)));
}

std::string table(const analysis::TracedRanks& job, const analysis::RankTrace& from,
                  const std::vector<std::string>& notes) {
  const analysis::TracedStep& s = from.steps[analysis::median_step(from.steps)];
  std::string out = fmt::format(
      "{} of {}, rank {}{}: {} iterations, {} gradients, on a {}\n",
      job.ranks.size() == 1 ? "a trace" : fmt::format("traces of {} ranks", job.ranks.size()),
      printable(imported_name(from.trace.file)), from.rank,
      from.trace.world > 0 ? fmt::format(" of {}", from.trace.world) : "", from.steps.size(),
      s.gradients.size(), s.times.host ? "GPU" : "CPU");
  auto row = [&](const char* what, Duration d) {
    out += fmt::format("  {:<42} {:>12} {:>9}\n", what, to_string(d), percent(d, s.length()));
  };
  row("the iteration of median length", s.length());
  row("forward", s.times.forward);
  row("backward", s.times.backward);
  row("optimizer", s.times.optimizer);
  row("hooks of DistributedDataParallel", s.hooks);
  row("waiting for communication, copying back", s.exposed);
  if (s.input.ps > 0) row("host: fetching the batch, in forward", s.input);
  if (s.times.host) {
    row("host: forward", s.times.host->forward);
    row("host: backward", s.times.host->backward);
    row("host: optimizer", s.times.host->optimizer);
    row("host: waits for the device", s.waits);
  }
  for (const std::string& note : notes) out += "note: " + printable(note) + "\n";
  return out;
}

io::OrderedJson summary(const analysis::RankTrace& from, const std::vector<std::string>& notes) {
  const analysis::TracedStep& s = from.steps[analysis::median_step(from.steps)];
  io::OrderedJson j = {{"schema", "ddpsim.import/1"},
                       {"file", from.trace.file},
                       {"rank", from.rank},
                       {"world_size", from.trace.world},
                       {"events", from.trace.events_in_file},
                       {"iterations", from.steps.size()},
                       {"gradients", s.gradients.size()},
                       {"device", s.times.host ? "gpu" : "cpu"},
                       {"iteration_ps", s.length().ps},
                       {"forward_ps", s.times.forward.ps},
                       {"backward_ps", s.times.backward.ps},
                       {"optimizer_ps", s.times.optimizer.ps},
                       {"hooks_ps", s.hooks.ps},
                       {"exposed_ps", s.exposed.ps},
                       {"input_ps", s.input.ps}};
  if (s.times.host) {
    j["host_forward_ps"] = s.times.host->forward.ps;
    j["host_backward_ps"] = s.times.host->backward.ps;
    j["host_optimizer_ps"] = s.times.host->optimizer.ps;
    j["host_waits_ps"] = s.waits.ps;
  }
  j["notes"] = notes;
  return j;
}

Precision precision_of(const std::string& text) {
  for (Precision p : {Precision::Fp32, Precision::Tf32, Precision::Bf16, Precision::Fp16})
    if (text == name_of(p)) return p;
  throw InputError{"--precision " + text, "expected fp32, tf32, bf16 or fp16"};
}

// Each command reads its own files.
void check_files(const ImportTracesFlags& f) {
  for (const std::string& file : f.files) {
    io::ByteStream there(file);  // or it throws
    bool sqlite = io::is_sqlite(file) || file.ends_with(".nsys-rep");
    if (sqlite && f.profiler.name == std::string(kKineto.name))
      throw InputError{file, "is of Nsight Systems: ddpsim import nsys reads its SQLite exports"};
    if (!sqlite && f.profiler.name == std::string(kNsys.name))
      throw InputError{file,
                       "is no SQLite file: ddpsim import nsys reads what nsys export --type sqlite "
                       "makes of a report; traces of PyTorch's profiler: ddpsim import kineto"};
  }
}

void import_traces(Terminal& t, const ImportTracesFlags& f) {
  if (!f.workload.empty()) io::check_place(f.workload);
  if (!f.run.empty()) io::check_place(f.run);
  analysis::ImportSetting setting;
  std::optional<Workload> model;
  io::Json model_document;
  if (!f.model.empty()) {
    io::Home home = home_of(t);
    std::string file = home.find("workloads", f.model, "workload");
    model_document = io::parse_json(io::read_file(file), file);
    model = io::read_workload(model_document, file);
    setting.model = &*model;
  }
  check_files(f);
  analysis::TracedRanks job = load_traces(f.files, f.iterations);
  const analysis::RankTrace& from = chosen(job, f.rank);
  setting.name = !f.name.empty()       ? f.name
                 : !f.workload.empty() ? imported_name(f.workload)
                                       : imported_name(from.trace.file);
  setting.batch = f.batch;
  if (!f.precision.empty()) setting.precision = precision_of(f.precision);
  setting.device = f.device;
  // Neither a Run nor the table needs tensors: they are told even where a workload cannot be.
  std::optional<analysis::ImportedWorkload> made;
  std::vector<std::string> notes = job.notes;
  try {
    made = analysis::workload_of(from.trace, setting, f.profiler.remedy());
  } catch (const InputError& e) {
    if (!f.workload.empty() || !f.model.empty()) throw;
    notes.push_back("no workload can be made of it: " + e.what);
  }
  if (job.ranks.size() > 1)
    notes.push_back(fmt::format(
        "the ranks' clocks are put together by the ends of their collectives, which differ by {}",
        to_string(job.offset_bound)));
  if (made) {
    notes.insert(notes.end(), made->notes.begin(), made->notes.end());
    made->workload.not_counted = analysis::not_counted(job, index_of(job, from));
    for (const NotCounted& n : made->workload.not_counted) notes.push_back(in_words(n));
  }
  if (made && !setting.model && f.profiler.name == std::string(kNsys.name))
    notes.push_back(
        "ranges of NVTX have shapes and no types: gradients are taken for float32 (--model FILE "
        "says them)");
  if (made && !f.workload.empty()) {
    io::OrderedJson source = {{"tool", std::string("ddpsim import ") + f.profiler.name},
                              {"files", io::OrderedJson::array()}};
    for (const analysis::RankTrace& r : job.ranks)
      source["files"].push_back(r.trace.file.substr(r.trace.file.find_last_of('/') + 1));
    source["rank"] = from.rank;
    if (model_document.is_object() && model_document.contains("source") &&
        model_document["source"].is_object() && model_document["source"].contains("recipe"))
      source["recipe"] = model_document["source"]["recipe"];
    std::string text = json_text(io::write_workload(*made, from.trace, source));
    io::read_workload(io::parse_json(text, "import"), "import");  // what is written can be read
    write_output(t, f.workload, text);
  }
  if (!f.run.empty()) {
    std::vector<std::string> names;
    if (made)
      for (TensorIndex i : made->workload.arrival) names.push_back(made->workload.tensors[i].name);
    Run run = analysis::run_of(job, names);
    run.key = fmt::format("{}/{}/n{}", f.profiler.name, setting.name, job.ranks.size());
    run.origin.version = kVersion;
    run.origin.argv = {"ddpsim"};
    run.origin.argv.insert(run.origin.argv.end(), t.arguments.begin(), t.arguments.end());
    run.origin.backend = f.profiler.name;
    run.origin.hosts = "machines";
    run.origin.compute = "real";
    run.origin.cpu = from.trace.gpu.empty() ? setting.device : "";
    run.origin.gpu = from.trace.gpu;
    run.origin.software = f.profiler.recorded;
    io::name_kinds(run, job);
    std::string text = json_text(io::write_traced_run(run, job));
    io::read_run(io::parse_json(text, "import"), "import");
    write_output(t, f.run, text);
    t.written += fmt::format("ddpsim: wrote {}: {} steps of {} ranks\n", printable(f.run),
                             run.steps.size(), job.ranks.size());
  }
  write_answer(
      t, f.output,
      f.output.format == "json" ? json_text(summary(from, notes)) : table(job, from, notes));
  if (!f.workload.empty())
    t.written += fmt::format(
        "ddpsim: wrote {0}; next: ddpsim predict --workload {0} --cluster NAME --ranks N\n",
        printable(f.workload));
  else if (f.run.empty())
    t.err << "ddpsim: --workload FILE.json writes what ddpsim predict reads, --run FILE.json the "
             "measured steps\n";
}

}  // namespace

std::string imported_name(const std::string& path) {
  std::string name = path.substr(path.find_last_of('/') + 1);
  name = name.substr(0, name.find('.'));
  return name.empty() ? "imported" : name;
}

std::string json_text(const io::OrderedJson& j) {
  return j.dump(1, ' ', false, io::OrderedJson::error_handler_t::replace) + "\n";
}

analysis::TracedRanks load_traces(const std::vector<std::string>& files, int iterations) {
  std::vector<analysis::Trace> traces;
  for (const std::string& file : files) {
    if (io::is_sqlite(file) || file.ends_with(".nsys-rep")) {
      for (analysis::Trace& trace : io::read_nsys(file, iterations))
        traces.push_back(std::move(trace));
    } else {
      traces.push_back(io::read_kineto(file, iterations));
    }
  }
  return analysis::beside_one_another(std::move(traces));
}

void add_import_traces(Command& import, Terminal& t) {
  for (const Profiler& profiler : {kKineto, kNsys}) {
    auto f = std::make_shared<ImportTracesFlags>();
    f->profiler = profiler;
    bool nsys = profiler.name == std::string(kNsys.name);
    Command* c = import.add_subcommand(
        profiler.name,
        nsys ? "SQLite exports of Nsight Systems, of one or several ranks, as a workload and a "
               "measured Run"
             : "Traces of PyTorch's profiler, one of each rank, as a workload and a measured Run");
    c->add_option("traces", f->files,
                  nsys ? "what nsys export --type sqlite wrote; of each process that trains a rank"
                       : "what export_chrome_trace wrote, gzip or not; any length")
        ->required();
    c->add_option("--workload", f->workload, "file to write: the step as a captured workload");
    c->add_option("--run", f->run, "file to write: the steps, with spans, as a measured Run");
    c->add_option(
        "--model", f->model,
        "whose parameters were trained: a workload (ddpsim list workloads), or a file that "
        "ddpsim describe wrote; needed where the trace has no shapes");
    c->add_option("--rank", f->rank, "whose step becomes the workload; default: the first");
    c->add_option("--batch", f->batch, "samples of a step on one rank; default: the model's, or 1")
        ->range(1, 1'000'000);
    c->add_option("--precision", f->precision,
                  "fp32, tf32, bf16 or fp16; default: of the gradients, or the model's");
    c->add_option("--name", f->name, "name of the workload; default: that of its file");
    if (!nsys) c->add_option("--device", f->device, "name of the CPU, which a trace does not say");
    c->add_option("--iterations", f->iterations, "last iterations that are read (default 20)")
        ->range(1, 10'000);
    add_output_flags(*c, f->output, {"table", "json"});
    c->callback([&t, f] { import_traces(t, *f); });
  }
}

}  // namespace ddpsim::cli
