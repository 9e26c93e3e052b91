// NVML's interface, whose header not every toolkit has.
#include <cstring>

#include "tests/gpu/fake/fake.h"

namespace fake = ddpsim::fake;

namespace {

constexpr double kCallUs = 500;  // a call into the driver
constexpr int kUnknown = 999;

}  // namespace

extern "C" {

int nvmlInit_v2() {
  return fake::called("nvmlInit_v2", kCallUs) ? kUnknown : 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, void** device) {
  if (std::strcmp(bus, "0000:FA:00.0") != 0) return 6;  // NVML_ERROR_NOT_FOUND
  static int one = 0;
  *device = &one;
  return 0;
}
int nvmlDeviceGetClockInfo(void*, int, unsigned* mhz) {
  if (fake::called("nvmlDeviceGetClockInfo", kCallUs)) return kUnknown;
  *mhz = static_cast<unsigned>(fake::core_mhz());
  return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* reasons) {
  if (fake::called("nvmlDeviceGetCurrentClocksThrottleReasons", kCallUs)) return kUnknown;
  const fake::Planted& p = fake::planted();
  *reasons = (p.power_cap > 0 ? 0x4ull : 0) | (p.thermal > 0 ? 0x20ull : 0);
  return 0;
}
int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) {
  if (fake::called("nvmlDeviceGetPowerUsage", kCallUs)) return kUnknown;
  *milliwatts = fake::planted().power_cap > 0 ? 699'000 : 420'000;
  return 0;
}
int nvmlDeviceGetTemperature(void*, int sensor, unsigned* celsius) {
  if (fake::called("nvmlDeviceGetTemperature", kCallUs)) return kUnknown;
  if (sensor != 0) return 2;  // NVML_ERROR_INVALID_ARGUMENT
  *celsius = fake::planted().thermal > 0 ? 88 : 61;
  return 0;
}

}  // extern "C"
