// Plays one rank's Program on the real clock: lanes as threads, timed or real compute, collectives
// over a Mesh. The same Program and the same policies (systems/base/worker_pool.h) that the virtual
// clock drives.
//
// A timed operation takes as long as its price: its lane keeps a nominal clock and sleeps to
// absolute deadlines, so that late wake-ups do not add up. Collectives, and everything in real
// compute, take as long as they take.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "calib/clock.h"
#include "calib/mesh.h"
#include "sim/collective/messages.h"
#include "sim/model/profile.h"
#include "sim/model/program.h"

namespace ddpsim::calib {

// What a rank does, made once before the processes start.
struct Part {
  struct Collective {
    Operation operation = Operation::AllReduce;
    std::int64_t elements = 0;
    DType type = DType::Float32;
    std::int64_t offset = 0;        // bytes, into the gradients or the others
    bool gradients = false;         // an all-reduce of all ranks
    std::size_t group = 0;          // of Part::groups
    int root = 0;                   // of its members
    int communicator = 0;           // GPU: whose connections it uses (communicator_of)
    collective::Schedule schedule;  // of all ranks of the job
  };
  struct Step {
    const StepProgram* program = nullptr;
    std::vector<std::int64_t> duration_ns;  // by operation; 0 for collectives
    std::vector<std::uint8_t> awaited;      // by operation: another one names it, or it is the last
    std::vector<std::int32_t> collective;   // by operation: index into collectives, -1 = none
    std::vector<Collective> collectives;
  };
  std::vector<Step> kinds;            // warm-up steps, then steady
  std::vector<std::size_t> sequence;  // kind of each step played
  // Whose collectives there are, each a partition of the ranks: all of them, then the Program's.
  std::vector<std::vector<std::vector<int>>> groups;
  int ranks = 0;
  int worker_threads = 1;
  int communicators = 1;  // of a GPU's Program, each with connections of its own
  std::int64_t gradient_bytes = 0;
  std::int64_t other_bytes = 0;
  std::size_t most_ops = 0;
  int lanes = 1;  // of the collective that has most: slots that one needs
  // Ranks that `rank` ever sends to (&Step::sends) or receives from (&Step::receives).
  std::vector<int> peers(int rank, std::vector<collective::Message> collective::Step::*end) const;
};

// Prices of the Program's operations come from `profile`. `half`: type of compressed buckets. The
// Program and the Communicator must outlive the Part.
Part make_part(const Program& program, const collective::Communicator& comm, const Profile& profile,
               int steady_steps);

struct OpTimes {
  std::int64_t ready = 0;
  std::int64_t begin = 0;
  std::atomic<std::int64_t> end{0};  // 0 = not ended
};

// Written by the rank, read by the parent: memory that both share. [step][operation], most_ops a
// step.
struct RankRecord {
  OpTimes* times = nullptr;
  std::int64_t* step_ends = nullptr;  // by step
};

// Plays all steps from `start_ns` on. `factor`: of compute times. Throws std::runtime_error.
void play(const Part& part, int rank, Mesh& mesh, std::byte* gradients, std::byte* others,
          std::int64_t start_ns, double factor, bool real_compute, RankRecord record);

// Computes for about `ns` nanoseconds of an undisturbed core; takes longer on a shared one.
void compute_ns(std::int64_t ns);
void calibrate_compute();  // before the first compute_ns, on a quiet core

}  // namespace ddpsim::calib
