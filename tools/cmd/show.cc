// ddpsim show: one noun, as ddpsim understands it. `program` is what lower() made of a workload and
// a plan.
#include <type_traits>

#include <fmt/format.h>

#include "sim/door/given_program.h"
#include "sim/io/extends.h"
#include "sim/report/run_text.h"
#include "sim/report/text.h"
#include "sim/systems/base/settings.h"
#include "tools/cmd/fields.h"
#include "tools/cmd/flags.h"
#include "tools/cmd/question.h"

namespace ddpsim::cli {
namespace {

struct ShowFlags {
  std::string what;
  QuestionFlags question;
  OutputFlags output;
  bool table = false;  // asked for by name; what is a JSON file is shown as one otherwise
};

// A file's own text is not broken to a terminal's width.
void write_file_text(Terminal& t, const ShowFlags& f, const std::string& text) {
  OutputFlags as_it_is = f.output;
  as_it_is.format = "json";
  write_answer(t, as_it_is, text);
}

std::string workload_text(const Workload& w) {
  bool captured = w.basis == Basis::Captured;
  auto ms = [](Duration d) { return fmt::format("{:.3f} ms", static_cast<double>(d.ps) / 1e9); };
  auto row = [](const char* what, const std::string& is) {
    return fmt::format("{:<12}{}\n", what, is);
  };
  std::string out = row("workload", w.name) + row("model", w.model);
  out += row("basis",
             captured ? "captured on " + w.device_name : "described: layers, FLOPs and bytes");
  out += row("batch", std::to_string(w.batch) + " per rank, " + name_of(w.precision));
  if (w.sequence > 0)
    out += row("sequence", std::to_string(w.sequence) +
                               (w.positions > 0 ? fmt::format(" of at most {} tokens", w.positions)
                                                : std::string(" tokens")));
  out += row("parameters",
             fmt::format("{} tensors, {}; {} of them in the order of arrival", w.tensors.size(),
                         to_string(w.gradient_bytes()), w.arrival.size()));
  if (!w.frozen.empty())
    out += row("frozen", fmt::format("{} tensors, {}; held, never reduced nor updated",
                                     w.frozen.size(), to_string(w.frozen_bytes())));
  out += row("buffers", std::to_string(w.buffers.size()));
  if (!captured) return out + row("layers", std::to_string(w.layers.size()));
  return out + row("step", "forward " + ms(w.times.forward) + ", backward " + ms(w.times.backward) +
                               ", optimizer " + ms(w.times.optimizer));
}

constexpr std::size_t kOpColumn = 12;

std::string program_table(const Program& p, bool csv) {
  std::string out = csv ? "step,lane,op,bytes,tensors,waits_for\n" : "";
  auto add = [&](const StepProgram& s) {
    if (!csv)
      out += fmt::format("{} step\n  {:<9} {:<56} {:>12} {:>8}  waits for\n", name_of(s.kind),
                         "lane", "op", "bytes", "tensors");
    for (std::uint32_t i = 0; i < s.ops.size(); ++i) {
      std::string waits;
      for (std::uint32_t d : deps_of(s, i)) waits += (waits.empty() ? "" : " ") + name_of(p, s, d);
      std::string name = name_of(p, s, i);
      std::size_t tensors = tensors_of(p, s, i).size();
      if (csv)
        out +=
            fmt::format("{},{},{},{},{},{}\n", name_of(s.kind), name_of(s.ops[i].lane, p.streams),
                        report::csv_field(name), s.ops[i].bytes, tensors, report::csv_field(waits));
      else
        out += report::wrapped(
            fmt::format("  {:<9} {:<56} {:>12} {:>8}  {}\n", name_of(s.ops[i].lane, p.streams),
                        name, s.ops[i].bytes, tensors, waits),
            kOpColumn + 2);
    }
  };
  for (const StepProgram& s : p.warmup) add(s);
  add(p.steady);
  return out;
}

std::string buckets_text(const Program& p, const std::string& format) {
  io::OrderedJson j;
  j["steps"] = io::OrderedJson::array();
  std::string out = format == "csv"
                        ? "step,bucket,tensors,bytes,wire_bytes,first,last\n"
                        : fmt::format("{:<8} {:>6} {:>7} {:>12} {:>12}  {}\n", "step", "bucket",
                                      "tensors", "bytes", "wire bytes", "first ... last tensor");
  auto add = [&](const StepProgram& s) {
    io::OrderedJson step{{"kind", name_of(s.kind)}, {"buckets", io::OrderedJson::array()}};
    for (std::size_t k = 0; k < s.buckets.size(); ++k) {
      const Bucket& b = s.buckets[k];
      const std::string& first = p.tensor_names[b.tensors.front()];
      const std::string& last = p.tensor_names[b.tensors.back()];
      if (format == "csv")
        out += fmt::format("{},{},{},{},{},{},{}\n", name_of(s.kind), k, b.tensors.size(),
                           b.bytes.count, b.wire_bytes.count, report::csv_field(first),
                           report::csv_field(last));
      else
        out += fmt::format("{:<8} {:>6} {:>7} {:>12} {:>12}  {} ... {}\n", name_of(s.kind), k,
                           b.tensors.size(), b.bytes.count, b.wire_bytes.count, first, last);
      io::OrderedJson names = io::OrderedJson::array();
      for (TensorIndex t : b.tensors) names.push_back(p.tensor_names[t]);
      step["buckets"].push_back({{"name", fmt::format("bucket.{}", k)},
                                 {"tensors", names},
                                 {"bytes", b.bytes.count},
                                 {"wire_bytes", b.wire_bytes.count}});
    }
    j["steps"].push_back(std::move(step));
  };
  for (const StepProgram& s : p.warmup) add(s);
  add(p.steady);
  return format == "json" ? j.dump(1) + "\n" : out;
}

// The shipped or given file itself, once it has been found valid; one that extends another, whole.
template <class Noun>
void show_file(Terminal& t, const ShowFlags& f, const char* folder, const std::string& flag,
               Noun (*read)(const io::Json&, const std::string&)) {
  const std::string& name = !flag.empty() ? flag : f.question.scenario;
  if (name.empty()) throw InputError{"show " + f.what, "name it: ddpsim show " + f.what + " NAME"};
  if (f.output.format == "csv")
    throw InputError{"--format csv",
                     "a " + f.what + " is shown as its JSON file; leave --format out"};
  if (!f.question.sets.empty())
    throw InputError{"--set " + f.question.sets[0],
                     "show " + f.what + " shows the file as it is; leave --set out"};
  const io::Home home = home_of(t);
  const std::string path = home.find(folder, name, f.what.c_str());
  const io::Opened opened = io::open_json(home, path, path);
  Noun noun = io::at_its_file(opened.layers, [&] { return read(opened.document, path); });
  if constexpr (std::is_same_v<Noun, Workload>)
    if (f.table) return write_answer(t, f.output, workload_text(noun));
  write_file_text(t, f,
                  opened.layers.empty() ? io::read_file(path) : opened.document.dump(1) + "\n");
}

// A Run, measured or predicted: as it is (json), or what it is of and its samples.
void show_run(Terminal& t, const ShowFlags& f) {
  const std::string& path = f.question.scenario;
  if (path.empty()) throw InputError{"show run", "name its file: ddpsim show run FILE"};
  if (!f.question.sets.empty())
    throw InputError{"--set " + f.question.sets[0],
                     "show run shows the file as it is; leave --set out"};
  std::string text = io::read_file(path);
  Run run = io::read_run(io::parse_json(text, path), path);
  if (f.output.format == "json") return write_file_text(t, f, text);
  if (f.output.format == "csv" && run.samples.empty())
    throw InputError{"--format csv", "the Run has no samples; choose table or json"};
  write_answer(t, f.output,
               f.output.format == "csv" ? report::samples_csv(run) : report::run_page(run));
}

// The knobs of a system, or of each: what --set takes.
std::string plan_text(const std::string& name, const std::string& format) {
  std::string out = format == "csv" ? "system,knob,unit,default,values,searched,help\n" : "";
  io::OrderedJson j = io::OrderedJson::array();
  bool found = false;
  for (const systems::SystemRecord& s : systems::all_systems()) {
    if (!name.empty() && name != s.name()) continue;
    found = true;
    if (format == "table")
      out += fmt::format("{}{} (--plan {})\n", out.empty() ? "" : "\n", s.title, s.name());
    for (const systems::KnobRecord& k : s.knobs) {
      Plan plan;
      systems::Field field = k.field(plan);
      std::string values;
      if (auto* c = std::get_if<systems::Choice>(&field))
        values = fmt::format("{}", fmt::join(c->names, "|"));
      else if (std::holds_alternative<bool*>(field) ||
               std::holds_alternative<std::optional<bool>*>(field))
        values = "true|false";
      else if (std::holds_alternative<systems::Reshard*>(field))
        values = "true|false|ranks";
      else
        values = k.unit;
      if (format == "csv")
        out += fmt::format("{},{},{},{},{},{},{}\n", s.name(), k.name, k.unit,
                           report::csv_field(k.initially), values, k.searched ? "yes" : "no",
                           report::csv_field(k.help));
      else if (format == "json")
        j.push_back({{"system", s.name()},
                     {"knob", k.name},
                     {"unit", k.unit},
                     {"default", k.initially},
                     {"values", values},
                     {"searched", k.searched},
                     {"help", k.help}});
      else
        out +=
            report::wrapped(fmt::format("  {:<24} {}; {} (default {}){}\n", k.name, values, k.help,
                                        k.initially, k.searched ? "; ddpsim tune tries it" : ""),
                            27);
    }
  }
  if (!found) {
    std::vector<std::string> names;
    for (const systems::SystemRecord& s : systems::all_systems()) names.emplace_back(s.name());
    std::string hint = io::nearest(name, names);
    throw InputError{"show plan " + name,
                     hint.empty() ? fmt::format("expected one of {}", fmt::join(names, ", "))
                                  : "unknown (did you mean \"" + hint + "\"?)"};
  }
  return format == "json" ? j.dump(1) + "\n" : out;
}

void show(Terminal& t, const ShowFlags& f) {
  const std::string& what = f.what;
  if (what == "plan") {
    if (!f.question.sets.empty())
      throw InputError{"--set " + f.question.sets[0],
                       "show plan lists what may be set; leave --set out"};
    return write_answer(t, f.output, plan_text(f.question.scenario, f.output.format));
  }
  if (what == "fields") {
    if (!f.question.sets.empty())
      throw InputError{"--set " + f.question.sets[0],
                       "show fields lists what may be set; leave --set out"};
    return write_answer(t, f.output, fields_text(f.question.scenario, f.output.format));
  }
  if (what == "program" || what == "buckets") {
    Loaded l = load(t, f.question);
    Program p = lowered_program(l);
    if (what == "buckets") return write_answer(t, f.output, buckets_text(p, f.output.format));
    std::string text = f.output.format == "json"
                           ? io::write_program(p, l.workload, l.scenario.ranks).dump(1) + "\n"
                           : program_table(p, f.output.format == "csv");
    return write_answer(t, f.output, text);
  }
  if (what == "scenario") {
    if (f.output.format == "csv")
      throw InputError{"--format csv", "a scenario is shown as its JSON file; leave --format out"};
    Loaded l = load(t, f.question);
    return write_file_text(
        t, f,
        f.output.format == "json"
            ? io::OrderedJson{{"hash", l.scenario_hash}, {"key", l.key}}.dump(1) + "\n"
            : l.document.dump(1) + "\n");
  }
  if (what == "workload")
    return show_file(t, f, "workloads", f.question.workload, io::read_workload);
  if (what == "cluster") return show_file(t, f, "topologies", f.question.cluster, io::read_cluster);
  if (what == "profile")
    return show_file(t, f, "calib/profiles",
                     f.question.profiles.empty() ? "" : f.question.profiles[0], io::read_profile);
  if (what == "run") return show_run(t, f);
  std::string hint = io::nearest(what, {"program", "buckets", "plan", "fields", "scenario",
                                        "workload", "cluster", "profile", "run"});
  throw InputError{
      "show " + what,
      hint.empty()
          ? "expected program, buckets, plan, fields, scenario, workload, cluster, profile or run"
          : "unknown (did you mean \"" + hint + "\"?)"};
}

}  // namespace

void add_show(Command& app, Terminal& t) {
  auto flags = std::make_shared<ShowFlags>();
  Command* c = app.add_subcommand(
      "show",
      "Show a workload, cluster, profile or Run, the program and buckets of a scenario, or fields");
  c->add_option(
       "what", flags->what,
       "program, buckets (of a scenario), plan (the knobs of each system, or of NAME), fields (of "
       "all files, or those that begin with NAME), scenario (in one file; json: its hash), "
       "workload, cluster or profile (by NAME), run (of FILE)")
      ->required();
  add_question_flags(*c, flags->question);
  add_output_flags(*c, flags->output, {"table", "csv", "json"});
  c->callback([&t, flags, c] {
    flags->table = flags->output.format == "table" && c->get_option("--format")->count() > 0;
    show(t, *flags);
  });
}

}  // namespace ddpsim::cli
