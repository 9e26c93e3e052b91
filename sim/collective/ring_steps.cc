// Ring of n positions, each sends to the next.
//   reduce-scatter  n-1 steps of S/n, summed:  (n-1) (a + S/(nB) + r(S/n))      all-gather: the
//                   same without sums
//   all-reduce      the one, then the other
//   broadcast       chain from position 0 in m pieces of c bytes: (m + n - 2) (a + c/B)
//                   reduce: the same backwards, + r(c) each
// Steps of position p, step s: reduce-scatter sends chunk p - z - s, receives and sums p - z - 1 -
// s; all-gather sends p + 1 - z - s, receives p - z - s (mod n). z = 0 in an all-reduce, which
// leaves chunk p + 1 at p between its halves; z = 1 alone, so that chunk p ends, or begins, at p.
#include <algorithm>

#include "sim/collective/blocks.h"

namespace ddpsim::collective {
namespace {

void add_pass(Schedule& s, const std::vector<int>& members, std::int64_t begin, std::int64_t end,
              bool reduce, int shift) {
  auto n = static_cast<int>(members.size());
  auto wrap = [n](int i) { return ((i % n) + n) % n; };
  auto at = [&](int i) { return begin + chunk_begin(end - begin, n, i); };
  for (int p = 0; p < n; ++p) {
    auto& lane = s.ranks[members[p]].lanes[0];
    for (int k = 0; k < n - 1; ++k) {
      int sent = wrap((reduce ? p : p + 1) - shift - k);
      int received = wrap(sent - 1);
      Step step;
      step.reduce = reduce;
      if (at(sent + 1) > at(sent))
        step.sends.push_back({members[wrap(p + 1)], at(sent), at(sent + 1) - at(sent)});
      if (at(received + 1) > at(received))
        step.receives.push_back(
            {members[wrap(p - 1)], at(received), at(received + 1) - at(received)});
      if (!step.sends.empty() || !step.receives.empty()) lane.push_back(std::move(step));
    }
  }
}

// Down a chain from position 0, or up to it: step j takes piece j and hands on piece j - 1.
void add_chain(Schedule& s, int n, std::int64_t elements, std::int64_t chunk, bool reduce) {
  std::int64_t pieces = chunk > 0 ? (elements + chunk - 1) / chunk : 1;
  for (int p = 0; p < n; ++p) {
    auto& lane = s.ranks[p].lanes[0];
    int from = reduce ? (p + 1 < n ? p + 1 : -1) : p - 1;
    int to = reduce ? p - 1 : (p + 1 < n ? p + 1 : -1);
    std::int64_t late =
        from >= 0 ? 1 : 0;  // a piece goes on in the step after the one in which it came
    for (std::int64_t j = 0; j < pieces + (to >= 0 ? late : 0); ++j) {
      Step step;
      step.reduce = reduce;
      auto piece = [&](int peer, std::int64_t i) {
        std::int64_t begin = chunk_begin(elements, pieces, i);
        return Message{peer, begin, chunk_begin(elements, pieces, i + 1) - begin};
      };
      if (from >= 0 && j < pieces) step.receives.push_back(piece(from, j));
      if (to >= 0 && j >= late) step.sends.push_back(piece(to, j - late));
      lane.push_back(std::move(step));
    }
  }
}

}  // namespace

void add_ring_pass(Schedule& s, const std::vector<int>& members, std::int64_t begin,
                   std::int64_t end, bool reduce) {
  add_pass(s, members, begin, end, reduce, 1);
}

Schedule ring_steps(Operation o, int n, std::int64_t elements, std::int64_t chunk) {
  Schedule s;
  s.ranks.resize(n);
  for (RankSteps& r : s.ranks) r.lanes.resize(1);
  if (o == Operation::Broadcast || o == Operation::Reduce) {
    add_chain(s, n, elements, chunk, o == Operation::Reduce);
    return s;
  }
  std::vector<int> all;
  for (int p = 0; p < n; ++p) all.push_back(p);
  int shift = o == Operation::AllReduce ? 0 : 1;
  if (o != Operation::AllGather) add_pass(s, all, 0, elements, true, shift);
  if (o != Operation::ReduceScatter) add_pass(s, all, 0, elements, false, shift);
  return s;
}

Rounds ring_rounds(Operation o, int n) {
  Rounds out;
  Round round;
  if (o == Operation::Broadcast || o == Operation::Reduce) {
    bool reduce = o == Operation::Reduce;
    out.pipelined = true;
    out.cycle.sums = reduce;
    for (int p = 0; p + 1 < n; ++p) {
      Transfer t = reduce ? Transfer{p + 1, p, 1} : Transfer{p, p + 1, 1};
      out.rounds.push_back({{t}, 1, reduce});
      out.cycle.transfers.push_back(t);
      out.streamed.push_back(t);
    }
    return out;
  }
  for (int p = 0; p < n; ++p) round.transfers.push_back({p, (p + 1) % n, 1.0 / n});
  round.times = n - 1;
  for (bool reduce : {true, false}) {
    if (o == (reduce ? Operation::AllGather : Operation::ReduceScatter)) continue;
    round.sums = reduce;
    out.rounds.push_back(round);
  }
  return out;
}

}  // namespace ddpsim::collective
