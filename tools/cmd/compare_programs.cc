#include "tools/cmd/compare_programs.h"

#include <ostream>

#include <fmt/format.h>

#include "sim/analysis/compare_programs.h"
#include "sim/io/codecs.h"

namespace ddpsim::cli {
namespace {

using analysis::ProgramComparison;

std::string summary_of(const ProgramComparison& c) {
  return fmt::format("{} of {} collectives of {} step{} are equal", c.equal, c.collectives, c.steps,
                     c.steps == 1 ? "" : "s");
}

std::string table_of(const ProgramComparison& c) {
  std::string out = summary_of(c) + "\n";
  if (!c.differences.empty())
    out += fmt::format("\n{:>4}  {:<24}  {:<24}  {}\n", "step", "first", "second", "difference");
  for (const auto& d : c.differences)
    out += fmt::format("{:>4}  {:<24}  {:<24}  {}\n", d.step, d.first.empty() ? "-" : d.first,
                       d.second.empty() ? "-" : d.second, d.what);
  return out;
}

io::OrderedJson json_of(const ProgramComparison& c) {
  io::OrderedJson j{{"steps", c.steps}, {"collectives", c.collectives}, {"equal", c.equal}};
  j["differences"] = io::OrderedJson::array();
  for (const auto& d : c.differences)
    j["differences"].push_back(
        {{"step", d.step}, {"first", d.first}, {"second", d.second}, {"what", d.what}});
  return j;
}

}  // namespace

bool is_program(const io::Json& j) {
  return j.is_object() && j.contains("schema") && j["schema"] == "ddpsim.program/1";
}

void compare_program_files(Terminal& t, const OutputFlags& output, const io::Json& first,
                           const std::string& first_file, const io::Json& second,
                           const std::string& second_file) {
  if (output.format != "table" && output.format != "json")
    throw InputError{"--format " + output.format, "of two programs: table or json"};
  if (!output.html.empty())
    throw InputError{"--html", "the comparison of two programs has no page; leave it out"};
  ProgramComparison c = analysis::compare_programs(io::read_program(first, first_file),
                                                   io::read_program(second, second_file));
  write_answer(t, output, output.format == "json" ? json_of(c).dump(1) + "\n" : table_of(c));
  if (c.differences.empty()) return;
  t.err << "ddpsim: " << second_file << ": " << c.differences.size() << " difference"
        << (c.differences.size() == 1 ? "" : "s") << "\n";
  throw GateFailed{};
}

}  // namespace ddpsim::cli
