// A Run for the page. Ranks run one Program, so that an operation's name, bytes and tensors are
// written once, and a span is four integers.
#include <map>
#include <tuple>

#include "sim/io/write_page.h"

namespace ddpsim::io {
namespace {

constexpr std::size_t kMostSpans = 1'200'000;  // some 35 MB of page

const char* category(OpKind k) {
  if (is_collective(k) || is_move(k)) return "communication";
  if (is_communication(k)) return "wait";
  if (is_host_work(k)) return "host";
  if (is_forward(k)) return "forward";
  if (is_backward(k)) return "backward";
  return is_update(k) ? "optimizer" : "averaging";
}

struct Track {
  int count = 1;
  std::vector<std::int64_t> op, begin, length, wait;
};

// Actors that are written: all, or as many as the page can hold, evenly spread, the first among
// them.
std::map<int, bool> chosen_actors(const Run& run) {
  std::map<int, bool> actors;
  for (const Span& s : run.spans) actors[s.actor] = true;
  if (run.spans.size() <= kMostSpans || actors.empty()) return actors;
  std::size_t most = std::max<std::size_t>(1, kMostSpans * actors.size() / run.spans.size());
  std::size_t i = 0;
  for (auto& [actor, chosen] : actors) {
    chosen = i == 0 || i * most / actors.size() != (i - 1) * most / actors.size();
    ++i;
  }
  return actors;
}

}  // namespace

OrderedJson page_run(const Run& run) {
  OrderedJson j;
  j["key"] = run.key;
  j["profile"] = run.profile;
  j["fidelity"] = run.fidelity;
  j["steps"] = OrderedJson::array();
  for (const StepRecord& s : run.steps)
    j["steps"].push_back({{"kind", name_of(s.kind)}, {"duration_ps", s.duration.ps}});
  j["tensors"] = run.tensor_names;
  if (!run.tensor_bytes.empty()) j["tensor_bytes"] = run.tensor_bytes;

  auto actors = chosen_actors(run);
  std::map<std::pair<std::string, std::int64_t>, std::int64_t> ops;
  OrderedJson list = OrderedJson::array();
  std::map<std::tuple<int, int, Lane>, Track> tracks;  // step, actor, lane
  for (const Span& s : run.spans) {
    if (!actors[s.actor]) continue;
    auto [op, fresh] =
        ops.emplace(std::pair{s.op, s.bytes}, static_cast<std::int64_t>(list.size()));
    if (fresh) {
      list.push_back({{"name", s.op},
                      {"category", category(s.kind)},
                      {"bytes", s.bytes},
                      {"tensors", s.tensors}});
      if (!s.algorithm.empty()) list.back()["algorithm"] = s.algorithm;
    }
    Track& t = tracks[{s.step, s.actor, s.lane}];
    t.count = s.count;
    t.op.push_back(op->second);
    t.begin.push_back((s.begin - run.spans_from).ps);
    t.length.push_back((s.end - s.begin).ps);
    t.wait.push_back((s.begin - s.ready).ps);
  }
  j["ops"] = std::move(list);
  j["tracks"] = OrderedJson::array();
  for (auto& [at, t] : tracks) {
    auto [step, actor, lane] = at;
    j["tracks"].push_back({{"step", step},
                           {"actor", actor},
                           {"count", t.count},
                           {"lane", name_of(lane, run.streams)},
                           {"op", std::move(t.op)},
                           {"begin_ps", std::move(t.begin)},
                           {"length_ps", std::move(t.length)},
                           {"wait_ps", std::move(t.wait)}});
  }
  std::size_t left_out = 0;
  for (const auto& [actor, chosen] : actors) left_out += chosen ? 0 : 1;
  j["actors"] = actors.size();
  j["actors_left_out"] = left_out;
  return j;
}

OrderedJson page_memory(const predict::Memory& memory) {
  constexpr std::size_t kPoints = 600;
  const auto& all = memory.over_time;
  const std::size_t width = (all.size() + kPoints - 1) / kPoints;
  OrderedJson at = OrderedJson::array();
  OrderedJson held = OrderedJson::array();
  // The largest of each stretch.
  for (std::size_t from = 0; from < all.size(); from += width) {
    auto last = all.begin() + (std::min(all.size(), from + width));
    auto most = std::max_element(all.begin() + from, last,
                                 [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
    at.push_back(most->at.ps);
    held.push_back(most->bytes);
  }
  return {{"over_time_ps", at}, {"over_time_bytes", held}};
}

}  // namespace ddpsim::io
