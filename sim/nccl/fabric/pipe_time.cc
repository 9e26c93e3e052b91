// Pieces follow one another through the steps of a pipeline: full ones, and a last one of what
// remains. The longest of
//   a step holds all up           the first piece up to it, all pieces in it, the last ones behind
//                                 it
//   a connection's buffer         the same, and a round trip for each `window` pieces
//   NCCL's limit of LL            the last piece sets out, and goes its way
//   a link or a group of threads  all that it moves, and the time before and behind in which it has
//                                 not enough to do
// What this leaves out: pieces that share a link delay one another, the early ones too. Messages
// (messages.cc) have that.
#include <algorithm>
#include <cmath>

#include "sim/nccl/fabric/terms.h"

namespace ddpsim::nccl {
namespace {

// A step that a link or a group of threads works for, seen from the beginning, or from the end: not
// before `from`, `own` microseconds for a piece, `every` for each further one, `pieces` in all;
// `work` of a piece's microseconds its own.
struct Turn {
  double from = 0;
  double own = 0;
  double every = 0;
  double work = 0;
  double pieces = 0;
};

// What can be done at most until then. `enough`: whoever asks need not know how much more.
double most_until(double until, const std::vector<Turn>& turns, double enough) {
  double out = 0;
  for (const Turn& t : turns) {
    if (out >= enough) break;
    double gone = until - t.from;
    if (gone <= 0) continue;
    double done = gone < t.own  ? gone / t.own
                  : t.every > 0 ? 1 + (gone - t.own) / t.every
                                : t.pieces;
    out += t.work * std::min(t.pieces, done);
  }
  return out;
}

struct Moment {
  double when = 0;
  double most = 0;  // work until then
};
// Those until which more than `least` cannot be used. It is most where a turn begins: from there on
// less time is lost.
void find_moments(const std::vector<Turn>& turns, double least, std::vector<Moment>& out) {
  out.clear();
  for (const Turn& t : turns) {
    if (t.from <= least) continue;
    double most = most_until(t.from, turns, t.from - least);
    if (t.from - most > least) out.push_back({t.from, most});
  }
}

// In microseconds.
class Time {
 public:
  Time(const Pipe& pipe, const PipeTerms& t, const std::vector<Microseconds>& each, double size)
      : pipe_(pipe),
        t_(t),
        each_(each),
        piece_(std::min(t.piece, size)),
        pieces_(size / piece_),
        full_(std::max(0.0, std::ceil(pieces_ - 1e-9) - 1)),
        rest_(pieces_ - full_),
        at_(pipe.steps.size()) {
    go_forward();
    go_back();
  }

  PipeTime all() {
    PipeTime out;
    if (at_.empty()) return out;
    double total = 0;
    for (std::size_t i = 0; i < at_.size(); ++i)
      total = std::max(total, full_ > 0 ? held_up_by(i) : at_[i].there);
    // Who moves a piece, all steps together, in less time than the slowest step takes for it holds
    // nothing up.
    double slowest = 0;
    for (const At& a : at_) slowest = std::max(slowest, a.time);
    for (const PipeUse& u : pipe_.uses) {
      if ((full_ == 0 && !t_.lines) || u.total * each_[u.mover].us * piece_ <= slowest * (1 + 1e-9))
        continue;
      // Longer than it was known to be: windows that overlapped no longer do.
      for (double longer = busy(u, total); longer > total; longer = busy(u, total)) total = longer;
    }
    out.total = {total};
    auto last = std::max_element(at_.begin(), at_.end(),
                                 [](const At& a, const At& b) { return a.there < b.there; }) -
                at_.begin();
    for (std::size_t i = last; i != kNone; i = at_[i].came_from)
      (pipe_.steps[i].between ? out.between : out.inside) += Microseconds{at_[i].latency};
    return out;
  }

 private:
  static constexpr std::size_t kNone = SIZE_MAX;
  // From when a piece begins in a step, or has passed it, to the end.
  struct Behind {
    double begun = 0;
    double there = 0;
  };
  struct At {
    double latency = 0;
    double time = 0;   // of a full piece
    double begun = 0;  // the first piece
    double there = 0;
    std::size_t came_from = kNone;  // the step before it on the longest way
    double slowest_before =
        0;  // of this step and those that lead to it: the longest time of a piece
    double slowest_behind = 0;  // ... that it leads to
    Behind last;                // the last piece alone
    Behind pair;                // a full one with the last one right behind it
  };

  bool lines(std::size_t step, std::uint32_t before) const {
    return t_.lines && pipe_.steps[step].line && pipe_.steps[before].line;
  }

