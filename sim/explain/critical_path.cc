// The critical path is walked backwards from the last operation of the step: of all that an
// operation waited for (its dependencies, the one before it on its lane, for a collective those of
// every rank), the one that ended last is the reason why it did not begin earlier.
#include "sim/explain/critical_path.h"

#include <algorithm>
#include <array>
#include <optional>

#include "sim/systems/base/record.h"

namespace ddpsim::predict {
namespace {

// Of a collective that carries tensors: "bucket 3 (12 MiB)", "bwd.h.11 (27 MiB)",
// "conv1.weight".
std::string name_of_carried(const PlayedStep& step, std::uint32_t i) {
  std::int64_t bytes = step.op(i).bytes;
  if (carries_bucket(step.op(i).kind))
    return "bucket " + std::to_string(step.op(i).subject) + " (" + to_string(Bytes{bytes}) + ")";
  // Without its word's first part, which says the operation.
  std::string name = name_of(step.program(), step.program().steady, i);
  const std::size_t from = step.op(i).micro >= 0 ? name.find('/') + 1 : 0;
  if (const std::size_t end = name.find('/', from); end != std::string::npos)
    name.erase(from, end + 1 - from);
  const bool whole = step.op(i).kind.of != Of::Tensor;
  return whole ? name + " (" + to_string(Bytes{bytes}) + ")" : name;
}
// "all-reduce"
std::string words_of(Operation o) {
  std::string out = name_of(o);
  std::replace(out.begin(), out.end(), '_', '-');
  return out;
}

class PathWalk {
 public:
  PathWalk(const PlayedStep& step, System system)
      : step_(step), system_(systems::record_of(system)) {
    find_lane_predecessors();
  }

  std::vector<PathPart> run() const {
    std::vector<PathPart> out;
    std::vector<Place> path;
    for (std::optional<Place> at = Place{step_.last_class(), step_.ops() - 1};
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
        std::int64_t begun = std::max<std::int64_t>(0, out.empty() ? begin(s) : out.back().end.ps);
        out.push_back({});
        out.back().begin = {begun};
      }
      PathPart& part = out.back();
      part.what = tell(sort, path[k].op);
      part.kind = op(path[k].op).kind;
      part.between = sort == Sort::CopyOut && !system_.negotiates;
      part.end = {end(s)};
      if (sort != Sort::Collective) continue;
      part.bytes = op(path[k].op).bytes;
      part.waited = s.begin - s.ready;
      if (k > 0 && is_collective(op(path[k - 1].op).kind))
        part.waited_for = name_of_carried(step_, path[k - 1].op);
    }
    return out;
  }

 private:
  const Span& span(std::size_t c, std::size_t i) const { return step_.span(c, i); }
  const Op& op(std::size_t i) const { return step_.op(i); }
  std::int64_t begin(const Span& s) const { return step_.begin(s); }
  std::int64_t end(const Span& s) const { return step_.end(s); }

  void find_lane_predecessors() {
    ByLane<std::uint32_t> last;
    last.fill(kNoOp);
    before_.assign(step_.ops(), kNoOp);
    for (std::uint32_t i = 0; i < step_.ops(); ++i) {
      const Lane lane = op(i).lane;
      if (in_order(lane)) before_[i] = last[lane];
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
    for (std::size_t c = 0; c < step_.classes(); ++c) {
      if (!everyone && c != at.rank_class) continue;
      if (before_[at.op] != kNoOp) consider(c, before_[at.op]);
      for (std::uint32_t d : deps_of(step_.program().steady, at.op)) consider(c, d);
    }
    // A pool's collective may have waited for any that ended in the meantime.
    if (op(at.op).lane == Lane::Worker)
      for (std::uint32_t i = 0; i < step_.ops(); ++i)
        if (op(i).lane == Lane::Worker && begin(span(at.rank_class, i)) < begun)
          consider(at.rank_class, i);
    return best;
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
  std::string tell(Sort sort, std::uint32_t last) const {
    const StepProgram& s = step_.program().steady;
    switch (sort) {
      case Sort::Forward:
        return "forward";
      case Sort::Backward: {
        return of_tensor(op(last).kind)
                   ? "backward until " + step_.program().tensor_names[op(last).subject]
                   : "backward to its end";
      }
      case Sort::CopyOut:
        return system_.copies;
      case Sort::Optimizer:
        return "optimizer";
      case Sort::Host:
        return "the host thread launches " + name_of(step_.program(), s, op(last).subject);
      case Sort::Collective:
        return carries_tensors(op(last).kind)
                   ? words_of(op(last).kind.operation) + " of " + name_of_carried(step_, last)
                   : name_of(step_.program(), s, last);
      case Sort::Other:
        return is_input(op(last).kind) ? "input" : name_of(step_.program(), s, last);
    }
    return {};
  }

  const PlayedStep& step_;
  const systems::SystemRecord& system_;
  std::vector<std::uint32_t> before_;
};

std::string subject(const PathPart& p) {
  return p.what.substr(p.what.find("of ") + 3);
}

}  // namespace

std::vector<PathPart> critical_path(const PlayedStep& step, System system) {
  return PathWalk(step, system).run();
}

std::string path_in_words(const std::vector<PathPart>& path) {
  std::vector<std::string> clauses;
  for (std::size_t k = 0; k < path.size(); ++k) {
    const PathPart& p = path[k];
    std::size_t last = k;
    std::size_t reductions = carries_tensors(p.kind);
    bool alike = true;  // one operation
    while (reductions > 0) {
      bool next = last + 1 < path.size() && carries_tensors(path[last + 1].kind);
      bool after_copy =
          last + 2 < path.size() && path[last + 1].between && carries_tensors(path[last + 2].kind);
      if (!next && !after_copy) break;
      last += next ? 1 : 2;
      ++reductions;
      alike = alike && path[last].kind.operation == p.kind.operation;
    }
    const PathPart& q = path[last];
    std::string clause = p.what;
    if (last > k)
      clause = std::to_string(reductions) + " " +
               (alike ? words_of(p.kind.operation) + "s" : "collectives") + " one after another, " +
               (alike ? subject(p) : p.what) + " to " + (alike ? subject(q) : q.what);
    clause += " " + to_string(q.end - p.begin);
    if (last == k && p.waited.ps > 0 && !p.waited_for.empty())
      clause +=
          " (ready " + to_string(p.waited) + " before it could begin, behind " + p.waited_for + ")";
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
  return line;
}

}  // namespace ddpsim::predict
