#include "sim/io/xml_reader.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "sim/units/number.h"
#include "sim/units/text.h"

namespace ddpsim::io {
namespace {

constexpr int kMostNodes = 1 << 16;
constexpr int kDeepest = 64;

int line_of(const std::string& text, std::ptrdiff_t offset) {
  auto end = text.begin() + std::clamp<std::ptrdiff_t>(offset, 0, text.size());
  return 1 + static_cast<int>(std::count(text.begin(), end, '\n'));
}

}  // namespace

XmlFile::XmlFile(const std::string& text, const std::string& file, const char* root)
    : text_(valid_utf8(text)), file_(file) {
  if (text_.find_first_not_of(" \t\r\n") == std::string::npos)
    throw InputError{file_, "the file is empty; expected XML"};
  if (text_.find('\0') != std::string::npos)
    throw InputError{file_, "holds binary data; expected XML"};
  // Before the parser takes forty bytes for each.
  if (std::count(text_.begin(), text_.end(), '<') > 4 * kMostNodes ||
      std::count(text_.begin(), text_.end(), '=') > 32 * kMostNodes)
    throw InputError{file_,
                     fmt::format("has more than {} elements; no dump of NCCL has", kMostNodes)};
  pugi::xml_parse_result parsed =
      document_.load_buffer(text_.data(), text_.size(), pugi::parse_default, pugi::encoding_utf8);
  if (!parsed)
    throw InputError{fmt::format("{}:{}", file_, line_of(text_, parsed.offset)),
                     std::string("not valid XML (truncated?): ") + parsed.description()};
  root_ = document_.document_element();
  if (std::string(root_.name()) != root)
    throw InputError{file_, fmt::format("begins with <{}>; expected <{}>",
                                        std::string(root_.name()).substr(0, 40), root)};
  int count = 0;
  int depth = 0;
  for (pugi::xml_node at = root_; at;) {
    if (++count > kMostNodes)
      throw InputError{file_,
                       fmt::format("has more than {} elements; no dump of NCCL has", kMostNodes)};
    if (depth > kDeepest)
      throw InputError{file_,
                       fmt::format("nested deeper than {} levels; no dump of NCCL is", kDeepest)};
    if (at.first_child()) {
      at = at.first_child();
      ++depth;
      continue;
    }
    while (at && at != root_ && !at.next_sibling()) at = at.parent(), --depth;
    at = at == root_ ? pugi::xml_node() : at.next_sibling();
  }
}

int XmlFile::line(pugi::xml_node at) const {
  return line_of(text_, at.offset_debug());
}

void XmlFile::fail(pugi::xml_node at, const std::string& message) const {
  throw InputError{
      fmt::format("{}:{}: <{}>", file_, line(at), std::string(at.name()).substr(0, 40)), message};
}

std::optional<std::int64_t> XmlFile::integer(pugi::xml_node at, const char* name, std::int64_t low,
                                             std::int64_t high, int base) const {
  std::string s = text(at, name);
  if (s.empty()) return {};
  const bool marked = s.starts_with("0x") || s.starts_with("0X");
  const auto digits = std::string_view(s).substr(marked ? 2 : 0);
  auto v = marked || base == 16 ? parse_hexadecimal(digits) : parse_integer(digits);
  if (!v) fail(at, fmt::format("{}=\"{}\" is not a whole number", name, s.substr(0, 40)));
  if (*v < low || *v > high)
    fail(at, fmt::format("{}=\"{}\" is not within {} and {}", name, s.substr(0, 40), low, high));
  return v;
}

std::optional<double> XmlFile::number(pugi::xml_node at, const char* name, double low,
                                      double high) const {
  std::string s = text(at, name);
  if (s.empty()) return {};
  auto v = parse_number(s);
  if (!v) fail(at, fmt::format("{}=\"{}\" is not a number", name, s.substr(0, 40)));
  if (*v < low || *v > high)
    fail(at, fmt::format("{}=\"{}\" is not within {} and {}", name, s.substr(0, 40), low, high));
  return v;
}

}  // namespace ddpsim::io
