// A term of backward has three neighbours: a state is the last two units. Of several ways to one
// state those are kept of which none is better in all that the rest depends on (all of it grows
// with each), so that the best whole is among them. O(n m^3) ways for n blocks and units of at most
// m, times those that are kept.
#include "sim/tune/unit_partition.h"

#include <algorithm>
#include <map>
#include <utility>

namespace ddpsim::predict {
namespace {

// Of every unit [from, to): what it computes and what its collectives take.
class UnitTerms {
 public:
  explicit UnitTerms(const UnitProblem& q) : n_(q.gathered.size()), of_((n_ + 1) * (n_ + 1)) {
    struct Known {
      const UnitPrice& ask;
      std::map<std::int64_t, Duration> prices = {};  // of each size once
      Duration operator()(std::int64_t bytes) {
        if (bytes == 0) return {};
        auto [it, fresh] = prices.try_emplace(bytes);
        if (fresh) it->second = ask(bytes);
        return it->second;
      }
    };
    Known gather{q.gather};
    Known gather_again{q.gather_again};
    Known scatter{q.scatter};
    for (std::size_t from = 0; from < n_; ++from) {
      Duration forward;
      Duration backward;
      std::int64_t gathered = 0;
      std::int64_t again = 0;
      std::int64_t scattered = 0;
      for (std::size_t to = from + 1; to <= n_; ++to) {
        forward = forward + q.forward.blocks[to - 1];
        backward = backward + q.backward.blocks[to - 1];
        gathered += q.gathered[to - 1];
        again += q.again[to - 1];
        scattered += q.scattered[to - 1];
        of_[from * (n_ + 1) + to] = {forward, backward, gather(gathered), gather_again(again),
                                     scatter(scattered)};
        if (to < n_ && !q.joins[to - 1]) break;
      }
    }
  }
  struct Unit {
    Duration forward, backward, gather, again, scatter;
  };
  const Unit& of(std::size_t from, std::size_t to) const { return of_[from * (n_ + 1) + to]; }

 private:
  std::size_t n_;
  std::vector<Unit> of_;
};

using Unit = UnitTerms::Unit;

// Forward up to a unit, and all of backward that is decided by then.
struct Progress {
  Duration gathers;   // when the next gathering may begin: this unit's has ended, and the unit
                      // before this one computes
  Duration computes;  // when this unit begins to compute
  Duration backward;  // terms of the sum
};
Progress begun(const UnitProblem& q, const Unit& first) {
  return {first.gather, std::max(q.forward.before, first.gather),
          std::max(q.backward.before, first.scatter)};
}
// A unit's term of backward, between two others; a missing one costs nothing.
Duration between(const Unit& before, const Unit& unit, const Unit& after) {
  return std::max(unit.backward, after.scatter + before.again);
}
Progress then(const Progress& p, const Unit& before, const Unit& last, const Unit& next) {
  const Duration gathered = p.gathers + next.gather;
  return {std::max(gathered, p.computes), std::max(p.computes + last.forward, gathered),
          p.backward + between(before, last, next)};
}
Duration ended(const UnitProblem& q, const Progress& p, const Unit& before, const Unit& last) {
  return p.computes + std::max(last.forward + q.forward.after + q.backward.after, last.again) +
         p.backward + between(before, last, {});
}

// One way to a state.
struct Label {
  Progress at;
  std::size_t state = 0;  // where it came from
  std::size_t label = 0;
};
bool no_worse(const Progress& a, const Progress& b) {
  return a.gathers <= b.gathers && a.computes <= b.computes && a.backward <= b.backward;
}
void keep(std::vector<Label>& list, const Label& l) {
  for (const Label& known : list)
    if (no_worse(known.at, l.at)) return;
  std::erase_if(list, [&](const Label& known) { return no_worse(l.at, known.at); });
  list.push_back(l);
}

// The states of the last two units: begin of the unit before (that of the last: there is none),
// begin of the last, its end.
class States {
 public:
  explicit States(std::size_t blocks) : n_(blocks + 1), lists_(n_ * n_ * n_) {}
  std::size_t number(std::size_t h, std::size_t i, std::size_t j) const {
    return (h * n_ + i) * n_ + j;
  }
  std::vector<Label>& of(std::size_t state) { return lists_[state]; }
  // Blocks of the units that a label stands for.
  std::vector<std::int64_t> blocks(std::size_t state, std::size_t label) const {
    std::vector<std::int64_t> out;
    while (true) {
      const std::size_t end = state % n_;
      const std::size_t begin = state / n_ % n_;
      out.push_back(end - begin);
      if (begin == 0) break;
      const Label& l = lists_[state][label];
      state = l.state;
      label = l.label;
    }
    std::reverse(out.begin(), out.end());
    return out;
  }

 private:
  std::size_t n_;
  std::vector<std::vector<Label>> lists_;
};

}  // namespace

UnitPartition best_units(const UnitProblem& q, std::size_t most) {
  const std::size_t n = q.gathered.size();
  const UnitTerms terms(q);
  // Where a unit that begins at a block may end at most.
  std::vector<std::size_t> reach(n);
  for (std::size_t from = 0; from < n; ++from) {
    reach[from] = from + 1;
    while (reach[from] < n && reach[from] - from < most && q.joins[reach[from] - 1]) ++reach[from];
  }
  States states(n);
  for (std::size_t j = 1; j <= reach[0]; ++j)
    states.of(states.number(0, 0, j)).push_back({begun(q, terms.of(0, j)), 0, 0});
  Duration best{kForever};
  std::pair<std::size_t, std::size_t> best_label;
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = i + 1; j <= reach[i]; ++j)
      for (std::size_t h = 0; h <= i; ++h) {
        const std::size_t state = states.number(h, i, j);
        const Unit before = h < i ? terms.of(h, i) : Unit{};
        const Unit& last = terms.of(i, j);
        for (std::size_t l = 0; l < states.of(state).size(); ++l) {
          const Progress at = states.of(state)[l].at;
          if (j == n) {
            const Duration end = ended(q, at, before, last);
            if (end < best) best = end, best_label = {state, l};
            continue;
          }
          for (std::size_t k = j + 1; k <= reach[j]; ++k)
            keep(states.of(states.number(i, j, k)),
                 {then(at, before, last, terms.of(j, k)), state, l});
        }
      }
  return {states.blocks(best_label.first, best_label.second), best};
}

}  // namespace ddpsim::predict
