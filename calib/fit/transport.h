// fit_transport: NCCL's all-reduces between the nodes of one machine's cluster -> that transport's
// section of a Profile. Pure.
//
// Only tables whose ring was forced are read: all-reduce, NCCL_ALGO=Ring, NCCL_PROTO=Simple or LL,
// of the fewest ranks that were measured so. That rule is by name, before any value is looked at.
// Each term is what the price (sim/collective/nccl_price.cc) needs to meet a row, the median over
// the rows that identify it:
//   efficiency   Simple, 4 MiB and more; low and high: the least and the most. With `repeats`
//                these count as well, and low and high are the 10th and the 90th percentile
//   one_way      reduces of two ranks beside all-reduces, among `repeats`
//   latency      Simple, below 64 KiB
//   ll_latency   LL, below 64 KiB
#pragma once

#include <string>
#include <vector>

#include "calib/fit/collective_table.h"

namespace ddpsim::calib {

struct TransportResidual {
  std::string table;
  int ranks = 0;
  std::int64_t bytes = 0;
  Duration measured;
  double error = 0;  // fitted / measured - 1
  bool fitted = false;
};
struct TransportFit {
  Profile profile;
  std::string transport;
  std::vector<TransportResidual> residuals;  // of every row that may run, in order of the tables
  std::vector<std::string> notes;            // what came from where, one sentence each
};

// Whether the fit may see a table, by its setting alone; of which the fewest ranks are taken.
bool fits_transport(const CollectiveSetting& s);

// The same all-reduces read again and again over minutes, in Runs of tools/python/
// ddpsim_loopback.py: NCCL's own choice, of long ones a ring with Simple. One moment does not say
// what a link does that drifts.
bool repeats_transport(const Run& run);

// `base` with the section of the tables' transport replaced, and with the interference of as many
// blocks as the collectives have channels, if `kernels` (Runs of backend cuda) measured that.
// REQUIRES: tables on clusters of one GPU a host, read_rows() done; base has the transport.
// Throws InputError if there is none that fits_transport, or no row that identifies a term.
TransportFit fit_transport(const Profile& base, const std::string& name,
                           std::vector<CollectiveTable> tables,
                           const std::vector<const Run*>& kernels,
                           const std::vector<const Run*>& repeats = {});

}  // namespace ddpsim::calib
