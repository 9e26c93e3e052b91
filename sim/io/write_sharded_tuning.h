// What `ddpsim tune --format json` writes of a plan that shards: `ddpsim.sharded_tuning/1`.
#pragma once

#include "sim/io/codecs.h"
#include "sim/tune/tune_sharded.h"

namespace ddpsim::io {

OrderedJson write_sharded_tuning(const predict::ShardedTuning& t);

}  // namespace ddpsim::io
