// Streams of a device as a framework in Python uses them: what is put on one begins after what was
// put there before, after what the stream was told to wait for, and after the host put it there.
#pragma once

#include <span>
#include <vector>

#include "sim/systems/base/builder.h"

namespace ddpsim::systems {

class DeviceStreams {
 public:
  using Stream = std::size_t;  // 0 = compute; k = Program::streams[k - 1]
  static constexpr Stream kCompute = 0;
  static Lane lane_of(Stream s) { return s == kCompute ? Lane::Compute : stream(s - 1); }

  explicit DeviceStreams(std::size_t streams) : last_(streams, kNoOp), pending_(streams) {}
  // A step begins; what was on streams in the one before is over.
  void begin(StepBuilder& b);

  // What was put on a stream last; kNoOp = nothing in this step.
  std::uint32_t last(Stream s) const { return last_[s]; }
  void set_last(Stream s, std::uint32_t op) { last_[s] = op; }
  // stream.wait_stream(other): what is put on `s` next begins after all that is on `other` by now.
  void wait(Stream s, Stream other);
  // stream.wait_event(event): after `op`; kNoOp = of a step before, long done.
  void wait_for(Stream s, std::uint32_t op);

  std::uint32_t kernel(Stream s, const OpWord& word, std::uint32_t subject, std::int64_t bytes,
                       Work work);
  // Memory traffic of so many bytes.
  std::uint32_t copy(Stream s, const OpWord& word, std::uint32_t subject, std::int64_t bytes,
                     std::int64_t kernels = 1) {
    return kernel(s, word, subject, bytes, {.traffic = bytes, .kernels = kernels});
  }
  // Issued from a stream, runs on its communicator's `lane`; the stream goes on after it.
  std::uint32_t collective(Stream s, const OpWord& word, std::uint32_t subject, std::int64_t bytes,
                           DType type, std::uint8_t group = 0, Lane lane = Lane::Comm);
  // Layers' computation: the device begins as soon as the host is far enough ahead.
  void compute(const OpWord& word, std::uint32_t subject, const Stretch& s);

 private:
  std::vector<std::uint32_t> take_pending(Stream s);
  StepBuilder* b_ = nullptr;
  std::vector<std::uint32_t> last_;
  std::vector<std::vector<std::uint32_t>> pending_;
};

}  // namespace ddpsim::systems
