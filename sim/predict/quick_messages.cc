#include "sim/predict/quick_messages.h"

namespace ddpsim::predict {
namespace {

// A message beside its bytes: what fitted on another occasion, of the same sizes and rank counts as
// the profile's all-reduces.
constexpr Duration kQuickMessage{12'000'000};
constexpr double kMatters = 0.01;  // of the step

std::string milliseconds(Duration d) {
  std::string tenths = std::to_string((d.ps + 50'000'000) / 100'000'000);
  if (tenths.size() < 2) tenths.insert(0, 2 - tenths.size(), '0');
  return tenths.substr(0, tenths.size() - 1) + "." + tenths.back() + " ms";
}

}  // namespace

std::optional<Duration> with_quick_messages(const Question& q, Duration step, Options options) {
  bool shared = q.fabric.cluster().emulated_on_cores > 0 && q.scenario.ranks > 1;
  if (!shared || backend_of(q.scenario.plan, q.fabric.cluster().device) != Backend::Gloo) return {};
  Profile quick = q.profile;
  bool changed = false;
  for (auto& [name, t] : quick.transports) {
    if (t.basis != Evidence::Measured || t.latency <= kQuickMessage) continue;
    t.message_core = scale(
        t.message_core, static_cast<double>(kQuickMessage.ps) / static_cast<double>(t.latency.ps));
    t.latency = kQuickMessage;
    changed = true;
  }
  if (!changed) return {};
  options.known = nullptr;  // they are of the question's own profile
  Duration out = steady_period({q.workload, q.fabric, quick, q.scenario}, Level::Mid, options);
  if (static_cast<double>((step - out).ps) <= kMatters * static_cast<double>(step.ps)) return {};
  return out;
}

std::string uncertain_messages(Duration quick) {
  return "what Gloo's messages cost beside their bytes is how one machine scheduled its threads on "
         "one "
         "occasion; on another 12 us a message fitted, with which the step takes " +
         milliseconds(quick);
}

}  // namespace ddpsim::predict
