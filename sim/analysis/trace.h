// A profiler's trace of one rank, as far as a step is told by it: events that last, on the rank's
// own clock. sim/io/kineto.h reads one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/model/algorithm.h"
#include "sim/model/workload.h"

namespace ddpsim::analysis {

// What an event is. Everything else in a trace is left out.
enum class Traced : std::uint8_t {
  Step,             // ProfilerStep#N
  Optimizer,        // Optimizer.step#CLASS.step
  ZeroGrad,         // Optimizer.zero_grad#...
  Wrapper,          // DistributedDataParallel.forward
  Sharded,          // an annotation of FSDP
  Input,            // enumerate(DataLoader)
  Operator,         // of forward: what has a number of autograd's
  Node,             // autograd evaluates a node
  Accumulate,       // the same of a parameter's AccumulateGrad, with the hooks that follow it
  Accumulated,      // AccumulateGrad itself
  CopyToGrad,       // DDP copies a bucket to gradients
  Collective,       // on the host: a backend's annotation of one (nccl:all_reduce)
  Launch,           // the runtime enqueues work of the device
  Sync,             // the host waits for the device
  Device,           // a kernel, a copy or a fill
  DeviceCollective  // a collective's kernel
};
inline constexpr std::uint32_t kNothing = UINT32_MAX;

struct TraceEvent {
  TimePoint begin;
  TimePoint end;
  Traced what = Traced::Node;
  std::uint32_t thread = 0;         // of the host, or a stream; numbered as they were met
  std::uint32_t detail = kNothing;  // index into names, gradients or messages, by `what`
  std::int64_t correlation = -1;    // of a launch and of what it launched; of an operator or a
                                    // node, autograd's sequence number; -1 = none
};

// Of Accumulated: what record_shapes=True says of the gradient.
struct TracedGradient {
  std::vector<std::int64_t> shape;
  std::optional<DType> dtype;
  bool undefined = false;  // no gradient arrived
};

// Of Collective and DeviceCollective, as far as the trace says it.
struct TracedMessage {
  std::optional<Operation> operation;
  std::int64_t elements = -1;  // the larger of what goes in and what comes out; -1 = not said
  std::optional<DType> dtype;
  std::string group;           // name of the process group; "" = not said
  std::string group_ranks;     // "[0, 1]"
  int group_size = 0;          // 0 = not said
  std::int64_t sequence = -1;  // its number in the process group, alike on all ranks; -1 = not said
  std::int64_t bytes() const {
    return elements < 0 || !dtype ? -1 : saturating_multiply(elements, element_size(*dtype));
  }
};

struct Trace {
  std::string file;
  int rank = -1;  // as the file says; -1 = it does not
  int world = 0;  // 0 = not said
  std::string backend;
  std::string gpu;           // name of the first device; "" = none
  bool kineto = false;       // categories and arguments; false: a list of names and times alone
  std::int64_t base_us = 0;  // of the file's clock: where the events' times count from
  std::vector<TraceEvent> events;  // by begin; the longer of two that begin together first
  std::vector<std::string> names;
  std::vector<TracedGradient> gradients;
  std::vector<TracedMessage> messages;
  std::int64_t events_in_file = 0;
};

// From the end of an iteration before to its end.
struct Iteration {
  TimePoint begin;
  TimePoint end;
  std::uint32_t thread = 0;  // that trains
};
// Whole iterations, in order: annotations of the profiler's schedule of which each holds a step of
// an optimizer; without them, from the end of an optimizer's step to that of the next. Empty: the
// trace has neither.
std::vector<Iteration> iterations(const Trace& trace);

// Where the time of one iteration goes, as a Workload says it: computation without what
// DistributedDataParallel adds. docs/model.md 6.4.
struct TracedStep {
  Iteration iteration;
  StepTimes times;                       // ready: one per arrival
  std::vector<std::uint32_t> gradients;  // of each arrival, index into Trace::gradients or kNothing
  std::vector<std::int64_t> nodes;       // of each arrival, the sequence number of the node before
  std::int64_t undefined = 0;            // parameters for which no gradient arrived
  Duration hooks;                        // of DDP, during backward
  Duration exposed;  // neither computation nor hooks: waiting for communication and copying back
  Duration input;    // within forward: the host fetches its batch
  Duration waits;    // GPU: the host waits for the device
  // On what decides the iteration's length: the device, if it has one.
  TimePoint forward_begin;
  TimePoint forward_end;
  TimePoint gradients_end;
  TimePoint reduced;  // communication of backward has ended, and what it brought is copied back
  TimePoint update_end;
  std::vector<TimePoint> arrived;  // one per gradient
  TimePoint backward_begin;        // on the host
  TimePoint backward_end;
  TimePoint update_begin;  // after what DDP does at the end of backward
  bool wrapped = false;    // by DistributedDataParallel
  bool sharded = false;    // by FSDP
  std::string optimizer;   // class, as the trace names it
  Duration length() const { return iteration.end - iteration.begin; }
  // What of the iteration is the model's own, on what decides its length.
  Duration computed() const { return times.forward + times.backward + times.optimizer; }
};
// nullopt: nothing of autograd is in the iteration.
std::optional<TracedStep> traced_step(const Trace& trace, const Iteration& iteration,
                                      std::optional<Iteration> before);
// Of all iterations that hold a backward.
std::vector<TracedStep> traced_steps(const Trace& trace);
// The index of the step whose length is the median; of an even number the shorter of the two.
// REQUIRES: at least one.
std::size_t median_step(const std::vector<TracedStep>& steps);

}  // namespace ddpsim::analysis
