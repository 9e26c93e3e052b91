#include <unistd.h>

#include <cstdlib>
#include <iostream>

#include "tools/cmd/command.h"

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  char self[4096];
  ssize_t n = ::readlink("/proc/self/exe", self, sizeof self);
  const char* home = std::getenv("DDPSIM_HOME");
  ddpsim::cli::Terminal t{std::cout, std::cerr, ::isatty(STDOUT_FILENO) == 1 && !std::getenv("NO_COLOR"), home ? home : "",
                          n > 0 ? std::string(self, static_cast<std::size_t>(n)) : std::string(argc > 0 ? argv[0] : "ddpsim")};
  return ddpsim::cli::run(std::vector<std::string>(argv + 1, argv + argc), t);
}
