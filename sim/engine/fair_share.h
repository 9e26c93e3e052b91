// Weighted max-min fair rates (progressive filling).
//
// Raise one level theta from 0; a flow runs at weight * theta until its own maximum or one of its
// resources is used up, and is then fixed. The result: no flow can go faster without slowing one
// that is not faster (per unit of weight). Source: D. Bertsekas, R. Gallager, Data Networks, 6.5.2;
// hand-solved cases in tests/unit/fair_share_test.cc.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ddpsim::engine {

struct ShareDemand {
  std::uint32_t resource = 0;  // index into `capacity`
  double per_unit = 1;
};

// `count` identical flows.
struct ShareFlow {
  std::uint32_t demand_begin = 0;
  std::uint32_t demand_end = 0;
  double weight = 1;
  double max_rate = 0;  // 0 = unlimited
  double count = 1;
};

struct ShareScratch {
  std::vector<double> left;
  std::vector<double> slope;
  std::vector<std::uint32_t> open;   // flows not yet fixed, by resource
  std::vector<std::uint8_t> fixed;   // by flow
  std::vector<std::uint32_t> first;  // flows of a resource: users[first[r] .. first[r + 1])
  std::vector<std::uint32_t> users;
  std::vector<std::uint32_t> unsaturated;
  std::vector<std::uint32_t> limited;  // flows with a max_rate, by max_rate / weight
};

// Writes the rate of one member of each flow. REQUIRES: rate.size() == flows.size(); every flow has
// a demand or a max_rate.
void fair_share(std::span<const ShareFlow> flows, std::span<const ShareDemand> demands,
                std::span<const double> capacity, std::span<double> rate, ShareScratch& scratch);

// One to be solved again and again without allocating.
struct ShareProblem {
  std::vector<ShareFlow> flows;
  std::vector<ShareDemand> demands;
  std::vector<double> capacity;
  std::vector<double> rates;  // of one member of each flow
  void clear() { flows.clear(), demands.clear(), capacity.clear(); }
  void solve() {
    rates.resize(flows.size());
    fair_share(flows, demands, capacity, rates, scratch_);
  }

 private:
  ShareScratch scratch_;
};

}  // namespace ddpsim::engine
