// The flags that every command about a question shares, and its answer's output.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "sim/door/question.h"
#include "tools/cmd/command.h"

namespace ddpsim::cli {

using namespace door;  // commands stand on it
using QuestionFlags = QuestionText;

// Shipped files as the environment and the place of the program say, and notes on stderr.
io::Home home_of(const Terminal& t);
Context context_of(const Terminal& t);
inline Loaded load(const Terminal& t, const QuestionFlags& flags) {
  return door::load(context_of(t), flags);
}
inline Hardware load_hardware(const Terminal& t, const QuestionFlags& flags) {
  return door::load_hardware(context_of(t), flags);
}
inline Cluster load_cluster(const Terminal& t, const std::string& name,
                            const std::vector<std::string>& sets) {
  return door::load_cluster(home_of(t), name, sets);
}
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

// --program and --compute-scale, of commands that can play one.
void add_program_flags(Command& c, QuestionFlags& flags);
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

}  // namespace ddpsim::cli
