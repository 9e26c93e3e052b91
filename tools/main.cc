#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <iostream>

#include "tools/cmd/command.h"
#include "tools/cmd/processes.h"

namespace {

// A file is written under a temporary name and renamed, so there is nothing to undo.
extern "C" void interrupted(int) {
  constexpr char kMessage[] = "\nddpsim: interrupted\n";
  [[maybe_unused]] ssize_t n = ::write(STDERR_FILENO, kMessage, sizeof kMessage - 1);
  ::_exit(130);
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGINT, interrupted);
  std::ios::sync_with_stdio(false);
  char self[4096];
  ssize_t n = ::readlink("/proc/self/exe", self, sizeof self);
  const char* home = std::getenv("DDPSIM_HOME");
  ddpsim::cli::Terminal t{std::cout, std::cerr, ::isatty(STDOUT_FILENO) == 1 && !std::getenv("NO_COLOR"), home ? home : "",
                          n > 0 ? std::string(self, static_cast<std::size_t>(n)) : std::string(argc > 0 ? argv[0] : "ddpsim"), ::isatty(STDERR_FILENO) == 1};
  // Of the processes that mpirun starts, one talks.
  std::ostream silent(nullptr);
  if (argc > 1 && std::string(argv[1]) == "sweep" && ddpsim::cli::is_mpi_follower()) {
    ddpsim::cli::Terminal follower{silent, silent, false, t.home, t.executable};
    return ddpsim::cli::run(std::vector<std::string>(argv + 1, argv + argc), follower);
  }
  return ddpsim::cli::run(std::vector<std::string>(argv + 1, argv + argc), t);
}
