#include "sim/io/chakra.h"

#include <algorithm>

#include <zlib.h>

#include "sim/io/byte_stream.h"
#include "sim/io/protobuf.h"
#include "sim/model/error.h"

namespace ddpsim::io {
namespace {

constexpr std::size_t kMostMessage = 64u << 20;
constexpr std::size_t kMostNodes = 1'000'000;
constexpr std::size_t kMostKept = 512u << 20;  // bytes of all nodes
constexpr const char* kProgramKey = "ddpsim.program";
constexpr const char* kDigestKey = "ddpsim.digest";
constexpr const char* kOperationKey = "ddpsim.operation";

// AttributeProto: a name and one value, whose field says its type.
constexpr std::uint32_t kInt32 = 7, kInt64 = 9, kSint32 = 15, kSint64 = 17, kBool = 27, kText = 29;
struct Attribute {
  std::string_view name;
  std::int64_t number = 0;
  std::string_view text;
};
Attribute read_attribute(std::string_view bytes, const std::string& file,
                         const std::string& place) {
  Attribute a;
  ProtoReader m(bytes, file, place);
  while (m.next()) {
    if (m.field() == 1) a.name = m.bytes();
    if (m.field() < 3) continue;
    std::uint64_t n = m.number();
    bool zigzag = m.field() == kSint32 || m.field() == kSint64;
    a.number = zigzag ? (n >> 1) ^ (~(n & 1) + 1) : n;
    a.text = m.bytes();
  }
  return a;
}

void put_attribute(std::string& to, const char* name, std::uint32_t type, std::uint64_t number) {
  std::string a;
  put_bytes(a, 1, name);
  put_number(a, type, number);
  put_bytes(to, 10, a);
}
void put_text(std::string& to, std::uint32_t field, const char* name, const std::string& text) {
  std::string a;
  put_bytes(a, 1, name);
  put_bytes(a, kText, text);
  put_bytes(to, field, a);
}

std::string_view values_in(std::string_view io_info, const std::string& file,
                           const std::string& place) {
  std::string_view out;
  ProtoReader m(io_info, file, place);
  while (m.next())
    if (m.field() == 1) out = m.bytes();
  return out;
}

ChakraNode read_node(const std::string& bytes, const std::string& file, const std::string& place) {
  ChakraNode n;
  std::string_view inputs;
  ProtoReader m(bytes, file, place);
  while (m.next()) {
    switch (m.field()) {
      case 1:
        n.id = m.number();
        break;
      case 2:
        n.name = m.bytes();
        break;
      case 3:
        if (m.number() > static_cast<std::uint64_t>(ChakraType::Checkpoint))
          throw InputError{file, place + " is of type " + std::to_string(m.number()) +
                                     ", which Chakra's schema does not have"};
        n.type = static_cast<ChakraType>(m.number());
        break;
      case 4:
        m.numbers([&](std::uint64_t id) { n.control.push_back(id); });
        break;
      case 5:
        m.numbers([&](std::uint64_t id) { n.after.push_back(id); });
        break;
      case 6:
        n.start_us = m.number();
        break;
      case 7:
        n.duration_us = m.number();
        break;
      case 8:
        inputs = m.bytes();
        break;
      case 10: {
        Attribute a = read_attribute(m.bytes(), file, place);
        if (a.name == "is_cpu_op") n.on_cpu = a.number != 0;
        if (a.name == "tid") n.thread = a.number;
        if (a.name == "comm_type") n.comm_type = a.number;
        if (a.name == "comm_size") n.comm_size = a.number;
        if (a.name == "pg_name") n.group = a.text;
        if (a.name == kOperationKey) n.operation = a.text;
        break;
      }
      default:
        break;
    }
  }
  if (n.type == ChakraType::Metadata) n.inputs = values_in(inputs, file, place);
  return n;
}

// The next message; false: the file has ended. Its length is a varint of 32 bits.
bool next_message(ByteStream& from, const std::string& file, const std::string& place,
                  std::string& message) {
  const InputError broken{file, "breaks off within " + place + "; fetch it again"};
  std::uint64_t size = 0;
  for (unsigned shift = 0;; shift += 7) {
    if (from.at_end()) {
      if (shift == 0) return false;
      throw broken;
    }
    auto byte = static_cast<unsigned char>(from.current());
    from.next();
    size |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) break;
    if (shift == 28) throw InputError{file, place + " has no length: this is no trace of Chakra"};
  }
  if (size > kMostMessage)
    throw InputError{file, place + " would have " + std::to_string(size) +
                               " bytes: this is no trace of Chakra (it begins with the length of "
                               "its first message)"};
  message.clear();
  for (; size > 0; --size) {
    if (from.at_end()) throw broken;
    message += from.current();
    from.next();
  }
  return true;
}

void put_message(std::string& to, const std::string& message) {
  put_varint(to, message.size());
  to += message;
}

}  // namespace

