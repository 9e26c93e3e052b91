#include "calib/mesh.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "calib/clock.h"

namespace ddpsim::calib {
namespace {

constexpr int kSilenceMs = 60'000;

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

sockaddr_in socket_address(const std::string& address, std::uint16_t port) {
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_port = htons(port);
  ::inet_pton(AF_INET, address.c_str(), &a.sin_addr);
  return a;
}

void tune(int fd) {
  int one = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

void no_block(int fd) {
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
}

void read_whole(int fd, void* to, std::size_t bytes) {
  auto* at = static_cast<char*>(to);
  while (bytes > 0) {
    auto n = ::read(fd, at, bytes);
    if (n <= 0) fail("a rank closed its connection");
    at += n;
    bytes -= static_cast<std::size_t>(n);
  }
}

template <class T>
void sum_plain(std::byte* data, const std::byte* more, std::int64_t n) {
  auto* a = reinterpret_cast<T*>(data);
  const auto* b = reinterpret_cast<const T*>(more);
  for (std::int64_t i = 0; i < n; ++i) a[i] += b[i];
}

float from_bf16(std::uint16_t v) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(v) << 16);
}
std::uint16_t to_bf16(float f) {
  auto bits = std::bit_cast<std::uint32_t>(f);
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// Through float32 without hardware conversion: exact for normal halves, subnormals included, round
// to nearest even.
float from_fp16(std::uint16_t h) {
  std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000) << 16;
  std::uint32_t magnitude = static_cast<std::uint32_t>(h & 0x7fff) << 13;
  float scaled = std::bit_cast<float>(magnitude) * 0x1p112f;  // exponent bias 127 - 15
  if (magnitude >= 0x0f800000) scaled = std::bit_cast<float>(magnitude | 0x7f800000);
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | sign);
}
std::uint16_t to_fp16(float f) {
  auto bits = std::bit_cast<std::uint32_t>(f);
  auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000);
  std::uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude >= 0x47800000)
    return static_cast<std::uint16_t>(sign | (magnitude > 0x7f800000 ? 0x7e00 : 0x7c00));
  if (magnitude < 0x38800000) {  // subnormal half: let the float adder round
    float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000));
  }
  std::uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000) >> 13));
}

void sum_fp16(std::uint16_t* a, const std::uint16_t* b, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) a[i] = to_fp16(from_fp16(a[i]) + from_fp16(b[i]));
}

#if defined(__x86_64__)
// Of AVX the compilers know whether the kernel keeps its registers, too; of F16C clang 14 does not.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __builtin_cpu_supports("avx") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

__attribute__((target("avx,f16c"))) void sum_fp16_by_hardware(std::uint16_t* a,
                                                              const std::uint16_t* b,
                                                              std::int64_t n) {
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    __m256 x = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(a + i)));
    __m256 y = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(b + i)));
    _mm_storeu_si128(
        reinterpret_cast<__m128i*>(a + i),
        _mm256_cvtps_ph(_mm256_add_ps(x, y), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  sum_fp16(a + i, b + i, n - i);
}
#endif

}  // namespace

void sum_into(std::byte* data, const std::byte* more, std::int64_t n, DType type) {
  auto* a = reinterpret_cast<std::uint16_t*>(data);
  const auto* b = reinterpret_cast<const std::uint16_t*>(more);
  switch (type) {
    case DType::Float32:
      return sum_plain<float>(data, more, n);
    case DType::Float64:
      return sum_plain<double>(data, more, n);
    case DType::Float16:
#if defined(__x86_64__)
      if (static const bool hardware = has_f16c(); hardware) return sum_fp16_by_hardware(a, b, n);
#endif
      return sum_fp16(a, b, n);
    case DType::BFloat16:
      for (std::int64_t i = 0; i < n; ++i) a[i] = to_bf16(from_bf16(a[i]) + from_bf16(b[i]));
      return;
    case DType::Int64:
      return sum_plain<std::int64_t>(data, more, n);
    case DType::Int32:
      return sum_plain<std::int32_t>(data, more, n);
    case DType::UInt8:
    case DType::Bool:
      return sum_plain<std::uint8_t>(data, more, n);
  }
}

Mesh::Mesh(int slots) : slots_(slots) {}

Mesh::~Mesh() {
  if (listener_ >= 0) ::close(listener_);
  for (auto* map : {&out_, &in_})
    for (const auto& [key, fd] : *map) ::close(fd);
}

std::uint16_t Mesh::listen(const std::string& address) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener_ < 0) fail("socket");
  tune(listener_);
  sockaddr_in a = socket_address(address, 0);
  if (::bind(listener_, reinterpret_cast<sockaddr*>(&a), sizeof a) != 0 ||
      ::listen(listener_, 1024) != 0)
    fail("listening on " + address);
  socklen_t length = sizeof a;
  ::getsockname(listener_, reinterpret_cast<sockaddr*>(&a), &length);
  return ntohs(a.sin_port);
}

void Mesh::connect(int rank, std::span<const Peer> peers, std::span<const int> send_to,
                   std::span<const int> receive_from) {
  for (int to : send_to)
    for (int slot = 0; slot < slots_; ++slot) {
      int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (fd < 0) fail("socket");
      tune(fd);
      const Peer& peer = peers[to];
      sockaddr_in a = socket_address(peer.address, peer.port);
      if (::connect(fd, reinterpret_cast<sockaddr*>(&a), sizeof a) != 0)
        fail("connecting to rank " + std::to_string(to));
      std::int32_t hello[2] = {rank, slot};
      if (::write(fd, hello, sizeof hello) != sizeof hello)
        fail("greeting rank " + std::to_string(to));
      no_block(fd);
      out_[{to, slot}] = fd;
    }
  for (std::size_t i = 0; i < receive_from.size() * static_cast<std::size_t>(slots_); ++i) {
    int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) fail("accept");
    tune(fd);
    std::int32_t hello[2];
    read_whole(fd, hello, sizeof hello);
    no_block(fd);
    in_[{hello[0], hello[1]}] = fd;
  }
}

