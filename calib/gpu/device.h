// What one rank's GPU can do, as the executor needs it: streams, events, work, collectives. The
// real one is in calib/cuda; tests have one that writes down what it is told. All calls are
// asynchronous on their stream, but those that say otherwise. Errors are thrown as
// std::runtime_error.
#pragma once

#include <cstdint>

#include "sim/model/workload.h"

namespace ddpsim::calib::gpu {

enum class Stream : std::uint8_t { Compute, Comm, Callback };
inline constexpr int kStreams = 3;

// What a launch puts on a stream.
struct Work {
  enum class Kind : std::uint8_t {
    Busy,  // computes for `ns` nanoseconds of an undisturbed device, with real kernels
    Move,  // memory traffic
  };
  Kind kind = Kind::Busy;
  std::int64_t ns = 0;       // Busy
  std::int64_t traffic = 0;  // Move: bytes read + written
  std::int64_t offset = -1;  // Move: of the gradients' bytes that are written; -1 = any memory
  double factor = 1;         // Move: what is read is multiplied by this
  int kernels = 1;           // launches that the traffic is spread over
};

struct Message {
  bool broadcast = false;  // from rank 0; else all-reduce (sum), in place
  bool gradients = false;  // in the gradients' memory; else in other memory
  std::int64_t offset = 0;
  std::int64_t elements = 0;
  DType type = DType::Float32;
};

class Device {
 public:
  using Event = std::int32_t;
  virtual ~Device() = default;

  // The host's clock, nanoseconds; and spinning on it: the host thread is busy until then.
  virtual std::int64_t now_ns() = 0;
  virtual void host_until(std::int64_t ns) = 0;

  virtual void launch(Stream s, const Work& w) = 0;
  virtual void communicate(Stream s, const Message& m) = 0;
  // `timed`: its moment can be asked for.
  virtual Event record(Stream s, bool timed) = 0;
  virtual void wait(Stream s, Event e) = 0;  // the stream waits
  virtual void synchronize(Event e) = 0;     // the host waits
  virtual void synchronize_all() = 0;
  // On the host's clock, about (events have their own clock, whose start is taken to be the end of
  // the first synchronize_all). After synchronize_all only.
  virtual std::int64_t moment_ns(Event e) = 0;
};

}  // namespace ddpsim::calib::gpu
