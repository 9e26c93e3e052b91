#include "sim/play/rank_class.h"

#include <map>

#include "sim/systems/base/record.h"

namespace ddpsim::predict {

std::vector<RankClass> fold_ranks(const Scenario& s, bool fold) {
  std::vector<RankClass> out;
  std::map<double, std::size_t> by_factor;
  for (int r = 0; r < s.ranks; ++r) {
    auto it = s.slow_ranks.find(r);
    double factor = it == s.slow_ranks.end() ? 1 : it->second;
    if (r >= s.ranks - ranks_without_inputs(s.plan)) factor = 0;  // only shadows what others send
    std::size_t index = out.size();
    if (fold) index = by_factor.emplace(factor, out.size()).first->second;
    if (index == out.size()) out.push_back({{}, factor, {}});
    out[index].ranks.push_back(r);
  }
  return out;
}

}  // namespace ddpsim::predict
