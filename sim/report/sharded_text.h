// What `ddpsim tune` prints of a plan that shards: the answer first, then settings beside one
// another.
#pragma once

#include <string>

#include "sim/predict/tune_sharded.h"
#include "sim/report/tuning_text.h"

namespace ddpsim::report {

std::string sharded_page(const TuningHeading& h, const predict::ShardedTuning& t,
                         const predict::Scaling* scaling);
std::string sharded_markdown(const TuningHeading& h, const predict::ShardedTuning& t);
// Every plan that was simulated; in each row whose numbers it is from.
std::string sharded_csv(const predict::ShardedTuning& t, const Profile& profile,
                        const Workload& workload);

}  // namespace ddpsim::report
