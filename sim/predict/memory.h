// What a rank's device holds in a steady step: the peak, when it is, what is in it, and whether it
// fits. From the Program's own changes; what is outside PyTorch's allocator is an estimate with a
// range. docs/model.md section 5.7.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/predict/device_memory.h"
#include "sim/predict/predict.h"

namespace ddpsim::predict {

// `spans`: of the steady step's operations, in their order, of one rank; empty = in the order in
// which the host issues them. REQUIRES: check(q) found nothing; the Program is the plan's.
Memory memory_of(const Question& q, const Program& program, const collective::Communicator& comm,
                 std::span<const Span> spans = {});

// The same of another question about the same fabric, without a simulation.
Memory memory_of(const Question& q, const Options& options = {});

// Changes after which a question that does not fit would, each tried: "batch 4", with the flags
// that make it. REQUIRES: as memory_of.
struct Fit {
  std::string change;
  std::string command;
  std::int64_t device = 0;
};
std::vector<Fit> what_fits(const Question& q, const Options& options = {});
// "batch 4 (--set workload.batch=4), or with activation checkpointing (...)"; "" = none.
std::string in_words(std::span<const Fit> fits);

}  // namespace ddpsim::predict
