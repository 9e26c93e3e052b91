// What routes put on links. Internal to this room.
#pragma once

#include <algorithm>
#include <vector>

#include "sim/collective/nccl_group.h"

namespace ddpsim::collective {

// Adds up bytes by link; take() gives the list, ascending, and begins anew.
class LinkLoads {
 public:
  explicit LinkLoads(const topology::Fabric& f) : count_(f.links().size(), 0) {}
  void add(topology::LinkId l, double amount) {
    if (count_[l] == 0) used_.push_back(l);
    count_[l] += amount;
  }
  void add(const topology::Route& route, double amount) {
    for (topology::LinkId l : route.links) add(l, amount);
  }
  std::vector<LinkLoad> take() {
    std::sort(used_.begin(), used_.end());
    std::vector<LinkLoad> out;
    out.reserve(used_.size());
    for (topology::LinkId l : used_) {
      out.push_back({l, count_[l]});
      count_[l] = 0;
    }
    used_.clear();
    return out;
  }

 private:
  std::vector<double> count_;
  std::vector<topology::LinkId> used_;
};

// Of links that are alike and carry alike, the first: they limit alike.
std::vector<LinkLoad> fold(const topology::Fabric& f, const std::vector<LinkLoad>& all);

}  // namespace ddpsim::collective
