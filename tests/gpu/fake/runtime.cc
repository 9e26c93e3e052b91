// The CUDA runtime's own interface, as far as calib/cuda and nvcc's code call it.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <cuda_runtime_api.h>
#include <cxxabi.h>
#include <sys/mman.h>

#include "tests/gpu/fake/device.h"

using ddpsim::fake::called;
using ddpsim::fake::device;
using ddpsim::fake::Device;
using ddpsim::fake::Event;
using ddpsim::fake::planted;
using ddpsim::fake::Stream;
using ddpsim::fake::stream_of;

namespace {

constexpr double kCallUs = 0.3;
constexpr double kAllocateUs = 20;

struct Launch {
  dim3 grid;
  dim3 block;
  size_t shared;
  cudaStream_t stream;
};
std::vector<Launch>& pending() {
  static std::vector<Launch> p;
  return p;
}

std::map<const void*, std::string>& kernels() {
  static std::map<const void*, std::string> k;
  return k;
}

// "ddpsim::calib::cuda::(anonymous namespace)::scale(float const*, ...)" -> "scale"
std::string plain(const char* mangled) {
  int bad = 0;
  char* text = abi::__cxa_demangle(mangled, nullptr, nullptr, &bad);
  std::string name = bad == 0 ? text : mangled;
  std::free(text);
  std::size_t end = name.rfind('(');
  if (end == std::string::npos || bad != 0) return name;
  std::size_t begin = name.rfind(':', end);
  return name.substr(begin == std::string::npos ? 0 : begin + 1,
                     end - (begin == std::string::npos ? 0 : begin + 1));
}

cudaError_t result(cudaError_t code) {
  Device& d = device();
  if (code == cudaSuccess) code = d.broken;
  if (code != cudaSuccess) d.last = code;
  return code;
}

Event* event_of(cudaEvent_t e) {
  auto* event = reinterpret_cast<Event*>(e);
  return device().events.count(event) ? event : nullptr;
}

// The host waits until the stream has nothing left.
void drain(Stream* s) {
  ddpsim::fake::host_until(s->tail_ps);
  ddpsim::fake::settle();
}

cudaError_t copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t s,
                 bool waits) {
  if (called(waits ? "cudaMemcpy" : "cudaMemcpyAsync", planted().launch_us)) {
    return result(cudaErrorUnknown);
  }
  Device& d = device();
  Stream* stream = stream_of(s);
  if (!stream) return result(cudaErrorInvalidResourceHandle);
  auto count = static_cast<std::int64_t>(bytes);
  auto n = static_cast<double>(bytes);
  bool device_to = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  bool device_from = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if ((device_to && !ddpsim::fake::on_device(to, count)) ||
      (device_from && !ddpsim::fake::on_device(from, count)))
    return result(cudaErrorInvalidValue);
  if (kind == cudaMemcpyDeviceToDevice) {
    ddpsim::fake::work(s, ddpsim::fake::Kind::Memory, ddpsim::fake::memory_us(2 * n));
    return result(cudaSuccess);
  }
  const void* host = device_to ? from : to;
  auto next = d.pinned.upper_bound(reinterpret_cast<std::uint64_t>(host));
  bool pinned = next != d.pinned.begin() &&
                reinterpret_cast<std::uint64_t>(host) + bytes <=
                    std::prev(next)->first + static_cast<std::uint64_t>(std::prev(next)->second);
  double rate = pinned ? planted().pcie_bytes_per_s : planted().pageable_bytes_per_s;
  ddpsim::fake::work(s, ddpsim::fake::Kind::Other, std::max(planted().kernel_us, n / rate * 1e6));
  if (!pinned || waits) drain(stream);
  if (device_from && bytes == sizeof(std::uint64_t))  // what little it remembers
    std::memcpy(to, &d.words[reinterpret_cast<std::uint64_t>(from)], bytes);
  return result(cudaSuccess);
}

cudaError_t fill(void* at, int value, size_t bytes, cudaStream_t s, const char* name) {
  if (called(name, planted().launch_us)) return result(cudaErrorUnknown);
  if (!stream_of(s)) return result(cudaErrorInvalidResourceHandle);
  if (!ddpsim::fake::on_device(at, static_cast<std::int64_t>(bytes)))
    return result(cudaErrorInvalidValue);
  if (bytes == sizeof(std::uint64_t) && value == 0)
    device().words[reinterpret_cast<std::uint64_t>(at)] = 0;
  ddpsim::fake::work(s, ddpsim::fake::Kind::Memory,
                     ddpsim::fake::memory_us(static_cast<double>(bytes)));
  return result(cudaSuccess);
}

}  // namespace

