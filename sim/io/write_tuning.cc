#include "sim/io/write_tuning.h"

namespace ddpsim::io {
namespace {

// A number as a number, a choice as text; null = left at its default.
OrderedJson value(const std::optional<systems::KnobValue>& v, const systems::Knob& knob) {
  if (!v) return nullptr;
  return knob.unit.empty() ? OrderedJson(v->text)
         : v->number == static_cast<double>(static_cast<std::int64_t>(v->number))
             ? OrderedJson(static_cast<std::int64_t>(v->number))
             : OrderedJson(v->number);
}

OrderedJson point(const predict::CurvePoint& p, const systems::Knob& knob) {
  return {{"value", value(p.value, knob)},
          {"step_ps", p.step.ps},
          {"low_ps", p.low.ps},
          {"high_ps", p.high.ps},
          {"buckets", p.buckets}};
}

}  // namespace

OrderedJson write_scaling(const predict::Scaling& s) {
  OrderedJson j;
  j["price_per_gpu_hour"] = s.price_per_hour;
  j["epoch_samples"] = s.epoch_samples;
  j["deadline_s"] = s.deadline_s > 0 ? OrderedJson(s.deadline_s) : OrderedJson(nullptr);
  j["by_ranks"] = OrderedJson::array();
  for (const predict::RankCount& r : s.counts)
    j["by_ranks"].push_back({{"ranks", r.ranks},
                             {"step_ps", r.step.ps},
                             {"samples_per_s", r.samples_per_s},
                             {"efficiency", r.efficiency},
                             {"steps", r.epoch.steps},
                             {"last_batch", r.epoch.last_batch},
                             {"epoch_s", r.epoch_s},
                             {"epoch_cost", r.epoch_cost}});
  j["cheapest_in_time"] =
      s.cheapest ? OrderedJson(s.counts[*s.cheapest].ranks) : OrderedJson(nullptr);
  return j;
}

OrderedJson write_tuning(const predict::Tuning& t, const predict::Scaling* scaling) {
  OrderedJson j;
  j["schema"] = "ddpsim.tuning/1";
  j["kind"] = "tune";
  j["knob"] = t.knob.name;
  j["unit"] = t.knob.unit;
  j["candidates"] = t.candidates;
  j["curve"] = OrderedJson::array();
  for (const auto& p : t.curve) j["curve"].push_back(point(p, t.knob));
  const predict::CurvePoint& best = t.curve[t.best];
  j["best"] = point(best, t.knob);
  j["current"] = point(t.current, t.knob);
  j["chosen"] = t.chosen ? point(t.curve[*t.chosen], t.knob) : OrderedJson(nullptr);
  j["gain"] = {{"mid_ps", t.gain.mid.ps},
               {"low_ps", t.gain.low.ps},
               {"high_ps", t.gain.high.ps},
               {"measurable", t.gain.measurable}};
  j["flat"] = {{"from", value(t.curve[t.flat_from].value, t.knob)},
               {"to", value(t.curve[t.flat_to].value, t.knob)}};
  j["lower_bound_ps"] = t.bound ? OrderedJson(t.bound->step.ps) : OrderedJson(nullptr);
  if (t.bound)
    j["lower_bound"] = {{"compute_ps", t.bound->compute.ps},
                        {"communication_ps", t.bound->communication.ps},
                        {"tail_ps", t.bound->tail.ps}};
  if (t.bound && t.bound->input.ps > 0) j["lower_bound"]["input_ps"] = t.bound->input.ps;
  j["partition"] = nullptr;
  if (t.partition)
    j["partition"] = {{"buckets", t.partition->buckets},
                      {"step_ps", t.partition->step.ps},
                      {"model_ps", t.partition->model.ps},
                      {"bucket_cap_mb_list", t.partition->list}};
  if (t.partition && !systems::takes_cap_list(t.recommended))
    j["partition"]["warning"] = systems::kCapListWarning;
  if (!t.no_partition.empty()) j["no_partition"] = t.no_partition;
  j["other"] = nullptr;
  if (t.other_best) {
    j["other"] = point(*t.other_best, t.other);
    j["other"]["knob"] = t.other.name;
    j["other"]["better"] = t.other_is_better;
  }
  j["recommended_step_ps"] = t.recommended_step.ps;
  j["levers"] = OrderedJson::array();
  for (const predict::Lever& l : t.levers)
    j["levers"].push_back({{"change", l.change},
                           {"command", l.command},
                           {"step_ps", l.step.ps},
                           {"samples", l.samples}});
  if (scaling) j["scaling"] = write_scaling(*scaling);
  j["lines"] = t.lines;
  j["verdict"] = t.verdict;
  return j;
}

}  // namespace ddpsim::io
