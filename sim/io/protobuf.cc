#include "sim/io/protobuf.h"

#include "sim/model/error.h"

namespace ddpsim::io {

void ProtoReader::fail() const {
  throw InputError{file_, place_ +
                              " is damaged, or no message of Chakra's schema (et_def.proto); "
                              "fetch it again, or record it again"};
}

std::uint64_t ProtoReader::varint(std::string_view& from) const {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    if (from.empty()) fail();
    auto byte = static_cast<unsigned char>(from.front());
    from.remove_prefix(1);
    value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  fail();
}

std::uint64_t ProtoReader::fixed(std::size_t size) {
  if (left_.size() < size) fail();
  std::uint64_t value = 0;
  for (std::size_t k = 0; k < size; ++k)
    value |= static_cast<std::uint64_t>(static_cast<unsigned char>(left_[k])) << (8 * k);
  left_.remove_prefix(size);
  return value;
}

bool ProtoReader::next() {
  if (left_.empty()) return false;
  std::uint64_t key = varint(left_);
  if (key >> 3 == 0 || key >> 3 > 0x1fffffff) fail();
  field_ = static_cast<std::uint32_t>(key >> 3);
  number_ = 0;
  bytes_ = {};
  is_bytes_ = false;
  switch (key & 7) {
    case 0:
      number_ = varint(left_);
      return true;
    case 1:
      number_ = fixed(8);
      return true;
    case 5:
      number_ = fixed(4);
      return true;
    case 2: {
      std::uint64_t size = varint(left_);
      if (size > left_.size()) fail();
      bytes_ = left_.substr(0, size);
      left_.remove_prefix(size);
      is_bytes_ = true;
      return true;
    }
    default:  // groups, which no schema has had since 2016
      fail();
  }
}

void put_varint(std::string& to, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) to += static_cast<char>(value | 0x80);
  to += static_cast<char>(value);
}

void put_number(std::string& to, std::uint32_t field, std::uint64_t value) {
  put_varint(to, static_cast<std::uint64_t>(field) << 3);
  put_varint(to, value);
}

void put_bytes(std::string& to, std::uint32_t field, std::string_view value) {
  put_varint(to, (static_cast<std::uint64_t>(field) << 3) | 2);
  put_varint(to, value.size());
  to += value;
}

}  // namespace ddpsim::io
