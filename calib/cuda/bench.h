// Timing on one GPU: a kernel's time in a full queue, batch by batch, until the median is known or
// the time is over.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "calib/cuda/stream.h"
#include "calib/gpu/samples.h"
#include "sim/model/run.h"

namespace ddpsim::calib::cuda {

// The GPU's clock and what slows it, where NVML is there; else nothing is known.
class Clocks {
 public:
  explicit Clocks(int device);
  void read(gpu::Reading& r) const;
  const std::string& missing() const { return missing_; }  // "" = NVML is there

 private:
  void* device_ = nullptr;
  std::string missing_;
};

// What a stage may take from now on, and what to do now and then so that nothing is lost (every two
// seconds at most).
struct Budget {
  double seconds = 60;
  std::function<void()> save;
};

class Bench {
 public:
  // Samples and reasons go to `run`.
  Bench(Run& run, const Budget& budget);
  cudaStream_t stream() const { return stream_; }
  double left_s() const;
  // False, and once a sentence in Run::skipped, when less than `needs_s` are left.
  bool has_time(const std::string& what, double needs_s = 0.5);
  void skip(const std::string& what, const std::string& why);

  // Device time of one launch. `launch(k)`: puts the k-th on stream().
  void device(const std::string& op, std::map<std::string, std::int64_t> parameters,
              const std::function<void(int k)>& launch);
  // Host time of one call. `batch` calls make a reading; the device is idle before each.
  // `prepare`: done before each, untimed.
  void host(const std::string& op, std::map<std::string, std::int64_t> parameters, int batch,
            const std::function<void()>& call, const std::function<void()>& prepare = {});

 private:
  void add(const std::string& op, std::map<std::string, std::int64_t> parameters,
           const std::vector<gpu::Reading>& readings);
  Run& run_;
  std::int64_t end_ns_;
  std::function<void()> save_;
  std::int64_t saved_ns_ = 0;
  StreamOwner stream_;
  EventOwner begin_;
  EventOwner done_;
  Clocks clocks_;
  gpu::Reading clock_;  // as read last
  bool out_of_time_ = false;
};

}  // namespace ddpsim::calib::cuda
