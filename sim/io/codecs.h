// JSON <-> nouns. Reading is strict and validates; writing is byte-stable.
#pragma once

#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "sim/analysis/compare_programs.h"
#include "sim/io/json_reader.h"
#include "sim/model/cluster.h"
#include "sim/model/plan.h"
#include "sim/model/profile.h"
#include "sim/model/run.h"

namespace ddpsim::io {

using OrderedJson = nlohmann::ordered_json;

Workload read_workload(const Json& j, const std::string& file);
// A workload's document with numbers at its sequence length in place of what depends on it, and
// without that length. REQUIRES: read_workload() reads it.
Json at_its_length(Json document);
Cluster read_cluster(const Json& j, const std::string& file);
Profile read_profile(const Json& j, const std::string& file);

// What a scenario file names besides its plan; empty where it does not.
struct ScenarioFile {
  std::string workload;
  std::string cluster;
  std::string profile;
  Json cluster_document;                  // a cluster given in the scenario itself; null if named
  Scenario scenario;                      // other_jobs' workloads are named, not loaded
  std::optional<Duration> measured_step;  // of one device by itself (predict::scaled_to)
};
ScenarioFile read_scenario(const Json& j, const std::string& file);

// `residuals`: rows for people, kept with the fit.
OrderedJson write_profile(const Profile& p, const std::vector<OrderedJson>& residuals);
OrderedJson write_run(const Run& run);
// Measured or predicted. Span::kind comes from the operation's name; times are relative to the
// start of the span's step (spans_from = 0).
Run read_run(const Json& j, const std::string& file);
// ddpsim.program/1, as lowered from the Workload for a job of `ranks` ranks.
OrderedJson write_program(const Program& program, const Workload& workload, int ranks);
// As `ddpsim compare` reads it; read_playable (program_file.h) reads one to be played.
analysis::ListedProgram read_program(const Json& j, const std::string& file);

// Applies one `--set PATH=VALUE` to the document that PATH names. PATH: plan.x, cluster.x,
// workload.x, profile.x, ranks, slow_ranks.3, or a plan knob.
struct Documents {
  Json scenario;  // whole scenario document
  Json workload;
  Json cluster;
  Json profile;
};
enum class Target { Scenario, Workload, Cluster, Profile };
struct Setting {
  Target target;
  std::vector<std::string> path;
  Json value;
  std::string text;  // as given, for errors
};
Setting parse_setting(const std::string& text);
// Of a --set NAME=VALUE: meant is an environment variable, perhaps misspelt. Variables are in
// capitals, and no knob is.
bool names_variable(const std::string& name);
void apply(const Setting& s, Json& document);

}  // namespace ddpsim::io
