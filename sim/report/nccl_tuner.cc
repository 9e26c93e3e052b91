// Border between sizes a < b: sqrt(a b). The square root is exact in IEEE 754, so it is the same
// everywhere.
#include "sim/report/nccl_tuner.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "sim/io/csv.h"
#include "sim/model/version.h"
#include "sim/units/number.h"
#include "sim/units/text.h"

namespace ddpsim::report {
namespace {

constexpr std::array<const char*, 5> kCollectives{"broadcast", "reduce", "allgather",
                                                  "reducescatter", "allreduce"};
constexpr std::array<const char*, 7> kAlgorithms{
    "tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat"};
constexpr std::array<const char*, 3> kProtocols{"ll", "ll128", "simple"};
constexpr int kMostChannels = 64;  // MAXCHANNELS

using Group = std::tuple<std::string, int, int>;
Group group_of(const TunerRow& r) {
  return {r.collective, r.nodes, r.ranks};
}

// The name in `names` that differs in case and underscores only; "" = none.
template <std::size_t N>
std::string known(std::string_view word, const std::array<const char*, N>& names) {
  auto plain = [](std::string_view s) {
    std::string out;
    for (char c : s)
      if (c != '_') out.push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c);
    return out;
  };
  for (const char* n : names)
    if (plain(n) == plain(word)) return n;
  return {};
}

template <std::size_t N>
std::string choose(std::string_view word, const std::array<const char*, N>& names,
                   const std::string& where, const char* what) {
  std::string out = known(word, names);
  if (out.empty())
    throw InputError{where, fmt::format("\"{}\" is no {}; known are {}", word.substr(0, 40), what,
                                        fmt::join(names, ", "))};
  return out;
}

std::string row_text(const TunerRow& r) {
  return fmt::format("{},{},{},{},{},{},{},{}\n", r.collective, r.min_bytes, r.max_bytes,
                     r.algorithm, r.protocol, r.channels, r.nodes, r.ranks);
}

std::int64_t whole(std::string_view s, const std::string& where, const char* what, std::int64_t low,
                   std::int64_t high) {
  auto v = parse_integer(s);
  if (!v)
    throw InputError{where, fmt::format("{}: \"{}\" is not a whole number", what, s.substr(0, 40))};
  if (*v < low || *v > high)
    throw InputError{where, fmt::format("{}: {} is not within {} and {}", what, *v, low, high)};
  return *v;
}

int small(std::string_view s, const std::string& where, const char* what, int low, int high) {
  return static_cast<int>(whole(s, where, what, low, high));
}

int channels_of(std::string_view s, const std::string& where) {
  const int v = small(s, where, "channels", -1, kMostChannels);
  if (v < 1)
    throw InputError{
        where,
        fmt::format("channels: {} makes the plugin force one channel; say how many (1 to {})", v,
                    kMostChannels)};
  return v;
}

}  // namespace

