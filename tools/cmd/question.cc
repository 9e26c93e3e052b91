#include "tools/cmd/question.h"

#include <algorithm>
#include <ostream>

#include <fmt/format.h>

#include "sim/door/documents.h"
#include "sim/door/loader.h"
#include "sim/io/write_page.h"
#include "sim/report/text.h"
#include "sim/systems/base/record.h"
#include "sim/units/number.h"
#include "sim/units/text.h"
#include "tools/cmd/flags.h"

namespace ddpsim::cli {
io::Home home_of(const Terminal& t) {
  return io::Home(t.home, t.executable, DDPSIM_BUILT_FROM);
}

Context context_of(const Terminal& t) {
  return {home_of(t),
          [&t](const std::string& sentence) { t.err << "ddpsim: " << sentence << "\n"; }};
}

double tolerance_of(const std::string& text) {
  constexpr double kDefault = 0.02;
  constexpr double kMost = 1e6;
  return text.empty() ? kDefault : parse_positive("--tolerance", text, kMost);
}

void add_question_flags(Command& c, QuestionFlags& f) {
  c.add_option("scenario", f.scenario,
               "scenario file (names workload, cluster, plan, ranks); flags override it");
  c.add_option("--workload", f.workload,
               "workload: a file, or the name of a shipped one (ddpsim list workloads)");
  c.add_option("--cluster", f.cluster,
               "cluster: a file, or the name of a shipped one (ddpsim list clusters)");
  c.add_option("--plan", f.plan,
               "plan: a file with knobs, or the name of a system (ddpsim list plans)");
  c.add_option("--profile", f.profiles,
               "profile: a file, or the name of a shipped one; default: the one that the cluster's "
               "devices name")
      ->allow_extra_args(false);
  c.add_option("--ranks", f.ranks, "number of ranks; default: all devices of the cluster");
  c.add_option("--gpus-per-host", f.gpus_per_host,
               "ranks of each host, which may have more GPUs; default: all of them");
  c.add_option("--set", f.sets,
               "PATH=VALUE, repeatable: bucket_cap_mb=50, cluster.hosts=16, workload.batch=64, "
               "slow_ranks.3=1.5, or a variable of NCCL: NCCL_ALGO=ring")
      ->allow_extra_args(false);
  c.add_option("--layers", f.layers,
               "measured Run of the real framework: its layer profile (times without "
               "communication, all ranks running) replaces the workload's times");
  c.add_option("--fidelity", f.fidelity,
               "collective or message (every message of every step is simulated); default: message "
               "for backend tcp up to a million messages, else collective");
}

void add_program_flags(Command& c, QuestionFlags& f) {
  c.add_option("--program", f.program,
               "schedule from a file (ddpsim.program/1), instead of a workload and a plan: what "
               "ddpsim show program --format json or tools/python/ddpsim_record_program.py wrote");
  c.add_option("--compute-scale", f.compute_scale,
               "with --program: its measured computation takes this many times as long (0.5: on a "
               "device twice as fast); default 1");
}

void add_measured_flags(Command& c, QuestionFlags& f) {
  c.add_option("--measured-step", f.measured_step,
               "what one GPU measured of this workload by itself (97ms): forward, backward and "
               "optimizer of all its micro-steps, without communication; computation is scaled to "
               "it");
  c.add_option("--samples-per-s", f.samples_per_s,
               "the same as a rate of that one GPU (1365), instead of --measured-step");
}

void add_step_flag(Command& c, std::string& step) {
  c.add_option("--step", step,
               "period (of steps that follow one another, in which ranks drift apart; the "
               "default), or common-start (every rank begins the step at one moment)")
      ->one_of({"period", "common-start"});
}

bool from_common_start(const std::string& step) {
  return step == "common-start";
}

void add_output_flags(Command& c, OutputFlags& f, const std::vector<std::string>& formats,
                      const std::string& which) {
  f.format = formats.front();
  std::string list;
  for (const auto& s : formats) list += (list.empty() ? "" : ", ") + s;
  c.add_option("--format", f.format, which.empty() ? list : which)
      ->check([formats, list](const std::string& s) {
        return std::find(formats.begin(), formats.end(), s) != formats.end()
                   ? std::string()
                   : "\"" + s + "\" is not a format of this command; known are " + list;
      });
  c.add_option("--out", f.out, "write the answer to this file instead of stdout");
}

void add_html_flag(Command& c, OutputFlags& f) {
  c.add_option("--html", f.html,
               "also write the answer as a page: one HTML file that needs no network");
}

void check_html(const OutputFlags& flags) {
  if (flags.html.empty()) return;
  io::require_page();
  io::check_place(flags.html);
}

void write_output(Terminal& t, const std::string& path, const std::string& text) {
  if (io::was_read(path))
    throw InputError{path, "cannot be written: the answer is made from this file; name another"};
  t.files->add(path, text);
}

void write_html(Terminal& t, const OutputFlags& flags,
                const std::function<io::OrderedJson()>& data) {
  if (flags.html.empty()) return;
  write_output(t, flags.html, io::write_page(data()));
  t.written += "ddpsim: wrote " + printable(flags.html) + "\n";
}

void write_out(Terminal& t, const std::string& text) {
  if (t.out_is_closed) throw InputError{"stdout", "is closed; name a file with --out"};
  t.out << text << std::flush;
  if (!t.out) throw InputError{"stdout", "cannot be written (is the disk full?)"};
}

void write_answer(Terminal& t, const OutputFlags& flags, const std::string& answer) {
  std::string text = flags.format == "json" ? printable_json(answer) : printable_page(answer);
  constexpr int kNarrowest = 60;  // what is narrower is no page
  if (flags.format == "table") {
    const bool narrow = flags.out.empty() && t.columns >= kNarrowest;
    text = report::wrapped(text, 0, narrow ? static_cast<std::size_t>(t.columns) : report::kWidth,
                           t.asked_for_columns);
  }
  if (!flags.out.empty()) return write_output(t, flags.out, text);
  write_out(t, text);
}

}  // namespace ddpsim::cli
