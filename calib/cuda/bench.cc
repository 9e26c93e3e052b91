#include "calib/cuda/bench.h"

#include <algorithm>
#include <stdexcept>

#include "calib/clock.h"
#include "calib/cuda/kernels.h"
#include "calib/cuda/libraries.h"
#include "calib/origin.h"

namespace ddpsim::calib::cuda {
namespace {

constexpr double kReadingNs =
    300e3;  // a batch takes about this, so that event resolution (0.5 us) does not show
constexpr int kMostReadings = 60;
constexpr double kMostNs = 600e6;  // of one sample
constexpr double kWithin = 0.005;
constexpr std::int64_t kHostLaunchNs = 8'000;  // while the spin kernel runs, the host fills the
                                               // queue; doubled where that is not enough

constexpr unsigned long long kIdle = 0x1;          // nvmlClocksThrottleReasonGpuIdle
constexpr unsigned long long kApplications = 0x2;  // somebody's setting; not ours, and steady
// The power limit slows every large product of a GPU that works: training runs at that clock, too.
constexpr unsigned long long kPowerCap = 0x4;  // nvmlClocksThrottleReasonSwPowerCap
}  // namespace

Clocks::Clocks(int device) {
  try {
    char bus[32] = {};
    DDPSIM_CUDA(cudaDeviceGetPCIBusId(bus, sizeof bus, device));
    if (int code = nvml().nvmlDeviceGetHandleByPciBusId_v2(bus, &device_)) {
      device_ = nullptr;
      missing_ = "nvmlDeviceGetHandleByPciBusId_v2: error " + std::to_string(code);
    }
  } catch (const std::runtime_error& e) {
    missing_ = e.what();
  }
}

void Clocks::read(gpu::Reading& r) const {
  if (!device_) return;
  unsigned mhz = 0;
  if (nvml().nvmlDeviceGetClockInfo(device_, 1 /* NVML_CLOCK_SM */, &mhz) == 0)
    r.sm_mhz = static_cast<int>(mhz);
  unsigned mw = 0;
  if (nvml().nvmlDeviceGetPowerUsage(device_, &mw) == 0) r.power_mw = static_cast<int>(mw);
  unsigned long long reasons = 0;
  if (nvml().nvmlDeviceGetCurrentClocksThrottleReasons(device_, &reasons) == 0)
    r.throttled = (reasons & ~(kIdle | kApplications | kPowerCap)) != 0;
  r.throttle_bits = static_cast<std::int64_t>(reasons & ~kIdle);
  unsigned celsius = 0;
  if (nvml().nvmlDeviceGetTemperature(device_, 0 /* NVML_TEMPERATURE_GPU */, &celsius) == 0)
    r.celsius = static_cast<int>(celsius);
}

Bench::Bench(Run& run, const Budget& budget)
    : run_(run),
      end_ns_(now_ns() + static_cast<std::int64_t>(budget.seconds * 1e9)),
      save_(budget.save),
      clocks_(0) {
  if (!clocks_.missing().empty()) skip("clock of the GPU", clocks_.missing());
  // A GPU that was idle raises its clock while it works.
  constexpr std::int64_t kWarmBytes = 256 << 20;
  DeviceMemory memory(kWarmBytes);
  for (std::int64_t until =
           now_ns() + std::min<std::int64_t>(1'000'000'000,
                                             static_cast<std::int64_t>(budget.seconds * 1e9 / 10));
       now_ns() < until;) {
    for (int i = 0; i < 20; ++i) launch_fill(memory.at(), kWarmBytes, stream_);
    DDPSIM_CUDA(cudaStreamSynchronize(stream_));
  }
}

double Bench::left_s() const {
  return static_cast<double>(end_ns_ - now_ns()) / 1e9;
}

bool Bench::has_time(const std::string& what, double needs_s) {
  if (left_s() >= needs_s) return true;
  if (!out_of_time_) skip(what + " and what follows", "the time of this stage was over");
  out_of_time_ = true;
  return false;
}

void Bench::skip(const std::string& what, const std::string& why) {
  run_.skipped.push_back({what, why});
}

void Bench::device(const std::string& op, std::map<std::string, std::int64_t> parameters,
                   const std::function<void(int)>& launch) {
  int k = 0;
  std::int64_t each_ns = kHostLaunchNs;
  try {
    // The spin kernel must still run when the host has put the last launch into the queue: else
    // launches were timed.
    auto batch_ns = [&](int count) {
      for (int attempt = 0; attempt < 10; ++attempt) {
        launch_spin(std::max<std::int64_t>(20'000, count * each_ns), stream_);
        DDPSIM_CUDA(cudaEventRecord(begin_, stream_));
        for (int i = 0; i < count; ++i) launch(k++);
        bool full = cudaEventQuery(begin_) == cudaErrorNotReady;
        DDPSIM_CUDA(cudaEventRecord(done_, stream_));
        DDPSIM_CUDA(cudaEventSynchronize(done_));
        if (full) return elapsed_ns(begin_, done_);
        each_ns *= 2;
      }
      throw std::runtime_error(
          op + ": the host cannot fill the queue, so the device's time is not known");
    };
    batch_ns(3);
    each_ns = kHostLaunchNs;  // the first launches load code
    auto once = static_cast<double>(std::max<std::int64_t>(1, batch_ns(1)));
    int count = static_cast<int>(std::clamp(kReadingNs / once, 1.0, 200.0));
    std::vector<gpu::Reading> readings;
    std::vector<Duration> durations;
    std::int64_t from = now_ns();
    while (static_cast<int>(readings.size()) < kMostReadings) {
      gpu::Reading r;
      r.took = {batch_ns(count) * 1000 / count};
      if (readings.size() % 10 == 0 || readings.empty())
        clocks_.read(clock_);  // a call into the driver takes milliseconds
      r.sm_mhz = clock_.sm_mhz;
      r.throttled = clock_.throttled;
      readings.push_back(r);
      durations.push_back(r.took);
      if (gpu::settled(durations, kWithin) ||
          (readings.size() >= 3 && static_cast<double>(now_ns() - from) > kMostNs))
        break;
    }
    add(op, std::move(parameters), readings);
  } catch (const std::runtime_error& e) {
    if (run_.skipped.size() < 40) skip(op, e.what());  // the next sample may do
  }
}

void Bench::host(const std::string& op, std::map<std::string, std::int64_t> parameters, int batch,
                 const std::function<void()>& call, const std::function<void()>& prepare) {
  std::vector<gpu::Reading> readings;
  for (int i = 0; i < 22; ++i) {
    DDPSIM_CUDA(cudaDeviceSynchronize());
    if (prepare) prepare();
    std::int64_t from = now_ns();
    for (int k = 0; k < batch; ++k) call();
    gpu::Reading r;
    r.took = {(now_ns() - from) * 1000 / batch};
    if (i >= 2) readings.push_back(r);  // the first ones load code
  }
  DDPSIM_CUDA(cudaDeviceSynchronize());
  add(op, std::move(parameters), readings);
}

void Bench::add(const std::string& op, std::map<std::string, std::int64_t> parameters,
                const std::vector<gpu::Reading>& readings) {
  gpu::Kept kept = gpu::keep(readings);
  if (kept.discarded == 0 && !kept.reason.empty() && run_.quality.reasons.size() < 8)
    add_noise(run_.quality, op + ": " + kept.reason);
  std::erase_if(kept.durations, [](Duration d) { return d.ps <= 0; });
  // Said with the sample, and no part of what was measured (calib/fit/shapes.h held_out).
  if (clock_.sm_mhz > 0) parameters["sm_mhz"] = clock_.sm_mhz;
  if (clock_.power_mw > 0) parameters["power_mw"] = clock_.power_mw;
  if (clock_.celsius > 0) parameters["celsius"] = clock_.celsius;
  if (clock_.throttle_bits > 0) parameters["throttle_bits"] = clock_.throttle_bits;
  if (!kept.durations.empty())
    run_.samples.push_back({op, std::move(parameters), std::move(kept.durations)});
  if (save_ && now_ns() > saved_ns_ + 2'000'000'000) {
    save_();
    saved_ns_ = now_ns();
  }
}

}  // namespace ddpsim::calib::cuda
