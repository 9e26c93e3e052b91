// Protocol Buffers' wire format, field by field (protobuf.dev, "Encoding"): what two messages of
// numbers and strings need, and no more.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ddpsim::io {

// The fields of one message, in the order in which they were written: `while (m.next())`.
class ProtoReader {
 public:
  // REQUIRES: `bytes` outlive it. `place`: of the message, for errors.
  ProtoReader(std::string_view bytes, const std::string& file, const std::string& place)
      : left_(bytes), file_(file), place_(place) {}
  // Throws InputError: the message is damaged.
  bool next();
  std::uint32_t field() const { return field_; }
  // Of a varint or a fixed number; 0 where the field is bytes.
  std::uint64_t number() const { return number_; }
  std::string_view bytes() const { return bytes_; }  // "" where the field is a number
  // Of a field of repeated numbers, packed or not: each of them.
  template <class Each>
  void numbers(Each each) {
    if (!is_bytes_) return each(number_);
    std::string_view packed = bytes_;
    while (!packed.empty()) each(varint(packed));
  }

 private:
  std::uint64_t varint(std::string_view& from) const;
  std::uint64_t fixed(std::size_t size);
  [[noreturn]] void fail() const;

  std::string_view left_;
  const std::string& file_;
  const std::string& place_;
  std::uint32_t field_ = 0;
  std::uint64_t number_ = 0;
  std::string_view bytes_;
  bool is_bytes_ = false;
};

// Appends to a message.
void put_varint(std::string& to, std::uint64_t value);
void put_number(std::string& to, std::uint32_t field, std::uint64_t value);
void put_bytes(std::string& to, std::uint32_t field, std::string_view value);

}  // namespace ddpsim::io
