#include <exception>
#include <new>
#include <ostream>
#include <sstream>
#include <streambuf>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "sim/io/field_meant.h"
#include "sim/io/files.h"
#include "sim/io/json_reader.h"
#include "sim/io/schema/error_fields.h"
#include "sim/model/version.h"
#include "sim/report/text.h"
#include "sim/systems/base/settings.h"
#include "sim/units/number.h"
#include "sim/units/text.h"
#include "tools/cmd/command.h"
#include "tools/cmd/flags.h"
#include "tools/cmd/interrupted.h"

namespace ddpsim::cli {

Option* Option::required() {
  return option_->required(), this;
}
Option* Option::needs(const std::string& flag) {
  return option_->needs(flag), this;
}
Option* Option::excludes(const std::string& flag) {
  return option_->excludes(flag), this;
}
Option* Option::delimiter(char c) {
  return option_->delimiter(c), this;
}
Option* Option::allow_extra_args(bool allow) {
  return option_->allow_extra_args(allow), this;
}
Option* Option::check(const std::function<std::string(const std::string&)>& problem) {
  return option_->check(problem), this;
}
Option* Option::range(int least, int most) {
  return option_->check(CLI::Range(least, most)), this;
}
Option* Option::one_of(const std::vector<std::string>& values) {
  return option_->check(CLI::IsMember(values)), this;
}
Option* Option::description(const std::string& text) {
  return option_->description(text), this;
}
std::string Option::get_description() const {
  return option_->get_description();
}
std::size_t Option::count() const {
  return option_->count();
}

Option* Command::keep(CLI::Option* option) {
  return &options_.emplace_back(*option);
}
Command* Command::add_subcommand(const std::string& name, const std::string& description) {
  return &subcommands_.emplace_back(*app_->add_subcommand(name, description));
}
Option* Command::add_option(const std::string& name, std::string& value,
                            const std::string& description) {
  return keep(app_->add_option(name, value, description));
}
Option* Command::add_option(const std::string& name, std::vector<std::string>& values,
                            const std::string& description) {
  return keep(app_->add_option(name, values, description));
}
Option* Command::add_option(const std::string& name, std::vector<std::int64_t>& values,
                            const std::string& description) {
  return keep(app_->add_option(name, values, description));
}
Option* Command::add_option(const std::string& name, int& value, const std::string& description) {
  return keep(app_->add_option(name, value, description));
}
Option* Command::add_option(const std::string& name, double& value,
                            const std::string& description) {
  return keep(app_->add_option(name, value, description));
}
Option* Command::add_flag(const std::string& name, bool& value, const std::string& description) {
  return keep(app_->add_flag(name, value, description));
}
Option* Command::get_option(const std::string& name) {
  return keep(app_->get_option(name));
}
void Command::require_subcommand() {
  app_->require_subcommand(1);
}
void Command::callback(std::function<void()> run) {
  app_->callback(std::move(run));
}

namespace {

constexpr std::size_t kHelpColumn = 30;  // where CLI11 puts descriptions

// Fit for a terminal: one line of bounded length, no control characters.
std::string one_line(std::string s) {
  constexpr std::size_t kMost = 600;
  if (s.size() > kMost) s = s.substr(0, kMost) + "...";
  s = printable(s);
  while (!s.empty() && s.back() == ' ') s.pop_back();
  return s;
}

// CLI11 names the flag; add the nearest known one.
std::string explain(const CLI::App& app, const std::vector<std::string>& args,
                    const CLI::ParseError& e) {
  std::string what = one_line(e.what());
  const CLI::App* command = &app;
  std::size_t depth = 0;
  for (; !command->get_subcommands().empty(); ++depth) command = command->get_subcommands().back();
  std::vector<std::string> names;
  for (const CLI::App* sub : command->get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(sub->get_name());
  if (!names.empty() && args.size() > depth && !args[depth].starts_with('-')) {
    std::string hint = io::nearest(args[depth], names);
    std::string group = command == &app ? "" : " of ddpsim " + command->get_name();
    return "\"" + one_line(args[depth].substr(0, 60)) + "\" is not a command" + group +
           (hint.empty()
                ? "; see ddpsim" + (command == &app ? "" : " " + command->get_name()) + " --help"
                : " (did you mean \"" + hint + "\"?)");
  }
  std::vector<std::string> known;
  for (const CLI::Option* o : command->get_options())
    for (const std::string& name : o->get_lnames()) known.push_back("--" + name);
  const bool of_script = std::any_of(args.begin(), args.end(), [](const std::string& a) {
    return a == "--script" || a.starts_with("--script=");
  });
  for (const std::string& a : args) {
    std::string flag = one_line(a.substr(0, a.find('=')));
    if (flag.rfind("--", 0) != 0 || std::find(known.begin(), known.end(), flag) != known.end())
      continue;
    if (std::string words = io::flag_meant(flag.substr(2));
        std::find(known.begin(), known.end(), words.substr(0, words.find(' '))) != known.end())
      return flag + " is not a flag of this command; write " + words;
    bool sets = std::find(known.begin(), known.end(), "--set") != known.end();
    std::string plain = flag.substr(2);
    std::replace(plain.begin(), plain.end(), '-', '_');
    if (sets && io::is_other_parallelism(plain)) return flag + ": " + io::kDataParallelismOnly;
    for (const char* start : {"", "ddp_", "fsdp_"})
      if (sets && plain.starts_with(start))
        if (std::string knob = plain.substr(std::string(start).size()); systems::owner_of(knob))
          return flag + " is not a flag of this command; write --set " + knob + "=VALUE";
    if (std::string setting = io::setting_for(plain); sets && !setting.empty())
      return flag + " is not a flag of this command; write --set " + setting;
    if (std::string field = io::field_meant(flag.substr(2)); sets && !field.empty()) {
      bool own = std::find(known.begin(), known.end(), "--" + field) != known.end();
      return flag + " is not a flag of this command; write " +
             (own ? "--" + field + " VALUE" : "--set " + field + "=VALUE");
    }
    std::string hint = io::nearest(flag, known);
    return flag.substr(0, 60) + " is not a flag of this command" +
           (!hint.empty() ? " (did you mean " + hint + "?)"
            : of_script   ? "; arguments of the script follow after --"
                          : "; see --help");
  }
  // "--values 1 5 25": the shell's list is not ddpsim's.
  for (std::size_t i = 0; i + 2 < args.size(); ++i) {
    if (args[i] != "--values") continue;
    std::string list = args[i + 1];
    std::size_t k = i + 2;
    for (; k < args.size() && parse_number(args[k]); ++k) list += "," + args[k];
    if (k > i + 2) return "--values takes one list: --values " + one_line(list);
  }
  if (of_script && e.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError))
    return what + "; arguments of the script follow after --";
  // CLI11 names the positional that is missing, and not what it is.
  if (e.get_name() == "RequiredError" && command != &app) {
    for (const CLI::Option* o : command->get_options())
      if (o->get_positional() && o->get_required() && o->count() == 0)
        return command->get_name() + ": \"" + o->get_single_name() +
               "\" is missing: " + one_line(o->get_description());
    std::string list;
    for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
    if (!list.empty()) return command->get_name() + " of what? Known are " + list;
  }
  return what;
}

// Of every option of every command below `app`: a value is no flag, and not empty (a variable of a
// shell that is not set).
void require_values(CLI::App& app) {
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    for (CLI::Option* option : command->get_options())
      if (option->get_items_expected_max() > 0)
        option->check([](const std::string& value) {
          if (value.empty())
            return std::string("needs a value, found \"\"; leave it out for its default");
          return value.starts_with("--") ? "needs a value, found " + value : std::string();
        });
    require_values(*command);
  }
}

// Of an option's value: does it name a file? A name of something shipped need not.
bool may_be_path(const CLI::Option& option, const std::string& value) {
  const auto& names = option.get_lnames();
  auto is = [&](const char* name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  bool named = is("workload") || is("cluster") || is("plan") || is("profile") || is("base");
  return !named || value.find('/') != std::string::npos || value.ends_with(".json");
}

// No file that one flag names is written over what another one names.
void check_outputs(const CLI::App& command) {
  for (const char* flag : {"--out", "--html"}) {
    const CLI::Option* written = command.get_option_no_throw(flag);
    if (!written || written->count() == 0) continue;
    const std::string& path = written->results().front();
    for (const CLI::Option* other : command.get_options()) {
      if (other == written) continue;
      bool also_written = other->check_name("--out") || other->check_name("--html");
      for (const std::string& value : other->results()) {
        if (!may_be_path(*other, value) || !io::same_file(path, value)) continue;
        throw InputError{flag + (" " + path),
                         also_written
                             ? "is the file that " + other->get_name() + " writes; name another"
                             : "is a file that is read (" + other->get_name() + "); name another"};
      }
    }
  }
}

// As soon as a command's flags are known, and before it does anything.
void check_outputs_first(CLI::App& app) {
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    command->parse_complete_callback([command] { check_outputs(*command); });
    check_outputs_first(*command);
  }
}

// What follows "--" is a script's where one is named: taken out of `args`.
std::vector<std::string> split_script(std::vector<std::string>& args) {
  auto dashes = std::find(args.begin(), args.end(), "--");
  bool named = std::any_of(args.begin(), dashes, [](const std::string& a) {
    return a == "--script" || a.starts_with("--script=");
  });
  if (!named || dashes == args.end()) return {};
  std::vector<std::string> out(dashes + 1, args.end());
  args.erase(dashes, args.end());
  return out;
}

// What is said to people names files and what is in them: none of their characters acts on a
// terminal.
class PrintableTalk : public std::streambuf {
 public:
  explicit PrintableTalk(std::ostream& to) : to_(to) {}
  ~PrintableTalk() override { sync(); }

