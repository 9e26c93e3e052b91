#include "sim/io/write_sharded_tuning.h"

namespace ddpsim::io {
namespace {

OrderedJson row(const predict::ShardedTuning& t, std::size_t k) {
  const predict::TriedPlan& p = t.tried[k];
  OrderedJson j;
  for (std::size_t d = 0; d < t.decisions.size(); ++d)
    j["settings"][t.decisions[d].name] = p.settings[d];
  j["step_ps"] = p.step.ps;
  j["exposed_communication_ps"] = p.exposed.ps;
  j["memory_bytes"] = p.device;
  j["memory_high_bytes"] = p.device_high;
  j["fits"] = t.capacity > 0 ? OrderedJson(p.fits) : OrderedJson(nullptr);
  return j;
}
OrderedJson row(const predict::ShardedTuning& t, const std::optional<std::size_t>& k) {
  return k ? row(t, *k) : OrderedJson(nullptr);
}

}  // namespace

OrderedJson write_sharded_tuning(const predict::ShardedTuning& t) {
  OrderedJson j;
  j["schema"] = "ddpsim.sharded_tuning/1";
  j["kind"] = "tune";
  j["knobs"] = OrderedJson::array();
  for (const systems::Decision& d : t.decisions) j["knobs"].push_back(d.name);
  j["search"] = t.decisions.size() > 1 ? "coordinate descent" : "every setting";
  j["simulations"] = t.tried.size();
  j["rounds"] = t.rounds;
  j["refused"] = t.refused;
  j["memory_limit_bytes"] = t.capacity > 0 ? OrderedJson(t.capacity) : OrderedJson(nullptr);
  j["current"] = row(t, t.current);
  j["recommended"] = row(t, t.recommended);
  j["best"] = row(t, t.best);
  j["shortest"] = row(t, t.shortest);
  j["leanest"] = row(t, t.leanest);
  j["gain"] = {{"mid_ps", t.gain.mid.ps},
               {"low_ps", t.gain.low.ps},
               {"high_ps", t.gain.high.ps},
               {"measurable", t.gain.measurable}};
  j["around"] = OrderedJson::array();
  for (const predict::Around& a : t.around) {
    OrderedJson one = row(t, a.tried);
    one["knob"] = t.decisions[a.decision].name;
    one["value"] = a.setting;
    j["around"].push_back(std::move(one));
  }
  j["partitions"] = OrderedJson::array();
  for (const auto& p : t.proposed)
    j["partitions"].push_back(
        {{"blocks", p.blocks}, {"model_ps", p.model.ps}, {"step_ps", t.tried[p.tried].step.ps}});
  j["tried"] = OrderedJson::array();
  for (std::size_t k = 0; k < t.tried.size(); ++k) j["tried"].push_back(row(t, k));
  j["lines"] = t.lines;
  j["verdict"] = t.verdict;
  return j;
}

}  // namespace ddpsim::io
