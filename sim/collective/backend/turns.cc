#include "sim/collective/backend/turns.h"

#include <algorithm>
#include <set>
#include <utility>

namespace ddpsim::collective {

double turns_share(Turns how, bool turns) {
  switch (how) {
    case Turns::Never:
      return 0;
    case Turns::ByPartner:
      return turns ? 1 : 0;
    case Turns::Polled:
      return turns ? 1 : kPolledTurns;
    case Turns::Always:
      break;
  }
  return 1;
}

void Exchanges::one_way(int rank) {
  ranks_[rank] = {true, -1, false};
}

bool Exchanges::take_turns(int a, int b) {
  Rank& x = ranks_[a];
  Rank& y = ranks_[b];
  const bool computed = !x.came && !y.came;
  const bool together = x.with == b && y.with == a && !x.turns;
  const bool turns = !computed && !together;
  x = {true, b, turns};
  y = {true, a, turns};
  return turns;
}

std::vector<RoundTurns> turns_of(const Rounds& rounds, int ranks) {
  Exchanges exchanges(ranks);
  std::vector<RoundTurns> out;
  for (const Round& round : rounds.rounds) {
    RoundTurns found;
    std::set<std::pair<int, int>> ways;
    for (const Transfer& t : round.transfers) ways.insert({t.from, t.to});
    for (const auto& [from, to] : ways) {
      if (!ways.count({to, from})) {
        exchanges.one_way(from);
        exchanges.one_way(to);
      } else if (from < to) {
        found.exchanges = true;
        found.turns = exchanges.take_turns(from, to) || found.turns;
      }
    }
    out.push_back(found);
  }
  return out;
}

namespace {

// Whom a step sends to and receives from; -1: nobody.
int partner(const Step& step) {
  for (const Message& s : step.sends)
    if (std::any_of(step.receives.begin(), step.receives.end(),
                    [&](const Message& r) { return r.peer == s.peer; }))
      return s.peer;
  return -1;
}

}  // namespace

std::vector<std::vector<bool>> turns_of(const Schedule& schedule) {
  const int n = schedule.rank_count();
  Exchanges exchanges(n);
  std::vector<std::vector<bool>> out(n);
  const auto steps = [&](int r) -> const std::vector<Step>& { return schedule.ranks[r].lanes[0]; };
  for (bool again = true; again;) {
    again = false;
    for (int r = 0; r < n; ++r) {
      if (out[r].size() == steps(r).size()) continue;
      const int with = partner(steps(r)[out[r].size()]);
      if (with < 0) {
        exchanges.one_way(r);
        out[r].push_back(false);
        again = true;
        continue;
      }
      const int other = with;
      if (out[other].size() == steps(other).size()) continue;
      if (partner(steps(other)[out[other].size()]) != r) continue;
      const bool turns = exchanges.take_turns(r, with);
      out[r].push_back(turns);
      out[other].push_back(turns);
      again = true;
    }
  }
  return out;
}

}  // namespace ddpsim::collective
