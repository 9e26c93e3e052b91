// NCCL's choices that make the step shortest: algorithm, protocol and channels of each collective
// that a step has, as a tuner plugin would say them. What is fastest alone need not be it: channels
// hold SMs beside computation, and a collective that is hidden may take longer. docs/model.md 7.6.
#pragma once

#include "sim/nccl/fabric/nccl.h"
#include "sim/predict/predict.h"

namespace ddpsim::predict {

// Collectives of one operation and size, on communicators of so many nodes and ranks.
struct TunedSize {
  Operation op = Operation::AllReduce;
  std::int64_t bytes = 0;
  int nodes = 1;
  int ranks = 1;
  int times = 0;         // in a step
  nccl::Choice own;      // NCCL's
  nccl::Choice alone;    // the shortest by itself
  nccl::Choice overlap;  // with which the step is shortest
  Duration own_alone;    // each by itself
  Duration alone_alone;
  Duration overlap_alone;
};

struct NcclTuning {
  Duration own;                  // the step with NCCL's choices
  Duration alone;                // with what is fastest alone
  Duration overlap;              // with what makes it shortest: at most the shorter of the two
  std::vector<TunedSize> sizes;  // those that take longest in a step first
  std::size_t left_out = 0;      // sizes beyond kMostTunedSizes: they stay NCCL's
  int simulations = 0;
};
inline constexpr std::size_t kMostTunedSizes = 48;

// One size after the other, those that take longest first, the others as they are by then; each of
// algorithm, protocol and a number of channels (NCCL's own and the powers of two below: more, NCCL
// would not use for so few bytes) that NCCL could run is simulated as a step. It begins at the
// better of NCCL's choices and the fastest alone. REQUIRES: as predict(); backend nccl, and NCCL's
// choice is known (compute capability). Takes `options` as they are but for `known`.
NcclTuning tune_nccl(const Question& q, const Options& options = {});

// Why there is nothing to tune: another backend, one rank, no collectives. "" = there is.
std::string nothing_to_tune(const Question& q);

// As a tuner's rows: these sizes alone.
std::vector<nccl::Tuned> rows_of(const std::vector<TunedSize>& sizes,
                                 nccl::Choice TunedSize::*which);

}  // namespace ddpsim::predict