ChakraTrace read_chakra(const std::string& path) {
  ChakraTrace out;
  out.file = path;
  ByteStream stream(path);
  std::string message;
  const std::string head = "its metadata";
  if (!next_message(stream, path, head, message))
    throw InputError{path, "is empty, and no trace of Chakra"};
  if (!message.empty() && (message[0] != '\n' && message[0] != '\x12'))
    throw InputError{path, "is no trace of Chakra: it does not begin with a GlobalMetadata"};
  ProtoReader m(message, path, head);
  while (m.next()) {
    if (m.field() == 1) out.version = m.bytes();
    if (m.field() != 2) continue;
    Attribute a = read_attribute(m.bytes(), path, head);
    if (a.name == "schema" && out.version.empty()) out.version = a.text;
    if (a.name == kProgramKey) out.program = a.text;
    if (a.name == kDigestKey) out.digest = a.text;
  }
  std::size_t kept = 0;
  for (;;) {
    std::string place = "node " + std::to_string(out.nodes.size());
    if (!next_message(stream, path, place, message)) break;
    if (out.nodes.size() == kMostNodes)
      throw InputError{path, "has more than a million nodes; export fewer iterations"};
    const ChakraNode& n = out.nodes.emplace_back(read_node(message, path, place));
    kept += sizeof n + n.name.size() + n.inputs.size() + n.operation.size() + n.group.size() +
            (n.after.size() + n.control.size()) * sizeof n.id;
    if (kept > kMostKept)
      throw InputError{path, "its nodes take more than 512 MiB; export fewer iterations"};
  }
  if (out.nodes.empty()) throw InputError{path, "has no node"};
  return out;
}

std::string write_chakra(const ChakraTrace& trace) {
  std::string out;
  std::string head;
  put_bytes(head, 1, trace.version);
  if (!trace.program.empty()) {
    put_text(head, 2, kProgramKey, trace.program);
    put_text(head, 2, kDigestKey, trace.digest);
  }
  put_message(out, head);
  for (const ChakraNode& n : trace.nodes) {
    std::string m;
    put_number(m, 1, n.id);
    put_bytes(m, 2, n.name);
    put_number(m, 3, static_cast<std::uint64_t>(n.type));
    std::string after;
    for (std::uint64_t id : n.after) put_varint(after, id);
    if (!after.empty()) put_bytes(m, 5, after);
    if (n.start_us > 0) put_number(m, 6, n.start_us);
    if (n.duration_us > 0) put_number(m, 7, n.duration_us);
    put_attribute(m, "is_cpu_op", kBool, n.on_cpu ? 1 : 0);
    if (n.thread >= 0) put_attribute(m, "tid", kInt64, n.thread);
    if (n.type == ChakraType::Collective) {
      put_attribute(m, "comm_type", kInt64, n.comm_type);
      put_attribute(m, "comm_size", kInt64, n.comm_size);
      put_attribute(m, "comm_priority", kInt32, 0);
      if (!n.group.empty()) put_text(m, 10, "pg_name", n.group);
    } else if (n.type == ChakraType::Compute) {
      // Where a roofline is asked for, a node without bytes takes no time.
      put_attribute(m, "num_ops", kInt64, 0);
      put_attribute(m, "tensor_size", 13, 0);
    }
    if (!n.operation.empty()) put_text(m, 10, kOperationKey, n.operation);
    put_message(out, m);
  }
  return out;
}

std::string digest_of(const std::vector<ChakraNode>& nodes) {
  uLong sum = crc32_z(0, nullptr, 0);
  for (const ChakraNode& n : nodes) {
    std::string text = std::to_string(n.id) + " " + n.name;
    std::vector<std::uint64_t> after = n.after;
    after.insert(after.end(), n.control.begin(), n.control.end());
    std::sort(after.begin(), after.end());
    for (std::uint64_t id : after) text += " " + std::to_string(id);
    const std::int64_t numbers[] = {static_cast<std::int64_t>(n.type),
                                    static_cast<std::int64_t>(n.start_us),
                                    static_cast<std::int64_t>(n.duration_us),
                                    n.on_cpu,
                                    n.thread,
                                    n.comm_type,
                                    n.comm_size};
    for (std::int64_t v : numbers) text += "/" + std::to_string(v);
    text += n.group + n.operation;
    sum = crc32_z(sum, reinterpret_cast<const Bytef*>(text.data()), text.size());
  }
  return std::to_string(sum);
}

}  // namespace ddpsim::io
