// A step depends on the cap through the list of buckets alone, so that there are finitely many
// settings to try: coarse to fine, as many as the budget allows.
#include "sim/predict/tune.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "sim/predict/joint_spread.h"
#include "sim/predict/partition.h"
#include "sim/strategy/bucketing.h"
#include "sim/strategy/systems.h"

namespace ddpsim::predict {
namespace {

using strategy::Knob;
using strategy::KnobValue;

constexpr double kFlat = 0.01;

std::string number_text(double v) {
  char text[40];
  std::snprintf(text, sizeof text, "%.10g", v);
  return text;
}

double fraction(Duration part, Duration whole) {
  return whole.ps > 0 ? static_cast<double>(part.ps) / static_cast<double>(whole.ps) : 0;
}

class Tuner {
 public:
  Tuner(const Question& q, const TuneOptions& t)
      : q_(q),
        ends_(with_joint_spread(q.workload, q.profile, q.scenario.ranks)),
        t_(t),
        options_(t.options) {
    if (!options_.known) options_.known = &own_;
    options_.jitter = true;
  }

  Tuning run() {
    out_.knob = t_.knob;
    all_ = search(t_.knob, t_.only, out_.curve);
    out_.candidates = all_.size();
    out_.best = best_of(out_.curve);
    out_.current = point(q_.scenario.plan, strategy::value_of(q_.scenario.plan, t_.knob));
    for (CurvePoint& p : out_.curve) interval(p, with(t_.knob, *p.value));
    interval(out_.current, q_.scenario.plan);
    flat();
    Plan best_plan = with(t_.knob, *out_.curve[out_.best].value);
    choose();
    search_other();
    out_.recommended_step = step(out_.recommended, Level::Mid);
    if (!q_.scenario.jitter) out_.bound = lower_bound(q_, options_);
    if (t_.partition) find_partition(best_plan);
    if (t_.levers) {
      Scenario s = q_.scenario;
      s.plan = out_.recommended;
      out_.levers = all_levers({q_.workload, q_.fabric, q_.profile, s}, options_);
    }
    say();
    return std::move(out_);
  }

 private:
  // The plan with the knob at a value: of what has buckets, a knob that is not the searched one
  // stays.
  Plan with(const Knob& knob, const KnobValue& v) const {
    return strategy::with(q_.scenario.plan, knob, v);
  }

  // The plans of a search differ in knobs only.
  Duration step(const Plan& plan, Level level) {
    std::string key = std::to_string(static_cast<int>(level));
    for (const Knob& k : strategy::knobs(plan))
      if (auto v = strategy::value_of(plan, k)) key += " " + k.name + "=" + v->text;
    for (double cap : plan.bucket_cap_mb_list) key += " " + std::to_string(cap * 1024 * 1024);
    auto [it, fresh] = steps_.try_emplace(key);
    if (!fresh) return it->second;
    Scenario s = q_.scenario;
    s.plan = plan;
    const Profile& p = level == Level::Mid ? q_.profile : ends_;
    return it->second = steady_period({q_.workload, q_.fabric, p, s}, level, options_);
  }
  CurvePoint point(const Plan& plan, std::optional<KnobValue> value) {
    CurvePoint p;
    p.value = std::move(value);
    p.step = step(plan, Level::Mid);
    if (auto count = strategy::record_of(plan.system).count) {
      p.buckets = count(q_.workload, plan);
    } else {
      Scenario s = q_.scenario;
      s.plan = plan;
      p.buckets = steady_step({q_.workload, q_.fabric, q_.profile, s}, Level::Mid, options_)
                      .program.steady.buckets.size();
    }
    return p;
  }

  // As predict() does.
  void interval(CurvePoint& p, const Plan& plan) {
    double r = q_.profile.step_residual;
    p.low = r > 0 ? scale(p.step, 1 - r) : p.step;
    p.high = r > 0 ? scale(p.step, 1 + r) : p.step;
    if (!interval_from_levels(q_)) return;
    for (Level level : {Level::High, Level::Low}) {
      Duration end = step(plan, level);
      p.low = std::min(p.low, end);
      p.high = std::max(p.high, end);
    }
  }

  Difference difference(const Plan& from, const Plan& to) {
    Difference d;
    double least = 0;  // of all levels, in the direction of `mid`
    for (auto [level, at] : {std::pair{Level::Mid, &d.mid}, std::pair{Level::Low, &d.low},
                             std::pair{Level::High, &d.high}}) {
      Duration before = step(from, level);
      *at = before - step(to, level);
      double gain = fraction(*at, before) * (d.mid.ps < 0 ? -1 : 1);
      least = level == Level::Mid ? gain : std::min(least, gain);
      if (level == Level::Mid) d.measurable = gain > std::max(kRepeats, q_.profile.step_residual);
    }
    d.measurable = d.measurable && least > kRepeats;
    return d;
  }