 protected:
  int_type overflow(int_type c) override {
    if (!traits_type::eq_int_type(c, traits_type::eof())) text_ += traits_type::to_char_type(c);
    return traits_type::not_eof(c);
  }
  std::streamsize xsputn(const char* text, std::streamsize n) override {
    text_.append(text, static_cast<std::size_t>(n));
    return n;
  }
  int sync() override {
    to_ << printable_page(text_) << std::flush;
    text_.clear();
    return to_ ? 0 : -1;
  }

 private:
  std::ostream& to_;
  std::string text_;
};

void check_utf8(const std::vector<std::string>& args) {
  for (std::size_t i = 0; i < args.size(); ++i)
    if (!is_utf8(args[i])) {
      bool value = i > 0 && args[i - 1].starts_with("--");
      throw InputError{(value ? args[i - 1] + " " : "") + "\"" + args[i] + "\"",
                       "is not UTF-8; rename it, or write it in UTF-8"};
    }
}

// Commands by the question that brings a person to them; --help has them in this order.
const std::vector<std::pair<const char*, std::vector<void (*)(Command&, Terminal&)>>> kCommands{
    {"How long, and why", {add_predict, add_explain, add_trace, add_compare}},
    {"Which settings, which system", {add_tune, add_rank_plans, add_sweep, add_merge}},
    {"Days of training", {add_epoch, add_goodput}},
    {"Your model and your cluster",
     {add_describe, add_import, add_topology, add_show, add_list, add_schema}},
    {"Is it true", {add_run, add_validate, add_calibrate, add_fit, add_doctor}},
    {"For other programs", {add_export}},
};
void add_commands(CLI::App& app, Command& commands, Terminal& t) {
  for (const auto& [title, adders] : kCommands)
    for (auto* add : adders) {
      add(commands, t);
      app.get_subcommands([](const CLI::App*) { return true; }).back()->group(title);
    }
}
std::string exit_codes() {
  std::string out = "Exit codes:\n";
  for (const io::ExitCode& e : io::kExitCodes)
    out += fmt::format("  {:<{}}{}\n", e.code, kHelpColumn - 2, e.means);
  return out;
}

// Whether the answer was asked for as JSON: then its refusal is JSON, too.
bool asks_for_json(const std::vector<std::string>& args) {
  for (std::size_t i = 0; i < args.size() && args[i] != "--"; ++i)
    if (args[i] == "--format=json" ||
        (args[i] == "--format" && i + 1 < args.size() && args[i + 1] == "json"))
      return true;
  return false;
}
int refuse(Terminal& t, const InputError& e, int exit_code = kBadInput) {
  const InputError said{one_line(e.where), one_line(e.what), e.code, e.remedy};
  t.err << "ddpsim: " << said.where << (said.where.empty() ? "" : ": ") << said.what << "\n";
  if (asks_for_json(t.arguments))
    t.out << printable_json(io::write_fields(io::Refusal{said, exit_code}).dump(1)) << std::endl;
  return exit_code;
}

}  // namespace

