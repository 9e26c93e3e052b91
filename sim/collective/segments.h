// One direction of a TCP connection, segment by segment, where several share the links. Internal to
// this room.
//
//   segment k enters when segment k - 1 has entered, when what is under way with it fits in the
//     connection's buffer, and when all but kInHost of those before it
//   have left the sender's own link; it queues at each link of its way; its acknowledgement queues
//     behind the data at each link of the way back
//
// A receiver acknowledges what has come at once, read or not, as long as its window grows; on an
// old connection, whose window has grown, when it reads, at the latest with Linux's delayed
// acknowledgement.
//
// So a connection's rate is its buffer over the time of a round trip, in which every queue on both
// ways counts: connections that share a link do not share it evenly (max-min), one whose
// acknowledgements meet no queue takes more.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/collective/messages.h"

namespace ddpsim::collective {

// Segments of a connection in its host's own queue: tcp_limit_output_bytes (131,072) holds two.
inline constexpr std::size_t kSegmentsInHost = 2;
// Bytes after which a connection's window has grown to what its receive buffer of 128 MiB
// (tcp_rmem) allows: by two for each that comes.
inline constexpr double kWindowGrowsFor = 66e6;

class SegmentStream {
 public:
  // REQUIRES: buffer > 0.
  SegmentStream(const Communicator& c, int from, int to, Bytes buffer);

  struct Sent {
    engine::TaskId there;     // its last byte has arrived
    engine::TaskId accepted;  // the sender may go on: what is not acknowledged fits in the buffer
  };
  // A message of which the sender has the data after `at`; its first segment enters after `start`.
  // `factor`: bytes on the wire per byte.
  Sent send(engine::TaskGraph& g, const SegmentPath& path, engine::TaskId at, engine::TaskId start,
            std::int64_t bytes, double factor);
  // The connection is old: `reader` is its receiver's number.
  void age(std::size_t reader) { reader_ = reader; }
  // The receiver reads the next message from `begin` on.
  void read(const SegmentPath& path, engine::TaskId begin) const {
    if (reader_) path.reads(*reader_, begin);
  }

 private:
  struct Segment {
    engine::TaskId left;  // the sender's own link
    engine::TaskId acknowledged;
    std::int64_t end = 0;  // bytes of the connection up to here
  };
  std::vector<topology::LinkId> way_;
  std::vector<topology::LinkId> back_;
  Bytes buffer_;
  std::vector<Segment> segments_;
  std::size_t messages_ = 0;
  std::optional<std::size_t> reader_;
  std::size_t under_way_ = 0;  // the first that may still be under way when the next enters
};

}  // namespace ddpsim::collective
