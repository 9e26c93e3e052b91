#include "tools/cmd/graphviz.h"

#include <cerrno>
#include <cstdio>
#include <memory>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sim/model/error.h"

extern char** environ;

namespace ddpsim::cli {
namespace {

struct Close {
  void operator()(std::FILE* f) const { std::fclose(f); }
};
using Scratch = std::unique_ptr<std::FILE, Close>;

// Unnamed, gone when closed: nothing is left, whatever happens.
Scratch scratch() {
  Scratch f(std::tmpfile());
  if (!f) throw InputError{"--format svg", "no temporary file can be made (is the disk full?)"};
  return f;
}

std::string text_of(std::FILE* f) {
  std::string out;
  std::rewind(f);
  char buffer[65536];
  while (std::size_t n = std::fread(buffer, 1, sizeof buffer, f)) out.append(buffer, n);
  return out;
}

}  // namespace

std::string graphviz_svg(const std::string& dot) {
  Scratch in = scratch();
  Scratch out = scratch();
  Scratch err = scratch();
  if (std::fwrite(dot.data(), 1, dot.size(), in.get()) != dot.size() || std::fflush(in.get()) != 0)
    throw InputError{"--format svg", "a temporary file cannot be written (is the disk full?)"};
  ::lseek(::fileno(in.get()), 0, SEEK_SET);
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_adddup2(&files, ::fileno(in.get()), 0);
  ::posix_spawn_file_actions_adddup2(&files, ::fileno(out.get()), 1);
  ::posix_spawn_file_actions_adddup2(&files, ::fileno(err.get()), 2);
  std::string program = "dot";
  std::string flag = "-Tsvg";
  char* argv[] = {program.data(), flag.data(), nullptr};
  pid_t child = -1;
  int failed = ::posix_spawnp(&child, program.c_str(), &files, nullptr, argv, environ);
  ::posix_spawn_file_actions_destroy(&files);
  if (failed != 0)
    throw InputError{"--format svg",
                     "Graphviz's \"dot\" was not found on PATH; install the package graphviz "
                     "(Debian, Ubuntu), or take --format dot"};
  int status = 0;
  while (::waitpid(child, &status, 0) < 0)
    if (errno != EINTR) throw InputError{"--format svg", "Graphviz's \"dot\" was lost"};
  std::string svg = text_of(out.get());
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || svg.empty()) {
    std::string said = text_of(err.get());
    throw InputError{"--format svg",
                     "Graphviz's \"dot\" failed" +
                         (said.empty() ? std::string() : ": " + said.substr(0, said.find('\n')))};
  }
  return svg;
}

}  // namespace ddpsim::cli
