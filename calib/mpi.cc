// The ranks' processes of the stage hold their hosts; that of rank 0 becomes mpirun, which reaches
// the other hosts by an agent that enters their namespaces. Each host has a name of its own, and
// its own /dev/shm, where Open MPI keeps what it would leave over: it goes with the processes.
#include "calib/mpi.h"

#include <atomic>
#include <new>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "calib/interrupt.h"
#include "calib/memory_file.h"
#include "calib/origin.h"
#include "calib/script_log.h"
#include "calib/stage.h"
#include "sim/io/codecs.h"

namespace ddpsim::calib {
namespace {

struct MpiShared {
  Rendezvous rendezvous;
  std::atomic<pid_t> holder[Rendezvous::kMaxProcesses];  // who holds the host of each rank
};

// Ends a process when the one that started it ends: killed, mpirun does not end its ranks.
const std::vector<std::string> kBound{"setpriv", "--pdeathsig", "KILL"};

// A shell's line that goes on with `command` as host `host`. The places of Open MPI's files. Its
// processes have numbers of their own: all end with the one that holds them.
std::string as_host(int host, const std::string& command) {
  return fmt::format(
      "unshare --uts --mount --propagation private --pid --fork --kill-child sh -c 'hostname "
      "ddpsim{} && mount -t tmpfs "
      "tmpfs /dev/shm && export TMPDIR=/dev/shm DDPSIM_HOST={} && exec {}' sh",
      host, host, command);
}

// What mpirun calls as `sh AGENT ADDRESS COMMAND...`.
std::string agent(const std::vector<int>& hosts, const MpiShared& shared) {
  std::string out = "address=$1\nshift\ncase \"$address\" in\n";
  for (std::size_t r = 0; r < hosts.size(); ++r)
    out += fmt::format("{}) exec {} nsenter --net=/proc/{}/ns/net {} \"$*\" ;;\n",
                       stage_address(hosts[r], true), fmt::join(kBound, " "),
                       shared.holder[r].load(), as_host(hosts[r], "sh -c \"$1\""));
  return out + "esac\necho \"ddpsim_mpi: no host $address\" >&2\nexit 1\n";
}

std::string quoted(const std::string& text) {
  std::string out = "'";
  for (char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

void set_variable(const char* name, const std::string& value) {
  ::setenv(name, value.c_str(), 1);
}

// Messages go over TCP on the shaped interface alone; ranks give way while they wait, since they
// share cores; mpirun ends with its ranks.
std::vector<std::string> mpirun(const std::vector<int>& hosts, bool shaped,
                                const std::string& agent_path) {
  std::vector<std::string> out{"mpirun", "-np", std::to_string(hosts.size()), "--bind-to", "none"};
  const std::string interface = shaped ? "e0" : "lo";
  std::vector<std::string> places;
  for (int h : hosts)
    if (shaped) places.push_back(stage_address(h, true) + ":1");
  if (!shaped) places.push_back("localhost:" + std::to_string(hosts.size()));
  out.insert(out.end(), {"--host", fmt::format("{}", fmt::join(places, ","))});
  const auto mca = [&](const char* name, const std::string& value) {
    out.insert(out.end(), {"--mca", name, value});
  };
  mca("btl", "tcp,self");
  mca("btl_tcp_if_include", interface);
  mca("oob_tcp_if_include", interface);
  mca("mpi_yield_when_idle", "1");
  mca("orte_keep_fqdn_hostnames", "1");
  if (shaped) {
    mca("plm_rsh_agent", "/bin/sh " + agent_path);
    mca("plm_rsh_no_tree_spawn", "1");
    out.emplace_back("--leave-session-attached");
  }
  return out;
}

// What it said first; empty: it did not run well.
std::string first_words(const std::vector<std::string>& command) {
  const std::string text = output_of(command).value_or("");
  return text.substr(0, text.find('\n'));
}

}  // namespace

Run record_mpi(const Cluster& cluster, const std::vector<int>& hosts, const MpiOptions& options) {
  const std::string script = options.script.substr(options.script.find_last_of('/') + 1);
  auto ranks = static_cast<int>(hosts.size());
  MemoryFile workload(options.workload);
  MemoryFile answer;
  MemoryFile partial;
  MemoryFile log;
  SharedMemory memory(sizeof(MpiShared));
  auto* shared = new (memory.data()) MpiShared{};
  double load = machine_load();
  auto play = [&](int rank, bool shaped) {
    shared->holder[rank] = ::getpid();
    shared->rendezvous.meet(0, ranks);
    while (rank > 0) ::pause();
    MemoryFile agent_file(shaped ? agent(hosts, *shared) : "");
    // Other processes find this one's files by its number.
    const auto path = [](const MemoryFile& f) {
      return fmt::format("/proc/{}/fd/{}", ::getpid(), f.descriptor());
    };
    for (const auto& [name, value] : options.environment) set_variable(name.c_str(), value);
    set_variable("OMPI_ALLOW_RUN_AS_ROOT", "1");
    set_variable("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    std::vector<std::string> command = mpirun(hosts, shaped, path(agent_file));
    for (const auto& [name, value] :
         {std::pair{"PYTHONDONTWRITEBYTECODE", "1"}, std::pair{"OMP_NUM_THREADS", "1"},
          std::pair{"DDPSIM_HOSTS", shaped ? "namespaces" : "loopback"}})
      command.insert(command.end(), {"-x", fmt::format("{}={}", name, value)});
    command.insert(command.end(), kBound.begin(), kBound.end());
    command.insert(command.end(), {options.python, options.script, "--out", path(answer)});
    if (!options.workload.empty())
      command.insert(command.end(), {"--workload", path(workload)});
    else
      command.insert(command.end(), {"--partial", path(partial)});
    if (shaped)
      command.insert(command.end(), {"--hosts", fmt::format("{}", fmt::join(hosts, ","))});
    command.insert(command.end(), options.arguments.begin(), options.arguments.end());
    if (!shaped) become_command(command, log.descriptor(), log.descriptor());
    std::string line;
    for (const std::string& word : command) line += quoted(word) + " ";
    MemoryFile run("exec " + line + "\n");
    become_command({"/bin/sh", "-c", "exec " + as_host(hosts[0], "sh " + path(run))},
                   log.descriptor(), log.descriptor());
  };
  StageResult stage;
  try {
    stage =
        run_stage(cluster, hosts, 1, options.loopback, options.timeout_s, shared->rendezvous, play);
  } catch (const std::runtime_error& e) {
    std::string why = said(log.text(), script.substr(0, script.find('.')) + ": ");
    throw std::runtime_error(why.empty() ? e.what() : why);
  }
  const std::string text = stage.interrupted ? last_document(partial.text()) : answer.text();
  Run run = io::read_run(io::parse_json(text, script), script);
  Run here = measured_run(run.evidence, stage, load);
  here.origin.backend = "mpi";
  here.origin.compute = run.origin.compute;
  here.origin.software = run.origin.software;
  run.origin = here.origin;
  run.quality.load = std::max(run.quality.load, load);
  for (const std::string& why : here.quality.reasons) add_noise(run.quality, why);
  return run;
}

std::string open_mpi_version() {
  // "mpirun (Open MPI) 4.1.4"
  const std::string name = first_words({"mpirun", "--version"});
  if (name.find("(Open MPI)") == std::string::npos)
    throw std::runtime_error("there is no Open MPI here (Debian: openmpi-bin)");
  return name.substr(name.rfind(' ') + 1);
}

void require_mpi4py(const std::string& python) {
  if (first_words({python, "-c", "import mpi4py, numpy; print(mpi4py.__version__)"}).empty())
    throw std::runtime_error(
        python + " has no mpi4py (Debian: python3-mpi4py; or name another with --python)");
}

void require_horovod(const std::string& python) {
  const std::string asks = "import horovod.torch as h; print(int(h.mpi_built()))";
  const std::string built = first_words({python, "-c", asks});
  if (built != "0" && built != "1")
    throw std::runtime_error(python +
                             " has no Horovod for PyTorch (pip install horovod with "
                             "HOROVOD_WITH_PYTORCH=1 HOROVOD_WITH_MPI=1; or name another "
                             "interpreter with --python)");
  if (built == "0")
    throw std::runtime_error("the Horovod of " + python +
                             " was built without MPI (HOROVOD_WITH_MPI=1)");
}

}  // namespace ddpsim::calib