struct Mesh::Transfer {
  int fd = -1;
  int peer = -1;
  std::byte* at = nullptr;
  std::int64_t left = 0;  // bytes
};

// A lane in the middle of a step, or between two.
struct Mesh::LaneState {
  std::size_t step = 0;  // steps that have ended
  bool begun = false;
  std::vector<Transfer> sends;
  std::vector<Transfer> receives;
  bool idle() const {
    auto done = [](const Transfer& t) { return t.left == 0; };
    return std::all_of(sends.begin(), sends.end(), done) &&
           std::all_of(receives.begin(), receives.end(), done);
  }
};

void Mesh::begin(const collective::RankSteps& steps, std::vector<LaneState>& lanes, std::size_t l,
                 std::byte* data, std::int64_t size, Scratch& scratch, int first_slot) const {
  LaneState& lane = lanes[l];
  const collective::Step& step = steps.lanes[l][lane.step];
  if (step.after_lane >= 0 &&
      lanes[step.after_lane].step <= static_cast<std::size_t>(step.after_step))
    return;
  lane.begun = true;
  lane.sends.clear();
  lane.receives.clear();
  int slot = first_slot + static_cast<int>(l);
  for (const collective::Message& m : step.sends)
    lane.sends.push_back({out_.at({m.peer, slot}), m.peer, data + m.offset * size, m.count * size});
  std::int64_t into = 0;
  for (const collective::Message& m : step.receives) into += m.count * size;
  if (step.reduce && static_cast<std::int64_t>(scratch[l].size()) < into) scratch[l].resize(into);
  into = 0;
  for (const collective::Message& m : step.receives) {
    lane.receives.push_back({in_.at({m.peer, slot}), m.peer,
                             step.reduce ? scratch[l].data() + into : data + m.offset * size,
                             m.count * size});
    into += m.count * size;
  }
}

// As much as the sockets take or have; true = something moved.
bool Mesh::move(std::vector<Transfer>& transfers, bool sends) const {
  bool moved = false;
  for (Transfer& t : transfers) {
    if (t.left == 0) continue;
    auto bytes = static_cast<std::size_t>(t.left);
    auto n = sends ? ::send(t.fd, t.at, bytes, MSG_NOSIGNAL) : ::recv(t.fd, t.at, bytes, 0);
    if (n == 0)
      throw std::runtime_error("rank " + std::to_string(t.peer) + " closed its connection");
    if (n < 0 && errno != EAGAIN && errno != EINTR)
      fail((sends ? "sending to rank " : "receiving from rank ") + std::to_string(t.peer));
    if (n > 0) t.at += n, t.left -= n, moved = true;
  }
  return moved;
}

void Mesh::end(const collective::Step& step, LaneState& lane, std::byte* data, DType type,
               const std::vector<std::byte>& scratch) {
  ++lane.step;
  lane.begun = false;
  if (!step.reduce || step.receives.empty()) return;
  std::int64_t size = element_size(type);
  std::int64_t begin = now_ns();
  const std::byte* from = scratch.data();
  for (const collective::Message& m : step.receives) {
    sum_into(data + m.offset * size, from, m.count, type);
    from += m.count * size;
  }
  summing_ns_.fetch_add(now_ns() - begin, std::memory_order_relaxed);
}

void Mesh::wait(const std::vector<LaneState>& lanes) {
  thread_local std::vector<pollfd> waits;
  waits.clear();
  for (const LaneState& lane : lanes) {
    if (!lane.begun) continue;
    for (const Transfer& t : lane.sends)
      if (t.left > 0) waits.push_back({t.fd, POLLOUT, 0});
    for (const Transfer& t : lane.receives)
      if (t.left > 0) waits.push_back({t.fd, POLLIN, 0});
  }
  if (waits.empty()) throw std::runtime_error("no lane of a collective can go on");
  int ready = ::poll(waits.data(), waits.size(), kSilenceMs);
  if (ready == 0) throw std::runtime_error("no byte moved for a minute");
  if (ready < 0 && errno != EINTR) fail("poll");
}

void Mesh::play(const collective::RankSteps& steps, std::byte* data, DType type, Scratch& scratch,
                int first_slot) {
  std::int64_t size = element_size(type);
  thread_local std::vector<LaneState> lanes;
  if (lanes.size() < steps.lanes.size()) lanes.resize(steps.lanes.size());
  if (scratch.size() < steps.lanes.size()) scratch.resize(steps.lanes.size());
  for (LaneState& lane : lanes) lane.step = 0, lane.begun = false;
  for (bool open = true; open;) {
    open = false;
    bool moved = false;
    for (std::size_t l = 0; l < steps.lanes.size(); ++l) {
      LaneState& lane = lanes[l];
      if (lane.step == steps.lanes[l].size()) continue;
      open = true;
      if (!lane.begun) begin(steps, lanes, l, data, size, scratch, first_slot);
      if (!lane.begun) continue;
      moved = move(lane.sends, true) || moved;
      moved = move(lane.receives, false) || moved;
      if (!lane.idle()) continue;
      end(steps.lanes[l][lane.step], lane, data, type, scratch[l]);
      moved = true;
    }
    if (open && !moved) wait(lanes);
  }
}

std::int64_t Mesh::retransmits() const {
  std::int64_t total = 0;
  for (const auto& [key, fd] : out_) {
    tcp_info info{};
    socklen_t length = sizeof info;
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0)
      total += info.tcpi_total_retrans;
  }
  return total;
}

}  // namespace ddpsim::calib
