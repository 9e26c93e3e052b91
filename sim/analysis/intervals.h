// Stretches of time on one lane or several, in picoseconds: what is busy, and how much of it lies
// beside something else.
#pragma once

#include <cstdint>
#include <vector>

namespace ddpsim::analysis {

struct Interval {
  std::int64_t begin;
  std::int64_t end;
};

// Sorted and disjoint; empty ones are left out.
std::vector<Interval> unite(std::vector<Interval> v);
// REQUIRES: disjoint.
std::int64_t length(const std::vector<Interval>& v);
// What of `a` is not in `b`. REQUIRES: each sorted and disjoint.
std::vector<Interval> less(const std::vector<Interval>& a, const std::vector<Interval>& b);
// Of what lies in both. REQUIRES: each sorted and disjoint.
std::int64_t overlap_length(const std::vector<Interval>& a, const std::vector<Interval>& b);

}  // namespace ddpsim::analysis
