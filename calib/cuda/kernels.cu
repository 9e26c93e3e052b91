#include <cuda_fp16.h>

#include "calib/cuda/check.h"
#include "calib/cuda/kernels.h"

namespace ddpsim::calib::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kPerThread = 4;

__host__ unsigned blocks_for(std::int64_t elements) {
  std::int64_t n = (elements + kThreads * kPerThread - 1) / (kThreads * kPerThread);
  return static_cast<unsigned>(n < 1 ? 1 : n);
}

// A block's threads go through its elements side by side.
template <class F>
__device__ void each(std::int64_t elements, F f) {
  std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads * kPerThread + threadIdx.x;
#pragma unroll
  for (int k = 0; k < kPerThread; ++k, i += kThreads)
    if (i < elements) f(i);
}

__global__ void scale(const float* __restrict__ x, float* __restrict__ y, std::int64_t n,
                      float factor) {
  std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kPerThread;
  bool aligned =
      ((reinterpret_cast<std::uintptr_t>(x) | reinterpret_cast<std::uintptr_t>(y)) & 15) == 0;
  if (aligned && i + kPerThread <= n) {
    float4 v = *reinterpret_cast<const float4*>(x + i);
    v.x *= factor, v.y *= factor, v.z *= factor, v.w *= factor;
    *reinterpret_cast<float4*>(y + i) = v;
    return;
  }
  for (int k = 0; k < kPerThread; ++k)
    if (i + k < n) y[i + k] = factor * x[i + k];
}
__global__ void add(const float* __restrict__ x, float* __restrict__ y, std::int64_t n) {
  each(n, [=](std::int64_t i) { y[i] += x[i]; });
}
__global__ void zero(float* y, std::int64_t n) {
  each(n, [=](std::int64_t i) { y[i] = 0; });
}
__global__ void cast(const float* __restrict__ x, __half* __restrict__ y, std::int64_t n) {
  each(n, [=](std::int64_t i) { y[i] = __float2half(x[i]); });
}
__global__ void sgd(float* __restrict__ p, const float* __restrict__ g, std::int64_t n) {
  each(n, [=](std::int64_t i) { p[i] -= 1e-6f * g[i]; });
}
__global__ void momentum(float* __restrict__ p, const float* __restrict__ g, float* __restrict__ m,
                         std::int64_t n) {
  each(n, [=](std::int64_t i) {
    float v = 0.9f * m[i] + g[i];
    m[i] = v;
    p[i] -= 1e-6f * v;
  });
}
__global__ void adam(float* __restrict__ p, const float* __restrict__ g, float* __restrict__ m,
                     float* __restrict__ v, std::int64_t n) {
  each(n, [=](std::int64_t i) {
    float a = 0.9f * m[i] + 0.1f * g[i];
    float b = 0.999f * v[i] + 0.001f * g[i] * g[i];
    m[i] = a;
    v[i] = b;
    p[i] -= 1e-6f * a / (sqrtf(b) + 1e-8f);
  });
}

// A block a row.
__global__ void normalise(const float* __restrict__ x, float* __restrict__ y, int width) {
  __shared__ float sums[2][kThreads];
  const float* row = x + static_cast<std::int64_t>(blockIdx.x) * width;
  float* out = y + static_cast<std::int64_t>(blockIdx.x) * width;
  float sum = 0;
  float squares = 0;
  for (int i = static_cast<int>(threadIdx.x); i < width; i += kThreads) {
    sum += row[i];
    squares += row[i] * row[i];
  }
  sums[0][threadIdx.x] = sum;
  sums[1][threadIdx.x] = squares;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (static_cast<int>(threadIdx.x) < half) {
      sums[0][threadIdx.x] += sums[0][threadIdx.x + half];
      sums[1][threadIdx.x] += sums[1][threadIdx.x + half];
    }
    __syncthreads();
  }
  float mean = sums[0][0] / static_cast<float>(width);
  float scale = rsqrtf(fmaxf(sums[1][0] / static_cast<float>(width) - mean * mean, 0.f) + 1e-5f);
  for (int i = static_cast<int>(threadIdx.x); i < width; i += kThreads)
    out[i] = (row[i] - mean) * scale;
}

__global__ void fill(std::uint32_t* y, std::int64_t n) {
  each(n, [=](std::int64_t i) {
    auto x = static_cast<std::uint32_t>(i) * 2654435761u + 12345u;
    x ^= x >> 15, x *= 2246822519u, x ^= x >> 13;
    y[i] = (x & 0x87ff87ffu) | 0x38003800u;  // two halves of either sign
  });
}

__global__ void nothing() {}

__device__ std::int64_t device_ns() {
  std::int64_t t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}

__global__ void spin(std::int64_t ns) {
  std::int64_t end = device_ns() + ns;
  while (device_ns() < end) {
  }
}

