// ddpsim export chakra: the steady step of a scenario as execution traces of MLCommons' Chakra, a
// file for each rank, as ASTRA-sim reads them.
#include "tools/cmd/export_chakra.h"

#include <ostream>

#include <fmt/format.h>

#include "sim/cost/roofline.h"
#include "sim/door/given_program.h"
#include "sim/io/chakra.h"
#include "sim/report/text.h"
#include "sim/units/text.h"
#include "tools/cmd/flags.h"
#include "tools/cmd/question.h"

namespace ddpsim::cli {
namespace {

constexpr std::int64_t kMostBytes = std::int64_t{8} << 30;

struct ExportChakraFlags {
  QuestionFlags question;
  std::string out;
  std::string name;
  int first = 0;
};

// Each operation's by itself; of a collective as it is predicted.
std::vector<io::ChakraTime> times_of(const Loaded& l, const Program& p) {
  predict::Prediction played = predict::predict(l.question(), l.options);
  std::map<std::string, const Span*> spans;
  TimePoint first{INT64_MAX};
  for (const Span& s : played.run.spans) {
    if (s.actor != played.run.spans.front().actor) continue;
    spans.try_emplace(s.op, &s);
    first = std::min(first, s.begin);
  }
  std::vector<io::ChakraTime> out;
  const StepProgram& steady = p.steady;
  for (std::uint32_t i = 0; i < steady.ops.size(); ++i) {
    const Op& op = steady.ops[i];
    auto at = spans.find(name_of(p, steady, i));
    io::ChakraTime time;
    if (at != spans.end()) time.begin = TimePoint{} + (at->second->begin - first);
    if (!is_collective(op.kind))
      time.takes = predict::price(op, steady, p, l.profile, Level::Mid);
    else if (at != spans.end())
      time.takes = at->second->end - at->second->begin;
    out.push_back(time);
  }
  return out;
}

void export_chakra(Terminal& t, const ExportChakraFlags& f) {
  if (f.out.empty()) throw InputError{"--out", "names the folder for the traces"};
  Loaded l = load(t, f.question);
  Program p = lowered_program(l);
  std::vector<io::ChakraTime> times = times_of(l, p);
  int ranks = l.scenario.ranks;
  io::ChakraWriter writer(p, l.workload, ranks, times);
  int files = f.first > 0 ? std::min(f.first, ranks) : ranks;
  std::string name = !f.name.empty() ? f.name : l.workload.name;
  for (char& c : name)
    if (c == '/' || c == ' ') c = '-';
  std::string one = io::write_chakra(writer.of(0));
  if (std::ssize(one) > kMostBytes / files)
    throw InputError{"--out " + f.out,
                     fmt::format("{} traces of {} bytes are more than 8 GiB; --first N writes "
                                 "those of N ranks",
                                 files, one.size())};
  io::make_folder(f.out);
  bool groups = !p.groups.empty();
  for (int rank = 0; rank < files; ++rank)
    t.files->add(fmt::format("{}/{}.{}.et", f.out, name, rank),
                 groups && rank > 0 ? io::write_chakra(writer.of(rank)) : one);
  if (groups) t.files->add(f.out + "/comm_groups.json", writer.groups().dump(1) + "\n");
  t.out << fmt::format("{}/{}.RANK.et: {} nodes each, traces of {} of {} ranks\n", printable(f.out),
                       printable(name), p.steady.ops.size(), files, ranks);
  if (groups) t.out << printable(f.out) << "/comm_groups.json: the groups of ranks\n";
  t.err << fmt::format(
      "ddpsim: for ASTRA-sim: --workload-configuration={0}/{1} --comm-group-configuration={2} "
      "(roofline-enabled 0: durations are in the nodes); back: ddpsim import chakra {0}/{1}.0.et\n",
      printable(f.out), printable(name), groups ? printable(f.out) + "/comm_groups.json" : "empty");
}

}  // namespace

void add_export_chakra(Command& group, Terminal& t) {
  auto f = std::make_shared<ExportChakraFlags>();
  Command* c = group.add_subcommand(
      "chakra",
      "A steady step as execution traces of MLCommons' Chakra, one of each rank, as ASTRA-sim "
      "reads them");
  add_question_flags(*c, f->question);
  add_program_flags(*c, f->question);
  c->add_option("--out", f->out, "folder for NAME.RANK.et and comm_groups.json");
  c->add_option("--name", f->name, "NAME; default: that of the workload");
  c->add_option("--first", f->first, "only of the first N ranks")->range(1, 1'048'576);
  c->callback([&t, f] { export_chakra(t, *f); });
}

}  // namespace ddpsim::cli