extern "C" {

// What nvcc's code calls.
void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*,
                            dim3*, dim3*, int*) {
  kernels()[host] = plain(name);
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, CUstream_st* stream) {
  pending().push_back({grid, block, shared, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  if (pending().empty()) return cudaErrorMissingConfiguration;
  Launch l = pending().back();
  pending().pop_back();
  *grid = l.grid;
  *block = l.block;
  *shared = l.shared;
  *static_cast<cudaStream_t*>(stream) = l.stream;
  return cudaSuccess;
}
cudaError_t cudaLaunchKernel(const void* f, dim3 grid, dim3 block, void** arguments, size_t,
                             cudaStream_t s) {
  auto name = kernels().find(f);
  if (name == kernels().end()) return result(cudaErrorInvalidDeviceFunction);
  return result(ddpsim::fake::launch_kernel(name->second, grid, block, arguments, s));
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* f) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(f));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               size_t shared, cudaStream_t s) {
  return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, block, arguments, shared, s);
}

cudaError_t cudaGetLastError() {
  cudaError_t code = device().last;
  device().last = device().broken;
  return code;
}
const char* cudaGetErrorString(cudaError_t code) {
  switch (code) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorNotReady:
      return "device not ready";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorInvalidResourceHandle:
      return "invalid resource handle";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorInvalidDeviceFunction:
      return "invalid device function";
    case cudaErrorLaunchFailure:
      return "unspecified launch failure";
    default:
      return "an error that the fake GPU planted";
  }
}

