// As many channels as a node carries at one speed: paths through all of its GPUs whose links still
// have that much to give, in the order in which NCCL tries them, until its tries are used up.
// Internal to the search. Source: NCCL src/graph/search.cc (ncclTopoSearchRec and what it calls,
// ncclTopoCompareGraphs).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/nccl/capacity.h"
#include "sim/nccl/reach.h"

namespace ddpsim::nccl {

inline constexpr int kMostChannels = 32;

enum class Shape : std::uint8_t {
  Ring,
  Balanced,  // a tree whose first child enters at its chain's second GPU: both take half of what
             // leaves the node
  Plain,     // a tree that enters and leaves at its chain's first GPU
};

// Channels, and within which limits they were looked for.
struct Channels {
  Shape shape = Shape::Ring;
  int cross = 0;     // a ring's way out may be another NIC than its way in; 2: of each two channels
                     // one goes in where the other goes out
  bool same = true;  // every channel goes through the GPUs in the first one's order
  GBps intra;        // of each inside the node, and to its NICs
  GBps inter;
  PathType far_intra = PathType::Loc;  // no way between GPUs, and to NICs, is farther
  PathType far_inter = PathType::Loc;
  int count = 0;
  int least = 1;
  int most = kMostChannels;
  int hops = 0;
  std::vector<int> order;                // [channel * gpus + step]
  std::vector<std::array<int, 2>> nics;  // of each channel, in and out
};

class Walk {
 public:
  // `network`: channels come and leave by NICs.
  Walk(const Node& node, const Machine& machine, const Reach& reach, bool network);

  // Puts what is better than `best` there, with the limits of `wanted`. Returns the tries that are
  // left; kPerfect: there cannot be more. Unless `all`, it ends as soon as the rest is hopeless:
  // was_cut() then, and 0, though NCCL, which goes on, may have tries left.
  static constexpr int kPerfect = -1;
  int look(const Channels& wanted, Channels& best, int tries, bool all = true);
  bool was_cut() const { return cut_; }
  bool found() const { return found_; }  // something better

  // Nothing that a look could find is better than `best`: its NICs and the GPUs' links carry too
  // few channels, or just as much in more hops. False says nothing.
  bool hopeless(const Channels& wanted, const Channels& best) const;

 private:
  enum class Order : std::uint8_t { Free, Numbers, Replay };
  struct Step {
    int at = 0;      // GPUs of the channel before this one
    int leave = -1;  // at which of them it goes to its NIC
    int close = -1;  // ... and back to the first GPU
    Order order = Order::Free;
  };
  struct Hops {
    int chain = 0;
    int closing = 0;
  };
  bool better(const Channels& now, const Channels& than) const;
  int most_channels(const Channels& wanted) const;
  Hops least_hops() const;
  void begin();
  void begin_at_nics();
  void begin_at(int nic, int gpu, Order order);
  void begin_near(int nic);
  void visit(int gpu, const Step& s);
  void leave(int gpu, const Step& s);
  void leave_by(int gpu, int nic, const Step& s);
  void go_on(int gpu, const Step& s);
  void go_to(int from, int to, const Step& s);
  void close(int gpu, const Step& s);
  void complete();
  bool may_leave(int nic, int start, int at) const;
  void add_next_gpus(int gpu, const Step& s);
  void add_neighbours(int gpu, std::size_t first);
  const std::vector<int>& nearest_first(int gpu, int nic);
  bool taken(int gpu) const { return (nth(visited_, gpu) >> now_.count & 1) != 0; }
  int& order_at(int channel, int step) { return nth(now_.order, channel * node_.gpus + step); }
  PathType path(int a, int b) const { return nth(node_.gpu_path, a * node_.gpus + b); }
  bool ring() const { return now_.shape == Shape::Ring; }
  bool in_pairs() const;

  const Node& node_;
  const Machine& machine_;
  const Reach& reach_;
  bool network_;
  Capacity capacity_;
  std::vector<GBps> nic_left_;             // whole GB/s that channels begin with
  std::vector<std::uint64_t> visited_;     // of each GPU, a bit for each channel
  std::vector<std::vector<int>> nearest_;  // [gpu * (nics + 1) + nic + 1], filled when asked for
  std::vector<int> next_;                  // GPUs to go on to, of all steps that are open
  Channels now_;
  Channels* best_ = nullptr;
  int tries_ = 0;
  bool all_ = true;
  bool cut_ = false;
  bool found_ = false;
  Hops least_hops_;
};

}  // namespace ddpsim::nccl
