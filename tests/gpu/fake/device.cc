// time of a memory-bound kernel = max(floor, bytes / rate); of a product = max(floor, FLOP / rate,
// bytes / rate); / 0.6 while cold; / (1 - hold of a block * blocks) beside the stand-in kernel.
#include "tests/gpu/fake/device.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>

#include <sys/mman.h>
#include <unistd.h>

#include "tests/gpu/fake/meeting.h"

namespace ddpsim::fake {
namespace {

constexpr std::int64_t kReadClockPs = 40'000;  // what a look at the clock takes
constexpr double kCold = 0.6;
constexpr double kCapped = 0.9;
constexpr double kSms = 132;

// All processes of a run are forks of the one that loaded this library.
struct Shared {
  std::atomic<std::int64_t> latest_ps;
  std::atomic<std::int64_t> barrier_ps[8];
  std::atomic<std::uint64_t> meetings;
  Meeting meeting[32];
};

Shared* map_shared() {
  void* at =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) std::abort();
  return new (at) Shared{};
}
Shared* const shared = map_shared();

void raise(std::atomic<std::int64_t>& what, std::int64_t to) {
  std::int64_t seen = what.load();
  while (seen < to && !what.compare_exchange_weak(seen, to)) {
  }
}

std::int64_t real_ps() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return (t.tv_sec * 1'000'000'000ll + t.tv_nsec) * 1000;
}

std::int64_t local_ps = real_ps();  // so that times look like times

std::int64_t ps_of(double us) {
  return static_cast<std::int64_t>(std::llround(us * 1e6));
}

double noisy() {  // between -1 and 1; the same in each run
  static std::uint64_t state = 88172645463325252ull;
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return static_cast<double>(state >> 11) / 4503599627370496.0 - 1;
}

int calls(const char* function) {
  static std::map<std::string, int> count;
  return ++count[function];
}

}  // namespace

Device& device() {
  static Device d;
  return d;
}

std::int64_t now_ps() {
  if (!device().used) local_ps = std::max(local_ps, shared->latest_ps.load());
  local_ps += kReadClockPs;
  raise(shared->latest_ps, local_ps);
  return local_ps;
}

void host_busy(double us) {
  local_ps += ps_of(us);
  raise(shared->latest_ps, local_ps);
}

void host_until(std::int64_t ps) {
  local_ps = std::max(local_ps, ps);
  raise(shared->latest_ps, local_ps);
}

void come_to_barrier(int barrier) {
  raise(shared->barrier_ps[barrier], local_ps);
}
void leave_barrier(int barrier) {
  host_until(shared->barrier_ps[barrier].load());
}

std::uint64_t new_meeting() {
  std::uint64_t number = ++shared->meetings;
  new (meeting(number)) Meeting{};
  return number;
}
Meeting* meeting(std::uint64_t number) {
  return &shared->meeting[number % 32];
}

