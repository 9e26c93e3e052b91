// Chrome's trace events. An arrow binds to the slice that lies under it on its thread, so each end
// of one lies inside a slice: from the last operation that made the collective ready, to the
// collective, to the first operation that waits for it. Slices of a thread must not overlap: a pool
// gets a thread per place. A host enqueues a step while the device is in the one before; viewers
// drop what is before zero, so that zero is where the earliest operation begins, and an instant
// event says where the step does.
#include <algorithm>
#include <map>

#include "sim/io/write_prediction.h"
#include "sim/units/convert.h"

namespace ddpsim::io {
namespace {

constexpr std::int64_t kInside = 1000;  // ps from a slice's border; viewers count whole nanoseconds
constexpr int kPlaces = 1000;           // threads of a lane

// Picoseconds as microseconds, six decimals at most, exactly.
OrderedJson us(std::int64_t ps) {
  return OrderedJson(microseconds(Duration{ps}).us);
}

const char* category(OpKind k) {
  return is_communication(k) ? "communication" : is_host_work(k) ? "host" : "compute";
}

struct Slice {
  const Span* span = nullptr;
  int thread = 0;
  std::int64_t begin = 0;  // from the trace's zero
  std::int64_t end = 0;
  std::int64_t first() const { return std::min(begin + kInside, begin + (end - begin) / 2); }
  std::int64_t last() const { return std::max(end - kInside, begin + (end - begin) / 2); }
};

class Trace {
 public:
  explicit Trace(const Run& run) : run_(run) {
    for (const Span& s : run.spans) zero_ = std::min(zero_, (s.begin - run.spans_from).ps);
    for (const Span& s : run.spans) {
      std::vector<Slice>& of = actors_[s.actor];
      of.push_back(
          {&s, 0, (s.begin - run.spans_from).ps - zero_, (s.end - run.spans_from).ps - zero_});
      of.back().thread = place(s.actor, of.back());
    }
  }

  // Where the step begins, from the trace's zero.
  std::int64_t step_begins() const { return -zero_; }

  OrderedJson events() {
    if (!actors_.empty())
      events_.push_back({{"ph", "i"},
                         {"s", "g"},
                         {"pid", actors_.begin()->first},
                         {"tid", 0},
                         {"name", "the step begins"},
                         {"ts", us(step_begins())}});
    for (const auto& [actor, slices] : actors_) {
      name(actor, *slices.front().span);
      for (const Slice& s : slices) draw(s);
      for (const Slice& s : slices)
        if (carries_tensors(s.span->kind)) arrow(slices, s);
    }
    return std::move(events_);
  }

 private:
  // The first thread of the lane that is free by then; the lanes of one stream have one.
  int place(int actor, const Slice& s) {
    Lane lane = s.span->lane;
    int base = static_cast<int>(lane) * kPlaces;
    if (in_order(lane)) return base;
    std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>>& places = taken_[{actor, lane}];
    auto busy = [&](const auto& list) {
      return std::any_of(list.begin(), list.end(),
                         [&](const auto& t) { return t.first < s.end && s.begin < t.second; });
    };
    std::size_t k = 0;
    while (k < places.size() && busy(places[k])) ++k;
    if (k == places.size()) places.emplace_back();
    places[k].push_back({s.begin, s.end});
    return base + static_cast<int>(k);
  }

  void name(int actor, const Span& s) {
    std::string text = "rank " + std::to_string(actor);
    if (s.count > 1) text += " (and " + std::to_string(s.count - 1) + " alike)";
    events_.push_back(
        {{"ph", "M"}, {"pid", actor}, {"name", "process_name"}, {"args", {{"name", text}}}});
    for (std::size_t n = 0; n < kLanes + run_.streams.size(); ++n) {
      const Lane l = static_cast<Lane>(n);
      auto it = taken_.find({actor, l});
      std::size_t places = it == taken_.end() ? 1 : it->second.size();
      for (std::size_t k = 0; k < places; ++k) {
        std::string lane = name_of(l, run_.streams);
        if (places > 1) lane += " " + std::to_string(k);
        int thread = static_cast<int>(l) * kPlaces + static_cast<int>(k);
        events_.push_back({{"ph", "M"},
                           {"pid", actor},
                           {"tid", thread},
                           {"name", "thread_name"},
                           {"args", {{"name", lane}}}});
        events_.push_back({{"ph", "M"},
                           {"pid", actor},
                           {"tid", thread},
                           {"name", "thread_sort_index"},
                           {"args", {{"sort_index", thread}}}});
      }
    }
  }

