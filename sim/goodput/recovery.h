// What a failure does to a job, phase by phase: torchrun, Horovod elastic, and recovery by the step
// as torchft has it. docs/model.md section 6.3 has the sequences and their sources.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/units/by.h"
#include "sim/units/units.h"

namespace ddpsim::goodput {

enum class Recovery : std::uint8_t { Torchrun, HorovodElastic, Torchft };
const char* name_of(Recovery r);  // "torchrun"

// What fails. Process: it ends, and its host is good. Host: it is gone. Hang: nothing ends.
enum class Failure : std::uint8_t { Process, Host, Hang };
const char* name_of(Failure f);

// Where time goes; a job's time is the sum.
enum class Spent : std::uint8_t {
  Useful,        // steps whose result stays, as much as the whole world makes of them
  Missing,       // the same steps: what hosts that are not there would have made
  Checkpoint,    // the job stands still for one
  LostWork,      // steps that were rolled back, and checkpoints that did not end
  Detection,     // nobody knows yet
  Teardown,      // workers are stopped
  Rendezvous,    // agents, hosts or replicas find one another
  ProcessStart,  // until the script's first line runs
  ImportTorch,
  ProcessGroup,  // connections of the collectives
  Construct,     // the wrapper: weights are broadcast
  Restore,       // the state is read, or sent by a survivor
  FirstStep,     // by which it is longer than the others
  Waiting        // for hosts: too few are there
};
inline constexpr std::size_t kSpent = 14;
const char* name_of(Spent s);  // "lost_work"

// Times that a recovery is made of, under the names that --phase takes.
enum class Part : std::uint8_t {
  MonitorInterval,
  CollectiveTimeout,
  WatchdogPoll,
  KeepAlive,
  Teardown,
  Rendezvous,
  LastCall,
  ProcessStart,
  ImportTorch,
  ProcessGroup,
  Construct,
  Restore,
  FirstStep,
  ConnectionError,
  GlooTimeout,
  Discovery,
  Sync,
  ManagerTimeout,
  HeartbeatTimeout,
  QuorumTick
};
inline constexpr std::size_t kParts = 20;

struct PartRecord {
  Part part;
  const char* name;                 // "import_torch"
  Duration by_default;              // 0 where it is computed of the job (Restore, Sync)
  const char* evidence;             // "measured", "upstream default", "computed", "not known"
  const char* source;               // one line
  const char* help;                 // one line
  bool torchrun, horovod, torchft;  // who has it
};
const std::array<PartRecord, kParts>& parts();
bool has(Recovery r, const PartRecord& p);

struct Times {
  By<Part, Duration, kParts> of;
  Times();  // every default
  Duration operator[](Part p) const { return of[p]; }
  Duration& operator[](Part p) { return of[p]; }
};

// A stretch in which nothing is trained: `fixed`, and a part of `random` that is uniform.
struct Delay {
  Spent spent;
  Duration fixed;
  Duration random;
};

struct Circumstances {
  Recovery recovery = Recovery::Torchrun;
  Failure failure = Failure::Process;
  int hosts = 1;         // that have to come together
  bool replaced = true;  // who was lost has somebody in its place, which has to start
  bool complete = true;  // as many as may be; false: torchrun waits for a last call
  friend bool operator==(const Circumstances&, const Circumstances&) = default;
};
// From the failure to the first step that is as long as any.
std::vector<Delay> after_failure(const Times& t, const Circumstances& c);
// Hosts come to a job that runs without them.
std::vector<Delay> after_joining(const Times& t, const Circumstances& c);
// Of torchft: what a replica group takes to come back while the others go on, after the others have
// noticed.
Duration rejoins_after(const Times& t);

}  // namespace ddpsim::goodput