  // Of settings that predict less than the current one by more than steps repeat to, the shortest
  // that every level of the profile's ranges speaks for.
  void choose() {
    out_.recommended = q_.scenario.plan;
    out_.gain = difference(q_.scenario.plan, with(t_.knob, *out_.curve[out_.best].value));
    std::optional<Plan> none;
    out_.chosen = safest(t_.knob, all_, out_.curve, none);
    if (!out_.chosen) return;
    out_.recommended = with(t_.knob, *out_.curve[*out_.chosen].value);
    out_.gain = difference(q_.scenario.plan, out_.recommended);
  }

  // The index of the setting to recommend, over the plan as it is and, with `also`, over that one.
  std::optional<std::size_t> safest(const Knob& knob, const std::vector<KnobValue>& all,
                                    const std::vector<CurvePoint>& curve,
                                    const std::optional<Plan>& also) {
    std::vector<std::size_t> order(curve.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return curve[a].step < curve[b].step; });
    order.insert(order.begin(), best_of(curve));
    for (std::size_t i : order) {
      if (fraction(out_.current.step - curve[i].step, out_.current.step) <= kRepeats) break;
      Plan plan = with(knob, *curve[i].value);
      auto gains = [&](const Plan& over) {
        Difference d = difference(over, plan);
        return d.measurable && d.mid.ps > 0;
      };
      if (!gains(q_.scenario.plan) || (also && !gains(*also))) continue;
      if (!near_cliff(knob, all, curve[i])) return i;
      out_.cliffs = true;
    }
    return {};
  }

  // Whether a setting within kBeside has a measurably longer step. Where a user names the settings,
  // those are all that there are.
  bool near_cliff(const Knob& knob, const std::vector<KnobValue>& all, const CurvePoint& p) {
    if (!t_.only.empty() || knob.unit.empty()) return false;
    double at = p.value->number;
    std::vector<KnobValue> beside;
    for (const KnobValue& v : all)
      if (v.number != at && std::abs(v.number - at) <= kBeside * at) beside.push_back(v);
    // The buckets at both ends, which the list may name by a rounder setting further out.
    for (double end : {at * (1 - kBeside), at * (1 + kBeside)}) {
      double v = knob.unit == "bytes" ? std::floor(end) : end;
      if (v > 0) beside.insert(beside.begin(), {number_text(v), v});
    }
    std::size_t most = std::max<std::size_t>(8, budget() / 6);
    std::size_t stride = beside.size() / most + 1;
    for (std::size_t i = 0; i < beside.size(); i += i < 2 ? 1 : stride)
      if (fraction(step(with(knob, beside[i]), Level::Mid) - p.step, p.step) > kRepeats)
        return true;
    return false;
  }

  // Simulations that a search may take: a few ten thousand messages' worth of time each at
  // collective fidelity, all messages at the other.
  std::size_t budget() const {
    if (t_.simulations > 0) return static_cast<std::size_t>(t_.simulations);
    constexpr std::size_t kMost = 192;
    if (options_.fidelity == Fidelity::Collective) {
      // A simulation takes some 10 microseconds a gradient, and a setting's interval up to three.
      constexpr std::size_t kGradients = 300'000;
      std::size_t each = q_.workload.arrival.size() * (interval_from_levels(q_) ? 3 : 1);
      return std::clamp<std::size_t>(kGradients / std::max<std::size_t>(1, each), 8, kMost);
    }
    constexpr double kMessages = 10e6;
    return std::clamp<std::size_t>(
        static_cast<std::size_t>(kMessages / std::max(1.0, message_count(q_))), 16, kMost);
  }

  // Fills the curve; what could have been tried.
  std::vector<KnobValue> search(const Knob& knob, const std::vector<KnobValue>& only,
                                std::vector<CurvePoint>& curve) {
    std::vector<KnobValue> all =
        only.empty() ? strategy::values(knob, q_.workload, q_.scenario.plan) : only;
    std::map<std::size_t, CurvePoint> tried;
    auto attempt = [&](std::size_t i) {
      if (!tried.count(i)) tried.emplace(i, point(with(knob, all[i]), all[i]));
    };
    std::size_t most = only.empty() ? budget() : all.size();
    if (all.size() <= most) {
      for (std::size_t i = 0; i < all.size(); ++i) attempt(i);
    } else {
      for (double familiar : {1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 200.0}) {
        double v = knob.unit == "bytes" ? familiar * 1024 * 1024 : familiar;
        auto after =
            std::find_if(all.begin(), all.end(), [&](const KnobValue& k) { return k.number > v; });
        if (after != all.begin()) attempt(static_cast<std::size_t>(after - all.begin()) - 1);
      }
      std::size_t coarse = most / 2;
      for (std::size_t k = 0; k < coarse; ++k) attempt(k * (all.size() - 1) / (coarse - 1));
      refine(tried, most, attempt);
    }
    for (auto& [i, p] : tried) curve.push_back(std::move(p));
    return all;
  }

