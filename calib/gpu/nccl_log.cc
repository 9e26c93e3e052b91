#include "calib/gpu/nccl_log.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <optional>

#include "sim/units/number.h"

namespace ddpsim::calib::gpu {
namespace {

using View = std::string_view;

std::string plain(View line) {  // without colours
  std::string out;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\x1b') {
      if (line[i] != '\r') out.push_back(line[i]);
      continue;
    }
    while (i < line.size() && !std::isalpha(static_cast<unsigned char>(line[i]))) ++i;
  }
  return out;
}

bool same(View a, View b) {
  auto plain_char = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  std::string x, y;
  for (char c : a)
    if (c != '_') x.push_back(static_cast<char>(plain_char(c)));
  for (char c : b)
    if (c != '_') y.push_back(static_cast<char>(plain_char(c)));
  return x == y;
}

// Reads from a line, forward only.
class Scan {
 public:
  explicit Scan(View text) : rest_(text) {}
  bool after(View what) {
    auto at = rest_.find(what);
    if (at == View::npos) return false;
    rest_.remove_prefix(at + what.size());
    return true;
  }
  View word() {
    skip_spaces();
    std::size_t n = 0;
    while (n < rest_.size() && rest_[n] != ' ' && rest_[n] != '\t') ++n;
    View out = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return out;
  }
  // What follows the spaces, where it begins with a number: of ranks, channels, and the like.
  std::optional<int> count() {
    skip_spaces();
    auto n = leading_count(rest_);
    if (!n || n->value > INT32_MAX) return {};
    rest_.remove_prefix(n->length);
    return static_cast<int>(n->value);
  }
  std::optional<double> number() {
    skip_spaces();
    auto n = leading_number(rest_);
    if (!n) return {};
    rest_.remove_prefix(n->length);
    return n->value;
  }

 private:
  void skip_spaces() {
    while (!rest_.empty() && rest_.front() == ' ') rest_.remove_prefix(1);
  }
  View rest_;
};

// "RING", "Ring" or its number.
template <std::size_t N>
std::string named(View word, const std::array<View, N>& names) {
  for (View n : names)
    if (same(word, n)) return std::string(n);
  auto index = parse_integer(word);
  if (!index || *index < 0 || *index >= static_cast<std::int64_t>(N)) return {};
  return std::string(names[*index]);
}

// "[AllReduce: ]4096 Bytes -> Algo TREE proto LL [channel{Lo..Hi}={0..1}|time 9.3]"
std::optional<NcclChoice> choice(View line) {
  auto at = line.find(" Bytes -> Algo ");
  if (at == View::npos) return {};
  NcclChoice out;
  std::size_t digits = at;
  while (digits > 0 && std::isdigit(static_cast<unsigned char>(line[digits - 1]))) --digits;
  auto bytes = parse_integer(line.substr(digits, at - digits));
  if (!bytes) return {};
  out.bytes = *bytes;
  View before = line.substr(0, digits);
  while (!before.empty() && before.back() == ' ') before.remove_suffix(1);
  if (!before.empty() && before.back() == ':') {
    before.remove_suffix(1);
    auto space = before.find_last_of(" \t");
    out.collective = before.substr(space == View::npos ? 0 : space + 1);
  }
  Scan scan(line.substr(at));
  scan.after("-> Algo ");
  out.algorithm = named(scan.word(), kNcclAlgorithms);
  if (!scan.after("proto ")) return {};
  out.protocol = named(scan.word(), kNcclProtocols);
  if (out.algorithm.empty() || out.protocol.empty()) return {};
  Scan time = scan;
  if (time.after("time ")) out.estimate_us = time.number().value_or(0);
  if (scan.after("={")) {
    auto low = scan.count();
    scan.after("..");
    auto high = scan.count();
    if (low && high && *high >= *low && *high < INT32_MAX) out.channels = *high - *low + 1;
  }
  return out;
}

void read_line(View line, NcclLog& out) {
  if (Scan s(line); s.after("NCCL version ")) {
    if (out.version.empty()) out.version = s.word();
    return;
  }
  if (auto at = line.find("NCCL WARN "); at != View::npos) {
    out.warnings.emplace_back(line.substr(at + 10));
    return;
  }
  if (auto c = choice(line)) {
    if (out.choices.empty() || out.choices.back() != *c) out.choices.push_back(std::move(*c));
    return;
  }
  if (Scan s(line); s.after(" nRanks ")) {
    auto ranks = s.count();
    if (ranks && s.after("nNodes ")) {
      out.ranks = *ranks;
      out.nodes = s.count().value_or(0);
      if (s.after("localRanks ")) out.local_ranks = s.count().value_or(0);
    }
    return;
  }
  if (auto at = line.find(" via ");
      at != View::npos && line.find("Channel ") != View::npos && line.find("->") != View::npos) {
    std::string way(Scan(line.substr(at + 5)).word());
    // "NET/Socket/0": the last part is a device's number.
    auto slash = way.rfind('/');
    if (slash != std::string::npos && slash + 1 < way.size() &&
        std::all_of(way.begin() + static_cast<std::ptrdiff_t>(slash) + 1, way.end(),
                    [](char c) { return c >= '0' && c <= '9'; }))
      way.resize(slash);
    if (!way.empty()) ++out.via[way];
    return;
  }
  if (Scan s(line); s.after("NCCL INFO Channel ")) {  // "Channel 01/04 : 0 1 2 3"
    s.count();
    if (s.after("/"))
      if (auto n = s.count(); n && line.find(" : ") != View::npos)
        out.channels = std::max(out.channels, *n);
  }
}

}  // namespace

NcclLog parse_nccl_log(std::string_view text) {
  NcclLog out;
  while (!text.empty()) {
    auto end = text.find('\n');
    std::string line = plain(text.substr(0, end));
    read_line(line, out);
    if (end == View::npos) break;
    text.remove_prefix(end + 1);
  }
  return out;
}

}  // namespace ddpsim::calib::gpu
