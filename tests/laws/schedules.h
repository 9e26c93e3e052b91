// Plays a Schedule on integers in memory, as strictly as a network can be: a message moves only
// when both ends have posted it, in an order that a seed decides; data is taken then, and must be
// what it was when it was posted.
#pragma once

#include <map>
#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "sim/collective/schedule.h"

namespace ddpsim::test {

using Buffers = std::vector<std::vector<std::int64_t>>;

class SchedulePlayer {
 public:
  SchedulePlayer(const collective::Schedule& s, Buffers data, std::uint64_t seed)
      : s_(s), data_(std::move(data)), state_(seed * 2 + 1) {}

  // Returns the buffers at the end; fails the test (and says where) on a deadlock, an unmatched
  // message or a hazard.
  Buffers play() {
    ranks_.resize(s_.ranks.size());
    for (std::size_t r = 0; r < ranks_.size(); ++r) ranks_[r].resize(s_.ranks[r].lanes.size());
    for (std::size_t r = 0; r < ranks_.size(); ++r) post_all(r);
    while (!ready_.empty() && problem.empty()) {
      std::swap(ready_[next() % ready_.size()], ready_.back());
      Key key = ready_.back();
      ready_.pop_back();
      move(key);
      post_all(static_cast<std::size_t>(std::get<0>(key)));
      post_all(static_cast<std::size_t>(std::get<1>(key)));
    }
    for (std::size_t r = 0; r < ranks_.size() && problem.empty(); ++r)
      for (std::size_t l = 0; l < ranks_[r].size(); ++l)
        if (ranks_[r][l].step < s_.ranks[r].lanes[l].size())
          problem = "rank " + std::to_string(r) + " is stuck in step " +
                    std::to_string(ranks_[r][l].step) + " of lane " + std::to_string(l);
    return data_;
  }

  std::string problem;

 private:
  using Key = std::tuple<int, int, std::size_t>;  // from, to, lane
  struct Posted {
    int rank;
    const collective::Message* message;
    std::vector<std::int64_t> snapshot;
  };
  struct LaneState {
    std::size_t step = 0;
    bool posted = false;
    std::size_t open = 0;  // messages that have not moved
    std::vector<std::pair<const collective::Message*, std::vector<std::int64_t>>> sums;
  };
  std::uint64_t next() {
    return (state_ = state_ * 6364136223846793005ull + 1442695040888963407ull) >> 33;
  }

  void post_all(std::size_t r) {
    for (bool again = true; again;) {
      again = false;
      for (std::size_t l = 0; l < ranks_[r].size(); ++l) again = post(r, l) || again;
    }
  }
  // A pair of posted ends for each entry of ready_.
  void offer(const Key& key, bool sends, Posted p) {
    auto& [out, in] = posted_[key];
    (sends ? out : in).push_back(std::move(p));
    if ((sends ? out : in).size() <= (sends ? in : out).size()) ready_.push_back(key);
  }

  bool post(std::size_t r, std::size_t l) {
    LaneState& lane = ranks_[r][l];
    const auto& steps = s_.ranks[r].lanes[l];
    if (lane.posted || lane.step >= steps.size()) return false;
    const collective::Step& step = steps[lane.step];
    if (step.after_lane >= 0 && ranks_[r].at(static_cast<std::size_t>(step.after_lane)).step <=
                                    static_cast<std::size_t>(step.after_step))
      return false;
    lane.posted = true;
    lane.open = step.sends.size() + step.receives.size();
    check(r, step);
    for (const auto& m : step.sends) {
      auto from = data_[r].begin() + m.offset;
      offer({static_cast<int>(r), m.peer, l}, true,
            {static_cast<int>(r), &m, {from, from + m.count}});
    }
    for (const auto& m : step.receives)
      offer({m.peer, static_cast<int>(r), l}, false, {static_cast<int>(r), &m, {}});
    if (lane.open == 0) end(r, l);
    return true;
  }

  // Within a step what comes must not fall on what goes (a sum happens at the end), nor on what
  // else comes.
  void check(std::size_t r, const collective::Step& step) {
    auto overlap = [](const collective::Message& a, const collective::Message& b) {
      return a.offset < b.offset + b.count && b.offset < a.offset + a.count;
    };
    auto size = static_cast<std::int64_t>(data_[r].size());
    for (const auto* list : {&step.sends, &step.receives})
      for (const auto& m : *list)
        if (m.count <= 0 || m.offset < 0 || m.offset + m.count > size || m.peer < 0 ||
            m.peer == static_cast<int>(r))
          problem = "a bad message of rank " + std::to_string(r);
    if (step.reduce) return;
    for (std::size_t i = 0; i < step.receives.size(); ++i) {
      for (const auto& m : step.sends)
        if (overlap(m, step.receives[i]))
          problem = "rank " + std::to_string(r) + " sends what it overwrites";
      for (std::size_t j = 0; j < i; ++j)
        if (overlap(step.receives[i], step.receives[j]))
          problem = "rank " + std::to_string(r) + " receives twice into one place";
    }
  }

  void move(const Key& key) {
    auto& [sends, receives] = posted_[key];
    Posted from = sends.front();
    Posted to = receives.front();
    sends.erase(sends.begin());
    receives.erase(receives.begin());
    auto lane = std::get<2>(key);
    if (from.message->count != to.message->count)
      problem =
          "sizes differ from rank " + std::to_string(from.rank) + " to " + std::to_string(to.rank);
    auto f = static_cast<std::size_t>(from.rank);
    auto t = static_cast<std::size_t>(to.rank);
    auto begin = data_[f].begin() + from.message->offset;
    std::vector<std::int64_t> now(begin, begin + from.message->count);
    if (now != from.snapshot)
      problem = "rank " + std::to_string(f) + " changed what it was sending";
    const collective::Step& step = s_.ranks[t].lanes[lane][ranks_[t][lane].step];
    if (step.reduce)
      ranks_[t][lane].sums.push_back({to.message, now});
    else if (problem.empty())
      std::copy(now.begin(), now.end(), data_[t].begin() + to.message->offset);
    if (--ranks_[f][lane].open == 0) end(f, lane);
    if (--ranks_[t][lane].open == 0) end(t, lane);
  }

  void end(std::size_t r, std::size_t l) {
    LaneState& lane = ranks_[r][l];
    for (const auto& [m, values] : lane.sums)
      for (std::size_t i = 0; i < values.size(); ++i)
        data_[r][static_cast<std::size_t>(m->offset) + i] += values[i];
    lane.sums.clear();
    lane.posted = false;
    ++lane.step;
  }

  const collective::Schedule& s_;
  Buffers data_;
  std::uint64_t state_;
  std::vector<std::vector<LaneState>> ranks_;
  std::map<Key, std::pair<std::vector<Posted>, std::vector<Posted>>> posted_;
  std::vector<Key> ready_;
};

}  // namespace ddpsim::test
