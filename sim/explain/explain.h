// explain: why a step takes as long as it does.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "sim/explain/critical_path.h"
#include "sim/explain/diagnosis.h"
#include "sim/explain/tenths.h"

namespace ddpsim::predict {

struct BucketExposure {
  std::string name;  // "bucket 3"
  std::int64_t bytes = 0;
  Duration ready, begin, end;
  Duration exposed;  // as analysis::BucketTimes has it
};

struct Explanation {
  Duration step;            // of several steps their mean; exposed times are, too
  std::size_t counted = 1;  // steps
  Duration last;            // the last of them, whose path, tenths and times these are
  Diagnosis diagnosis;      // what decides
  int actor = 0;            // the rank that ends last
  std::vector<PathPart> path;
  bool reduces = true;  // all of these are all-reduces of gradients
  std::vector<BucketExposure> buckets;
  std::vector<analysis::OtherCommunication> others;  // that are exposed
  Duration exposed;  // communication of the step, as analysis::Summary has it: the sum over both
  std::array<Decile, 10> deciles;
  LinkUse link;  // the busiest of the step
  // The resource that decides so much faster, and another gains more from then on; none =
  // not up to 8 times, or nothing gains.
  std::optional<double> moves_at;
  std::optional<Resource> moves_to;
  std::vector<std::string> words;  // the path in sentences
};

// REQUIRES: check(q) found nothing.
Explanation explain(const Question& q, const Options& options = {});

}  // namespace ddpsim::predict
