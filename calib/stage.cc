#include "calib/stage.h"

#include <csignal>
#include <cstring>
#include <stdexcept>
#include <vector>

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "calib/interrupt.h"
#include "calib/testbed.h"

namespace ddpsim::calib {
namespace {

void nap() {
  timespec t{0, 200'000};
  ::nanosleep(&t, nullptr);
}

// The child dies with its parent.
pid_t fork_bound() {
  pid_t parent = ::getpid();
  pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);  // it died meanwhile
    ::signal(SIGINT, SIG_DFL);
    ::signal(SIGTERM, SIG_DFL);
  }
  return child;
}

// In the stage: starts the ranks, waits, ends them all. Returns the exit status.
int hold_stage(const Testbed* testbed, const std::vector<int>& hosts, int needed,
               Rendezvous& rendezvous, const std::function<void(int, bool)>& body) {
  std::vector<pid_t> ranks;
  for (std::size_t p = 0; p < hosts.size(); ++p) {
    pid_t child = fork_bound();
    if (child == 0) {
      try {
        ::prctl(PR_SET_TIMERSLACK, 1000);
        if (testbed) testbed->enter(hosts[p]);
        body(static_cast<int>(p), testbed != nullptr);
        ::_exit(0);
      } catch (const std::exception& e) {
        rendezvous.fail(fmt::format("process {}: {}", p, e.what()));
      }
      ::_exit(1);
    }
    ranks.push_back(child);
  }
  int left = needed;
  bool good = true;
  while (left > 0 && good) {
    int status = 0;
    pid_t ended = ::waitpid(-1, &status, 0);
    if (ended < 0) break;
    for (std::size_t p = 0; p < ranks.size(); ++p) {
      if (ranks[p] != ended) continue;
      ranks[p] = -1;
      bool well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
      if (!well)
        rendezvous.fail(fmt::format("process {} ended with {} {}", p,
                                    WIFSIGNALED(status) ? "signal" : "status",
                                    WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status)));
      good = good && well;
      if (static_cast<int>(p) < needed) --left;
    }
  }
  for (pid_t rank : ranks)
    if (rank > 0) ::kill(rank, SIGKILL);
  while (::waitpid(-1, nullptr, 0) > 0) {
  }
  return good && left == 0 ? 0 : 1;
}

}  // namespace

SharedMemory::SharedMemory(std::size_t bytes) : bytes_(bytes) {
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED)
    throw std::runtime_error(fmt::format("no memory for {} shared bytes", bytes));
  data_ = static_cast<std::byte*>(at);
}
SharedMemory::~SharedMemory() {
  ::munmap(data_, bytes_);
}

void Rendezvous::meet(int k, int count) {
  ++arrived[k];
  while (arrived[k] < count) {
    if (failed) throw std::runtime_error("another rank failed");
    nap();
  }
}

void Rendezvous::fail(const std::string& why) {
  if (failed.exchange(1) != 0) return;
  std::strncpy(error, why.c_str(), sizeof error - 1);
}

std::string stage_address(int host, bool shaped) {
  return shaped ? Testbed::address(host) : "127.0.0.1";
}

StageResult run_stage(const Cluster& cluster, const std::vector<int>& hosts, int needed,
                      bool loopback, double timeout_s, Rendezvous& rendezvous,
                      const std::function<void(int process, bool shaped)>& body) {
  if (hosts.size() > static_cast<std::size_t>(Rendezvous::kMaxProcesses))
    throw std::runtime_error(
        fmt::format("more than {} ranks on one machine", Rendezvous::kMaxProcesses));
  StageResult result;
  if (loopback)
    result.reason = "asked for";
  else if (auto problem = emulation_problem(cluster))
    result.reason = problem.path + ": " + problem.message;
  else
    result.reason = privilege_problem();
  result.shaped = result.reason.empty();
  pid_t stage = fork_bound();
  if (stage < 0) throw std::runtime_error("no process can be started");
  if (stage == 0) {
    ::setpgid(0, 0);
    try {
      std::unique_ptr<Testbed> testbed;
      if (result.shaped) testbed = std::make_unique<Testbed>(cluster);
      ::_exit(hold_stage(testbed.get(), hosts, needed, rendezvous, body));
    } catch (const std::exception& e) {
      rendezvous.fail(e.what());
    }
    ::_exit(1);
  }
  int status = 0;
  for (double waited = 0; ::waitpid(stage, &status, WNOHANG) == 0; waited += 0.002) {
    if (waited > timeout_s) {
      ::kill(stage, SIGKILL);
      ::waitpid(stage, &status, 0);
      throw std::runtime_error(
          fmt::format("not done after {:.0f} s; all ranks were ended", timeout_s));
    }
    if (interrupted()) {
      ::kill(stage, SIGKILL);
      ::waitpid(stage, &status, 0);
      result.interrupted = true;
      return result;
    }
    timespec t{0, 2'000'000};
    ::nanosleep(&t, nullptr);
  }
  const bool well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  result.interrupted = !well && interrupted();
  if (!well && !result.interrupted)
    throw std::runtime_error(rendezvous.failed ? rendezvous.error
                                               : "the hosts' process ended without a word");
  return result;
}

}  // namespace ddpsim::calib
