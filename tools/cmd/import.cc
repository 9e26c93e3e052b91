// ddpsim import: what other programs measured or found, as ddpsim's files.
#include <ostream>
#include <set>
#include <tuple>

#include "calib/gpu/nccl_log.h"
#include "sim/io/nccl_tests.h"
#include "sim/io/nccl_xml.h"
#include "sim/model/gpu_name.h"
#include "sim/nccl/version.h"
#include "sim/report/run_text.h"
#include "sim/units/text.h"
#include "tools/cmd/executed.h"
#include "tools/cmd/flags.h"
#include "tools/cmd/import_chakra.h"
#include "tools/cmd/import_horovod.h"
#include "tools/cmd/import_traces.h"

namespace ddpsim::cli {
namespace {

struct TestsFlags {
  std::string file;
  std::string ranks;
  std::string evidence = "published";
  std::vector<std::string> sets;
  io::NcclTestsSetting setting;
  OutputFlags output;
};

std::string lower(std::string s) {
  for (char& c : s)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return s;
}

// What NCCL's own lines in the log say of its choices. Others than those of the operation are left
// out.
void add_choices(const std::string& text, CollectiveSetting& c) {
  calib::gpu::NcclLog log = calib::gpu::parse_nccl_log(text);
  if (c.nccl.empty()) c.nccl = log.version;
  std::set<std::tuple<std::int64_t, std::string, std::string, int>> there;
  for (const calib::gpu::NcclChoice& x : log.choices) {
    if (!x.collective.empty() && io::nccl_tests_op(x.collective) != c.op) continue;
    CollectiveChoice choice{x.bytes, lower(x.algorithm), lower(x.protocol), x.channels};
    if (there.insert({choice.bytes, choice.algorithm, choice.protocol, choice.channels}).second)
      c.chosen.push_back(std::move(choice));
  }
}

// Bytes of a log that are no UTF-8 become U+FFFD.
void tell(Terminal& t, const std::string& file, const std::vector<std::string>& notes) {
  for (std::string note : notes) {
    for (char& c : note)
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
    t.err << "ddpsim: " << file << ": " << note << "\n";
  }
}

// What the log says must be true of the cluster that it is said to be of. Throws InputError.
Profile check_cluster(const Terminal& t, const std::string& name, const std::string& gpu) {
  io::Home home = home_of(t);
  Cluster cluster = load_cluster(t, name, {});
  Profile profile = load_profile(home, cluster.profile);
  if (cluster.device != DeviceKind::Gpu)
    throw InputError{"--cluster " + name, "its devices are CPUs; nccl-tests runs on GPUs"};
  if (names_differ(gpu, profile.hardware))
    throw InputError{"--cluster " + name, "its GPUs are " + profile.hardware +
                                              ", those of the log are named " + gpu +
                                              "; name the cluster that it ran on"};
  return profile;
}

// After a file was written: what is in it, and what it is good for.
void tell_next(Terminal& t, const TestsFlags& f, const Run& run, const Profile& profile) {
  const CollectiveSetting& c = *run.collectives;
  std::string say = "ddpsim: wrote " + printable(f.output.out) + ": " +
                    std::to_string(run.samples.size()) + " rows of " + c.op + " on " +
                    std::to_string(c.ranks) + " ranks";
  if (!c.gpu.empty()) say += " of " + printable(c.gpu);
  t.err << say << "\n";
  auto version = nccl::parse_version(c.nccl);
  if (version && !version->is_known())
    t.err << "ddpsim: NCCL " << printable(c.nccl)
          << ": ddpsim knows the cost models of 2.19 to 2.30, and takes the nearest\n";
  if (c.cluster.empty())
    t.err << "ddpsim: no fit can use it without the cluster that it ran on: --cluster NAME (ddpsim "
             "list clusters)\n";
  else
    t.err << "ddpsim: next: ddpsim fit --backend nccl-tests --runs " << printable(f.output.out)
          << " --base " << profile.name << " --out profile.json\n";
}

void import_tests(Terminal& t, TestsFlags& f) {
  io::NcclTestsSetting& s = f.setting;
  s.file = f.file;
  if (!f.ranks.empty()) s.ranks = parse_ranks(f.ranks);
  if (f.evidence == "collective")
    s.evidence = EvidenceClass::Collective;
  else if (f.evidence != "published")
    throw InputError{
        "--evidence " + f.evidence,
        "expected published (somebody else measured it) or collective (it was measured here)"};
  if (!s.nccl.empty() && !nccl::parse_version(s.nccl))
    throw InputError{"--nccl " + s.nccl, "is not a version of NCCL such as 2.28 or 2.23.4"};
  if (s.ranks > 0 && s.hosts > s.ranks)
    throw InputError{"--hosts " + std::to_string(s.hosts),
                     "is more than --ranks " + f.ranks + ": a host has at least one rank"};
  for (const std::string& set : f.sets) {
    auto equals = set.find('=');
    if (equals == std::string::npos || equals == 0)
      throw InputError{
          "--set " + set,
          "expected KEY=VALUE, an environment variable of the run, for example NCCL_ALGO=Ring"};
    s.environment[set.substr(0, equals)] = set.substr(equals + 1);
  }
  std::string text = io::read_file(f.file);
  io::NcclTestsRun imported = io::run_of(io::read_nccl_tests(text, f.file), s);
  add_choices(text, *imported.run.collectives);
  Profile profile;
  if (!s.cluster.empty()) profile = check_cluster(t, s.cluster, imported.run.collectives->gpu);
  std::string json = json_text(io::write_run(imported.run));
  Run read = io::read_run(io::parse_json(json, "import"), "import");  // what is written can be read
  tell(t, f.file, imported.notes);
  write_answer(t, f.output,
               f.output.format == "json"  ? json
               : f.output.format == "csv" ? report::samples_csv(read)
                                          : report::run_page(read));
  if (!f.output.out.empty() && f.output.format == "json") tell_next(t, f, read, profile);
}

void add_tests(Command& import, Terminal& t) {
  auto f = std::make_shared<TestsFlags>();
  Command* c = import.add_subcommand(
      "nccl-tests",
      "Output of nccl-tests (text of any version, JSON of -J, or CSV) as a measured Run");
  c->add_option("file", f->file, "what the program printed, with whatever else is in the log")
      ->required();
  c->add_option(
      "--op", f->setting.op,
      "operation, where the file does not say it or holds several: all_reduce, all_gather, ...");
  c->add_option("--forced", f->setting.forced,
                "of a CSV with forced_kind and forced_value: which, for example ALGO=Ring");
  c->add_option("--ranks", f->ranks, "number of ranks; default: the file's list of devices");
  c->add_option("--hosts", f->setting.hosts, "number of hosts; default: the file's list of devices")
      ->range(1, 1 << 20);
  c->add_option("--gpus-per-process", f->setting.gpus_per_process,
                "GPUs of one process, 0 = not known; default: what the file says")
      ->range(0, 1 << 20);
  c->add_option("--cluster", f->setting.cluster,
                "name of the cluster that it ran on (ddpsim list clusters)");
  c->add_option("--gpu", f->setting.gpu, "name of the GPU; default: the file's list of devices");
  c->add_option("--nccl", f->setting.nccl, "version of NCCL; default: what the file says");
  c->add_option("--set", f->sets,
                "KEY=VALUE, repeatable: environment of the run; NCCL_ALGO and NCCL_PROTO say what "
                "was forced")
      ->allow_extra_args(false);
  c->add_option("--source", f->setting.source, "where the file is from, for people");
  c->add_option("--evidence", f->evidence, "published (default) or collective: measured here");
  add_output_flags(*c, f->output, {"json", "table", "csv"});
  c->callback([&t, f] { import_tests(t, *f); });
}

struct XmlFlags {
  std::string file;
  std::string name;
  io::NcclTopoSetting topo;
  OutputFlags output;
};

// "some/where/node.xml" -> "node"
void add_topo(Command& import, Terminal& t) {
  auto f = std::make_shared<XmlFlags>();
  Command* c =
      import.add_subcommand("nccl-topo", "A host's wiring (NCCL_TOPO_DUMP_FILE) as a cluster");
  c->add_option("file", f->file, "XML that NCCL wrote to NCCL_TOPO_DUMP_FILE")->required();
  c->add_option("--hosts", f->topo.hosts,
                "hosts of the cluster, alike, on one non-blocking switch (default 1)")
      ->range(1, 1 << 20);
  c->add_option("--name", f->name, "name of the cluster; default: that of the file");
  c->add_option("--profile", f->topo.profile,
                "profile of the GPUs; default: the shipped one of their compute capability");
  add_output_flags(*c, f->output, {"json"});
  c->callback([&t, f] {
    f->topo.file = f->file;
    f->topo.name = f->name.empty() ? imported_name(f->file) : f->name;
    io::NcclTopoCluster made = io::read_nccl_topo(io::read_file(f->file), f->topo);
    tell(t, f->file, made.notes);
    write_answer(t, f->output, json_text(made.cluster));
  });
}

void add_graph(Command& import, Terminal& t) {
  auto f = std::make_shared<XmlFlags>();
  Command* c = import.add_subcommand(
      "nccl-graph", "What NCCL's search for channels found (NCCL_GRAPH_DUMP_FILE)");
  c->add_option("file", f->file, "XML that NCCL wrote to NCCL_GRAPH_DUMP_FILE")->required();
  add_output_flags(*c, f->output, {"json"});
  c->callback([&t, f] {
    write_answer(
        t, f->output,
        json_text(io::write_nccl_graphs(io::read_nccl_graph_xml(io::read_file(f->file), f->file))));
  });
}

struct RunFlags {
  std::string file;
  std::string folder;
  std::string split;
  QuestionFlags question;
};

// A Run of torchrun knows what it ran and not what it was asked: the question is given beside it.
void import_run(Terminal& t, const RunFlags& f) {
  Run run = io::read_run(io::parse_json(io::read_file(f.file), f.file), f.file);
  if (run.kind != RunKind::Measured)
    throw InputError{f.file, "is a predicted run; a folder of Runs holds measured ones"};
  if (!run.scenario.empty())
    throw InputError{f.file,
                     "names its scenario (" + run.scenario + ") already: copy it into the folder"};
  if (run.steps.empty())
    throw InputError{f.file, "has no steps that a prediction could be compared with"};
  if (!f.split.empty() && f.split != "fit" && f.split != "held_out")
    throw InputError{"--split " + f.split, "expected fit or held_out"};
  if (!f.split.empty()) run.split = f.split;
  Loaded l = load(t, f.question);
  if (run.layers) {
    if (auto why = layers_problem(l.workload, run); !why.empty()) throw InputError{f.file, why};
    if (run.layers->ranks != l.scenario.ranks)
      throw InputError{f.file, "ran on " + std::to_string(run.layers->ranks) +
                                   " ranks, and the question has " +
                                   std::to_string(l.scenario.ranks) + "; --ranks says how many"};
  }
  run.key = l.key;
  run.scenario = l.scenario_hash;
  run.workload = l.workload_hash;
  prepare_runs(f.folder);
  add_to_runs(f.folder, run.origin.backend.empty() ? "run" : run.origin.backend, l, run);
  t.err << "ddpsim: " << f.folder << ": " << l.key << "\n";
}

void add_run_of(Command& import, Terminal& t) {
  auto f = std::make_shared<RunFlags>();
  Command* c =
      import.add_subcommand("run",
                            "A measured Run that names no scenario (ddpsim_record.py under "
                            "torchrun), with its question, into a folder for ddpsim validate");
  c->add_option("file", f->file, "the Run")->required();
  add_question_flags(*c, f->question);
  c->add_option("--runs", f->folder, "folder of Runs")->required();
  c->add_option("--split", f->split,
                "fit or held_out: whether a fit may see this Run; decide before you look at it");
  c->callback([&t, f] { import_run(t, *f); });
}

}  // namespace

void add_import(Command& app, Terminal& t) {
  Command* c = app.add_subcommand("import",
                                  "Make ddpsim's files of what nccl-tests measured, NCCL found, "
                                  "and PyTorch's profiler, Nsight Systems, Chakra or Horovod "
                                  "recorded");
  c->require_subcommand();
  add_tests(*c, t);
  add_topo(*c, t);
  add_graph(*c, t);
  add_run_of(*c, t);
  add_import_traces(*c, t);
  add_import_chakra(*c, t);
  add_import_horovod(*c, t);
}

}  // namespace ddpsim::cli
