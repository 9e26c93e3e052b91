// The critical path is walked backwards from the last operation of the step: of all that an
// operation waited for (its dependencies, the one before it on its lane, for a collective those of
// every rank), the one that ended last is the reason why it did not begin earlier.
#include "sim/predict/explain.h"

#include <algorithm>
#include <string_view>

#include "sim/analysis/intervals.h"
#include "sim/predict/given_program.h"
#include "sim/predict/prices.h"

namespace ddpsim::predict {
namespace {

using analysis::Interval;

std::int64_t overlap(const std::vector<Interval>& list, std::int64_t from, std::int64_t to) {
  return analysis::overlap_length(list, {{from, to}});
}

constexpr const char* kCopies = "copies out of buckets";
constexpr const char* kFused = "copies out of the fusion buffer";
constexpr const char* kDivisions = "averages of what was reduced";  // of a system without buckets

class Explainer {
 public:
  Explainer(const Question& q, const Options& options) : q_(q), options_(options) {
    if (!options_.known) options_.known = &own_;
    played_ = steady_step(q_, Level::Mid, options_);
    ops_ = played_.program.steady.ops.size();
    const auto& spans = played_.simulation.spans;
    classes_ = spans.size() / ops_;
    from_ = played_.simulation.spans_from.ps;
    for (std::size_t c = 0; c < classes_; ++c)
      if (spans[c * ops_ + ops_ - 1].end > spans[last_class_ * ops_ + ops_ - 1].end)
        last_class_ = c;
    find_lane_predecessors();
  }

  Explanation run() {
    Explanation out;
    out.step = played_.period;
    out.actor = span(last_class_, 0).actor;
    walk(out);
    expose(out);
    over_time(out);
    ask_what_helps(out);
    ask_without_straggler(out);
    put_into_words(out);
    return out;
  }

 private:
  const Span& span(std::size_t c, std::size_t i) const {
    return played_.simulation.spans[c * ops_ + i];
  }
  const Op& op(std::size_t i) const { return played_.program.steady.ops[i]; }
  std::int64_t begin(const Span& s) const { return s.begin.ps - from_; }
  std::int64_t end(const Span& s) const { return s.end.ps - from_; }

  void find_lane_predecessors() {
    std::array<std::uint32_t, kLanes + kMostStreams> last;
    last.fill(kNoOp);
    before_.assign(ops_, kNoOp);
    for (std::uint32_t i = 0; i < ops_; ++i) {
      auto lane = static_cast<std::size_t>(op(i).lane);
      if (in_order(op(i).lane)) before_[i] = last[lane];
      last[lane] = i;
    }
  }

  struct Place {
    std::size_t rank_class = 0;
    std::uint32_t op = 0;
  };

  // What ended last of all that this operation waited for, not after it began. None: it began with
  // the step.
  std::optional<Place> reason(Place at) const {
    std::optional<Place> best;
    const Span& waiting = span(at.rank_class, at.op);
    bool awaits = is_input(waiting.kind) && waiting.lane == Lane::Host;
    std::int64_t begun = awaits ? end(waiting) : begin(waiting);
    auto consider = [&](std::size_t c, std::uint32_t i) {
      const Span& s = span(c, i);
      if (end(s) > begun || (c == at.rank_class && i == at.op)) return;
      if (!best || end(s) > end(span(best->rank_class, best->op))) best = Place{c, i};
    };
    bool everyone = is_collective(op(at.op).kind);
    for (std::size_t c = 0; c < classes_; ++c) {
      if (!everyone && c != at.rank_class) continue;
      if (before_[at.op] != kNoOp) consider(c, before_[at.op]);
      for (std::uint32_t d : deps_of(played_.program.steady, at.op)) consider(c, d);
    }
    // A pool's collective may have waited for any that ended in the meantime.
    if (op(at.op).lane == Lane::Worker)
      for (std::uint32_t i = 0; i < ops_; ++i)
        if (op(i).lane == Lane::Worker && begin(span(at.rank_class, i)) < begun)
          consider(at.rank_class, i);
    return best;
  }

  std::string bucket_name(std::uint32_t i) const {
    std::int64_t bytes = op(i).bytes;
    if (carries_bucket(op(i).kind))
      return "bucket " + std::to_string(op(i).subject) + " (" + to_string(Bytes{bytes}) + ")";
    std::string name = name_of(played_.program, played_.program.steady, i);
    if (op(i).kind.of == Of::Label)
      return played_.program.labels[op(i).subject] + " (" + to_string(Bytes{bytes}) + ")";
    constexpr std::string_view kPrefix = "allreduce/";
    return name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
  }

