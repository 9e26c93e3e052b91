#include "sim/io/byte_stream.h"

#include <new>
#include <vector>

#include <zlib.h>

#include "sim/io/descriptors.h"
#include "sim/model/error.h"

namespace ddpsim::io {
namespace {

constexpr std::size_t kStreamBlock = 1 << 18;
constexpr int kGzipWindow = 15 + 16;  // zlib's windowBits: 32 KiB window, gzip wrapper

}  // namespace

struct ByteStream::State {
  State(const std::string& file, int number)
      : path(file), descriptor(number), packed(kStreamBlock) {}
  ~State() {
    if (gzip) inflateEnd(&z);
  }
  std::string path;
  Descriptor descriptor;
  std::vector<char> packed;
  std::vector<char> text;
  z_stream z{};
  bool gzip = false;
  bool between = false;  // of gzip's members: one has ended
  bool ended = false;    // the file has no more bytes
};

ByteStream::ByteStream(const std::string& path) {
  Input in = open_input(path);
  state_ = std::make_unique<State>(path, in.descriptor);
  note_read(in.id);
  State& s = *state_;
  filled_ = read_some(in.descriptor, path, s.packed.data(), kStreamBlock);
  block_ = s.packed.data();
  s.ended = filled_ == 0;
  if (filled_ < 2 || block_[0] != '\x1f' || block_[1] != '\x8b') return;
  if (inflateInit2(&s.z, kGzipWindow) != Z_OK) throw std::bad_alloc();
  s.gzip = true;
  s.text.resize(kStreamBlock);
  s.z.next_in = reinterpret_cast<Bytef*>(s.packed.data());
  s.z.avail_in = static_cast<uInt>(filled_);
  block_ = s.text.data();
  filled_ = 0;
}

ByteStream::~ByteStream() = default;

void ByteStream::fail_nul() const {
  throw InputError{state_->path, "byte " + std::to_string(passed()) +
                                     " is a NUL byte, which no text has; fetch it or write it "
                                     "again"};
}

bool ByteStream::refill() {
  State& s = *state_;
  before_ += at_;
  at_ = filled_ = 0;
  if (before_ > last_)
    throw InputError{s.path, std::string("holds ") + what_ + " of more than " +
                                 std::to_string(allowed_ >> 20) + " MiB"};
  if (!s.gzip) {
    if (!s.ended) filled_ = read_some(s.descriptor.number(), s.path, s.packed.data(), kStreamBlock);
    s.ended = filled_ == 0;
    return filled_ > 0;
  }
  while (filled_ == 0) {
    if (s.z.avail_in == 0 && !s.ended) {
      std::size_t n = read_some(s.descriptor.number(), s.path, s.packed.data(), kStreamBlock);
      s.z.next_in = reinterpret_cast<Bytef*>(s.packed.data());
      s.z.avail_in = static_cast<uInt>(n);
      s.ended = n == 0;
    }
    if (s.z.avail_in == 0 && s.ended) {
      if (s.between) return false;
      throw InputError{s.path, "is a gzip file that ends too early; fetch or write it again"};
    }
    if (s.between) inflateReset(&s.z);
    s.z.next_out = reinterpret_cast<Bytef*>(s.text.data());
    s.z.avail_out = static_cast<uInt>(kStreamBlock);
    int state = inflate(&s.z, Z_NO_FLUSH);
    filled_ = kStreamBlock - s.z.avail_out;
    s.between = state == Z_STREAM_END;
    if (state != Z_OK && state != Z_STREAM_END && state != Z_BUF_ERROR)
      throw InputError{s.path, std::string("is a damaged gzip file (") +
                                   (s.z.msg ? s.z.msg : "no details") +
                                   "); fetch or write it again"};
  }
  return true;
}

}  // namespace ddpsim::io
