// Sources: PyTorch torch/distributed/run.py, elastic/agent/server/api.py (_invoke_run),
// elastic/multiprocessing/api.py (_close), elastic/rendezvous/dynamic_rendezvous.py; Horovod 0.28
// runner/elastic/driver.py, common/elastic.py; torchft src/lighthouse.rs (quorum_compute),
// torchft/manager.py. Measured: calib/elastic.
#include "sim/goodput/recovery.h"

#include <algorithm>

#include "sim/units/by.h"

namespace ddpsim::goodput {
namespace {

constexpr const char* kMeasured = "measured";
constexpr const char* kUpstream = "upstream default";
constexpr const char* kComputed = "computed";
constexpr const char* kRecord =
    "median of torchrun's recoveries in calib/elastic: PyTorch 1.13, Gloo, one host, CPU";

constexpr std::array<PartRecord, kParts> kTable{{
    {Part::MonitorInterval, "monitor_interval", kMillisecond * 100, kUpstream,
     "torchrun --monitor_interval of PyTorch 2; 5 s in 1.13",
     "an agent looks at its workers so often; 0 to all of it passes before it sees one missing",
     true, false, true},
    {Part::CollectiveTimeout, "collective_timeout", kSecond * 600, kUpstream,
     "ProcessGroupNCCL; 30 min of Gloo and others",
     "after which a worker gives up a collective whose peer is silent: a hang, or a lost host",
     true, false, false},
    {Part::WatchdogPoll, "watchdog_poll", kMillisecond * 100, kUpstream, "ProcessGroupNCCL",
     "NCCL's watchdog looks so often for a collective that is too late", true, false, false},
    {Part::KeepAlive, "keep_alive", kSecond * 15, kUpstream,
     "c10d rendezvous: 3 heartbeats of 5 s that do not come",
     "a lost host counts as there for so long", true, false, false},
    {Part::Teardown, "teardown", kMillisecond * 95, kMeasured, kRecord,
     "from SIGTERM to the other workers until all have ended", true, false, true},
    {Part::Rendezvous, "rendezvous", kMillisecond * 140, kMeasured, kRecord,
     "agents that all are there agree on ranks; of Horovod not executed", true, true, true},
    {Part::LastCall, "last_call_timeout", kSecond * 30, kUpstream, "c10d rendezvous",
     "the rendezvous of a job that may be larger waits so long for more hosts", true, false, false},
    {Part::ProcessStart, "process_start", kMillisecond * 50, kMeasured, kRecord,
     "from the agent's start of the workers until the script's first line", true, true, true},
    {Part::ImportTorch, "import_torch", kMillisecond * 640, kMeasured,
     "median CPU time of it in calib/elastic: a CPU build of PyTorch 1.13, files in memory",
     "import of torch, the model's code and data loaders; times workers / cores where there are "
     "more workers",
     true, true, true},
    {Part::ProcessGroup, "process_group", kMillisecond * 890, kMeasured, kRecord,
     "init_process_group and the first communicator; NCCL's of many GPUs was not executed: give it",
     true, true, true},
    {Part::Construct, "construct", kMillisecond * 95, kMeasured, kRecord,
     "DistributedDataParallel(...): shapes and weights are compared and broadcast (21 MB there)",
     true, false, false},
    {Part::Restore,
     "restore",
     {},
     kComputed,
     "the checkpoint's bytes / the storage's bandwidth",
     "the last checkpoint is read",
     true,
     false,
     false},
    {Part::FirstStep, "first_step", kMillisecond * 8, kMeasured, kRecord,
     "by which the first step is longer than the others", true, false, false},
    {Part::ConnectionError, "connection_error", kMillisecond * 100, kMeasured,
     "Gloo's peers saw the closed connection after 0.07 to 0.16 s (executed, PyTorch 1.13)",
     "until survivors see that a process is gone", false, true, true},
    {Part::GlooTimeout, "gloo_timeout", kSecond * 30, kUpstream, "HOROVOD_GLOO_TIMEOUT_SECONDS",
     "until survivors see that a host is gone, or hangs", false, true, false},
    {Part::Discovery, "discovery_interval", kSecond, kUpstream,
     "Horovod's driver, DISCOVER_HOSTS_FREQUENCY_SECS",
     "the driver asks so often which hosts there are", false, true, false},
    {Part::Sync,
     "sync",
     {},
     kComputed,
     "the state's bytes / the bandwidth of a host's network",
     "a survivor sends weights and optimizer state",
     false,
     true,
     true},
    {Part::ManagerTimeout, "manager_timeout", kSecond * 60, kUpstream, "torchft Manager(timeout)",
     "until survivors give up a collective whose peer is silent: a hang, or a lost host", false,
     false, true},
    {Part::HeartbeatTimeout, "heartbeat_timeout", kSecond * 5, kUpstream,
     "torchft lighthouse --heartbeat_timeout_ms",
     "the lighthouse waits so long for a group that was there", false, false, true},
    {Part::QuorumTick, "quorum_tick", kMillisecond * 100, kUpstream,
     "torchft lighthouse --quorum_tick_ms", "the lighthouse looks so often", false, false, true},
}};

Duration part_of(Duration d, int numerator, int denominator) {
  return {static_cast<std::int64_t>(static_cast<__int128>(d.ps) * numerator / denominator)};
}

// The workers' own start, up to the state.
void add_start(std::vector<Delay>& out, const Times& t) {
  out.push_back({Spent::ProcessStart, t[Part::ProcessStart], {}});
  out.push_back({Spent::ImportTorch, t[Part::ImportTorch], {}});
}

// The other agents see on their own poll that somebody waits for them, and stop their workers. The
// last of h - 1 polls comes after (h - 1) / h of the interval, in the mean.
void add_other_agents(std::vector<Delay>& out, const Times& t, int hosts) {
  if (hosts < 2) return;
  out.push_back({Spent::Rendezvous, part_of(t[Part::MonitorInterval], hosts - 1, hosts), {}});
  out.push_back({Spent::Teardown, t[Part::Teardown], {}});
}

void add_restart(std::vector<Delay>& out, const Times& t, const Circumstances& c,
                 Duration longer = {}) {
  const Duration last_call = c.complete ? Duration{} : t[Part::LastCall];
  out.push_back({Spent::Rendezvous, t[Part::Rendezvous] + longer + last_call, {}});
  add_start(out, t);
  out.push_back({Spent::ProcessGroup, t[Part::ProcessGroup], {}});
  out.push_back({Spent::Construct, t[Part::Construct], {}});
  out.push_back({Spent::Restore, t[Part::Restore], {}});
  out.push_back({Spent::FirstStep, t[Part::FirstStep], {}});
}

std::vector<Delay> torchrun(const Times& t, const Circumstances& c) {
  std::vector<Delay> out;
  Duration dropped;
  if (c.failure == Failure::Process) {
    out.push_back({Spent::Detection, {}, t[Part::MonitorInterval]});
    out.push_back({Spent::Teardown, t[Part::Teardown], {}});
    add_other_agents(out, t, c.hosts);
  } else {
    // Every agent's workers give up; the last of h polls.
    const Duration poll = part_of(t[Part::MonitorInterval], c.hosts, c.hosts + 1);
    out.push_back({Spent::Detection, t[Part::CollectiveTimeout] + poll, t[Part::WatchdogPoll]});
    out.push_back({Spent::Teardown, t[Part::Teardown], {}});
    if (c.failure == Failure::Host)
      dropped = std::max(Duration{}, t[Part::KeepAlive] - t[Part::CollectiveTimeout]);
  }
  add_restart(out, t, c, dropped);
  return out;
}

// Survivors keep their processes; who replaces a lost one has to start, and all wait for it.
std::vector<Delay> horovod(const Times& t, const Circumstances& c) {
  const bool seen = c.failure == Failure::Process;
  std::vector<Delay> out{
      {Spent::Detection, t[seen ? Part::ConnectionError : Part::GlooTimeout], {}},
      {Spent::Detection, {}, t[Part::Discovery]},
      {Spent::Rendezvous, t[Part::Rendezvous], {}}};
  if (c.replaced) add_start(out, t);
  out.push_back({Spent::ProcessGroup, t[Part::ProcessGroup], {}});
  out.push_back({Spent::Restore, t[Part::Sync], {}});
  return out;
}

// A new quorum, when the lost group's heartbeats are old; the step is done again.
std::vector<Delay> torchft(const Times& t, const Circumstances& c) {
  const Duration seen =
      t[c.failure == Failure::Process ? Part::ConnectionError : Part::ManagerTimeout];
  return {{Spent::Detection, seen, {}},
          {Spent::Rendezvous, std::max(Duration{}, t[Part::HeartbeatTimeout] - seen),
           t[Part::QuorumTick]},
          {Spent::ProcessGroup, t[Part::ProcessGroup], {}}};
}

}  // namespace

const char* name_of(Recovery r) {
  constexpr By<Recovery, const char*, 3> kNames{"torchrun", "horovod_elastic", "torchft"};
  return kNames[r];
}

const char* name_of(Failure f) {
  constexpr By<Failure, const char*, 3> kNames{"process", "host", "hang"};
  return kNames[f];
}

const char* name_of(Spent s) {
  constexpr By<Spent, const char*, kSpent> kNames{
      "useful",    "missing_hosts", "checkpoint",    "lost_work",        "detection",
      "teardown",  "rendezvous",    "process_start", "import_torch",     "process_group",
      "construct", "restore",       "first_step",    "waiting_for_hosts"};
  return kNames[s];
}

const std::array<PartRecord, kParts>& parts() {
  return kTable;
}

bool has(Recovery r, const PartRecord& p) {
  switch (r) {
    case Recovery::Torchrun:
      return p.torchrun;
    case Recovery::HorovodElastic:
      return p.horovod;
    case Recovery::Torchft:
      break;
  }
  return p.torchft;
}

Times::Times() {
  for (const PartRecord& p : kTable) (*this)[p.part] = p.by_default;
}

std::vector<Delay> after_failure(const Times& t, const Circumstances& c) {
  switch (c.recovery) {
    case Recovery::Torchrun:
      return torchrun(t, c);
    case Recovery::HorovodElastic:
      return horovod(t, c);
    case Recovery::Torchft:
      break;
  }
  return torchft(t, c);
}

std::vector<Delay> after_joining(const Times& t, const Circumstances& c) {
  std::vector<Delay> out;
  switch (c.recovery) {
    case Recovery::Torchrun:
      out.push_back({Spent::Teardown, t[Part::Teardown], {}});
      add_other_agents(out, t, c.hosts);
      add_restart(out, t, c);
      return out;
    case Recovery::HorovodElastic:
      add_start(out, t);
      out.push_back({Spent::ProcessGroup, t[Part::ProcessGroup], {}});
      out.push_back({Spent::Restore, t[Part::Sync], {}});
      return out;
    case Recovery::Torchft:
      break;
  }
  return {{Spent::Rendezvous, {}, t[Part::QuorumTick]},
          {Spent::ProcessGroup, t[Part::ProcessGroup], {}}};
}

Duration rejoins_after(const Times& t) {
  return part_of(t[Part::MonitorInterval], 1, 2) + t[Part::Teardown] + t[Part::Rendezvous] +
         t[Part::ProcessStart] + t[Part::ImportTorch] + t[Part::ProcessGroup] + t[Part::Sync];
}

}  // namespace ddpsim::goodput
