// A job's TCP connections, which outlive its collectives: what one leaves in a buffer goes before
// what the next one sends (docs/model.md 4.6). Kept by who simulates the job; used by this room.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "sim/collective/segments.h"

namespace ddpsim::collective {

// The end of a message: the task that moves its bytes from `begin` (of the connection) on, and the
// edges that it waits for.
struct Tail {
  engine::TaskId task = 0;
  std::int64_t begin = 0;
  double per_byte = 1;
  std::vector<std::uint32_t> edges;
};

// One direction between two ranks, in one slot, on one lane of a collective.
struct Connection {
  TransportSection const* section = nullptr;
  Duration latency;
  Duration wire;
  engine::FlowId flow = 0;
  std::uint8_t transport = 0;             // index into Fabric::transports
  std::vector<engine::TaskId> delivered;  // by message
  std::vector<std::int64_t> ends;         // by message: bytes of the connection up to its last
  std::vector<Tail> tails;                // by message, those of send_in_order
  std::vector<engine::TaskId> expected;   // by message: its receiver has come so far
  std::size_t taken = 0;                  // messages of the receiver's ended steps
  std::optional<SegmentStream> segments;
  bool fluid = false;                 // its newest message is no segments
  std::size_t collective = SIZE_MAX;  // the newest that uses it
  std::size_t first = 0;              // that one's first message
};

struct Connections {
  // By sender, receiver, slot and lane.
  std::map<std::tuple<DeviceId, DeviceId, int, std::size_t>, Connection> known;
  std::size_t collectives = 0;  // so far
  // Of the next collective: those that may be in flight together use different connections
  // (docs/measuring.md, slots).
  int next_slot(std::size_t streams) {
    std::size_t number = collectives++;
    return streams == 1 ? 0 : static_cast<int>(number % (kSlotsOfStream * streams));
  }
  // The next collective, whose place is known.
  int slot(std::size_t place) {
    ++collectives;
    return static_cast<int>(place);
  }
};

}  // namespace ddpsim::collective
