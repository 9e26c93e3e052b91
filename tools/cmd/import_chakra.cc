// ddpsim import chakra FILES: execution traces of MLCommons' Chakra as a program that predict,
// trace, explain and run play.
#include "tools/cmd/import_chakra.h"

#include <ostream>

#include <fmt/format.h>

#include "sim/io/chakra.h"
#include "sim/io/program_file.h"
#include "sim/report/text.h"
#include "sim/units/text.h"
#include "tools/cmd/flags.h"
#include "tools/cmd/question.h"

namespace ddpsim::cli {
namespace {

struct ImportChakraFlags {
  std::vector<std::string> files;
  std::string name;
  std::string groups;
  int ranks = 0;
  OutputFlags output;
};

// "model.0.et" is of the model.
std::string trace_name(const std::string& path) {
  std::string name = path.substr(path.find_last_of('/') + 1);
  for (const char* ending : {".gz", ".et"})
    if (name.ends_with(ending)) name.resize(name.size() - std::string(ending).size());
  std::size_t point = name.find_last_of('.');
  if (point != std::string::npos && point > 0 &&
      name.find_first_not_of("0123456789", point + 1) == std::string::npos)
    name.resize(point);
  return name.empty() ? "imported" : name;
}

// ASTRA-sim's comm-group-configuration: {"1": [0, 1], ...}.
std::map<std::string, std::vector<int>> read_groups(const std::string& file) {
  std::map<std::string, std::vector<int>> out;
  io::Json j = io::parse_json(io::read_file(file), file);
  if (!j.is_object())
    throw InputError{file, "expected groups and their ranks: {\"1\": [0, 1], \"2\": [2, 3]}"};
  for (const auto& [name, ranks] : j.items()) {
    bool good = ranks.is_array() && !ranks.empty();
    for (const io::Json& r : ranks) good = good && r.is_number_integer() && r >= 0 && r < (1 << 20);
    if (!good) throw InputError{file + "#/" + name, "expected a list of ranks, such as [0, 1]"};
    out[name] = ranks.get<std::vector<int>>();
  }
  return out;
}

void import_chakra(Terminal& t, const ImportChakraFlags& f) {
  io::ChakraSetting setting;
  setting.name = f.name.empty() ? trace_name(f.files.front()) : f.name;
  if (!f.groups.empty()) setting.groups = read_groups(f.groups);
  setting.ranks = f.ranks;
  std::vector<io::ChakraTrace> traces;
  for (const std::string& file : f.files) traces.push_back(io::read_chakra(file));
  if (f.ranks > 0 && f.files.size() > 1 && f.ranks != static_cast<int>(f.files.size()))
    throw InputError{"--ranks " + std::to_string(f.ranks),
                     fmt::format("{} traces are given: one of each rank, or one of any rank and "
                                 "--ranks",
                                 f.files.size())};
  std::vector<std::string> notes;
  io::OrderedJson program = io::program_of(traces, setting, notes);
  std::string text = program.dump(1) + "\n";
  // What is written can be read.
  bool cpu = program.contains("device") && program["device"] == "cpu";
  io::ProgramFile read = io::read_playable(io::parse_json(text, f.files.front()), f.files.front(),
                                           cpu ? DeviceKind::Cpu : DeviceKind::Gpu);
  const std::vector<Op>& ops = read.program.steady.ops;
  auto collectives = static_cast<std::size_t>(
      std::count_if(ops.begin(), ops.end(), [](const Op& op) { return is_collective(op.kind); }));
  if (read.ranks == 1 && traces.size() == 1 && f.ranks == 0 && collectives > 0)
    notes.push_back(
        "one trace is given: the job is taken for one of one rank (--ranks N says how "
        "many there are)");
  write_answer(t, f.output, text);
  for (const std::string& note : notes) t.err << "ddpsim: " << printable(note) << "\n";
  t.err << fmt::format("ddpsim: {} operations, {} of them collectives, of {} rank{}", ops.size(),
                       collectives, read.ranks, read.ranks == 1 ? "" : "s");
  if (!f.output.out.empty())
    t.err << "; next: ddpsim predict --program " << printable(f.output.out) << " --cluster NAME";
  t.err << "\n";
}

}  // namespace

void add_import_chakra(Command& import, Terminal& t) {
  auto f = std::make_shared<ImportChakraFlags>();
  Command* c = import.add_subcommand(
      "chakra", "Execution traces of MLCommons' Chakra (as ASTRA-sim reads them), as a program");
  c->add_option("traces", f->files, "one of each rank, or one of any rank (gzip or not)")
      ->required();
  c->add_option("--ranks", f->ranks, "of the job; default: as many as traces")->range(1, 1'048'576);
  c->add_option("--groups", f->groups,
                "ranks of each process group, {\"1\": [0, 1]}: ASTRA-sim's "
                "comm-group-configuration; needed where the trace does not say");
  c->add_option("--name", f->name, "of the model; default: that of the file");
  add_output_flags(*c, f->output, {"json"});
  c->callback([&t, f] { import_chakra(t, *f); });
}

}  // namespace ddpsim::cli
