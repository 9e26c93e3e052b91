// Shared vocabulary of the lowerings: emits operations on the lanes of a CPU or a GPU rank (who
// launches, who waits).
#pragma once

#include <algorithm>

#include "sim/systems/base/lower.h"
#include "sim/systems/base/model_memory.h"
#include "sim/systems/base/words.h"

namespace ddpsim::systems {

// What a main-lane operation costs.
struct Work {
  Duration duration;          // measured device (GPU) or thread (CPU) time, if traffic == 0
  std::int64_t traffic = 0;   // bytes read + written; priced by the Profile
  std::int64_t kernels = 1;   // launched by the host
  std::int64_t hooks = 0;     // DDP hooks that run on the host with it
  bool divides_half = false;  // its bucket, in half precision
  bool thin = false;          // a product of matrices with a few columns
  Cost cost() const {
    if (traffic == 0) return Cost::Measured;
    return divides_half ? Cost::HalfDivision : thin ? Cost::ThinProduct : Cost::Memory;
  }
};

// Layers that run one after another, as one operation.
struct Stretch {
  Duration device;
  Duration host;
  // Host time from the first call until the device, started then, need not wait for a launch again:
  // the most that a layer's launch is behind the device's work before it. 0 <= head <= host.
  Duration head;
  void add(Duration on_device, Duration on_host) {
    host += on_host;
    head = std::max(head, host - device);
    device += on_device;
  }
};
// All of forward. Without times of layers, calls and kernels advance alike.
Stretch forward_of(const StepTimes& times);

class StepBuilder {
 public:
  // `model` is there as long as the builder.
  StepBuilder(Program& program, StepKind kind, const Workload& w, const ModelMemory& model);
  bool gpu() const { return program_.device == DeviceKind::Gpu; }
  // Launches cost nothing: the step is a CUDA graph.
  void set_graphed(bool graphed) { graphed_ = graphed; }
  // Gloo with CUDA tensors: what a copy takes; none = nothing.
  void set_staging(const std::optional<HostMemory>& memory) { staging_ = memory; }
  void set_micro(int micro) { micro_ = static_cast<std::int16_t>(micro); }
  // All that follows is named by its batch, also what belongs to the step elsewhere: of several
  // reductions in a step. -1: no longer.
  void set_batch(int batch) {
    micro_ = static_cast<std::int16_t>(batch);
    of_batch_ = batch >= 0;
  }
  // Adds measured host time to the next launch (GPU).
  void host_time(Duration d) { host_carry_ += d; }
  // All of forward: the device begins as soon as the host is far enough ahead, and the host goes on
  // to what it launches next.
  std::uint32_t forward(const StepTimes& times);
  // The same of some layers, [from, to).
  std::uint32_t forward(const OpWord& word, std::uint32_t subject, const Stretch& s,
                        std::size_t from, std::size_t to);

  // Memory that an operation, by default the last, allocates when the host issues it, and frees
  // then or when it has ended.
  void allocate(Holds holds, std::int64_t bytes, std::uint32_t op = kNoOp) {
    change(op, holds, bytes, false);
  }
  void release(Holds holds, std::int64_t bytes, std::uint32_t op = kNoOp, bool at_end = false) {
    change(op, holds, -bytes, at_end);
  }
  // Activations that the last operation makes or frees, and what it needs beside them.
  void activations(const LayersMemory& m);
  // The last operation was all of forward.
  void all_forward();
  // Of a system that keeps whole gradients: the last operation made that of `t`, and the layers
  // down to its own have run; kNoTensor: all have. `kept`: in a tensor that was not there.
  void gradient(TensorIndex t, bool kept);
  // Those that this step made, as the next one begins.
  void release_gradients();
  static constexpr TensorIndex kNoTensor = UINT32_MAX;

  // From the last gradient to the next forward: what the loop does, and the optimizer.
  void update(const StepTimes& times) {
    optimize(times, workload_.elements());
    end_update();
  }
  // Its two halves, for systems that do something between them. The optimizer updates so many
  // elements, in their share of its time.
  void optimize(const StepTimes& times, std::int64_t elements);
  void end_update();

