// Questions that differ in a few settings, of parts that they have in common (parts.h). load() is
// one of them; a sweep is many, asked by several threads.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "sim/door/parts.h"
#include "sim/door/question.h"

namespace ddpsim::door {

// What a question has besides the flags'; empty: nothing.
struct Choice {
  std::string workload;
  std::string cluster;
  std::string plan;
  std::string profile;
  std::string ranks;
  std::vector<io::Setting> settings;
};

struct Asked {
  std::shared_ptr<const WorkloadPart> workload;
  std::shared_ptr<const HardwarePart> hardware;
  std::vector<std::shared_ptr<const WorkloadPart>>
      others;        // of other_jobs; null: the same workload
  bool set = false;  // a --set line changed the workload
  Scenario scenario;
  std::shared_ptr<const GivenProgram> program;  // --program; null: the plan is lowered
  io::Json document;                            // scenario, flags and choice applied
  std::shared_ptr<predict::KnownTimes> times;   // of workload and profile; null: of this question
                                                // only
  predict::Options options;                     // `known`: the hardware's
  predict::Question question() const {
    return {workload->workload, *hardware->fabric, hardware->device->profile, scenario};
  }
};

// The path of a shipped scenario or program; any other name as it is.
std::string shipped_scenario(const io::Home& home, const std::string& name);

// A choice that takes the place of the workload or of the device keeps no measured step; any other
// takes the factor that was found without it.
class Loader {
 public:
  // Throws InputError.
  Loader(Context context, const QuestionText& flags);
  // Throws InputError. May be called by several threads.
  Asked ask(const Choice& choice);
  // Whether the flags or the scenario hold a measured step. Throws InputError.
  bool measured();

 private:
  bool takes_as_named();
  struct Read;
  Read read(const Choice& choice);
  std::vector<std::string> own_knobs(const QuestionText& flags);
  std::shared_ptr<const Asked> measured_work();
  void scale_to_measured(Read& read, Asked& out);
  void place_on_hosts(Read& read, Asked& out);
  Context context_;
  QuestionParts parts_;
  QuestionText flags_;
  io::Json scenario_;
  std::string scenario_file_;
  std::string folder_;
  std::mutex lock_;
  bool names_system_ = false;  // --set does
  bool placed_ = false;        // what place_on_hosts() does was told
  std::shared_ptr<const Asked> measured_work_;
};

}  // namespace ddpsim::door
