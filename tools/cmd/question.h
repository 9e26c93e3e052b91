// The flags that every command about a scenario shares, and what they load.
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
#include "tools/cmd/command.h"

namespace ddpsim::cli {

struct QuestionFlags {
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
// The value of --ranks. Throws InputError.
int parse_ranks(const std::string& text);
// The value of --gpus-per-host, of this cluster's hosts. Throws InputError.
int parse_gpus_per_host(const std::string& text, const Cluster& cluster);
// The value of a flag: a positive number, at most `most`. Throws InputError.
double parse_positive(const char* flag, const std::string& text, double most);
// The value of --tolerance, a share of the step; "" = its default, 0.02. Throws InputError.
double tolerance_of(const std::string& text);
// --step: which step is told. True: one that all ranks begin together (predict::Options).
void add_step_flag(Command& c, std::string& step);
bool from_common_start(const std::string& step);
void add_question_flags(Command& command, QuestionFlags& flags);

// --measured-step, --samples-per-s: of commands that predict.
void add_measured_flags(Command& command, QuestionFlags& flags);

struct OutputFlags {
  std::string format;
  std::string out;
  std::string html;
};
// `formats`: allowed ones, the first is the default. `which`: for --help, where not every form of
// the command has all of them.
void add_output_flags(Command& command, OutputFlags& flags, const std::vector<std::string>& formats,
                      const std::string& which = "");
// --html FILE, of commands that have a page. Beside the answer, not instead of it.
void add_html_flag(Command& command, OutputFlags& flags);
// Throws InputError if a page is asked for and this build has none: to be called before the work.
// That no file is written over one that is read, run() has checked of those that flags name.
void check_html(const OutputFlags& flags);
// Writes the page, if one is asked for. `data`: as in docs/formats.md, page; called only then.
void write_html(Terminal& t, const OutputFlags& flags,
                const std::function<io::OrderedJson()>& data);
// An answer's file, whole or not at all. Throws InputError if it is one that the answer was made
// from.
void write_output(Terminal& t, const std::string& path, const std::string& text);
// To --out or to stdout.
void write_answer(Terminal& t, const OutputFlags& flags, const std::string& text);

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
// "batch 32 per rank, sequence 128"
std::string batch_text(const Workload& w);
// "fp32", "bf16 (autocast)", "bf16 (param_dtype)": what the step computes in, and who casts.
std::string precision_text(const Workload& w, const Plan& plan);
// ", 6.50 GiB of 3.49 billion frozen parameters"; nothing where there are none.
std::string frozen_text(const Workload& w);
// ", GradScaler, clipped": what the workload's loop does beside the optimizer.
std::string loop_text(const Workload& w);
// "NCCL 2.26, NCCL_ALGO=allreduce:tree": what the plan sets of NCCL; "" = nothing. `without`: keys
// and variables that are left out.
std::string nccl_text(const Plan& plan, const std::vector<std::string>& without = {});
// Of a command that predicts steps without the scenario's jitter; "" = it has none.
std::string jitter_note(const Scenario& s);

// A cluster and its devices' profile, without a job: what questions about one collective need.
struct Hardware {
  Cluster cluster;
  Profile profile;
  std::string cluster_file;
};
// Of --cluster, --profile and the --set lines for either; other --set lines are refused. Throws
// InputError.
Hardware load_hardware(const Terminal& t, const QuestionFlags& flags);
// Why a Run's layer profile is not of this workload; "" = it is.
std::string layers_problem(const Workload& w, const Run& run);
// The workload as a measured Run found it on its ranks: the times and the arrival of its layer
// profile. REQUIRES: run.layers, of the same model.
Workload as_recorded(const Workload& w, const Run& run);
// For a page: the documents of a question. What a file says of itself in prose is of the file, not
// of what `sets` (--set) made of it, and says so.
io::OrderedJson page_documents(const Loaded& l, const std::vector<std::string>& sets);
// Flags override the scenario file. Throws InputError.
Loaded load(const Terminal& t, const QuestionFlags& flags);
io::Home home_of(const Terminal& t);
// NCCL's variables that ddpsim reads, as text; and what is wrong with a name that is none of them,
// with the nearest one; "" = it is one.
std::string known_nccl_variables();
std::string nccl_variable_problem(const std::string& name);
// A cluster by name or path, with `--set cluster.PATH=VALUE` applied. Throws InputError.
Cluster load_cluster(const Terminal& t, const std::string& name,
                     const std::vector<std::string>& sets);
// The profile that a cluster's devices name: a measured one of that hardware before the datasheet.
// Throws InputError.
Profile load_profile(const io::Home& home, const std::string& named);

}  // namespace ddpsim::cli
