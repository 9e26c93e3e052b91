#include <cmath>

#include "calib/fit/kernels.h"
#include "calib/fit/operators.h"
#include "sim/model/gpu_name.h"

namespace ddpsim::calib {
namespace {

constexpr double kSameMemory = 0.1;

}  // namespace

std::string refused(const Profile& base, const std::vector<const Run*>& runs) {
  for (const Run* run : runs) {
    std::string key = run->key.empty() ? "a Run" : "Run " + run->key;
    if (run->quality.verdict == Verdict::Noisy)
      return key + " is noisy" +
             (run->quality.reasons.empty() ? "" : " (" + run->quality.reasons.front() + ")") +
             "; measure again, or leave it out of the folder";
    if (names_differ(run->origin.gpu, base.hardware))
      return key + " is of " + run->origin.gpu + ", and base profile \"" + base.name + "\" of " +
             base.hardware + "; name the base of that GPU";
    std::int64_t mebibytes = gpu_size(run->origin.gpu).mebibytes;
    double capacity = static_cast<double>(base.memory.capacity.count) / (1 << 20);
    if (mebibytes > 0 && capacity > 0 &&
        std::abs(static_cast<double>(mebibytes) / capacity - 1) > kSameMemory)
      return key + " is of a GPU with " + std::to_string(mebibytes) + " MiB, and base profile \"" +
             base.name + "\" of one with " + std::to_string(base.memory.capacity.count >> 20) +
             "; name the base of that GPU";
  }
  return {};
}

}  // namespace ddpsim::calib
