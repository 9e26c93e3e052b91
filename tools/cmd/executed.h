// What commands that execute on hosts of this machine share: run and calibrate.
#pragma once

#include <string>

#include "calib/mpi.h"
#include "calib/torch.h"
#include "tools/cmd/question.h"

namespace ddpsim::cli {

struct ExecutedFlags {
  QuestionFlags question;
  OutputFlags output;
  std::string backend = "tcp";
  std::string runs;
  std::string revision;
  std::string python = "/usr/bin/python3";  // backends torch and mpi
  bool loopback = false;
};
// What was typed, and the revision that the binary was built from, unless --revision names one.
void note_origin(const Terminal& t, const ExecutedFlags& flags, Run& run);
void add_executed_flags(Command& command, ExecutedFlags& flags, const std::string& backend_help);

// Runs a script of tools/python on the scenario's ranks. `options.arguments` and the rest that only
// the command knows are given. Throws InputError.
Run run_script(const Terminal& t, const Loaded& l, const ExecutedFlags& flags,
               const std::string& script, calib::TorchOptions options = {});

// Host of each rank.
std::vector<int> hosts_of(const Loaded& l);
// The plan's backend is this machine's Open MPI. Throws std::runtime_error if there is none.
void say_mpi(QuestionFlags& question);
// The interpreter, a script of tools/python and whether hosts are made. Throws InputError.
calib::MpiOptions mpi_options(const Terminal& t, const ExecutedFlags& flags,
                              const std::string& script);

// A folder of Runs may have a budget of its own (ddpsim validate), which is no Run.
inline constexpr const char* kOwnBudget = "/budget.json";
// Files of Runs in a folder, sorted. Throws InputError if it cannot be listed.
std::vector<std::string> run_files(const std::string& folder);
// The profile that a folder of Runs has for what its clusters name: FOLDER/profiles/NAME.json,
// where NAME is the cluster's without ".datasheet", or with it. "" = it has none. `replayed`: for a
// replay on a GPU, which computed as long as the profile of its day says; FOLDER/replayed keeps
// those that have moved on since.
std::string own_profile(const std::string& folder, const std::string& name, bool replayed = false);
// The same, or one Run by its file's name.
std::vector<std::string> one_or_all(const std::string& path);
// Makes a folder of Runs, and clears what a killed writer left there.
void prepare_runs(const std::string& folder);
// FOLDER/PREFIX-DATE.json.gz: a Run without a scenario.
void add_to_runs(const std::string& folder, const std::string& prefix, const Run& run);
// FOLDER/PREFIX-SCENARIO-DATE.json.gz, and the scenario in FOLDER/scenarios.
void add_to_runs(const std::string& folder, const std::string& prefix, const Loaded& l,
                 const Run& run);

}  // namespace ddpsim::cli
