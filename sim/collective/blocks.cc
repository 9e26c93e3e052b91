#include "sim/collective/blocks.h"

namespace ddpsim::collective {

Schedule steps_of(const BlockRounds& b, std::int64_t elements) {
  Schedule s;
  s.ranks.resize(b.positions);
  for (RankSteps& r : s.ranks) r.lanes.resize(1);
  std::vector<std::size_t> last(s.ranks.size(), SIZE_MAX);  // round of a position's newest step
  for (std::size_t k = 0; k < b.rounds.size(); ++k) {
    const BlockRound& round = b.rounds[k];
    auto step = [&](int position) -> Step& {
      std::size_t p = position;
      auto& lane = s.ranks[p].lanes[0];
      if (last[p] != k) {
        last[p] = k;
        lane.emplace_back();
        lane.back().reduce = round.reduce;
      }
      return lane.back();
    };
    for (const BlockMessage& m : round.messages) {
      std::int64_t begin = chunk_begin(elements, b.blocks, m.lo);
      std::int64_t count = chunk_begin(elements, b.blocks, m.hi) - begin;
      if (count == 0) continue;
      step(m.from).sends.push_back({m.to, begin, count});
      step(m.to).receives.push_back({m.from, begin, count});
    }
  }
  return s;
}

Rounds rounds_of(const BlockRounds& b) {
  Rounds out;
  for (const BlockRound& round : b.rounds) {
    Round r;
    r.sums = round.reduce;
    for (const BlockMessage& m : round.messages)
      r.transfers.push_back(
          {m.from, m.to, static_cast<double>(m.hi - m.lo) / static_cast<double>(b.blocks)});
    out.rounds.push_back(std::move(r));
  }
  return out;
}

int power_below(int n) {
  int p = 1;
  while (p * 2 <= n) p *= 2;
  return p;
}

Fold fold(int n, std::int64_t blocks) {
  Fold f;
  int rem = n - power_below(n);
  for (int i = 0; i < rem; ++i) {
    f.in.push_back({2 * i, 2 * i + 1, 0, blocks});
    f.out.push_back({2 * i + 1, 2 * i, 0, blocks});
    f.stays.push_back(2 * i + 1);
  }
  for (int p = 2 * rem; p < n; ++p) f.stays.push_back(p);
  return f;
}

}  // namespace ddpsim::collective
