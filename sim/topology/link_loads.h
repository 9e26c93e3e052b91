// What routes put on links.
#pragma once

#include <algorithm>
#include <vector>

#include "sim/topology/fabric.h"

namespace ddpsim::topology {

// Bytes that cross a link per byte that the pattern moves over each of its hops.
struct LinkLoad {
  LinkId link = 0;
  double per_byte = 0;
};

// Adds up bytes by link; take() gives the list, ascending, and begins anew.
class LinkLoads {
 public:
  explicit LinkLoads(const Fabric& f) : count_(f.links().size(), 0) {}
  void add(LinkId l, double amount) {
    if (count_[l] == 0) used_.push_back(l);
    count_[l] += amount;
  }
  void add(const Route& route, double amount) {
    for (LinkId l : route.links) add(l, amount);
  }
  std::vector<LinkLoad> take() {
    std::sort(used_.begin(), used_.end());
    std::vector<LinkLoad> out;
    out.reserve(used_.size());
    for (LinkId l : used_) {
      out.push_back({l, count_[l]});
      count_[l] = 0;
    }
    used_.clear();
    return out;
  }

 private:
  std::vector<double> count_;
  std::vector<LinkId> used_;
};

// Of links that are alike and carry alike, the first: they limit alike. `apart`: by LinkId, links
// that are unlike the others; empty = none.
std::vector<LinkLoad> fold(const Fabric& f, const std::vector<LinkLoad>& all,
                           const std::vector<bool>& apart = {});

}  // namespace ddpsim::topology
