// One file per command; each reads its flags, calls the pure rooms, and writes its answer to `out`,
// its talk to `err`.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace ddpsim::io {
class FileSet;
}

namespace ddpsim::cli {

class Command;

struct Terminal {
  std::ostream& out;
  std::ostream& err;
  bool out_is_terminal = false;
  std::string home;        // $DDPSIM_HOME
  std::string executable;  // where ddpsim itself lies
  bool err_is_terminal = false;
  bool out_is_closed = false;          // `out` goes nowhere: who started ddpsim closed its stdout
  int columns = 0;                     // of the terminal that `out` is; 0 = it is none
  bool asked_for_columns = false;      // `out` is no terminal, and COLUMNS says `columns`
  std::vector<std::string> arguments;  // as typed, without the program's name; run() fills it
  std::vector<std::string> of_script;  // what follows --, after --script; run() fills it
  io::FileSet* files = nullptr;  // of the answer: all get their names when the command has done its
                                 // work, or none does; run() sets it
  std::string written;           // what is said then
};

// The files of the answer get their names now: what follows may fail and they are kept. Throws
// InputError.
void keep_files(Terminal& t);
// To stdout. Throws InputError if that is closed or full.
void write_out(Terminal& t, const std::string& text);

// Exit codes.
inline constexpr int kOk = 0;
inline constexpr int kGateFailed = 1;
inline constexpr int kBadInput = 2;
inline constexpr int kInternal = 3;

// Thrown by a command whose answer is written, and is that something failed: exit code 1. The
// reasons are on stderr.
struct GateFailed {};

// Runs `ddpsim ARGS...`. The only place that catches InputError. Never throws.
int run(const std::vector<std::string>& args, const Terminal& terminal);

// Each adds its subcommand; the callback throws InputError, or returns after writing.
void add_predict(Command& app, Terminal& t);
void add_describe(Command& app, Terminal& t);
void add_list(Command& app, Terminal& t);
void add_show(Command& app, Terminal& t);
void add_schema(Command& app, Terminal& t);
void add_trace(Command& app, Terminal& t);
void add_tune(Command& app, Terminal& t);
void add_rank_plans(Command& app, Terminal& t);
void add_epoch(Command& app, Terminal& t);
void add_goodput(Command& app, Terminal& t);
void add_run(Command& app, Terminal& t);
void add_compare(Command& app, Terminal& t);
void add_validate(Command& app, Terminal& t);
void add_calibrate(Command& app, Terminal& t);
void add_fit(Command& app, Terminal& t);
void add_import(Command& app, Terminal& t);
void add_sweep(Command& app, Terminal& t);
void add_merge(Command& app, Terminal& t);
void add_explain(Command& app, Terminal& t);
void add_export(Command& app, Terminal& t);
void add_doctor(Command& app, Terminal& t);
void add_topology(Command& app, Terminal& t);

}  // namespace ddpsim::cli
