// A step of nothing but a pause, in which token buckets fill, and the collective; its period less
// the pause.
#include "sim/play/alone.h"

#include "sim/systems/base/words.h"

namespace ddpsim::predict {

Duration all_reduce_alone(const collective::Communicator& comm, const Profile& p, Bytes bytes,
                          Fidelity fidelity, Level level, double plays_before) {
  constexpr Duration kPause{100'000'000'000};
  Program program;
  program.device = comm.fabric->cluster().device;
  program.backend = comm.backend();
  if (program.backend != Backend::Gloo) program.worker_threads = 1;  // one collective, one stream
  program.tensor_names = {"all"};
  program.tensor_bytes = {bytes.count};
  StepProgram& s = program.steady;
  s.buckets.push_back({{0}, bytes, bytes, DType::Float32});
  Op pause;
  pause.kind = systems::kForward.kind;
  pause.lane = Lane::Host;  // which waits for the collective: the next step's pause begins after it
  pause.duration = kPause;
  Op reduce;
  reduce.kind = *systems::kind_of("allreduce/bucket.0");
  const bool worker = program.backend == Backend::Gloo || program.backend == Backend::Mpi;
  reduce.lane = worker ? Lane::Worker : Lane::Comm;
  reduce.subject = 0;
  reduce.bytes = bytes.count;
  reduce.dep[0] = 0;
  Op wait;
  wait.kind = *systems::kind_of("wait/bucket.0");
  wait.lane = Lane::Host;
  wait.subject = 0;
  wait.dep[0] = 1;
  s.ops = {pause, reduce, wait};
  std::vector<RankClass> classes;
  if (fidelity == Fidelity::Message) {
    for (int r = 0; r < comm.ranks(); ++r) classes.push_back({{r}, 1, {}});
  } else {
    classes.emplace_back();
    for (int r = 0; r < comm.ranks(); ++r) classes.back().ranks.push_back(r);
  }
  SimulationOptions options;
  options.fidelity = fidelity;
  options.level = level;
  options.spans = false;
  options.warmup = false;
  options.steady_steps = 2;
  options.plays_before = plays_before;
  // The first step begins with empty buckets and ends on every rank; the next one's pause begins
  // where its rank ended. So the first, whose ranks begin together: its pause fills the buckets.
  Simulation sim = simulate(program, comm, p, classes, options);
  return sim.steps.front().end - (TimePoint{0} + kPause);
}

}  // namespace ddpsim::predict
