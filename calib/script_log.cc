#include "calib/script_log.h"

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace ddpsim::calib {

void become_command(const std::vector<std::string>& command, int out, int err) {
  ::dup2(::open("/dev/null", O_RDONLY), 0);
  ::dup2(out, 1);
  ::dup2(err, 2);
  std::vector<char*> argv;
  for (const std::string& a : command) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  throw std::runtime_error(command[0] + " cannot be started: " + std::strerror(errno));
}

std::optional<std::string> output_of(const std::vector<std::string>& command) {
  int out[2];
  if (::pipe(out) != 0) throw std::runtime_error("no pipe");
  pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("no process can be started");
  if (child == 0) {
    ::close(out[0]);
    try {
      become_command(command, out[1], ::open("/dev/null", O_WRONLY));
    } catch (const std::exception&) {
    }
    ::_exit(127);
  }
  ::close(out[1]);
  std::string text;
  char block[256];
  for (ssize_t n; (n = ::read(out[0], block, sizeof block)) > 0;)
    text.append(block, static_cast<std::size_t>(n));
  ::close(out[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return {};
  return text;
}

}  // namespace ddpsim::calib
