// What `ddpsim tune` prints of a plan that shards: the answer first, then settings beside one
// another.
#pragma once

#include <string>

#include "sim/report/tuning_text.h"
#include "sim/tune/tune_sharded.h"

namespace ddpsim::report {

std::string sharded_page(const TuningHeading& h, const predict::ShardedTuning& t,
                         const predict::Scaling* scaling);
std::string sharded_markdown(const TuningHeading& h, const predict::ShardedTuning& t);
// Every plan that was simulated; in each row whose numbers it is from.
std::string sharded_csv(const predict::ShardedTuning& t, const Profile& profile,
                        const Workload& workload);

}  // namespace ddpsim::report