Problem validate(std::span<const TunerRow> rows) {
  auto at = [](std::size_t i) { return fmt::format("/{}", i); };
  std::map<Group, std::int64_t>
      next;  // byte at which the next range of a group begins; -1: the last one is over
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const TunerRow& r = rows[i];
    if (known(r.collective, kCollectives) != r.collective || r.collective.empty())
      return {at(i), "\"" + r.collective + "\" is no collective"};
    if (known(r.algorithm, kAlgorithms) != r.algorithm || r.algorithm.empty())
      return {at(i), "\"" + r.algorithm + "\" is no algorithm"};
    if (known(r.protocol, kProtocols) != r.protocol || r.protocol.empty())
      return {at(i), "\"" + r.protocol + "\" is no protocol"};
    if (r.channels < 1 || r.channels > kMostChannels)
      return {
          at(i),
          fmt::format("{} channels; 1 to {} are possible, and \"any\" makes the plugin force one",
                      r.channels, kMostChannels)};
    if (r.nodes == 0 || r.nodes < -1 || r.ranks == 0 || r.ranks < -1)
      return {at(i), "nodes and ranks are positive, or -1 for any"};
    if (r.min_bytes < 0 || r.max_bytes < r.min_bytes)
      return {at(i), fmt::format("{} to {} bytes is no range", r.min_bytes, r.max_bytes)};
    std::int64_t& begin = next.try_emplace(group_of(r), 0).first->second;
    if (begin < 0 || r.min_bytes < begin)
      return {at(i),
              fmt::format("overlaps the range before it, which covers {} bytes", r.min_bytes)};
    if (r.min_bytes > begin)
      return {at(i), fmt::format("leaves a gap: {} to {} bytes are covered by no row", begin,
                                 r.min_bytes - 1)};
    begin = r.max_bytes == kTunerMostBytes ? -1 : r.max_bytes + 1;
  }
  for (const auto& [group, begin] : next)
    if (begin >= 0)
      return {"",
              fmt::format("{} on {} nodes and {} ranks: sizes from {} bytes are covered by no row",
                          std::get<0>(group), std::get<1>(group), std::get<2>(group), begin)};
  return {};
}

std::string tuner_csv(std::span<const TunerRow> rows, std::string_view made_of) {
  std::string name = printable(made_of);
  std::string out = fmt::format("# NCCL tuner configuration, made by ddpsim {}{}{}\n", kVersion,
                                name.empty() ? "" : " of ", name);
  out +=
      "# NCCL_TUNER_PLUGIN=libnccl-tuner-example.so NCCL_TUNER_CONFIG_FILE=<this file>\n"
      "# Byte ranges are inclusive, the first line that matches wins, -1 is any. Channels are "
      "always said: the example\n"
      "# plugin forces ONE channel where they are -1, and for each collective and communicator "
      "that no line matches.\n"
      "# collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks\n";
  std::vector<TunerRow> last;  // of each group, in order of appearance
  std::map<Group, std::size_t> index;
  for (const TunerRow& r : rows) {
    out += row_text(r);
    auto [place, fresh] = index.try_emplace(group_of(r), last.size());
    if (fresh)
      last.push_back(r);
    else
      last[place->second] = r;
  }
  out += "# What no line above matches.\n";
  for (TunerRow r : last) {
    r.min_bytes = 0;
    r.max_bytes = kTunerMostBytes;
    out += row_text(r);
  }
  return out;
}

namespace {

constexpr std::array<const char*, 12> kColumns{
    "collective", "size_bytes", "algorithm", "protocol",   "channels",       "nodes",
    "ranks",      "pipeOps",    "regBuff",   "latency_us", "bandwidth_gbps", "cost_metric"};
enum Column : std::size_t {
  kCollective,
  kSize,
  kAlgorithm,
  kProtocol,
  kChannels,
  kNodes,
  kRanks,
  kPipeOps,
  kRegBuff,
  kLatency,
  kBandwidth,
  kCost
};

std::array<int, 12> header_of(const io::CsvLine& l) {
  std::array<int, 12> at;
  at.fill(-1);
  for (std::size_t i = 0; i < l.fields.size(); ++i) {
    auto found = std::find(kColumns.begin(), kColumns.end(), l.fields[i]);
    if (found == kColumns.end())
      throw InputError{l.where, fmt::format("unknown column \"{}\"; known are {}",
                                            l.fields[i].substr(0, 40), fmt::join(kColumns, ", "))};
    int& place = at[found - kColumns.begin()];
    if (place >= 0)
      throw InputError{l.where, fmt::format("column \"{}\" appears twice", l.fields[i])};
    place = static_cast<int>(i);
  }
  for (std::size_t c = kCollective; c <= kRanks; ++c)
    if (at[c] < 0) throw InputError{l.where, fmt::format("column \"{}\" is missing", kColumns[c])};
  return at;
}

}  // namespace