cudaError_t cudaGetDeviceCount(int* count) {
  if (called("cudaGetDeviceCount", kCallUs)) return result(cudaErrorNoDevice);
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int number) {
  if (called("cudaSetDevice", kCallUs)) return result(cudaErrorUnknown);
  return result(number == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int number) {
  if (number != 0) return result(cudaErrorInvalidDevice);
  if (called("cudaGetDeviceProperties", kCallUs)) return result(cudaErrorUnknown);
  *p = cudaDeviceProp{};
  std::snprintf(p->name, sizeof p->name, "a fake GPU (tests/gpu/fake)");
  p->multiProcessorCount = 132;
  p->totalGlobalMem = static_cast<size_t>(planted().device_bytes);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  if (called("cudaDeviceGetAttribute", kCallUs)) return result(cudaErrorUnknown);
  if (attribute != cudaDevAttrL2CacheSize) return result(cudaErrorInvalidValue);
  *value = static_cast<int>(planted().cache_bytes);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* bus, int length, int) {
  if (called("cudaDeviceGetPCIBusId", kCallUs)) return result(cudaErrorUnknown);
  std::snprintf(bus, static_cast<size_t>(length), "0000:FA:00.0");
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** at, size_t bytes) {
  if (called("cudaMalloc", kAllocateUs)) return result(cudaErrorMemoryAllocation);
  Device& d = device();
  auto size = static_cast<std::int64_t>((bytes + 4095) / 4096 * 4096);
  if (static_cast<double>(d.taken + size) > planted().device_bytes) {
    d.last = cudaErrorMemoryAllocation;
    return cudaErrorMemoryAllocation;
  }
  void* place = ::mmap(nullptr, static_cast<size_t>(size), PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED) return result(cudaErrorMemoryAllocation);
  d.memory[reinterpret_cast<std::uint64_t>(place)] = static_cast<std::int64_t>(bytes);
  d.taken += size;
  *at = place;
  return result(cudaSuccess);
}
cudaError_t cudaFree(void* at) {
  if (called("cudaFree", kAllocateUs)) return result(cudaErrorUnknown);
  if (!at) return cudaSuccess;
  Device& d = device();
  auto found = d.memory.find(reinterpret_cast<std::uint64_t>(at));
  if (found == d.memory.end()) return result(cudaErrorInvalidValue);
  std::int64_t size = (found->second + 4095) / 4096 * 4096;
  for (Stream* s : d.streams) ddpsim::fake::host_until(s->tail_ps);
  ::munmap(at, static_cast<size_t>(size));
  d.taken -= size;
  d.memory.erase(found);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *total = static_cast<size_t>(planted().device_bytes);
  *free = *total - static_cast<size_t>(device().taken);
  return result(cudaSuccess);
}
cudaError_t cudaMallocHost(void** at, size_t bytes) {
  if (called("cudaMallocHost", kAllocateUs)) return result(cudaErrorMemoryAllocation);
  void* place = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED) return result(cudaErrorMemoryAllocation);
  device().pinned[reinterpret_cast<std::uint64_t>(place)] = static_cast<std::int64_t>(bytes);
  *at = place;
  return result(cudaSuccess);
}
cudaError_t cudaFreeHost(void* at) {
  auto found = device().pinned.find(reinterpret_cast<std::uint64_t>(at));
  if (found == device().pinned.end()) return result(cudaErrorInvalidValue);
  ::munmap(at, static_cast<size_t>(found->second));
  device().pinned.erase(found);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t s) {
  return copy(to, from, bytes, kind, s, false);
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return copy(to, from, bytes, kind, nullptr, true);
}
cudaError_t cudaMemcpyPeerAsync(void*, int, const void*, int, size_t, cudaStream_t) {
  return result(cudaErrorInvalidDevice);  // there is one
}
cudaError_t cudaMemset(void* at, int value, size_t bytes) {
  return fill(at, value, bytes, nullptr, "cudaMemset");
}
cudaError_t cudaMemsetAsync(void* at, int value, size_t bytes, cudaStream_t s) {
  return fill(at, value, bytes, s, "cudaMemsetAsync");
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned, int) {
  if (called("cudaStreamCreateWithPriority", kAllocateUs)) return result(cudaErrorUnknown);
  auto* stream = new Stream;
  device().streams.insert(stream);
  *s = reinterpret_cast<cudaStream_t>(stream);
  return result(cudaSuccess);
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
  Stream* stream = s ? stream_of(s) : nullptr;
  if (!stream) return result(cudaErrorInvalidResourceHandle);
  device().streams.erase(stream);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  if (called("cudaStreamSynchronize", kCallUs)) return result(cudaErrorUnknown);
  Stream* stream = stream_of(s);
  if (!stream) return result(cudaErrorInvalidResourceHandle);
  drain(stream);
  return result(cudaSuccess);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
  if (called("cudaStreamWaitEvent", planted().event_us)) return result(cudaErrorUnknown);
  Stream* stream = stream_of(s);
  Event* event = event_of(e);
  if (!stream || !event) return result(cudaErrorInvalidResourceHandle);
  if (event->recorded) stream->tail_ps = std::max(stream->tail_ps, event->at_ps);
  return result(cudaSuccess);
}
cudaError_t cudaDeviceSynchronize() {
  if (called("cudaDeviceSynchronize", kCallUs)) return result(cudaErrorUnknown);
  Device& d = device();
  for (Stream* s : d.streams) ddpsim::fake::host_until(s->tail_ps);
  drain(&d.standard);
  return result(cudaSuccess);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned flags) {
  if (called("cudaEventCreateWithFlags", kCallUs)) return result(cudaErrorUnknown);
  auto* event = new Event;
  event->timed = !(flags & cudaEventDisableTiming);
  device().events.insert(event);
  *e = reinterpret_cast<cudaEvent_t>(event);
  return result(cudaSuccess);
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
  Event* event = event_of(e);
  if (!event) return result(cudaErrorInvalidResourceHandle);
  device().events.erase(event);
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  if (called("cudaEventRecord", planted().event_us)) return result(cudaErrorUnknown);
  Stream* stream = stream_of(s);
  Event* event = event_of(e);
  if (!stream || !event) return result(cudaErrorInvalidResourceHandle);
  event->on = stream;
  event->recorded = true;
  event->at_ps = ddpsim::fake::start_on(s);
  return result(cudaSuccess);
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
  if (called("cudaEventQuery", kCallUs)) return result(cudaErrorUnknown);
  Event* event = event_of(e);
  if (!event) return result(cudaErrorInvalidResourceHandle);
  bool done = !event->recorded || event->at_ps <= ddpsim::fake::now_ps();
  return done ? result(cudaSuccess) : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  if (called("cudaEventSynchronize", kCallUs)) return result(cudaErrorUnknown);
  Event* event = event_of(e);
  if (!event) return result(cudaErrorInvalidResourceHandle);
  if (event->recorded) ddpsim::fake::host_until(event->at_ps);
  ddpsim::fake::settle();
  return result(cudaSuccess);
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
  if (called("cudaEventElapsedTime", kCallUs)) return result(cudaErrorUnknown);
  Event* a = event_of(from);
  Event* b = event_of(to);
  if (!a || !b || !a->recorded || !b->recorded || !a->timed || !b->timed)
    return result(cudaErrorInvalidResourceHandle);
  std::int64_t now = ddpsim::fake::now_ps();
  if (a->at_ps > now || b->at_ps > now) return cudaErrorNotReady;
  *ms = static_cast<float>(static_cast<double>(b->at_ps - a->at_ps) / 1e9);
  return result(cudaSuccess);
}

}  // extern "C"
