// Kernels of our own: memory-bound ones as a training step has them, and stand-ins. Launchers are
// asynchronous; errors are thrown by check().
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

namespace ddpsim::calib::cuda {

// y = factor * x, float32: DDP's copy-in (mul_out), copy-out, flatten, division. Reads and writes 4
// bytes an element.
void launch_scale(const float* x, float* y, std::int64_t elements, float factor, cudaStream_t s);
// y += x: accumulation. 12 bytes an element.
void launch_add(const float* x, float* y, std::int64_t elements, cudaStream_t s);
// y = 0. 4 bytes an element.
void launch_zero(float* y, std::int64_t elements, cudaStream_t s);
// half = float: 6 bytes an element.
void launch_cast(const float* x, void* half, std::int64_t elements, cudaStream_t s);
// Rows of `width`, mean and variance, normalised: 8 bytes an element, as a layer norm.
void launch_normalise(const float* x, float* y, std::int64_t rows, int width, cudaStream_t s);
// p -= rate * g (12 bytes); with momentum (20 bytes); fused Adam (28 bytes an element).
void launch_sgd(float* p, const float* g, std::int64_t elements, cudaStream_t s);
void launch_momentum(float* p, const float* g, float* m, std::int64_t elements, cudaStream_t s);
void launch_adam(float* p, const float* g, float* m, float* v, std::int64_t elements,
                 cudaStream_t s);
// Pseudo-random bits: halves, and floats, between a quarter and two in size. `bytes`: a multiple of
// 4.
void launch_fill(void* at, std::int64_t bytes, cudaStream_t s);
// One thread that does nothing.
void launch_nothing(cudaStream_t s);
// One block that waits until the device's clock has moved on by `ns`.
void launch_spin(std::int64_t ns, cudaStream_t s);
// Stand-in for a communication kernel: `blocks` of `threads` that read and write memory until
// `*stop` is not 0 or `ns` have passed, each block at most `bytes_per_us`; `*moved` gets the bytes
// read and written. One launch holds `blocks` SMs' worth of residency as NCCL's channels do.
void launch_traffic(float* memory, std::int64_t elements, int blocks, int threads,
                    double bytes_per_us, std::int64_t ns, const int* stop,
                    unsigned long long* moved, cudaStream_t s);

}  // namespace ddpsim::calib::cuda
