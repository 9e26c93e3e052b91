// One rank's TCP connections to the other ranks of its job, and the playing of a collective's steps
// over them.
//
// A connection is one direction between two ranks in one slot. Collectives that may be in flight
// together use different slots, and so do the lanes of one collective; within a slot they follow
// one another in the same order on every rank.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "sim/collective/schedule.h"
#include "sim/model/workload.h"

namespace ddpsim::calib {

struct Peer {
  std::string address;  // IPv4
  std::uint16_t port = 0;
};

// Where sums are received, by lane; kept from one collective to the next.
using Scratch = std::vector<std::vector<std::byte>>;

class Mesh {
 public:
  explicit Mesh(int slots);
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;
  ~Mesh();
  // Listens on `address`, any port; returns the port. Throws std::runtime_error.
  std::uint16_t listen(const std::string& address);
  // Connects to every rank in `send_to`, accepts from every rank in `receive_from`. All ranks have
  // called listen().
  void connect(int rank, std::span<const Peer> peers, std::span<const int> send_to,
               std::span<const int> receive_from);
  // Plays one rank's steps on `data` (elements of `type`), all lanes in one poll loop, receiving
  // sums into scratch memory of its own. Lane l uses slot first_slot + l. Throws std::runtime_error
  // if a peer is gone or silent for a minute, or if the steps cannot go on. Several threads may
  // play at once, each in slots and with scratch of its own.
  void play(const collective::RankSteps& steps, std::byte* data, DType type, Scratch& scratch,
            int first_slot);
  // TCP segments sent again, over all connections.
  std::int64_t retransmits() const;
  // Wall time spent in sums of received messages so far, by all threads that play.
  std::int64_t summing_ns() const { return summing_ns_.load(std::memory_order_relaxed); }
  int slots() const { return slots_; }

 private:
  struct Transfer;
  struct LaneState;
  bool move(std::vector<Transfer>& transfers, bool sends) const;
  void begin(const collective::RankSteps& steps, std::vector<LaneState>& lanes, std::size_t l,
             std::byte* data, std::int64_t size, Scratch& scratch, int first_slot) const;
  void end(const collective::Step& step, LaneState& lane, std::byte* data, DType type,
           const std::vector<std::byte>& scratch);
  static void wait(const std::vector<LaneState>& lanes);
  int slots_;
  std::atomic<std::int64_t> summing_ns_ = 0;
  int listener_ = -1;
  std::map<std::pair<int, int>, int> out_;  // (rank, slot) -> socket
  std::map<std::pair<int, int>, int> in_;
};

// data[i] += more[i]. Float32, Float16, BFloat16 (summed in float32, rounded to nearest even) or
// Float64.
void sum_into(std::byte* data, const std::byte* more, std::int64_t elements, DType type);

}  // namespace ddpsim::calib
