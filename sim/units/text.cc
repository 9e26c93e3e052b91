#include "sim/units/text.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>

namespace ddpsim {
namespace {

struct Character {
  std::uint32_t code = 0;
  std::size_t length = 0;  // 0: the text does not begin with valid UTF-8
};

// RFC 3629: the shortest form, no surrogates, at most U+10FFFF.
Character first_of(std::string_view s) {
  auto byte = [&](std::size_t i) { return static_cast<unsigned char>(s[i]); };
  unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || s.size() < length) return {};
  std::uint32_t code = lead & (0x7fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3fu);
  }
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kLeast[length] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return {};
  return {code, length};
}

// DEL and C1, separators of lines, and marks, embeddings, overrides and isolates of bidirectional
// writing (Unicode Standard Annex 9).
bool acts_on_a_terminal(std::uint32_t c) {
  return (c >= 0x7f && c < 0xa0) || c == 0x061c || c == 0x200e || c == 0x200f ||
         (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}
bool is_c0(std::uint32_t c) {
  return c < 0x20;
}
bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= 0 && c < 0x7f; });
}

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

// `instead_of`: what is written for a character; empty: itself.
template <class InsteadOf>
std::string with_replaced(std::string_view text, const InsteadOf& instead_of) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    Character c = first_of(text);
    if (c.length == 0) {
      out += kReplacement;
    } else {
      std::string_view other = instead_of(c.code);
      out += other.empty() ? text.substr(0, c.length) : other;
    }
    text.remove_prefix(c.length == 0 ? 1 : c.length);
  }
  return out;
}

}  // namespace

std::string valid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    Character c = first_of(text);
    out += c.length == 0 ? kReplacement : text.substr(0, c.length);
    text.remove_prefix(c.length == 0 ? 1 : c.length);
  }
  return out;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    Character c = first_of(text);
    if (c.length == 0) return false;
    text.remove_prefix(c.length);
  }
  return true;
}

std::string printable(std::string_view text) {
  return with_replaced(text, [](std::uint32_t c) {
    return is_c0(c) || acts_on_a_terminal(c) ? std::string_view(" ") : std::string_view();
  });
}

std::string printable_page(std::string_view page) {
  if (is_ascii(page)) return std::string(page);
  return with_replaced(page, [](std::uint32_t c) {
    return acts_on_a_terminal(c) ? std::string_view(" ") : std::string_view();
  });
}

std::string printable_json(std::string_view json) {
  if (is_ascii(json)) return std::string(json);
  char escape[8];
  return with_replaced(json, [&](std::uint32_t c) {
    if (!acts_on_a_terminal(c)) return std::string_view();
    std::snprintf(escape, sizeof escape, "\\u%04x", c);
    return std::string_view(escape);
  });
}

}  // namespace ddpsim
