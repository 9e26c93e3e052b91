// What `ddpsim tune` prints: the answer first, then why.
#pragma once

#include <string>

#include "sim/tune/scaling.h"
#include "sim/tune/tune.h"

namespace ddpsim::report {

struct TuningHeading {
  std::string question;  // "resnet50, batch 32 per rank, fp32 on hgx-h100: 8 ranks"
  std::string profile;   // and its basis
  std::string interval;  // interval_sentence()
};

// Why a gain is not measurable. `step`: of the plan as it is.
std::string unsure(const predict::Difference& gain, Duration step);

std::string tuning_page(const TuningHeading& h, const predict::Tuning& t,
                        const predict::Scaling* scaling);
std::string tuning_markdown(const TuningHeading& h, const predict::Tuning& t,
                            const predict::Scaling* scaling);
// Ranks, what an epoch takes with them, and what it costs.
std::string scaling_table(const predict::Scaling& scaling);
// The curve; in each row whose numbers it is from.
std::string tuning_csv(const predict::Tuning& t, const Profile& profile, const Workload& workload);

}  // namespace ddpsim::report
