// NCCL's collectives as commands see them: tables on the clusters that they were measured on, and
// the judgement of them.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "calib/fit/by_machine.h"
#include "sim/validation/executed.h"
#include "tools/cmd/question.h"

namespace ddpsim::cli {

// Tables and what they point to.
struct Tables {
  std::deque<Run> runs;
  std::deque<topology::Fabric> fabrics;
  std::vector<calib::CollectiveTable> tables;
  std::vector<std::string> left_out;  // "name: why"
};
// Every Run of `folder` with a section "collectives" and a shipped cluster. Throws InputError for
// files that cannot be read. `instead`: the profile of all of them, in place of the one that each
// cluster names.
Tables load_tables(const Terminal& t, const std::string& folder, const Profile* instead = nullptr);

// A communicator on a cluster: --cluster, --profile, --ranks, --nccl, and --set for all three
// (NCCL_ALGO=ring goes to NCCL).
struct NcclFlags {
  QuestionFlags question;
  std::string version;
  std::string graph;  // file of what NCCL's search found; "": ddpsim's own search
};
void add_nccl_flags(Command& command, NcclFlags& flags);
struct NcclQuestion {
  Hardware hardware;
  std::optional<topology::Fabric> fabric;
  nccl::Settings settings;
  nccl::OwnedGroup group;  // points to `fabric`
  int ranks = 0;
  std::vector<DeviceId> devices;  // of each
};
// Throws InputError. Fills in place: the group must not outlive the question, nor the question
// move.
void load_nccl_question(const Terminal& t, const NcclFlags& flags, NcclQuestion& out);

// Devices of `ranks` ranks spread evenly over the first `hosts` hosts.
std::vector<DeviceId> spread(const Cluster& c, int ranks, int hosts);
// Of the setting's environment and version; before 2.5 there is no LL128.
nccl::Settings settings_of(const CollectiveSetting& s);

// All-reduces of folders of Runs that were played alone (ddpsim calibrate --collectives), beside
// the simulation of their messages. Throws InputError.
validation::ExecutedReport judge_executed(const Terminal& t,
                                          const std::vector<std::string>& folders);

std::string collectives_table(const calib::CollectiveReport& r,
                              const validation::ExecutedReport& e);
std::string collectives_markdown(const calib::CollectiveReport& r,
                                 const calib::MachineReport& machines,
                                 const validation::ExecutedReport& e);
io::OrderedJson collectives_json(const calib::CollectiveReport& r,
                                 const validation::ExecutedReport& e);

}  // namespace ddpsim::cli
