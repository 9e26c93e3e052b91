// ddpsim show: one noun, as ddpsim understands it. `program` is what lower() made of a workload and a plan.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "sim/predict/roofline.h"
#include "sim/report/text.h"
#include "sim/strategy/lower.h"
#include "tools/cmd/question.h"

namespace ddpsim::cli {
namespace {

struct Flags {
  std::string what;
  QuestionFlags question;
  OutputFlags output;
};

Program program_of(const Loaded& l) {
  Workload w = l.workload;
  w.times = predict::step_times(w, l.profile, Level::Mid);
  w.device = l.profile.kind;
  return strategy::lower(w, l.scenario.plan);
}

std::string program_table(const Program& p, bool csv) {
  std::string out = csv ? "step,lane,op,bytes,tensors,waits_for\n" : "";
  auto add = [&](const StepProgram& s) {
    if (!csv) out += fmt::format("{} step\n  {:<9} {:<56} {:>12} {:>8}  waits for\n", name_of(s.kind), "lane", "op", "bytes", "tensors");
    for (std::uint32_t i = 0; i < s.ops.size(); ++i) {
      std::string waits;
      for (std::uint32_t d : deps_of(s, i)) waits += (waits.empty() ? "" : " ") + name_of(p, s, d);
      std::string name = name_of(p, s, i);
      std::size_t tensors = tensors_of(p, s, i).size();
      if (csv) out += fmt::format("{},{},{},{},{},{}\n", name_of(s.kind), name_of(s.ops[i].lane), report::csv_field(name), s.ops[i].bytes, tensors, report::csv_field(waits));
      else out += fmt::format("  {:<9} {:<56} {:>12} {:>8}  {}\n", name_of(s.ops[i].lane), name, s.ops[i].bytes, tensors, waits);
    }
  };
  for (const StepProgram& s : p.warmup) add(s);
  add(p.steady);
  return out;
}

std::string buckets_table(const Program& p) {
  std::string out = "step,bucket,tensors,bytes,wire_bytes,first,last\n";
  auto add = [&](const StepProgram& s) {
    for (std::size_t k = 0; k < s.buckets.size(); ++k) {
      const Bucket& b = s.buckets[k];
      out += fmt::format("{},{},{},{},{},{},{}\n", name_of(s.kind), k, b.tensors.size(), b.bytes.count, b.wire_bytes.count,
                         report::csv_field(p.tensor_names[b.tensors.front()]), report::csv_field(p.tensor_names[b.tensors.back()]));
    }
  };
  for (const StepProgram& s : p.warmup) add(s);
  add(p.steady);
  return out;
}

// The shipped or given file itself.
std::string file_text(const Terminal& t, const char* folder, const std::string& name, const char* what) {
  return io::read_file(home_of(t).find(folder, name, what));
}

void show(Terminal& t, const Flags& f) {
  const std::string& what = f.what;
  if (what == "program" || what == "buckets") {
    Program p = program_of(load(t, f.question));
    if (what == "buckets") return write_answer(t, f.output, buckets_table(p));
    std::string text = f.output.format == "json" ? io::write_program(p).dump(1) + "\n" : program_table(p, f.output.format == "csv");
    return write_answer(t, f.output, text);
  }
  auto named = [&](const std::string& flag) {
    const std::string& name = !flag.empty() ? flag : f.question.scenario;
    if (name.empty()) throw InputError{"show " + what, "name it: ddpsim show " + what + " NAME"};
    return name;
  };
  if (what == "workload") return write_answer(t, f.output, file_text(t, "workloads", named(f.question.workload), "workload"));
  if (what == "cluster") return write_answer(t, f.output, file_text(t, "topologies", named(f.question.cluster), "cluster"));
  if (what == "profile") return write_answer(t, f.output, file_text(t, "calib/profiles", named(f.question.profiles.empty() ? "" : f.question.profiles[0]), "profile"));
  std::string hint = io::nearest(what, {"program", "buckets", "workload", "cluster", "profile"});
  throw InputError{"show " + what, hint.empty() ? "expected program, buckets, workload, cluster or profile" : "unknown (did you mean \"" + hint + "\"?)"};
}

}  // namespace

void add_show(CLI::App& app, Terminal& t) {
  auto flags = std::make_shared<Flags>();
  CLI::App* c = app.add_subcommand("show", "Show a workload, cluster or profile, or the program and buckets of a scenario");
  c->add_option("what", flags->what, "program, buckets (of a scenario), workload, cluster or profile (by NAME)")->required();
  add_question_flags(*c, flags->question);
  add_output_flags(*c, flags->output, {"table", "csv", "json"});
  c->callback([&t, flags] { show(t, *flags); });
}

}  // namespace ddpsim::cli
