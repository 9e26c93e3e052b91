// A file of any length, gzip or not, a block at a time: what is too long for files.h.
#pragma once

#include <cstddef>
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
  void next() { ++at_; }
  // Bytes before current().
  std::size_t passed() const { return before_ + at_; }

 private:
  struct State;
  bool refill();
  std::unique_ptr<State> state_;
  const char* block_ = nullptr;
  std::size_t at_ = 0;
  std::size_t filled_ = 0;
  std::size_t before_ = 0;  // bytes of earlier blocks
};

// For parsers that take a pair of input iterators; the default one is the end.
class ByteIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;
  ByteIterator() = default;
  explicit ByteIterator(ByteStream& stream) : stream_(&stream) {}
  char operator*() const { return stream_->current(); }
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