bool called(const char* function, double us) {
  device().used = true;
  host_busy(us);
  settle();
  const Planted& p = planted();
  if (p.hang == function && calls(function) >= static_cast<int>(p.hang_at))
    for (;;) {  // time goes on
      ::usleep(10'000);
      host_busy(10'000);
    }
  if (p.crash == function && calls(function) >= static_cast<int>(p.crash_at)) ::abort();
  return p.fail == function && calls(function) >= static_cast<int>(p.fail_at);
}

Stream* stream_of(cudaStream_t s) {
  Device& d = device();
  if (s == nullptr || s == cudaStreamLegacy || s == cudaStreamPerThread) return &d.standard;
  auto* stream = reinterpret_cast<Stream*>(s);
  return d.streams.count(stream) ? stream : nullptr;
}

void settle() {
  Device& d = device();
  Traffic& t = d.beside;
  if (!t.live) return;
  bool stopped = *static_cast<const volatile int*>(t.stop) != 0;
  if (!stopped && local_ps < t.end_ps) return;
  std::int64_t end = stopped ? std::clamp(local_ps, t.begin_ps, t.end_ps) : t.end_ps;
  double us = static_cast<double>(end - t.begin_ps) / 1e6;
  d.words[t.moved] += static_cast<std::uint64_t>(us * t.bytes_per_us * t.blocks);
  std::int64_t early = t.end_ps - end;
  t.on->tail_ps -= early;
  for (Event* e : d.events)
    if (e->on == t.on && e->recorded && e->at_ps >= t.end_ps) e->at_ps -= early;
  t.live = false;
}

std::int64_t start_on(cudaStream_t s) {
  Stream* stream = stream_of(s);
  if (!stream) std::abort();
  return std::max(stream->tail_ps, local_ps + ps_of(planted().latency_us));
}

void busy_until(cudaStream_t s, std::int64_t ps) {
  Stream* stream = stream_of(s);
  stream->tail_ps = std::max(stream->tail_ps, ps);
}

namespace {

// What `us` of work from `start` on take while each block of a collective holds a share.
double beside_collectives(std::int64_t start, double us, double share) {
  double left = us * 1e6;
  auto at = static_cast<double>(start);
  for (const Hold& h : device().holds) {
    auto begin = static_cast<double>(h.begin_ps);
    auto end = static_cast<double>(h.end_ps);
    if (end <= at) continue;
    if (begin >= at + left) break;
    double alone = std::max(0.0, begin - at);
    left -= alone;
    at += alone;
    double rate = 1 - h.blocks * share;
    double done = std::min(left, (end - at) * rate);
    left -= done;
    at += done / rate;
  }
  return (at + left - static_cast<double>(start)) / 1e6;
}

}  // namespace

void work(cudaStream_t s, Kind kind, double us) {
  const Planted& p = planted();
  Device& d = device();
  std::int64_t start = start_on(s);
  if (kind != Kind::Other) {
    if (d.busy_ps < p.cold_ms * 1e9) us /= kCold;
    const Traffic& t = d.beside;
    if (t.live && start >= t.begin_ps && start < t.end_ps && stream_of(s) != t.on)
      us /= 1 - t.blocks * (kind == Kind::Product ? p.product_hold : p.memory_hold);
    us *= 1 + p.noise * noisy();
    us = beside_collectives(start, us, kind == Kind::Product ? p.product_hold : p.memory_hold);
    d.busy_ps += us * 1e6;
  }
  busy_until(s, start + ps_of(us));
}

void held(std::int64_t from_ps, std::int64_t to_ps, int blocks) {
  std::vector<Hold>& holds = device().holds;
  constexpr std::size_t kKept = 64;  // that kernels which are put on a stream from now on may meet
  if (holds.size() == kKept) holds.erase(holds.begin());
  holds.push_back({from_ps, to_ps, blocks});
}

double core_mhz() {
  const Planted& p = planted();
  double capped = p.power_cap > 0 || p.thermal > 0 ? kCapped : 1;
  return 1980 * capped * (device().busy_ps < p.cold_ms * 1e9 ? kCold : 1);
}

double memory_us(double bytes) {
  const Planted& p = planted();
  double us = bytes / p.memory_bytes_per_s * 1e6;
  return p.form > 0 ? p.kernel_us + us : std::max(p.kernel_us, us);
}

double product_us(double flops, double rate, double bytes) {
  const Planted& p = planted();
  if (p.power_cap > 0 || p.thermal > 0) rate *= kCapped;
  double us = flops / rate * 1e6;
  return std::max(memory_us(bytes), p.form > 0 ? p.kernel_us + us : us);
}

double tiled_us(double rows, double columns, double sum, double rate, double bytes, int aligned) {
  const Planted& p = planted();
  if (p.power_cap > 0 || p.thermal > 0) rate *= kCapped;
  if (aligned < 8) rate *= aligned == 4 ? p.aligned4 : p.aligned2;
  const double sides[][3] = {
      {256, 128, 1}, {128, 256, 1}, {128, 128, p.tile128}, {64, 64, p.tile64}};
  double least = 1e18;
  for (const auto& [a, b, share] : sides)
    for (double parts = 1; parts <= 128; parts *= 2) {
      double tiles = std::ceil(rows / a) * std::ceil(columns / b);
      if (parts > 1 && (sum / parts < 256 || tiles * parts > 8 * kSms)) break;
      double each = 2 * a * b * (sum / parts) / (rate / kSms * share) * 1e6 + p.wave_us;
      double us = std::ceil(tiles * parts / kSms) * each;
      if (parts > 1) us += p.split_us + rows * columns * 4 * parts / p.memory_bytes_per_s * 1e6;
      least = std::min(least, us);
    }
  double moved = bytes / p.memory_bytes_per_s * 1e6;
  return p.kernel_us + std::sqrt(std::sqrt(std::pow(least, 4) + std::pow(moved, 4)));
}

bool on_device(const void* at, std::int64_t bytes) {
  Device& d = device();
  auto address = reinterpret_cast<std::uint64_t>(at);
  auto next = d.memory.upper_bound(address);
  if (next != d.memory.begin()) {
    auto [begin, size] = *std::prev(next);
    if (bytes >= 0 &&
        address + static_cast<std::uint64_t>(bytes) <= begin + static_cast<std::uint64_t>(size))
      return true;
  }
  d.broken = cudaErrorIllegalAddress;
  return false;
}

namespace {

template <class T>
T argument(void** arguments, int i) {
  T value;
  std::memcpy(&value, arguments[i], sizeof value);
  return value;
}

struct Form {
  int operands;           // pointers, first in the list of arguments; each of n elements
  double bytes;           // moved, of an element
  std::int64_t sizes[4];  // of an element of each operand
};
const std::map<std::string, Form> kForms{
    {"scale", {2, 8, {4, 4}}},       {"add", {2, 12, {4, 4}}}, {"zero", {1, 4, {4}}},
    {"cast", {2, 6, {4, 2}}},        {"sgd", {2, 12, {4, 4}}}, {"momentum", {3, 20, {4, 4, 4}}},
    {"adam", {4, 28, {4, 4, 4, 4}}}, {"fill", {1, 4, {4}}}};

// Whether the cache has what begins at `at`: not much else was used since.
bool cached(const void* at, double bytes) {
  Device& d = device();
  auto address = reinterpret_cast<std::uint64_t>(at);
  auto seen = d.touched.find(address);
  bool hit = seen != d.touched.end() && d.traffic - seen->second + bytes <= planted().cache_bytes;
  d.traffic += bytes;
  d.touched[address] = d.traffic;
  return hit;
}

cudaError_t start_traffic(dim3 grid, void** a, cudaStream_t s) {
  Device& d = device();
  const Planted& p = planted();
  if (d.beside.live) return cudaErrorLaunchFailure;  // one at a time
  double asked = argument<double>(a, 2) * 1e3;
  Traffic t;
  t.live = true;
  t.on = stream_of(s);
  t.begin_ps = start_on(s);
  t.end_ps = t.begin_ps + argument<std::int64_t>(a, 3) * 1000;
  t.stop = argument<const int*>(a, 4);
  t.moved = reinterpret_cast<std::uint64_t>(argument<void*>(a, 5));
  t.blocks = static_cast<int>(grid.x);
  t.bytes_per_us = asked > 0 ? std::min(asked, p.block_bytes_per_us) : p.block_bytes_per_us;
  if (!on_device(argument<void*>(a, 0), argument<std::int64_t>(a, 1) * 16) ||
      !on_device(argument<void*>(a, 5), 8))
    return d.broken;
  d.beside = t;
  t.on->tail_ps = t.end_ps;
  return cudaSuccess;
}

}  // namespace

cudaError_t launch_kernel(const std::string& name, dim3 grid, dim3 block, void** a,
                          cudaStream_t s) {
  const Planted& p = planted();
  Device& d = device();
  static std::set<std::string> loaded;
  bool first = loaded.insert(name).second;
  if (called("cudaLaunchKernel", p.launch_us + (first ? p.first_launch_us : 0)))
    return cudaErrorLaunchFailure;
  if (d.broken != cudaSuccess) return d.broken;
  if (!stream_of(s)) return cudaErrorInvalidResourceHandle;
  if (grid.x < 1 || block.x < 1 || block.x > 1024) return cudaErrorInvalidConfiguration;
  if (name == "nothing") return work(s, Kind::Memory, p.kernel_us), cudaSuccess;
  if (name == "spin") {
    double us = static_cast<double>(argument<std::int64_t>(a, 0)) / 1e3;
    return work(s, Kind::Other, us), cudaSuccess;
  }
  if (name == "traffic") return start_traffic(grid, a, s);
  double bytes = 0;
  if (name == "normalise") {
    std::int64_t n = argument<int>(a, 2) * static_cast<std::int64_t>(grid.x);
    bytes = 8.0 * static_cast<double>(n);
    if (!on_device(argument<void*>(a, 0), 4 * n) || !on_device(argument<void*>(a, 1), 4 * n))
      return d.broken;
  } else {
    auto form = kForms.find(name);
    if (form == kForms.end()) return cudaErrorInvalidDeviceFunction;
    const Form& f = form->second;
    auto n = argument<std::int64_t>(a, f.operands);
    if (static_cast<std::int64_t>(grid.x) * block.x * 4 < n) return cudaErrorInvalidConfiguration;
    for (int i = 0; i < f.operands; ++i)
      if (!on_device(argument<void*>(a, i), f.sizes[i] * n)) return d.broken;
    bytes = f.bytes * static_cast<double>(n);
  }
  bool hit = name != "fill" && cached(argument<void*>(a, 0), bytes);
  if (name == "fill") d.traffic += bytes;  // its end is what stays in the cache
  work(s, Kind::Memory, memory_us(hit ? bytes / 3 : bytes));
  return cudaSuccess;
}

}  // namespace ddpsim::fake