void keep_files(Terminal& t) {
  t.files->commit();
  t.err << t.written << std::flush;
  t.written.clear();
}

int run(const std::vector<std::string>& typed, const Terminal& terminal) {
  CLI::App app{
      "ddpsim: how long will one data-parallel training iteration take, and why?\n"
      "Example: ddpsim predict --workload resnet50 --cluster hgx-h100 --ranks 8\n"};
  app.name("ddpsim");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("ddpsim ") + kVersion);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::Throw);
  Command commands(app);
  PrintableTalk talk(terminal.err);
  std::ostream err(&talk);
  err << std::unitbuf;
  Terminal t{terminal.out,
             err,
             terminal.out_is_terminal,
             terminal.home,
             terminal.executable,
             terminal.err_is_terminal,
             terminal.out_is_closed,
             terminal.columns,
             terminal.asked_for_columns};
  t.arguments = typed;
  io::FileSet files;
  t.files = &files;
  std::vector<std::string> args = typed;
  t.of_script = split_script(args);
  try {
    add_commands(app, commands, t);
    app.footer(exit_codes());
    // "--ranks --out FILE" lacks a value; CLI11 would take "--out" for it.
    require_values(app);
    check_outputs_first(app);
    check_utf8(typed);
    io::forget_inputs();
    std::vector<std::string> reversed(args.rbegin(), args.rend());
    int code = kOk;
    try {
      app.parse(reversed);
    } catch (const GateFailed&) {
      code = kGateFailed;
    }
    t.out << std::flush;
    if (!t.out) throw InputError{"stdout", "cannot be written (is the disk full?)"};
    keep_files(t);
    return code;
  } catch (const Interrupted&) {
    return kInterrupted;
  } catch (const CLI::Success& e) {
    std::ostringstream help;
    int code = app.exit(e, help, t.err);
    std::size_t width = t.columns >= 60 ? static_cast<std::size_t>(t.columns) : report::kWidth;
    t.out << report::wrapped(help.str(), kHelpColumn, width) << std::flush;
    if (t.out) return code;
    t.err << "ddpsim: stdout: cannot be written (is the disk full?)\n";
    return kBadInput;
  } catch (const CLI::ParseError& e) {
    if (args.empty()) {
      t.err << report::wrapped(app.help(), kHelpColumn);
      return kBadInput;
    }
    return refuse(t, {"", explain(app, args, e), "usage"});
  } catch (const InputError& e) {
    return refuse(t, e);
  } catch (const std::bad_alloc&) {
    return refuse(
        t,
        {"", "not enough memory for this question; use fewer ranks, or --fidelity collective",
         "memory"},
        kInternal);
  } catch (const std::exception& e) {
    return refuse(t, {"", "internal error, please report it: " + one_line(e.what()), "internal"},
                  kInternal);
  }
}

}  // namespace ddpsim::cli
