// What goes in (the workload) and comes out (the Run, what the ranks said) are anonymous files in
// memory: nothing has a name that could be left over.
#include "calib/torch.h"

#include <cstring>
#include <new>
#include <stdexcept>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calib/memory_file.h"
#include "calib/origin.h"
#include "calib/script_log.h"
#include "calib/stage.h"
#include "sim/io/codecs.h"

namespace ddpsim::calib {
namespace {

std::string free_port() {
  int s = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  bool bound = s >= 0 && ::bind(s, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
               ::getsockname(s, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  if (s >= 0) ::close(s);
  if (!bound) throw std::runtime_error("no free port");
  return std::to_string(ntohs(address.sin_port));
}

[[noreturn]] void become(const std::string& program, const std::vector<std::string>& arguments,
                         int log) {
  ::dup2(log, 1);
  ::dup2(log, 2);
  std::vector<char*> argv;
  argv.push_back(const_cast<char*>(program.c_str()));
  for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  ::execv(program.c_str(), argv.data());
  throw std::runtime_error(program + " cannot be started: " + std::strerror(errno));
}

}  // namespace

Run record_torch(const Cluster& cluster, const std::vector<int>& hosts,
                 const TorchOptions& options) {
  auto ranks = static_cast<int>(hosts.size());
  MemoryFile workload(options.workload);
  MemoryFile answer;
  MemoryFile log;
  std::string port = free_port();
  SharedMemory memory(sizeof(Rendezvous));
  auto* rendezvous = new (memory.data()) Rendezvous{};
  double load = machine_load();
  StageResult stage;
  try {
    bool loopback = options.loopback || options.gpus;
    auto play = [&](int rank, bool shaped) {
      auto set = [](const char* name, const std::string& value) {
        ::setenv(name, value.c_str(), 1);
      };
      set("RANK", std::to_string(rank));
      set("LOCAL_RANK", std::to_string(rank));
      set("WORLD_SIZE", std::to_string(ranks));
      set("MASTER_ADDR", stage_address(hosts[0], shaped));
      set("MASTER_PORT", port);
      if (!options.gpus) set("GLOO_SOCKET_IFNAME", shaped ? "e0" : "lo");
      set("PYTHONDONTWRITEBYTECODE", "1");
      set("OMP_NUM_THREADS", "1");
      set("DDPSIM_HOSTS", shaped ? "namespaces" : "loopback");
      if (options.environment)
        for (const auto& [name, value] : options.environment(rank)) set(name.c_str(), value);
      std::vector<std::string> arguments{options.script, "--out", answer.path()};
      if (!options.gpus) arguments.emplace_back("--keep-memory");
      if (!options.workload.empty())
        arguments.insert(arguments.end(), {"--workload", workload.path()});
      arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
      if (auto slow = options.slow_ranks.find(rank); slow != options.slow_ranks.end())
        arguments.insert(arguments.end(), {"--slow", std::to_string(slow->second)});
      become(options.python, arguments, log.descriptor());
    };
    stage = run_stage(cluster, hosts, ranks, loopback, options.timeout_s, *rendezvous, play);
  } catch (const std::runtime_error& e) {
    std::string why = said(log.text(), "ddpsim_record: ");
    throw std::runtime_error(why.empty() ? e.what() : why);
  }
  Run run = io::read_run(io::parse_json(answer.text(), "ddpsim_record.py"), "ddpsim_record.py");
  Run here = measured_run(EvidenceClass::System, stage, load);
  here.origin.backend = "torch";
  here.origin.compute = run.origin.compute;
  here.origin.software = run.origin.software;
  if (options.gpus) {
    here.origin.hosts = run.origin.hosts;
    here.origin.reason.clear();
    here.origin.gpu = run.origin.gpu;
  }
  run.origin = here.origin;
  run.quality.load = std::max(run.quality.load, load);
  for (const std::string& why : here.quality.reasons) add_noise(run.quality, why);
  return run;
}

std::string torch_version(const std::string& python) {
  int out[2];
  if (::pipe(out) != 0) throw std::runtime_error("no pipe");
  pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("no process can be started");
  if (child == 0) {
    ::close(out[0]);
    ::dup2(out[1], 1);
    ::close(2);
    const char* program = "import torch; print('.'.join(torch.__version__.split('.')[:2]))";
    ::execlp(python.c_str(), python.c_str(), "-c", program, static_cast<char*>(nullptr));
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
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    throw std::runtime_error(
        python +
        " has no PyTorch (Debian: python3-torch; or name another interpreter with --python)");
  return last_line(text);
}

}  // namespace ddpsim::calib