std::vector<TunerPoint> parse_tuner_points(const std::string& text, const std::string& file,
                                           const std::string& metric) {
  std::vector<io::CsvLine> lines = io::csv_lines(text, file);
  if (lines.empty())
    throw InputError{file, "is empty; expected a header and a row for each measurement"};
  std::array<int, 12> at = header_of(lines.front());
  std::optional<std::size_t> by;
  for (std::size_t c : {kLatency, kBandwidth, kCost})
    if (!by && at[c] >= 0 && (metric.empty() || metric == kColumns[c])) by = c;
  if (!by)
    throw InputError{
        lines.front().where,
        metric.empty()
            ? "none of latency_us, bandwidth_gbps, cost_metric is there: what is to be compared?"
            : fmt::format("column \"{}\" is missing", metric)};
  std::vector<TunerPoint> out;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const io::CsvLine& l = lines[i];
    if (l.fields.size() != lines.front().fields.size())
      throw InputError{l.where, fmt::format("has {} fields, the header {}", l.fields.size(),
                                            lines.front().fields.size())};
    auto field = [&](std::size_t c) { return l.fields[at[c]]; };
    TunerPoint p;
    p.collective = choose(field(kCollective), kCollectives, l.where, "collective");
    p.bytes = whole(field(kSize), l.where, "size_bytes", 1, std::int64_t{1} << 50);
    p.algorithm = choose(field(kAlgorithm), kAlgorithms, l.where, "algorithm");
    p.protocol = choose(field(kProtocol), kProtocols, l.where, "protocol");
    p.channels = channels_of(field(kChannels), l.where);
    p.nodes = small(field(kNodes), l.where, "nodes", -1, 1 << 20);
    p.ranks = small(field(kRanks), l.where, "ranks", -1, 1 << 20);
    if (p.nodes == 0 || p.ranks == 0)
      throw InputError{l.where, "nodes and ranks are positive, or -1 for any"};
    std::string_view number = field(*by);
    auto cost = parse_number(number);
    if (!cost || *cost < 0)
      throw InputError{l.where, fmt::format("{}: \"{}\" is not a positive number", kColumns[*by],
                                            number.substr(0, 40))};
    p.cost = *cost;
    if (*by == kBandwidth) p.cost = -p.cost;
    out.push_back(std::move(p));
  }
  if (out.empty()) throw InputError{file, "has a header and no row"};
  return out;
}

std::vector<TunerRow> best_rows(std::span<const TunerPoint> points) {
  std::map<Group, std::map<std::int64_t, const TunerPoint*>> best;
  for (const TunerPoint& p : points) {
    const TunerPoint*& here = best[{p.collective, p.nodes, p.ranks}][p.bytes];
    if (!here || p.cost < here->cost) here = &p;
  }
  std::vector<TunerRow> out;
  for (const auto& [group, sizes] : best) {
    std::int64_t begin = 0;
    bool first = true;
    for (auto s = sizes.begin(); s != sizes.end(); ++s) {
      const TunerPoint& p = *s->second;
      std::int64_t end = kTunerMostBytes;
      if (auto after = std::next(s); after != sizes.end()) {
        auto middle = static_cast<std::int64_t>(
            std::sqrt(static_cast<double>(s->first) * static_cast<double>(after->first)));
        end = std::clamp(middle, s->first, after->first - 1);
      }
      TunerRow r{p.collective, begin, end, p.algorithm, p.protocol, p.channels, p.nodes, p.ranks};
      begin = end == kTunerMostBytes ? end : end + 1;
      bool same = !first && out.back().algorithm == r.algorithm &&
                  out.back().protocol == r.protocol && out.back().channels == r.channels;
      if (same)
        out.back().max_bytes = r.max_bytes;
      else
        out.push_back(std::move(r));
      first = false;
    }
  }
  return out;
}

}  // namespace ddpsim::report
