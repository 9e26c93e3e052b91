// A question in words, as flags and files say it, and what it loads: the nouns that are predicted.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/io/codecs.h"
#include "sim/io/files.h"
#include "sim/predict/predict.h"

namespace ddpsim::door {

struct QuestionText {
  std::string scenario;
  std::string workload;
  std::string cluster;
  std::string plan;
  std::vector<std::string> profiles;
  std::string ranks;
  std::string gpus_per_host;  // empty: all of a host's devices
  std::string
      layers;  // measured Run whose layer profile replaces the workload's times; empty: its own
  std::string measured_step;  // of one device by itself; empty: the scenario's, if it has one
  std::string samples_per_s;  // the same as a rate
  std::string fidelity;       // empty: by the backend and the number of messages
  std::vector<std::string> sets;
  std::string program;                // --program: in place of scenario, workload and plan
  std::string compute_scale;          // of a program; empty: 1
  std::optional<io::Json> described;  // a document in place of the file that `workload` names
};
struct GivenProgram;  // given_program.h

// Where shipped files are, and who is told, in one sentence, what was taken in place of what was
// not said. `note` may be called by several threads.
struct Context {
  io::Home home;
  std::function<void(const std::string&)> note;
};

// The value of --ranks. Throws InputError.
int parse_ranks(const std::string& text);
// The value of --gpus-per-host, of this cluster's hosts. Throws InputError.
int parse_gpus_per_host(const std::string& text, const Cluster& cluster);
// The value of a flag: a positive number, at most `most`. Throws InputError.
double parse_positive(const char* flag, const std::string& text, double most);
struct Loaded {
  Workload workload;
  Cluster cluster;
  Profile profile;
  Scenario scenario;
  std::string key;            // readable, with a hash of all inputs
  std::string workload_file;  // where it was read
  io::Json document;  // scenario file that asks the same question: cluster and plan in it, workload
                      // by name, no profile
  // The same for a folder of Runs: a workload that is not a shipped one as it is, is the file of
  // `beside` that holds it, named by its contents.
  io::Json stored;
  std::map<std::string, std::string> beside;  // name, text
  io::Documents documents;                    // as loaded, with --set applied
  std::string scenario_hash;                  // of `stored`
  std::string workload_hash;                  // of the workload's document
  std::shared_ptr<const topology::Fabric> fabric;
  std::shared_ptr<const GivenProgram> program;  // --program; null: a workload and a plan
  predict::Options
      options;  // `known`: lives as long as the fabric that load() made, and is of that one
  predict::Question question() const { return {workload, *fabric, profile, scenario}; }
};
// A cluster and its devices' profile, without a job: what questions about one collective need.
struct Hardware {
  Cluster cluster;
  Profile profile;
  std::string cluster_file;
};
// Of --cluster, --profile and the --set lines for either; other --set lines are refused. Throws
// InputError.
Hardware load_hardware(const Context& c, const QuestionText& text);
// Why a Run's layer profile is not of this workload; "" = it is.
std::string layers_problem(const Workload& w, const Run& run);
// The workload as a measured Run found it on its ranks: the times and the arrival of its layer
// profile. REQUIRES: run.layers, of the same model.
Workload as_recorded(const Workload& w, const Run& run);
// For a page: the documents of a question. What a file says of itself in prose is of the file, not
// of what `sets` (--set) made of it, and says so.
io::OrderedJson page_documents(const Loaded& l, const std::vector<std::string>& sets);
// Flags override the scenario file. Throws InputError.
Loaded load(const Context& c, const QuestionText& text);
// NCCL's variables that ddpsim reads, as text; and what is wrong with a name that is none of them,
// with the nearest one; "" = it is one.
std::string known_nccl_variables();
std::string nccl_variable_problem(const std::string& name);
// A cluster by name or path, with `--set cluster.PATH=VALUE` applied. Throws InputError.
Cluster load_cluster(const io::Home& home, const std::string& name,
                     const std::vector<std::string>& sets);
// The profile that a cluster's devices name: a measured one of that hardware before the datasheet.
// Throws InputError.
Profile load_profile(const io::Home& home, const std::string& named);

}  // namespace ddpsim::door