constexpr int kAhead = 8;  // loads of a thread under way
constexpr int kPoll = 16;  // rounds between looks at `stop`, which lies in the host's memory
constexpr int kShared = 40 << 10;  // bytes that a block takes, so that others do not join it on its
                                   // SM as easily as an empty one's

__global__ __launch_bounds__(544, 1) void traffic(float4* memory, std::int64_t quads,
                                                  double bytes_per_ns, std::int64_t ns,
                                                  const int* stop, unsigned long long* moved) {
  extern __shared__ char taken[];
  __shared__ bool done;
  if (threadIdx.x == 0) taken[0] = 0;
  std::int64_t begin = device_ns();
  std::int64_t share = quads / gridDim.x;
  float4* mine = memory + share * blockIdx.x;
  unsigned long long bytes = 0;
  std::int64_t round = static_cast<std::int64_t>(blockDim.x) * kAhead;
  std::int64_t at = 0;
  for (int k = 0;; ++k) {
    if (bytes_per_ns > 0 || k % kPoll == 0) {
      __syncthreads();
      if (threadIdx.x == 0) {
        while (bytes_per_ns > 0 &&
               static_cast<double>(bytes) >
                   bytes_per_ns * static_cast<double>(device_ns() - begin) &&
               device_ns() - begin < ns) {
        }
        done = device_ns() - begin >= ns ||
               (k % kPoll == 0 && *reinterpret_cast<const volatile int*>(stop) != 0);
      }
      __syncthreads();
      if (done) break;
    }
    if (at + round > share) at = 0;
    float4 v[kAhead];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) v[a] = mine[at + a * blockDim.x + threadIdx.x];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      v[a].x += 1;
      mine[at + a * blockDim.x + threadIdx.x] = v[a];
    }
    at += round;
    bytes += 32ull * round;
  }
  if (threadIdx.x == 0) atomicAdd(moved, bytes);
}

}  // namespace

void launch_scale(const float* x, float* y, std::int64_t n, float factor, cudaStream_t s) {
  scale<<<blocks_for(n), kThreads, 0, s>>>(x, y, n, factor);
  DDPSIM_CUDA(cudaGetLastError());
}
void launch_add(const float* x, float* y, std::int64_t n, cudaStream_t s) {
  add<<<blocks_for(n), kThreads, 0, s>>>(x, y, n);
  DDPSIM_CUDA(cudaGetLastError());
}
void launch_zero(float* y, std::int64_t n, cudaStream_t s) {
  zero<<<blocks_for(n), kThreads, 0, s>>>(y, n);
  DDPSIM_CUDA(cudaGetLastError());
}
void launch_cast(const float* x, void* half, std::int64_t n, cudaStream_t s) {
  cast<<<blocks_for(n), kThreads, 0, s>>>(x, static_cast<__half*>(half), n);
  DDPSIM_CUDA(cudaGetLastError());
}
void launch_normalise(const float* x, float* y, std::int64_t rows, int width, cudaStream_t s) {
  normalise<<<static_cast<unsigned>(rows), kThreads, 0, s>>>(x, y, width);
  DDPSIM_CUDA(cudaGetLastError());
}
void launch_sgd(float* p, const float* g, std::int64_t n, cudaStream_t s) {
  sgd<<<blocks_for(n), kThreads, 0, s>>>(p, g, n);
  DDPSIM_CUDA(cudaGetLastError());
}
void launch_momentum(float* p, const float* g, float* m, std::int64_t n, cudaStream_t s) {
  momentum<<<blocks_for(n), kThreads, 0, s>>>(p, g, m, n);
  DDPSIM_CUDA(cudaGetLastError());
}
void launch_adam(float* p, const float* g, float* m, float* v, std::int64_t n, cudaStream_t s) {
  adam<<<blocks_for(n), kThreads, 0, s>>>(p, g, m, v, n);
  DDPSIM_CUDA(cudaGetLastError());
}
void launch_fill(void* at, std::int64_t bytes, cudaStream_t s) {
  std::int64_t n = bytes / 4;
  fill<<<blocks_for(n), kThreads, 0, s>>>(static_cast<std::uint32_t*>(at), n);
  DDPSIM_CUDA(cudaGetLastError());
}
void launch_nothing(cudaStream_t s) {
  nothing<<<1, 1, 0, s>>>();
  DDPSIM_CUDA(cudaGetLastError());
}
void launch_spin(std::int64_t ns, cudaStream_t s) {
  spin<<<1, 1, 0, s>>>(ns);
  DDPSIM_CUDA(cudaGetLastError());
}
void launch_traffic(float* memory, std::int64_t elements, int blocks, int threads,
                    double bytes_per_us, std::int64_t ns, const int* stop,
                    unsigned long long* moved, cudaStream_t s) {
  traffic<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads), kShared, s>>>(
      reinterpret_cast<float4*>(memory), elements / 4, bytes_per_us / 1e3, ns, stop, moved);
  DDPSIM_CUDA(cudaGetLastError());
}

}  // namespace ddpsim::calib::cuda
