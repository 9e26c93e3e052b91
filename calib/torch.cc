// What goes in (the workload) and comes out (the Run, what the ranks said) are anonymous files in
// memory: nothing has a name that could be left over.
#include "calib/torch.h"

#include <new>
#include <stdexcept>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "calib/interrupt.h"
#include "calib/memory_file.h"
#include "calib/origin.h"
#include "calib/script_log.h"
#include "calib/stage.h"
#include "sim/io/codecs.h"

namespace ddpsim::calib {
HeldPort::HeldPort() : held_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* at = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof address;
  int yes = 1;
  if (held_.number() < 0 ||
      ::setsockopt(held_.number(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
      ::bind(held_.number(), at, size) != 0 || ::getsockname(held_.number(), at, &size) != 0)
    throw std::runtime_error("no free port");
  number_ = ntohs(address.sin_port);
}

Run record_torch(const Cluster& cluster, const std::vector<int>& hosts,
                 const TorchOptions& options) {
  auto ranks = static_cast<int>(hosts.size());
  MemoryFile workload(options.workload);
  MemoryFile answer;
  MemoryFile partial;
  MemoryFile log;
  HeldPort port;
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
      set("MASTER_PORT", std::to_string(port.number()));
      if (!options.gpus) set("GLOO_SOCKET_IFNAME", shaped ? "e0" : "lo");
      set("PYTHONDONTWRITEBYTECODE", "1");
      set("OMP_NUM_THREADS", "1");
      set("DDPSIM_HOSTS", shaped ? "namespaces" : "loopback");
      if (options.environment)
        for (const auto& [name, value] : options.environment(rank)) set(name.c_str(), value);
      std::vector<std::string> command{options.python, options.script, "--out", answer.path()};
      if (!options.gpus) command.emplace_back("--keep-memory");
      if (options.partial) command.insert(command.end(), {"--partial", partial.path()});
      if (!options.workload.empty()) command.insert(command.end(), {"--workload", workload.path()});
      command.insert(command.end(), options.arguments.begin(), options.arguments.end());
      if (auto slow = options.slow_ranks.find(rank); slow != options.slow_ranks.end())
        command.insert(command.end(), {"--slow", std::to_string(slow->second)});
      become_command(command, log.descriptor(), log.descriptor());
    };
    stage = run_stage(cluster, hosts, ranks, loopback, options.timeout_s, *rendezvous, play);
  } catch (const std::runtime_error& e) {
    std::string why = said(log.text(), "ddpsim_record: ");
    throw std::runtime_error(why.empty() ? e.what() : why);
  }
  const std::string text = stage.interrupted ? last_document(partial.text()) : answer.text();
  Run run = io::read_run(io::parse_json(text, "ddpsim_record.py"), "ddpsim_record.py");
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
  // Read, not imported: that takes seconds, and what is refused should be refused at once.
  auto text = output_of(
      {python, "-c",
       "import importlib.util as u, pathlib as p; said = {}; "
       "exec((p.Path(u.find_spec('torch').origin).parent / 'version.py').read_text(), said); "
       "print('.'.join(said['__version__'].split('.')[:2]))"});
  if (!text)
    throw std::runtime_error(
        python +
        " has no PyTorch (Debian: python3-torch; or name another interpreter with --python)");
  return last_line(*text);
}

}  // namespace ddpsim::calib
