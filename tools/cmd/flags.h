// The flags of commands, in CLI11's words. Only run.cc sees CLI11: its header takes longer to
// compile than any command.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace ddpsim::cli {

// A flag or a positional argument of a command; each function returns it.
class Option {
 public:
  explicit Option(CLI::Option& option) : option_(&option) {}
  Option* required();
  Option* needs(const std::string& flag);
  Option* excludes(const std::string& flag);
  Option* delimiter(char c);
  // False: of a list, each value has the flag's name before it.
  Option* allow_extra_args(bool allow);
  // What is wrong with a value, "" = nothing.
  Option* check(const std::function<std::string(const std::string&)>& problem);
  Option* range(int least, int most);
  Option* one_of(const std::vector<std::string>& values);
  Option* description(const std::string& text);
  std::string get_description() const;
  std::size_t count() const;

 private:
  CLI::Option* option_;
};

// A command, or a group of them. What it makes lives as long as it does.
class Command {
 public:
  explicit Command(CLI::App& app) : app_(&app) {}
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;
  Command* add_subcommand(const std::string& name, const std::string& description);
  // `name`: "--flag", or "positional". The variable's value is the default, and must outlive
  // parsing.
  Option* add_option(const std::string& name, std::string& value, const std::string& description);
  Option* add_option(const std::string& name, std::vector<std::string>& values,
                     const std::string& description);
  Option* add_option(const std::string& name, std::vector<std::int64_t>& values,
                     const std::string& description);
  Option* add_option(const std::string& name, int& value, const std::string& description);
  Option* add_option(const std::string& name, double& value, const std::string& description);
  Option* add_flag(const std::string& name, bool& value, const std::string& description);
  // REQUIRES: it has one of that name.
  Option* get_option(const std::string& name);
  void require_subcommand();
  void callback(std::function<void()> run);

 private:
  Option* keep(CLI::Option* option);
  CLI::App* app_;
  std::list<Command> subcommands_;
  std::list<Option> options_;
};

}  // namespace ddpsim::cli
