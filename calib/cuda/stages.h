// The stages of calibrate on one GPU, each into a Run's samples (names and parameters: sim/FORMATS.md).
#pragma once

#include "sim/model/run.h"

namespace ddpsim::calib::cuda {

void measure_memory(Run& run, double budget_s);        // move, optimizer
void measure_gemm(Run& run, double budget_s);          // gemm
void measure_conv(Run& run, double budget_s);          // conv
void measure_host(Run& run, double budget_s);          // launch, kernel_gap, event_record, event_wait, stream_synchronize
void measure_copies(Run& run, double budget_s);        // copy
void measure_interference(Run& run, double budget_s);  // interference

// Kernels of `move`, by their number in the samples.
enum class Move : std::uint8_t { Scale, Add, Zero, Cast, Normalise, Sgd, Momentum, Adam };
// Kinds of `copy`.
enum class Copy : std::uint8_t { HostToDevicePinned, HostToDevicePageable, DeviceToHostPinned, DeviceToHostPageable, DeviceToDevice, Peer };

}  // namespace ddpsim::calib::cuda
