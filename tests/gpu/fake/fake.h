// A GPU that is not there: what the stand-ins for the CUDA runtime, cuBLASLt, cuDNN, NCCL and NVML
// share. Nothing is computed. Each call moves a virtual clock by what was planted: first the
// host's, then, where it puts work on a stream, the stream's. Device memory cannot be touched by
// the host.
//
// Planted values: the file that DDPSIM_FAKE_GPU names, "key value" a line. Faults: the variable
// DDPSIM_FAKE_FAULT, "key=value" separated by spaces; a fault may change any planted value, too.
// Times are int64 picoseconds of one clock that all processes of a run share.
#pragma once

#include <cstdint>
#include <string>

#include <cuda_runtime_api.h>

namespace ddpsim::fake {

struct Planted {
  // Memory: max(kernel floor, bytes / rate), or their sum (form 1 and 2). Products: form 2 cuts
  // them into tiles.
  double memory_bytes_per_s = 3e12;
  double kernel_us = 2.5;
  double form = 0;
  double cache_bytes = 50 << 20;  // a kernel that finds its operands there is three times as fast
  double device_bytes = 80e9;
  // Products, FLOP/s by precision; convolutions reach `conv` of it.
  double fp32 = 5e13;
  double tf32 = 4e14;
  double bf16 = 8e14;
  double fp16 = 7.5e14;
  double conv = 0.6;
  // The algorithm that cuDNN's heuristics name, by its number there (2, 4, 5), and the workspace
  // that it needs; and one that only cuDNN's own timing finds: `conv_quick` times as fast at 3 x 3
  // in steps of one, half as fast elsewhere.
  double conv_algorithm = 2;
  double conv_workspace_bytes = 256 << 20;
  double conv_quick = 1.7;
  double conv_quick_algorithm = 5;
  double conv_quick_workspace_bytes = 3ll << 30;
  // Form 2: SMs, what a wave and a sum's split take, rates of tiles of 256 x 128, 128 x 128 and
  // 64 x 64, and of rows at multiples of 4 and 2 bytes.
  double wave_us = 1;
  double split_us = 4;
  double tile128 = 0.8;
  double tile64 = 0.4;
  double aligned4 = 0.3;
  double aligned2 = 0.15;
  // The host.
  double launch_us = 2.1;
  double event_us = 0.4;
  double latency_us = 3;         // from the end of the call to the start on an idle device
  double first_launch_us = 300;  // a kernel's code is loaded
  // Each block of a collective, or of the stand-in for one, takes this share of products, and of
  // memory's rate.
  double product_hold = 0.008;
  double memory_hold = 0.012;
  double block_bytes_per_us = 60'000;  // what such a block can move
  // The clock: cold until the device has worked for so long; then at 0.6 of its speed.
  double cold_ms = 15;
  double pcie_bytes_per_s = 5e10;
  double pageable_bytes_per_s = 1e10;
  double noise = 0;  // each kernel's time is off by at most this share
  // NCCL among ranks of one device.
  double nccl_step_us = 10;
  double nccl_bytes_per_s = 2e9;
  double nccl_version = 22809;
  // Faults.
  double power_cap = 0;  // 1: the driver says so, and products run at 0.9 of their speed
  double thermal = 0;    // 1: the same, for heat
  double refuse = 0;     // 1: NCCL takes no second rank on a device
  double turns = 0;      // 1: ranks take turns on the device, MPS does nothing
  std::string missing;   // part of a library's name that cannot be opened
  std::string hang;      // "function": its call number hang_at never returns
  std::string fail;      // "function": its call number fail_at, and those that follow, fail
  std::string crash;     // "function": the process dies in call number crash_at
  double hang_at = 1;
  double fail_at = 1;
  double crash_at = 1;
};
const Planted& planted();

// The host's clock in this process. A process that drives no device sees the latest of all.
std::int64_t now_ps();
void host_busy(double us);
void host_until(std::int64_t ps);
// Around a barrier of processes: behind it nobody's clock is before that of the last who came.
void come_to_barrier(int barrier);
void leave_barrier(int barrier);

// Every call into a library: charges the host, and hangs, fails or dies where that is planted.
// Returns whether the call must fail.
bool called(const char* function, double us);

// Work on a stream.
enum class Kind : std::uint8_t { Other, Memory, Product };
// Puts `us` of work on the stream, as the clock, the traffic beside it and noise make it longer.
void work(cudaStream_t s, Kind kind, double us);
// When work that is put there now would start, and: the stream is busy until then.
std::int64_t start_on(cudaStream_t s);
void busy_until(cudaStream_t s, std::int64_t ps);
// Until then `blocks` blocks of a collective on another stream take their share of the device.
void held(std::int64_t from_ps, std::int64_t to_ps, int blocks);
double memory_us(double bytes);
double product_us(double flops, double rate, double bytes);
// Form 2, of C (rows x columns) = A (rows x sum) B whose rows begin at multiples of `aligned`
// bytes: tiles go to SMs wave by wave.
double tiled_us(double rows, double columns, double sum, double rate, double bytes, int aligned);
// Whether all of it is one allocation of the device. Else the device is in error from now on.
bool on_device(const void* at, std::int64_t bytes);
double core_mhz();

// Memory that all processes of a run share, for NCCL.
inline constexpr int kRanks = 64;
inline constexpr int kSlots = 64;
struct Meeting;
Meeting* meeting(std::uint64_t number);
std::uint64_t new_meeting();

}  // namespace ddpsim::fake
