// Owners of what the CUDA runtime hands out.
#pragma once

#include <cstdint>
#include <utility>

#include <cuda_runtime_api.h>

#include "calib/cuda/check.h"

namespace ddpsim::calib::cuda {

class DeviceMemory {
 public:
  explicit DeviceMemory(std::int64_t bytes = 0) {
    if (bytes > 0) DDPSIM_CUDA(cudaMalloc(&at_, static_cast<std::size_t>(bytes)));
  }
  DeviceMemory(DeviceMemory&& o) noexcept : at_(std::exchange(o.at_, nullptr)) {}
  DeviceMemory& operator=(DeviceMemory&& o) noexcept {
    std::swap(at_, o.at_);
    return *this;
  }
  ~DeviceMemory() {
    if (at_) cudaFree(at_);  // in a destructor nobody can be told
  }
  void* at(std::int64_t offset = 0) const { return static_cast<char*>(at_) + offset; }
  float* floats(std::int64_t offset = 0) const { return static_cast<float*>(at(offset)); }

 private:
  void* at_ = nullptr;
};

// Of the host, page-locked.
class PinnedMemory {
 public:
  explicit PinnedMemory(std::int64_t bytes) {
    DDPSIM_CUDA(cudaMallocHost(&at_, static_cast<std::size_t>(bytes)));
  }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  ~PinnedMemory() { cudaFreeHost(at_); }
  void* at() const { return at_; }

 private:
  void* at_ = nullptr;
};

class StreamOwner {
 public:
  explicit StreamOwner(int priority = 0) {
    DDPSIM_CUDA(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, priority));
  }
  StreamOwner(const StreamOwner&) = delete;
  StreamOwner& operator=(const StreamOwner&) = delete;
  ~StreamOwner() { cudaStreamDestroy(stream_); }
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class EventOwner {
 public:
  explicit EventOwner(bool timed = true) {
    DDPSIM_CUDA(
        cudaEventCreateWithFlags(&event_, timed ? cudaEventDefault : cudaEventDisableTiming));
  }
  EventOwner(EventOwner&& o) noexcept : event_(std::exchange(o.event_, nullptr)) {}
  EventOwner(const EventOwner&) = delete;
  EventOwner& operator=(const EventOwner&) = delete;
  ~EventOwner() {
    if (event_) cudaEventDestroy(event_);
  }
  operator cudaEvent_t() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

inline std::int64_t elapsed_ns(cudaEvent_t from, cudaEvent_t to) {
  float ms = 0;
  DDPSIM_CUDA(cudaEventElapsedTime(&ms, from, to));
  return static_cast<std::int64_t>(static_cast<double>(ms) * 1e6);
}

}  // namespace ddpsim::calib::cuda
