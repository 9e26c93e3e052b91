// gpu::Device of a real GPU: three streams, cuBLASLt products as computation, NCCL.
#pragma once

#include <memory>
#include <vector>

#include <nccl.h>

#include "calib/cuda/products.h"
#include "calib/cuda/stream.h"
#include "calib/gpu/device.h"

namespace ddpsim::calib::cuda {

class CudaDevice : public gpu::Device {
 public:
  // `comm`: nullptr = one rank alone, whose collectives are nothing. The current device is used.
  CudaDevice(std::int64_t gradient_bytes, std::int64_t other_bytes, ncclComm_t comm);
  ~CudaDevice() override;

  std::int64_t now_ns() override;
  void host_until(std::int64_t ns) override;
  void launch(gpu::Stream s, const gpu::Work& w) override;
  void communicate(gpu::Stream s, const gpu::Message& m) override;
  Event record(gpu::Stream s, bool timed) override;
  void wait(gpu::Stream s, Event e) override;
  void synchronize(Event e) override;
  void synchronize_all() override;
  std::int64_t moment_ns(Event e) override;

 private:
  // A product that takes `ns` in a full queue.
  struct Unit {
    std::unique_ptr<Product> product;
    double ns = 0;
  };
  void busy(std::int64_t ns);
  void move(cudaStream_t s, const gpu::Work& w);
  cudaStream_t stream(gpu::Stream s) const { return *streams_[static_cast<std::size_t>(s)]; }

  ncclComm_t comm_;
  std::vector<std::unique_ptr<StreamOwner>> streams_;
  std::vector<EventOwner> events_;
  std::int64_t gradient_bytes_;
  DeviceMemory gradients_;  // constant
  DeviceMemory buckets_;    // what collectives sum
  DeviceMemory others_;
  std::int64_t scratch_bytes_;
  std::int64_t scratch_at_ = 0;
  DeviceMemory scratch_;
  DeviceMemory operands_;
  DeviceMemory workspace_;
  std::vector<Unit> units_;  // longest first
  std::unique_ptr<EventOwner> origin_;
  std::int64_t origin_ns_ = 0;
  double carry_ns_ = 0;  // of busy(): what was too short for a product
};

}  // namespace ddpsim::calib::cuda