  void draw(const Slice& s) {
    OrderedJson x = event("X", s, s.begin);
    x["dur"] = us(s.end - s.begin);
    x["cat"] = category(s.span->kind);
    x["args"] = {{"bytes", s.span->bytes}};
    if (!s.span->algorithm.empty()) {
      x["args"]["algorithm"] = s.span->algorithm;
      x["args"]["waited_us"] = us((s.span->begin - s.span->ready).ps);
    }
    events_.push_back(std::move(x));
  }

  void arrow(const std::vector<Slice>& slices, const Slice& s) {
    const Slice* from = producer(slices, s);
    const Slice* to = consumer(slices, s);
    int id = ++flows_;
    auto point = [&](const char* phase, const Slice& at, std::int64_t ps) {
      OrderedJson f = event(phase, at, ps);
      f["name"] = s.span->op;
      f["cat"] = "bucket";
      f["id"] = id;
      if (*phase == 'f') f["bp"] = "e";
      events_.push_back(std::move(f));
    };
    if (from) point("s", *from, from->last());
    point(from ? to ? "t" : "f" : "s", s, std::max(s.first(), from ? from->last() : s.first()));
    if (to) point("f", *to, to->begin >= s.end ? to->first() : to->last());
  }

  // What ended last of the operations that a rank itself does before the collective was ready.
  static const Slice* producer(const std::vector<Slice>& slices, const Slice& s) {
    const Slice* best = nullptr;
    std::int64_t ready = s.begin - (s.span->begin - s.span->ready).ps;
    for (const Slice& p : slices) {
      if (is_communication(p.span->kind) || p.end > ready || p.end <= p.begin) continue;
      if (!best || p.end > best->end || (p.end == best->end && !is_launch(p.span->kind))) best = &p;
    }
    return best;
  }

  // What waits for it: by its bucket's name, or by tensors that it reduced; else the optimizer.
  static const Slice* consumer(const std::vector<Slice>& slices, const Slice& s) {
    std::string bucket = s.span->op.substr(s.span->op.find('/') + 1);
    const std::vector<TensorIndex>& tensors = s.span->tensors;
    auto waits = [&](const Span& c) {
      if (is_update(c.kind)) return true;
      if (!follows_reduction(c.kind)) return false;
      if (is_wait(c.kind) || of_bucket(c.kind)) return c.op.ends_with("/" + bucket);
      return c.tensors.empty() ||
             std::find(tensors.begin(), tensors.end(), c.tensors.front()) != tensors.end();
    };
    const Slice* best = nullptr;
    for (const Slice& c : slices)
      if (c.end >= s.end && c.end > c.begin && &c != &s && waits(*c.span) &&
          (!best || c.begin < best->begin))
        best = &c;
    return best;
  }

  static OrderedJson event(const char* phase, const Slice& s, std::int64_t ps) {
    return {{"ph", phase},
            {"pid", s.span->actor},
            {"tid", s.thread},
            {"name", s.span->op},
            {"ts", us(ps)}};
  }

  const Run& run_;
  std::int64_t zero_ = 0;  // ps from the start of the step; 0 or less
  std::map<int, std::vector<Slice>> actors_;
  std::map<std::pair<int, Lane>, std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>>>
      taken_;
  OrderedJson events_ = OrderedJson::array();
  int flows_ = 0;
};

}  // namespace

std::string write_trace(const Run& run) {
  OrderedJson out;
  out["displayTimeUnit"] = "ms";
  Trace trace(run);
  out["otherData"] = {{"key", run.key},
                      {"profile", run.profile},
                      {"simulator", run.simulator_version},
                      {"step_begins_us", us(trace.step_begins())}};
  out["traceEvents"] = trace.events();
  return out.dump() + "\n";
}

}  // namespace ddpsim::io
