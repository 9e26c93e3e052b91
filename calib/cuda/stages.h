// The stages of calibrate on one GPU, each into a Run's samples (names and parameters:
// docs/formats.md).
#pragma once

#include "calib/cuda/bench.h"
#include "sim/model/run.h"

namespace ddpsim::calib::cuda {

void measure_memory(Run& run, const Budget& budget);  // move, optimizer
void measure_gemm(Run& run, const Budget& budget);    // gemm
void measure_conv(Run& run, const Budget& budget);    // conv, in both modes of PyTorch
void measure_host(
    Run& run,
    const Budget& budget);  // launch, kernel_gap, event_record, event_wait, stream_synchronize
void measure_copies(Run& run, const Budget& budget);        // copy
void measure_interference(Run& run, const Budget& budget);  // interference

// Kernels of `move`, by their number in the samples.
enum class Move : std::uint8_t { Scale, Add, Zero, Cast, Normalise, Sgd, Momentum, Adam };
// Kinds of `copy`.
enum class Copy : std::uint8_t {
  HostToDevicePinned,
  HostToDevicePageable,
  DeviceToHostPinned,
  DeviceToHostPageable,
  DeviceToDevice,
  Peer
};

}  // namespace ddpsim::calib::cuda
