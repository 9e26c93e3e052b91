// A cap c makes the same buckets as c' as long as every bucket that c closes (bytes >= c) is closed
// by c' at the same tensor: up to the smallest of those.
//   next cap that matters = min over closed buckets of bytes + 1
#include "sim/systems/knobs.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sim/systems/base/settings.h"
#include "sim/systems/ddp/bucketing.h"
#include "sim/systems/ddp/plan.h"
#include "sim/units/number.h"

namespace ddpsim::systems {
namespace {

constexpr double kMebi = 1024 * 1024;

// As its text says.
double rounded(double v) {
  return parse_number(number_text(v)).value_or(v);
}

bool is_cap(const Knob& k) {
  return k.name == "bucket_cap_mb";
}
bool is_first(const Knob& k) {
  return k.name == "first_bucket_bytes";
}
double unit_of(const Knob& k) {
  return is_cap(k) ? kMebi : 1;
}

KnobValue number(const Knob& k, double v) {
  if (k.unit == "bytes") return {std::to_string(static_cast<std::int64_t>(v)), v};
  return {number_text(v), rounded(v)};
}

const KnobRecord& record(const Knob& k) {
  for (const SystemRecord& s : all_systems())
    for (const KnobRecord& r : s.knobs)
      if (k.name == r.name) return r;
  return all_systems().front().knobs.front();  // REQUIRES: a knob of knobs()
}

// Of a knob without a unit.
std::vector<std::string> choices(const KnobRecord& r) {
  Plan plan;
  Field f = r.field(plan);
  if (auto* c = std::get_if<Choice>(&f)) return {c->names.begin(), c->names.end()};
  return {"false", "true"};
}

}  // namespace

std::vector<Knob> knobs(const Plan& plan) {
  std::vector<Knob> out;
  for (const KnobRecord& k : record_of(plan.system).knobs)
    if (k.searched)
      out.push_back({k.name, k.unit, std::string(k.name) != "first_bucket_bytes",
                     *k.unit == 0 || !k.tried.empty()});
  return out;
}

std::optional<KnobValue> value_of(const Plan& plan, const Knob& knob) {
  if (is_cap(knob))
    return ddp_of(plan).bucket_cap_mb
               ? std::optional(KnobValue{number_text(*ddp_of(plan).bucket_cap_mb),
                                         *ddp_of(plan).bucket_cap_mb})
               : std::nullopt;
  if (is_first(knob)) return number(knob, static_cast<double>(ddp_of(plan).first_bucket_bytes));
  std::string text = setting_of(plan, record(knob));
  if (text.empty()) return std::nullopt;
  return KnobValue{text, knob.unit.empty() ? 0 : parse_number(text).value_or(0)};
}

Plan with(const Plan& plan, const Knob& knob, const KnobValue& value) {
  Plan p = plan;
  if (is_cap(knob))
    ddp_of(p).bucket_cap_mb = value.number;
  else if (is_first(knob))
    ddp_of(p).first_bucket_bytes = static_cast<std::int64_t>(value.number);
  else
    p = with_setting(p, knob.name, value.text);
  if (is_cap(knob) || is_first(knob)) ddp_of(p).bucket_cap_mb_list.clear();
  if (is_first(knob) && plan.pytorch.has(pytorch::Change::CapHoldsForTheFirstBucket))
    ddp_of(p).bucket_cap_mb.reset();
  return p;
}

std::optional<KnobValue> parse_value(const Knob& knob, const std::string& text) {
  if (knob.unit.empty()) {
    const std::vector<std::string> known = choices(record(knob));
    bool is_one = std::find(known.begin(), known.end(), text) != known.end();
    return is_one ? std::optional(KnobValue{text}) : std::nullopt;
  }
  auto number = parse_number(text);
  if (!number) return std::nullopt;
  double v = *number;
  if (!record(knob).tried.empty())
    return v >= 0 && v <= 1e12 && (knob.unit == "ms" || v == std::floor(v))
               ? std::optional(KnobValue{text, v})
               : std::nullopt;
  if (!(v > 0 && v <= 1e12) || v * unit_of(knob) < 1) return std::nullopt;
  if (is_first(knob) && v != std::floor(v)) return std::nullopt;
  if (is_cap(knob) && v > 1e6) return std::nullopt;
  return KnobValue{text, v};
}

double roundest(std::int64_t least, std::int64_t beyond, double unit) {
  auto holds = [&](double v) {
    auto bytes = static_cast<std::int64_t>(rounded(v) * unit);
    return bytes >= least && bytes < beyond;
  };
  for (double power = 1e12; power > 1e-7; power /= 10)
    for (double step : {power, power / 2, power / 4}) {
      double v = std::ceil(static_cast<double>(least) / unit / step) * step;
      if (holds(v)) return rounded(v);
    }
  return static_cast<double>(least) / unit;  // exact: a power of two divides it
}

namespace {

// Caps at least one part in `steps` apart; 0 = all that make another list. Stops with more than
// `most`.
std::vector<KnobValue> caps(const Knob& knob, const Workload& w, const Plan& plan,
                            std::int64_t steps, std::size_t most) {
  constexpr std::int64_t kEnd = std::numeric_limits<std::int64_t>::max() / 4;
  std::vector<KnobValue> out;
  std::vector<std::vector<TensorIndex>> before;
  std::int64_t from = 1;  // the first cap that makes `before`
  auto add = [&](std::int64_t beyond) {
    out.push_back(number(knob, roundest(from, beyond, unit_of(knob))));
  };
  for (std::int64_t cap = 1; cap < kEnd && out.size() <= most;) {
    Plan p = with(plan, knob, {"", static_cast<double>(cap) / unit_of(knob)});
    auto buckets = steady_buckets(w, p);
    std::int64_t least = kEnd;
    for (const auto& b : buckets) {
      std::int64_t bytes = 0;
      for (TensorIndex t : b) bytes += w.tensors[t].bytes().count;
      if (bytes >= cap) least = std::min(least, bytes);
    }
    if (buckets != before) {
      if (!before.empty()) add(cap);
      before = std::move(buckets);
      from = cap;
    }
    cap = least == kEnd ? kEnd : std::max(least + 1, steps > 0 ? cap + cap / steps : cap);
  }
  add(4 * from);
  return out;
}

}  // namespace

std::vector<KnobValue> values(const Knob& knob, const Workload& w, const Plan& plan,
                              std::size_t most) {
  std::vector<KnobValue> out;
  if (knob.unit.empty()) {
    for (std::string& text : choices(record(knob))) out.push_back({std::move(text)});
    return out;
  }
  for (double v : record(knob).tried) out.push_back(number(knob, v));
  if (!out.empty()) return out;
  for (std::int64_t steps : {0, 1000, 200, 50}) {
    out = caps(knob, w, plan, steps, steps == 50 ? SIZE_MAX : most);
    if (out.size() <= most) break;
  }
  return out;
}

std::vector<double> cap_list(const std::vector<BucketSize>& buckets) {
  std::vector<double> out;
  for (const BucketSize& b : buckets)
    out.push_back(roundest(b.bytes - b.last_tensor + 1, b.bytes + 1, kMebi));
  return out;
}

}  // namespace ddpsim::systems
