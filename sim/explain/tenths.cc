#include "sim/explain/tenths.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "sim/analysis/intervals.h"
#include "sim/play/prices.h"

namespace ddpsim::predict {
namespace {

using analysis::Interval;

double overlap(const std::vector<Interval>& list, std::int64_t from, std::int64_t to) {
  return static_cast<double>(analysis::overlap_length(list, {{from, to}}));
}

// A collective, and the time that each link needs for it at its full rate, ps.
struct Carried {
  std::int64_t from, to;
  std::vector<std::pair<topology::LinkId, double>> time;
};

std::vector<Carried> collectives_of(const PlayedStep& step, const Question& q,
                                    const collective::Communicator& job) {
  std::vector<Carried> out;
  Prices prices(job, q.profile, Level::Mid);
  for (std::uint32_t i = 0; i < step.ops(); ++i) {
    const Op& op = step.op(i);
    if (!is_collective(op.kind)) continue;
    const Span& s = step.span(step.last_class(), i);
    Carried c{step.begin(s), step.end(s), {}};
    const collective::Communicator& comm = of_group(job, op.group);
    if (comm.ranks() > 1) {
      const collective::Price& price = prices.of(op);
      const collective::Pattern& pattern = comm.pattern(price.pattern);
      for (const auto& phase : price.phases)
        for (const auto& l : phase.round < 0 ? pattern.load : pattern.rounds[phase.round].load)
          c.time.push_back(
              {l.link, phase.work * l.per_byte /
                           collective::link_rate(comm, q.profile, Level::Mid, l.link)});
    }
    out.push_back(std::move(c));
  }
  return out;
}

// When operations that `counts` were there, on the rank that ends last.
template <class Counts>
std::vector<Interval> times_of(const PlayedStep& step, Counts counts) {
  std::vector<Interval> list;
  for (std::uint32_t i = 0; i < step.ops(); ++i) {
    const Span& s = step.span(step.last_class(), i);
    if (counts(s, step.op(i)))
      list.push_back({std::max<std::int64_t>(0, step.begin(s)), step.end(s)});
  }
  return analysis::unite(std::move(list));
}

}  // namespace

Tenths tenths_of(const PlayedStep& step, const Question& q, const Options& options) {
  const std::vector<Carried> all = collectives_of(step, q, options.known->get(q, step.program()));
  std::vector<double> total(q.fabric.links().size());
  for (const Carried& c : all)
    for (const auto& [link, time] : c.time) total[link] += time;
  auto busiest =
      static_cast<topology::LinkId>(std::max_element(total.begin(), total.end()) - total.begin());
  bool any = !total.empty() && total[busiest] > 0;
  Tenths out;
  if (any)
    out.link = {q.fabric.link_name(busiest), q.fabric.links()[busiest].bandwidth,
                total[busiest] / static_cast<double>(step.length().ps)};
  const std::vector<Interval> flying =
      times_of(step, [](const Span&, const Op& op) { return is_collective(op.kind); });
  const std::vector<Interval> busy =
      times_of(step, [](const Span& s, const Op&) { return is_compute(s.kind); });
  const std::vector<Interval> awaiting = times_of(
      step, [](const Span&, const Op& op) { return is_input(op.kind) && op.lane == Lane::Host; });
  const std::int64_t tenth = step.length().ps / 10;
  for (std::size_t k = 0; k < out.of.size(); ++k) {
    std::int64_t from = tenth * static_cast<std::int64_t>(k);
    std::int64_t to = k == 9 ? step.length().ps : tenth * static_cast<std::int64_t>(k + 1);
    auto length = static_cast<double>(std::max<std::int64_t>(1, to - from));
    Decile& d = out.of[k];
    d.computing = overlap(busy, from, to) / length;
    d.communicating = overlap(flying, from, to) / length;
    for (const Carried& c : all)
      for (const auto& [link, time] : c.time)
        if (any && link == busiest && c.to > c.from)
          d.link += time * overlap({{c.from, c.to}}, from, to) /
                    static_cast<double>(c.to - c.from) / length;
    double input = overlap(awaiting, from, to) / length;
    bool waits = d.communicating > 1 - d.computing - 1e-9 || d.communicating > 0.5;
    d.decides = d.computing >= 0.5               ? "computation"
                : input >= 0.5                   ? "input"
                : !waits                         ? "host thread"
                : d.link > 0.7 * d.communicating ? "bandwidth"
                                                 : "latency of collectives";
  }
  return out;
}

}  // namespace ddpsim::predict
