#include "sim/io/write_explanation.h"

namespace ddpsim::io {

OrderedJson write_explanation(const predict::Explanation& e) {
  OrderedJson j;
  j["schema"] = "ddpsim.explanation/1";
  j["kind"] = "explain";
  j["step_ps"] = e.step.ps;
  if (e.counted > 1) j["mean_of"] = {{"steps", e.counted}, {"last_ps", e.last.ps}};
  j["actor"] = e.actor;
  j["straggler"] = nullptr;
  if (const auto& s = e.diagnosis.straggler)
    j["straggler"] = {{"rank", s->rank}, {"factor", s->factor}, {"step_ps", s->step.ps}};
  j["words"] = e.words;
  j["path"] = OrderedJson::array();
  for (const auto& p : e.path)
    j["path"].push_back({{"what", p.what},
                         {"begin_ps", p.begin.ps},
                         {"end_ps", p.end.ps},
                         {"bytes", p.bytes},
                         {"waited_ps", p.waited.ps},
                         {"waited_for", p.waited_for}});
  j["buckets"] = OrderedJson::array();
  for (const auto& b : e.buckets)
    j["buckets"].push_back({{"name", b.name},
                            {"bytes", b.bytes},
                            {"ready_ps", b.ready.ps},
                            {"begin_ps", b.begin.ps},
                            {"end_ps", b.end.ps},
                            {"exposed_ps", b.exposed.ps}});
  j["other_communication"] = OrderedJson::array();
  for (const auto& o : e.others)
    j["other_communication"].push_back({{"name", o.name}, {"exposed_ps", o.exposed.ps}});
  j["exposed_communication_ps"] = e.exposed.ps;
  j["busiest_link"] = nullptr;
  if (!e.link.name.empty())
    j["busiest_link"] = {{"name", e.link.name},
                         {"bandwidth_bits_per_s", e.link.bandwidth.bits_per_s},
                         {"busy", e.link.busy}};
  j["deciles"] = OrderedJson::array();
  for (const auto& d : e.deciles)
    j["deciles"].push_back({{"computing", d.computing},
                            {"communicating", d.communicating},
                            {"link", d.link},
                            {"decides", d.decides}});
  j["faster"] = predict::kFaster;
  j["sensitivity"] = OrderedJson::array();
  for (const auto& s : e.diagnosis.sensitivity)
    j["sensitivity"].push_back(
        {{"resource", predict::name_of(s.resource)}, {"step_ps", s.step.ps}});
  j["moves"] = nullptr;
  if (e.moves_at) j["moves"] = {{"factor", *e.moves_at}, {"to", predict::name_of(*e.moves_to)}};
  return j;
}

}  // namespace ddpsim::io
