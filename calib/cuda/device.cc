#include "calib/cuda/device.h"

#include <algorithm>
#include <stdexcept>

#include "calib/clock.h"
#include "calib/cuda/kernels.h"
#include "calib/cuda/libraries.h"

namespace ddpsim::calib::cuda {
namespace {

constexpr std::int64_t kScratch = 512ll << 20;

ncclDataType_t type_of(DType t) {
  switch (t) {
    case DType::Float16:
      return ncclFloat16;
    case DType::BFloat16:
      return ncclBfloat16;
    case DType::Float32:
      return ncclFloat32;
    case DType::Float64:
      return ncclFloat64;
    case DType::Int32:
      return ncclInt32;
    case DType::Int64:
      return ncclInt64;
    case DType::UInt8:
      return ncclUint8;
    default:
      throw std::runtime_error("NCCL has no type for these tensors");
  }
}

}  // namespace

CudaDevice::CudaDevice(std::int64_t gradient_bytes, std::int64_t other_bytes, ncclComm_t comm)
    : comm_(comm),
      gradient_bytes_(gradient_bytes),
      gradients_(gradient_bytes + 4096),
      buckets_(gradient_bytes + 4096),
      others_(other_bytes + 4096),
      scratch_bytes_(kScratch),
      scratch_(kScratch),
      workspace_(kWorkspace) {
  int least = 0;
  int highest = 0;
  DDPSIM_CUDA(cudaDeviceGetStreamPriorityRange(&least, &highest));
  for (int i = 0; i < gpu::kStreams; ++i)
    streams_.push_back(std::make_unique<StreamOwner>(least));  // as c10d's: no priority
  for (auto [memory, bytes] :
       {std::pair<DeviceMemory*, std::int64_t>{&gradients_, gradient_bytes + 4096},
        {&buckets_, gradient_bytes + 4096},
        {&others_, other_bytes + 4096},
        {&scratch_, kScratch}})
    DDPSIM_CUDA(cudaMemset(memory->at(), 0, static_cast<std::size_t>(bytes)));
  DDPSIM_CUDA(cudaDeviceSynchronize());  // streams of ours do not wait for the default one
  // Products from some microseconds to some tenths of a millisecond, each timed in a full queue.
  std::int64_t most = 0;
  std::vector<Gemm> shapes{
      {4096, 4096, 4096}, {2048, 2048, 2048}, {1024, 1024, 1024}, {512, 512, 512}};
  for (const Gemm& g : shapes) {
    units_.push_back({make_gemm(g, Precision::Bf16), 0});
    most = std::max(most, units_.back().product->bytes());
  }
  operands_ = DeviceMemory(most);
  launch_fill(operands_.at(), most / 4 * 4, stream(gpu::Stream::Compute));
  cudaStream_t s = stream(gpu::Stream::Compute);
  EventOwner begin;
  EventOwner end;
  for (Unit& u : units_)
    for (int pass = 0; pass < 3; ++pass) {
      constexpr int kCount = 50;
      launch_spin(400'000, s);
      DDPSIM_CUDA(cudaEventRecord(begin, s));
      for (int i = 0; i < kCount; ++i) u.product->launch(operands_.at(), workspace_.at(), s);
      DDPSIM_CUDA(cudaEventRecord(end, s));
      DDPSIM_CUDA(cudaEventSynchronize(end));
      u.ns = std::max(1.0, static_cast<double>(elapsed_ns(begin, end)) / kCount);
    }
}

CudaDevice::~CudaDevice() {
  cudaDeviceSynchronize();
}

std::int64_t CudaDevice::now_ns() {
  return calib::now_ns();
}

void CudaDevice::host_until(std::int64_t ns) {
  while (calib::now_ns() < ns) {
  }
}

void CudaDevice::launch(gpu::Stream s, const gpu::Work& w) {
  if (w.kind == gpu::Work::Kind::Busy)
    busy(w.ns);
  else
    move(stream(s), w);
}

// As many products as fit, the longest first; what is left over is added to the next.
void CudaDevice::busy(std::int64_t ns) {
  double left = static_cast<double>(ns) + carry_ns_;
  for (const Unit& u : units_)
    while (left >= u.ns) {
      u.product->launch(operands_.at(), workspace_.at(), stream(gpu::Stream::Compute));
      left -= u.ns;
    }
  carry_ns_ = left;
}

// Read half, write half.
void CudaDevice::move(cudaStream_t s, const gpu::Work& w) {
  std::int64_t elements = std::max<std::int64_t>(1, w.traffic / 8);
  if (std::int64_t offset = w.offset / 4 * 4;
      w.offset >= 0 && offset + 4 * elements <=
                           gradient_bytes_ + 8) {  // tensors of halves may begin between two floats
    launch_scale(gradients_.floats(offset), buckets_.floats(offset), elements,
                 static_cast<float>(w.factor), s);
    return;
  }
  std::int64_t each = std::max<std::int64_t>(1, elements / w.kernels);
  std::int64_t room = scratch_bytes_ / 8;
  for (int k = 0; k < w.kernels; ++k)
    for (std::int64_t done = 0; done < each; done += room) {
      std::int64_t n = std::min(room, each - done);
      if (scratch_at_ + 4 * n > scratch_bytes_ / 2)
        scratch_at_ = 0;  // further on each time, so that a cache does not have it
      launch_scale(scratch_.floats(scratch_at_), scratch_.floats(scratch_bytes_ / 2 + scratch_at_),
                   n, static_cast<float>(w.factor), s);
      scratch_at_ += (4 * n + 255) / 256 * 256;
    }
}

void CudaDevice::communicate(gpu::Stream s, const gpu::Message& m) {
  if (!comm_) return;
  void* at = (m.gradients ? buckets_ : others_).at(m.offset);
  auto count = static_cast<std::size_t>(m.elements);
  if (m.broadcast)
    DDPSIM_CALL(nccl(), ncclBroadcast(at, at, count, type_of(m.type), 0, comm_, stream(s)));
  else
    DDPSIM_CALL(nccl(), ncclAllReduce(at, at, count, type_of(m.type), ncclSum, comm_, stream(s)));
}

gpu::Device::Event CudaDevice::record(gpu::Stream s, bool timed) {
  events_.emplace_back(timed);
  DDPSIM_CUDA(cudaEventRecord(events_.back(), stream(s)));
  return static_cast<Event>(events_.size()) - 1;
}

void CudaDevice::wait(gpu::Stream s, Event e) {
  DDPSIM_CUDA(cudaStreamWaitEvent(stream(s), events_[e], 0));
}

void CudaDevice::synchronize(Event e) {
  DDPSIM_CUDA(cudaEventSynchronize(events_[e]));
}

void CudaDevice::synchronize_all() {
  DDPSIM_CUDA(cudaDeviceSynchronize());
  if (origin_) return;
  origin_ = std::make_unique<EventOwner>();
  DDPSIM_CUDA(cudaEventRecord(*origin_, stream(gpu::Stream::Compute)));
  DDPSIM_CUDA(cudaEventSynchronize(*origin_));
  origin_ns_ = calib::now_ns();
}

std::int64_t CudaDevice::moment_ns(Event e) {
  return origin_ns_ + elapsed_ns(*origin_, events_[e]);
}

}  // namespace ddpsim::calib::cuda