  // What neighbours on the path are told as one.
  enum class Sort { Forward, Backward, CopyOut, Optimizer, Host, Collective, Other };
  Sort sort_of(std::uint32_t i) const {
    if (is_launch(op(i).kind)) return Sort::Host;
    if (is_collective(op(i).kind)) return Sort::Collective;
    if (is_move(op(i).kind)) return Sort::Other;
    switch (op(i).kind.phase) {
      case Phase::Between:
        return Sort::Other;
      case Phase::Forward:
        return Sort::Forward;
      case Phase::Backward:
        return Sort::Backward;
      case Phase::Reduced:
        return Sort::CopyOut;
      case Phase::Update:
        return Sort::Optimizer;
    }
    return Sort::Other;
  }
  // "all-reduce"
  static std::string words_of(Operation o) {
    std::string out = name_of(o);
    std::replace(out.begin(), out.end(), '_', '-');
    return out;
  }
  const char* copies() const {
    System s = q_.scenario.plan.system;
    return s == System::PytorchDdp ? kCopies : s == System::Horovod ? kFused : kDivisions;
  }
  std::string tell(Sort sort, std::uint32_t last) const {
    const StepProgram& s = played_.program.steady;
    switch (sort) {
      case Sort::Forward:
        return "forward";
      case Sort::Backward: {
        return of_tensor(op(last).kind)
                   ? "backward until " + played_.program.tensor_names[op(last).subject]
                   : "backward to its end";
      }
      case Sort::CopyOut:
        return copies();
      case Sort::Optimizer:
        return "optimizer";
      case Sort::Host:
        return "the host thread launches " + name_of(played_.program, s, op(last).subject);
      case Sort::Collective:
        return carries_tensors(op(last).kind)
                   ? words_of(op(last).kind.operation) + " of " + bucket_name(last)
                   : name_of(played_.program, s, last);
      case Sort::Other:
        return is_input(op(last).kind) ? "input" : name_of(played_.program, s, last);
    }
    return {};
  }

  void walk(Explanation& out) const {
    std::vector<Place> path;
    for (std::optional<Place> at = Place{last_class_, static_cast<std::uint32_t>(ops_ - 1)};
         at && end(span(at->rank_class, at->op)) > 0; at = reason(*at))
      path.push_back(*at);
    std::reverse(path.begin(), path.end());
    for (std::size_t k = 0; k < path.size(); ++k) {
      const Span& s = span(path[k].rank_class, path[k].op);
      Sort sort = sort_of(path[k].op);
      bool joins = k > 0 && sort != Sort::Collective && sort_of(path[k - 1].op) == sort;
      if (!joins) {
        // A part begins where the one before ended; what lies between belongs to this one (its
        // launch, its turn).
        std::int64_t begun =
            std::max<std::int64_t>(0, out.path.empty() ? begin(s) : out.path.back().end.ps);
        out.path.push_back({});
        out.path.back().begin = {begun};
      }
      PathPart& part = out.path.back();
      part.what = tell(sort, path[k].op);
      part.kind = op(path[k].op).kind;
      part.end = {end(s)};
      if (sort != Sort::Collective) continue;
      part.bytes = op(path[k].op).bytes;
      part.waited = s.begin - s.ready;
      if (k > 0 && is_collective(op(path[k - 1].op).kind))
        part.waited_for = bucket_name(path[k - 1].op);
    }
  }

  std::vector<Interval> computing() const {
    std::vector<Interval> list;
    for (std::size_t i = 0; i < ops_; ++i) {
      const Span& s = span(last_class_, i);
      if (is_compute(s.kind)) list.push_back({std::max<std::int64_t>(0, begin(s)), end(s)});
    }
    return analysis::unite(std::move(list));
  }

