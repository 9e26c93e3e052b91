// Two 4-ary min-heaps for the event loop: one whose entries never change, one whose keys do.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace ddpsim::engine {

// Events ordered by (time, sequence).
struct TimedEvent {
  std::int64_t time;
  std::uint32_t sequence;
  std::uint32_t task;
  bool operator<(const TimedEvent& o) const {
    return time != o.time ? time < o.time : sequence < o.sequence;
  }
};

class EventHeap {
 public:
  bool empty() const { return events_.empty(); }
  const TimedEvent& top() const { return events_.front(); }
  void push(TimedEvent e) {
    std::size_t i = events_.size();
    events_.push_back(e);
    while (i > 0) {
      std::size_t parent = (i - 1) / 4;
      if (!(e < events_[parent])) break;
      events_[i] = events_[parent];
      i = parent;
    }
    events_[i] = e;
  }
  void pop() {
    TimedEvent last = events_.back();
    events_.pop_back();
    std::size_t n = events_.size();
    if (n == 0) return;
    std::size_t i = 0;
    for (;;) {
      std::size_t child = 4 * i + 1;
      if (child >= n) break;
      std::size_t best = child;
      std::size_t stop = child + 4 < n ? child + 4 : n;
      for (std::size_t c = child + 1; c < stop; ++c)
        if (events_[c] < events_[best]) best = c;
      if (!(events_[best] < last)) break;
      events_[i] = events_[best];
      i = best;
    }
    events_[i] = last;
  }

 private:
  std::vector<TimedEvent> events_;
};

// Sources 0..n-1, each with at most one pending time; ordered by (time, source).
class SourceHeap {
 public:
  void resize(std::size_t sources) {
    time_.assign(sources, 0);
    position_.assign(sources, kAbsent);
  }
  bool empty() const { return heap_.empty(); }
  std::uint32_t top() const { return heap_.front(); }
  std::int64_t top_time() const { return time_[heap_.front()]; }
  void set(std::uint32_t source, std::int64_t time) {
    std::uint32_t p = position_[source];
    if (p == kAbsent) {
      time_[source] = time;
      p = static_cast<std::uint32_t>(heap_.size());
      heap_.push_back(source);
      position_[source] = p;
      up(p);
    } else if (time < time_[source]) {
      time_[source] = time;
      up(p);
    } else if (time > time_[source]) {
      time_[source] = time;
      down(p);
    }
  }
  void remove(std::uint32_t source) {
    std::uint32_t p = position_[source];
    if (p == kAbsent) return;
    position_[source] = kAbsent;
    std::uint32_t last = heap_.back();
    heap_.pop_back();
    if (last == source) return;
    heap_[p] = last;
    position_[last] = p;
    up(p);
    down(position_[last]);
  }

 private:
  static constexpr std::uint32_t kAbsent = UINT32_MAX;
  bool before(std::uint32_t a, std::uint32_t b) const {
    return time_[a] != time_[b] ? time_[a] < time_[b] : a < b;
  }
  void up(std::uint32_t i) {
    std::uint32_t s = heap_[i];
    while (i > 0) {
      std::uint32_t parent = (i - 1) / 4;
      if (!before(s, heap_[parent])) break;
      place(i, heap_[parent]);
      i = parent;
    }
    place(i, s);
  }
  void down(std::uint32_t i) {
    std::uint32_t s = heap_[i];
    auto n = static_cast<std::uint32_t>(heap_.size());
    for (;;) {
      std::uint32_t child = 4 * i + 1;
      if (child >= n) break;
      std::uint32_t best = child;
      std::uint32_t stop = child + 4 < n ? child + 4 : n;
      for (std::uint32_t c = child + 1; c < stop; ++c)
        if (before(heap_[c], heap_[best])) best = c;
      if (!before(heap_[best], s)) break;
      place(i, heap_[best]);
      i = best;
    }
    place(i, s);
  }
  void place(std::uint32_t i, std::uint32_t s) {
    heap_[i] = s;
    position_[s] = i;
  }
  std::vector<std::uint32_t> heap_;
  std::vector<std::uint32_t> position_;
  std::vector<std::int64_t> time_;
};

}  // namespace ddpsim::engine
