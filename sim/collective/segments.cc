#include "sim/collective/segments.h"

#include <algorithm>

#include "sim/collective/message_tasks.h"

namespace ddpsim::collective {

using engine::TaskGraph;
using engine::TaskId;

namespace {

std::vector<topology::LinkId> links_between(const Communicator& c, int from, int to) {
  topology::Route route;
  c.fabric->find_route(c.devices[from], c.devices[to], route);
  return {route.links.begin(), route.links.end()};
}

TaskId pass(TaskGraph& g, const SegmentPath& path, TaskId segment, topology::LinkId link,
            double bytes, bool first) {
  CoreTasks turn = path.queue(link, bytes, first);
  g.add_edge(segment, turn.due);
  return turn.done;
}

}  // namespace

SegmentStream::SegmentStream(const Communicator& c, int from, int to, Bytes buffer)
    : way_(links_between(c, from, to)), back_(links_between(c, to, from)), buffer_(buffer) {}

SegmentStream::Sent SegmentStream::send(TaskGraph& g, const SegmentPath& path, TaskId at,
                                        TaskId start, std::int64_t bytes, double factor) {
  Sent out{start, at};
  for (std::int64_t sent = 0; sent < bytes;) {
    std::int64_t size = std::min(kSegmentBytes, bytes - sent);
    sent += size;
    std::int64_t end = size + (segments_.empty() ? 0 : segments_.back().end);
    TaskId enter = after(g, {}, {start});
    if (segments_.size() >= kSegmentsInHost)
      g.add_edge(segments_[segments_.size() - kSegmentsInHost].left, enter);
    while (under_way_ < segments_.size() &&
           end - size - (under_way_ > 0 ? segments_[under_way_ - 1].end : 0) >= buffer_.count)
      ++under_way_;
    if (under_way_ > 0) g.add_edge(segments_[under_way_ - 1].acknowledged, enter);
    TaskId there = enter;
    TaskId left = enter;
    for (std::size_t i = 0; i < way_.size(); ++i) {
      there = pass(g, path, there, way_[i], static_cast<double>(size) * factor, i == 0);
      if (i == 0) left = there;
    }
    TaskId acknowledged = reader_ ? path.acknowledge(*reader_, messages_, there) : there;
    for (topology::LinkId l : back_) acknowledged = pass(g, path, acknowledged, l, 0, false);
    segments_.push_back({left, acknowledged, end});
    out.there = there;
  }
  ++messages_;
  if (under_way_ > 0) out.accepted = after(g, {}, {at, segments_[under_way_ - 1].acknowledged});
  return out;
}

}  // namespace ddpsim::collective