  // What ddpsim predict says of the same spans.
  void expose(Explanation& out) const {
    Run run;
    run.steps.push_back({StepKind::Steady, out.step});
    run.spans_from = played_.simulation.spans_from;
    const Span* first = &span(last_class_, 0);
    run.spans.assign(first, first + ops_);
    analysis::Summary summary = analysis::summarize(run);
    out.exposed = summary.exposed_communication;
    auto times = summary.buckets.begin();
    for (std::uint32_t i = 0; i < ops_; ++i) {
      if (!carries_tensors(op(i).kind)) continue;
      out.reduces = out.reduces && op(i).kind.operation == Operation::AllReduce;
      std::string name = carries_bucket(op(i).kind)
                             ? "bucket " + std::to_string(op(i).subject)
                             : name_of(played_.program, played_.program.steady, i);
      out.buckets.push_back(
          {name, times->bytes, times->ready, times->begin, times->end, times->exposed});
      ++times;
    }
  }

  void over_time(Explanation& out) {
    const collective::Communicator& job = options_.known->get(q_, played_.program);
    struct Carried {
      std::int64_t from, to;
      std::vector<std::pair<topology::LinkId, double>>
          time;  // that each link needs for it at its full rate, ps
    };
    std::vector<Carried> all;
    std::vector<double> total(q_.fabric.links().size());
    std::vector<Interval> flying;
    Prices prices(job, q_.profile, Level::Mid);
    for (std::uint32_t i = 0; i < ops_; ++i) {
      if (!is_collective(op(i).kind)) continue;
      const Span& s = span(last_class_, i);
      Carried c{begin(s), end(s), {}};
      flying.push_back({std::max<std::int64_t>(0, c.from), c.to});
      const collective::Communicator& comm = of_group(job, op(i).group);
      if (comm.ranks() > 1 && !comm.patterns.empty()) {
        const collective::Price& price = prices.of(op(i));
        const auto& pattern = comm.patterns[static_cast<std::size_t>(price.pattern)];
        for (const auto& phase : price.phases)
          for (const auto& l : phase.round < 0
                                   ? pattern.load
                                   : pattern.rounds[static_cast<std::size_t>(phase.round)].load) {
            double t = phase.work * l.per_byte /
                       collective::link_rate(comm, q_.profile, Level::Mid, l.link);
            c.time.push_back({l.link, t});
            total[l.link] += t;
          }
      }
      all.push_back(std::move(c));
    }
    auto busiest =
        static_cast<topology::LinkId>(std::max_element(total.begin(), total.end()) - total.begin());
    bool any = !total.empty() && total[busiest] > 0;
    if (any)
      out.link = {q_.fabric.link_name(busiest), q_.fabric.links()[busiest].bandwidth,
                  total[busiest] / static_cast<double>(out.step.ps)};
    flying = analysis::unite(std::move(flying));
    std::vector<Interval> busy = computing();
    std::vector<Interval> awaiting;
    for (std::size_t i = 0; i < ops_; ++i)
      if (is_input(op(i).kind) && op(i).lane == Lane::Host)
        awaiting.push_back({begin(span(last_class_, i)), end(span(last_class_, i))});
    awaiting = analysis::unite(std::move(awaiting));
    for (std::size_t k = 0; k < out.deciles.size(); ++k) {
      std::int64_t from = out.step.ps / 10 * static_cast<std::int64_t>(k);
      std::int64_t to = k == 9 ? out.step.ps : out.step.ps / 10 * static_cast<std::int64_t>(k + 1);
      auto length = static_cast<double>(std::max<std::int64_t>(1, to - from));
      Decile& d = out.deciles[k];
      d.computing = static_cast<double>(overlap(busy, from, to)) / length;
      d.communicating = static_cast<double>(overlap(flying, from, to)) / length;
      for (const Carried& c : all)
        for (const auto& [link, time] : c.time)
          if (any && link == busiest && c.to > c.from)
            d.link += time * static_cast<double>(overlap({{c.from, c.to}}, from, to)) /
                      static_cast<double>(c.to - c.from) / length;
      double input = static_cast<double>(overlap(awaiting, from, to)) / length;
      bool waits = d.communicating > 1 - d.computing - 1e-9 || d.communicating > 0.5;
      d.decides = d.computing >= 0.5               ? "computation"
                  : input >= 0.5                   ? "input"
                  : !waits                         ? "host thread"
                  : d.link > 0.7 * d.communicating ? "bandwidth"
                                                   : "latency of collectives";
    }
  }

