// What commands that execute on hosts of this machine share: run and calibrate.
#pragma once

#include <string>

#include "tools/cmd/question.h"

namespace ddpsim::cli {

struct ExecutedFlags {
  QuestionFlags question;
  OutputFlags output;
  std::string backend = "tcp";
  std::string runs;
  std::string revision;
  bool loopback = false;
};
void add_executed_flags(CLI::App& command, ExecutedFlags& flags, const std::string& backend_help);

// Makes a folder of Runs, and clears what a killed writer left there.
void prepare_runs(const std::string& folder);
// FOLDER/PREFIX-SCENARIO-DATE.json.gz, and the scenario in FOLDER/scenarios.
void add_to_runs(const std::string& folder, const std::string& prefix, const Loaded& l, const Run& run);

}  // namespace ddpsim::cli
