#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <limits>
#include <streambuf>

#include <fcntl.h>
#include <malloc.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "sim/io/files.h"
#include "sim/units/number.h"
#include "tools/cmd/command.h"
#include "tools/cmd/processes.h"

namespace {

volatile std::sig_atomic_t can_resume = 0;  // a sweep whose rows go to a file

// A file is written under a temporary name and renamed: what has no name yet goes.
extern "C" void interrupted(int) {
  ddpsim::io::abandon_temporaries();
  constexpr char kMessage[] = "\nddpsim: interrupted\n";
  constexpr char kResume[] = "\nddpsim: interrupted; the same command with --resume goes on\n";
  const char* message = can_resume ? kResume : kMessage;
  [[maybe_unused]] ssize_t n = ::write(STDERR_FILENO, message, std::strlen(message));
  ::_exit(130);
}
// Ends as the signal would have ended it.
extern "C" void ended(int signal) {
  ddpsim::io::abandon_temporaries();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

// The first file that is opened takes the lowest free number. Without a stdout that would be an
// answer's file, and what is said to people would go into it. True: there is no stdout.
bool open_standard_streams() {
  bool closed = false;
  for (int d : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(d, F_GETFD) >= 0 || errno != EBADF) continue;
    closed = closed || d == STDOUT_FILENO;
    if (::open("/dev/null", O_RDWR) != d) ::_exit(3);
  }
  return closed;
}

// Many simulations follow one another, and those of a thousand different ranks ask for hundreds of
// MiB each. glibc returns such blocks to the kernel, which clears every page anew: half of their
// time.
void keep_freed_memory() {
#ifdef __GLIBC__
  ::mallopt(M_MMAP_MAX, 0);
  ::mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
#endif
}

// Takes everything. A stream without a buffer would have failed, and a failed stream is an answer
// that was lost.
class Nowhere : public std::streambuf {
 protected:
  int_type overflow(int_type c) override { return traits_type::not_eof(c); }
  std::streamsize xsputn(const char*, std::streamsize n) override { return n; }
};

}  // namespace

int main(int argc, char** argv) {
  keep_freed_memory();
  bool out_is_closed = open_standard_streams();
  std::signal(SIGINT, interrupted);
  for (int i = 2; i < argc; ++i)
    if (std::string(argv[1]) == "sweep" && std::string(argv[i]).starts_with("--out"))
      can_resume = 1;
  for (int signal : {SIGTERM, SIGHUP, SIGQUIT})
    if (std::signal(signal, ended) == SIG_IGN) std::signal(signal, SIG_IGN);  // nohup
  std::ios::sync_with_stdio(false);
  char self[4096];
  ssize_t n = ::readlink("/proc/self/exe", self, sizeof self);
  const char* home = std::getenv("DDPSIM_HOME");
  winsize window{};
  bool sized = ::isatty(STDOUT_FILENO) == 1 && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0;
  ddpsim::cli::Terminal t{std::cout,
                          std::cerr,
                          ::isatty(STDOUT_FILENO) == 1 && !std::getenv("NO_COLOR"),
                          home ? home : "",
                          n > 0 ? std::string(self, static_cast<std::size_t>(n))
                                : std::string(argc > 0 ? argv[0] : "ddpsim"),
                          ::isatty(STDERR_FILENO) == 1,
                          out_is_closed};
  if (sized) t.columns = window.ws_col;
  // Where the output is no terminal, who asks for a width exports it.
  const char* columns = std::getenv("COLUMNS");
  if (!sized && columns) {
    t.columns = static_cast<int>(ddpsim::parse_integer(columns).value_or(0) % 100'000);
    t.asked_for_columns = true;
  }
  // Of the processes that mpirun starts, one talks.
  Nowhere nowhere;
  std::ostream silent(&nowhere);
  if (argc > 1 && std::string(argv[1]) == "sweep" && ddpsim::cli::is_mpi_follower()) {
    ddpsim::cli::Terminal follower{silent, silent, false, t.home, t.executable};
    return ddpsim::cli::run(std::vector<std::string>(argv + 1, argv + argc), follower);
  }
  return ddpsim::cli::run(std::vector<std::string>(argv + 1, argv + argc), t);
}
