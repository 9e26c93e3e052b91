// low, high: the step with every range's low, and with every range's high, in place of
// latency and message_core.
#include "sim/predict/message_range.h"

#include <algorithm>

#include "sim/systems/base/record.h"

namespace ddpsim::predict {
namespace {

constexpr double kMatters = 0.01;  // of the step: what is worth a sentence

bool matters(Duration difference, Duration step) {
  return static_cast<double>(difference.ps) > kMatters * static_cast<double>(step.ps);
}

template <class Change>
Duration step_with(const Question& q, Options options, Change change) {
  Profile profile = q.profile;
  for (auto& [name, t] : profile.transports) change(t);
  options.known = nullptr;  // they are of the question's own profile
  options.jitter = false;
  return steady_period({q.workload, q.fabric, profile, q.scenario}, Level::Mid, options);
}

Duration step_at(const Question& q, const Options& options, Duration DurationRange::*end) {
  return step_with(q, options, [end](TransportSection& t) {
    if (!t.occasions) return;
    t.latency = t.occasions->latency.*end;
    t.message_core = t.occasions->message_core.*end;
  });
}

// Of the fabric's transports, the first that `is` holds for.
template <class Is>
const TransportSection* find_transport(const Question& q, Is is) {
  for (const std::string& name : q.fabric.transports())
    if (auto it = q.profile.transports.find(name);
        it != q.profile.transports.end() && is(it->second))
      return &it->second;
  return nullptr;
}

std::string from_to(Duration low, Duration high) {
  return to_string(low) + " to " + to_string(high);
}

}  // namespace

std::optional<MessageRange> message_range(const Question& q, Duration step,
                                          const Options& options) {
  if (q.scenario.ranks < 2) return {};
  const TransportSection* t =
      find_transport(q, [](const TransportSection& s) { return s.occasions.has_value(); });
  if (!t) return {};
  Duration quick = step_at(q, options, &DurationRange::low);
  Duration slow = step_at(q, options, &DurationRange::high);
  MessageRange out{std::min({step, quick, slow}), std::max({step, quick, slow}), {}};
  if (!matters(out.high - out.low, step)) return out;
  const Occasions& o = *t->occasions;
  out.sentence = "what a message costs beside its bytes is how a machine schedules its threads: " +
                 from_to(o.latency.low, o.latency.high) + " on " + std::to_string(o.count) +
                 " occasions, with which the step takes " + from_to(out.low, out.high) +
                 "; another occasion may be outside";
  return out;
}

std::string seen_on_one_occasion(const Question& q, Duration step, const Options& options) {
  bool shared = q.fabric.cluster().emulated_on_cores > 0 && q.scenario.ranks > 1;
  if (!shared || backend_of(q.scenario.plan, q.fabric.cluster().device) != Backend::Gloo) return {};
  const TransportSection* t = find_transport(q, [](const TransportSection& s) {
    return s.basis == Evidence::Measured && !s.occasions && s.latency.ps > 0;
  });
  if (!t) return {};
  Duration without =
      step_with(q, options, [](TransportSection& s) { s.latency = s.message_core = Duration{}; });
  if (!matters(step - without, step)) return {};
  return "what a message costs beside its bytes (" + to_string(t->latency) +
         ") is how a machine schedules its threads, and was seen on one occasion: without it the "
         "step takes " +
         to_string(without) + ", and by how much it differs on another is not known";
}

}  // namespace ddpsim::predict