  // On the compute stream (GPU, behind its launch) or on the host thread (CPU). Zero kernels with
  // zero traffic is measured work.
  std::uint32_t main(const OpWord& word, std::uint32_t subject, std::int64_t bytes, Work work);
  // On the compute stream / host thread; on a GPU also waits for `dep` (CPU: the caller has emitted
  // a host wait).
  std::uint32_t main_after(const OpWord& word, std::uint32_t subject, std::int64_t bytes, Work work,
                           std::uint32_t dep);
  // A collective: on the communicator's stream or Gloo's workers. `on_current_stream`: on the
  // compute stream instead (GPU). Gloo with CUDA tensors: returns the copy back, which the device
  // waits for.
  std::uint32_t collective(const OpWord& word, std::uint32_t subject, std::int64_t bytes,
                           DType dtype, bool on_current_stream = false);
  // Where a Work stops its host (MPI's, Gloo's): the host blocks until the worker is done with
  // `dep`, a collective or its callback. Nothing over NCCL.
  void await(const OpWord& word, std::uint32_t subject, std::uint32_t dep);
  // The host blocks until `dep` ended.
  std::uint32_t wait(const OpWord& word, std::uint32_t subject, std::uint32_t dep);
  // Continuation of a collective (comm hook's future).
  std::uint32_t callback(const OpWord& word, std::uint32_t subject, std::int64_t bytes, Work work,
                         std::uint32_t dep);
  // What goes on beside the rank's lanes, issued by threads of its own: messages to a server, and
  // what that does with them.
  std::uint32_t beside(const OpWord& word, std::uint32_t subject, std::int64_t bytes, DType dtype,
                       Duration d, std::uint32_t dep);
  // Host-only work.
  std::uint32_t host(const OpWord& word, Cost cost, std::uint32_t subject = kNoSubject);
  // The same of so many bytes of its memory, which takes so long.
  std::uint32_t host(const OpWord& word, std::uint32_t subject, std::int64_t bytes, Duration d);
  // On any stream of the device, behind its launch and all of `after` (GPU).
  std::uint32_t on_stream(Lane stream, const OpWord& word, std::uint32_t subject,
                          std::int64_t bytes, Work work, std::span<const std::uint32_t> after);
  // A collective that waits for all of `after` instead of for the compute stream (GPU).
  std::uint32_t collective_after(const OpWord& word, std::uint32_t subject, std::int64_t bytes,
                                 DType dtype, std::span<const std::uint32_t> after,
                                 Lane lane = Lane::Comm);
  // A place on a lane that takes no time: what others wait for.
  std::uint32_t event(const OpWord& word, Lane lane);
  void add_dep(std::uint32_t op, std::uint32_t dep);
  // The next operation on the compute stream waits for `dep` (GPU; on a CPU the host waits).
  void before_next_main(std::uint32_t dep) { carried_.push_back(dep); }

  StepProgram step;

 private:
  void change(std::uint32_t op, Holds holds, std::int64_t bytes, bool at_end);
  // Good until the next one.
  Op& push(const OpWord& word, Lane lane, std::uint32_t subject, std::int64_t bytes);
  std::uint32_t last() const { return step.next_op() - 1; }
  static void take(const Work& work, Op& op);
  std::uint16_t number_of(const OpWord& word);
  bool staged() const { return gpu() && program_.backend == Backend::Gloo; }
  std::uint32_t staged_collective(const OpWord& word, std::uint32_t subject, std::int64_t bytes,
                                  DType dtype);
  std::uint32_t launch(Work work, Cost cost);
  Program& program_;
  const Workload& workload_;
  const ModelMemory& model_;
  std::vector<const char*> known_;  // words of this step, in the order in which they came
  std::vector<std::uint16_t> numbers_;
  std::int16_t micro_ = -1;
  bool of_batch_ = false;
  std::uint32_t last_host_ = kNoOp;
  std::uint32_t last_compute_ = kNoOp;
  Duration host_carry_;
  bool graphed_ = false;
  std::optional<HostMemory> staging_;
  std::size_t layer_ = 0;  // backward: layers above it have run
  std::vector<std::uint32_t> carried_;
};

// optimizer.zero_grad() of gradients that stay where they are, by the plan's version of PyTorch.
void zero_gradients(StepBuilder& b, const Workload& w, const Plan& plan);

}  // namespace ddpsim::systems
