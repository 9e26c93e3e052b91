// The workload and what is said of it come back through anonymous files in memory: nothing has a
// name that could be left over.
#include "calib/describe.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <stdexcept>

#include <fcntl.h>
#include <fmt/format.h>
#include <ftw.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calib/memory_file.h"
#include "sim/io/files.h"
#include "sim/model/error.h"

namespace ddpsim::calib {
namespace {

constexpr int kNoProgram = 127;  // as shells say it
constexpr int kInterrupted = 130;

constexpr const char* kInstall =
    "install it (Debian: python3-torch; elsewhere: pip install torch), or name an interpreter that "
    "has it with --python";

// Runs a program, found on PATH; returns the status that waitpid tells. `prepare`: in the child.
int run_program(const std::vector<std::string>& command, const std::function<void()>& prepare) {
  std::vector<char*> argv;
  for (const std::string& a : command) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  pid_t parent = ::getpid();
  pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("no process can be started");
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);  // it died meanwhile
    ::signal(SIGINT, SIG_DFL);
    ::signal(SIGTERM, SIG_DFL);
    int nothing = ::open("/dev/null", O_RDWR);
    ::dup2(nothing, STDIN_FILENO);
    prepare();
    ::execvp(argv[0], argv.data());
    ::_exit(kNoProgram);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

bool ended_with(int status, int code) {
  return WIFEXITED(status) && WEXITSTATUS(status) == code;
}

// Exit code: 0 = has PyTorch, 1 = does not, kNoProgram = is none.
int status_of_python(const std::string& python) {
  const char* program = "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)";
  return run_program({python, "-c", program}, [] {
    int nothing = ::open("/dev/null", O_RDWR);
    ::dup2(nothing, STDOUT_FILENO);
    ::dup2(nothing, STDERR_FILENO);
  });
}

std::string checked_python(const std::string& python) {
  if (python.empty()) return find_python();
  int status = status_of_python(python);
  if (ended_with(status, kNoProgram))
    throw InputError{"--python " + python,
                     "cannot be started; name a Python interpreter, such as /usr/bin/python3"};
  if (!ended_with(status, 0))
    throw InputError{"--python " + python, std::string("has no PyTorch: ") + kInstall};
  return python;
}

void remove_folder(const std::string& path) {
  auto remove = [](const char* each, const struct stat*, int, FTW*) {
    ::remove(each);
    return 0;
  };
  ::nftw(path.c_str(), remove, 16, FTW_DEPTH | FTW_PHYS);
}

// A folder that a child may make, for what a script writes. A process of its own removes it once
// this one has no use for it or has died: that can be between any two instructions.
class Scratch {
 public:
  Scratch() {
    const char* folder = std::getenv("TMPDIR");
    std::random_device random;
    path_ = fmt::format("{}/ddpsim-{}-{:08x}{:08x}", folder && *folder ? folder : "/tmp",
                        ::getpid(), random(), random());
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe can be made");
    remover_ = ::fork();
    if (remover_ < 0) throw std::runtime_error("no process can be started");
    if (remover_ == 0) remove_at_end_of(ends[0]);
    ::close(ends[0]);
    held_ = ends[1];
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    ::close(held_);
    while (::waitpid(remover_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  const std::string& path() const { return path_; }

 private:
  [[noreturn]] void remove_at_end_of(int pipe) const {
    ::setsid();  // or a terminal's ^C ends it, too
    for (int d = 0; d < 256; ++d)
      if (d != pipe) ::close(d);
    char none;
    while (::read(pipe, &none, 1) < 0 && errno == EINTR) {
    }
    // A script that is killed with this process may still write something.
    for (int tries = 0; tries < 50 && ::access(path_.c_str(), F_OK) == 0; ++tries) {
      if (tries > 0) ::usleep(20'000);
      remove_folder(path_);
    }
    ::_exit(0);
  }

  std::string path_;
  int held_ = -1;  // the remover waits until nobody holds this
  pid_t remover_ = -1;
};

// A path that lasts while this process does: the child may close what it inherits.
std::string path_of(const MemoryFile& file) {
  return fmt::format("/proc/{}/fd/{}", ::getpid(), file.descriptor());
}

// Why the describer ended without a report. `script`: a script ran, which can end it anyhow.
[[noreturn]] void ended_badly(int status, const std::string& script = {}) {
  if (ended_with(status, kInterrupted) || (WIFSIGNALED(status) && WTERMSIG(status) == SIGINT))
    throw InputError{"describe", "interrupted; nothing is written"};
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
    throw InputError{"describe",
                     "Python was killed, as a machine does that is out of memory; let the script "
                     "make less data, or name the model alone with --factory"};
  if (WIFSIGNALED(status))
    throw InputError{"describe", fmt::format("Python ended with signal {} ({}); try another "
                                             "PyTorch with --python",
                                             WTERMSIG(status), ::strsignal(WTERMSIG(status)))};
  if (!script.empty())
    throw InputError{script,
                     fmt::format("the script ended Python itself, with status {}, before it "
                                 "could be described; let it run on until it has trained "
                                 "three steps, or describe its model with --factory",
                                 WEXITSTATUS(status))};
  throw std::runtime_error(
      fmt::format("ddpsim_describe.py ended with status {}; what it says is "
                  "above",
                  WIFEXITED(status) ? WEXITSTATUS(status) : -1));
}

}  // namespace

std::string find_python() {
  for (const char* each : {"python3", "/usr/bin/python3"})
    if (ended_with(status_of_python(each), 0)) return each;
  throw InputError{"PyTorch",
                   std::string("neither python3 nor /usr/bin/python3 has it: ") + kInstall};
}

Description describe_model(const DescribeOptions& options) {
  MemoryFile workload;
  MemoryFile report;
  std::vector<std::string> command{checked_python(options.python), options.script};
  const Scratch scratch;
  command.insert(command.end(), {"--out", path_of(workload), "--report", path_of(report)});
  command.insert(command.end(), {"--scratch", scratch.path()});
  command.insert(command.end(), options.arguments.begin(), options.arguments.end());
  int status = run_program(command, [] {
    ::setenv("PYTHONDONTWRITEBYTECODE", "1", 1);
    ::dup2(STDERR_FILENO, STDOUT_FILENO);
  });
  const std::string text = report.text();
  if (text.empty()) ended_badly(status);
  io::Json said = io::parse_json(text, "ddpsim_describe.py");
  if (said.contains("running")) ended_badly(status, said["where"].get<std::string>());
  if (said.contains("error"))
    throw InputError{said["where"].get<std::string>(), said["error"].get<std::string>()};
  if (!ended_with(status, 0)) ended_badly(status);
  return {workload.text(), said["says"].get<std::vector<std::string>>(), said["plan"]};
}

}  // namespace ddpsim::calib
