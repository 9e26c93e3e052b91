// ddpsim schema: JSON Schema of the files that ddpsim reads; and their fields, for `ddpsim show`.
#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "sim/io/schema/schemas.h"
#include "sim/report/text.h"
#include "sim/systems/base/record.h"
#include "tools/cmd/fields.h"
#include "tools/cmd/flags.h"
#include "tools/cmd/question.h"

namespace ddpsim::cli {
namespace {

io::OrderedJson as_json(const io::FieldPath& p) {
  const io::FieldRecord& f = *p.field;
  io::OrderedJson j{{"file", p.file}, {"path", p.path}, {"type", io::in_words(f)}};
  if (!f.unit.empty()) j["unit"] = f.unit;
  if (f.required) j["required"] = true;
  if (f.least) j[f.above ? "above" : "least"] = *f.least;
  if (f.most) j["most"] = *f.most;
  if (!f.choices.empty()) j["choices"] = f.choices;
  if (f.only) j["only"] = {{f.only->key, f.only->words}, {"none", f.only->none}};
  if (!f.initially.empty()) j["default"] = f.initially;
  j["since"] = f.since;
  j["help"] = f.help;
  return j;
}

// "pattern fat_tree or ring"; "" = everywhere.
std::string belongs(const io::FieldRecord& f) {
  if (!f.only) return {};
  std::vector<std::string> words = f.only->words;
  if (f.only->key == "system") {  // by its own name
    words.clear();
    for (const systems::SystemRecord& s : systems::all_systems())
      if (std::count(f.only->words.begin(), f.only->words.end(), s.name()) > 0)
        words.emplace_back(s.name());
  }
  return fmt::format("{}{} {}", f.only->none ? "not of " : "of ", f.only->key,
                     fmt::join(words, " or "));
}
bool is_simple(const std::string& initially) {
  return !initially.empty() && initially != "[]" && initially != "{}" && initially != "\"\"" &&
         initially.front() != '{' && initially != "null";
}

}  // namespace

std::string fields_text(const std::string& prefix, const std::string& format) {
  std::string out = format == "csv" ? "path,type,unit,required,default,only,since,help\n" : "";
  io::OrderedJson all = io::OrderedJson::array();
  std::vector<std::string> known;
  for (const io::FieldPath& p : io::field_paths()) {
    known.push_back(p.path);
    const bool asked = p.path.starts_with(prefix) ||
                       (p.path.starts_with("plan.") && p.path.substr(5).starts_with(prefix));
    if (!asked) continue;
    const io::FieldRecord& f = *p.field;
    all.push_back(as_json(p));
    if (format == "csv") {
      out += fmt::format("{},{},{},{},{},{},{},{}\n", p.path, report::csv_field(io::in_words(f)),
                         f.unit, f.required ? "yes" : "no", report::csv_field(f.initially),
                         report::csv_field(belongs(f)), f.since, report::csv_field(f.help));
      continue;
    }
    std::string text = "    " + io::in_words(f);
    if (!f.help.empty()) text += "; " + f.help;
    if (f.required) text += "; required";
    if (const std::string where = belongs(f); !where.empty()) text += "; " + where;
    if (is_simple(f.initially)) text += fmt::format(" (default {})", f.initially);
    out += p.path + "\n" + report::wrapped(text + "\n", 4);
  }
  if (all.empty()) {
    const std::string hint = io::nearest(prefix, known);
    throw InputError{"show fields " + prefix,
                     hint.empty() ? "no field's path begins so; leave it out to see all"
                                  : "no field's path begins so (did you mean \"" + hint + "\"?)"};
  }
  return format == "json" ? all.dump(1) + "\n" : out;
}

namespace {

struct SchemaFlags {
  std::string name;
  std::string folder;
  OutputFlags output;
};

std::string kinds_in_words() {
  std::string out;
  for (const io::FileKind& k : io::file_kinds())
    out += (out.empty() ? "" : ", ") + std::string(k.name);
  return out;
}

void schema(Terminal& t, const SchemaFlags& f) {
  if (f.name.empty() == f.folder.empty())
    throw InputError{"schema", "give the kind of file, or --folder for all of them"};
  if (!f.folder.empty()) {
    for (const io::FileKind& k : io::file_kinds())
      t.files->add(f.folder + "/" + k.name + ".schema.json", io::json_schema(k).dump(1) + "\n");
    return;
  }
  const io::FileKind* kind = io::file_kind(f.name);
  if (!kind) {
    std::vector<std::string> known;
    for (const io::FileKind& k : io::file_kinds()) known.emplace_back(k.name);
    const std::string hint = io::nearest(f.name, known);
    throw InputError{"schema " + f.name, hint.empty() ? "expected one of " + kinds_in_words()
                                                      : "unknown (did you mean \"" + hint + "\"?)"};
  }
  write_answer(t, f.output, io::json_schema(*kind).dump(1) + "\n");
}

}  // namespace

void add_schema(Command& app, Terminal& t) {
  auto flags = std::make_shared<SchemaFlags>();
  flags->output.format = "json";
  Command* c = app.add_subcommand(
      "schema", "Print the JSON Schema of a kind of file, for editors and other programs");
  c->add_option("name", flags->name, kinds_in_words());
  c->add_option("--out", flags->output.out, "write the schema to this file instead of stdout");
  c->add_option("--folder", flags->folder, "write all of them into this folder, by name");
  c->callback([&t, flags] { schema(t, *flags); });
}

}  // namespace ddpsim::cli
