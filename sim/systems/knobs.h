// What a user may choose of each system without changing what is computed: the knobs that a search
// (predict/tune.h) turns.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/model/plan.h"

namespace ddpsim::systems {

// A knob's setting: `text` as a plan and a training script write it; `number` is 0 for a choice.
struct KnobValue {
  std::string text;
  double number = 0;
};
struct Knob {
  std::string name;      // upstream
  std::string unit;      // "MiB", "bytes"; "" = a choice
  bool argument = true;  // of the framework's public interface; false: set behind its back
  bool listed = false;   // a search tries a list of settings, whatever the workload
};

// Of the plan's system; the first is the one that decides most.
std::vector<Knob> knobs(const Plan& plan);

// As the plan has it; none = left at its default.
std::optional<KnobValue> value_of(const Plan& plan, const Knob& knob);

// The plan with another setting. first_bucket_bytes leaves bucket_cap_mb at its default where the
// version would not read both (2.7 and later). REQUIRES: `knob` is one of knobs(plan), `value` from
// values() or parse_value().
Plan with(const Plan& plan, const Knob& knob, const KnobValue& value);

// What was typed, if it is a setting of the knob.
std::optional<KnobValue> parse_value(const Knob& knob, const std::string& text);

// Of bucket_cap_mb_list, wherever it is shown for an older PyTorch, which does not take it.
inline constexpr const char* kCapListWarning =
    "an argument from PyTorch 2.12 on (#169026), which this plan is not of";
inline bool takes_cap_list(const Plan& plan) {
  return plan.pytorch.has(pytorch::Change::CapForEachBucket);
}

// One setting for each list of buckets that the knob can make, ascending, each the roundest of
// those that make the same list. Buckets change at finitely many caps; where there are more than
// `most`, those that lie near to one another are left out.
std::vector<KnobValue> values(const Knob& knob, const Workload& workload, const Plan& plan,
                              std::size_t most = 2000);

// The roundest number r with least <= int(r * unit) < beyond. REQUIRES: 0 < least < beyond.
double roundest(std::int64_t least, std::int64_t beyond, double unit);

// The bucket_cap_mb_list that makes these buckets (bytes and bytes of the last tensor, in launch
// order), in round numbers. Order::Registration: DDP that never rebuilds. REQUIRES: one dtype.
struct BucketSize {
  std::int64_t bytes = 0;
  std::int64_t last_tensor = 0;  // that closes it, in the order in which limits are consumed
};
std::vector<double> cap_list(const std::vector<BucketSize>& buckets);

}  // namespace ddpsim::systems
