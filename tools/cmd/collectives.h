// NCCL's collectives as commands see them: tables on the clusters that they were measured on, and
// the judgement of them.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "calib/fit/collectives.h"
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
  nccl::OwnedGroup group;  // points to `fabric`
  int ranks = 0;
};
// Throws InputError. Fills in place: the group must not outlive the question, nor the question
// move.
void load_nccl_question(const Terminal& t, const NcclFlags& flags, NcclQuestion& out);

// Devices of `ranks` ranks spread evenly over the first `hosts` hosts.
std::vector<int> spread(const Cluster& c, int ranks, int hosts);
// Of the setting's environment and version; before 2.5 there is no LL128.
nccl::Settings settings_of(const CollectiveSetting& s);

// All-reduces that ddpsim's executor, or the real Gloo, played alone (ddpsim calibrate
// --collectives), beside the simulation of their messages. None was fitted. The two are never
// pooled.
struct ExecutedRow {
  std::string where;  // cluster, ranks, rank order
  Algorithm algorithm = Algorithm::Ring;
  std::int64_t bytes = 0;
  Duration measured;     // median
  double deviation = 0;  // median absolute deviation of the repetitions / their median
  bool gloo = false;     // the real Gloo, not ddpsim's executor
  Duration predicted;
};
inline constexpr double kRepeats = 0.02;  // largest deviation of what is said to repeat
struct ExecutedReport {
  std::vector<ExecutedRow> rows;
  std::size_t judged = 0;  // rows of 256 KiB and more
  double median = 0;       // of their |predicted / measured - 1|
  double p95 = 0;
  std::size_t ranked =
      0;  // pairs of algorithms, same place and size, whose times differ by more than 3 %
  std::size_t ranked_right = 0;
  std::size_t gloo_rows = 0;    // of 256 KiB and more
  std::size_t gloo_judged = 0;  // of these, that repeat
  double gloo_median = 0;
  double gloo_largest = 0;
};
ExecutedReport judge_executed(const Terminal& t, const std::string& folder);

std::string collectives_table(const calib::CollectiveReport& r, const ExecutedReport& e);
std::string collectives_markdown(const calib::CollectiveReport& r, const ExecutedReport& e);
io::OrderedJson collectives_json(const calib::CollectiveReport& r, const ExecutedReport& e);

}  // namespace ddpsim::cli
