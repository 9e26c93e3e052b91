#include "calib/mesh.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <bit>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "calib/clock.h"

namespace ddpsim::calib {
namespace {

constexpr int kSilenceMs = 60'000;

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what + ": " + std::strerror(errno)); }

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

void no_block(int fd) { ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK); }

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

float from_bf16(std::uint16_t v) { return std::bit_cast<float>(static_cast<std::uint32_t>(v) << 16); }
std::uint16_t to_bf16(float f) {
  auto bits = std::bit_cast<std::uint32_t>(f);
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// Through float32 without hardware conversion: exact for normal halves, subnormals included, round to nearest even.
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
  if (magnitude >= 0x47800000) return static_cast<std::uint16_t>(sign | (magnitude > 0x7f800000 ? 0x7e00 : 0x7c00));
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
__attribute__((target("avx,f16c"))) void sum_fp16_by_hardware(std::uint16_t* a, const std::uint16_t* b, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    __m256 x = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(a + i)));
    __m256 y = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(b + i)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(a + i), _mm256_cvtps_ph(_mm256_add_ps(x, y), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
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
      if (static const bool hardware = __builtin_cpu_supports("f16c") != 0; hardware) return sum_fp16_by_hardware(a, b, n);
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
  if (::bind(listener_, reinterpret_cast<sockaddr*>(&a), sizeof a) != 0 || ::listen(listener_, 1024) != 0) fail("listening on " + address);
  socklen_t length = sizeof a;
  ::getsockname(listener_, reinterpret_cast<sockaddr*>(&a), &length);
  return ntohs(a.sin_port);
}

void Mesh::connect(int rank, std::span<const Peer> peers, std::span<const int> send_to, std::span<const int> receive_from) {
  for (int to : send_to)
    for (int slot = 0; slot < slots_; ++slot) {
      int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (fd < 0) fail("socket");
      tune(fd);
      const Peer& peer = peers[static_cast<std::size_t>(to)];
      sockaddr_in a = socket_address(peer.address, peer.port);
      if (::connect(fd, reinterpret_cast<sockaddr*>(&a), sizeof a) != 0) fail("connecting to rank " + std::to_string(to));
      std::int32_t hello[2] = {rank, slot};
      if (::write(fd, hello, sizeof hello) != sizeof hello) fail("greeting rank " + std::to_string(to));
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

void Mesh::play(std::span<const collective::MessageStep> steps, std::byte* data, DType type, std::vector<std::byte>& scratch, int slot) {
  std::int64_t size = element_size(type);
  for (const collective::MessageStep& step : steps) {
    std::int64_t to_send = step.send_to >= 0 ? step.send_count * size : 0;
    std::int64_t to_receive = step.receive_from >= 0 ? step.receive_count * size : 0;
    if (step.reduce && static_cast<std::int64_t>(scratch.size()) < to_receive) scratch.resize(static_cast<std::size_t>(to_receive));
    const std::byte* from = data + step.send_offset * size;
    std::byte* into = step.reduce ? scratch.data() : data + step.receive_offset * size;
    int out = to_send > 0 ? out_.at({step.send_to, slot}) : -1;
    int in = to_receive > 0 ? in_.at({step.receive_from, slot}) : -1;
    while (to_send > 0 || to_receive > 0) {
      bool moved = false;
      if (to_send > 0) {
        auto n = ::send(out, from, static_cast<std::size_t>(to_send), MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINTR) fail("sending to rank " + std::to_string(step.send_to));
        if (n > 0) from += n, to_send -= n, moved = true;
      }
      if (to_receive > 0) {
        auto n = ::recv(in, into, static_cast<std::size_t>(to_receive), 0);
        if (n == 0) throw std::runtime_error("rank " + std::to_string(step.receive_from) + " closed its connection");
        if (n < 0 && errno != EAGAIN && errno != EINTR) fail("receiving from rank " + std::to_string(step.receive_from));
        if (n > 0) into += n, to_receive -= n, moved = true;
      }
      if (moved || (to_send == 0 && to_receive == 0)) continue;
      pollfd waits[2];
      nfds_t count = 0;
      if (to_send > 0) waits[count++] = {out, POLLOUT, 0};
      if (to_receive > 0) waits[count++] = {in, POLLIN, 0};
      int ready = ::poll(waits, count, kSilenceMs);
      if (ready == 0) throw std::runtime_error("no byte moved for a minute");
      if (ready < 0 && errno != EINTR) fail("poll");
    }
    if (!step.reduce) continue;
    std::int64_t begin = now_ns();
    sum_into(data + step.receive_offset * size, scratch.data(), step.receive_count, type);
    summing_ns_ += now_ns() - begin;
  }
}

std::int64_t Mesh::retransmits() const {
  std::int64_t total = 0;
  for (const auto& [key, fd] : out_) {
    tcp_info info{};
    socklen_t length = sizeof info;
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0) total += info.tcpi_total_retrans;
  }
  return total;
}

}  // namespace ddpsim::calib
