// Open MPI over TCP: which exchanges of two ranks go one direction after the other.
//
// A message above the eager limit is announced with its first 64 KiB (btl_tcp_eager_limit); the
// receiver answers, and the rest goes as one piece on the one connection of the pair. Of an
// exchange, who hears the other's announcement before it has made its own answers first: the other
// one's rest begins, and its own answer, to the announcement that comes then, waits behind this
// rest. So the directions take turns. Only a rank that is in MPI, at another message, hears an
// announcement early: one that computes or sums does not. Hence
//   both come from computation                 both ways at once
//   both had their last exchange together      as that one
//   any other                                  in turns: no two exchanges end at the same moment
// A thread that agrees by MPI on what it sums (Horovod's) is in MPI before, too: there the first
// two happen by chance, as often as it was seen (kPolledTurns).
// Source: ompi/mca/pml/ob1/pml_ob1_recvreq.c (mca_pml_ob1_recv_request_ack, ..._schedule),
// opal/mca/btl/tcp/btl_tcp_component.c, v4.1.4; executed: docs/model.md 4.9.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/collective/round.h"

namespace ddpsim::collective {

// Of a price: exchanges take turns never, as above, as above of a thread that polls, or all of
// them. A level's (turns_at).
enum class Turns : std::uint8_t { Never, ByPartner, Polled, Always };
// Horovod over Open MPI 4.1.4 on hosts that share two cores: tests/validation/horovod_turns.py.
inline constexpr double kPolledTurns = 0.3;
// Of an exchange: the share of times that it takes turns. `turns`: it does by the rules above.
double turns_share(Turns how, bool turns);

class Exchanges {
 public:
  explicit Exchanges(int ranks) : ranks_(ranks) {}
  // The next message of a rank goes or comes without one the other way.
  void one_way(int rank);
  // The next exchange of two ranks. True: they take turns.
  bool take_turns(int a, int b);

 private:
  struct Rank {
    bool came = false;  // has had a message
    int with = -1;      // whom its last exchange was with; -1: its last message was none
    bool turns = false;
  };
  std::vector<Rank> ranks_;
};

// Of each round: does any pair of positions exchange, and does one take turns?
struct RoundTurns {
  bool exchanges = false;
  bool turns = false;
};
std::vector<RoundTurns> turns_of(const Rounds& rounds, int ranks);
// Of each rank, of each step of its first lane: does it take turns?
std::vector<std::vector<bool>> turns_of(const Schedule& schedule);

}  // namespace ddpsim::collective
