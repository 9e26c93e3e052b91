// What `ddpsim goodput` was asked, as values; and what it says of the answer.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/goodput/interval.h"
#include "sim/io/codecs.h"

namespace ddpsim::cli {

// A time that was given, or is another's default.
struct GivenTime {
  goodput::Part part;
  std::string evidence;
  std::string source;
};

struct GoodputAnswer {
  std::string subject;  // "gpt2-small on hgx-h100" or "a job"
  std::string step_from;
  std::vector<std::string> notes;  // of the predicted step
  int ranks = 1;
  bool gpus = true;          // false: processes on CPUs
  int ranks_per_host = 1;    // of torchft: of a replica group
  double samples_per_s = 0;  // while the whole world trains; 0 = not known
  double gpu_mtbf_s = 0;
  std::int64_t checkpoint_bytes = 0;  // 0 = not asked for
  std::string checkpoint_text;
  bool checkpoints = true;  // false: none are made
  bool searched = false;    // the interval is the best played one
  std::uint64_t seed = 1;
  goodput::Job job;
  goodput::Courses courses;
  std::optional<double> expected;  // closed form
  std::string no_expected;         // why there is none
  std::optional<goodput::Intervals> intervals;
  std::vector<GivenTime> times;  // those that the recovery has
};

std::string goodput_text(const GoodputAnswer& a);
std::string goodput_csv(const GoodputAnswer& a);
io::OrderedJson goodput_json(const GoodputAnswer& a);

// "2.5 h", "3.1 days", "12 s".
std::string long_time(double seconds);

}  // namespace ddpsim::cli