  std::vector<Sensitivity> what_helps(const Question& q, const Options& options) const {
    std::vector<Sensitivity> out;
    for (Resource r : kResources) {
      if (r == Resource::Input && (!q.scenario.input || options.program)) continue;
      if (r == Resource::Host && q.profile.kind == DeviceKind::Cpu) continue;  // it computes
      if (r == Resource::Sockets && !copied_by_threads(q)) continue;
      out.push_back({r, step_if_faster(q, r, kFaster, options)});
    }
    std::stable_sort(out.begin(), out.end(),
                     [](const Sensitivity& a, const Sensitivity& b) { return a.step < b.step; });
    return out;
  }

  void ask_what_helps(Explanation& out) {
    out.sensitivity = what_helps(q_, options_);
    const Sensitivity& first = out.sensitivity.front();
    constexpr double kWorthSaying = 0.002;
    if (static_cast<double>((out.step - first.step).ps) <
        kWorthSaying * static_cast<double>(out.step.ps))
      return;
    for (double factor : {1.25, 1.5, 2.0, 3.0, 4.0, 8.0}) {
      Hardware h = faster(q_, first.resource, factor);
      topology::Fabric fabric(h.cluster);
      Communicators known;
      Options options = options_;
      options.known = &known;
      std::optional<Program> program;
      if (options_.program)
        options.program = &program.emplace(faster(*options_.program, first.resource, factor));
      Resource now =
          what_helps({h.workload, fabric, h.profile, q_.scenario}, options).front().resource;
      if (now == first.resource) continue;
      out.moves_at = factor;
      out.moves_to = now;
      return;
    }
  }

  void ask_without_straggler(Explanation& out) const {
    auto slow = slowest_rank(q_.scenario);
    if (!slow) return;
    Scenario even = q_.scenario;
    even.slow_ranks.clear();
    Duration step = steady_period({q_.workload, q_.fabric, q_.profile, even}, Level::Mid, options_);
    constexpr double kWorthSaying = 0.002;
    if (static_cast<double>((out.step - step).ps) < kWorthSaying * static_cast<double>(out.step.ps))
      return;
    out.straggler = Straggler{slow->first, slow->second, step};
  }

  static std::string subject(const PathPart& p) { return p.what.substr(p.what.find("of ") + 3); }

  // One clause a part; all-reduces one after another are one, with the copies between them.
  static void put_into_words(Explanation& out) {
    std::vector<std::string> clauses;
    const auto& path = out.path;
    for (std::size_t k = 0; k < path.size(); ++k) {
      const PathPart& p = path[k];
      std::size_t last = k;
      std::size_t reductions = carries_tensors(p.kind);
      bool reduces = out.reduces;
      while (reductions > 0) {
        bool next = last + 1 < path.size() && carries_tensors(path[last + 1].kind);
        bool after_copy = last + 2 < path.size() &&
                          (path[last + 1].what == kCopies || path[last + 1].what == kDivisions) &&
                          carries_tensors(path[last + 2].kind);
        if (!next && !after_copy) break;
        last += next ? 1 : 2;
        ++reductions;
      }
      const PathPart& q = path[last];
      std::string clause = p.what;
      if (last > k)
        clause = std::to_string(reductions) + (reduces ? " all-reduces" : " collectives") +
                 " one after another, " + subject(p) + " to " + subject(q);
      clause += " " + to_string(q.end - p.begin);
      if (last == k && p.waited.ps > 0 && !p.waited_for.empty())
        clause += " (ready " + to_string(p.waited) + " before it could begin, behind " +
                  p.waited_for + ")";
      else if (last > k && q.waited.ps > 0)
        clause += " (the last was ready " + to_string(q.waited) + " before it could begin)";
      clauses.push_back(clause);
      k = last;
    }
    constexpr std::size_t kShown = 12;
    std::string line;
    for (std::size_t i = 0; i < clauses.size(); ++i) {
      if (clauses.size() > kShown && i >= kShown / 2 && i + kShown / 2 < clauses.size()) {
        if (i == kShown / 2) line += " -> ... " + std::to_string(clauses.size() - kShown) + " more";
        continue;
      }
      line += (line.empty() ? "" : " -> ") + clauses[i];
    }
    out.words.push_back(line);
  }

  const Question& q_;
  Options options_;
  Communicators own_;
  SteadyStep played_;
  std::size_t ops_ = 0;
  std::size_t classes_ = 0;
  std::size_t last_class_ = 0;
  std::int64_t from_ = 0;
  std::vector<std::uint32_t> before_;
};

}  // namespace

Explanation explain(const Question& q, const Options& options) {
  return Explainer(q, options).run();
}

}  // namespace ddpsim::predict
