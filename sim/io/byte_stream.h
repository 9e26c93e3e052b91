// A file of any length, gzip or not, a block at a time: what is too long for files.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>

namespace ddpsim::io {

class ByteStream {
 public:
  // Throws InputError if it cannot be read, and later if it is damaged gzip.
  explicit ByteStream(const std::string& path);
  ~ByteStream();
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;
  // Whether there is a byte at the place that was reached, which current() is.
  bool at_end() { return at_ == filled_ && !refill(); }
  char current() const { return block_[at_]; }
  // current(), of a text. Throws InputError for a NUL byte, which parsers take for the end.
  char character() const {
    if (block_[at_] == '\0') fail_nul();
    return block_[at_];
  }
  void next() { ++at_; }
  // Bytes before current().
  std::size_t passed() const { return before_ + at_; }
  // From here on at_end() reads at most `bytes`, and a block, further: a reader that keeps what it
  // is given never keeps more. Then it throws InputError: the file "holds WHAT of more than N MiB".
  void allow(std::size_t bytes, const char* what) {
    last_ = passed() + bytes;
    allowed_ = bytes;
    what_ = what;
  }

 private:
  struct State;
  bool refill();
  [[noreturn]] void fail_nul() const;
  std::unique_ptr<State> state_;
  const char* block_ = nullptr;
  std::size_t at_ = 0;
  std::size_t filled_ = 0;
  std::size_t before_ = 0;  // bytes of earlier blocks
  std::size_t last_ = SIZE_MAX;
  std::size_t allowed_ = 0;
  const char* what_ = "";
};

// For parsers of text that take a pair of input iterators; the default one is the end.
class ByteIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;
  ByteIterator() = default;
  explicit ByteIterator(ByteStream& stream) : stream_(&stream) {}
  char operator*() const { return stream_->character(); }
  ByteIterator& operator++() {
    stream_->next();
    return *this;
  }
  ByteIterator operator++(int) {
    ByteIterator before = *this;
    stream_->next();
    return before;
  }
  // Only with the end.
  bool operator==(const ByteIterator& other) const {
    const ByteIterator& one = stream_ ? *this : other;
    return !one.stream_ || one.stream_->at_end();
  }
  bool operator!=(const ByteIterator& other) const { return !(*this == other); }

 private:
  ByteStream* stream_ = nullptr;
};

}  // namespace ddpsim::io
