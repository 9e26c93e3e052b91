// Workloads, profiles and clusters that questions have in common: a file is opened and read once,
// and what is alike is made once.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/door/documents.h"
#include "sim/door/question.h"
#include "sim/predict/known_times.h"

namespace ddpsim::door {

struct WorkloadPart {
  Workload workload;
  std::string name;  // as it was asked for
  std::string file;
  io::Json document;
};
struct ProfilePart {
  Profile profile;
  io::Json document;
};
struct HardwarePart {
  Cluster cluster;
  std::shared_ptr<const ProfilePart> device;
  std::optional<topology::Fabric> fabric;
  std::string file;  // the cluster's
  io::Json document;
  std::shared_ptr<const predict::SharedSearches> searches;  // shared by all clusters
  mutable predict::Communicators communicators;
};

// Where the parts of one question come from, and whom to blame.
struct PartSources {
  const Settings& settings;
  const QuestionText& flags;  // with the choice's in them
  const io::ScenarioFile& parsed;
  const std::string& file;    // the scenario's
  const std::string& folder;  // the scenario's, with a "/": a path inside it is relative to it

  std::string name(const std::string& flag, const std::string& in_file) const;
  // Throws InputError.
  Named open(const io::Home& home, const char* noun, const char* home_folder,
             const std::string& flag, const std::string& in_file) const;
};

// All of it may be called by several threads, and throws InputError.
class QuestionParts {
 public:
  explicit QuestionParts(io::Home home) : home_(std::move(home)) {}
  // The question's own, of the flags or of the scenario.
  std::shared_ptr<const WorkloadPart> workload(const PartSources& from) {
    return workload(from, from.parsed.workload, true);
  }
  // Another job's, by its name in the scenario: flags do not reach it.
  std::shared_ptr<const WorkloadPart> workload_of_job(const PartSources& from,
                                                      const std::string& name) {
    return workload(from, name, false);
  }
  std::shared_ptr<const HardwarePart> hardware(const PartSources& from);
  // REQUIRES: parts that this keeps.
  std::shared_ptr<predict::KnownTimes> times(const std::shared_ptr<const WorkloadPart>& workload,
                                             const std::shared_ptr<const ProfilePart>& device);
  // The document that --workload names, and whether this is the first to ask for it.
  std::pair<const Named&, bool> opened(const QuestionText& flags);

 private:
  std::shared_ptr<const WorkloadPart> workload(const PartSources& from, const std::string& in_file,
                                               bool own);
  std::pair<const Named&, bool> open(const QuestionText& flags);  // REQUIRES: lock_ is held
  std::shared_ptr<const ProfilePart> profile(const PartSources& from, const Cluster& cluster,
                                             const std::string& cluster_file);
  const io::Home home_;
  std::mutex lock_;
  std::map<std::string, Named> opened_;  // of --workload, by name
  std::map<std::string, std::shared_ptr<const WorkloadPart>> workloads_;
  std::map<std::string, std::shared_ptr<const ProfilePart>> profiles_;
  std::map<std::pair<const WorkloadPart*, const ProfilePart*>, std::shared_ptr<predict::KnownTimes>>
      times_;  // of those above, which stay
  std::map<std::string, std::shared_ptr<const HardwarePart>> hardware_;
  std::vector<std::string> hardware_order_;  // the oldest first
  std::size_t links_ = 0;                    // of all kept fabrics
  const std::shared_ptr<const predict::SharedSearches> searches_ =
      std::make_shared<predict::SharedSearches>();
};

}  // namespace ddpsim::door
