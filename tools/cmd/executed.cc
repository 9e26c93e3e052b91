#include "tools/cmd/executed.h"

#include <fmt/format.h>

#include "tools/cmd/flags.h"

namespace ddpsim::cli {

extern const char* const kRevision;  // written by tools/revision.cmake

void note_origin(const Terminal& t, const ExecutedFlags& flags, Run& run) {
  run.origin.argv = {"ddpsim"};
  run.origin.argv.insert(run.origin.argv.end(), t.arguments.begin(), t.arguments.end());
  run.origin.revision = flags.revision.empty() ? kRevision : flags.revision;
}

void add_executed_flags(Command& c, ExecutedFlags& f, const std::string& backend_help) {
  add_question_flags(c, f.question);
  add_output_flags(c, f.output, {"table", "json"});
  c.add_option("--backend", f.backend, backend_help);
  c.add_option("--runs", f.runs, "folder of Runs: adds the Run and its scenario there");
  c.add_option("--revision", f.revision,
               "git revision to note in the Run; default: the one that ddpsim was built from");
  c.add_option(
      "--python", f.python,
      "backends torch and mpi: an interpreter that has PyTorch, mpi4py or Horovod; default "
      "/usr/bin/python3");
  c.add_flag("--loopback", f.loopback, "make no hosts: plain loopback, not shaped");
}

namespace {

std::string script_path(const Terminal& t, const std::string& script) {
  std::string path = home_of(t).path() + "/tools/python/" + script;
  if (!io::exists(path)) throw InputError{path, "no such file; set DDPSIM_HOME to ddpsim's folder"};
  return path;
}

}  // namespace

std::vector<int> hosts_of(const Loaded& l) {
  std::vector<int> hosts;
  for (DeviceId d : devices_of(l.scenario)) hosts.push_back(l.fabric->host_of(d).number);
  return hosts;
}

void say_mpi(QuestionFlags& question) {
  const std::string sets[] = {"plan.backend=mpi", "plan.open_mpi=" + calib::open_mpi_version()};
  question.sets.insert(question.sets.begin(), std::begin(sets), std::end(sets));
}

calib::MpiOptions mpi_options(const Terminal& t, const ExecutedFlags& flags,
                              const std::string& script) {
  calib::MpiOptions options;
  options.python = flags.python;
  options.script = script_path(t, script);
  options.loopback = flags.loopback;
  return options;
}

Run run_script(const Terminal& t, const Loaded& l, const ExecutedFlags& flags,
               const std::string& script, calib::TorchOptions options) {
  options.python = flags.python;
  options.script = script_path(t, script);
  options.loopback = flags.loopback;
  return calib::record_torch(l.cluster, hosts_of(l), options);
}

std::vector<std::string> run_files(const std::string& folder) {
  std::vector<std::string> files = io::list_files(folder, {".json", ".json.gz"});
  std::erase(files, folder + kOwnBudget);
  return files;
}

std::string own_profile(const std::string& folder, const std::string& name, bool replayed) {
  const std::string suffix = ".datasheet";
  std::string base = name;
  if (base.ends_with(suffix)) base.resize(base.size() - suffix.size());
  std::vector<std::string> places{folder + "/profiles/"};
  if (replayed) places.insert(places.begin(), folder + "/replayed/");
  for (const std::string& place : places)
    for (const std::string& each : {base, base + suffix})
      if (std::string path = place + each + ".json"; io::exists(path)) return path;
  return {};
}

std::vector<std::string> one_or_all(const std::string& path) {
  if (path.ends_with(".json") || path.ends_with(".json.gz")) return {path};
  return run_files(path);
}

void prepare_runs(const std::string& folder) {
  io::make_folder(folder + "/scenarios");
  io::remove_stale_temporaries(folder);  // of a run that was killed while it wrote
  io::remove_stale_temporaries(folder + "/scenarios");
}

namespace {

void add_run_to(io::FileSet& files, const std::string& folder, const std::string& prefix,
                const Run& run) {
  std::string day = run.origin.date;
  std::erase_if(day, [](char c) { return c == '-' || c == ':'; });
  files.add(fmt::format("{}/{}-{}.json.gz", folder, prefix, day), io::write_run(run).dump() + "\n");
}

}  // namespace

void add_to_runs(const std::string& folder, const std::string& prefix, const Run& run) {
  io::FileSet files;
  add_run_to(files, folder, prefix, run);
  files.commit();
}

void add_to_runs(const std::string& folder, const std::string& prefix, const Loaded& l,
                 const Run& run) {
  io::FileSet files;
  files.add(folder + "/scenarios/" + l.scenario_hash + ".json", l.stored.dump(1) + "\n");
  for (const auto& [name, text] : l.beside) files.add(folder + "/scenarios/" + name, text);
  add_run_to(files, folder, prefix + "-" + l.scenario_hash, run);
  files.commit();
}

}  // namespace ddpsim::cli
