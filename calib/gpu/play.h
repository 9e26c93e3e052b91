// Plays one rank's Program on a GPU: the host thread issues operations in listed order, as
// PyTorch's does, on one stream a lane; events between them.
//
// The host keeps a nominal clock: a launch takes its price (measured host time of a captured
// workload, else the Profile's), within which the real call happens. It never waits for the device
// unless the Program says so.
#pragma once

#include <vector>

#include "calib/gpu/device.h"
#include "sim/model/profile.h"
#include "sim/model/program.h"

namespace ddpsim::calib::gpu {

struct PlayOptions {
  int steady_steps = 8;
  int recorded_steps = 3;  // further steady ones, with an event before and after every operation
  double factor = 1;       // of compute times: a slow rank
};

struct PlayedOp {
  std::size_t step = 0;  // index into steps
  std::uint32_t op = 0;
  std::int64_t ready_ns = 0;  // collectives: when what it waits for had ended
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
};
struct PlayedStep {
  const StepProgram* program = nullptr;
  std::int64_t end_ns = 0;  // of its last operation, on the device
  bool recorded = false;
};
struct Played {
  std::int64_t start_ns = 0;  // the host began to issue
  std::int64_t host_ns = 0;   // from then until the device had done everything: what a clock on the
                              // wall says of all steps
  std::vector<PlayedStep> steps;
  std::vector<PlayedOp> ops;  // of recorded steps, all operations in issue order; those of
                              // Lane::Host by the host's nominal clock
};

// What each operation of a step puts on its stream; made before anything is played.
struct Part {
  struct Step {
    const StepProgram* program = nullptr;
    std::vector<std::int64_t> duration_ns;  // by operation: host time of Lane::Host
    std::vector<Work> work;             // by operation: of device operations that are no collective
    std::vector<std::int32_t> message;  // by operation: index into messages; -1 = none
    std::vector<Message> messages;
    std::vector<std::uint8_t> awaited;  // by operation: something on another lane waits for it
  };
  std::vector<Step> kinds;  // warm-up steps, then steady
  std::int64_t gradient_bytes = 0;
  std::int64_t other_bytes = 0;
};

// REQUIRES: program.device == Gpu. `hook`: type of compressed buckets. The Program must outlive the
// Part.
Part make_part(const Program& program, const Profile& profile, int ranks);

Played play(const Part& part, const PlayOptions& options, Device& device);

}  // namespace ddpsim::calib::gpu