  void go_forward() {
    double first = full_ > 0 ? 1 : rest_;
    for (std::size_t i = 0; i < at_.size(); ++i) {
      const PipeStep& s = pipe_.steps[i];
      At& at = at_[i];
      at.latency = s.between ? t_.between_latency.us : s.inside ? t_.inside_latency.us : 0;
      for (auto [mover, bytes] : s.load)
        at.time = std::max(at.time, bytes * each_[mover].us * piece_);
      at.slowest_before = at.time;
      double ready = 0;
      for (std::uint32_t a : s.after) {
        at.slowest_before = std::max(at.slowest_before, at_[a].slowest_before);
        double then = lines(i, a) ? at_[a].begun : at_[a].there;
        if (at.came_from == kNone || then > ready) at.came_from = a;
        ready = std::max(ready, then);
      }
      at.begun = ready + at.latency;
      at.there = at.begun + first * at.time;
      for (std::uint32_t a : s.after)
        if (lines(i, a)) at.there = std::max(at.there, at_[a].there + at.latency);
    }
  }

  void go_back() {
    for (std::size_t i = at_.size(); i-- > 0;) {
      At& at = at_[i];
      at.slowest_behind = std::max(at.slowest_behind, at.time);
      at.last.begun = std::max(at.last.begun, rest_ * at.time + at.last.there);
      at.pair.begun = std::max(at.pair.begun,
                               at.time + std::max(rest_ * at.time + at.last.there, at.pair.there));
      for (std::uint32_t a : pipe_.steps[i].after) {
        At& before = at_[a];
        before.slowest_behind = std::max(before.slowest_behind, at.slowest_behind);
        lead(at.last, before.last, at.latency, lines(i, a));
        lead(at.pair, before.pair, at.latency, lines(i, a));
      }
    }
  }
  static void lead(const Behind& step, Behind& before, double latency, bool lines) {
    if (lines) before.begun = std::max(before.begun, latency + step.begun);
    before.there = std::max(before.there, latency + (lines ? step.there : step.begun));
  }

  double held_up_by(std::size_t i) const {
    const At& at = at_[i];
    double out = at.begun + (full_ - 1) * at.time + at.pair.begun;
    if (pipe_.steps[i].after.empty())
      out = std::max(out, at.begun + full_ * piece_ * t_.pace.us + at.last.begun);
    double round_trip = 2 * at.latency + at.time;
    if (t_.window == 0 || round_trip <= t_.window * at.time) return out;
    double turns = std::floor(full_ / t_.window);
    return std::max(
        out, at.begun + turns * round_trip + (full_ - turns * t_.window) * at.time + at.last.begun);
  }

  // Of what a link or a group of threads has to do, what it cannot have done in the first x, and
  // cannot do in the last y, it does between: x + y + the rest. `known`: the whole takes at least
  // that, so x and y that are not more do not overlap.
  double busy(const PipeUse& u, double known) {
    double one = each_[u.mover].us * piece_;
    if (one <= 0) return 0;
    first_.clear();
    last_.clear();
    for (auto [i, bytes] : u.steps) {
      const At& at = at_[i];
      first_.push_back({at.begun, at.time, at.slowest_before, bytes * one, pieces_});
      // From the end: the last piece, then full ones.
      last_.push_back({at.last.there, rest_ * at.time, 0, rest_ * bytes * one, 1});
      if (full_ > 0)
        last_.push_back({std::max(rest_ * at.time + at.last.there, at.pair.there), at.time,
                         at.slowest_behind, bytes * one, full_});
    }
    double work = u.total * one * pieces_;
    auto idle = [](const std::vector<Moment>& list) {
      double most = 0;
      for (const Moment& m : list) most = std::max(most, m.when - m.most);
      return most;
    };
    // What is not longer than the whole is known to be needs not be told apart: most moments, of
    // most links.
    double most_idle = known * (1 - 1e-9) - work;
    double latest = 0;
    for (const Turn& t : last_) latest = std::max(latest, t.from);
    find_moments(first_, most_idle - latest, begins_);
    if (begins_.empty()) return 0;
    find_moments(last_, most_idle - idle(begins_), ends_);
    double behind = idle(ends_);
    if (idle(begins_) + work + behind <= known) return 0;
    double out = 0;
    for (const Moment& x : begins_) {
      if (x.when - x.most + behind <= most_idle) continue;
      for (const Moment& y : ends_)
        if (x.when + y.when <= known) out = std::max(out, x.when + y.when + work - x.most - y.most);
    }
    return out;
  }

  const Pipe& pipe_;
  const PipeTerms& t_;
  const std::vector<Microseconds>& each_;
  double piece_;   // bytes of a full one
  double pieces_;  // with a fraction
  double full_;    // all but the last
  double rest_;    // the last, of a full one
  std::vector<At> at_;
  // Of busy(), which is asked hundreds of times.
  std::vector<Turn> first_;
  std::vector<Turn> last_;
  std::vector<Moment> begins_;
  std::vector<Moment> ends_;
};

}  // namespace

PipeTime pipe_time(const Pipe& pipe, const PipeTerms& t, const std::vector<Microseconds>& each,
                   double size) {
  return Time(pipe, t, each, size).all();
}

}  // namespace ddpsim::nccl