  // Halves the gaps beside the best points, the best first.
  template <class Attempt>
  static void refine(const std::map<std::size_t, CurvePoint>& tried, std::size_t most,
                     Attempt attempt) {
    while (tried.size() < most) {
      std::vector<std::pair<std::size_t, std::int64_t>> order;
      for (const auto& [i, p] : tried) order.push_back({i, p.step.ps});
      std::stable_sort(order.begin(), order.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
      std::size_t before = tried.size();
      for (const auto& [i, ps] : order) {
        auto at = tried.find(i);
        std::vector<std::size_t> middles;
        if (at != tried.begin() && i - std::prev(at)->first > 1)
          middles.push_back((i + std::prev(at)->first) / 2);
        if (std::next(at) != tried.end() && std::next(at)->first - i > 1)
          middles.push_back((i + std::next(at)->first) / 2);
        for (std::size_t m : middles) attempt(m);
        if (tried.size() > before) break;
      }
      if (tried.size() == before) return;
    }
  }

  // The shortest step; of a stretch around it that is as short to a tenth of a percent, the largest
  // value that keeps a factor of two from the stretch's upper end: few collectives, and no cliff
  // nearby.
  static std::size_t best_of(const std::vector<CurvePoint>& curve) {
    constexpr double kAlike = 0.001;
    auto it =
        std::min_element(curve.begin(), curve.end(),
                         [](const CurvePoint& a, const CurvePoint& b) { return a.step < b.step; });
    auto best = static_cast<std::size_t>(it - curve.begin());
    Duration limit = scale(it->step, 1 + kAlike);
    std::size_t from = best;
    std::size_t to = best;
    while (from > 0 && curve[from - 1].step <= limit) --from;
    while (to + 1 < curve.size() && curve[to + 1].step <= limit) ++to;
    for (std::size_t i = to + 1; i-- > from;)
      if (curve[i].value->number > 0 && curve[i].value->number <= curve[to].value->number / 2)
        return i;
    return best;
  }

  void flat() {
    Duration limit = scale(out_.curve[out_.best].step, 1 + kFlat);
    out_.flat_from = out_.flat_to = out_.best;
    while (out_.flat_from > 0 && out_.curve[out_.flat_from - 1].step <= limit) --out_.flat_from;
    while (out_.flat_to + 1 < out_.curve.size() && out_.curve[out_.flat_to + 1].step <= limit)
      ++out_.flat_to;
  }

  // The system's other knob. What it gains must be more than executed steps repeat to, over what
  // the first recommends, too.
  void search_other() {
    constexpr std::size_t kDear = 64;
    if (!t_.only.empty() || budget() < kDear) return;
    for (const Knob& k : strategy::knobs(q_.scenario.plan)) {
      if (k.name == t_.knob.name) continue;
      std::vector<CurvePoint> curve;
      std::vector<KnobValue> all = search(k, {}, curve);
      out_.other = k;
      std::optional<std::size_t> better;
      if (k.argument) better = safest(k, all, curve, out_.recommended);
      out_.other_is_better = better.has_value();
      out_.other_best = curve[better.value_or(best_of(curve))];
      Plan plan = with(k, *out_.other_best->value);
      interval(*out_.other_best, plan);
      if (out_.other_is_better) out_.recommended = plan;
      return;
    }
  }

  void find_partition(const Plan& best_plan);
  std::vector<Partition> worth_a_simulation(const PartitionProblem& problem,
                                            const BucketPrices& prices);
  TunedPartition listed(const Partition& p, const std::vector<TensorIndex>& order,
                        const Plan& plan) const;
  void say();
  void write_lines(const Plan& plan);
  static std::string label(const CurvePoint& p, const Knob& k) {
    return p.value ? k.name + "=" + p.value->text : k.name + " at its default";
  }

  const Question& q_;
  const Profile ends_;  // at levels other than Mid
  const TuneOptions& t_;
  Options options_;
  Communicators own_;
  std::map<std::string, Duration> steps_;
  std::vector<KnobValue> all_;  // settings of the searched knob that differ
  Tuning out_;
};

// Gradients in the order in which they are launched, each by itself.
std::vector<TensorIndex> launch_order(const Workload& w, Plan plan) {
  plan.bucket_cap_mb.reset();
  plan.bucket_cap_mb_list = {1.0 / (1024 * 1024)};
  std::vector<TensorIndex> order;
  for (const auto& b : strategy::steady_buckets(w, plan))
    order.insert(order.end(), b.begin(), b.end());
  return order;
}

// When each gradient lay in its bucket in a simulated step, and what was done with it after its
// reduction: on the rank that is last.
PartitionProblem problem_of(const SteadyStep& s, const Workload& w,
                            const std::vector<TensorIndex>& order, bool half) {
  std::vector<Duration> ready(w.tensors.size());
  std::vector<Duration> after(w.tensors.size());
  for (const Span& span : s.simulation.spans) {
    if (copies_in(span.kind))
      ready[span.tensors.front()] =
          std::max(ready[span.tensors.front()], span.end - s.simulation.spans_from);
    if (copies_out(span.kind))
      after[span.tensors.front()] = std::max(after[span.tensors.front()], span.end - span.begin);
  }
  PartitionProblem out;
  Duration latest;
  for (TensorIndex t : order) {
    latest = std::max(latest, ready[t]);
    out.ready.push_back(latest);
    out.bytes.push_back(half ? 2 * w.tensors[t].elements() : w.tensors[t].bytes().count);
    out.after.push_back(after[t]);
  }
  return out;
}

void Tuner::find_partition(const Plan& best_plan) {
  const Workload& w = q_.workload;
  if (best_plan.system != System::PytorchDdp || q_.scenario.ranks < 2) return;
  std::vector<TensorIndex> order = launch_order(w, best_plan);
  for (TensorIndex t : order)
    if (w.tensors[t].dtype != w.tensors[order.front()].dtype) {
      out_.no_partition =
          "gradients of several dtypes share one list of caps, so that not every partition can be "
          "had";
      return;
    }
  if (order.size() > kMostGradients) {
    out_.no_partition = "more than 1,000 gradients have too many partitions to look through";
    return;
  }
  bool half = best_plan.comm_hook == CommHook::Fp16Compress ||
              best_plan.comm_hook == CommHook::Bf16Compress;
  DType type = half ? DType::Float16 : w.tensors[order.front()].dtype;
  const collective::Communicator& comm =
      options_.known->get(q_, backend_of(best_plan, q_.profile.kind));
  auto price = [&](std::int64_t bytes) {
    return collective::all_reduce(comm, q_.profile, Level::Mid, Bytes{bytes}, type).alone;
  };
  std::optional<BucketPrices> prices;
  Scenario s = q_.scenario;
  s.plan = best_plan;
  // Ready times depend a little on the buckets (collectives slow computation): again from the first
  // answer's own.
  for (int round = 0; round < 2; ++round) {
    PartitionProblem problem = problem_of(
        steady_step({w, q_.fabric, q_.profile, s}, Level::Mid, options_), w, order, half);
    if (!prices) prices.emplace(problem.bytes, price);  // which a round does not change
    for (const Partition& p : worth_a_simulation(problem, *prices)) {
      TunedPartition found = listed(p, order, best_plan);
      Plan plan = best_plan;
      plan.bucket_cap_mb.reset();
      plan.bucket_cap_mb_list = found.list;
      found.step = step(plan, Level::Mid);
      if (!out_.partition || found.step < out_.partition->step) out_.partition = std::move(found);
    }
    s.plan.bucket_cap_mb.reset();
    s.plan.bucket_cap_mb_list = out_.partition->list;
  }
}

// The best with each number of buckets up to a few dozen, and the best of all; only those that the
// model expects to be near the best where simulations are dear.
std::vector<Partition> Tuner::worth_a_simulation(const PartitionProblem& problem,
                                                 const BucketPrices& prices) {
  constexpr std::size_t kCounts = 24;
  std::vector<Partition> list = best_partitions(problem, prices, kCounts);
  list.push_back(best_partition(problem, prices));
  std::stable_sort(list.begin(), list.end(),
                   [](const Partition& a, const Partition& b) { return a.end < b.end; });
  list.resize(std::min(list.size(), std::max<std::size_t>(4, budget() / 8)));
  return list;
}

TunedPartition Tuner::listed(const Partition& p, const std::vector<TensorIndex>& order,
                             const Plan& plan) const {
  const std::vector<Tensor>& tensors = q_.workload.tensors;
  bool registration = !strategy::rebuilds(
      plan);  // then limits are consumed in that order, the reverse of the launches
  std::vector<strategy::BucketSize> sizes;
  std::size_t from = 0;
  for (std::size_t end : p.ends) {
    strategy::BucketSize b;
    for (std::size_t i = from; i < end; ++i) b.bytes += tensors[order[i]].bytes().count;
    b.last_tensor = tensors[registration ? order[from] : order[end - 1]].bytes().count;
    sizes.push_back(b);
    from = end;
  }
  TunedPartition out;
  for (const auto& b : sizes) out.buckets.push_back(b.bytes);
  if (registration) std::reverse(sizes.begin(), sizes.end());
  out.list = strategy::cap_list(sizes);
  out.model = p.end;
  return out;
}

std::string percent(double v) {
  char text[40];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * v);
  return text;
}

void Tuner::say() {
  const CurvePoint& best = out_.curve[out_.best];
  const Plan& plan = out_.recommended;
  Duration gain = out_.current.step - out_.recommended_step;
  bool stays = !out_.other_is_better && !out_.chosen;
  if (out_.curve.front().step == out_.curve.back().step && best.step == out_.curve.front().step &&
      best.step == out_.current.step) {
    out_.verdict =
        out_.knob.name + " makes no difference here: every setting predicts the same step";
  } else if (stays) {
    double gain_of_best = fraction(out_.gain.mid, out_.current.step);
    std::string steps = label(best, out_.knob) + " predicts " + to_string(best.step) +
                        ", the plan as it is " + to_string(out_.current.step);
    if (out_.cliffs)
      out_.verdict = "no setting that keeps its gain: " + steps + ", and settings within " +
                     percent(kBeside) + " of one that gains lose it again";
    else
      out_.verdict =
          "no difference you could measure: " + steps +
          (gain_of_best > kRepeats ? ", a gain that lies inside the profile's uncertainty" : "");
  } else {
    const CurvePoint& p = out_.other_is_better ? *out_.other_best : out_.curve[*out_.chosen];
    out_.verdict = label(p, out_.other_is_better ? out_.other : out_.knob) + " makes the step " +
                   to_string(gain) + " (" + percent(fraction(gain, out_.current.step)) +
                   ") shorter: " + to_string(p.step) + " instead of " +
                   to_string(out_.current.step);
    // Nothing to paste: a script would have to reach behind the framework's interface.
    if (!(out_.other_is_better ? out_.other : out_.knob).argument) return;
  }
  write_lines(plan);
}

// Public arguments and variables only.
void Tuner::write_lines(const Plan& plan) {
  if (plan.system != System::PytorchDdp || backend_of(plan, q_.profile.kind) == Backend::Tcp)
    return;
  for (const auto& [name, value] : plan.environment)
    out_.lines.push_back("os.environ[\"" + name + "\"] = \"" + value +
                         "\"  # before init_process_group");
  std::string arguments = "model, device_ids=[local_rank]";
  if (q_.profile.kind == DeviceKind::Cpu) arguments = "model";
  if (plan.bucket_cap_mb) arguments += ", bucket_cap_mb=" + number_text(*plan.bucket_cap_mb);
  if (!plan.bucket_cap_mb_list.empty()) {
    out_.lines.push_back(std::string("# bucket_cap_mb_list: ") + strategy::kCapListWarning);
    std::string list;
    for (double cap : plan.bucket_cap_mb_list)
      list += (list.empty() ? "" : ", ") + number_text(cap);
    arguments += ", bucket_cap_mb_list=[" + list + "]";
  }
  if (plan.gradient_as_bucket_view) arguments += ", gradient_as_bucket_view=True";
  if (!plan.broadcast_buffers) arguments += ", broadcast_buffers=False";
  if (plan.find_unused_parameters) arguments += ", find_unused_parameters=True";
  if (plan.static_graph) arguments += ", static_graph=True";
  out_.lines.push_back("ddp = torch.nn.parallel.DistributedDataParallel(" + arguments + ")");
  const char* hook = plan.comm_hook == CommHook::Fp16Compress   ? "fp16_compress_hook"
                     : plan.comm_hook == CommHook::Bf16Compress ? "bf16_compress_hook"
                     : plan.comm_hook == CommHook::AllReduce    ? "allreduce_hook"
                                                                : nullptr;
  if (hook)
    out_.lines.push_back(std::string("ddp.register_comm_hook(None, "
                                     "torch.distributed.algorithms.ddp_comm_hooks.default_hooks.") +
                         hook + ")");
}

}  // namespace

Tuning tune(const Question& q, const TuneOptions& options) {
  return Tuner(q, options).run();
}

}  // namespace ddpsim::predict
